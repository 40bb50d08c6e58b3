//! Scenarios on real hosts (SCENARIOS, A and X), told on several fleets of five at once. Skipped, loudly, where no hosts
//! can be had; a failure where `REMOOR_LAB_REQUIRED` is set.
//!
//! `make test` tells the stories of [`GATE`], and says in capitals how many it leaves out. `REMOOR_STORIES=all` tells all of
//! them (`make long-hosts`), and `REMOOR_STORY=A02,X1` tells those whose names begin so. `REMOOR_FLEETS=1` uses one fleet,
//! `REMOOR_LAB_NAME` names the fleets, and `REMOOR_LONG=1` gives them the durations of production. One that fails is told once
//! more, alone, unless `REMOOR_STRICT=1` is set (`chance.rs`).

mod add;
mod announced;
mod drained;
mod fleets;
mod halves;
mod inverse;
mod leader;
mod limits;
mod links;
mod moved;
mod noise;
mod operator;
mod played;
mod power;
mod refusals;
mod retry_policy;
mod roles;
mod shipped;
mod steps;
mod stories;
mod undo;

/// The stories of `make test`: each mechanism once, by the shortest story that has it, and what that mechanism is. Absences, budgets,
/// leaders and laws are simulated with every change; here they are to work with real gossip, SSH, systemd and etcd.
const GATE: &[(&str, &str)] = &[
    ("A02 network loss and drift", "an absence and its cause, drift found by digest, one service set up again"),
    ("A02 a paused node", "an operator's pause: looked at, reported, left as it is"),
    (
        "A04 links from managers to a node are cut",
        "a node that the leader can't reach by SSH: the leadership is handed over",
    ),
    ("A05 reboot, all enabled", "a reboot: nothing is concluded before the host has settled"),
    ("A05 an announced reboot", "maintenance: a planned absence, repaired once the maintenance is over"),
    ("A07 the agent is killed", "an agent that died, told from a host that was away"),
    ("A08 the agent is stopped gracefully", "a node that left in order"),
    ("A11 a missing and an extra file", "files that are missing and files that are too many"),
    ("A12 service stopped, files intact", "drift that only a check finds"),
    (
        "A16 all managers down",
        "no manager: the quorum comes back, and absences are dated from when a node was seen last",
    ),
    ("A17c leader killed in provision", "a leader that dies in a job: the fence, the lock, the next attempt"),
    ("A20 update while away", "a new generation: outdated, queued, applied once on return"),
    ("A21 decommissioned while away", "a node is taken out of service, and put back"),
    ("A22 cleanup fails", "retries, a job that is held, `resume`"),
    ("A22 an attempt is undone", "copies of an attempt, `undo`"),
    ("A23 another host key", "host keys: nobody logs in before an operator trusts the new one"),
    ("A23 an impostor", "gossip that nobody has signed as the node that it names"),
    ("A24 a check hangs", "a check that runs out of time: unknown, and nothing is set up"),
    ("A25b leader and target cut from the rest", "a minority with the old leader decides and runs nothing"),
    ("X3 refused commands change nothing", "orders that are refused leave no trace"),
    ("X1 drift without absence", "drift that an agent reports of a node that was never away"),
];

/// Tests with hosts of their own that `make test` leaves out, by the names that they have at [`chance::told`]. X3 has each order that is
/// refused, from each state of a node: law I12 of the simulation judges that with each seed, and a story of the gate (X3)
/// has it on real hosts.
const LEFT_OUT: &[&str] = &["X3 refused orders"];

/// The longest, told first: one that comes last would keep one fleet busy and the others idle. Seconds on a quiet machine.
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
/// Of one that is not in the list.
const OTHERS: u32 = 12;

/// First by its name among the tests on real hosts, so that it runs from the beginning beside all the others.
#[test]
fn absences_and_orders_on_real_hosts() -> Result<(), fleets::Failed> {
    if fleets::hosts_missing() {
        return Ok(());
    }
    let name = std::env::var("REMOOR_LAB_NAME").unwrap_or_else(|_| "it".into());
    let mut chosen = every_story();
    if let Ok(only) = std::env::var("REMOOR_STORY") {
        chosen.retain(|(name, _)| only.split(',').any(|one| name.starts_with(one)));
    } else if !all_are_told() {
        chosen.retain(|(name, _)| GATE.iter().any(|(of_the_gate, _)| of_the_gate == name));
    }
    let seconds = |name: &str| LONGEST.iter().find(|(begins, _)| name.starts_with(begins)).map_or(OTHERS, |(_, s)| *s);
    chosen.sort_by_key(|(name, _)| std::cmp::Reverse(seconds(name)));
    let left_out = left_out(&chosen);
    let told = fleets::tell(&name, chosen);
    left_out.iter().for_each(|line| eprintln!("{line}"));
    told
}

/// `REMOOR_STORIES=all`: also what [`GATE`] does not have.
fn all_are_told() -> bool {
    std::env::var("REMOOR_STORIES").is_ok_and(|value| value == "all")
}

/// Whether a test with hosts of its own is left out of this run, which is said in capitals.
fn left_out_of_the_gate(name: &str) -> bool {
    let left_out = LEFT_OUT.contains(&name) && !all_are_told();
    if left_out {
        eprintln!("NOT RUN HERE: {name}; next: make long-hosts");
    }
    left_out
}

/// How many stories are not told in this run, and which.
fn left_out(chosen: &[stories::Story]) -> Option<String> {
    let every = every_story();
    let rest: Vec<&str> =
        every.iter().map(|(name, _)| *name).filter(|name| chosen.iter().all(|(told, _)| told != name)).collect();
    let (count, all) = (rest.len(), every.len());
    (count > 0).then(|| {
        format!("NOT TOLD HERE: {count} OF {all} STORIES ON REAL HOSTS; next: make long-hosts: {}", rest.join("; "))
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
    assert_eq!(but_one, format!("NOT TOLD HERE: 1 OF {all} STORIES ON REAL HOSTS; next: make long-hosts: {first}"));
}
