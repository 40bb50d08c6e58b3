//! The cause of an absence: the strongest one that the evidence shows. Reboot outranks agent, agent
//! outranks network.

use remoor_model::{Absence, AgentRecord, Cause, Exam, Gone, Marks, Node, Wall, counted};

/// Assumed maximum difference between the clocks of a manager and a node.
const CLOCKS_MS: u64 = 60_000;

/// Returns the cause, whether the absence was planned, and the evidence as text.
///
/// Rules (docs/design/design.md, section 2): a changed machine id means reinstallation, a changed
/// boot id a reboot. A changed agent instance means an agent fault, or `left` if the previous
/// instance announced its departure. Another isolation episode, or managers that noticed the
/// absence while all else is equal, means the network. Without an earlier record there is no cause.
/// A damaged agent record gives no cause either, because a new instance or isolation count then
/// proves nothing.
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
        (false, _) => evidence.push("no earlier record of the node".to_owned()),
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
                None => format!("the agent lost {} and still has none", counted(episode.peers_lost, "peer")),
            });
        }
    } else if !unreadable(exam) {
        evidence.push("the agent left no record on the node".to_owned());
    }
    if record_lost(absence, exam) {
        evidence
            .push("the agent's record was damaged, so its previous end and its isolation count are unknown".to_owned());
    }
    if absence.seen_by.is_empty() {
        evidence.push("absence detected afterwards: boot id or agent instance differs".to_owned());
    } else {
        let names: Vec<&str> = absence.seen_by.iter().map(|n| n.as_str()).collect();
        evidence.push(format!("missed by {}", names.join(", ")));
    }
    match absence.gone {
        Gone::Left => evidence.push("the agent announced its departure".to_owned()),
        Gone::AgentDown => evidence.push("its host answered on SSH meanwhile".to_owned()),
        Gone::Away => {}
    }

    if let Some((moved, ip)) = node.moved.as_ref().zip(node.ip()).filter(|(m, _)| m.since >= absence.last_seen) {
        evidence.push(format!("its address was {}, is {ip}", moved.from));
    }

    let (cause, _) = strongest(node, absence, exam);
    (cause, absence.planned || said_goodbye && cause != Cause::Network, evidence)
}

/// The strongest cause, and the rule that determined it.
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

/// The rule that determines this cause.
pub fn rule_of(cause: Cause) -> &'static str {
    match cause {
        Cause::Reinstalled => "the machine id differs",
        Cause::Reboot => "the machine id is the same, the boot id differs",
        Cause::Left => "the boot is the same, the agent's instance differs, and the agent announced its departure",
        Cause::Agent => "the boot is the same, the agent's instance differs without an announced departure",
        Cause::Network => "boot and agent are the same; the agent lost its peers, or managers noticed the absence",
        Cause::Unknown => {
            "nothing differs and no manager noticed an absence, or there is no earlier record, or the agent's record was damaged"
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

/// The agent's record exists but cannot be read.
fn unreadable(exam: &Exam) -> bool {
    exam.agent.is_none() && exam.damaged.iter().any(|name| name == "agent.json")
}

/// The earlier record was damaged: it cannot be read, or it was replaced by this instance or since
/// the node was last seen. The clocks of node and manager may differ slightly.
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

/// The identity that an examination found. Without an agent record, instance and isolation count
/// are taken from `known`.
pub fn marks(exam: &Exam, known: &Marks) -> Marks {
    let (instance, isolation) = match &exam.agent {
        Some(agent) => (agent.instance.clone(), agent.isolation),
        None => (known.instance.clone(), known.isolation),
    };
    Marks { boot: exam.boot.clone(), instance, isolation }
}

/// The same, but `known` is used only if it belongs to the examined boot. None: nothing is known of
/// this boot.
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
    use remoor_model::{AbsenceNo, ClusterRole, Command, Entry, Inventory, NodeSpec};

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
    fn a_damaged_record_proves_no_cause_but_does_not_hide_other_evidence() {
        let node = node();
        let of = |gone, exam: &Exam| {
            let (cause, _, evidence) = cause(&node, &absence(gone), exam);
            (cause, evidence.iter().any(|e| e.contains("record was damaged")))
        };
        let away = |exam: &Exam| of(Gone::Away, exam);
        assert_eq!(away(&exam(record("n", 2_000_000, None))), (Cause::Agent, false));
        let anew = exam(record("n", 2_000_000, Some(2_000_000)));
        assert_eq!(away(&anew), (Cause::Unknown, true), "replaced by this instance");
        assert_eq!(
            away(&exam(record("n", 2_100_000, Some(2_000_000)))),
            (Cause::Unknown, true),
            "or by the previous one"
        );
        assert_eq!(away(&exam(record("n", 2_100_000, Some(900)))), (Cause::Agent, false), "but not long ago");
        assert_eq!(away(&exam(record("a", 900, Some(900)))), (Cause::Network, false), "nothing was begun since");
        let unreadable = Exam { damaged: vec!["agent.json".to_owned()], ..exam(None) };
        assert_eq!(away(&unreadable), (Cause::Unknown, true));
        assert_eq!(
            away(&Exam { boot: "c".into(), ..anew.clone() }),
            (Cause::Reboot, true),
            "the boot id proves a reboot"
        );
        assert_eq!(away(&Exam { machine_id: "x".to_owned(), ..anew.clone() }), (Cause::Reinstalled, true));
        assert_eq!(of(Gone::Left, &anew), (Cause::Left, true), "gossip received the announced departure");
    }

    /// Regression test: an empty fingerprint made the next examination report an agent restart or a
    /// first isolation.
    #[test]
    fn without_an_agent_record_the_known_fingerprint_of_this_boot_is_used() {
        let known = Marks { boot: "b".into(), instance: "a".into(), isolation: 5 };
        assert_eq!(marks_seen(&exam(None), Some(&known)), Some(known.clone()));
        assert_eq!(marks_seen(&exam(None), None), None);
        let rebooted = Exam { boot: "c".into(), ..exam(None) };
        assert_eq!(marks_seen(&rebooted, Some(&known)), None, "of another boot");
        let seen = marks_seen(&exam(record("n", 1, None)), Some(&known));
        assert_eq!(seen, Some(Marks { instance: "n".into(), isolation: 0, ..known }), "its own record says more");
    }
}
