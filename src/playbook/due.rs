//! Handlers that are due: each runs once a flush, in the order of their definition, and until it has run it is owed, in the
//! journal too.

use super::plan::{Handler, Play, Task};
use super::run::{Flow, Run, Stop, union};
use super::step::notifies;
use super::{compile, data, expr};

/// Rounds of handlers that notify handlers.
const ROUNDS_MAX: usize = 20;

impl<'a> Run<'a, '_> {
    /// Runs every notified handler once, in the order they are defined in.
    pub(super) fn flush(&mut self, play: &'a Play) -> Flow {
        for _ in 0..ROUNDS_MAX {
            self.by_written_names(play);
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
                // What it notified and is yet to run in this round runs once.
                let to_come = |name: &str| {
                    let mut meant = (0..play.handlers.len()).filter(|i| play.answers(*i, name)).peekable();
                    meant.peek().is_some() && meant.all(|i| due[at + 1..].contains(&i))
                };
                self.notified.retain(|name| !to_come(name));
                self.due = [outer.clone(), owed(&due[at + 1..])].concat();
                self.journal_or_stop()?;
            }
            self.due = outer;
            self.journal_or_stop()?;
        }
        Ok(())
    }

    /// A handler whose name holds markup is known by what is written; it is notified by what that comes to.
    fn by_written_names(&mut self, play: &'a Play) {
        for handler in &play.handlers {
            for written in handler.names.iter().filter(|name| data::has_markup(name)) {
                let Ok(name) = expr::render_text(&self.frame.scope(play, &handler.task), written) else { continue };
                if play.means(&name) {
                    continue;
                }
                let all = self.notified.iter_mut().chain(&mut self.perhaps).chain(&mut self.owed);
                all.filter(|notified| **notified == name).for_each(|notified| notified.clone_from(written));
            }
        }
    }

    /// After this task, what it notifies waits no longer, whichever run it was notified in. A name that differs from item to
    /// item can't be told here; it waits for the end of the play.
    pub(super) fn release(&mut self, play: &'a Play, task: &'a Task) {
        if self.owed.is_empty() || task.notify.is_empty() {
            return;
        }
        let names = notifies(&self.frame.scope(play, task), task).unwrap_or_default();
        let (released, owed) = std::mem::take(&mut self.owed).into_iter().partition(|name| names.contains(name));
        self.owed = owed;
        self.notified = union([&self.notified, &released]);
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
