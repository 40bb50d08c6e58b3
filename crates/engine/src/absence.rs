//! Determines the cause of an absence from the evidence. If the evidence shows several causes, the
//! strongest one counts: a reboot outranks an agent fault, and an agent fault outranks the network.

use remoor_model::{Absence, AbsenceCause, AbsenceKind, AgentRecord, Exam, HostFingerprint, Node, Wall, count_noun};

/// Assumed maximum difference between the clocks of a manager and a node.
const CLOCKS_MS: u64 = 60_000;

/// Returns the cause, whether the absence was planned, and the evidence as text.
///
/// Rules (docs/design/design.md, section 2); the first rule that applies counts:
/// - A changed machine id means a reinstallation.
/// - A changed boot id means a reboot.
/// - A damaged agent record gives no cause, because a new instance or isolation count then proves
///   nothing. But if the agent announced its departure, the cause is `left`.
/// - A changed agent instance means `left` if the previous instance announced its departure, and an
///   agent fault otherwise.
/// - A higher isolation count means the network. Without any change, the cause is the network if
///   managers noticed the absence.
/// - In all other cases there is no cause, for example without an earlier record.
pub fn cause(node: &Node, absence: &Absence, exam: &Exam) -> (AbsenceCause, bool, Vec<String>) {
    let mut evidence = Vec::new();
    let before = &absence.before;
    let after = fingerprint(exam, before);
    let known = *before != HostFingerprint::default();
    let (reinstalled, rebooted) = (was_reinstalled(node, exam), was_rebooted(before, exam));
    let restarted = agent_restarted(before, exam);
    let said_goodbye = said_goodbye(absence, exam);

    if reinstalled {
        evidence.push(format!("machine id was {}, is {}", node.spec.machine_id, exam.machine_id));
    }
    match (known, rebooted) {
        (false, _) => evidence.push("no earlier record of the node".to_owned()),
        (true, true) => {
            evidence.push(format!("boot id was {}, is {}", short_id(&before.boot.0), short_id(&after.boot.0)))
        }
        (true, false) => evidence.push(format!("boot id is the same, {}", short_id(&after.boot.0))),
    }
    if let Some(agent) = &exam.agent {
        if restarted {
            let end = agent.previous_end.as_deref().unwrap_or("unknown end");
            evidence.push(format!(
                "agent instance was {}, is {} (before: {end})",
                short_id(&before.instance.0),
                short_id(&after.instance.0)
            ));
        } else if known {
            evidence.push(format!("agent instance is the same, {}", short_id(&after.instance.0)));
        }
        if agent.isolation > before.isolation
            && known
            && let Some(episode) = &agent.last_isolation
        {
            evidence.push(match episode.to {
                Some(to) => {
                    let seconds = to.ms_since(episode.from) / 1000;
                    format!("the agent lost {} for {seconds} s", count_noun(episode.peers_lost, "peer"))
                }
                None => format!("the agent lost {} and still has none", count_noun(episode.peers_lost, "peer")),
            });
        }
    } else if !record_unreadable(exam) {
        evidence.push("the agent left no record on the node".to_owned());
    }
    if record_lost(absence, exam) {
        evidence
            .push("the agent's record was damaged, so its previous end and its isolation count are unknown".to_owned());
    }
    if absence.seen_by.is_empty() {
        evidence.push("absence detected afterwards: boot id, agent instance or isolation count differs".to_owned());
    } else {
        let names: Vec<&str> = absence.seen_by.iter().map(|n| n.as_str()).collect();
        evidence.push(format!("missed by {}", names.join(", ")));
    }
    match absence.kind {
        AbsenceKind::Left => evidence.push("the agent announced its departure".to_owned()),
        AbsenceKind::AgentDown => evidence.push("its host answered on SSH meanwhile".to_owned()),
        AbsenceKind::Away => {}
    }

    if let Some((moved, ip)) =
        node.setup.address_change.as_ref().zip(node.ip()).filter(|(m, _)| m.since >= absence.last_seen)
    {
        evidence.push(format!("its address was {}, is {ip}", moved.from));
    }

    let (cause, _) = strongest_cause(node, absence, exam);
    (cause, absence.planned || said_goodbye && cause != AbsenceCause::Network, evidence)
}

/// The strongest cause that `exam` shows for the absence, and the rule that led to this cause.
pub fn strongest_cause(node: &Node, absence: &Absence, exam: &Exam) -> (AbsenceCause, &'static str) {
    let before = &absence.before;
    let isolated = exam.agent.as_ref().is_some_and(|a| a.isolation > before.isolation);
    let cause = match () {
        () if was_reinstalled(node, exam) => AbsenceCause::Reinstalled,
        () if was_rebooted(before, exam) => AbsenceCause::Reboot,
        () if record_lost(absence, exam) && absence.kind != AbsenceKind::Left => AbsenceCause::Unknown,
        () if record_lost(absence, exam) => AbsenceCause::Left,
        () if agent_restarted(before, exam) && said_goodbye(absence, exam) => AbsenceCause::Left,
        () if agent_restarted(before, exam) => AbsenceCause::Agent,
        () if *before != HostFingerprint::default() && (isolated || !absence.seen_by.is_empty()) => {
            AbsenceCause::Network
        }
        () => AbsenceCause::Unknown,
    };
    (cause, rule_of(cause))
}

/// The text of the rule by which an absence has this cause.
pub fn rule_of(cause: AbsenceCause) -> &'static str {
    match cause {
        AbsenceCause::Reinstalled => "the machine id differs",
        AbsenceCause::Reboot => "the machine id is the same, the boot id differs",
        AbsenceCause::Left => {
            "the boot is the same, the agent's instance differs, and the agent announced its departure"
        }
        AbsenceCause::Agent => "the boot is the same, the agent's instance differs without an announced departure",
        AbsenceCause::Network => {
            "boot and agent are the same; the agent lost its peers, or managers noticed the absence"
        }
        AbsenceCause::Unknown => {
            "nothing differs and no manager noticed an absence, or there is no earlier record, or the agent's record was damaged"
        }
    }
}

fn was_reinstalled(node: &Node, exam: &Exam) -> bool {
    !node.spec.machine_id.is_empty() && !exam.machine_id.is_empty() && node.spec.machine_id != exam.machine_id
}

fn was_rebooted(before: &HostFingerprint, exam: &Exam) -> bool {
    *before != HostFingerprint::default() && before.boot != exam.boot
}

fn agent_restarted(before: &HostFingerprint, exam: &Exam) -> bool {
    *before != HostFingerprint::default() && exam.agent.as_ref().is_some_and(|a| a.instance != before.instance)
}

/// Whether the agent's record exists but cannot be read.
fn record_unreadable(exam: &Exam) -> bool {
    exam.agent.is_none() && exam.damaged.iter().any(|name| name == "agent.json")
}

/// Whether the agent's earlier record is lost. The earlier record is lost if the record cannot be
/// read now. It is also lost if the record was damaged and a new one replaced it. The new record
/// then comes from the agent's current start, or is younger than the last sight of the node. The
/// comparison allows for different clocks of the manager and the node.
fn record_lost(absence: &Absence, exam: &Exam) -> bool {
    let began_anew = |agent: &AgentRecord| {
        let since = |at: Wall| at == agent.started || at.plus_ms(CLOCKS_MS) >= absence.last_seen;
        agent_restarted(&absence.before, exam) && agent.damaged.is_some_and(since)
    };
    record_unreadable(exam) || exam.agent.as_ref().is_some_and(began_anew)
}

fn said_goodbye(absence: &Absence, exam: &Exam) -> bool {
    absence.kind == AbsenceKind::Left || exam.agent.as_ref().is_some_and(|a| a.left)
}

/// The identity that an examination found: boot id, agent instance and isolation count. Without an
/// agent record, instance and isolation count come from `known`.
pub fn fingerprint(exam: &Exam, known: &HostFingerprint) -> HostFingerprint {
    let (instance, isolation) = match &exam.agent {
        Some(agent) => (agent.instance.clone(), agent.isolation),
        None => (known.instance.clone(), known.isolation),
    };
    HostFingerprint { boot: exam.boot.clone(), instance, isolation }
}

/// Does the same as [`fingerprint`], but uses `known` only if it belongs to the examined boot. None
/// if instance and isolation count of this boot are unknown.
pub fn observed_fingerprint(exam: &Exam, known: Option<&HostFingerprint>) -> Option<HostFingerprint> {
    match (&exam.agent, known.filter(|known| known.boot == exam.boot)) {
        (None, None) => None,
        (_, known) => Some(fingerprint(exam, known.unwrap_or(&HostFingerprint::default()))),
    }
}

fn short_id(text: &str) -> &str {
    text.get(..8).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use remoor_model::{AbsenceNo, ClusterRole, Command, Inventory, InventoryEntry, NodeSpec};

    fn node() -> Node {
        let mut inventory = Inventory::default();
        let spec = NodeSpec { name: "w1".into(), machine_id: "id".to_owned(), ..NodeSpec::default() };
        let command = Command::Accept { spec, role: ClusterRole::Worker };
        inventory.apply(1, &InventoryEntry { at: Wall(0), by: String::new(), command });
        inventory.nodes.values().next().map(|n| Node::clone(n)).expect("accepted")
    }

    fn absence(gone: AbsenceKind) -> Absence {
        Absence {
            no: AbsenceNo(1),
            opened: Wall(1_000_000),
            last_seen: Wall(1_000_000),
            seen_by: vec!["m1".into()],
            kind: gone,
            before: HostFingerprint { boot: "b".into(), instance: "a".into(), isolation: 5 },
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
        let away = |exam: &Exam| of(AbsenceKind::Away, exam);
        assert_eq!(away(&exam(record("n", 2_000_000, None))), (AbsenceCause::Agent, false));
        let anew = exam(record("n", 2_000_000, Some(2_000_000)));
        assert_eq!(away(&anew), (AbsenceCause::Unknown, true), "replaced by this instance");
        assert_eq!(
            away(&exam(record("n", 2_100_000, Some(2_000_000)))),
            (AbsenceCause::Unknown, true),
            "or by the previous one"
        );
        assert_eq!(away(&exam(record("n", 2_100_000, Some(900)))), (AbsenceCause::Agent, false), "but not long ago");
        assert_eq!(away(&exam(record("a", 900, Some(900)))), (AbsenceCause::Network, false), "nothing was begun since");
        let unreadable = Exam { damaged: vec!["agent.json".to_owned()], ..exam(None) };
        assert_eq!(away(&unreadable), (AbsenceCause::Unknown, true));
        assert_eq!(
            away(&Exam { boot: "c".into(), ..anew.clone() }),
            (AbsenceCause::Reboot, true),
            "the boot id proves a reboot"
        );
        assert_eq!(away(&Exam { machine_id: "x".to_owned(), ..anew.clone() }), (AbsenceCause::Reinstalled, true));
        assert_eq!(of(AbsenceKind::Left, &anew), (AbsenceCause::Left, true), "gossip received the announced departure");
    }

    /// Regression test: without an agent record, an empty host fingerprint was recorded. The next
    /// examination then reported an agent restart or a first isolation.
    #[test]
    fn without_an_agent_record_the_known_fingerprint_of_this_boot_is_used() {
        let known = HostFingerprint { boot: "b".into(), instance: "a".into(), isolation: 5 };
        assert_eq!(observed_fingerprint(&exam(None), Some(&known)), Some(known.clone()));
        assert_eq!(observed_fingerprint(&exam(None), None), None);
        let rebooted = Exam { boot: "c".into(), ..exam(None) };
        assert_eq!(observed_fingerprint(&rebooted, Some(&known)), None, "of another boot");
        let seen = observed_fingerprint(&exam(record("n", 1, None)), Some(&known));
        assert_eq!(
            seen,
            Some(HostFingerprint { instance: "n".into(), isolation: 0, ..known }),
            "its own record says more"
        );
    }
}
