//! The recap of one host. As in Ansible, tasks are counted and not items. A changed task counts as
//! `ok` too, and so does an ignored failure.

use serde::{Deserialize, Serialize};

/// The counts of one host in the recap.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recap {
    pub ok: u32,
    pub changed: u32,
    pub unreachable: u32,
    pub failed: u32,
    pub skipped: u32,
    pub rescued: u32,
    pub ignored: u32,
    /// Tasks whose effect is unknown or could not be predicted.
    pub unknown: u32,
}

/// The result of one item of a task. The result of a task is the highest result of its items.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Weight {
    Skipped,
    Ok,
    Changed,
    /// In check mode, the task was not run (`would-run`). Only the end of the run says whether it
    /// would change anything.
    NotRun,
    Unknown,
    Ignored,
    Failed,
}

/// One result of a task or of one of its items.
#[derive(Debug, Clone, Copy)]
pub struct Counted<'a> {
    /// The number of the task in the plan, the number of tasks that the run had started, and
    /// whether the task is a handler.
    pub task: (u32, u32, bool),
    pub item: bool,
    /// Whether the task is an include. Each item of an include is counted; for other tasks the task
    /// is counted.
    pub include: bool,
    /// Whether a task whose failure was ignored has changed something nevertheless.
    pub changed: bool,
    pub status: &'a str,
}

/// A task of which the results of items are still arriving.
#[derive(Debug, Clone, Copy)]
struct Open {
    task: (u32, u32, bool),
    weight: Weight,
    changed: bool,
    times: u32,
}

/// Counts the results of tasks during the run on one host.
#[derive(Debug, Default)]
pub struct RecapCounter {
    recap: Recap,
    /// Number of failed tasks. A rescue may follow each of them.
    failures: u32,
    /// Number of tasks whose result is known only at the end of the run. The next two fields count
    /// the items whose result is known earlier.
    not_run: u32,
    changed_items: u32,
    unknown_items: u32,
    open: Option<Open>,
}

impl RecapCounter {
    pub fn count(&mut self, one: &Counted) {
        let (weight, changed) = match one.status {
            "skipped" => (Weight::Skipped, false),
            "ok" => (Weight::Ok, false),
            "changed" => (Weight::Changed, true),
            "would-run" => (Weight::NotRun, false),
            "failed" => (Weight::Failed, false),
            "ignored" => (Weight::Ignored, one.changed),
            _ => (Weight::Unknown, false),
        };
        self.changed_items += u32::from(changed);
        self.unknown_items += u32::from(weight == Weight::Unknown);
        match &mut self.open {
            // Items of one task arrive consecutively.
            Some(open) if one.item && open.task == one.task => {
                open.times += u32::from(one.include && weight == Weight::Ok && open.weight == Weight::Ok);
                open.weight = open.weight.max(weight);
                open.changed |= changed;
            }
            _ => {
                self.close();
                self.open = Some(Open { task: one.task, weight, changed, times: 1 });
                if !one.item {
                    self.close();
                }
            }
        }
    }

    fn close(&mut self) {
        let Some(open) = self.open.take() else { return };
        let recap = &mut self.recap;
        match open.weight {
            Weight::Skipped => recap.skipped += 1,
            Weight::Failed => self.failures += 1,
            Weight::Unknown => recap.unknown += 1,
            Weight::NotRun => self.not_run += 1,
            Weight::Ok | Weight::Changed | Weight::Ignored => {
                recap.ok += open.times;
                recap.changed += u32::from(open.changed);
                recap.ignored += u32::from(open.weight == Weight::Ignored);
            }
        }
    }

    /// The recap so far. With `failed`, a failure ended the run, so the last failure was not
    /// rescued. `changed` and `unknown` are the numbers of items that the end of the run reports.
    pub fn recap(&mut self, failed: bool, changed: u32, unknown: u32) -> Recap {
        self.close();
        let mut recap = self.recap;
        let would_change = self.not_run.min(changed.saturating_sub(self.changed_items));
        let would_what = (self.not_run - would_change).min(unknown.saturating_sub(self.unknown_items));
        recap.changed += would_change;
        recap.unknown += would_what;
        recap.ok += self.not_run - would_what;
        recap.failed = u32::from(failed);
        recap.rescued = self.failures.saturating_sub(recap.failed);
        recap
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recap_after(failed: bool, events: &[(u32, bool, &str)]) -> Recap {
        recap_at_end(failed, events, (0, 0))
    }

    fn recap_at_end(failed: bool, events: &[(u32, bool, &str)], (changed, unknown): (u32, u32)) -> Recap {
        let mut tally = RecapCounter::default();
        for (i, item, status) in events {
            tally.count(&Counted { task: (*i, *i, false), item: *item, include: false, changed: false, status });
        }
        tally.recap(failed, changed, unknown)
    }

    #[test]
    fn turns_are_told_apart_and_each_item_of_an_include_counts() {
        let mut tally = RecapCounter::default();
        let one =
            |turn, include, status| Counted { task: (1, turn, false), item: true, include, changed: true, status };
        for (turn, include, status) in [
            (1, true, "ok"),
            (1, true, "skipped"),
            (1, true, "ok"),
            (2, false, "changed"),
            (2, false, "ok"),
            (3, false, "ignored"),
            (4, true, "skipped"),
        ] {
            tally.count(&one(turn, include, status));
        }
        let want = Recap { ok: 4, changed: 2, ignored: 1, skipped: 1, ..Recap::default() };
        assert_eq!(tally.recap(false, 2, 0), want);
    }

    #[test]
    fn tasks_are_counted_and_not_their_items() {
        let none = Recap::default();
        for (failed, events, want) in [
            (false, &[(1, false, "ok"), (2, false, "changed")][..], Recap { ok: 2, changed: 1, ..none }),
            (
                false,
                &[(1, true, "ok"), (1, true, "changed"), (1, true, "skipped")],
                Recap { ok: 1, changed: 1, ..none },
            ),
            (false, &[(1, true, "skipped"), (1, true, "skipped")], Recap { skipped: 1, ..none }),
            // A file is included twice, so the same task runs twice.
            (false, &[(1, false, "ok"), (1, false, "ok")], Recap { ok: 2, ..none }),
            (false, &[(1, false, "ignored")], Recap { ok: 1, ignored: 1, ..none }),
            (false, &[(1, false, "failed"), (2, false, "ok")], Recap { ok: 1, rescued: 1, ..none }),
            (true, &[(1, true, "failed"), (1, true, "ok")], Recap { failed: 1, ..none }),
            (true, &[(1, false, "failed"), (2, false, "failed")], Recap { failed: 1, rescued: 1, ..none }),
            (true, &[], Recap { failed: 1, ..none }),
        ] {
            assert_eq!(recap_after(failed, events), want, "{events:?}");
        }
    }

    #[test]
    fn of_what_a_check_did_not_run_the_end_says_what_it_would_do() {
        let none = Recap::default();
        let events = [(1, false, "changed"), (2, true, "would-run"), (2, true, "would-run"), (3, false, "would-run")];
        for (items, want) in [
            ((1, 0), Recap { ok: 3, changed: 1, ..none }),
            ((3, 0), Recap { ok: 3, changed: 3, ..none }),
            ((1, 3), Recap { ok: 1, changed: 1, unknown: 2, ..none }),
            ((2, 1), Recap { ok: 2, changed: 2, unknown: 1, ..none }),
        ] {
            assert_eq!(recap_at_end(false, &events, items), want, "{items:?}");
        }
    }
}
