//! Lists the refused tasks of a plan.

use super::{Plan, PlanStep, REFUSED, SourcePlace};
use crate::compile::refusal_message;
use remoor_model::Fault;

impl Plan {
    /// An error for each task and target that the plan contains only as a refusal, whether or not a
    /// run reaches it.
    pub fn refused_tasks(&self) -> Vec<Fault> {
        fn add<'p>(list: &'p [PlanStep], out: &mut Vec<(&'p SourcePlace, &'p str)>) {
            for step in list {
                match step {
                    PlanStep::Task(task) if task.module == REFUSED => {
                        out.push((&task.place, refusal_message(&task.args)));
                    }
                    PlanStep::Task(_) => {}
                    PlanStep::Block(b) => [&b.block, &b.rescue, &b.always].into_iter().for_each(|part| add(part, out)),
                    PlanStep::Include(include) => {
                        out.extend(include.refused.values().map(|why| (&include.task.place, why.as_str())));
                        include.choices.values().for_each(|part| add(part, out));
                    }
                }
            }
        }
        let mut out = Vec::new();
        for play in &self.plays {
            play.sections.iter().for_each(|section| add(section, &mut out));
            for handler in &play.handlers {
                if handler.task.module == REFUSED {
                    out.push((&handler.task.place, refusal_message(&handler.task.args)));
                }
                out.extend(handler.refused.values().map(|why| (&handler.task.place, why.as_str())));
                handler.choices.values().for_each(|part| add(part, &mut out));
            }
        }
        out.into_iter().map(|(place, why)| Fault::error(&place.file, place.line, 1, why)).collect()
    }
}
