//! The invariants I1 to I16, one file each. Each hears every fact of the world and says when it is broken. They keep
//! their own books: what the inventory says of itself proves nothing.

mod i01_committed;
mod i02_one_run;
mod i03_clean_first;
mod i04_late_runs;
mod i05_rejoin;
mod i06_membership;
mod i07_budgets;
mod i08_decommissioned;
mod i09_unknown;
mod i11_one_verdict;
mod i12_refusals;
mod i13_windows;
mod i14_roads;
mod i15_parts;
mod i16_watched;

use super::world::World;
use remoor::engine::{Event, ExamOutcome};
use remoor::model::*;

pub enum Fact<'a> {
    /// An entry was committed; what it made stands in `World::state`.
    Applied {
        entry: &'a Entry,
        applied: &'a Applied,
        before: &'a Inventory,
    },
    /// A leader is told something, before anything planted comes between.
    Told {
        term: u64,
        event: &'a Event,
    },
    /// A leader on this host wants this entry.
    Proposed {
        term: u64,
        host: usize,
        command: &'a Command,
    },
    /// A leader passes the leadership on because of a node that it does not reach.
    HandsOver {
        term: u64,
    },
    /// A leader asks for a phase. `view`: what it knows, where it lags.
    Ordered {
        job: JobId,
        attempt: AttemptId,
        phase: Phase,
        node: NodeId,
        view: Option<&'a Inventory>,
        current: bool,
    },
    /// What an examination really found, before anybody judged it.
    Examined {
        node: NodeId,
        outcome: &'a ExamOutcome,
    },
    Began {
        host: usize,
        attempt: AttemptId,
        phase: Phase,
    },
    /// A run changes something on its host, or looks at it.
    Touches {
        host: usize,
        attempt: AttemptId,
        phase: Phase,
    },
    Ended {
        host: usize,
        attempt: AttemptId,
        phase: Phase,
        well: bool,
    },
    /// A second of the fine weather or of the bad.
    Second,
    /// The run is over, and the world at rest.
    Over,
}

pub trait Law {
    fn name(&self) -> &'static str;
    fn hear(&mut self, world: &World, fact: &Fact) -> Result<(), String>;
}

#[derive(Default)]
pub struct Laws(Vec<Box<dyn Law>>);

impl Laws {
    pub fn all() -> Self {
        Self(vec![
            Box::<i01_committed::Committed>::default(),
            Box::new(i02_one_run::OneRun),
            Box::<i03_clean_first::CleanFirst>::default(),
            Box::<i04_late_runs::LateRuns>::default(),
            Box::<i05_rejoin::Rejoin>::default(),
            Box::new(i06_membership::Membership),
            Box::<i07_budgets::Budgets>::default(),
            Box::<i08_decommissioned::Decommissioned>::default(),
            Box::<i09_unknown::Unknown>::default(),
            Box::<i11_one_verdict::OneVerdict>::default(),
            Box::new(i12_refusals::Refusals),
            Box::new(i13_windows::InWindow),
            Box::<i14_roads::Roads>::default(),
            Box::<i15_parts::Parts>::default(),
            Box::new(i16_watched::Watched),
        ])
    }

    /// That one alone: a planted bug may break others before.
    pub fn only(mut self, name: &str) -> Self {
        self.0.retain(|law| law.name() == name);
        self
    }

    pub fn hear(&mut self, world: &World, fact: &Fact) -> Result<(), String> {
        self.0.iter_mut().try_for_each(|law| law.hear(world, fact).map_err(|why| format!("{}: {why}", law.name())))
    }
}
