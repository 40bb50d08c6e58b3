//! What the simulations have in common: many seeds on all processors, what a failing one leaves, and the search for a planted bug.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What one seed came to.
pub struct Outcome {
    /// The law that was broken first, a colon, and how.
    pub broken: Option<String>,
    pub fired: BTreeMap<&'static str, u64>,
    pub steps: u64,
    /// Empty where none was asked for.
    pub trace: Vec<String>,
}

/// What many seeds came to.
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

/// Seeds of one run, from 0 on, unless `REMOOR_SIM_SEEDS` sets another number. `make long-sim` runs 100,000.
pub const SEEDS: u64 = 1_000;

/// Seeds that have what is rare, too.
const RARE_FROM: u64 = 10_000;

/// A simulation: `run` tells the story of a seed, with its events if they are asked for.
pub struct Search<R> {
    /// Of its module, and of the file that a failing seed leaves.
    pub name: &'static str,
    /// Seeds that failed once and are above [`SEEDS`]; each run has them too.
    pub failed_once: &'static [u64],
    /// What must have happened, from how many seeds on.
    pub faults: &'static [&'static str],
    pub faults_from: u64,
    /// What must have happened from [`RARE_FROM`] seeds on, since fewer have it only by chance.
    pub rare: &'static [&'static str],
    pub run: R,
}

impl<R: Fn(u64, bool) -> Outcome + Sync> Search<R> {
    /// The seed that `REMOOR_SEED` names, or `REMOOR_SIM_SEEDS` many; fails with the first one that breaks a law.
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
        println!("{}: {count} seeds, {steps} steps of the engine, each fault so often: {fired:#?}", self.name);
        for (from, faults) in [(self.faults_from, self.faults), (RARE_FROM, self.rare)] {
            for fault in faults.iter().filter(|_| count >= from) {
                assert!(fired.contains_key(fault), "in {count} seeds there was no: {fault}");
            }
        }
    }

    /// The same seed again, with the events; printed and kept. Returns the text to fail with.
    fn report(&self, seed: u64) -> String {
        let outcome = (self.run)(seed, true);
        let broken = outcome.broken.unwrap_or_else(|| "it went well the second time: not deterministic".to_owned());
        let file = format!("{}-{seed}.json", self.name.replace("::", "-"));
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("target").join(&file);
        let kept = std::fs::write(&path, serde_json::to_string_pretty(&outcome.trace).unwrap_or_default());
        let events = outcome.trace.join("\n");
        let place = kept.map_or_else(|e| format!("not kept: {e}"), |()| format!("kept in target/{file}"));
        let again = format!("REMOOR_SEED={seed} cargo test --test it {}::seeds", self.name);
        format!("seed {seed}: {broken}\n{events}\n({place})\nagain: {again}")
    }

    /// The same seed is the same story, to the last event.
    pub fn same_story(&self) {
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

/// Each planted bug is found within so many seeds, by the very law that it breaks. No other one listens meanwhile, since an earlier
/// one might be broken first. The bugs are searched for side by side, one on each processor.
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
    assert!(unfound.is_empty(), "not found within {within} seeds: {unfound:#?}");
}
