//! Includes of files and roles whose target, items or conditions only a run may know.

use super::Walk;
use super::refusals::{choices_on_linux, is_never_true};
use crate::plan::{DynamicInclude, Play, Repeat, TaskCondition, choice};
use crate::vars::scope::ExprScope;
use crate::vars::variable_scope;
use serde_json::Value;

impl<'p> Walk<'p> {
    /// Walks the steps that an include selects for each of its items.
    pub(super) fn include(&mut self, play: &'p Play, include: &'p DynamicInclude) {
        let scope = self.frame.scope(play, &include.task);
        let items = match &include.task.repeat {
            None => vec![None],
            Some(repeat) => match variable_scope::items(&scope, repeat) {
                Ok(items) => items.into_iter().map(Some).collect(),
                Err(_) => {
                    return self.any_of(play, include, Some(repeat));
                }
            },
        };
        let known: Vec<Value> = items.iter().flatten().cloned().collect();
        for (index, item) in items.iter().enumerate() {
            let layer = item
                .as_ref()
                .zip(include.task.repeat.as_ref())
                .map(|(_, r)| variable_scope::item_layer(r, &known, index));
            let inner = layer.clone().map_or_else(|| scope.clone(), |l| scope.with_layer(l));
            let holds = variable_scope::all_hold(&inner, &include.task.when);
            self.conditions(&include.task, &inner);
            if matches!(holds, Ok(false)) {
                continue;
            }
            self.texts(&include.task, &inner, holds.is_ok());
            let name = variable_scope::args(&inner, &include.task).ok().map(|args| choice(&include.task, &args));
            let Some(name) = name else {
                self.any_of(play, include, include.task.repeat.as_ref());
                continue;
            };
            let name = self.known_choice(include, name, &inner);
            if let Some(why) = include.refused.get(&name).filter(|_| self.is_certain(&include.task, &holds)) {
                let message = format!("`{name}` cannot be run: {why}");
                self.refuse(&include.task, Some(name), message);
            } else if let Some(steps) = include.choices.get(&name) {
                let depth = self.frame.params.len();
                self.frame.params.extend(layer.map(std::sync::Arc::new));
                match holds {
                    Ok(_) => self.steps(play, steps),
                    Err(_) => {
                        let when = &include.task.when;
                        self.include_uncertain(&inner, when, |walk| walk.steps(play, steps));
                    }
                }
                self.frame.params.truncate(depth);
            }
        }
    }

    /// Handles an include whose target or items are only known during a run: each of its choices
    /// may be selected.
    fn any_of(&mut self, play: &'p Play, include: &'p DynamicInclude, repeat: Option<&'p Repeat>) {
        let names = self.guess_items(repeat);
        let scope = self.frame.scope(play, &include.task);
        let on_linux = choices_on_linux(&scope, include);
        let possible = |name: &str| on_linux.as_ref().is_none_or(|names| names.contains(name));
        for name in include.refused.keys().filter(|name| possible(name)) {
            self.note_possible(&include.task, Some(name.clone()), &scope);
        }
        for (_, steps) in include.choices.iter().filter(|(name, _)| possible(name)) {
            self.include_uncertain(&scope, &include.task.when, |walk| walk.steps(play, steps));
        }
        self.frame.unknown.retain(|name| !names.contains(name));
    }

    /// Walks steps of an include of which only a run knows whether `conditions` hold.
    pub(super) fn include_uncertain(
        &mut self,
        scope: &ExprScope,
        conditions: &[TaskCondition],
        f: impl FnOnce(&mut Self),
    ) {
        let before = self.never_reached;
        self.never_reached |= is_never_true(scope, conditions);
        self.walk_uncertain(f);
        self.never_reached = before;
    }
}
