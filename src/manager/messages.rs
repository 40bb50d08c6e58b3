//! Describes each event and action of the engine in one line. The line contains only values of the
//! event or action.

use remoor_engine::{Action, EngineEvent, ExamOutcome, PhaseResult, Purpose, Reachability};
use remoor_model::{AbsenceKind, Applied, CheckState, Command, Report, count_noun};

/// Describes an event that the engine received.
pub fn describe_event(event: &EngineEvent) -> String {
    match event {
        EngineEvent::Alive { report, .. } if report.leaving => format!("its agent leaves gossip ({})", summary(report)),
        EngineEvent::Alive { report, .. } if report.is_blank() => {
            "alive in gossip, with a report of a version that can't be read".to_owned()
        }
        EngineEvent::Alive { report, .. } => format!("alive in gossip: {}", summary(report)),
        EngineEvent::Renewed { .. } => "its agent signed the same report again".to_owned(),
        EngineEvent::Sighted { gossip, .. } => format!("its signed gossip address is {gossip}"),
        EngineEvent::Rendered { result: Ok(hosts), .. } => {
            format!("rendered again: the desired state changes on {}", count_noun(hosts.len(), "host"))
        }
        EngineEvent::Rendered { result: Err(why), .. } => format!("rendering it again failed: {why}"),
        EngineEvent::Reported { report, .. } => format!("its agent sent its report: {}", summary(report)),
        EngineEvent::Greeted { answers: true, .. } => "its daemon answers a handshake".to_owned(),
        EngineEvent::Greeted { answers: false, .. } => "its daemon does not answer a handshake".to_owned(),
        EngineEvent::Gone { .. } => "lost from gossip".to_owned(),
        EngineEvent::Probed { answers: true, .. } => "its SSH port answers".to_owned(),
        EngineEvent::Probed { answers: false, .. } => "its SSH port does not answer".to_owned(),
        EngineEvent::Reach { by, line: Reachability::Reachable, .. } => format!("manager {by} reaches its SSH port"),
        EngineEvent::Reach { by, line: Reachability::Unreachable { why, .. }, .. } => {
            format!("manager {by} does not reach its SSH port: {why}")
        }
        EngineEvent::Examined { outcome, .. } => match outcome.as_ref() {
            ExamOutcome::Found(evidence) => {
                let count = |state| evidence.exam.checks.iter().filter(|c| c.state == state).count();
                format!(
                    "examined: boot {}, digest {}, checks {} failed and {} unknown",
                    shorten(evidence.exam.boot.as_str()),
                    evidence.exam.digest.root.short_hex(),
                    count(CheckState::Fail),
                    count(CheckState::Unknown)
                )
            }
            ExamOutcome::Unreachable(why) => format!("could not be examined, unreachable: {why}"),
            ExamOutcome::HostKey(fingerprint) => {
                format!("could not be examined: it offers another host key, {fingerprint}")
            }
            ExamOutcome::Failed(why) => format!("could not be examined: {why}"),
        },
        EngineEvent::Ran { job, phase, result, .. } => match result.as_ref() {
            PhaseResult::Ok => format!("job {job}: {phase} is done"),
            PhaseResult::Verified(verified) if verified.wrong.is_empty() => format!("job {job}: verified"),
            PhaseResult::Verified(verified) => {
                format!("job {job}: verified, but these files differ: {}", verified.wrong.join(", "))
            }
            PhaseResult::Failed(failure) => format!("job {job}: {phase} failed: {}", failure.message),
        },
        EngineEvent::Proposed { applied: Some(Applied::Refused(refusal)), .. } => {
            format!("its entry was refused when it was applied: {}", refusal.message)
        }
        EngineEvent::Proposed { applied: Some(_), .. } => "its entry was applied".to_owned(),
        EngineEvent::Proposed { applied: None, .. } => "it is unknown whether its entry was applied".to_owned(),
        EngineEvent::Changed => "the replicated state changed".to_owned(),
        EngineEvent::Tick => "time passed".to_owned(),
    }
}

/// Describes an action of the engine.
pub fn describe_action(action: &Action) -> String {
    match action {
        Action::Propose { command, .. } => format!("propose: {}", entry(command)),
        Action::Probe { .. } => "probe its SSH port, without a login".to_owned(),
        Action::Greet { .. } => "try a handshake with its daemon".to_owned(),
        Action::Reach { .. } => "ask the managers whether they reach its SSH port".to_owned(),
        Action::Examine { from: Some(manager), .. } => format!("have manager {manager} examine it over SSH"),
        Action::Examine { purpose: Purpose::Absence(no), .. } => format!("examine it over SSH, for absence {no}"),
        Action::Examine { purpose: Purpose::Live(_), .. } => "examine it over SSH".to_owned(),
        Action::Run { job, attempt, phase, .. } => format!("begin {phase} of job {job}, attempt {attempt}"),
        Action::Stop { attempt, now: false } => format!("stop attempt {attempt} after its current task"),
        Action::Stop { attempt, now: true } => format!("stop attempt {attempt} at once"),
        Action::Render { generation, .. } => format!("render generation {generation} with the current addresses"),
        Action::HandOver { why, to: None } => format!("hand leadership over: {why}"),
        Action::HandOver { why, to: Some(to) } => format!("hand leadership over to manager {to}: {why}"),
        Action::Notify { text, .. } => format!("send a notice: {text}"),
    }
}

fn entry(command: &Command) -> String {
    match command {
        Command::AbsenceOpened { no, returned: Some(_), .. } => format!("absence {no}, noticed only on return"),
        Command::AbsenceOpened { no, gone, .. } => format!("absence {no} begins, {}", gone_word(*gone)),
        Command::SetAbsenceKind { no, gone, .. } => format!("absence {no}: {}", gone_word(*gone)),
        Command::Returned { no, .. } => format!("back from absence {no}"),
        Command::AwayAgain { no, .. } => format!("absence {no} continues"),
        Command::Fingerprint { .. } => "its boot id and instance, as first seen".to_owned(),
        Command::Conclude { finding, .. } => {
            let cause = finding.cause.map(|c| format!("{c:?}, ").to_lowercase()).unwrap_or_default();
            format!("the verdict: {cause}{} -> {}", finding.verdict, finding.planned_action)
        }
        Command::Inconclusive { why, .. } => format!("still unknown: {why}"),
        Command::KeyChanged { fingerprint, .. } => format!("it offers another host key, {fingerprint}"),
        Command::MakeOperator { name, .. } => format!("credentials for operator {name}"),
        Command::RevokeOperator { name } => format!("revoke the credentials of operator {name}"),
        Command::Readdress { gossip, .. } => format!("its gossip address is now {gossip}"),
        Command::Rendered { hosts, fault: None, .. } => {
            format!("the desired state changes on {}", count_noun(hosts.len(), "host"))
        }
        Command::Rendered { fault: Some(why), .. } => format!("the desired state stays: {why}"),
        Command::RequestResetup { .. } => "request a re-setup".to_owned(),
        Command::DropRequest { why, .. } => format!("drop the requested re-setup: {why}"),
        Command::OpenJob { runner, .. } => format!("open a job, run by {runner}"),
        Command::NextAttempt { job, why, .. } => format!("the next attempt of job {job}: {why}"),
        Command::Phase { job, phase, .. } => format!("job {job}: {phase} may begin"),
        Command::CloseAttempt { job, attempt, .. } => format!("job {job}: attempt {attempt} has ended"),
        Command::HoldJob { job, why } => format!("job {job} is held: {why}"),
        Command::CancelJob { job, why, .. } => format!("job {job} is cancelled: {why}"),
        Command::BreakerOpened { why, .. } => format!("a breaker opens: {why}"),
        // The engine does not propose the commands of operators and of joining machines, so these
        // are described only by their name.
        other => {
            let text = format!("{other:?}");
            text.split([' ', '{', '(']).next().unwrap_or_default().to_lowercase()
        }
    }
}

fn gone_word(gone: AbsenceKind) -> &'static str {
    match gone {
        AbsenceKind::Away => "away",
        AbsenceKind::AgentDown => "only its agent is down",
        AbsenceKind::Left => "it left",
    }
}

fn summary(report: &Report) -> String {
    let checks = format!("{:?}", report.checks).to_lowercase();
    format!(
        "boot {}, instance {}, isolations {}, digest {}, checks {checks}",
        shorten(report.boot.as_str()),
        shorten(&report.instance.0),
        report.isolation,
        report.digest.short_hex()
    )
}

fn shorten(text: &str) -> &str {
    text.get(..8).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use remoor_engine::About;
    use remoor_model::{AbsenceNo, NodeId};

    #[test]
    fn leaving_unreadable_and_normal_reports_are_described_differently() {
        let node = NodeId(4);
        let report = Report { boot: "6f1c2d3e-0000".into(), instance: "aa".into(), ..Report::default() };
        let told = |report: Report| describe_event(&EngineEvent::Alive { node, report });
        assert!(told(report.clone()).starts_with("alive in gossip: boot 6f1c2d3e, instance aa, isolations 0, digest "));
        assert!(told(Report { leaving: true, ..report }).starts_with("its agent leaves gossip"));
        assert!(told(Report::default()).contains("can't be read"));
    }

    #[test]
    fn entries_are_named() {
        let about = About::Node(NodeId(4));
        let command = Command::SetAbsenceKind { node: NodeId(4), no: AbsenceNo(3), gone: AbsenceKind::AgentDown };
        let text = describe_action(&Action::Propose { about, command });
        assert_eq!(text, "propose: absence 3: only its agent is down");
        assert_eq!(describe_action(&Action::Propose { about, command: Command::Resume }), "propose: resume");
    }
}
