//! `hostvars`: the variables of each host.
//!
//! For another host, these are the variables of the inventory. For the host itself, current facts,
//! set variables and registered results are added. As in Ansible, variables of plays, roles and
//! tasks are not included.

use crate::lang::hosts::LOCAL;
use crate::vars::scope::{ExprScope, ask_a_run, unknown_now};
use crate::vars::var_map::{Var, VarMap};
use minijinja::Value;
use minijinja::value::{Enumerator, Object};
use std::sync::Arc;

/// The name of this variable in expressions.
pub const NAME: &str = "hostvars";
/// Variables that are the same on every host; templates in the variables of a host may read them.
const COMMON: [&str; 5] = ["ansible_check_mode", "ansible_version", "groups", NAME, "omit"];

/// Makes the value of `hostvars`. `all` holds the variables of the inventory by host. `scope` is
/// the scope of the expression that reads `hostvars`.
pub fn value(scope: &ExprScope, all: &Arc<VarMap>) -> Value {
    Value::from_object(HostVarsObject { scope: scope.clone(), all: all.clone() })
}

#[derive(Debug)]
struct HostVarsObject {
    scope: ExprScope,
    all: Arc<VarMap>,
}

impl Object for HostVarsObject {
    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        self.get_value_by_str(key.as_str()?)
    }
    fn get_value_by_str(self: &Arc<Self>, name: &str) -> Option<Value> {
        let set = self.scope.host_layers().and_then(|own| own.others.get(name));
        let inventory = match self.all.get(name) {
            Some(Var::Map(inventory)) => inventory.clone(),
            // A task with `delegate_facts` may name a host that the inventory does not contain.
            _ => {
                let others_change = self.scope.host_layers().is_some_and(|own| own.others_change);
                (set.is_some() || others_change && LOCAL.contains(&name)).then(Arc::default)?
            }
        };
        let own = self.scope.host_layers().filter(|own| own.name == name);
        let unknown = own.map(|_| self.scope.unknown_names().clone()).unwrap_or_default();
        let mut common = VarMap::default();
        for known in COMMON {
            self.scope.get(known).into_iter().for_each(|var| common.set(known, var.clone()));
        }
        common.set("inventory_hostname", Var::Plain(name.into()));
        let mut layers = match unknown.is_empty() {
            true => vec![inventory.clone()],
            false => vec![Arc::new(inventory.without_names(&unknown))],
        };
        layers.extend(own.into_iter().flat_map(|own| own.layers.iter().cloned()));
        layers.extend(set.map(|set| Arc::new(set.clone())));
        let within = [vec![Arc::new(common)], layers.clone()].concat();
        let [vars, within] = [layers, within].map(|layers| ExprScope::new(layers, unknown.clone()));
        let within = self.scope.host_layers().map(|own| within.with_host(own.clone())).unwrap_or(within);
        let changes = own.is_none() && self.scope.host_layers().is_some_and(|own| own.others_change);
        Some(Value::from_object(SingleHostVars { vars, within, changes }))
    }
    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Values(self.all.iter().map(|(name, _)| Value::from(name.clone())).collect())
    }
    fn enumerator_len(self: &Arc<Self>) -> Option<usize> {
        Some(self.all.len())
    }
}

/// The variables of one host, as `hostvars` shows them.
#[derive(Debug)]
struct SingleHostVars {
    /// The host's own variables.
    vars: ExprScope,
    /// The scope in which templates in these variables are rendered.
    within: ExprScope,
    /// Whether a missing variable may be known only during a run.
    changes: bool,
}

impl Object for SingleHostVars {
    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        self.get_value_by_str(key.as_str()?)
    }
    fn get_value_by_str(self: &Arc<Self>, name: &str) -> Option<Value> {
        // `hostvars` does not contain itself, as in Ansible, because the value would be infinite.
        if name == NAME {
            return None;
        }
        match self.vars.get(name) {
            Some(var) => Some(self.within.value(name, var)),
            None if COMMON.contains(&name) => self.within.get(name).map(|var| self.within.value(name, var)),
            None if self.changes => Some(ask_a_run(name)),
            None => self.vars.asks_a_run(name).then(|| unknown_now(name)),
        }
    }
    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Values(self.vars.names().into_iter().filter(|name| **name != *NAME).map(Value::from).collect())
    }
}
