//! What the simulations have in common: many seeds on all processors, what a failing one leaves, and the search for a planted bug.

use std::collections::BTreeMap;
use std::fmt::Debug;

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

    fn with(mut self, other: Self) -> Self {
        self.broken.extend(other.broken);
        self.steps += other.steps;
        other.fired.into_iter().for_each(|(fault, n)| *self.fired.entry(fault).or_default() += n);
        self
    }
}

pub fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

/// A simulation: `run` tells the story of a seed, with its events if they are asked for.
pub struct Search<R> {
    /// Of its module, and of the file that a failing seed leaves.
    pub name: &'static str,
    /// How many, unless `REMOOR_SIM_SEEDS` says it.
    pub seeds: u64,
    /// What must have happened, from how many seeds on.
    pub faults: &'static [&'static str],
    pub faults_from: u64,
    pub run: R,
}

impl<R: Fn(u64, bool) -> Outcome + Sync> Search<R> {
    /// The seed that `REMOOR_SEED` names, or `REMOOR_SIM_SEEDS` many; fails with the first one that breaks a law.
    pub fn seeds(&self) {
        if let Some(seed) = number("REMOOR_SEED") {
            assert!((self.run)(seed, false).broken.is_none(), "{}", self.report(seed));
            return;
        }
        let count = number("REMOOR_SIM_SEEDS").unwrap_or(self.seeds);
        let workers = std::thread::available_parallelism().map_or(2, |n| n.get() as u64);
        let parts: Vec<Tally> = std::thread::scope(|scope| {
            let part = |worker: u64| {
                let mut tally = Tally::default();
                for seed in (worker..count).step_by(workers as usize) {
                    tally.add(seed, (self.run)(seed, false));
                }
                tally
            };
            let handles: Vec<_> = (0..workers).map(|w| scope.spawn(move || part(w))).collect();
            handles.into_iter().map(|h| h.join().expect("a worker of the simulation panicked")).collect()
        });
        let Tally { broken, fired, steps } = parts.into_iter().fold(Tally::default(), Tally::with);
        if let Some((first, _)) = broken.first_key_value() {
            let others: Vec<String> = broken.iter().take(30).map(|(seed, why)| format!("{seed}: {why}")).collect();
            panic!("{} of {count} seeds fail:\n{}\n{}", broken.len(), others.join("\n"), self.report(*first));
        }
        println!("{}: {count} seeds, {steps} steps of the engine, each fault so often: {fired:#?}", self.name);
        if count >= self.faults_from {
            for fault in self.faults {
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

/// Each planted bug is found within so many seeds, by the very law that it breaks. No other one listens meanwhile, since an earlier
/// one might be broken first.
pub fn detects<P: Copy + Debug>(all: &[(P, &str)], within: u64, broken: impl Fn(P, u64) -> Option<String>) {
    for (planted, law) in all {
        let of_the_law = |why: &String| why.starts_with(&format!("{law}:"));
        let found = (0..within).find_map(|seed| Some((seed, broken(*planted, seed).filter(of_the_law)?)));
        let Some((seed, broken)) = found else {
            panic!("{planted:?} breaks {law}, and was not found within {within} seeds");
        };
        println!("{planted:?}: found after {} seeds: {broken}", seed + 1);
    }
}
