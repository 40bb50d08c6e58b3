//! Common code of the simulations. It runs many seeds on all processors, reports a failed seed, and
//! searches for planted bugs.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Debug;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Maximum number of events in the report of a failed seed. Only the last events are stored.
const TRACE_MAX: usize = 80;

/// The result of one seed. The simulation fills in the fields while it runs.
#[derive(Default)]
pub struct Outcome {
    /// The first broken law, a colon, and a description of the violation.
    pub broken: Option<String>,
    pub fired: BTreeMap<&'static str, u64>,
    pub steps: u64,
    /// The last events. Empty if the run does not record events.
    pub trace: VecDeque<String>,
}

impl Outcome {
    pub fn fire(&mut self, fault: &'static str) {
        *self.fired.entry(fault).or_default() += 1;
    }

    pub fn note(&mut self, event: String) {
        if self.trace.len() == TRACE_MAX {
            self.trace.pop_front();
        }
        self.trace.push_back(event);
    }

    /// The last events, one in each line.
    pub fn events(&self) -> String {
        self.trace.iter().map(String::as_str).collect::<Vec<_>>().join(
            "
",
        )
    }
}

/// The sum of the results of many seeds.
#[derive(Default)]
struct Tally {
    broken: BTreeMap<u64, String>,
    fired: BTreeMap<&'static str, u64>,
    steps: u64,
}

impl Tally {
    fn add(&mut self, seed: u64, outcome: Outcome) {
        self.broken.extend(outcome.broken.map(|why| (seed, why)));
        self.steps += outcome.steps;
        outcome.fired.into_iter().for_each(|(fault, n)| *self.fired.entry(fault).or_default() += n);
    }

    fn merge(mut self, other: Self) -> Self {
        self.broken.extend(other.broken);
        self.steps += other.steps;
        other.fired.into_iter().for_each(|(fault, n)| *self.fired.entry(fault).or_default() += n);
        self
    }
}

pub fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

/// The default number of seeds; the first seed is 0. `REMOOR_SIM_SEEDS` overrides this number;
/// `make long-sim` sets it to 100,000.
pub const SEEDS: u64 = 1_000;

/// Minimum number of seeds with which even rare events must happen.
const RARE_FROM: u64 = 10_000;

/// A simulation. `run` runs one seed, and records its events if the second argument is true.
pub struct Search<R> {
    /// The path of the simulation's module below `sim`. A failed seed is written to a file with
    /// this name.
    pub name: &'static str,
    /// Seeds above [`SEEDS`] that failed in the past. Each run includes them.
    pub failed_once: &'static [u64],
    /// Events that must have happened if at least `faults_from` seeds were run.
    pub faults: &'static [&'static str],
    pub faults_from: u64,
    /// Events that must have happened if at least [`RARE_FROM`] seeds were run. With fewer seeds
    /// they happen only by chance.
    pub rare: &'static [&'static str],
    pub run: R,
}

impl<R: Fn(u64, bool) -> Outcome + Sync> Search<R> {
    /// Runs the seed `REMOOR_SEED`, or `REMOOR_SIM_SEEDS` seeds. If a seed breaks a law, fails with
    /// the report of the first such seed.
    pub fn seeds(&self) {
        if let Some(seed) = number("REMOOR_SEED") {
            assert!((self.run)(seed, false).broken.is_none(), "{}", self.report(seed));
            return;
        }
        let first = number("REMOOR_SIM_SEEDS").unwrap_or(SEEDS);
        let seeds: Vec<u64> =
            (0..first).chain(self.failed_once.iter().copied().filter(|seed| *seed >= first)).collect();
        let (count, workers) = (seeds.len() as u64, workers());
        let parts: Vec<Tally> = std::thread::scope(|scope| {
            let part = |worker: usize| {
                let mut tally = Tally::default();
                for seed in seeds.iter().skip(worker).step_by(workers) {
                    tally.add(*seed, (self.run)(*seed, false));
                }
                tally
            };
            let handles: Vec<_> = (0..workers).map(|w| scope.spawn(move || part(w))).collect();
            handles.into_iter().map(|h| h.join().expect("a worker of the simulation panicked")).collect()
        });
        let Tally { broken, fired, steps } = parts.into_iter().fold(Tally::default(), Tally::merge);
        if let Some((first, _)) = broken.first_key_value() {
            let others: Vec<String> = broken.iter().take(30).map(|(seed, why)| format!("{seed}: {why}")).collect();
            panic!("{} of {count} seeds fail:\n{}\n{}", broken.len(), others.join("\n"), self.report(*first));
        }
        println!("{}: {count} seeds, {steps} steps of the engine, number of each fault: {fired:#?}", self.name);
        for (from, faults) in [(self.faults_from, self.faults), (RARE_FROM, self.rare)] {
            for fault in faults.iter().filter(|_| count >= from) {
                assert!(fired.contains_key(fault), "did not happen in {count} seeds: {fault}");
            }
        }
    }

    /// Runs the seed again with its events and writes them to a file. Returns the failure message.
    fn report(&self, seed: u64) -> String {
        let outcome = (self.run)(seed, true);
        let broken = outcome
            .broken
            .as_deref()
            .unwrap_or("the seed passed the second time, so the simulation is not deterministic");
        let file = format!("{}-{seed}.json", self.name.replace("::", "-"));
        let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(&file);
        let kept = std::fs::write(&path, serde_json::to_string_pretty(&outcome.trace).unwrap_or_default());
        let events = outcome.events();
        let place =
            kept.map_or_else(|e| format!("could not be written: {e}"), |()| format!("are in {}", path.display()));
        let again =
            format!("REMOOR_SEED={seed} cargo test -p remoor-engine --test sim {} -- --exact", self.test_name());
        format!("seed {seed}: {broken}\n{events}\n(the events {place})\nnext: {again}")
    }

    /// The path of the test in this binary: `seeds` for `sim`, `members::seeds` for `sim::members`.
    fn test_name(&self) -> String {
        self.name.strip_prefix("sim::").map_or_else(|| "seeds".to_owned(), |module| format!("{module}::seeds"))
    }

    /// Checks that the same seed gives the same events.
    pub fn check_reproducible(&self) {
        for seed in [3, 1_000, 77_777] {
            let (one, two) = ((self.run)(seed, true), (self.run)(seed, true));
            assert_eq!((one.trace, one.steps), (two.trace, two.steps));
            assert!(one.steps > 0);
        }
    }
}

fn workers() -> usize {
    std::thread::available_parallelism().map_or(2, usize::from)
}

/// Checks that each planted bug is found within this number of seeds by the law of the bug. All
/// other laws are ignored, because another law might be broken first. Each processor searches for
/// one bug at a time.
pub fn detects<P: Copy + Debug + Sync>(
    all: &[(P, &str)],
    within: u64,
    broken: impl Fn(P, u64) -> Option<String> + Sync,
) {
    let (next, unfound) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let search = || {
        while let Some((planted, law)) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
            let of_the_law = |why: &String| why.starts_with(&format!("{law}:"));
            match (0..within).find_map(|seed| Some((seed, broken(*planted, seed).filter(of_the_law)?))) {
                Some((seed, broken)) => println!("{planted:?}: found after {} seeds: {broken}", seed + 1),
                None => unfound.lock().expect("no search panics").push(format!("{planted:?}, which breaks {law}")),
            }
        }
    };
    std::thread::scope(|scope| (0..workers()).for_each(|_| drop(scope.spawn(search))));
    let unfound = unfound.into_inner().expect("no search panics");
    assert!(unfound.is_empty(), "planted bugs that were not found within {within} seeds: {unfound:#?}");
}
