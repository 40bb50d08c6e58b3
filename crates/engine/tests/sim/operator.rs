//! The operators of the simulation. They give orders at any time, also pointless ones.

use super::host::services;
use super::world::{Due, EPOCH, World};
use remoor_engine::About;
use remoor_model::*;

impl World {
    pub fn operator(&mut self) {
        let at = self.rng.up_to(self.hosts.len());
        let id = self.hosts[at].id;
        let command = match self.rng.up_to(20) {
            0 | 1 => self.request_resetup(at, Trigger::Live, false),
            2 => self.request_service_resetup(at),
            3 => self.request_resetup(at, Trigger::Apply, true),
            4 | 5 => self.request_resetup(at, Trigger::Apply, false),
            6 => {
                let heard = self.hosts[at].is_in_gossip();
                let free = self.state.node(id).is_some_and(|n| n.lifecycle != Lifecycle::Accepted);
                if !heard || !free {
                    return;
                }
                Command::Adopt { node: id, baseline: self.baseline(at, true), basis: self.state.applied }
            }
            7 => Command::Availability {
                node: id,
                availability: if self.rng.chance(500) { Availability::Pause } else { Availability::Active },
            },
            8 => {
                let until = self.rng.chance(700).then(|| Wall(EPOCH + self.now + 20_000));
                Command::Maintenance { node: id, until }
            }
            9 => match self.state.jobs.values().find(|j| j.closed.is_none()) {
                Some(job) => Command::CancelJob { job: job.id, why: "cancelled".to_owned(), now: self.rng.chance(300) },
                None => return,
            },
            10 => Command::Resume,
            11 => Command::ResumeNode { node: id },
            12 | 13 => {
                self.version += 1;
                self.generation()
            }
            14 => Command::TrustKey { node: id, keys: self.hosts[at].keys() },
            15 => Command::DropRequest { node: id, why: "called off".to_owned() },
            16 => self.batch(),
            17 => self.drain(at),
            _ => match self.undo() {
                Some(command) => command,
                None => return,
            },
        };
        self.order_now(command);
    }

    fn drain(&mut self, at: usize) -> Command {
        let node = self.hosts[at].id;
        let Command::RequestResetup { want, .. } = self.request_resetup(at, Trigger::Apply, true) else {
            unreachable!("a want is asked for")
        };
        Command::Drain { node, want }
    }

    /// Several orders in one batch. If one of them is invalid, none of them takes effect.
    fn batch(&mut self) -> Command {
        if self.rng.chance(300) {
            return self.roll_out();
        }
        let from = self.rng.up_to(self.hosts.len());
        let orders = (from..self.hosts.len()).take(3).map(|at| match self.rng.up_to(8) {
            0 => Command::DropRequest { node: self.hosts[at].id, why: "called off".to_owned() },
            1 => Command::ResumeNode { node: self.hosts[at].id },
            _ => self.request_resetup(at, Trigger::Live, false),
        });
        Command::Batch(orders.collect())
    }

    /// A batch that sets up several nodes with the current generation. One node of each group goes
    /// first.
    fn roll_out(&mut self) -> Command {
        let group = self.hosts[self.rng.up_to(self.hosts.len())].group;
        let behind = |n: &Node| n.lifecycle == Lifecycle::Commissioned && self.state.is_outdated(n);
        let outdated = |at: &usize| self.state.node(self.hosts[*at].id).is_some_and(behind);
        let all: Vec<usize> =
            (0..self.hosts.len()).filter(|at| self.hosts[*at].group == group).filter(outdated).collect();
        let orders = all.into_iter().map(|at| {
            let mut order = self.request_resetup(at, Trigger::Apply, false);
            if let Command::RequestResetup { want, .. } = &mut order {
                (want.spec.rollout, want.spec.force, want.commission) = (true, false, false);
            }
            order
        });
        Command::Batch(orders.collect())
    }

    /// An undo of any recorded attempt, whatever its result.
    fn undo(&mut self) -> Option<Command> {
        let attempts: Vec<(NodeId, AttemptId)> =
            self.state.jobs.values().flat_map(|j| j.attempts.iter().map(|a| (j.node, a.id))).collect();
        if attempts.is_empty() {
            return None;
        }
        let (node, attempt) = attempts[self.rng.up_to(attempts.len())];
        let at = self.host_of(node);
        let mut command = self.request_resetup(at, Trigger::Live, false);
        if let Command::RequestResetup { want, .. } = &mut command {
            (want.spec.undo, want.spec.now) = (Some(attempt), false);
        }
        Some(command)
    }

    pub fn request_resetup(&mut self, at: usize, occasion: Trigger, decommission: bool) -> Command {
        let draw = self.rng.up_to(1_000);
        let spec = JobSpec {
            by: Some("operator".to_owned()),
            now: draw < 200,
            decommission,
            force: (200..400).contains(&draw) && !decommission,
            ..JobSpec::new(occasion)
        };
        let commission = occasion == Trigger::Apply && !decommission;
        let want = ResetupRequest { commission, ..spec.into_request(Wall(EPOCH + self.now)) };
        Command::RequestResetup { node: self.hosts[at].id, want: Box::new(want) }
    }

    /// A re-setup of one service.
    fn request_service_resetup(&mut self, at: usize) -> Command {
        let mut command = self.request_resetup(at, Trigger::Live, false);
        let mut all = services(self.hosts[at].group).to_vec();
        all.retain(|service| !self.hosts[at].is_monitor_only(service));
        if let Command::RequestResetup { want, .. } = &mut command {
            want.spec.services = vec![all[self.rng.up_to(all.len())].into()];
        }
        command
    }

    /// Gives an operator's order to the current leader.
    pub fn order_now(&mut self, command: Command) {
        self.fire(match &command {
            Command::Batch(orders)
                if orders.iter().any(|o| matches!(o, Command::RequestResetup { want, .. } if want.spec.rollout)) =>
            {
                "operator: roll-out"
            }
            Command::Batch(_) => "operator: batch",
            Command::RequestResetup { want, .. } if want.spec.undo.is_some() => "operator: undo",
            Command::RequestResetup { want, .. } if want.spec.decommission => "operator: decommission",
            Command::RequestResetup { want, .. } if want.spec.trigger == Trigger::Apply => "operator: commission",
            Command::RequestResetup { want, .. } if !want.spec.services.is_empty() => "operator: some services",
            Command::RequestResetup { .. } => "operator: resetup",
            Command::Adopt { .. } => "operator: adopt",
            Command::Availability { .. } => "operator: pause",
            Command::Drain { .. } => "operator: drain",
            Command::Maintenance { .. } => "operator: maintenance",
            Command::CancelJob { .. } => "operator: cancel",
            Command::Resume | Command::ResumeNode { .. } => "operator: resume",
            Command::Generation { .. } => "operator: apply",
            Command::TrustKey { .. } => "operator: trust-key",
            _ => "operator: call off",
        });
        let entry = InventoryEntry { at: Wall(EPOCH + self.now), by: "operator".to_owned(), command };
        let ms = self.rng.in_range(5, 500);
        self.schedule(ms, Due::Propose { term: None, about: About::Fleet, entry: Box::new(entry) });
    }

    /// Trusts changed host keys, resumes held and paused nodes, and closes the breaker. It is
    /// called after the faults.
    pub fn resume_all(&mut self) {
        for at in 0..self.hosts.len() {
            let id = self.hosts[at].id;
            let Some(node) = self.state.node(id) else { continue };
            let (key, held) =
                (node.host_key.changed.is_some(), node.hold.is_some() || node.availability == Availability::Pause);
            if key || node.spec.ssh_host_keys != self.hosts[at].keys() {
                self.order_now(Command::TrustKey { node: id, keys: self.hosts[at].keys() });
            }
            if held {
                self.order_now(Command::ResumeNode { node: id });
            }
        }
        if self.state.breaker.is_some() {
            self.order_now(Command::Resume);
        }
    }
}
