//! The variables of a host that other hosts of a run may read in later plays (`hostvars`), or set
//! there (`delegate_facts`).

use super::{Plan, Task, same_play};
use crate::compile;
use crate::vars::protected_names::is_protected_name;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Names of variables, and whether these are all variables.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedNames {
    names: BTreeSet<String>,
    /// Names that tasks with `delegate_facts` set.
    given: BTreeSet<String>,
    /// Whether a plan reads variables of other hosts by computed names.
    all: bool,
    /// By play: the names that hosts read of others in the play that sets them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) in_play: BTreeMap<u32, BTreeSet<String>>,
}

impl SharedNames {
    /// The names that some of these plans could read of another host. None: they read nothing that
    /// a run sets.
    pub fn find(plans: &[&Plan]) -> Option<Self> {
        let mut set = BTreeSet::new();
        let mut of_others = BTreeSet::new();
        for plan in plans {
            plan.each_task(&mut |task| {
                set.extend(names_set_by(task));
                if sets_facts_of_others(task) {
                    of_others.extend(names_set_by(task));
                }
            });
        }
        let mut reads = !of_others.is_empty();
        let mut found = Self { names: of_others.clone(), given: of_others, ..Self::default() };
        for plan in plans.iter().filter(|plan| plan.shared.contains_key("hostvars")) {
            let (words, whole) = compile::words_of(plan);
            reads = true;
            found.all |= whole || words.iter().any(|word| is_beginning_of_name(word));
            found.names.extend(words.into_iter().filter(|word| word.starts_with("ansible_") || set.contains(word)));
        }
        found.in_play = same_play::names_in_plays(plans);
        found.names.extend(found.in_play.values().flatten().cloned());
        reads.then_some(found)
    }

    /// All names, for plays that are not known yet.
    #[must_use]
    pub fn allow_all(self) -> Self {
        Self { all: true, ..self }
    }

    /// Names that other hosts may set for this host.
    pub(crate) fn names_by_others(&self) -> impl Iterator<Item = &String> {
        self.given.iter()
    }

    pub fn contains(&self, name: &str) -> bool {
        self.all || self.names.contains(name)
    }
}

/// Whether a word such as `ansible_` is the beginning of a computed name.
fn is_beginning_of_name(word: &str) -> bool {
    word.starts_with("ansible_") && word.ends_with('_')
}

fn names_set_by(task: &Task) -> Vec<String> {
    let mut names = Vec::new();
    compile::names_set_by(task, &mut names);
    names
}

fn sets_facts_of_others(task: &Task) -> bool {
    task.hosts.delegation.as_ref().is_some_and(|delegation| delegation.facts)
}

impl Plan {
    /// The names that this plan could read of another host. None: it reads no variables of others.
    pub fn names_read_of_others(&self) -> Option<SharedNames> {
        let shares = self.shares.as_ref().filter(|_| self.shared.contains_key("hostvars"))?;
        let (words, whole) = compile::words_of(self);
        let all = whole || words.iter().any(|word| is_beginning_of_name(word));
        let names = words.into_iter().filter(|word| shares.contains(word)).collect();
        Some(SharedNames { names, all, ..SharedNames::default() })
    }

    /// Whether a run of this plan may set the variable `name` of another host. `gathered`: as a
    /// fact that a module has found, and not by `set_fact`.
    pub(crate) fn may_set_of_others(&self, name: &str, gathered: bool) -> bool {
        if is_protected_name(name) {
            return false;
        }
        let mut may = false;
        self.each_task(&mut |task| {
            let is_set_fact = task.module == "set_fact";
            let sets = match gathered {
                true => !is_set_fact && name.starts_with("ansible_"),
                false => is_set_fact && task.args.contains_key(name),
            };
            may |= sets_facts_of_others(task) && sets;
        });
        may
    }
}
