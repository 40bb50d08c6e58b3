//! The context that a task inherits from its play, roles, blocks, imports and includes.

use crate::lang::yaml::SpannedNode;
use crate::plan::TaskCondition;
use serde_json::Value;
use std::collections::BTreeMap;
use std::rc::Rc;

#[derive(Clone)]
pub(super) struct Role {
    pub name: String,
    pub dir: String,
    /// The names and directories of the roles whose tasks include this role, innermost first.
    pub parents: Vec<(String, String)>,
}

impl Role {
    /// The name and the directory of this role, then those of its parents.
    pub fn names_with_parents(&self) -> Vec<(String, String)> {
        let own = (self.name.clone(), self.dir.clone());
        [own].into_iter().chain(self.parents.iter().cloned()).collect()
    }
}

/// The keywords, variables and role that a task gets from its play, role, block, import or include.
#[derive(Clone, Default)]
pub(super) struct Context {
    pub file: String,
    pub role: Option<Role>,
    pub layers: LayerChain,
    pub keywords: InheritedKeywords,
    /// The value of `remote_user`, if it is not the login user of the host. A task without `become`
    /// then runs as this user.
    pub login_user: Option<String>,
    /// Whether the tasks are delegated to the host of the plan itself.
    pub delegated_here: bool,
    /// Why tasks that access a host are refused, because of a `delegate_to`: file, place, message.
    pub refused_delegation: Option<(String, (u32, u32), String)>,
    /// Directories of the roles that depend on the current role.
    pub needing: Vec<String>,
    /// Task files that are being read, outermost first.
    pub open: Vec<String>,
    /// Whether the task is a handler. Handlers are compiled whatever their tags.
    pub handler: bool,
    /// Whether the task is inside a dynamic include.
    pub dynamic: bool,
}

/// Indices of the layers (maps of variables in the plan) that a task sees. Each list holds layers
/// of one precedence.
#[derive(Clone, Default)]
pub(super) struct LayerChain {
    /// Layers with the defaults of three kinds of roles: the task's role, its dependencies, and the
    /// roles that depend on the task's role.
    pub defaults: Vec<u32>,
    /// Layers of the play's `vars` and `vars_files`.
    pub play_vars: Vec<u32>,
    /// Layers of the variables of the task's role, in the same order as the defaults.
    pub role_vars: Vec<u32>,
    /// Layers of surrounding blocks, imports and includes, and of the task itself.
    pub vars: Vec<u32>,
    /// Layers with the parameters of the surrounding roles, outermost first.
    pub role_params: Vec<u32>,
    /// Layers with the variables of surrounding dynamic includes.
    pub include_params: Vec<u32>,
    /// Layers of the defaults and variables that a role passes on to its dependencies and to the
    /// roles that its tasks name.
    pub chain_defaults: Vec<u32>,
    pub chain_vars: Vec<u32>,
}

/// Keywords that a play, a block or an include passes on to its tasks.
#[derive(Clone, Default)]
pub(super) struct InheritedKeywords {
    pub tags: Vec<String>,
    pub when: Vec<TaskCondition>,
    pub environment: Vec<Value>,
    pub ignore_errors: Option<Value>,
    pub no_log: bool,
    pub elevated: bool,
    /// The value of `become` if only the node knows it.
    pub elevated_if: Option<String>,
    /// The user who runs the command of a task, if not root. A template if only the node knows it.
    pub become_user: Option<String>,
    pub fatal: bool,
    pub check_mode: Option<Value>,
    pub diff: Option<Value>,
    pub run_once: bool,
    /// Maximum number of hosts that run a task at the same time; 0: no limit.
    pub throttle: u32,
    /// The host that runs the tasks instead of the host of the plan; may contain markup.
    pub delegate_to: Option<String>,
    pub delegate_facts: bool,
    /// Whether the tasks run on the controller (`connection: local`).
    pub local: bool,
    pub timeout: Option<Value>,
    pub notify: Vec<String>,
    /// Collections in which modules without a collection are searched.
    pub collections: Vec<String>,
    /// Default options of modules (the keyword `module_defaults`), by module name.
    pub module_defaults: BTreeMap<String, Rc<SpannedNode>>,
}
