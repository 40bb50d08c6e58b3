//! The leader's engine: what it has seen and asked for, and one `step`.
//!
//! A new leader knows the inventory and nothing else. Each node has at most one proposal in flight, so an entry is
//! never proposed on a view that an own earlier entry is about to change.

use super::absence::{cause, marks};
use super::event::{About, Action, Event, ExamOutcome, Purpose, Ticket};
use super::{budget, drift, policy};
use crate::model::{
    AbsenceNo, Applied, AttemptId, Availability, Cause, CheckSummary, Command, Finding, Gone, Inventory, Lifecycle,
    Marks, Node, NodeId, NodeName, Now, Occasion, Phase, Remedy, Report, Sha256, Verdict, Wall, Want,
};
use std::collections::{BTreeMap, BTreeSet};

/// A proposal without an answer is given up after this time; it may still be applied, which apply can bear.
const PROPOSAL_MS: u64 = 15_000;
/// An examination without an answer, beyond its own limit.
const EXAM_SLACK_MS: u64 = 10_000;
/// A new leader takes nobody for absent before its gossip has settled.
const FIRST_SIGHT_MS: u64 = 15_000;
/// A wanted re-setup that waited longer than this is examined again before it begins.
const STALE_WANT_MS: u64 = 120_000;

/// What this leader has seen of one node and asked about it; forgotten with the leadership.
#[derive(Debug, Clone, Default)]
pub(super) struct Seen {
    pub alive: bool,
    pub since: Now,
    pub since_wall: Wall,
    pub report: Option<Report>,
    pub proposing: Option<Now>,
    pub probed: Option<Now>,
    pub exam: Option<Exam>,
    /// Not before this time.
    pub exam_due: Now,
    pub exam_failures: u32,
    pub last_failure: Option<String>,
    /// Since when a reboot settles.
    pub settling: Option<Now>,
    /// What the last live examination was about, when, and how often: the same report causes it again ever later, but
    /// does, since the conclusion may have been lost.
    pub looked_at: Option<((Sha256, CheckSummary), Now, u32)>,
    /// A report that was older than an examination: until gossip has another one, it tells of no absence.
    pub outlived: Option<Marks>,
}

/// An examination under way.
#[derive(Debug, Clone, Copy)]
pub(super) struct Exam {
    ticket: Ticket,
    purpose: Purpose,
    began: Now,
    /// The last entry applied then.
    basis: u64,
}

#[derive(Debug, Clone)]
pub struct Manager {
    pub(super) me: NodeName,
    pub(super) began: Now,
    pub(super) seen: BTreeMap<NodeId, Seen>,
    /// Attempts opened under this leadership; any other open attempt is taken over.
    pub(super) mine: BTreeSet<AttemptId>,
    /// What was ordered for each attempt and not answered.
    pub(super) running: BTreeMap<AttemptId, Phase>,
    /// Answers that came and are not applied yet: proposed until they are.
    pub(super) answers: BTreeMap<AttemptId, (Phase, Command)>,
    pub(super) verify_tries: BTreeMap<AttemptId, (u32, Now)>,
    proposing_fleet: Option<Now>,
    next_ticket: u64,
}

/// The moment and the state that one step is about.
#[derive(Clone, Copy)]
pub(super) struct Moment<'a> {
    pub now: Now,
    pub wall: Wall,
    pub inventory: &'a Inventory,
}

impl Manager {
    /// The engine of the node `me`, which begins to lead at `now`.
    pub fn new(me: NodeName, now: Now) -> Self {
        Self {
            me,
            began: now,
            seen: BTreeMap::new(),
            mine: BTreeSet::new(),
            running: BTreeMap::new(),
            answers: BTreeMap::new(),
            verify_tries: BTreeMap::new(),
            proposing_fleet: None,
            next_ticket: 0,
        }
    }

    /// Takes one event and says what to do. `inventory` is the applied state, and includes every own entry whose
    /// `Proposed` was delivered.
    pub fn step(&mut self, now: Now, wall: Wall, inventory: &Inventory, event: Event) -> Vec<Action> {
        let at = Moment { now, wall, inventory };
        let mut out = Vec::new();
        let mut attend: Vec<NodeId> = Vec::new();
        match event {
            Event::Alive { node, report } => {
                let seen = self.seen.entry(node).or_default();
                let restarted = seen.report.as_ref().is_some_and(|before| marks_of(before) != marks_of(&report));
                if !seen.alive || restarted {
                    (seen.alive, seen.since, seen.since_wall) = (true, now, wall);
                    (seen.exam_due, seen.exam_failures, seen.settling) = (now, 0, None);
                }
                seen.report = Some(report);
                attend.push(node);
            }
            Event::Gone { node } => {
                let seen = self.seen.entry(node).or_default();
                (seen.alive, seen.since, seen.since_wall, seen.probed) = (false, now, wall, None);
                attend.push(node);
            }
            Event::Probed { node, answers } => self.probed(at, node, answers, &mut out),
            Event::Examined { node, ticket, outcome } => self.examined(at, node, ticket, *outcome, &mut out),
            Event::Ran { job, attempt, phase, result } => {
                self.ran(at, job, attempt, phase, *result, &mut out);
                attend.extend(inventory.job(job).map(|j| j.node));
            }
            Event::Proposed { about, applied } => {
                match about {
                    About::Fleet => self.proposing_fleet = None,
                    About::Node(node) => {
                        self.seen.entry(node).or_default().proposing = None;
                        attend.push(node);
                    }
                }
                if let Some(Applied::Job(_, attempt)) = applied {
                    self.mine.insert(attempt);
                }
                attend.extend(self.wanting(inventory));
            }
            Event::Changed | Event::Tick => attend.extend(inventory.nodes.keys()),
        }
        self.breaker(at, &mut out);
        let mut full = BTreeSet::new();
        for id in attend {
            if let Some(node) = inventory.node(id) {
                self.attend(at, node, &mut full, &mut out);
            }
        }
        let ended: Vec<AttemptId> = self.mine.iter().copied().filter(|a| !open(inventory, *a)).collect();
        for attempt in ended {
            self.forget(attempt, &mut out);
        }
        out
    }

    /// An attempt that is no longer open: whatever still runs for it is stopped.
    fn forget(&mut self, attempt: AttemptId, out: &mut Vec<Action>) {
        self.mine.remove(&attempt);
        self.answers.remove(&attempt);
        self.verify_tries.remove(&attempt);
        self.running.remove(&attempt);
        out.push(Action::Stop { attempt });
    }

    fn wanting(&self, inventory: &Inventory) -> Vec<NodeId> {
        inventory.nodes.values().filter(|n| n.want.is_some() || n.job.is_some()).map(|n| n.id).collect()
    }

    /// One thing at most is proposed for a node at a time.
    pub(super) fn propose(&mut self, at: Moment, node: NodeId, command: Command, out: &mut Vec<Action>) {
        let seen = self.seen.entry(node).or_default();
        if seen.proposing.is_none() {
            seen.proposing = Some(at.now);
            out.push(Action::Propose { about: About::Node(node), command });
        }
    }

    fn breaker(&mut self, at: Moment, out: &mut Vec<Action>) {
        let free = self.proposing_fleet.is_none_or(|since| at.now.since(since) > PROPOSAL_MS);
        if free && let Some(command) = budget::breaker(at.inventory, at.wall) {
            self.proposing_fleet = Some(at.now);
            if let Command::BreakerOpened { why, .. } = &command {
                let text = format!("breaker opened: {why}; no automatic re-setup until `remoor resume`");
                out.push(Action::Notify { key: "breaker".to_owned(), node: None, text });
            }
            out.push(Action::Propose { about: About::Fleet, command });
        }
    }

    /// Derives from the applied state what this node needs next. `full` names groups whose budget is spent.
    fn attend(&mut self, at: Moment, node: &Node, full: &mut BTreeSet<String>, out: &mut Vec<Action>) {
        let seen = self.seen.entry(node.id).or_default();
        match seen.proposing {
            Some(since) if at.now.since(since) <= PROPOSAL_MS => return,
            _ => seen.proposing = None,
        }
        let limit = at.inventory.limits().exam_timeout_ms + EXAM_SLACK_MS;
        if seen.exam.is_some_and(|e| at.now.since(e.began) > limit) {
            seen.exam = None;
            seen.exam_due = at.now;
        }
        self.presence(at, node, out);
        if self.seen.entry(node.id).or_default().proposing.is_none() {
            self.work(at, node, full, out);
        }
    }

    fn presence(&mut self, at: Moment, node: &Node, out: &mut Vec<Action>) {
        let seen = self.seen.entry(node.id).or_default().clone();
        let leaving = seen.report.as_ref().is_some_and(|r| r.leaving);
        // An agent whose report can't be read is alive and tells of no absence.
        let told = seen.report.as_ref().filter(|r| !r.is_blank()).map(marks_of);
        match &node.absence {
            None if seen.alive => {
                let Some(after) = told.filter(|_| !leaving) else { return };
                match &node.marks {
                    None => self.propose(at, node.id, Command::Marks { node: node.id, marks: after }, out),
                    Some(before) if *before == after => self.seen.entry(node.id).or_default().outlived = None,
                    Some(_) if seen.outlived.as_ref() != Some(&after) && !in_attempt(at, node) => {
                        let command = Command::AbsenceOpened {
                            node: node.id,
                            no: AbsenceNo(node.absences.0 + 1),
                            last_seen: node.seen,
                            seen_by: Vec::new(),
                            gone: Gone::Away,
                            planned: false,
                            returned: Some(after),
                        };
                        self.propose(at, node.id, command, out);
                    }
                    Some(_) => {}
                }
            }
            None => {
                let gone_now = seen.report.is_some() || at.now.since(self.began) > FIRST_SIGHT_MS;
                if node.marks.is_some() && gone_now {
                    let command = Command::AbsenceOpened {
                        node: node.id,
                        no: AbsenceNo(node.absences.0 + 1),
                        last_seen: if seen.report.is_some() { seen.since_wall } else { node.seen },
                        seen_by: vec![self.me.clone()],
                        gone: if leaving { Gone::Left } else { Gone::Away },
                        planned: leaving,
                        returned: None,
                    };
                    self.propose(at, node.id, command, out);
                }
            }
            Some(absence) if absence.returned.is_none() => {
                if seen.alive && !leaving {
                    let after = seen.report.as_ref().map(marks_of).unwrap_or_default();
                    self.propose(at, node.id, Command::Returned { node: node.id, no: absence.no, after }, out);
                } else if absence.gone != Gone::Left {
                    let every = at.inventory.limits().probe_ms;
                    if seen.probed.is_none_or(|last| at.now.since(last) >= every) {
                        self.seen.entry(node.id).or_default().probed = Some(at.now);
                        out.push(Action::Probe { node: node.id });
                    }
                }
            }
            Some(absence) => {
                if !seen.alive && at.now.since(self.began) > FIRST_SIGHT_MS {
                    self.propose(at, node.id, Command::AwayAgain { node: node.id, no: absence.no }, out);
                } else if seen.alive && node.key_changed.is_none() && !in_attempt(at, node) {
                    self.examine(at, node, Purpose::Absence(absence.no), out);
                }
            }
        }
    }

    fn examine(&mut self, at: Moment, node: &Node, purpose: Purpose, out: &mut Vec<Action>) {
        let seen = self.seen.entry(node.id).or_default();
        if seen.exam.is_some() || at.now < seen.exam_due {
            return;
        }
        self.next_ticket += 1;
        let ticket = Ticket(self.next_ticket);
        seen.exam = Some(Exam { ticket, purpose, began: at.now, basis: at.inventory.applied });
        out.push(Action::Examine { node: node.id, ticket, purpose });
    }

    fn work(&mut self, at: Moment, node: &Node, full: &mut BTreeSet<String>, out: &mut Vec<Action>) {
        if let Some(job) = node.job.and_then(|j| at.inventory.job(j)) {
            self.drive(at, node, job, out);
            return;
        }
        if node.absence.is_some() && node.want.as_ref().is_none_or(|w| !w.now) {
            return;
        }
        if let Some(want) = &node.want {
            self.begin(at, node, want, full, out);
            return;
        }
        self.live(at, node, out);
    }

    /// A wanted re-setup: open its job as soon as nothing is in the way.
    fn begin(&mut self, at: Moment, node: &Node, want: &Want, full: &mut BTreeSet<String>, out: &mut Vec<Action>) {
        let grace = at.inventory.limits().leader_grace_ms;
        let group = at.inventory.group(node).map(|(name, _)| name.to_string()).unwrap_or_default();
        if want.by.is_none() && at.now.since(self.began) < grace || full.contains(&group) || full.contains("") {
            return;
        }
        if let Err(wait) = crate::model::may_open(at.inventory, node, want, at.wall) {
            if let crate::model::Wait::Budget(text) = wait {
                full.insert(if text.contains("of the fleet") { String::new() } else { group });
            }
            return;
        }
        // Old news, news from before a hold, and news that was followed by "unknown" are looked at again (I9).
        let unknown = node.finding.as_ref().is_some_and(|f| matches!(f.verdict, Verdict::Unknown(_)));
        let stale = want.examined.is_some_and(|e| {
            unknown || at.wall.since(e) > STALE_WANT_MS || node.hold.as_ref().is_some_and(|h| h.since >= e)
        });
        if want.by.is_none() && stale {
            self.examine(at, node, Purpose::Live(want.occasion), out);
        } else if self.is_me(at, node) {
            let others = at.inventory.nodes.values().filter(|n| n.raft.is_some() && n.id != node.id);
            if others.into_iter().any(|n| n.want.is_some() && may_open_now(at, n)) {
                return; // its turn comes first: two managers that wait for each other's hand would pass leadership for ever
            }
            out.push(Action::HandOver { why: format!("{} is to be set up again", self.me) });
        } else {
            full.insert(group);
            self.propose(at, node.id, Command::OpenJob { node: node.id, runner: self.me.clone() }, out);
        }
    }

    /// This very node, with somebody to hand leadership to.
    pub(super) fn is_me(&self, at: Moment, node: &Node) -> bool {
        node.name() == &self.me && at.inventory.nodes.values().filter(|n| n.raft.is_some()).count() > 1
    }

    /// A node that was never away: its agent's hints decide when to look, never what is concluded.
    fn live(&mut self, at: Moment, node: &Node, out: &mut Vec<Action>) {
        let seen = self.seen.entry(node.id).or_default().clone();
        if !seen.alive || node.lifecycle != Lifecycle::Commissioned || node.key_changed.is_some() {
            return;
        }
        let Some(baseline) = &node.baseline else { return };
        if self.roll_out(at, node, out) {
            return;
        }
        let Some(report) = &seen.report else { return };
        let finding = node.finding.as_ref();
        let unclear = finding.is_some_and(|f| matches!(f.verdict, Verdict::Unknown(_)));
        let look = (report.digest, report.checks);
        let last = finding.and_then(|f| f.digest).unwrap_or(baseline.root);
        let failed = finding.is_some_and(|f| f.checks.1 > 0);
        let hashed = report.digest != Sha256::default() && report.digest != last;
        let checked = match report.checks {
            CheckSummary::Pass => failed,
            CheckSummary::Fail => !failed,
            CheckSummary::None | CheckSummary::Unknown => false,
        };
        let every = at.inventory.limits().check_interval_ms;
        let again = seen.looked_at.filter(|(before, _, _)| *before == look);
        let rested = again.is_none_or(|(_, since, times)| at.now.since(since) >= every << times.min(3));
        let news = (hashed || checked || node.half_done()) && rested;
        // A re-setup that was due and is neither wanted nor under way was held, paused or called off, and is free again.
        let due = finding.is_some_and(|f| match f.remedy {
            Remedy::Held(_) => true,
            Remedy::Resetup(_) | Remedy::Blocked(_) => f.verdict.drifted(),
            Remedy::None | Remedy::Report => false,
        });
        let due = due && node.availability == Availability::Active && node.held(at.wall).is_none();
        if unclear || due || news {
            let occasion = finding.filter(|_| unclear || due).map_or(Occasion::Live, |f| f.occasion);
            self.examine(at, node, Purpose::Live(occasion), out);
        }
    }

    /// A new generation, where the group's policy rolls it out by itself: a canary first, since a held job stops the rest.
    fn roll_out(&mut self, at: Moment, node: &Node, out: &mut Vec<Action>) -> bool {
        let Some((name, group)) = at.inventory.group(node) else { return false };
        let applied = node.baseline.as_ref().map(|b| b.desired);
        let behind = at.inventory.desired(node).is_some_and(|desired| Some(desired) != applied);
        if !behind || group.policy(Occasion::Apply) == crate::model::Policy::Report {
            return false;
        }
        let stuck = at.inventory.jobs.values().any(|j| {
            j.state == crate::model::JobState::Held
                && j.generation == at.inventory.current
                && at.inventory.node(j.node).and_then(|n| at.inventory.group(n)).is_some_and(|(g, _)| g == name)
        });
        if stuck {
            return false;
        }
        let want = Want {
            occasion: Occasion::Apply,
            reasons: Vec::new(),
            services: Vec::new(),
            since: at.wall,
            examined: None,
            by: None,
            now: false,
            decommission: false,
        };
        self.propose(at, node.id, Command::Want { node: node.id, want: Box::new(want) }, out);
        true
    }

    fn probed(&mut self, at: Moment, id: NodeId, answers: bool, out: &mut Vec<Action>) {
        let Some(node) = at.inventory.node(id) else { return };
        let Some(absence) = node.absence.as_ref().filter(|a| a.returned.is_none()) else { return };
        let gone = if answers { Gone::AgentDown } else { Gone::Away };
        if absence.gone == gone || absence.gone == Gone::Left {
            return;
        }
        if gone == Gone::AgentDown {
            let key = format!("agent-down {id} {}", absence.no);
            let text = format!("{}: its host answers on SSH, its agent is silent", node.name());
            out.push(Action::Notify { key, node: Some(id), text });
        }
        self.propose(at, id, Command::Gone { node: id, no: absence.no, gone }, out);
    }

    fn examined(&mut self, at: Moment, id: NodeId, ticket: Ticket, outcome: ExamOutcome, out: &mut Vec<Action>) {
        let seen = self.seen.entry(id).or_default();
        let Some(exam) = seen.exam.filter(|e| e.ticket == ticket) else { return };
        seen.exam = None;
        let Some(node) = at.inventory.node(id) else { return };
        let purpose = exam.purpose;
        if exam.basis < node.altered || in_attempt(at, node) {
            return; // it saw a node that is another by now
        }
        if purpose != Purpose::Absence(node.absence.as_ref().map_or(AbsenceNo(0), |a| a.no))
            && (node.absence.is_some() || matches!(purpose, Purpose::Absence(_)))
        {
            return;
        }
        match outcome {
            ExamOutcome::Found(evidence) => self.found(at, node, exam, evidence, out),
            ExamOutcome::HostKey(fingerprint) => {
                let text =
                    format!("{} offers another SSH host key: {fingerprint}; nothing was sent to it", node.name());
                out.push(Action::Notify { key: format!("host-key {id} {fingerprint}"), node: Some(id), text });
                if node.key_changed.is_none() {
                    self.propose(at, id, Command::KeyChanged { node: id, fingerprint }, out);
                }
            }
            ExamOutcome::Unreachable(why) | ExamOutcome::Failed(why) => {
                let limits = at.inventory.limits();
                let seen = self.seen.entry(id).or_default();
                seen.exam_failures += 1;
                seen.last_failure = Some(why.clone());
                let wait = limits.unknown_retry_ms << seen.exam_failures.saturating_sub(1).min(6);
                seen.exam_due = at.now.after(wait);
                let booting = rebooted(node, seen) && at.now.since(seen.since) < limits.settle_ms;
                if seen.exam_failures >= 2 && !booting {
                    let finding = self.unknown(at, node, exam, why);
                    self.conclude(at, node, finding, out);
                }
            }
        }
    }

    fn found(&mut self, at: Moment, node: &Node, exam: Exam, evidence: drift::Evidence, out: &mut Vec<Action>) {
        let limits = at.inventory.limits();
        let (verdict, reasons) = drift::compare(at.inventory, node, &evidence);
        let absence = node.absence.as_ref();
        let (cause, planned, told) = match absence {
            Some(absence) => {
                let (cause, planned, told) = cause(node, absence, &evidence.exam);
                (Some(cause), planned, told)
            }
            None => (None, false, Vec::new()),
        };
        let seen = self.seen.entry(node.id).or_default();
        let fine = matches!(verdict, Verdict::Same | Verdict::Outdated);
        if matches!(cause, Some(Cause::Reboot | Cause::Reinstalled)) && !fine && node.baseline.is_some() {
            let since = *seen.settling.get_or_insert(at.now);
            if at.now.since(since) < limits.settle_ms {
                seen.exam_due = at.now.after(2_000.min(limits.settle_ms));
                return;
            }
        }
        seen.settling = None;
        if let (Verdict::Unknown(why), true, true) = (&verdict, node.baseline.is_some(), absence.is_some()) {
            seen.exam_failures += 1;
            seen.last_failure = Some(why.clone());
            if seen.exam_failures < 2 {
                seen.exam_due = at.now.after(limits.unknown_retry_ms);
                return;
            }
        }
        (seen.exam_failures, seen.last_failure) = (0, None);
        let look = seen.report.as_ref().map(|r| (r.digest, r.checks));
        let times = seen.looked_at.filter(|(before, _, _)| Some(*before) == look).map_or(0, |(_, _, times)| times + 1);
        seen.looked_at = look.map(|look| (look, at.now, times));
        let reported = seen.report.as_ref().map(marks_of).unwrap_or_default();
        let marks = marks(&evidence.exam, &reported);
        seen.outlived = Some(reported).filter(|r| *r != marks);
        seen.exam_due = at.now.after(limits.unknown_retry_ms << node.unknowns.min(6));
        let occasion = match (exam.purpose, cause) {
            (Purpose::Live(occasion), _) => occasion,
            (_, cause) => policy::occasion(cause.unwrap_or(Cause::Unknown)),
        };
        let remedy = policy::remedy(at.inventory, node, occasion, &verdict, &reasons, at.wall);
        let finding = Finding {
            overtaken: None,
            absence: absence.map(|a| a.no),
            cause,
            planned,
            evidence: told,
            verdict,
            reasons,
            remedy,
            occasion,
            by: self.me.clone(),
            at: at.wall,
            took_ms: match exam.purpose {
                Purpose::Absence(_) => at.now.since(self.seen.entry(node.id).or_default().since),
                Purpose::Live(_) => at.now.since(exam.began),
            },
            digest: Some(evidence.exam.digest.root),
            checks: drift::tally(&evidence.exam),
            marks,
            basis: exam.basis,
        };
        self.conclude(at, node, finding, out);
    }

    /// Could not be examined: concluded as unknown, which triggers nothing (I9).
    fn unknown(&mut self, at: Moment, node: &Node, exam: Exam, why: String) -> Finding {
        let seen = self.seen.entry(node.id).or_default();
        let report = seen.report.as_ref().map(marks_of);
        let (cause, occasion) = match exam.purpose {
            Purpose::Absence(_) if rebooted(node, seen) => (Some(Cause::Unknown), Occasion::Reboot),
            Purpose::Absence(_) => (Some(Cause::Unknown), Occasion::Network),
            Purpose::Live(occasion) => (None, occasion),
        };
        Finding {
            overtaken: None,
            absence: node.absence.as_ref().map(|a| a.no),
            cause,
            planned: false,
            evidence: vec![format!("no examination: {why}")],
            verdict: Verdict::Unknown(why),
            reasons: Vec::new(),
            remedy: crate::model::Remedy::Report,
            occasion,
            by: self.me.clone(),
            at: at.wall,
            took_ms: at.now.since(seen.since),
            digest: None,
            checks: (0, 0, 0),
            marks: report.or_else(|| node.marks.clone()).unwrap_or_default(),
            basis: exam.basis,
        }
    }

    fn conclude(&mut self, at: Moment, node: &Node, finding: Finding, out: &mut Vec<Action>) {
        let id = node.id;
        if finding.absence.is_none()
            && let Verdict::Unknown(why) = &finding.verdict
            && node.finding.as_ref().is_some_and(|f| matches!(f.verdict, Verdict::Unknown(_)))
        {
            if node.unknowns == 1 {
                let text = format!("{}: twice unknown: {why}", node.name());
                out.push(Action::Notify { key: format!("unknown {id}"), node: Some(id), text });
            }
            self.propose(at, id, Command::Unclear { node: id, why: why.clone() }, out);
            return;
        }
        let word = match &finding.cause {
            Some(cause) => format!("{}: was away ({cause:?}), {}: {}", node.name(), finding.verdict, finding.remedy),
            None => format!("{}: {}: {}", node.name(), finding.verdict, finding.remedy),
        };
        let news = finding.verdict != Verdict::Same || finding.absence.is_some();
        if news {
            let key = format!("verdict {id} {} {:?}", finding.verdict.word(), finding.absence);
            out.push(Action::Notify { key, node: Some(id), text: word.to_lowercase() });
        }
        self.propose(at, id, Command::Conclude { node: id, finding: Box::new(finding) }, out);
    }
}

fn may_open_now(at: Moment, node: &Node) -> bool {
    node.want.as_ref().is_some_and(|want| crate::model::may_open(at.inventory, node, want, at.wall).is_ok())
}

/// While an attempt runs, a restarted agent is nothing to wonder about, and what is found there is half done.
fn in_attempt(at: Moment, node: &Node) -> bool {
    node.job.and_then(|j| at.inventory.job(j)).is_some_and(|j| j.open_attempt().is_some())
}

/// The agent says that its host booted during this absence; sshd may come later than the agent.
fn rebooted(node: &Node, seen: &Seen) -> bool {
    let before = node.absence.as_ref().map(|a| &a.before.boot).filter(|boot| !boot.0.is_empty());
    before.is_some_and(|boot| seen.report.as_ref().is_some_and(|r| !r.is_blank() && r.boot != *boot))
}

/// The marks that a report hints at.
pub(super) fn marks_of(report: &Report) -> Marks {
    Marks { boot: report.boot.clone(), instance: report.instance.clone(), isolation: report.isolation }
}

fn open(inventory: &Inventory, attempt: AttemptId) -> bool {
    inventory.jobs.values().any(|j| j.open_attempt().is_some_and(|a| a.id == attempt))
}
