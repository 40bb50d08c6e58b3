//! What a task inherits from its play, roles, blocks, imports and includes.

use crate::lang::yaml::SpannedNode;
use crate::plan::TaskCondition;
use serde_json::Value;
use std::collections::BTreeMap;
use std::rc::Rc;

#[derive(Clone)]
pub(super) struct Role {
    pub name: String,
    pub dir: String,
}

/// The context that a task inherits.
#[derive(Clone, Default)]
pub(super) struct Context {
    pub file: String,
    pub role: Option<Role>,
    pub layers: LayerChain,
    pub keywords: InheritedKeywords,
    /// Directories of the roles that need this one.
    pub needing: Vec<String>,
    /// Task files that are being read, outermost first.
    pub open: Vec<String>,
    /// The context is a handler; handlers are compiled whatever their tags.
    pub handler: bool,
    /// The context is inside a dynamic include.
    pub dynamic: bool,
}

/// Indices of the layers of variables that a task sees, by their precedence.
#[derive(Clone, Default)]
pub(super) struct LayerChain {
    /// Layers of the defaults of its role, of the roles it needs, and of the roles that need it.
    pub defaults: Vec<u32>,
    /// Layers of the play's variables and its files.
    pub play_vars: Vec<u32>,
    /// Layers of its role's variables, in the same order as the defaults.
    pub role_vars: Vec<u32>,
    /// Layers of surrounding blocks, imports and includes, and its own.
    pub vars: Vec<u32>,
    /// Layers of role parameters, outermost first.
    pub role_params: Vec<u32>,
    /// Layers of surrounding dynamic includes.
    pub include_params: Vec<u32>,
    /// Layers of the roles that contain a role, for the roles that it names.
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
    /// The user, if not root.
    pub become_user: Option<String>,
    pub fatal: bool,
    pub check_mode: Option<Value>,
    pub diff: Option<Value>,
    pub run_once: bool,
    pub timeout: Option<Value>,
    pub notify: Vec<String>,
    /// Default options by module name.
    pub module_defaults: BTreeMap<String, Rc<SpannedNode>>,
}
