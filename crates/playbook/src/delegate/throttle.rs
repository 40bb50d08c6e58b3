//! Tasks of which only some hosts may run at the same time (`throttle`). The controller counts
//! them.

use super::Request;
use crate::plan::{Play, Task};
use crate::run::{Flow, Run};

impl<'a> Run<'a, '_> {
    /// Runs a task when the controller allows it. A run without a controller does not wait.
    pub(crate) fn run_throttled(&mut self, play: &'a Play, task: &'a Task, handler: bool) -> Flow {
        let Some(link) = self.options.controller.clone() else { return self.task(play, task, handler) };
        // A run that continues after a reboot has begun the task before.
        if !self.place.is_resuming()
            && let Err(why) = link.ask(&Request::Begin(task.id))
        {
            return match self.cancel.is_stopped() {
                true => Err(crate::run::RunStopped),
                false => self.fail_task(task, task.place.line, &why, handler),
            };
        }
        if self.cancel.is_stopped() {
            return Err(crate::run::RunStopped);
        }
        let flow = self.task(play, task, handler);
        if self.ground.rebooting.is_some() {
            // The task goes on while the host restarts.
            return flow;
        }
        // Without an answer, the controller has ended the session, which ends the task too.
        let _ended = link.ask(&Request::End);
        flow
    }
}
