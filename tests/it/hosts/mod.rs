//! Stories on real hosts (docs/design/scenarios.md, A and X), run on several fleets of five in
//! parallel. If this machine can't run the hosts, a message in capitals is printed and the stories
//! are skipped. With `REMOOR_LAB_REQUIRED` they fail.
//!
//! `make test` runs the stories of [`GATE`] and prints in capitals how many it omits.
//! `REMOOR_STORIES=all` runs all stories (`make long-hosts`). `REMOOR_STORY=A02,X1` runs the
//! stories whose names begin with A02 or X1. `REMOOR_FLEETS=1` uses one fleet, `REMOOR_LAB_NAME`
//! names the fleets, and `REMOOR_LONG=1` uses the durations of production. A failed story is
//! retried once, alone, unless `REMOOR_STRICT=1` is set (`retry_policy.rs`).

mod add;
mod announced;
mod drained;
mod fleets;
mod halves;
mod inverse;
mod leader;
mod limits;
mod links;
mod measured;
mod moved;
mod noise;
mod operator;
mod packages;
mod played;
mod power;
mod refusals;
mod retry_policy;
mod roles;
mod shipped;
mod steps;
mod stories;
mod undo;

/// The stories of `make test`, each with its mechanism. Each is the shortest story that uses its
/// mechanism. The simulation in `crates/engine/tests/sim` covers absences, budgets and leaders.
/// These stories show that remoor also works with real gossip, SSH, systemd and etcd.
const GATE: &[(&str, &str)] = &[
    ("A02 network loss and drift", "an absence and its cause, drift found by digest, one service set up again"),
    ("A02 a paused node", "a node paused by an operator: examined, reported, not changed"),
    (
        "A04 links from managers to a node are cut",
        "a node that the leader cannot reach by SSH: the leadership is handed over",
    ),
    ("A05 reboot, all enabled", "a reboot: no verdict before the host has settled"),
    ("A05 an announced reboot", "maintenance: a planned absence, repaired once the maintenance is over"),
    ("A07 the agent is killed", "an agent that died, distinguished from an absent host"),
    ("A08 the agent is stopped gracefully", "a node that left gracefully"),
    ("A11 a missing and an extra file", "missing files and extra files"),
    ("A12 service stopped, files intact", "drift that only a check finds"),
    ("A16 all managers down", "no manager: the quorum returns, and an absence begins when the node was last seen"),
    ("A17c leader killed in provision", "a leader that dies during a job: fence, lock, next attempt"),
    ("A20 update while away", "a new generation: outdated, queued, applied once on return"),
    ("A21 decommissioned while away", "a node is taken out of service, and put back"),
    ("A22 cleanup fails", "retries, a job that is held, `resume`"),
    ("A22 an attempt is undone", "file copies of an attempt, `undo`"),
    ("A23 another host key", "host keys: no login before an operator trusts the new key"),
    ("A23 an impostor", "gossip without the signature of the node that it names"),
    ("A24 a check hangs", "a check that times out: the verdict is unknown, and nothing is set up"),
    ("A25b leader and target cut from the rest", "a minority with the old leader makes no decision and runs no job"),
    ("X3 refused commands change nothing", "rejected orders change nothing"),
    ("X1 drift without absence", "drift reported by the agent of a node that was never absent"),
];

/// Tests with separate hosts that `make test` omits, by their names for
/// [`retry_policy::run_with_retry`]. The test X3 in `refusals.rs` tries each invalid order in each
/// state of a node. The simulation checks the same with each seed (invariant I12 of
/// docs/design/invariants.md). [`GATE`] contains a story, also named X3, which checks some orders
/// on real hosts.
const LEFT_OUT: &[&str] = &["X3 refused orders"];

/// The longest stories with their durations, in seconds, on a machine without other work. They run
/// first, because at the end they would occupy one fleet while the others are idle.
const LONGEST: &[(&str, u32)] = &[
    ("A19", 300),
    ("A25a", 90),
    ("G1", 80),
    ("G2", 70),
    ("A10", 230),
    ("A04", 60),
    ("A25c", 46),
    ("A18", 44),
    ("A01", 38),
    ("A25b", 34),
    ("A16", 33),
    ("A21 a drained", 40),
    ("A21", 33),
    ("A05 an announced", 30),
    ("A22", 28),
    ("A20 update", 27),
    ("A24", 27),
    ("shipped", 27),
    ("A06", 25),
    ("A03", 22),
];
/// The assumed duration of a story that is not in [`LONGEST`], in seconds.
const OTHERS: u32 = 12;

/// Runs all stories. Tests start in the order of their names. This name sorts before those of the
/// other tests on real hosts. So this long test starts first, and the shorter ones run at the same
/// time.
#[test]
fn absences_and_orders_on_real_hosts() -> Result<(), fleets::Failed> {
    if fleets::hosts_missing() {
        return Ok(());
    }
    let name = std::env::var("REMOOR_LAB_NAME").unwrap_or_else(|_| "it".into());
    let mut chosen = every_story();
    if let Ok(only) = std::env::var("REMOOR_STORY") {
        chosen.retain(|(name, _)| only.split(',').any(|one| name.starts_with(one)));
    } else if !runs_all_stories() {
        chosen.retain(|(name, _)| GATE.iter().any(|(of_the_gate, _)| of_the_gate == name));
    }
    let seconds = |name: &str| LONGEST.iter().find(|(begins, _)| name.starts_with(begins)).map_or(OTHERS, |(_, s)| *s);
    chosen.sort_by_key(|(name, _)| std::cmp::Reverse(seconds(name)));
    let left_out = left_out(&chosen);
    let result = fleets::run_stories(&name, chosen);
    left_out.iter().for_each(|line| eprintln!("{line}"));
    result
}

/// Whether `REMOOR_STORIES=all` also selects the stories that are not in [`GATE`].
fn runs_all_stories() -> bool {
    std::env::var("REMOOR_STORIES").is_ok_and(|value| value == "all")
}

/// Whether this run omits a test with separate hosts. If it does, a message in capitals is printed.
fn left_out_of_the_gate(name: &str) -> bool {
    let left_out = LEFT_OUT.contains(&name) && !runs_all_stories();
    if left_out {
        eprintln!("NOT RUN HERE: {name}; next: make long-hosts");
    }
    left_out
}

/// A message that lists the stories that this run omits. None: all stories run.
fn left_out(chosen: &[stories::Story]) -> Option<String> {
    let every = every_story();
    let rest: Vec<&str> =
        every.iter().map(|(name, _)| *name).filter(|name| chosen.iter().all(|(run, _)| run != name)).collect();
    let (count, all) = (rest.len(), every.len());
    (count > 0).then(|| {
        format!("NOT RUN HERE: {count} OF {all} STORIES ON REAL HOSTS; next: make long-hosts: {}", rest.join("; "))
    })
}

fn every_story() -> Vec<stories::Story> {
    [
        stories::ALL,
        leader::ALL,
        operator::ALL,
        noise::ALL,
        roles::ALL,
        limits::ALL,
        power::ALL,
        undo::ALL,
        halves::ALL,
        links::ALL,
        moved::ALL,
        announced::ALL,
        shipped::ALL,
        measured::ALL,
        inverse::ALL,
        drained::ALL,
    ]
    .concat()
}

#[test]
fn the_stories_of_the_gate_are_among_all_stories_and_the_others_are_named() {
    let every = every_story();
    for (name, mechanism) in GATE {
        assert_eq!(every.iter().filter(|(story, _)| story == name).count(), 1, "{name}");
        assert!(!mechanism.is_empty(), "{name}");
    }
    assert_eq!(left_out(&every), None);
    let but_one = left_out(&every[1..]).expect("one is left out");
    let (first, all) = (every[0].0, every.len());
    assert_eq!(but_one, format!("NOT RUN HERE: 1 OF {all} STORIES ON REAL HOSTS; next: make long-hosts: {first}"));
}
