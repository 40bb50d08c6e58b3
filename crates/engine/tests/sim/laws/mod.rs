//! The invariants I1 to I16, one file each. Each law receives every fact of the world and reports a
//! violation. The laws keep their own records, because the records of the inventory may be wrong.

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
mod i14_reachability;
mod i15_scoped_jobs;
mod i16_monitor_only;

use super::world::World;
use remoor_engine::{EngineEvent, ExamOutcome};
use remoor_model::*;

pub enum Fact<'a> {
    /// An entry was committed. `World::state` is the state after it.
    Applied {
        entry: &'a InventoryEntry,
        applied: &'a Applied,
        before: &'a Inventory,
    },
    /// A leader receives an event, before a planted bug changes it.
    Told {
        term: u64,
        event: &'a EngineEvent,
    },
    /// A leader on this host proposes this entry.
    Proposed {
        term: u64,
        host: usize,
        command: &'a Command,
    },
    /// A leader transfers the leadership because of a node that it does not reach.
    HandsOver {
        term: u64,
    },
    /// A leader orders a phase. If the leader lags behind the log, `view` is the state that it
    /// knows.
    Ordered {
        job: JobId,
        attempt: AttemptId,
        phase: Phase,
        node: NodeId,
        view: Option<&'a Inventory>,
        current: bool,
    },
    /// The real result of an examination, before a planted bug changes it.
    Examined {
        node: NodeId,
        outcome: &'a ExamOutcome,
    },
    Began {
        host: usize,
        attempt: AttemptId,
        phase: Phase,
    },
    /// A run changes something on its host, or reads something there.
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
    /// One second has passed.
    Second,
    /// The simulation has ended, and no work is open in the world.
    Over,
}

pub trait Law {
    fn name(&self) -> &'static str;
    fn check(&mut self, world: &World, fact: &Fact) -> Result<(), String>;
}

#[derive(Default)]
pub struct Laws(Vec<Box<dyn Law>>);

impl Laws {
    pub fn create_all() -> Self {
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
            Box::<i14_reachability::LeaderReach>::default(),
            Box::<i15_scoped_jobs::JobServices>::default(),
            Box::new(i16_monitor_only::MonitorOnly),
        ])
    }

    /// Removes all laws except the one with this name. The search for a planted bug needs this,
    /// because the bug may break another law first.
    pub fn keep_only(mut self, name: &str) -> Self {
        self.0.retain(|law| law.name() == name);
        self
    }

    pub fn check(&mut self, world: &World, fact: &Fact) -> Result<(), String> {
        self.0.iter_mut().try_for_each(|law| law.check(world, fact).map_err(|why| format!("{}: {why}", law.name())))
    }
}
