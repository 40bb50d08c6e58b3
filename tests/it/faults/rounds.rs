//! Round after round on one cluster: clients at work, one fault, roles that change meanwhile; then all is mended and compared.

use super::clients::Registers;
use super::cluster::{Cluster, NODES, name};
use super::fault::{self, Fault};
use super::{Rng, namespaces_missing, one_at_a_time};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Without `REMOOR_FAULT_SEED`: the same in each run.
const SEED: u64 = 1;
/// A fault may be prevented by what happens beside it, such as a change of roles; not so often in a row.
const TRIES: usize = 3;

#[test]
fn nothing_acknowledged_is_lost_whatever_breaks() {
    if namespaces_missing() {
        return;
    }
    let _alone = one_at_a_time();
    let told = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    let seed = told("REMOOR_FAULT_SEED").unwrap_or(SEED);
    let asked = told("REMOOR_FAULT_ROUNDS").map(|rounds| rounds as usize);
    let rounds = asked.unwrap_or(fault::GATE.len());
    let faults: &[Fault] = if asked.is_some() { &fault::ALL } else { &fault::GATE };
    match asked {
        Some(rounds) => eprintln!("again: REMOOR_FAULT_SEED={seed} REMOOR_FAULT_ROUNDS={rounds}"),
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
        let proof = proof.unwrap_or_else(|| panic!("round {round}: {fault:?} did not fire"));
        *fired.entry(fault).or_default() += 1;
        let before = registers.acknowledged_writes();
        cluster.until("a write after it all", |_| (registers.acknowledged_writes() > before + 5).then_some(()));
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
    eprintln!("each proven to have fired: {fired:?}");
    // What is desired comes about once nothing breaks any more.
    for at in 0..NODES {
        cluster.ask(cluster.wait_for_leader(), &["promote", &name(at), "--no-wait"]);
    }
    cluster.until("all five vote", |c| (c.voters().len() == NODES).then_some(()));
    cluster.wait_until_settled();
}

/// One manager more or less, of three to five; it need not be done when the fault comes.
fn churn(cluster: &Cluster, rng: &mut Rng) -> String {
    let status: serde_json::Value = cluster.until("a status", |c| c.get(c.leader()?, "/v1/status").ok());
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
