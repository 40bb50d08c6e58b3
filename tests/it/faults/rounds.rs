//! Many rounds on one cluster. In each round clients work, one fault happens and roles may change.
//! Then the fault is repaired, and all states are compared.

use super::clients::Registers;
use super::cluster::{Cluster, NODES, name};
use super::fault::{self, Fault};
use super::{Rng, namespaces_missing, one_at_a_time};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The seed without `REMOOR_FAULT_SEED`. It is the same in each run.
const SEED: u64 = 1;
/// Maximum number of tries to cause a fault. Other events, such as a change of roles, may prevent a
/// fault, but not that many times in a row.
const TRIES: usize = 3;

#[test]
fn nothing_acknowledged_is_lost_whatever_breaks() {
    if namespaces_missing() {
        return;
    }
    let _alone = one_at_a_time();
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    let seed = number("REMOOR_FAULT_SEED").unwrap_or(SEED);
    let asked = number("REMOOR_FAULT_ROUNDS").map(|rounds| rounds as usize);
    let rounds = asked.unwrap_or(fault::GATE.len());
    let faults: &[Fault] = if asked.is_some() { &fault::ALL } else { &fault::GATE };
    match asked {
        Some(rounds) => eprintln!("to repeat this run: REMOOR_FAULT_SEED={seed} REMOOR_FAULT_ROUNDS={rounds}"),
        None => {
            let (rest, all) = (fault::ALL.len() - faults.len(), fault::ALL.len());
            eprintln!("NOT RUN HERE: {rest} OF {all} FAULTS OF MANAGERS; next: make long-faults");
        }
    }

    let mut rng = Rng(seed);
    let mut cluster = Cluster::create(5, 5);
    let mut registers = Registers::new(&cluster);
    let mut deck: Vec<Fault> = Vec::new();
    let mut fired = BTreeMap::<Fault, usize>::new();
    for round in 1..=rounds {
        if deck.is_empty() {
            deck = faults.to_vec();
            rng.shuffle(&mut deck);
        }
        let fault = deck.pop().expect("filled above");
        let begun = Instant::now();
        eprintln!("round {round}: {fault:?}");
        registers.begin(&cluster, &mut rng);
        let churned = (rng.up_to(3) == 0).then(|| churn(&cluster, &mut rng));
        std::thread::sleep(Duration::from_millis(500));
        let proof = (0..TRIES).find_map(|_| fault::strike(fault, &mut cluster, &mut rng));
        let proof = proof.unwrap_or_else(|| panic!("round {round}: {fault:?} did not take effect"));
        *fired.entry(fault).or_default() += 1;
        let before = registers.acknowledged_writes();
        cluster.wait_until("a write after the fault", |_| (registers.acknowledged_writes() > before + 5).then_some(()));
        registers.stop(&cluster);
        let managers = cluster.wait_until_settled();
        let tally = registers.judge(&cluster);
        let managers: Vec<String> = managers.into_iter().map(name).collect();
        eprintln!(
            "  {proof}{}; {tally:?}; managers {}; {:.1} s",
            churned.map(|order| format!(", {order}")).unwrap_or_default(),
            managers.join(" "),
            begun.elapsed().as_secs_f64()
        );
        assert!(tally.writes > 0, "round {round}: nothing was written");
    }
    eprintln!("faults that took effect: {fired:?}");
    // After the end of the faults, the cluster reaches the desired state.
    for at in 0..NODES {
        cluster.ask(cluster.wait_for_leader(), &["promote", &name(at), "--no-wait"]);
    }
    cluster.wait_until("all five vote", |c| (c.voters().len() == NODES).then_some(()));
    cluster.wait_until_settled();
}

/// Promotes or demotes one node, so that there are three to five managers. The change may be
/// unfinished when the fault happens.
fn churn(cluster: &Cluster, rng: &mut Rng) -> String {
    let status: serde_json::Value = cluster.wait_until("a status", |c| c.get(c.leader()?, "/v1/status").ok());
    let wanted = |at: &usize| {
        let node = status["nodes"].as_array().into_iter().flatten().find(|n| n["name"] == name(*at));
        node.is_some_and(|n| n["role"] == "manager")
    };
    let (managers, workers): (Vec<usize>, Vec<usize>) = (0..NODES).partition(wanted);
    let more = managers.len() <= 3 || (!workers.is_empty() && rng.up_to(2) == 0);
    let (verb, of) = if more { ("promote", workers) } else { ("demote", managers) };
    let who = name(of[rng.up_to(of.len())]);
    let out = cluster.ask(cluster.wait_for_leader(), &[verb, &who, "--no-wait"]);
    format!("{verb} {who} {}", if out.status.success() { "ordered" } else { "refused" })
}
