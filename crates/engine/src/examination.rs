//! Decides when an examination begins and how its result is used. `drift` compares the node with
//! its baseline.

use super::absence::{cause, fingerprint};
use super::event::{Action, ExamOutcome, ExaminationTicket, Purpose};
use super::manager::{ManagerEngine, NodeObservation, ReportSummary, StepContext, in_attempt, reported_fingerprint};
use super::routes::Route;
use super::{drift, live, policy};
use remoor_model::{
    AbsenceCause, AbsenceNo, Command, EXAMINATIONS_MAX, Finding, Node, NodeId, Now, Reason, Trigger, Verdict, Witness,
    failure_hash, join_limited, truncate_text,
};

/// Maximum number of damaged files that are reported per node.
const DAMAGED_MAX: usize = 20;
/// Time after a network loss in which failed checks are repeated, if the files are as recorded. A
/// clustered service needs a moment to connect to its other members again. For example, etcd's
/// proxy does not use a member for 5 s after a failure. In docs/design/design.md, services settle
/// only after a reboot. Without this time, each network loss would cause a useless re-setup.
const RECONNECT_MS: u64 = 10_000;
/// Pause between two examinations while a node settles.
const AGAIN_MS: u64 = 2_000;

/// A running examination.
#[derive(Debug, Clone, Copy)]
pub(super) struct RunningExamination {
    pub ticket: ExaminationTicket,
    pub purpose: Purpose,
    pub began: Now,
    /// The last log entry that was applied when the examination began.
    pub basis: u64,
    /// The manager that performs the examination; None if the leader does.
    pub from: Option<NodeId>,
}

impl ManagerEngine {
    pub(super) fn examine(&mut self, at: StepContext, node: &Node, purpose: Purpose, out: &mut Vec<Action>) {
        let road = self.route(at, node);
        let rendering = self.is_rendering(at.now);
        let seen = self.seen.entry(node.id).or_default();
        if seen.exam.is_some() || at.now < seen.exam_due || rendering || road == Route::Querying {
            return;
        }
        if self.examining >= EXAMINATIONS_MAX {
            self.queued.insert(node.id);
            return;
        }
        let from = match road {
            Route::FromManager(other) => Some(other),
            Route::FromLeader | Route::Querying | Route::NoRoute => None,
        };
        self.next_ticket += 1;
        let ticket = ExaminationTicket(self.next_ticket);
        self.examining += 1;
        self.queued.remove(&node.id);
        seen.exam = Some(RunningExamination { ticket, purpose, began: at.now, basis: at.inventory.applied, from });
        out.push(Action::Examine { node: node.id, ticket, purpose, from });
    }

    pub(super) fn handle_examined(
        &mut self,
        at: StepContext,
        id: NodeId,
        ticket: ExaminationTicket,
        outcome: ExamOutcome,
        out: &mut Vec<Action>,
    ) {
        let seen = self.seen.entry(id).or_default();
        let Some(exam) = seen.exam.filter(|e| e.ticket == ticket) else { return };
        seen.exam = None;
        self.examining -= 1;
        if let Some(by) = exam.from.or_else(|| at.inventory.by_name(self.me.as_str()).map(|n| n.id)) {
            match &outcome {
                ExamOutcome::Found(_) => self.routes.confirm_reachable(id, by, at.now),
                ExamOutcome::Unreachable(_) => self.routes.suspect(id, by),
                ExamOutcome::HostKey(_) | ExamOutcome::Failed(_) => {}
            }
        }
        let Some(node) = at.inventory.node(id) else { return };
        let purpose = exam.purpose;
        if exam.basis < node.examination.invalidated_at_index || in_attempt(at, node) {
            return; // an attempt or another entry changed the node after the examination began
        }
        if purpose != Purpose::Absence(node.absence.as_ref().map_or(AbsenceNo(0), |a| a.no))
            && (node.absence.is_some() || matches!(purpose, Purpose::Absence(_)))
        {
            return;
        }
        match outcome {
            ExamOutcome::Found(evidence) => match evidence.exam.busy.clone() {
                // A cancelled task may still run. The findings of the examination then describe an
                // unfinished state, which may change at any moment.
                Some(run) => self.handle_no_result(at, node, exam, format!("{run} is still running on the node"), out),
                None => self.handle_found(at, node, exam, evidence, out),
            },
            ExamOutcome::HostKey(fingerprint) => {
                let text =
                    format!("{} offers another SSH host key: {fingerprint}; nothing was sent to it", node.name());
                out.push(Action::Notify { key: format!("host-key {id} {fingerprint}"), node: Some(id), text });
                if node.host_key.changed.is_none() {
                    let basis = exam.basis;
                    self.propose(at, id, Command::KeyChanged { node: id, fingerprint, basis }, out);
                }
            }
            ExamOutcome::Unreachable(why) | ExamOutcome::Failed(why) => self.handle_no_result(at, node, exam, why, out),
        }
    }

    /// Handles an examination without a usable result. The examination is repeated. After a second
    /// such examination the verdict is `unknown`.
    fn handle_no_result(
        &mut self,
        at: StepContext,
        node: &Node,
        exam: RunningExamination,
        why: String,
        out: &mut Vec<Action>,
    ) {
        let why = truncate_text(why);
        let limits = at.inventory.limits();
        let seen = self.seen.entry(node.id).or_default();
        seen.exam_failures += 1;
        seen.last_failure = Some(why.clone());
        let wait = limits.unknown_retry_ms << seen.exam_failures.saturating_sub(1).min(6);
        seen.exam_due = at.now.plus_ms(wait);
        let booting = host_rebooted(node, seen) && at.now.ms_since(seen.since) < limits.settle_ms;
        if seen.exam_failures >= 2 && !booting {
            let finding = self.inconclusive_finding(at, node, exam, why);
            self.conclude(at, node, finding, out);
        }
    }

    fn handle_found(
        &mut self,
        at: StepContext,
        node: &Node,
        exam: RunningExamination,
        evidence: drift::Evidence,
        out: &mut Vec<Action>,
    ) {
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
        let patience = settle_time_ms(cause, &verdict, &reasons, limits.settle_ms);
        if patience > 0 && node.setup.baseline.is_some() {
            let (since, _) = *seen.settling.insert((seen.settling.map_or(at.now, |(since, _)| since), patience));
            if at.now.ms_since(since) < patience {
                seen.exam_due = at.now.plus_ms(AGAIN_MS.min(patience));
                return;
            }
        }
        seen.settling = None;
        if let (Verdict::Unknown(why), true, true) = (&verdict, node.setup.baseline.is_some(), absence.is_some()) {
            seen.exam_failures += 1;
            seen.last_failure = Some(why.clone());
            if seen.exam_failures < 2 {
                seen.exam_due = at.now.plus_ms(limits.unknown_retry_ms);
                return;
            }
        }
        (seen.exam_failures, seen.last_failure) = (0, None);
        if !evidence.exam.damaged.is_empty() {
            let names = evidence.exam.damaged.join(", ");
            let text = format!("{}: damaged files in its data directory: {names}", node.name());
            out.push(Action::Notify { key: format!("damaged {} {names}", node.id), node: Some(node.id), text });
        }
        seen.last_seen_before = match exam.purpose {
            Purpose::Live(_) if !evidence.exam.agent_running => seen.last_seen_before.or(Some(node.examination.seen)),
            _ => None,
        };
        let before = seen.last_examination;
        seen.last_examination = seen
            .report
            .as_ref()
            .map(|r| live::record_examination(before, ReportSummary::from_report(r), at.now, limits.check_interval_ms));
        let reported = seen.report.as_ref().map(reported_fingerprint).unwrap_or_default();
        // A live examination may find signs of an absence that is not reported yet. It must not
        // record the new identity, because the agent's report opens that absence. The examination
        // of the absence then records the identity.
        let marks = match (exam.purpose, &node.examination.last_identity) {
            (Purpose::Live(_), Some(known)) => known.clone(),
            _ => {
                let marks = fingerprint(&evidence.exam, &reported);
                seen.outdated_report = Some(reported).filter(|r| *r != marks);
                marks
            }
        };
        seen.exam_due = at.now.plus_ms(limits.unknown_retry_ms << node.examination.consecutive_inconclusive.min(6));
        let occasion = match (exam.purpose, cause) {
            (Purpose::Live(occasion), _) => occasion,
            (_, cause) => policy::trigger_for(cause.unwrap_or(AbsenceCause::Unknown)),
        };
        let remedy = policy::planned_action(at.inventory, node, occasion, &verdict, &reasons, at.wall);
        let reasons = Reason::date_reasons(reasons, node.examination.finding.as_ref(), at.wall);
        let finding = Finding {
            overtaken: None,
            damaged: evidence.exam.damaged.iter().take(DAMAGED_MAX).cloned().map(truncate_text).collect(),
            absence: absence.map(|a| a.no),
            cause,
            planned,
            evidence: told.into_iter().map(truncate_text).collect(),
            verdict,
            reasons,
            planned_action: remedy,
            trigger: occasion,
            by: self.me.clone(),
            at: at.wall,
            took_ms: match exam.purpose {
                Purpose::Absence(_) => at.now.ms_since(self.seen.entry(node.id).or_default().since),
                Purpose::Live(_) => at.now.ms_since(exam.began),
            },
            digest: Some(evidence.exam.digest.root),
            checks: drift::check_counts(&evidence.exam),
            failure_hash: Some(failure_hash(&evidence.exam.digest, &evidence.exam.checks)),
            identity: marks,
            basis: exam.basis,
        };
        self.conclude(at, node, finding, out);
    }

    /// The finding on a node that could not be examined. Its verdict is `unknown`, which triggers
    /// no action (invariant I9).
    fn inconclusive_finding(&mut self, at: StepContext, node: &Node, exam: RunningExamination, why: String) -> Finding {
        let seen = self.seen.entry(node.id).or_default();
        let report = seen.report.as_ref().map(reported_fingerprint);
        let (cause, occasion) = match exam.purpose {
            Purpose::Absence(_) if host_rebooted(node, seen) => (Some(AbsenceCause::Unknown), Trigger::Reboot),
            Purpose::Absence(_) => (Some(AbsenceCause::Unknown), Trigger::Network),
            Purpose::Live(occasion) => (None, occasion),
        };
        Finding {
            overtaken: None,
            damaged: node.examination.finding.as_ref().map(|f| f.damaged.clone()).unwrap_or_default(),
            absence: node.absence.as_ref().map(|a| a.no),
            cause,
            planned: false,
            evidence: vec![format!("not examined: {why}")],
            verdict: Verdict::Unknown(why),
            reasons: Vec::new(),
            planned_action: remoor_model::PlannedAction::Report,
            trigger: occasion,
            by: self.me.clone(),
            at: at.wall,
            took_ms: at.now.ms_since(seen.since),
            digest: None,
            checks: (0, 0, 0),
            failure_hash: None,
            identity: report.or_else(|| node.examination.last_identity.clone()).unwrap_or_default(),
            basis: exam.basis,
        }
    }

    fn conclude(&mut self, at: StepContext, node: &Node, finding: Finding, out: &mut Vec<Action>) {
        let id = node.id;
        if finding.absence.is_none()
            && let Verdict::Unknown(why) = &finding.verdict
            && node.examination.finding.as_ref().is_some_and(|f| matches!(f.verdict, Verdict::Unknown(_)))
        {
            if node.examination.consecutive_inconclusive == 1 {
                let text = format!("{}: two examinations in a row were inconclusive: {why}", node.name());
                out.push(Action::Notify { key: format!("unknown {id}"), node: Some(id), text });
            }
            notify_alerts(node, &finding, out);
            self.propose(at, id, Command::Inconclusive { node: id, why: why.clone() }, out);
            return;
        }
        let word = match &finding.cause {
            Some(cause) => {
                let cause = format!("{cause:?}").to_lowercase();
                format!("{}: was away ({cause}), {}: {}", node.name(), finding.verdict, finding.planned_action)
            }
            None => format!("{}: {}: {}", node.name(), finding.verdict, finding.planned_action),
        };
        let news = finding.verdict != Verdict::Same || finding.absence.is_some();
        if news {
            let key = format!("verdict {id} {} {:?}", finding.verdict.as_str(), finding.absence);
            out.push(Action::Notify { key, node: Some(id), text: word });
        }
        notify_alerts(node, &finding, out);
        self.propose(at, id, Command::Conclude { node: id, finding: Box::new(finding) }, out);
    }
}

/// Notifies people of failed checks that only cause an alert, because such checks do not change the
/// verdict. Another set of failed checks causes a new notice; other values of the same checks do
/// not.
fn notify_alerts(node: &Node, finding: &Finding, out: &mut Vec<Action>) {
    let Some(amiss) =
        finding.failure_hash.filter(|now| node.examination.finding.as_ref().and_then(|f| f.failure_hash) != Some(*now))
    else {
        return;
    };
    let alerts = finding.reasons.iter().filter(|r| r.by == Witness::Check && !r.actionable);
    let alerts: Vec<String> = alerts.map(|r| r.text.clone()).collect();
    if !alerts.is_empty() {
        let text = format!("{}: {}", node.name(), join_limited(&alerts, "; "));
        out.push(Action::Notify { key: format!("check {} {amiss:x}", node.id), node: Some(node.id), text });
    }
}

/// The time in which services may come up before a finding becomes a verdict, in milliseconds from
/// the first such finding. 0 means that the finding is a verdict at once. `settle` is the time
/// after a reboot, and the maximum after a network loss.
fn settle_time_ms(cause: Option<AbsenceCause>, verdict: &Verdict, reasons: &[Reason], settle: u64) -> u64 {
    let fine = matches!(verdict, Verdict::Same | Verdict::Outdated);
    let checks = reasons.iter().any(|r| r.by == Witness::Check) && reasons.iter().all(|r| r.by != Witness::Digest);
    match cause {
        Some(AbsenceCause::Reboot | AbsenceCause::Reinstalled) if !fine => settle,
        Some(AbsenceCause::Network) if checks => RECONNECT_MS.min(settle),
        _ => 0,
    }
}

/// Whether the agent reports that its host booted during this absence. A failed login then proves
/// nothing, because sshd may start later than the agent.
pub(super) fn host_rebooted(node: &Node, seen: &NodeObservation) -> bool {
    let before = node.absence.as_ref().map(|a| &a.before.boot).filter(|boot| !boot.0.is_empty());
    before.is_some_and(|boot| seen.report.as_ref().is_some_and(|r| !r.is_blank() && r.boot != *boot))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EngineEvent;
    use remoor_model::sample::fleet;
    use remoor_model::*;

    const NODES: u64 = 40;

    fn ordered_examinations(actions: Vec<Action>) -> Vec<(NodeId, ExaminationTicket)> {
        let examine = |action| match action {
            Action::Examine { node, ticket, .. } => Some((node, ticket)),
            _ => None,
        };
        actions.into_iter().filter_map(examine).collect()
    }

    #[test]
    fn examinations_are_limited_and_the_next_begins_when_one_ends() {
        let inventory = fleet(NODES, 0);
        let mut engine = ManagerEngine::new("m1".into(), Now(0));
        let mut under_way = Vec::new();
        for id in 1..=NODES {
            let report = Report { digest: Sha256::digest(b"other"), ..Report::default() };
            let event = EngineEvent::Alive { node: NodeId(id), report };
            under_way.extend(ordered_examinations(engine.step(Now(1_000), Wall(1_000), &inventory, event)));
        }
        assert_eq!(under_way.len(), EXAMINATIONS_MAX);
        let mut seen: std::collections::BTreeSet<NodeId> = under_way.iter().map(|(node, _)| *node).collect();
        for _ in 0..NODES {
            let Some((node, ticket)) = under_way.pop() else { break };
            let outcome = Box::new(ExamOutcome::Failed("not today".to_owned()));
            let event = EngineEvent::Examined { node, ticket, outcome };
            let next = ordered_examinations(engine.step(Now(1_400), Wall(1_400), &inventory, event));
            assert!(next.len() <= 1, "{next:?}");
            seen.extend(next.iter().map(|(node, _)| *node));
            under_way.extend(next);
            assert!(under_way.len() <= EXAMINATIONS_MAX);
        }
        assert_eq!(seen.len() as u64, NODES, "each had its turn, without a tick between");
    }

    #[test]
    fn a_check_that_only_alerts_is_notified_once_and_gives_no_verdict() {
        let mut inventory = fleet(1, 0);
        let node = NodeId(1);
        let mut engine = ManagerEngine::new("m1".into(), Now(0));
        let failing = |id: &str| CheckResult {
            service: "web".into(),
            check: format!("file:{id}"),
            property: "exists".to_owned(),
            state: CheckState::Fail,
            severity: Severity::Warning,
            on_fail: OnFail::Alert,
            expected: "true".to_owned(),
            found: "false".to_owned(),
            message: String::new(),
            took_ms: 1,
        };
        let mut look = |at: u64, inventory: &mut Inventory, checks: Vec<CheckResult>| {
            let amiss = failure_hash(&NodeDigest::default(), &checks);
            let report = Report { checks: CheckSummary::Fail, failure_hash: amiss, ..Report::default() };
            let asked = engine.step(Now(at), Wall(at), inventory, EngineEvent::Alive { node, report });
            let [(_, ticket)] = ordered_examinations(asked)[..] else { panic!("no look at {at}") };
            let exam = remoor_model::Exam { checks, ..Default::default() };
            let evidence =
                drift::Evidence { exam, expected: Some(NodeDigest::default()), rendered: Default::default() };
            let event = EngineEvent::Examined { node, ticket, outcome: Box::new(ExamOutcome::Found(evidence)) };
            let mut told = Vec::new();
            for action in engine.step(Now(at + 500), Wall(at + 500), inventory, event) {
                match action {
                    Action::Notify { key, text, .. } => told.push((key, text)),
                    Action::Propose { command: command @ Command::Conclude { .. }, .. } => {
                        let index = inventory.applied + 1;
                        let entry = InventoryEntry { at: Wall(at + 500), by: "m1".to_owned(), command };
                        assert_eq!(inventory.apply(index, &entry).refusal(), None);
                    }
                    _ => {}
                }
            }
            assert_eq!(
                inventory.node(node).expect("a node").examination.finding.as_ref().expect("one").verdict,
                Verdict::Same
            );
            told
        };
        let told = look(1_000, &mut inventory, vec![failing("first")]);
        let [(key, text)] = &told[..] else { panic!("{told:?}") };
        assert!(key.starts_with("check ") && text.contains("first"), "{told:?}");
        let told = look(200_000, &mut inventory, vec![failing("first"), failing("second")]);
        let [(_, text)] = &told[..] else { panic!("{told:?}") };
        assert!(text.contains("first") && text.contains("second"), "{text}");
        let node = inventory.node(node).expect("a node");
        let mut again = node.examination.finding.clone().expect("a finding");
        again.reasons[0].text += ", now another value";
        let mut out = Vec::new();
        notify_alerts(node, &again, &mut out);
        assert!(out.is_empty(), "another value of the same failure is not notified: {out:?}");
    }

    #[test]
    fn a_live_examination_does_not_record_an_agent_restart() {
        let mut inventory = fleet(1, 0);
        let node = NodeId(1);
        let before = HostFingerprint { boot: "boot".into(), instance: "first".into(), isolation: 0 };
        let index = inventory.applied + 1;
        let command = Command::Fingerprint { node, marks: before.clone() };
        assert_eq!(
            inventory.apply(index, &InventoryEntry { at: Wall(9), by: "m1".to_owned(), command }).refusal(),
            None
        );
        let mut engine = ManagerEngine::new("m1".into(), Now(0));
        let said = |instance: &str| Report {
            boot: "boot".into(),
            instance: instance.into(),
            digest: Sha256::digest(b"other"),
            ..Report::default()
        };
        let ordered = ordered_examinations(engine.step(
            Now(1_000),
            Wall(1_000),
            &inventory,
            EngineEvent::Alive { node, report: said("first") },
        ));
        let [(_, ticket)] = ordered[..] else { panic!("{ordered:?}") };
        // The agent was killed and restarted during the examination.
        let agent = AgentRecord { boot: "boot".into(), instance: "second".into(), ..AgentRecord::default() };
        let exam = remoor_model::Exam { boot: "boot".into(), agent: Some(agent), ..Default::default() };
        let evidence = drift::Evidence { exam, expected: Some(NodeDigest::default()), rendered: Default::default() };
        let event = EngineEvent::Examined { node, ticket, outcome: Box::new(ExamOutcome::Found(evidence)) };
        let actions = engine.step(Now(1_500), Wall(1_500), &inventory, event);
        let proposed = |actions: Vec<Action>| {
            actions.into_iter().find_map(|action| match action {
                Action::Propose { command, .. } => Some(command),
                _ => None,
            })
        };
        let command = proposed(actions).expect("a conclusion");
        let Command::Conclude { finding, .. } = &command else { panic!("{command:?}") };
        assert_eq!(finding.identity, before, "the report is to open its absence");
        let seen = inventory.node(node).expect("a node").examination.seen;
        let entry = InventoryEntry { at: Wall(1_500), by: "m1".to_owned(), command };
        assert_eq!(inventory.apply(inventory.applied + 1, &entry).refusal(), None);
        let event = EngineEvent::Alive { node, report: said("second") };
        let Some(Command::AbsenceOpened { last_seen, .. }) =
            proposed(engine.step(Now(20_000), Wall(20_000), &inventory, event))
        else {
            panic!("no absence");
        };
        assert_eq!(last_seen, seen, "the examination does not move the start of the absence");
    }

    /// The minutes at which node 1 is examined. Its report has the given sequence number. The agent
    /// renews the report in the minutes for which `is_renewed` returns true. Each examination finds
    /// no difference.
    fn minutes_examined(sequence: u64, is_renewed: impl Fn(u64) -> bool, minutes: std::ops::Range<u64>) -> Vec<u64> {
        let mut inventory = fleet(1, 0);
        let node = NodeId(1);
        let mut engine = ManagerEngine::new("m1".into(), Now(0));
        let mut examined = Vec::new();
        for minute in minutes {
            let (now, wall) = (Now(minute * 60_000), Wall(minute * 60_000));
            let event = match minute {
                0 => EngineEvent::Alive { node, report: Report { sequence, ..Report::default() } },
                _ if is_renewed(minute) => EngineEvent::Renewed { node },
                _ => EngineEvent::Tick,
            };
            let mut actions = engine.step(now, wall, &inventory, event);
            actions.extend(engine.step(now, wall, &inventory, EngineEvent::Tick));
            for (_, ticket) in ordered_examinations(actions) {
                examined.push(minute);
                let exam = remoor_model::Exam::default();
                let expected = Some(NodeDigest::default());
                let evidence = drift::Evidence { exam, expected, rendered: Default::default() };
                let outcome = Box::new(ExamOutcome::Found(evidence));
                for action in engine.step(now, wall, &inventory, EngineEvent::Examined { node, ticket, outcome }) {
                    let Action::Propose { command: command @ Command::Conclude { .. }, .. } = action else { continue };
                    let entry = InventoryEntry { at: wall, by: "m1".to_owned(), command };
                    assert_eq!(inventory.apply(inventory.applied + 1, &entry).refusal(), None);
                }
            }
        }
        examined
    }

    #[test]
    fn a_node_is_examined_every_few_hours_whatever_its_agent_reports() {
        let every = Limits::default().examination_interval_ms / 60_000;
        // The agent renews its report without a change. The first examination is in the first
        // minute.
        assert_eq!(minutes_examined(1, |minute| minute % 5 == 0, 0..2 * every + 2), [every + 1, 2 * every + 1]);
        // An older agent does not renew its report, so the report is not stale.
        assert_eq!(minutes_examined(0, |_| false, 0..every + 2), [every + 1]);
    }

    #[test]
    fn a_node_whose_report_stands_still_is_examined() {
        let stale = report_stale_ms(1) / 60_000;
        assert_eq!(minutes_examined(7, |_| false, 0..3 * stale), [stale, 2 * stale]);
        // The report is renewed for an hour and not afterwards.
        assert_eq!(minutes_examined(7, |minute| minute <= 60, 0..60 + stale + 1), [60 + stale]);
    }
}
