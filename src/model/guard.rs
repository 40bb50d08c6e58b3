//! May this re-setup begin now? One function for the engine, which asks before it proposes, and for the state
//! machine, which asks again when the entry is applied: so two proposals in flight can't break a budget together (I7).

use super::{Availability, ClusterRole, Inventory, Job, JobState, Lifecycle, Node, Occasion, Wall, Want, weekday_text};
use serde::{Deserialize, Serialize};
use std::fmt;

/// What a wanted re-setup waits for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "code", content = "text")]
pub enum Wait {
    Away,
    Unexamined,
    Lifecycle(String),
    KeyChanged(String),
    Paused,
    Maintenance,
    /// When the window opens; none: never.
    Window(Option<Wall>),
    Held(String),
    Breaker(String),
    Budget(String),
    Manager(String),
    Quorum(String),
    Canary(String),
    NoGeneration,
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Wait::Away => f.write_str("waiting for the node to come back"),
            Wait::Unexamined => f.write_str("waiting for the verdict on its absence"),
            Wait::Lifecycle(word) => write!(f, "the node is {word}"),
            Wait::KeyChanged(fingerprint) => write!(f, "its SSH host key changed to {fingerprint}"),
            Wait::Paused => f.write_str("paused"),
            Wait::Maintenance => f.write_str("in maintenance"),
            Wait::Window(Some(at)) => write!(f, "window opens at {}", weekday_text(*at)),
            Wait::Window(None) => f.write_str("its windows never open"),
            Wait::Held(why) => write!(f, "held: {why}"),
            Wait::Breaker(why) => write!(f, "breaker open: {why}"),
            Wait::Budget(text) => write!(f, "budget: {text}"),
            Wait::Manager(name) => write!(f, "manager {name} is being set up"),
            Wait::Quorum(text) => write!(f, "quorum: {text}"),
            Wait::Canary(text) => write!(f, "canary: {text}"),
            Wait::NoGeneration => f.write_str("no fleet was applied for this node"),
        }
    }
}

/// The same question for a further attempt of an open job.
pub fn may_retry(inventory: &Inventory, node: &Node, job: &Job, at: Wall) -> Result<(), Wait> {
    let want = Want {
        occasion: job.occasion,
        reasons: Vec::new(),
        services: Vec::new(),
        since: job.opened,
        examined: None,
        by: job.by.clone(),
        now: job.now,
        decommission: job.decommission,
    };
    may_open(inventory, node, &want, at)
}

/// Ok, or the first thing in the way. `at` is the moment of asking.
///
/// An operator's order passes pause and breaker; with `now` also hold, window and maintenance. Nothing passes the
/// lifecycle, the host key, the budgets of running work and the quorum. Windows protect what serves: they don't hold back
/// an order to take a node in or out, nor the repair of one that an earlier attempt left half done.
pub fn may_open(inventory: &Inventory, node: &Node, want: &Want, at: Wall) -> Result<(), Wait> {
    let automatic = want.by.is_none();
    // An operator may insist where the host answers and only the agent is silent.
    let insisted = want.now && !automatic && node.agent_down();
    if node.away() && !insisted {
        return Err(Wait::Away);
    }
    if node.absence.is_some() && !want.now {
        return Err(Wait::Unexamined);
    }
    match node.lifecycle {
        Lifecycle::Decommissioned => return Err(Wait::Lifecycle(node.lifecycle.word().to_owned())),
        Lifecycle::Decommissioning if !want.decommission => {
            return Err(Wait::Lifecycle(node.lifecycle.word().to_owned()));
        }
        _ => {}
    }
    if let Some(fingerprint) = &node.key_changed {
        return Err(Wait::KeyChanged(fingerprint.clone()));
    }
    let Some((group_name, group)) = inventory.group(node) else { return Err(Wait::NoGeneration) };
    if automatic && node.availability == Availability::Pause {
        return Err(Wait::Paused);
    }
    if !want.now {
        if automatic && node.in_maintenance(at) {
            return Err(Wait::Maintenance);
        }
        if let Some(hold) = node.held(at) {
            return Err(Wait::Held(hold.why.clone()));
        }
        let takes_in_or_out = !automatic && (want.decommission || !node.serves());
        if !takes_in_or_out && !node.half_done() && !group.windows.open(at) {
            return Err(Wait::Window(group.windows.opens(at)));
        }
    }
    if automatic
        && let Some(breaker) = &inventory.breaker
        && breaker.group.as_ref().is_none_or(|g| g == group_name)
    {
        return Err(Wait::Breaker(breaker.why.clone()));
    }
    if automatic && want.occasion == Occasion::Apply {
        canary(inventory, node, group_name)?;
    }
    running_work(inventory, node, group_name, group)
}

/// A roll-out waits for the first of its group, and stops where one is held.
fn canary(inventory: &Inventory, node: &Node, group: &super::GroupName) -> Result<(), Wait> {
    let mut first = None;
    for job in inventory.jobs.values().filter(|j| j.generation == inventory.current && j.node != node.id) {
        let Some(other) = inventory.node(job.node) else { continue };
        if inventory.group(other).is_none_or(|(name, _)| name != group) {
            continue;
        }
        match job.state {
            JobState::Held => return Err(Wait::Canary(format!("{} is held with this generation", other.name()))),
            JobState::Open => first = Some(other.name()),
            JobState::Done | JobState::Cancelled => {}
        }
    }
    let desired = |n: &Node| n.baseline.as_ref().map(|b| b.desired) == inventory.desired(n);
    let members = inventory.nodes.values().filter(|n| inventory.group(n).is_some_and(|(name, _)| name == group));
    match first {
        Some(first) if !members.into_iter().any(|n| desired(n)) => Err(Wait::Canary(format!("{first} comes first"))),
        _ => Ok(()),
    }
}

fn running_work(
    inventory: &Inventory,
    node: &Node,
    group_name: &super::GroupName,
    group: &super::GroupSummary,
) -> Result<(), Wait> {
    let limits = inventory.limits();
    let working =
        |n: &Node| n.id != node.id && n.job.and_then(|j| inventory.job(j)).is_some_and(|j| j.open_attempt().is_some());
    let busy: Vec<&Node> = inventory.nodes.values().map(|n| n.as_ref()).filter(|n| working(n)).collect();
    let fleet = inventory.nodes.len() as u32;
    let fleet_max = (fleet * limits.fleet_percent / 100).max(1);
    if busy.len() as u32 >= fleet_max {
        return Err(Wait::Budget(format!("{} of {fleet_max} re-setups of the fleet are running", busy.len())));
    }
    let peers = busy.iter().filter(|n| inventory.group(n).is_some_and(|(name, _)| name == group_name)).count() as u32;
    let group_max = group.parallel.max(1);
    if peers >= group_max {
        return Err(Wait::Budget(format!("{peers} of {group_max} re-setups of group {group_name} are running")));
    }
    if node.role == ClusterRole::Manager
        && let Some(other) = busy.iter().find(|n| n.role == ClusterRole::Manager)
    {
        return Err(Wait::Manager(other.name().to_string()));
    }
    // Who serves nobody yet, or not any more, can't take a quorum away.
    if group.quorum && node.serves() {
        let members: Vec<&Node> = inventory
            .nodes
            .values()
            .map(|n| n.as_ref())
            .filter(|n| inventory.group(n).is_some_and(|(name, _)| name == group_name))
            .filter(|n| n.serves())
            .collect();
        // Two that are half done must not wait for each other; nobody knows which of them still serves.
        let up = |n: &Node| !n.away() && !working(n) && (node.half_done() || !n.half_done());
        let others = members.iter().filter(|n| n.id != node.id && up(n)).count();
        let majority = members.len() / 2 + 1;
        if members.len() > 1 && others < majority {
            return Err(Wait::Quorum(format!(
                "{others} other members of group {group_name} are up, {majority} must stay"
            )));
        }
    }
    Ok(())
}
