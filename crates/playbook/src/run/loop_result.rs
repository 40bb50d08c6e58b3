//! Runs a task for the items of its loop, and merges the results of the items into the result of
//! the task.

use crate::plan::{Play, Repeat, Task};
use crate::run::event::Status;
use crate::run::handlers::NotifyChange;
use crate::run::task::{ItemResult, scope_with_result, seconds};
use crate::run::{CurrentItem, Flow, Run, RunStopped, union};
use crate::template::expr;
use crate::vars::scope::{ExprScope, with_trace};
use crate::vars::{unknown, variable_scope};
use serde_json::{Map, Value, json};

/// The merged results of the items that have run.
struct LoopResult {
    results: Vec<Value>,
    changed: bool,
    /// Whether there is an item of which check mode cannot know whether it would change something.
    may_change: bool,
    /// Whether there is an item of which check mode cannot know the result.
    has_unknown: bool,
    all_skipped: bool,
    /// The last failed item whose failure is not ignored. If there is none, the first failed item
    /// whose failure is ignored.
    worst: Option<ItemResult>,
}

impl LoopResult {
    fn new() -> Self {
        Self {
            results: Vec::new(),
            changed: false,
            may_change: false,
            has_unknown: false,
            all_skipped: true,
            worst: None,
        }
    }

    fn add(&mut self, judged: ItemResult) {
        self.changed |= judged.status == Status::Changed || judged.result["changed"] == true;
        self.may_change |= judged.status == Status::Unknown || unknown::is_unknown(&judged.result["changed"]);
        self.has_unknown |= judged.status == Status::Unknown;
        self.all_skipped &= judged.status == Status::Skipped;
        self.results.push(judged.result.clone());
        // An ignored failure of one item does not hide the failure of another.
        if judged.status == Status::Failed || judged.status == Status::Ignored && self.worst.is_none() {
            self.worst = Some(judged);
        }
    }

    /// Returns the outcome of the task, and the result that `register` stores.
    fn into_task_result(self) -> (ItemResult, Value) {
        let failed = self.worst.is_some();
        let msg = if failed { "one or more items failed" } else { "all items done" };
        let may_all_be_skipped = self.results.iter().all(|r| r["skipped"] == true || r["skipped"].is_null());
        let mut result = json!({"results": self.results, "changed": self.changed, "failed": failed, "skipped": self.all_skipped, "msg": msg});
        if self.may_change && !self.changed {
            result["changed"] = unknown::mark();
        }
        if self.has_unknown && !failed {
            result["failed"] = unknown::mark();
            if self.all_skipped || may_all_be_skipped {
                result["skipped"] = unknown::mark();
            }
        }
        let (status, failure) = match self.worst {
            Some(judged) => (judged.status, judged.failure),
            None if self.changed => (Status::Changed, None),
            None => (Status::Ok, None),
        };
        (ItemResult { status, result: Value::Null, failure, facts: Map::new(), facts_of: None }, result)
    }
}

/// Whether a loop with this result notifies handlers.
fn change_of_loop(result: &Value) -> NotifyChange {
    match &result["changed"] {
        _ if result["failed"] == true => NotifyChange::No,
        changed if *changed == true => NotifyChange::Yes,
        changed if unknown::is_unknown(changed) => NotifyChange::Unknown,
        _ => NotifyChange::No,
    }
}

impl<'a> Run<'a, '_> {
    /// Runs the task for each item, until the run is cancelled or `break_when` holds. `scope` is
    /// the scope of the task without an item.
    pub(crate) fn task_with_loop(
        &mut self,
        play: &'a Play,
        task: &'a Task,
        scope: &ExprScope,
        repeat: &Repeat,
        handler: bool,
    ) -> Flow {
        let Some(items) = self.loop_items(task, scope, repeat, handler)? else { return Ok(()) };
        let mut merged = LoopResult::new();
        let mut names = Vec::new();
        let mut cut = false;
        for index in 0..items.len() {
            if self.cancel.is_stopped() {
                cut = true;
                break;
            }
            if index > 0
                && let Some(pause) = &repeat.pause
            {
                self.interruptible_sleep(seconds(scope, Some(pause)).unwrap_or_default());
            }
            let (judged, scope) = self.loop_item(play, task, repeat, &items, index, handler)?;
            names.extend(self.names_of_item(task, &judged, &scope)?);
            merged.add(judged);
            match unknown::all_hold(&scope, &repeat.break_when) {
                Ok(Some(true)) if !repeat.break_when.is_empty() => break,
                Ok(_) => {}
                Err((line, e)) => {
                    let why = format!("break_when: {}", expr::explain(&e));
                    let judged = self.fail_unevaluable(task, &scope, None, (line, &why), handler);
                    return self.conclude(task, &judged, judged.result.clone());
                }
            }
        }
        let (judged, result) = merged.into_task_result();
        if judged.status != Status::Failed {
            // As in Ansible, all items notify their handlers if the task changed something, and no
            // item does if one of them fails.
            self.notified_by_items.clear();
            self.announce_names(names, change_of_loop(&result));
        }
        self.conclude(task, &judged, result)?;
        if cut { Err(RunStopped) } else { Ok(()) }
    }

    /// Returns the items of the loop. None: there are no items, or they are unknown or cannot be
    /// evaluated. The task is then already concluded.
    fn loop_items(
        &mut self,
        task: &'a Task,
        scope: &ExprScope,
        repeat: &Repeat,
        handler: bool,
    ) -> Result<Option<Vec<Value>>, RunStopped> {
        let (items, trace) = with_trace(|| variable_scope::items(scope, repeat));
        let skips = || matches!(unknown::all_hold(scope, &task.when), Ok(Some(false)));
        if trace.unknown && !skips() {
            let judged = self.report_indeterminate(task, None, handler, "its loop depends on tasks that were not run");
            self.announce(task, scope, judged.change())?;
            self.conclude(task, &judged, judged.result.clone())?;
            return Ok(None);
        }
        let items = match items {
            Ok(items) if !trace.unknown => items,
            // A loop that cannot be evaluated has no items if the task's `when` is false without an
            // item.
            Ok(_) => Vec::new(),
            Err(_) if skips() => Vec::new(),
            Err(message) => {
                let why = format!("loop: {message}");
                let judged = self.fail_unevaluable(task, scope, None, (task.place.line, &why), handler);
                self.conclude(task, &judged, judged.result.clone())?;
                return Ok(None);
            }
        };
        if items.is_empty() {
            self.report_skipped(task, scope, None, handler);
            let result = json!({"changed": false, "failed": false, "skipped": true, "skipped_reason": "No items in the list", "results": []});
            let judged = ItemResult {
                status: Status::Skipped,
                result: Value::Null,
                failure: None,
                facts: Map::new(),
                facts_of: None,
            };
            self.conclude(task, &judged, result)?;
            return Ok(None);
        }
        Ok(Some(items))
    }

    /// Runs the task for one item. Returns its result, and the scope that contains the result.
    fn loop_item(
        &mut self,
        play: &'a Play,
        task: &'a Task,
        repeat: &Repeat,
        items: &[Value],
        index: usize,
        handler: bool,
    ) -> Result<(ItemResult, ExprScope), RunStopped> {
        let item = &items[index];
        // The scope is made again, because this item sees the facts that the previous item set.
        let layer = variable_scope::item_layer(repeat, items, index);
        let inner = self.frame.scope(play, task).with_layer(layer.clone());
        let (label, label_fault) = variable_scope::label(&inner, repeat, item);
        self.item = Some(CurrentItem { index, value: item.clone(), layer, label_fault });
        let judged = self.item(task, &inner, Some(label), handler);
        self.item = None;
        let Ok(mut judged) = judged else {
            let names = std::mem::take(&mut self.notified_by_items);
            self.announce_names(names, NotifyChange::Yes);
            self.settle(task)?;
            return Err(RunStopped);
        };
        judged.result[repeat.var.as_str()] = item.clone();
        judged.result["ansible_loop_var"] = json!(repeat.var);
        if let Some(name) = &repeat.index_var {
            judged.result[name.as_str()] = json!(index);
            judged.result["ansible_index_var"] = json!(name);
        }
        for (name, value) in &judged.facts {
            self.learn(task, judged.facts_of.as_deref(), name, value);
        }
        let scope = scope_with_result(&inner, task, &judged.result);
        Ok((judged, scope))
    }

    /// The error of the label of the present item.
    pub(crate) fn label_fault(&self) -> Option<String> {
        self.item.as_ref()?.label_fault.clone()
    }

    /// The handlers that one item notifies if the whole task has changed something. If the item has
    /// changed something, they are pending from now on.
    fn names_of_item(
        &mut self,
        task: &'a Task,
        judged: &ItemResult,
        scope: &ExprScope,
    ) -> Result<Vec<String>, RunStopped> {
        if task.notify.is_empty() || judged.status == Status::Skipped || judged.result["failed"] == true {
            return Ok(Vec::new());
        }
        let names = self.notified_names(task, scope)?;
        if judged.change() == NotifyChange::Yes {
            self.notified_by_items = union([&self.notified_by_items, &names]);
        }
        Ok(names)
    }
}
