//! `hostvars`: the variables of each host, as that host has them.
//!
//! Another host's are those of the inventory. The own host's are what holds at this moment: facts, and what tasks have set
//! and registered, over its inventory. Of plays, roles and tasks there is nothing in either, as in Ansible.

use super::data::{Var, VarMap};
use super::scope::{Scope, unknown_now};
use minijinja::Value;
use minijinja::value::{Enumerator, Object};
use std::sync::Arc;

/// The name under which expressions find all of it.
pub const NAME: &str = "hostvars";
/// What is the same on every host, and templates among the variables of one may name.
const COMMON: [&str; 5] = ["ansible_check_mode", "ansible_version", "groups", NAME, "omit"];

/// What expressions see as `hostvars`: `all` is what the inventory says, `scope` that of the expression.
pub fn value(scope: &Scope, all: &Arc<VarMap>) -> Value {
    Value::from_object(Hosts { scope: scope.clone(), all: all.clone() })
}

#[derive(Debug)]
struct Hosts {
    scope: Scope,
    all: Arc<VarMap>,
}

impl Object for Hosts {
    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        self.get_value_by_str(key.as_str()?)
    }
    fn get_value_by_str(self: &Arc<Self>, name: &str) -> Option<Value> {
        let Some(Var::Map(inventory)) = self.all.get(name) else { return None };
        let own = self.scope.own().filter(|own| own.name == name);
        let unknown = own.map(|_| self.scope.unknown_names().clone()).unwrap_or_default();
        let mut common = VarMap::default();
        for known in COMMON {
            self.scope.get(known).into_iter().for_each(|var| common.set(known, var.clone()));
        }
        common.set("inventory_hostname", Var::Plain(name.into()));
        let mut layers = match unknown.is_empty() {
            true => vec![inventory.clone()],
            false => vec![Arc::new(inventory.without(&unknown))],
        };
        layers.extend(own.into_iter().flat_map(|own| own.layers.iter().cloned()));
        let within = [vec![Arc::new(common)], layers.clone()].concat();
        let [vars, within] = [layers, within].map(|layers| Scope::new(layers, unknown.clone()));
        let within = self.scope.own().map(|own| within.of(own.clone())).unwrap_or(within);
        Some(Value::from_object(Vars { vars, within }))
    }
    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Values(self.all.iter().map(|(name, _)| Value::from(name.clone())).collect())
    }
    fn enumerator_len(self: &Arc<Self>) -> Option<usize> {
        Some(self.all.len())
    }
}

/// The variables of one host.
#[derive(Debug)]
struct Vars {
    /// Those that it has.
    vars: Scope,
    /// What templates among them see.
    within: Scope,
}

impl Object for Vars {
    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        self.get_value_by_str(key.as_str()?)
    }
    fn get_value_by_str(self: &Arc<Self>, name: &str) -> Option<Value> {
        // As in Ansible, and there is no end to it otherwise.
        if name == NAME {
            return None;
        }
        match self.vars.get(name) {
            Some(var) => Some(self.within.value(name, var)),
            None => self.vars.asks_a_run(name).then(|| unknown_now(name)),
        }
    }
    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Values(self.vars.names().into_iter().filter(|name| **name != *NAME).map(Value::from).collect())
    }
}
