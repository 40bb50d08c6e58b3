//! Variables of other hosts, as `hostvars` shows them: what the runs of other hosts have set. Each
//! run sends its values to the controller at the end of a play, and asks for those of the others
//! before the next one. If tasks of a play read what tasks of the same play set, the run also sends
//! values after each task that sets them, and asks before each task that reads them.

use super::{OnceResult, Request};
use crate::compile;
use crate::plan::{Plan, Play, PlayExchange, Task};
use crate::run::Run;
use crate::vars::run_state::RunState;
use crate::vars::unknown;
use crate::vars::variable_scope::VariableScope;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// The values of one host, in the form of messages.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HostValues {
    pub facts: Map<String, Value>,
    /// Registered results and the values of `set_fact`.
    pub set: Map<String, Value>,
}

/// What a run sends at the end of a play.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SharedValues {
    pub own: HostValues,
    /// Variables of other hosts that its tasks with `delegate_facts` have set.
    pub others: BTreeMap<String, HostValues>,
}

/// What a run receives before a play.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct OtherValues {
    /// Variables of the own host that other hosts have set.
    pub own: HostValues,
    pub others: BTreeMap<String, HostValues>,
}

impl SharedValues {
    /// Removes what no run of `plan` can set, because the host may be compromised.
    pub(super) fn retain_allowed(&mut self, plan: &Plan) {
        let HostValues { facts, set } = std::mem::take(&mut self.own);
        let mut own = RunState { facts, registers: set, ..RunState::default() };
        own.retain_settable(plan, &|_| None);
        let known = |name: &String| plan.shares.as_ref().is_some_and(|names| names.contains(name));
        own.facts.retain(|name, _| known(name));
        own.registers.retain(|name, _| known(name));
        self.own = HostValues { facts: own.facts, set: own.registers };
        self.others.remove(&plan.host);
        for values in self.others.values_mut() {
            values.facts.retain(|name, _| plan.may_set_of_others(name, true));
            values.set.retain(|name, _| plan.may_set_of_others(name, false));
        }
    }

    /// Removes hosts that are not known, and the facts of other hosts that have the name of a
    /// variable of their inventory. `inventory_of`: the inventory variables of a host, or None if
    /// the host is not known.
    pub fn retain_new_facts(&mut self, inventory_of: &dyn Fn(&str) -> Option<Map<String, Value>>) {
        self.others.retain(|host, values| {
            let Some(own) = inventory_of(host) else { return false };
            values.facts.retain(|name, _| !own.contains_key(name));
            true
        });
    }
}

impl VariableScope<'_> {
    /// The values of this run that other hosts may read.
    fn shared_values(&self, is_shared: impl Fn(&str) -> bool) -> HostValues {
        let state = self.state();
        let known = |values: Map<String, Value>| values.into_iter().filter(|(name, _)| is_shared(name));
        let mut own = HostValues { facts: known(state.facts).collect(), set: known(state.registers).collect() };
        for name in state.unknown.into_iter().filter(|name| is_shared(name)) {
            own.set.insert(name, unknown::mark());
        }
        own
    }

    fn take_values(&mut self, values: &OtherValues) {
        for (host, values) in &values.others {
            values.facts.iter().for_each(|(name, value)| self.learn_about(host, name, value, true));
            values.set.iter().for_each(|(name, value)| self.learn_about(host, name, value, false));
        }
        values.own.facts.iter().for_each(|(name, value)| self.learn(name, value));
        values.own.set.iter().for_each(|(name, value)| self.set(name, value));
    }
}

/// What a run remembers because other hosts take part.
#[derive(Debug, Default)]
pub(crate) struct OtherHosts {
    /// What the other hosts need to know of the task that is being run, if this host runs it for
    /// all of them.
    pub once: Option<OnceResult>,
    /// The reason why the run ends, if another host failed in a task that it ran for this host too.
    pub failure: Option<String>,
    /// Variables that tasks with `delegate_facts` have set for other hosts since the last play.
    pub given: BTreeMap<String, HostValues>,
    /// The tasks of the present play that exchange variables with other hosts.
    pub exchange: Option<PlayExchange>,
}

impl Run<'_, '_> {
    /// Sends the values that other hosts may read. The error says why this is not possible.
    pub(crate) fn share_values(&mut self) -> Result<(), String> {
        let (Some(names), Some(link)) = (&self.frame.plan().shares, &self.options.controller) else { return Ok(()) };
        let others = std::mem::take(&mut self.others.given);
        let values = SharedValues { own: self.frame.shared_values(|name| names.contains(name)), others };
        let mut values = serde_json::to_value(values).unwrap_or_default();
        unknown::to_wire(&mut values);
        let answer = link.ask(&Request::Share(values))?;
        let refused: Option<String> = serde_json::from_slice(&answer).map_err(|e| e.to_string())?;
        refused.map_or(Ok(()), Err)
    }

    /// Takes the values that other hosts have set so far.
    pub(crate) fn receive_values(&mut self) -> Result<(), String> {
        let (Some(_), Some(link)) = (&self.frame.plan().shares, &self.options.controller) else { return Ok(()) };
        let answer = link.ask(&Request::Others)?;
        let mut values: Value = serde_json::from_slice(&answer).map_err(|e| e.to_string())?;
        unknown::from_wire(&mut values);
        let values: OtherValues = serde_json::from_value(values).map_err(|e| e.to_string())?;
        self.frame.take_values(&values);
        Ok(())
    }

    /// Begins to exchange variables with the hosts that run the same play.
    pub(crate) fn begin_exchange(&mut self, play: &Play) -> Result<(), String> {
        let exchange = self.options.controller.as_ref().and_then(|_| self.frame.plan().exchange_of(play));
        self.others.exchange = exchange;
        self.publish_values_of(None)
    }

    /// Sends the variables that hosts of the same play may read, once `task` has set some of them.
    /// None: the play begins.
    fn publish_values_of(&mut self, task: Option<&Task>) -> Result<(), String> {
        let (Some(exchange), Some(link)) = (&self.others.exchange, &self.options.controller) else { return Ok(()) };
        let sets = |task: &Task| exchange.setters.iter().any(|(id, _)| *id == task.id);
        if task.is_some_and(|task| !sets(task)) || self.cancel.is_stopped() {
            return Ok(());
        }
        let mut set = Vec::new();
        task.into_iter().for_each(|task| compile::names_set_by(task, &mut set));
        let is_shared =
            |name: &str| exchange.names.contains(name) && (task.is_none() || set.iter().any(|set| set == name));
        let values = SharedValues { own: self.frame.shared_values(is_shared), ..SharedValues::default() };
        let mut values = serde_json::to_value(values).unwrap_or_default();
        unknown::to_wire(&mut values);
        let answer = link.ask(&Request::Publish { task: task.map(|task| task.id), values })?;
        let refused: Option<String> = serde_json::from_slice(&answer).map_err(|e| e.to_string())?;
        refused.map_or(Ok(()), Err)
    }

    /// Waits until the hosts of the play have passed the tasks that set what `task` reads of them,
    /// and takes their values.
    pub(crate) fn read_of_others(&mut self, task: &Task) -> Result<(), String> {
        let (Some(exchange), Some(link)) = (&self.others.exchange, &self.options.controller) else { return Ok(()) };
        if !exchange.readers.contains_key(&task.id) {
            return Ok(());
        }
        let answer = link.ask(&Request::Await(task.id))?;
        let mut values: Value = serde_json::from_slice(&answer).map_err(|e| e.to_string())?;
        unknown::from_wire(&mut values);
        let others = serde_json::from_value(values).map_err(|e| e.to_string())?;
        self.frame.take_values(&OtherValues { others, ..OtherValues::default() });
        Ok(())
    }

    /// Sends the variables that `task` may have set. The error is a failure of the whole run.
    pub(crate) fn publish_values(&mut self, task: &Task) -> Result<(), String> {
        self.publish_values_of(Some(task))
    }
}
