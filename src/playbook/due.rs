//! Handlers that are due: each runs once a flush, in the order of their definition, and until it has run it is owed, in the
//! journal too.

use super::compile;
use super::plan::{Handler, Play};
use super::run::{Flow, Run, Stop};

/// Rounds of handlers that notify handlers.
const ROUNDS_MAX: usize = 20;

impl<'a> Run<'a, '_> {
    /// Runs every notified handler once, in the order they are defined in.
    pub(super) fn flush(&mut self, play: &'a Play) -> Flow {
        for _ in 0..ROUNDS_MAX {
            let all = 0..play.handlers.len();
            let due: Vec<usize> =
                all.clone().filter(|i| self.notified.iter().any(|name| play.answers(*i, name))).collect();
            let perhaps = std::mem::take(&mut self.perhaps);
            for i in all.filter(|i| !due.contains(i)) {
                if perhaps.iter().any(|name| play.answers(i, name)) {
                    self.handler_unknown(&play.handlers[i]);
                }
            }
            self.journal_or_stop()?;
            if due.is_empty() {
                return Ok(());
            }
            let names: Vec<String> = self.notified.iter().filter(|name| play.means(name)).cloned().collect();
            self.notified.retain(|name| !names.contains(name));
            // Of a flush that this one is within.
            let outer = self.due.clone();
            for (at, i) in due.iter().enumerate() {
                // Until the last handler that a name means has run, the name is owed.
                let owed = |rest: &[usize]| {
                    let owed = names.iter().filter(|name| rest.iter().any(|i| play.answers(*i, name)));
                    owed.cloned().collect::<Vec<_>>()
                };
                self.due = [outer.clone(), owed(&due[at..])].concat();
                let flow = if self.cancel.stopped() { Err(Stop) } else { self.handler(play, &play.handlers[*i]) };
                if flow.is_err() {
                    let mut all = owed(&due[at..]);
                    all.extend(self.notified.iter().filter(|n| !names.contains(n)).cloned());
                    (self.notified, self.due) = (all, outer);
                    self.journal_or_stop()?;
                    return flow;
                }
                self.due = [outer.clone(), owed(&due[at + 1..])].concat();
                self.journal_or_stop()?;
            }
            self.due = outer;
            self.journal_or_stop()?;
        }
        Ok(())
    }

    /// One handler that is due.
    fn handler(&mut self, play: &'a Play, handler: &'a Handler) -> Flow {
        match handler.task.module.as_str() {
            "meta" => self.meta(play, &handler.task),
            "include_tasks" => self.include(play, &handler.task, (&handler.choices, &handler.refused), true),
            _ => self.single(play, &handler.task, true),
        }
    }

    /// A handler of which nobody knows whether it would be notified.
    fn handler_unknown(&mut self, handler: &'a Handler) {
        self.say_unknown(&handler.task, true, "whether it is notified depends on what was not run");
        let mut set = Vec::new();
        compile::names_set_by(&handler.task, &mut set);
        set.iter().for_each(|name| self.frame.forget(name));
    }
}
