//! Why was the node away: the strongest cause that the evidence shows, reboot before agent before network.

use crate::model::{Absence, Cause, Exam, Gone, Marks, Node};

/// Cause, planned or not, evidence in words.
///
/// Rules (DESIGN section 2): another machine id is a reinstallation; another boot id a reboot; another agent instance
/// an agent fault, or `left` if the instance before said goodbye; an isolation episode more, or managers that missed it
/// with all else equal, the network. Without a record of before there is no cause to name.
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
                    format!("the agent lost {} peers for {seconds} s", episode.peers_lost)
                }
                None => format!("the agent lost {} peers and has none yet", episode.peers_lost),
            });
        }
    } else {
        evidence.push("the agent left no record on the node".to_owned());
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
        Cause::Unknown => "nothing differs and nobody missed it, or there is no record of before",
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

fn short(text: &str) -> &str {
    text.get(..8).unwrap_or(text)
}
