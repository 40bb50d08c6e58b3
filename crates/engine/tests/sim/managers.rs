//! The managers of the simulation: elections, a log with terms, and proposals that are lost, late
//! or duplicated.

use super::host::{Cut, gossip};
use super::laws::Fact;
use super::planted::Planted;
use super::world::{Due, EPOCH, Leader, World};
use remoor_engine::{About, EngineEvent, ManagerEngine};
use remoor_model::*;

/// The maximum time for which a deposed leader believes that it leads.
const LEASE_MS: u64 = 6_000;

impl World {
    pub fn second(&mut self) {
        self.schedule(1_000, Due::Second);
        self.elections();
        self.gossip();
        self.report_unreachable();
        self.tell_laws(&Fact::Second);
        let terms: Vec<u64> = self.leader.iter().chain(&self.deposed).map(|l| l.term).collect();
        for term in terms {
            self.send_event(term, EngineEvent::Tick);
        }
        if self.calm {
            return;
        }
        if self.rng.chance(self.options.fault_permille) {
            self.fault();
        }
        if self.rng.chance(self.options.operator_permille) {
            self.operator();
        }
    }

    pub fn can_vote(&self, host: usize) -> bool {
        let host = &self.hosts[host];
        host.manager && host.up && host.agent.up && host.cut != Cut::Full
    }

    fn elections(&mut self) {
        let now = self.now;
        self.deposed.retain(|l| l.until > now);
        let voters: Vec<usize> = (0..3).filter(|h| self.can_vote(*h)).collect();
        if let Some(leader) = &self.leader
            && (voters.len() < 2 || !voters.contains(&leader.host))
        {
            self.depose();
        }
        if self.leader.is_none() && voters.len() >= 2 {
            match self.election_at {
                None => self.election_at = Some(now + self.rng.in_range(1_000, 5_000)),
                Some(at) if at <= now => {
                    let winner = voters[self.rng.up_to(voters.len())];
                    self.start_leadership(winner);
                }
                Some(_) => {}
            }
        }
    }

    /// Ends the leadership. A leader whose process continues does not notice this at once.
    pub fn depose(&mut self) {
        let Some(mut leader) = self.leader.take() else { return };
        let host = &self.hosts[leader.host];
        self.election_at = None;
        if host.up && host.agent.up {
            leader.view = Some(self.state.clone());
            leader.until = self.now + self.rng.in_range(500, LEASE_MS);
            self.fire("deposed leader acts on");
            self.deposed.push(leader);
        } else {
            self.fire("leader died");
        }
    }

    pub fn start_leadership(&mut self, host: usize) {
        self.term += 1;
        self.election_at = None;
        let engine = ManagerEngine::new(self.hosts[host].name.into(), Now(self.now));
        self.leader = Some(Leader { engine, host, term: self.term, view: None, until: u64::MAX });
        self.note(format!("{} leads in term {}", self.hosts[host].name, self.term));
        for at in 0..self.hosts.len() {
            if let Some(report) = self.hosts[at].gossip_view.report.clone() {
                let (node, place) = (self.hosts[at].id, self.hosts[at].gossip_view.place);
                self.send_event(self.term, EngineEvent::Sighted { node, gossip: gossip(place) });
                self.send_event(self.term, EngineEvent::Alive { node, report });
            }
        }
    }

    pub fn hand_over(&mut self, term: u64, to: Option<usize>) {
        let Some(leader) = self.leader.as_ref().filter(|l| l.term == term) else { return };
        let others = (0..3).filter(|h| *h != leader.host && self.can_vote(*h));
        let others: Vec<usize> = others.filter(|h| to.is_none_or(|to| to == *h)).collect();
        if !others.is_empty() {
            let next = others[self.rng.up_to(others.len())];
            self.fire(if to.is_some() { "leadership handed over for reachability" } else { "leadership handed over" });
            self.leader = None;
            self.start_leadership(next);
        }
    }

    pub fn propose(&mut self, term: u64, about: About, command: Command) {
        let Some(host) = self.leader_of(term).map(|l| l.host) else { return };
        self.tell_laws(&Fact::Proposed { term, host, command: &command });
        if self.options.planted == Some(Planted::ActsBeforeCommit)
            && let Command::Phase { job, attempt, phase } = &command
            && let Some(node) = self.state.job(*job).map(|j| j.node)
        {
            self.tell_laws(&Fact::Ordered {
                job: *job,
                attempt: *attempt,
                phase: *phase,
                node,
                view: None,
                current: true,
            });
        }
        let at = Wall(EPOCH + self.now + self.skew[host]);
        let entry = InventoryEntry { at, by: self.hosts[host].name.to_owned(), command };
        let ms = if !self.calm && self.rng.chance(self.options.slow_permille) {
            self.fire("proposal late");
            self.rng.in_range(1_000, 25_000)
        } else {
            self.rng.in_range(5, 80)
        };
        self.schedule(ms, Due::Propose { term: Some(term), about, entry: Box::new(entry) });
    }

    /// Appends a proposal to the log, or loses it. A proposal without a term is an operator's
    /// order, which any leader accepts.
    pub fn append_or_lose(&mut self, term: Option<u64>, about: About, entry: InventoryEntry) {
        let Some(current) = self.leader.as_ref().map(|l| l.term) else {
            return self.reject(term, about);
        };
        if term.is_some_and(|t| t != current) {
            // A follower may have received the proposal before the leader that sent it was deposed.
            // Such a proposal is sometimes committed.
            if !self.calm && self.rng.chance(100) {
                self.fire("proposal outlived its leader");
                self.commit(&entry);
                self.send_event(current, EngineEvent::Changed);
            }
            return self.reject(term, about);
        }
        if !self.calm && self.rng.chance(self.options.lost_permille) {
            self.fire("proposal lost");
            let applied_after_all = self.rng.chance(300);
            if applied_after_all {
                self.fire("answer lost");
                self.commit(&entry);
            }
            return self.reject(term, about);
        }
        let applied = self.commit(&entry);
        if !self.calm && self.rng.chance(self.options.twice_permille) {
            self.fire("proposal sent twice");
            self.commit(&entry);
        }
        match term {
            Some(term) => self.send_event(term, EngineEvent::Proposed { about, applied: Some(applied) }),
            None => self.send_event(current, EngineEvent::Changed),
        }
    }

    fn reject(&mut self, term: Option<u64>, about: About) {
        if let Some(term) = term {
            let ms = self.rng.in_range(5, 3_000);
            self.schedule(ms, Due::Tell { term, event: Box::new(EngineEvent::Proposed { about, applied: None }) });
        }
    }

    /// Appends one entry to the log and applies it.
    pub fn commit(&mut self, entry: &InventoryEntry) -> Applied {
        let before = self.state.clone();
        let index = before.applied + 1;
        let applied = self.state.apply(index, entry);
        if self.options.trace {
            self.note(format!("{index}: {} {:?} -> {applied:?}", entry.by, entry.command));
        }
        self.plant(entry, &applied, &before);
        self.tell_laws(&Fact::Applied { entry, applied: &applied, before: &before });
        applied
    }

    /// Applies a planted bug of the inventory.
    fn plant(&mut self, entry: &InventoryEntry, applied: &Applied, before: &Inventory) {
        let Some(planted) = self.options.planted else { return };
        let mut edit = |id: NodeId, with: &mut dyn FnMut(&mut Node)| {
            if let Some(node) = self.state.nodes.get_mut(&id) {
                with(std::sync::Arc::make_mut(node));
            }
        };
        match (planted, &entry.command) {
            (Planted::ReusesRaftId, Command::Grant { node, founder: false }) => {
                edit(*node, &mut |n| n.raft = Some(RaftId(1)));
            }
            (Planted::IgnoresBudget, Command::Generation { .. }) => {
                let mut generation = self.state.generation().expect("just applied").clone();
                generation.summary.limits.fleet_percent = 100;
                generation.summary.limits.breaker_min = 100;
                for group in generation.summary.groups.values_mut() {
                    (group.parallel, group.quorum) = (100, false);
                }
                self.state.generations.insert(generation.seq, generation.into());
            }
            (Planted::HandsOverAtOnce, Command::Generation { .. }) => {
                let mut generation = self.state.generation().expect("just applied").clone();
                generation.summary.limits.leader_grace_ms = 0;
                self.state.generations.insert(generation.seq, generation.into());
            }
            (Planted::IgnoresWindows, Command::Generation { .. }) => {
                let mut generation = self.state.generation().expect("just applied").clone();
                generation.summary.groups.values_mut().for_each(|group| group.windows = Windows::default());
                self.state.generations.insert(generation.seq, generation.into());
            }
            (Planted::ForgetsDecommission, Command::CloseAttempt { job, outcome: AttemptOutcome::Done, .. }) => {
                let Some(job) = before.job(*job).filter(|j| j.spec.decommission) else { return };
                let baseline = before.node(job.node).and_then(|n| n.setup.baseline.clone());
                edit(job.node, &mut |n| {
                    n.lifecycle = Lifecycle::Commissioned;
                    n.setup.baseline = baseline.clone();
                });
            }
            (Planted::ForgetsDrain, Command::Drain { node, .. }) if applied.refusal().is_none() => {
                edit(*node, &mut |n| n.availability = Availability::Active);
            }
            (Planted::ConcludesTwice, Command::Conclude { node, .. }) if applied.refusal().is_none() => {
                let Some(absence) = before.node(*node).and_then(|n| n.absence.clone()) else { return };
                edit(*node, &mut |n| n.absence = Some(absence.clone()));
            }
            (Planted::RefusesHalfway, Command::RequestResetup { node, .. }) if applied.refusal().is_some() => {
                edit(*node, &mut |n| n.hold = None);
                edit(*node, &mut |n| n.examination.consecutive_inconclusive += 1);
            }
            _ => {}
        }
    }

    /// Delivers gossip to the managers. Gossip may be a few seconds late.
    fn gossip(&mut self) {
        for at in 0..self.hosts.len() {
            let host = &mut self.hosts[at];
            if host.is_in_gossip() {
                host.gossip_view.silent_ms = 0;
                host.agent.isolated = false;
                let late = !self.calm && self.rng.chance(self.options.gossip_lag_permille);
                if !late {
                    let report = host.report(false);
                    self.receive_report(at, report);
                }
                continue;
            }
            host.gossip_view.silent_ms += 1_000;
            if host.gossip_view.silent_ms >= 4_000 {
                if host.up && host.agent.up && !host.agent.isolated {
                    host.agent.isolated = true;
                    host.agent.isolation += 1;
                }
                if host.gossip_view.report.take().is_some() {
                    let event = EngineEvent::Gone { node: host.id };
                    self.tell_all(event);
                }
            }
        }
    }

    pub fn receive_report(&mut self, at: usize, report: Report) {
        let place = self.hosts[at].place;
        if self.hosts[at].gossip_view.report.as_ref() != Some(&report) || self.hosts[at].gossip_view.place != place {
            (self.hosts[at].gossip_view.report, self.hosts[at].gossip_view.place) = (Some(report.clone()), place);
            self.tell_all(EngineEvent::Sighted { node: self.hosts[at].id, gossip: gossip(place) });
            self.tell_all(EngineEvent::Alive { node: self.hosts[at].id, report });
        }
    }

    pub fn tell_all(&mut self, event: EngineEvent) {
        let terms: Vec<u64> = self.leader.iter().chain(&self.deposed).map(|l| l.term).collect();
        for term in terms {
            self.send_event(term, event.clone());
        }
    }
}
