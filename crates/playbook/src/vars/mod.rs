//! The variables that a task sees: their layers and precedence, `hostvars`, the items of loops, and
//! values that check mode cannot know. Reading facts from the machine belongs in `facts`.

pub(crate) mod hostvars;
pub(crate) mod loops;
pub(crate) mod protected_names;
pub(crate) mod run_state;
pub(crate) mod scope;
pub(crate) mod unknown;
pub(crate) mod var_map;
pub(crate) mod variable_scope;
