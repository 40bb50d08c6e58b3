//! Notified handlers. In each flush a handler runs once, in the order of definition. A notified
//! handler is pending until it has run, and the run's journal file lists it.

use crate::compile;
use crate::plan::{Handler, Play, Task};
use crate::run::checkpoint::{HandlerPosition, Position};
use crate::run::{Flow, Run, RunStopped, union};
use crate::template::expr;
use crate::vars::scope::ExprScope;
use crate::vars::{unknown, var_map};
use serde_json::{Value, json};

/// Maximum number of rounds in which handlers notify handlers. After that many rounds they are
/// assumed to notify each other without end.
pub(crate) const ROUNDS_MAX: usize = 20;

/// Whether a task changed something, so that it notifies its handlers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotifyChange {
    No,
    /// Check mode cannot know whether the task would change something.
    Unknown,
    Yes,
}

impl<'a> Run<'a, '_> {
    /// Notifies the handlers that a task without a loop names. `scope` renders the names.
    pub(crate) fn announce(&mut self, task: &'a Task, scope: &ExprScope, change: NotifyChange) -> Flow {
        if change == NotifyChange::No {
            return Ok(());
        }
        let names = self.notified_names(task, scope)?;
        self.announce_names(names, change);
        Ok(())
    }

    /// The names of the handlers that a task notifies. An error fails the task.
    pub(crate) fn notified_names(&mut self, task: &'a Task, scope: &ExprScope) -> Result<Vec<String>, RunStopped> {
        match notifies(scope, task) {
            Ok(names) => Ok(names),
            Err(e) => {
                self.fail_task(task, task.place.line, &format!("notify: {}", expr::explain(&e)), false)?;
                Ok(Vec::new())
            }
        }
    }

    /// Notifies the handlers with these names.
    pub(crate) fn announce_names(&mut self, names: Vec<String>, change: NotifyChange) {
        for name in names {
            match change {
                NotifyChange::Yes => self.notify(&name),
                NotifyChange::Unknown => self.possibly_notified.push(name),
                NotifyChange::No => {}
            }
        }
    }

    /// Updates the journal file of the run at the end of a task, even if the task changed nothing.
    /// Before the task, the file got the handlers that `pending_if_changed` returned. If the task
    /// changed nothing, they are not pending.
    pub(crate) fn settle(&mut self, task: &'a Task) -> Flow {
        if !task.notify.is_empty()
            && let Err(message) = self.write_journal()
        {
            return self.fail_task(task, task.place.line, &format!("journal of handlers: {message}"), false);
        }
        Ok(())
    }

    fn notify(&mut self, name: &str) {
        if !self.notified.iter().any(|n| n == name) {
            self.notified.push(name.to_owned());
        }
        self.notified_by_failed.retain(|n| n != name);
    }

    /// Returns the handlers that will be pending if this task changes something. They are written
    /// to the journal file before the task, because the run may be killed right after the change.
    /// None: the journal file already contains them all, or there is no such file.
    pub(crate) fn pending_if_changed(&self, task: &Task, scope: &ExprScope) -> Option<Vec<String>> {
        if task.notify.is_empty() || self.options.journal.as_os_str().is_empty() || self.options.check {
            return None;
        }
        // Handler names that depend on the result of the task are added after the task.
        let all = self.all_pending(&notifies(scope, task).unwrap_or_default());
        (all != self.journaled).then_some(all)
    }

    /// Runs every notified handler once, in the order of definition.
    pub(crate) fn flush(&mut self, play: &'a Play) -> Flow {
        let mut resumed = self.take_resumed(|position| match position {
            Position::Handler(round) => Some(round),
            _ => None,
        })?;
        let mut rounds = 0;
        loop {
            let round = match resumed.take() {
                Some(round) => round,
                None => match self.begin_round(play, rounds)? {
                    Some(round) => round,
                    None => return Ok(()),
                },
            };
            rounds = round.rounds;
            let HandlerPosition { due, names, outer, .. } = &round;
            for (at, i) in due.iter().enumerate().skip(round.at) {
                // A notified name stays pending until the last handler that it selects has run.
                let owed = |rest: &[usize]| {
                    let owed = names.iter().filter(|name| rest.iter().any(|i| play.answers(*i, name)));
                    owed.cloned().collect::<Vec<_>>()
                };
                self.flushing = [outer.clone(), owed(&due[at..])].concat();
                let position = Position::Handler(HandlerPosition { at, ..round.clone() });
                let flow = if self.cancel.is_stopped() {
                    Err(RunStopped)
                } else {
                    self.run_within(position, |run| run.handler(play, &play.handlers[*i]))
                };
                if flow.is_err() {
                    let mut all = owed(&due[at..]);
                    all.extend(self.notified.iter().filter(|n| !names.contains(n)).cloned());
                    (self.notified, self.flushing) = (all, outer.clone());
                    self.journal_or_stop()?;
                    return flow;
                }
                // A handler that was just notified, and whose turn in this round is yet to come,
                // runs only once.
                let to_come = |name: &str| {
                    let mut meant = (0..play.handlers.len()).filter(|i| play.answers(*i, name)).peekable();
                    meant.peek().is_some() && meant.all(|i| due[at + 1..].contains(&i))
                };
                self.notified.retain(|name| !to_come(name));
                self.flushing = [outer.clone(), owed(&due[at + 1..])].concat();
                self.journal_or_stop()?;
            }
            self.flushing.clone_from(outer);
            self.journal_or_stop()?;
        }
    }

    /// Selects the notified handlers of the next round of a flush. None: no handler is notified.
    fn begin_round(&mut self, play: &'a Play, rounds: usize) -> Result<Option<HandlerPosition>, RunStopped> {
        self.by_written_names(play);
        let all = 0..play.handlers.len();
        let due: Vec<usize> = all.clone().filter(|i| self.notified.iter().any(|name| play.answers(*i, name))).collect();
        let perhaps = std::mem::take(&mut self.possibly_notified);
        for i in all.filter(|i| !due.contains(i)) {
            if perhaps.iter().any(|name| play.answers(i, name)) {
                self.handler_unknown(play, &play.handlers[i]);
            }
        }
        self.journal_or_stop()?;
        let Some(first) = due.first() else { return Ok(None) };
        let names: Vec<String> = self.notified.iter().filter(|name| play.means(name)).cloned().collect();
        if rounds == ROUNDS_MAX {
            let task = &play.handlers[*first].task;
            let message = format!("handlers notify each other without end: {}", names.join(", "));
            self.fail_task(task, task.place.line, &message, true)?;
        }
        self.notified.retain(|name| !names.contains(name));
        // Flushes may be nested.
        let outer = self.flushing.clone();
        Ok(Some(HandlerPosition { due, at: 0, names, outer, rounds: rounds + 1 }))
    }

    /// Replaces each notified name by the written form of the handler's name, which may contain
    /// markup. Handlers are identified by this form.
    fn by_written_names(&mut self, play: &'a Play) {
        for handler in &play.handlers {
            for written in handler.names.iter().filter(|name| var_map::has_markup(name)) {
                let Ok(name) = expr::render_text(&self.frame.scope(play, &handler.task), written) else { continue };
                if play.means(&name) {
                    continue;
                }
                let all = self.notified.iter_mut().chain(&mut self.possibly_notified).chain(&mut self.pending_earlier);
                all.filter(|notified| **notified == name).for_each(|notified| notified.clone_from(written));
            }
        }
    }

    /// Releases the handlers that this task notifies and that an earlier run left pending. They
    /// were held back until a task that notifies them has run. A name that differs between items is
    /// not known here, so its handlers run at the end of the play.
    pub(crate) fn release(&mut self, play: &'a Play, task: &'a Task) {
        if self.pending_earlier.is_empty() || task.notify.is_empty() {
            return;
        }
        let names = notifies(&self.frame.scope(play, task), task).unwrap_or_default();
        let (released, owed) =
            std::mem::take(&mut self.pending_earlier).into_iter().partition(|name| names.contains(name));
        self.pending_earlier = owed;
        self.notified = union([&self.notified, &released]);
    }

    /// Runs one notified handler.
    fn handler(&mut self, play: &'a Play, handler: &'a Handler) -> Flow {
        match handler.task.module.as_str() {
            "meta" => self.meta(play, &handler.task),
            "include_tasks" => self.include(play, &handler.task, (&handler.choices, &handler.refused), true),
            _ => self.single(play, &handler.task, true),
        }
    }

    /// Reports a handler for which check mode cannot know whether it would be notified.
    fn handler_unknown(&mut self, play: &'a Play, handler: &'a Handler) {
        let scope = self.frame.scope(play, &handler.task);
        if matches!(unknown::all_hold(&scope, &handler.task.when), Ok(Some(false))) {
            // The handler does not run, whether it is notified or not.
            self.report_skipped(&handler.task, &scope, None, true);
        } else {
            self.say_unknown(&handler.task, true, "whether it is notified depends on tasks that were not run");
        }
        let mut set = Vec::new();
        compile::names_set_by(&handler.task, &mut set);
        set.iter().for_each(|name| self.frame.forget(name));
    }
}

/// The handler names that a task notifies.
fn notifies(scope: &ExprScope, task: &Task) -> Result<Vec<String>, minijinja::Error> {
    let mut names = Vec::new();
    for name in &task.notify {
        match expr::render_json(scope, &json!(name))? {
            Value::Array(more) => names.extend(more.iter().filter_map(Value::as_str).map(str::to_owned)),
            Value::String(name) => names.push(name),
            _ => {}
        }
    }
    Ok(names)
}
