//! Files that a task reads from the controller although the set of files does not contain them:
//! tasks before it make them there, or they are outside of the directory of the playbook.

use super::{Compiler, Context, assets};
use crate::plan::{ControllerNames, NamePattern, NamesOfRun, Task};
use crate::template::expr;
use crate::vars::scope::{ExprScope, with_trace};
use crate::vars::var_map::{self, VarMap};
use crate::vars::variable_scope;
use serde_json::json;
use std::collections::BTreeSet;
use std::fmt;

/// Modules that can get their file during a run.
const MODULES: [&str; 4] = ["copy", "template", "unarchive", "uri"];
/// Maximum number of such files of one task.
const NAMES_MAX: usize = 500;
/// The values of the fact `architecture` for which names are computed. A fact of the node can
/// select only among the names that these values give.
const ARCHITECTURES: [&str; 13] = [
    "aarch64",
    "armv5tel",
    "armv6l",
    "armv7l",
    "armv8l",
    "i386",
    "i686",
    "loongarch64",
    "ppc64",
    "ppc64le",
    "riscv64",
    "s390x",
    "x86_64",
];

/// The files of the machine that starts a run.
pub trait ControllerFiles: fmt::Debug {
    /// Whether the machine has the file that a task of the file `file` names, or a task of the run
    /// may make it there. A relative name is searched as `search_places` says, first in the
    /// subdirectory `sub` of each place.
    fn may_exist(&self, file: &str, sub: &str, name: &str) -> bool;
}

impl Compiler<'_> {
    /// The names that `src` of a task means, each of a file that the controller can send during the
    /// run. If a name contains the architecture of the node, all names that it may be. `missing`:
    /// the plan has no file for the task. Empty: the controller cannot send each of the files.
    pub(super) fn names_on_controller(&self, own: &Context, src: &str, task: &Task, missing: bool) -> ControllerNames {
        let mut out = ControllerNames::default();
        // A template that is sent may read any variable, so its plan would have all of them.
        if !missing && (!var_map::has_markup(src) || task.module == "template") {
            return out;
        }
        // A name in the playbook itself that no file has is most likely a mistake.
        let in_role = || own.role.as_ref().is_some_and(|role| src.starts_with(&format!("{}/", role.dir)));
        let is_plain = !var_map::has_markup(src) && !src.starts_with(['/', '~']) && !in_role();
        let module = MODULES.contains(&task.module.as_str());
        let Some(files) = self.options.controller_files.filter(|_| module && !is_plain) else {
            return out;
        };
        let scope = self.known_scope(own);
        let scopes = match task.repeat.as_ref().map(|repeat| (repeat, variable_scope::items(&scope, repeat))) {
            Some((repeat, Ok(items))) if items.len() <= NAMES_MAX => {
                let layer = |index| scope.with_layer(variable_scope::item_layer(repeat, &items, index));
                (0..items.len()).map(layer).collect()
            }
            Some((_, Ok(_))) => return out,
            None | Some((_, Err(_))) => vec![scope],
        };
        let (unknown, known): (Vec<_>, Vec<_>) =
            scopes.into_iter().map(|scope| (names_of(&scope, src), scope)).partition(|(names, _)| names.is_empty());
        if !unknown.is_empty() {
            let patterns: BTreeSet<_> = unknown.iter().filter_map(|(_, scope)| self.pattern_of(scope, src)).collect();
            let fitting = missing && !patterns.is_empty();
            out.of_run = if fitting { NamesOfRun::Fitting(patterns) } else { NamesOfRun::Made };
        }
        if missing {
            let may_exist = |name: &String| files.may_exist(&own.file, assets::subdir(&task.module), name);
            for (names, _) in known {
                let names: Vec<String> = names.into_iter().filter(may_exist).collect();
                if names.is_empty() && unknown.is_empty() {
                    return ControllerNames::default();
                }
                out.known.extend(names);
            }
        }
        out
    }

    /// The fixed texts of a name of which only the run knows the other parts. None: they select too
    /// few names.
    fn pattern_of(&self, scope: &ExprScope, src: &str) -> Option<NamePattern> {
        let (mut texts, mut rest) = (vec![String::new()], src);
        while let Some(at) = rest.find('{') {
            let end = rest[at..].strip_prefix("{{").and_then(|inner| inner.find("}}"))? + at + 4;
            let known = || {
                let (text, trace) = with_trace(|| expr::render_text(scope, &rest[at..end]));
                text.ok().filter(|_| !trace.unknown && trace.missed.is_empty())
            };
            let last = texts.last_mut()?;
            last.push_str(&rest[..at]);
            match known() {
                Some(text) => last.push_str(&text),
                None => texts.push(String::new()),
            }
            rest = &rest[end..];
        }
        texts.last_mut()?.push_str(rest);
        texts[0] = self.strip_root(&texts[0]).to_owned();
        NamePattern::new(texts)
    }
}

/// The names that a text may result in. Empty: only the node knows them.
fn names_of(scope: &ExprScope, src: &str) -> Vec<String> {
    let render = |scope: &ExprScope| {
        let (name, trace) = with_trace(|| expr::render_text(scope, src));
        (name.ok().filter(|name| !trace.unknown && !name.is_empty()), trace)
    };
    let (name, trace) = render(scope);
    let facts = ["ansible_architecture", "ansible_facts"];
    if !trace.missed.iter().any(|name| facts.contains(&name.as_str())) {
        return name.into_iter().collect();
    }
    let of_node = |architecture: &&str| {
        let known = json!({facts[0]: architecture, facts[1]: {"architecture": architecture}});
        let layer = VarMap::from_untrusted(known.as_object()?);
        render(&scope.with_layer(layer)).0
    };
    ARCHITECTURES.iter().filter_map(of_node).collect()
}
