//! Why was the node away: the strongest cause that the evidence shows, reboot before agent before network.

use crate::model::{Absence, AgentRecord, Cause, Exam, Gone, Marks, Node, Wall, counted};

/// By so much the clocks of a manager and a node may differ.
const CLOCKS_MS: u64 = 60_000;

/// Cause, planned or not, evidence in words.
///
/// Rules (DESIGN section 2): another machine id is a reinstallation; another boot id a reboot; another agent instance
/// an agent fault, or `left` if the instance before said goodbye; an isolation episode more, or managers that missed it
/// with all else equal, the network. Without a record of before there is no cause to name, and none either where the agent's
/// record was damaged: a new instance is then no sign of a fault, nor a new counter of company.
pub fn cause(node: &Node, absence: &Absence, exam: &Exam) -> (Cause, bool, Vec<String>) {
    let mut evidence = Vec::new();
    let before = &absence.before;
    let after = marks(exam, before);
    let known = *before != Marks::default();
    let (reinstalled, rebooted) = (reinstalled(node, exam), rebooted(before, exam));
    let restarted = restarted(before, exam);
    let said_goodbye = said_goodbye(absence, exam);

    if reinstalled {
        evidence.push(format!("machine id was {}, is {}", node.spec.machine_id, exam.machine_id));
    }
    match (known, rebooted) {
        (false, _) => evidence.push("no record of the node from before".to_owned()),
        (true, true) => evidence.push(format!("boot id was {}, is {}", short(&before.boot.0), short(&after.boot.0))),
        (true, false) => evidence.push(format!("boot id is the same, {}", short(&after.boot.0))),
    }
    if let Some(agent) = &exam.agent {
        if restarted {
            let end = agent.previous_end.as_deref().unwrap_or("unknown end");
            evidence.push(format!(
                "agent instance was {}, is {} (before: {end})",
                short(&before.instance.0),
                short(&after.instance.0)
            ));
        } else if known {
            evidence.push(format!("agent instance is the same, {}", short(&after.instance.0)));
        }
        if agent.isolation > before.isolation
            && known
            && let Some(episode) = &agent.last_isolation
        {
            evidence.push(match episode.to {
                Some(to) => {
                    let seconds = to.since(episode.from) / 1000;
                    format!("the agent lost {} for {seconds} s", counted(episode.peers_lost, "peer"))
                }
                None => format!("the agent lost {} and has none yet", counted(episode.peers_lost, "peer")),
            });
        }
    } else if !unreadable(exam) {
        evidence.push("the agent left no record on the node".to_owned());
    }
    if record_lost(absence, exam) {
        evidence
            .push("the agent's record was damaged: how it ended and how often it was alone can't be told".to_owned());
    }
    if absence.seen_by.is_empty() {
        evidence.push("nobody saw it go: told from its traces".to_owned());
    } else {
        let names: Vec<&str> = absence.seen_by.iter().map(|n| n.as_str()).collect();
        evidence.push(format!("missed by {}", names.join(", ")));
    }
    match absence.gone {
        Gone::Left => evidence.push("it said goodbye".to_owned()),
        Gone::AgentDown => evidence.push("its host answered on SSH meanwhile".to_owned()),
        Gone::Away => {}
    }

    if let Some((moved, ip)) = node.moved.as_ref().zip(node.ip()).filter(|(m, _)| m.since >= absence.last_seen) {
        evidence.push(format!("its address was {}, is {ip}", moved.from));
    }

    let (cause, _) = strongest(node, absence, exam);
    (cause, absence.planned || said_goodbye && cause != Cause::Network, evidence)
}

/// The strongest cause, and the rule that named it.
pub fn strongest(node: &Node, absence: &Absence, exam: &Exam) -> (Cause, &'static str) {
    let before = &absence.before;
    let isolated = exam.agent.as_ref().is_some_and(|a| a.isolation > before.isolation);
    let cause = match () {
        () if reinstalled(node, exam) => Cause::Reinstalled,
        () if rebooted(before, exam) => Cause::Reboot,
        () if record_lost(absence, exam) && absence.gone != Gone::Left => Cause::Unknown,
        () if record_lost(absence, exam) => Cause::Left,
        () if restarted(before, exam) && said_goodbye(absence, exam) => Cause::Left,
        () if restarted(before, exam) => Cause::Agent,
        () if *before != Marks::default() && (isolated || !absence.seen_by.is_empty()) => Cause::Network,
        () => Cause::Unknown,
    };
    (cause, rule_of(cause))
}

/// What names this cause.
pub fn rule_of(cause: Cause) -> &'static str {
    match cause {
        Cause::Reinstalled => "the machine id differs",
        Cause::Reboot => "the machine id is the same, the boot id differs",
        Cause::Left => "the boot is the same, the agent's instance differs, and it said goodbye",
        Cause::Agent => "the boot is the same, the agent's instance differs without a goodbye",
        Cause::Network => "boot and agent are the same; the agent lost its peers, or managers missed it",
        Cause::Unknown => {
            "nothing differs and nobody missed it, or there is no record of before, or the agent's record was damaged"
        }
    }
}

fn reinstalled(node: &Node, exam: &Exam) -> bool {
    !node.spec.machine_id.is_empty() && !exam.machine_id.is_empty() && node.spec.machine_id != exam.machine_id
}

fn rebooted(before: &Marks, exam: &Exam) -> bool {
    *before != Marks::default() && before.boot != exam.boot
}

fn restarted(before: &Marks, exam: &Exam) -> bool {
    *before != Marks::default() && exam.agent.as_ref().is_some_and(|a| a.instance != before.instance)
}

/// The agent's record lies there and can't be read.
fn unreadable(exam: &Exam) -> bool {
    exam.agent.is_none() && exam.damaged.iter().any(|name| name == "agent.json")
}

/// The record of the time before was damaged: it can't be read, or this instance began a new one in its place, or one did
/// since the node was last seen. The two clocks may differ a little.
fn record_lost(absence: &Absence, exam: &Exam) -> bool {
    let began_anew = |agent: &AgentRecord| {
        let since = |at: Wall| at == agent.started || at.after(CLOCKS_MS) >= absence.last_seen;
        restarted(&absence.before, exam) && agent.damaged.is_some_and(since)
    };
    unreadable(exam) || exam.agent.as_ref().is_some_and(began_anew)
}

fn said_goodbye(absence: &Absence, exam: &Exam) -> bool {
    absence.gone == Gone::Left || exam.agent.as_ref().is_some_and(|a| a.left)
}

/// The marks that an examination saw; where the agent left no record, what is `known` of it otherwise.
pub fn marks(exam: &Exam, known: &Marks) -> Marks {
    let (instance, isolation) = match &exam.agent {
        Some(agent) => (agent.instance.clone(), agent.isolation),
        None => (known.instance.clone(), known.isolation),
    };
    Marks { boot: exam.boot.clone(), instance, isolation }
}

/// The same where nobody may know them: without a record of the agent, what is `known` of it holds only for the boot that
/// was examined. None: of this boot nothing is known.
pub fn marks_seen(exam: &Exam, known: Option<&Marks>) -> Option<Marks> {
    match (&exam.agent, known.filter(|known| known.boot == exam.boot)) {
        (None, None) => None,
        (_, known) => Some(marks(exam, known.unwrap_or(&Marks::default()))),
    }
}

fn short(text: &str) -> &str {
    text.get(..8).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{AbsenceNo, ClusterRole, Command, Entry, Inventory, NodeSpec};

    fn node() -> Node {
        let mut inventory = Inventory::default();
        let spec = NodeSpec { name: "w1".into(), machine_id: "id".to_owned(), ..NodeSpec::default() };
        let command = Command::Accept { spec, role: ClusterRole::Worker };
        inventory.apply(1, &Entry { at: Wall(0), by: String::new(), command });
        inventory.nodes.values().next().map(|n| Node::clone(n)).expect("accepted")
    }

    fn absence(gone: Gone) -> Absence {
        Absence {
            no: AbsenceNo(1),
            opened: Wall(1_000_000),
            last_seen: Wall(1_000_000),
            seen_by: vec!["m1".into()],
            gone,
            before: Marks { boot: "b".into(), instance: "a".into(), isolation: 5 },
            returned: None,
            after: None,
            planned: false,
        }
    }

    fn exam(agent: Option<AgentRecord>) -> Exam {
        Exam { boot: "b".into(), machine_id: "id".to_owned(), agent, ..Exam::default() }
    }

    fn record(instance: &str, started: u64, damaged: Option<u64>) -> Option<AgentRecord> {
        let (instance, started) = (instance.into(), Wall(started));
        Some(AgentRecord { boot: "b".into(), instance, started, damaged: damaged.map(Wall), ..AgentRecord::default() })
    }

    #[test]
    fn a_damaged_record_names_no_cause_but_hides_none_that_others_show() {
        let node = node();
        let of = |gone, exam: &Exam| {
            let (cause, _, evidence) = cause(&node, &absence(gone), exam);
            (cause, evidence.iter().any(|e| e.contains("record was damaged")))
        };
        let away = |exam: &Exam| of(Gone::Away, exam);
        assert_eq!(away(&exam(record("n", 2_000_000, None))), (Cause::Agent, false));
        let anew = exam(record("n", 2_000_000, Some(2_000_000)));
        assert_eq!(away(&anew), (Cause::Unknown, true), "begun anew by this instance");
        assert_eq!(
            away(&exam(record("n", 2_100_000, Some(2_000_000)))),
            (Cause::Unknown, true),
            "or by the one before"
        );
        assert_eq!(away(&exam(record("n", 2_100_000, Some(900)))), (Cause::Agent, false), "not by one of long ago");
        assert_eq!(away(&exam(record("a", 900, Some(900)))), (Cause::Network, false), "nothing was begun since");
        let unreadable = Exam { damaged: vec!["agent.json".to_owned()], ..exam(None) };
        assert_eq!(away(&unreadable), (Cause::Unknown, true));
        assert_eq!(away(&Exam { boot: "c".into(), ..anew.clone() }), (Cause::Reboot, true), "the kernel's word stands");
        assert_eq!(away(&Exam { machine_id: "x".to_owned(), ..anew.clone() }), (Cause::Reinstalled, true));
        assert_eq!(of(Gone::Left, &anew), (Cause::Left, true), "gossip heard its goodbye");
    }

    /// Empty marks made the next look say that the agent had restarted, or been alone for the first time.
    #[test]
    fn without_a_record_of_the_agent_its_marks_are_those_that_are_known_or_none() {
        let known = Marks { boot: "b".into(), instance: "a".into(), isolation: 5 };
        assert_eq!(marks_seen(&exam(None), Some(&known)), Some(known.clone()));
        assert_eq!(marks_seen(&exam(None), None), None);
        let rebooted = Exam { boot: "c".into(), ..exam(None) };
        assert_eq!(marks_seen(&rebooted, Some(&known)), None, "of another boot");
        let seen = marks_seen(&exam(record("n", 1, None)), Some(&known));
        assert_eq!(seen, Some(Marks { instance: "n".into(), isolation: 0, ..known }), "its own record says more");
    }
}
