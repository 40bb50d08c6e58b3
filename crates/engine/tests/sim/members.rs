//! The simulation of membership: the real role manager and the real inventory, on a model of Raft.
//! The model contains everything on which membership depends: logs, elections, joint member lists
//! and deposed leaders.
//!
//! ```text
//!   seed ─> options ─> world (nodes, partitions, logs) ─> laws
//!        faults and operators ──┘   └── RoleManager::step, Inventory::apply
//! ```
//! This small world is separate from the main simulation, whose three managers never change. A run
//! first has faults, and then continues without faults until the desired state is reached.
//! `REMOOR_SEED=n` runs one seed. `REMOOR_SIM_SEEDS=n` runs n seeds.

mod driver;
mod faults;
mod laws;
mod manager_service;
mod options;
mod planted;
mod removal;
mod world;

use super::search::{self, Outcome, Search};
use options::Options;
use world::World;

/// Maximum number of seeds within which a planted bug must be found.
const SEEDS_TO_DETECTION: u64 = 1_000;
/// Events that must happen at least once in a search of the default length.
const FAULTS: [&str; 42] = [
    "a change for an older list is refused",
    "a change while one is in flight is refused",
    "a half change of another leader is finished",
    "a log is archived",
    "a member is not retired",
    "a node is removed",
    "a removed key is refused",
    "a removed node starts again",
    "all managers down",
    "another address",
    "burst of entries",
    "learner no longer desired",
    "host cut off",
    "host down",
    "hosts split in two groups",
    "joined again",
    "leader cut off",
    "leader died between the halves",
    "leader down",
    "leadership declined",
    "leadership handed over",
    "leadership not accepted",
    "log lost",
    "operator: a dead manager is demoted",
    "operator: a manager is removed",
    "operator: a worker is removed",
    "operator: a worker joins as a manager",
    "operator: burst of demotions",
    "operator: demote",
    "operator: demote and promote",
    "operator: promote",
    "operator: promote and demote",
    "operator: several demoted as one order",
    "operator: the leader is demoted",
    "removed after it had left Raft",
    "step sent twice",
    "step failed",
    "step late",
    "step lost",
    "step of a former leader",
    "follower takes few entries",
    "voters changed",
];

/// Runs one seed from beginning to end.
fn run(options: Options) -> Outcome {
    let (bad, fine) = (options.faults_ms, options.calm_ms);
    let mut world = World::new(options);
    world.run_until(bad);
    world.clear();
    let mut missing = None;
    let mut rest = 0;
    while world.outcome.broken.is_none() && rest < 5 && world.now < bad + fine {
        let next = world.now + 1_000;
        world.run_until(next);
        missing = world.unmet_condition();
        rest = if missing.is_none() && !world.comes_late() { rest + 1 } else { 0 };
    }
    if let Some(what) = missing {
        world.breaks("rest", || format!("{} s after the last fault, missing: {what}", fine / 1_000));
    }
    world.outcome
}

fn search() -> Search<impl Fn(u64, bool) -> Outcome + Sync> {
    let run = |seed, trace| run(Options { trace, ..Options::for_seed(seed) });
    Search { name: "sim::members", failed_once: &[18_950], faults: &FAULTS, faults_from: 1_000, rare: &[], run }
}

#[test]
fn seeds() {
    search().seeds();
}

#[test]
fn the_same_seed_gives_the_same_run() {
    search().check_reproducible();
}

/// Each law detects its planted bugs.
#[test]
fn planted_bugs_are_found() {
    let broken = |planted, seed| run(Options { planted: Some(planted), ..Options::for_seed(seed) }).broken;
    search::detects(&planted::ALL, SEEDS_TO_DETECTION, broken);
}
