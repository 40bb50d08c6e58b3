//! Invariant I7 (docs/design/invariants.md): whenever work on a node begins, the budgets, breakers,
//! canaries and the quorum of the group are kept. The law uses the operator's limits and the real
//! states of the hosts.

use super::*;
use std::collections::{BTreeMap, BTreeSet};

/// The time between two [`Fact::Second`] facts, in milliseconds.
const SECOND: u64 = 1_000;

#[derive(Default)]
pub struct Budgets {
    /// Hosts on which a cleanup has begun, and on which no provisioning has succeeded since the
    /// beginning of that cleanup.
    broken: BTreeSet<usize>,
    /// For each host in `broken`, the last time at which all its services existed and ran. This is
    /// checked once per simulated second.
    whole: BTreeMap<usize, u64>,
}

impl Law for Budgets {
    fn name(&self) -> &'static str {
        "I7"
    }

    fn check(&mut self, world: &World, fact: &Fact) -> Result<(), String> {
        match fact {
            Fact::Touches { host, phase: Phase::Cleanup, .. } => {
                self.broken.insert(*host);
                self.whole.remove(host);
            }
            Fact::Second => {
                let now = self.broken.iter().filter(|host| is_whole(world, **host)).map(|host| (*host, world.now));
                self.whole.extend(now);
            }
            Fact::Ended { host, phase: Phase::Verify, well: true, .. } => {
                self.broken.remove(host);
            }
            // The job was cancelled before its end, but a later examination found the host
            // complete. So the host is not broken any more, whatever happened to it after the
            // examination.
            Fact::Applied {
                entry: InventoryEntry { command: Command::Conclude { node, finding }, .. },
                applied: Applied::Done,
                ..
            } if finding.verdict == Verdict::Same => {
                let host = world.host_of(*node);
                let began = world.now.saturating_sub(finding.took_ms + SECOND);
                if is_whole(world, host) || self.whole.get(&host).is_some_and(|at| *at >= began) {
                    self.broken.remove(&host);
                }
            }
            // An operator adopted the node in its current state, so the node does not count as
            // broken any more.
            Fact::Applied {
                entry: InventoryEntry { command: Command::Adopt { node, .. }, .. },
                applied: Applied::Done,
                ..
            } => {
                self.broken.remove(&world.host_of(*node));
            }
            Fact::Applied { applied: Applied::Job(job, _), before, entry } => {
                let takeover = before.job(*job).is_some_and(|j| j.open_attempt().is_some());
                let job = world.state.job(*job).expect("was just opened");
                if !takeover {
                    self.begins(world, before, job, entry)?;
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// Whether all services of the host exist and run.
fn is_whole(world: &World, host: usize) -> bool {
    world.hosts[host].parts.values().all(|p| p.running && p.version.is_some())
}

/// Whether the host `other` is the canary for this job: a host of the same group that is set up
/// first, with the same generation.
fn goes_first(world: &World, before: &Inventory, job: &Job, other: usize) -> bool {
    let group = world.hosts[world.host_of(job.node)].group;
    let members: Vec<&Node> =
        world.hosts.iter().filter(|h| h.group == group).filter_map(|h| before.node(h.id)).collect();
    let proven = members.iter().any(|n| n.setup.baseline.as_ref().map(|b| b.desired) == before.desired_hash(n));
    let (id, generation) = (world.hosts[other].id, before.current);
    let works = |j: &Job| j.node == id && j.open_attempt().is_some() && j.kind() != JobKind::Undo;
    let same = before.jobs.values().any(|j| works(j) && j.generation == generation);
    world.hosts[other].group == group && !before.node(id).is_some_and(Node::is_away) && same && !proven
}

/// Whether the job sets up the whole node with a generation that is newer than the node's last one.
/// A job because of a changed address or an unfinished earlier job does not count.
fn returns_to_another(before: &Inventory, node: &Node, job: &Job) -> bool {
    let whole = job.spec.services.is_empty() && !job.spec.decommission && job.spec.undo.is_none();
    whole && before.is_outdated(node) && !before.only_addresses_changed(node) && !node.half_done()
}

impl Budgets {
    fn begins(&self, world: &World, before: &Inventory, job: &Job, entry: &InventoryEntry) -> Result<(), String> {
        let at = world.host_of(job.node);
        let host = &world.hosts[at];
        let node = before.node(job.node).expect("a job has its node");
        let works = |id: NodeId| before.jobs.values().any(|j| j.node == id && j.open_attempt().is_some());
        let busy: Vec<usize> = (0..world.hosts.len()).filter(|h| *h != at && works(world.hosts[*h].id)).collect();
        let fleet = (world.hosts.len() * world.options.limits.fleet_percent as usize / 100).max(1);
        if busy.len() >= fleet {
            return Err(format!("{} begins beside {} others of the fleet", host.name, busy.len()));
        }
        let peers = busy.iter().filter(|h| world.hosts[**h].group == host.group).count();
        let parallel = if host.group == "worker" { 2 } else { 1 };
        if peers >= parallel {
            return Err(format!("{} begins beside {peers} others of its group", host.name));
        }
        if host.manager && busy.iter().any(|h| world.hosts[*h].manager) {
            return Err(format!("{} begins while another manager is set up", host.name));
        }
        let automatic = job.spec.by.is_none();
        let joins = automatic && returns_to_another(before, node, job);
        let rolls_out = (automatic || job.spec.rollout) && job.spec.trigger == Trigger::Apply || joins;
        if joins && before.held_in_rollout(&host.group.into()).any(|n| n.id != job.node) {
            return Err(format!("{} begins with a generation that another of its group is held with", host.name));
        }
        if rolls_out && let Some(first) = busy.iter().find(|h| goes_first(world, before, job, **h)) {
            return Err(format!("{} begins beside {}, which goes first", host.name, world.hosts[*first].name));
        }
        let breaker = before.breaker.as_ref();
        if automatic && breaker.is_some_and(|b| b.group.as_ref().is_none_or(|g| g.as_str() == host.group)) {
            return Err(format!("{} begins while a breaker is open", host.name));
        }
        if automatic && node.availability == Availability::Pause {
            return Err(format!("{} begins and is paused", host.name));
        }
        if !job.spec.now
            && job.spec.undo.is_none()
            && (automatic && node.in_maintenance(entry.at) || node.active_hold(entry.at).is_some())
        {
            return Err(format!("{} begins and is held or in maintenance", host.name));
        }
        let insisted = job.spec.force && job.spec.by.is_some() && node.agent_down();
        if node.host_key.changed.is_some() || node.is_away() && !insisted {
            return Err(format!("{} begins and is away or has another host key", host.name));
        }
        let up = |h: &usize| {
            let peer = before.node(world.hosts[*h].id);
            *h != at && !busy.contains(h) && !self.broken.contains(h) && peer.is_some_and(|n| !n.is_away())
        };
        let members: Vec<usize> = (0..world.hosts.len())
            .filter(|h| world.hosts[*h].group == "master" && host.group == "master")
            .filter(|h| before.node(world.hosts[*h].id).is_some_and(Node::serves))
            .collect();
        let others = members.iter().filter(|h| up(h)).count();
        if members.contains(&at) && !self.broken.contains(&at) && members.len() > 1 && others < members.len() / 2 + 1 {
            let (all, broken) = (members.len(), &self.broken);
            return Err(format!(
                "{} begins, and only {others} others of {all} are up; half done: {broken:?}",
                host.name
            ));
        }
        Ok(())
    }
}
