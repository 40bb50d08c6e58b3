//! The work of managers on nodes: probes, examinations, and the phases of attempts with lock and
//! fence.

use super::host::{Cut, Greetings, Run, Sshd, is_rendered, services};
use super::laws::Fact;
use super::planted::Planted;
use super::world::{Due, EPOCH, World};
use remoor_engine::{self as engine, EngineEvent, Evidence, ExamOutcome, ExaminationTicket, PhaseResult, Verified};
use remoor_model::*;

enum Line {
    Open,
    Dead,
    Hangs,
    OtherKey(String),
}

impl World {
    /// Tries to connect from the host `from` to the address `entered`. `recorded` contains the SSH
    /// host keys that the managers expect there.
    fn reachability(&self, from: usize, recorded: &[String], entered: &str) -> Line {
        let Some(to) = self.hosts.iter().position(|h| h.gossip() == entered) else { return Line::Dead };
        let host = &self.hosts[to];
        let source = &self.hosts[from];
        let no_road = host.cut == Cut::From(from) || host.unreachable_from.contains(&from);
        let cut = from != to && (host.cut == Cut::Full || source.cut == Cut::Full || no_road);
        match host.sshd {
            _ if cut || !host.up || !source.up => Line::Dead,
            Sshd::Down => Line::Dead,
            Sshd::Hangs => Line::Hangs,
            Sshd::Up if host.keys() != recorded => Line::OtherKey(host.keys().join(",")),
            Sshd::Up => Line::Open,
        }
    }

    fn reachability_of(&mut self, term: u64, node: NodeId) -> Option<(usize, Line)> {
        let from = self.leader_of(term)?.host;
        self.reachability_from(term, from, node)
    }

    /// Tries to connect from the host `from` to the node's address, as the leader of this term has
    /// recorded it. Also returns the node's host.
    fn reachability_from(&mut self, term: u64, from: usize, node: NodeId) -> Option<(usize, Line)> {
        let seen = self.leader_of(term)?.view.as_ref().map(|view| view.node(node).map(|n| n.spec.clone()));
        let spec = seen.unwrap_or_else(|| self.state.node(node).map(|n| n.spec.clone()))?;
        let to = self.host_of(node);
        let line = self.reachability(from, &spec.ssh_host_keys, &spec.gossip);
        if self.hosts[to].gossip() != spec.gossip && matches!(line, Line::OtherKey(_)) {
            self.fire("another host at the old address");
        }
        // Only the node itself has the recorded host keys. So an open connection leads to the
        // node's host, `to`.
        Some((to, line))
    }

    pub fn probe(&mut self, term: u64, node: NodeId) {
        let Some((_, line)) = self.reachability_of(term, node) else { return };
        let answers = matches!(line, Line::Open | Line::OtherKey(_));
        self.send_event(term, EngineEvent::Probed { node, answers });
    }

    /// Tries a handshake with the node's daemon at its recorded address.
    pub fn greet(&mut self, term: u64, node: NodeId) {
        let Some(from) = self.leader_of(term).map(|l| l.host) else { return };
        let (to, spec) = (self.host_of(node), self.state.node(node).map(|n| n.spec.gossip.clone()));
        let (host, source) = (&self.hosts[to], &self.hosts[from]);
        let no_road = host.cut == Cut::From(from) || host.cut == Cut::Gossip && host.greetings == Greetings::Unanswered;
        let cut = from != to && (no_road || host.cut == Cut::Full || source.cut == Cut::Full);
        let answers = host.up && source.up && host.agent.up && !cut && spec == Some(host.gossip());
        if host.greetings != Greetings::Lost {
            self.send_event(term, EngineEvent::Greeted { node, answers });
        }
    }

    /// Reports whether each of the managers reaches the node. A manager that the leader cannot
    /// reach does not answer.
    pub fn reach(&mut self, term: u64, node: NodeId, managers: &[NodeId]) {
        let Some(leader) = self.leader_of(term).map(|l| l.host) else { return };
        for by in managers {
            let from = self.host_of(*by);
            if from != leader && !(self.can_vote(from) && self.can_vote(leader)) {
                continue;
            }
            let Some((_, line)) = self.reachability_from(term, from, node) else { continue };
            let (ms, line) = match line {
                Line::Open | Line::OtherKey(_) => (self.rng.in_range(5, 300), engine::Reachability::Reachable),
                Line::Dead | Line::Hangs => (self.rng.in_range(1_000, 3_000), self.unreachable()),
            };
            self.schedule(ms, Due::Tell { term, event: Box::new(EngineEvent::Reach { node, by: *by, line }) });
        }
    }

    fn unreachable(&self) -> engine::Reachability {
        engine::Reachability::Unreachable { why: "no route".to_owned(), since: Wall(EPOCH + self.now) }
    }

    /// Makes managers report unreachable nodes. A node that is in gossip may leave the pings of one
    /// manager unanswered. That manager then tests the node's SSH port and reports the result to
    /// the leader.
    pub fn report_unreachable(&mut self) {
        let Some((leader, term)) = self.leader.as_ref().map(|l| (l.host, l.term)) else { return };
        for at in 0..self.hosts.len() {
            for from in (0..3).filter(|m| self.hosts[at].unreachable_from.contains(m)).collect::<Vec<_>>() {
                let heard = from == leader || self.can_vote(from);
                if heard && self.hosts[at].gossip_view.report.is_some() && self.rng.chance(300) {
                    let event = EngineEvent::Reach {
                        node: self.hosts[at].id,
                        by: self.hosts[from].id,
                        line: self.unreachable(),
                    };
                    self.schedule(20, Due::Tell { term, event: Box::new(event) });
                }
            }
        }
    }

    pub fn examine(&mut self, term: u64, node: NodeId, ticket: ExaminationTicket, by: Option<NodeId>) {
        let Some((at, mut line)) = self.reachability_of(term, node) else { return };
        if let (Some(by), Some(leader)) = (by, self.leader_of(term).map(|l| l.host)) {
            let from = self.host_of(by);
            line = match self.reachability_from(term, from, node) {
                Some((_, line)) if self.can_vote(from) && self.can_vote(leader) => line,
                _ => Line::Dead,
            };
            self.fire("examined from another manager");
        }
        let baseline = self.state.node(node).and_then(|n| n.setup.baseline.as_ref()).map(|b| b.blob);
        let (ms, outcome) = match line {
            Line::Dead => (self.rng.in_range(10, 1_500), ExamOutcome::Unreachable("no route".to_owned())),
            Line::Hangs => (5_000, ExamOutcome::Failed("timed out".to_owned())),
            Line::OtherKey(key) => (50, ExamOutcome::HostKey(key)),
            Line::Open if self.blobs_missing && baseline.is_some() => {
                self.fire("baseline's blob missing");
                (50, ExamOutcome::Failed("the baseline is not here".to_owned()))
            }
            Line::Open => {
                let expected = baseline.and_then(|b| self.blobs.get(&b).cloned());
                let names = services(self.hosts[at].group);
                let rendered = names.iter().filter(|s| is_rendered(s)).map(|s| format!("/etc/{s}")).collect();
                let exam = self.hosts[at].exam();
                (self.rng.in_range(20, 900), ExamOutcome::Found(Evidence { exam, expected, rendered }))
            }
        };
        self.tell_laws(&Fact::Examined { node, outcome: &outcome });
        let event = EngineEvent::Examined { node, ticket, outcome: Box::new(outcome) };
        self.schedule(ms, Due::Tell { term, event: Box::new(event) });
    }

    /// Sends the order of a phase to the executor. The order may be lost.
    pub fn order(&mut self, term: u64, job: JobId, attempt: AttemptId, phase: Phase, node: NodeId) {
        let Some((at, line)) = self.reachability_of(term, node) else { return };
        let failed = |class, message: &str| {
            let failure = Failure { class, phase, rc: None, message: message.to_owned(), tail: Vec::new() };
            Box::new(EngineEvent::Ran { job, attempt, phase, result: Box::new(PhaseResult::Failed(failure)) })
        };
        let tell = |event| Due::Tell { term, event };
        match line {
            Line::Dead => return self.schedule(500, tell(failed(FailureClass::Unreachable, "no route"))),
            Line::Hangs => return self.schedule(6_000, tell(failed(FailureClass::Unreachable, "timed out"))),
            Line::OtherKey(key) => return self.schedule(50, tell(failed(FailureClass::HostKey, &key))),
            Line::Open => {}
        }
        let fenced = self.options.planted != Some(Planted::NoFence);
        let locked = self.options.planted != Some(Planted::NoLock);
        let host = &mut self.hosts[at];
        if fenced && attempt < host.executor.fence {
            self.fire("older attempt refused by the fence");
            return self.schedule(50, tell(failed(FailureClass::Step, "a newer attempt was here")));
        }
        if phase == Phase::Fence {
            host.executor.fence = host.executor.fence.max(attempt);
            host.executor.session = Some(attempt);
            if fenced {
                let ended: Vec<Run> = host.executor.runs.extract_if(.., |r| r.attempt < attempt).collect();
                if !ended.is_empty() {
                    self.fire("late run ended by the fence");
                }
            }
        } else if host.executor.session != Some(attempt) && fenced {
            return self.schedule(50, tell(failed(FailureClass::Unreachable, "the session is gone")));
        }
        if locked && fenced && self.hosts[at].executor.runs.iter().any(|r| r.attempt == attempt) {
            return self.schedule(50, tell(failed(FailureClass::Step, "the lock is taken")));
        }
        let Some(known) = self.state.job(job) else { return };
        let names = services(self.hosts[at].group);
        let chosen: Vec<&'static str> = names
            .iter()
            .copied()
            .filter(|s| !self.hosts[at].is_monitor_only(s))
            .filter(|s| known.spec.services.is_empty() || known.spec.services.iter().any(|k| k.as_str() == *s))
            .collect();
        let generation = self.state.generations.get(&known.generation);
        let whole = generation.and_then(|g| g.desired_hash(&self.hosts[at].name.into())).unwrap_or_default();
        // A job for some services uses the same addresses as the node's other services, unless the
        // playbooks have changed.
        let group = self.hosts[at].group;
        let says = |seq| self.generations_say(seq, group);
        let own = self.state.node(node).and_then(|n| n.setup.baseline.as_ref());
        let own = own.filter(|b| !known.spec.services.is_empty() && says(b.generation) == says(known.generation));
        let version = own.map_or(whole, |b| b.desired);
        if self.options.planted == Some(Planted::SkipsCleanup) && matches!(phase, Phase::Cleanup | Phase::Cleaned) {
            let event = EngineEvent::Ran { job, attempt, phase, result: Box::new(PhaseResult::Ok) };
            return self.schedule(50, tell(Box::new(event)));
        }
        let fails = self.hosts[at].executor.failing > 0 || !self.calm && self.rng.chance(self.options.failing_permille);
        if fails && phase != Phase::Fence {
            self.hosts[at].executor.failing = self.hosts[at].executor.failing.saturating_sub(1);
            self.fire("phase fails");
        }
        let serial = self.serial();
        let undo = self.state.job(job).and_then(|j| j.spec.undo);
        let run = Run {
            serial,
            attempt,
            phase,
            term,
            orphan: false,
            stopping: false,
            undo,
            fails,
            services: chosen,
            version,
        };
        let copies = if locked || phase != Phase::Provision { 1 } else { 2 };
        for _ in 0..copies {
            self.hosts[at].executor.runs.push(run.clone());
            self.tell_laws(&Fact::Began { host: at, attempt, phase });
        }
        let ms = match phase {
            Phase::Fence => 60,
            Phase::Cleanup => self.rng.in_range(300, 3_000),
            Phase::Cleaned => 100,
            Phase::Provision => self.rng.in_range(500, 5_000),
            Phase::Verify => 200,
            Phase::Undo => self.rng.in_range(100, 1_000),
        };
        self.schedule(ms / 2, Due::Step { host: at, serial, last: false });
        self.schedule(ms, Due::Step { host: at, serial, last: true });
    }

    /// Stops a run. The run ends at once if `now` is set, otherwise after its current step.
    pub fn stop(&mut self, term: u64, attempt: AttemptId, now: bool) {
        let Some(from) = self.leader_of(term).map(|l| l.host) else { return };
        let source = self.hosts[from].cut;
        let (mut cut, mut let_on) = (false, false);
        for host in &mut self.hosts {
            let road = host.cut == Cut::None && !host.unreachable_from.contains(&from);
            let reached = road && source != Cut::Full && host.sshd == Sshd::Up;
            if reached && (host.executor.session == Some(attempt) || now) {
                let_on |= !now && host.executor.runs.iter().any(|r| r.attempt == attempt);
                host.executor.runs.iter_mut().filter(|r| r.attempt == attempt).for_each(|r| r.stopping = true);
                if now {
                    cut |= host.executor.runs.extract_if(.., |r| r.attempt == attempt).count() > 0;
                }
                host.executor.session = host.executor.session.filter(|s| *s != attempt);
            }
        }
        if cut {
            self.fire("cancelled at once");
        }
        if let_on {
            self.fire("cancelled, its task goes on");
        }
    }

    /// Does the first half of a run's work. If `last` is set, does the second half and sends the
    /// result.
    pub fn step(&mut self, at: usize, serial: u64, last: bool) {
        let host = &self.hosts[at];
        let Some(run) = host.executor.runs.iter().find(|r| r.serial == serial).cloned() else { return };
        if run.orphan && host.cut != Cut::None && self.rng.chance(700) {
            self.fire("run goes on after its manager lost it");
            let ms = self.rng.in_range(2_000, 9_000);
            return self.schedule(ms, Due::Step { host: at, serial, last });
        }
        let job = self.state.jobs.values().find(|j| j.attempts.iter().any(|a| a.id == run.attempt)).map(|j| j.id);
        let Some(job) = job else { return };
        self.tell_laws(&Fact::Touches { host: at, attempt: run.attempt, phase: run.phase });
        self.work(at, &run, last);
        if !last {
            self.hosts[at].executor.runs.retain(|r| r.serial != serial || !r.stopping);
            return;
        }
        let (host, fail) = (&mut self.hosts[at], |message: &str| {
            PhaseResult::Failed(Failure {
                class: FailureClass::Step,
                phase: run.phase,
                rc: Some(2),
                message: message.to_owned(),
                tail: Vec::new(),
            })
        });
        host.executor.runs.retain(|r| r.serial != serial);
        let result = match run.phase {
            Phase::Fence => PhaseResult::Ok,
            _ if run.fails => fail("task failed"),
            Phase::Cleaned if !host.clean(&run.services) => fail("the node is not clean"),
            Phase::Undo if !run.undo.is_some_and(|undone| host.executor.copies.contains_key(&undone)) => {
                PhaseResult::Failed(Failure {
                    class: FailureClass::Plan,
                    phase: run.phase,
                    rc: None,
                    message: "no copies".to_owned(),
                    tail: Vec::new(),
                })
            }
            Phase::Cleanup | Phase::Cleaned | Phase::Provision | Phase::Undo => PhaseResult::Ok,
            Phase::Verify => PhaseResult::Verified(self.verify(at, &run, job)),
        };
        self.tell_laws(&Fact::Ended {
            host: at,
            attempt: run.attempt,
            phase: run.phase,
            well: !matches!(result, PhaseResult::Failed(_)),
        });
        if run.orphan {
            return;
        }
        let node = self.hosts[at].id;
        match self.reachability_of(run.term, node) {
            Some((_, Line::Open)) => self.answer(&run, job, result),
            Some(_) => self.lose_connection(at, &run),
            None => {}
        }
    }

    fn work(&mut self, at: usize, run: &Run, last: bool) {
        if run.fails && last {
            return;
        }
        let host = &mut self.hosts[at];
        if (run.phase, last) == (Phase::Cleanup, false) {
            let parts = host.parts.iter().filter(|(name, _)| run.services.contains(name));
            let parts = parts.map(|(name, part)| (*name, part.clone())).collect();
            host.executor.copies.entry(run.attempt).or_insert(parts);
            while host.executor.copies.len() > 5 {
                host.executor.copies.pop_first();
            }
        }
        if let (Phase::Undo, true, Some(copies)) =
            (run.phase, last, run.undo.and_then(|a| host.executor.copies.get(&a).cloned()))
        {
            for (name, copy) in copies {
                let part = host.part(name);
                (part.version, part.edits) = (copy.version, copy.edits);
            }
            self.fire("an undo ends well");
            return;
        }
        let leftovers = self.hosts[at].executor.leftovers;
        for (nth, service) in run.services.iter().enumerate() {
            let part = self.hosts[at].part(service);
            match (run.phase, last) {
                (Phase::Cleanup, false) => (part.running, part.enabled) = (false, false),
                (Phase::Cleanup, true) if nth > 0 || !leftovers => (part.version, part.running) = (None, false),
                (Phase::Provision, false) => (part.version, part.edits) = (Some(run.version), 0),
                (Phase::Provision, true) => (part.running, part.enabled) = (true, true),
                _ => {}
            }
        }
        if run.phase == Phase::Cleanup && last {
            self.hosts[at].executor.leftovers = false;
        }
    }

    fn verify(&mut self, at: usize, run: &Run, job: JobId) -> Verified {
        let before = self.state.node(self.hosts[at].id).and_then(|n| n.setup.baseline.as_ref()).map(|b| b.blob);
        let mut baseline = self.baseline(at, false);
        let record = |d: &NodeDigest| Record { root: d.root, services: d.services.clone(), ..Record::default() };
        let old = before.and_then(|b| self.blobs.get(&b)).map(record);
        let about = match (self.options.planted, self.state.job(job)) {
            (Some(Planted::RecordsAll), _) | (_, None) => Vec::new(),
            (_, Some(job)) => job.spec.services.clone(),
        };
        // The new baseline is merged with the old one, as on a real manager.
        let generation = self.state.job(job).and_then(|j| self.state.generations.get(&j.generation)).cloned();
        let takes_over = self.options.planted == Some(Planted::TakesOver);
        let watches =
            |name: &ServiceName| !takes_over && generation.as_ref().is_some_and(|g| g.summary.is_monitor_only(name));
        let record = record(self.hosts[at].digest());
        let digest = match about.is_empty() {
            true => record.except_monitored(watches, old.as_ref()).digest(),
            false => record.of_part(&about, old.as_ref()).digest(),
        };
        (baseline.root, baseline.blob) = (digest.root, digest.root);
        self.blobs.insert(digest.root, digest);
        baseline.generation = self.state.job(job).map_or(GenerationSeq(0), |j| j.generation);
        baseline.desired = run.version;
        let exam = self.hosts[at].exam();
        let marks = engine::observed_fingerprint(&exam, None);
        let wrong = self.hosts[at]
            .parts
            .iter()
            .filter(|(name, p)| run.services.contains(*name) && (p.version != Some(run.version) || p.edits > 0))
            .map(|(name, _)| format!("/etc/{name}"))
            .collect();
        let expected = Some(exam.digest.clone());
        let rendered = run.services.iter().map(|s| format!("/etc/{s}")).collect();
        Verified { evidence: Evidence { exam, expected, rendered }, baseline, marks, wrong }
    }

    /// Cuts the connection of this run. The manager that ordered the run detects the loss after a
    /// while, and does not receive the result.
    pub fn lose_connection(&mut self, at: usize, run: &Run) {
        let job = self.state.jobs.values().find(|j| j.attempts.iter().any(|a| a.id == run.attempt)).map(|j| j.id);
        let Some(job) = job else { return };
        if let Some(run) = self.hosts[at].executor.runs.iter_mut().find(|r| r.serial == run.serial) {
            run.orphan = true;
        }
        let failure = Failure {
            class: FailureClass::Unreachable,
            phase: run.phase,
            rc: None,
            message: "connection lost".to_owned(),
            tail: Vec::new(),
        };
        let result = Box::new(PhaseResult::Failed(failure));
        let event = Box::new(EngineEvent::Ran { job, attempt: run.attempt, phase: run.phase, result });
        let ms = self.rng.in_range(1_000, 8_000);
        self.schedule(ms, Due::Tell { term: run.term, event });
    }

    /// Cuts the connections of all runs on the host. If `ended` is set, the runs end too.
    pub fn lose_all_connections(&mut self, at: usize, ended: bool) {
        for run in self.hosts[at].executor.runs.clone() {
            if !run.orphan {
                self.lose_connection(at, &run);
            }
        }
        if ended {
            self.hosts[at].executor.runs.clear();
            self.hosts[at].executor.session = None;
        }
    }
}
