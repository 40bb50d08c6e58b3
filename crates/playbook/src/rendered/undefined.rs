//! Finds undefined names that `review` does not find by rendering: names in conditions that are
//! evaluated after a task, and facts that remoor never gathers. It reports a warning, not an error,
//! if some run may never read the name.

use super::{LOOP_VAR, Walk, find, may_fail};
use crate::compile::names_set_by;
use crate::facts;
use crate::plan::{Plan, Play, SourcePlace, Task, TaskCondition};
use crate::template::{expr, lint};
use crate::vars::scope::{ExprScope, with_trace};
use crate::vars::var_map::has_markup;
use crate::vars::variable_scope;
use remoor_model::{Fault, FileSet, nearest_word};
use serde_json::Value;
use std::collections::BTreeSet;

/// The variable that a module sets although no option names it, for example `services`.
fn set_by(task: &Task) -> Option<String> {
    match task.module.as_str() {
        "service_facts" => Some("services".into()),
        "package_facts" => Some("packages".into()),
        "getent" => Some(format!("getent_{}", task.args.get("database").and_then(Value::as_str)?)),
        _ => None,
    }
}

impl<'p> Walk<'p> {
    /// Called after a task: marks the variables that it set as unknown, and reviews the conditions
    /// on its result.
    pub(super) fn review_after_task(&mut self, play: &'p Play, task: &'p Task) {
        // What the task sets for the other host is seen at once in `hostvars`.
        self.frame.others_change |= task.hosts.delegation.as_ref().is_some_and(|delegation| delegation.facts);
        task.register.iter().for_each(|name| self.frame.forget(name));
        set_by(task).iter().for_each(|name| self.frame.forget(name));
        if self.review.is_none() {
            return;
        }
        let fresh: Vec<String> = match &task.repeat {
            Some(repeat) => [Some(repeat.var.clone()), repeat.index_var.clone(), Some(LOOP_VAR.to_owned())]
                .into_iter()
                .flatten()
                .filter(|name| self.frame.unknown.insert(name.clone()))
                .collect(),
            None => Vec::new(),
        };
        let scope = self.frame.scope(play, task);
        let ran = variable_scope::all_hold(&scope, &task.when);
        if !matches!(ran, Ok(false)) {
            let certain = ran.is_ok() && !may_fail(task);
            for list in [&task.retry.until, &task.outcome.changed_when, &task.outcome.failed_when].into_iter().flatten()
            {
                self.review_conditions(task, list, &scope, certain);
            }
        }
        self.frame.unknown.retain(|name| !fresh.contains(name));
    }

    /// Reviews a list of conditions up to the first that does not hold.
    pub(super) fn review_conditions(&mut self, task: &Task, list: &[TaskCondition], scope: &ExprScope, certain: bool) {
        for condition in list {
            let (told, trace) = with_trace(|| expr::truth(scope, &condition.text));
            match told {
                Ok(true) => {}
                Ok(false) => return,
                Err(e) => {
                    let text = match has_markup(&condition.text) {
                        true => condition.text.clone(),
                        false => format!("{{{{ {} }}}}", condition.text),
                    };
                    let place = SourcePlace { file: task.place.file.clone(), line: condition.line };
                    return self.inline(&place, &text, &e, &trace, scope, certain);
                }
            }
        }
    }
}

/// The names that handlers set. A handler may run before a task that reads such a name.
pub(super) fn names_set_by_handlers(plan: &Plan) -> Vec<String> {
    let mut out = Vec::new();
    let handlers = plan.plays.iter().flat_map(|play| &play.handlers);
    handlers.for_each(|handler| names_set_by(&handler.task, &mut out));
    out
}

/// Finds facts that the playbook reads but remoor never gathers. Reports an error for a read that
/// happens in every run, and a warning for any other read.
pub(super) fn ungathered_fact_faults(plan: &Plan, files: &FileSet) -> Vec<Fault> {
    let mut set: BTreeSet<String> = BTreeSet::new();
    plan.each_task(&mut |task| {
        if task.module == "set_fact" {
            set.extend(task.args.keys().cloned());
        }
        set.extend(set_by(task));
    });
    let certain = |sure: bool| sure && !plan.sets_unknown_facts();
    let mut out = Vec::new();
    plan.each_task(&mut |task| {
        let mut texts = Vec::new();
        task.args.values().for_each(|value| collect(value, &mut texts));
        if let Some(text) = task.args.get("that").and_then(Value::as_str) {
            texts.push(format!("{{{{ {text} }}}}"));
        }
        for text in texts {
            for (name, _) in ungathered_facts(&text, &set) {
                let source = files.text(&task.place.file).unwrap_or_default();
                let at = find(source, task.place.line, &name).unwrap_or((task.place.line, 1));
                out.push(fault(&task.place.file, at, &name, certain(task.when.is_empty())));
            }
        }
        // The first condition is always evaluated.
        if let Some(first) = task.when.first() {
            for (name, _) in ungathered_facts(&format!("{{{{ {} }}}}", first.text), &set) {
                out.push(fault(&task.place.file, (first.line, 1), &name, certain(true)));
            }
        }
        if task.module == "template" {
            let templates =
                task.files.assets.values().chain(task.files.parts.values()).filter(|a| !a.path.ends_with(".tera"));
            for asset in templates {
                let text = files.text(&asset.path).unwrap_or_default();
                for (name, offset) in ungathered_facts(text, &set) {
                    out.push(fault(&asset.path, lint::place(text, offset), &name, certain(task.when.is_empty())));
                }
            }
        }
    });
    out.sort();
    out.dedup();
    out
}

fn collect(value: &Value, out: &mut Vec<String>) {
    match value {
        Value::String(text) if has_markup(text) => out.push(text.clone()),
        Value::Array(items) => items.iter().for_each(|item| collect(item, out)),
        Value::Object(map) => map.values().for_each(|item| collect(item, out)),
        _ => {}
    }
}

/// Facts that a text reads from `ansible_facts` although remoor never gathers them, with their
/// offsets. Facts whose existence is tested first are left out.
fn ungathered_facts(text: &str, set: &BTreeSet<String>) -> Vec<(String, usize)> {
    let mut out = lint::facts_read(text);
    out.retain(|(name, _)| {
        let foreign = ["facter_", "ohai_", "getent_", "discovered_"].iter().any(|begin| name.starts_with(begin));
        // Network interfaces are not reported, because each of them is a fact of its own name.
        !foreign && !set.contains(name) && !facts::is_known(&format!("ansible_{name}"))
    });
    out
}

fn fault(file: &str, at: (u32, u32), name: &str, certain: bool) -> Fault {
    let full = format!("ansible_{name}");
    let message = format!("remoor gathers no fact `{name}`");
    let fault = if certain { Fault::error(file, at.0, at.1, message) } else { Fault::warn(file, at.0, at.1, message) };
    let known = facts::NAMES.iter().filter_map(|n| n.strip_prefix("ansible_"));
    match (facts::absence_reason(&full), nearest_word(name, known)) {
        (Some(why), _) => fault.hint(why),
        (None, Some(near)) => fault.hint(format!("did you mean `{near}`?")),
        (None, None) => {
            fault.hint("docs/reference/playbooks.md lists the facts; add `| default(...)` if a fact may be missing")
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{CompileOptions, HostContext, compile, review};
    use remoor_model::FileSet;
    use serde_json::{Map, Value, json};

    /// The faults of these tasks with a template `t.j2`; errors first.
    fn review_messages(tasks: &str, template: &str) -> Vec<String> {
        let playbook = format!("- hosts: all\n  vars: {{known: 1, lazy: \"{{{{ known }}}}\"}}\n  tasks:\n{tasks}");
        let files = [("site.yml", playbook.as_str()), ("t.j2", template)];
        let files = FileSet(files.map(|(path, text)| (path.to_owned(), text.as_bytes().to_vec())).into());
        let Value::Object(vars) = json!({"inventory_hostname": "h", "of_inventory": "x"}) else { panic!() };
        let host = HostContext { name: "h".into(), group: "all".into(), vars, ..HostContext::default() };
        let plan = compile(&files, "site.yml", &host, &CompileOptions::default()).unwrap().plan;
        let (_, faults) = review(&plan, &Map::new(), &files, &["of_inventory"]);
        let mut out: Vec<String> = faults
            .into_iter()
            .map(|f| {
                let kind = if f.warning { "warn" } else { "error" };
                format!("{kind} {}:{} {} ({})", f.file, f.line, f.message, f.hint.unwrap_or_default())
            })
            .collect();
        out.sort();
        out
    }

    #[test]
    fn a_name_that_nothing_defines_is_named_with_its_place() {
        for (tasks, template, want) in [
            ("  - debug:\n      msg: \"{{ knwon }}\"\n", "", "error site.yml:5"),
            ("  - command: /bin/true\n    when: knwon == 1\n", "", "error site.yml:5"),
            ("  - command: /bin/true\n    register: out\n    until: out.rc == 0 and knwon\n", "", "site.yml:6"),
            (
                "  - command: /bin/true\n    register: out\n    changed_when: knwon in out.stdout\n",
                "",
                "error site.yml:6",
            ),
            ("  - debug: {msg: a}\n    loop: \"{{ knwon }}\"\n", "", "error site.yml:5"),
            ("  - template: {src: t.j2, dest: /t}\n", "a\n{{ of_inventori }}\n", "error t.j2:2"),
            ("  - debug: {msg: \"{{ ansible_hosntame }}\"}\n", "", "did you mean `ansible_hostname`?"),
            (
                "  - debug: {msg: \"{{ ansible_facts.hosntame }}\"}\n",
                "",
                "error site.yml:4 remoor gathers no fact `hosntame` (did you mean `hostname`?)",
            ),
            ("  - debug: {msg: \"{{ ansible_lvm }}\"}\n", "", "volumes are not gathered"),
            (
                "  - template: {src: t.j2, dest: /t}\n",
                "{{ ansible_facts['lvm'].vgs }}\n",
                "error t.j2:1 remoor gathers no fact `lvm` (volumes are not gathered)",
            ),
        ] {
            let said = review_messages(tasks, template);
            assert!(said.iter().any(|s| s.contains(want)), "{tasks}{template}\nwant {want}\n{said:#?}");
        }
    }

    #[test]
    fn computed_names_of_variables_give_one_warning_instead_of_one_for_each_name() {
        let computed = "  - {set_fact: {'{{ item }}_x': 1}, loop: [a]}\n";
        let reads = "  - debug: {msg: '{{ a_x }} {{ b_x }}'}\n  - debug: {msg: '{{ c_x }}'}\n";
        let said = review_messages(&format!("{computed}{reads}"), "");
        assert_eq!(said.len(), 1, "{said:#?}");
        assert!(said[0].starts_with("warn site.yml:4 this task computes the names"), "{said:#?}");
        assert!(review_messages(computed, "").is_empty());
        assert!(review_messages(reads, "").len() > 1);
    }

    #[test]
    fn what_asks_the_node_is_not_answered_by_who_looks_at_it() {
        for text in
            ["'/' is directory", "lookup('env', 'HOME')", "'~' | expanduser", "now().year", "'%Y' | strftime(0)"]
        {
            let tasks = format!("  - copy: {{dest: /c, content: \"{{{{ {text} }}}}\"}}\n");
            let files =
                FileSet([("site.yml".to_owned(), format!("- hosts: all\n  tasks:\n{tasks}").into_bytes())].into());
            let host =
                HostContext { name: "h".into(), group: "all".into(), vars: Map::new(), ..HostContext::default() };
            let plan = compile(&files, "site.yml", &host, &CompileOptions::default()).unwrap().plan;
            let (made, faults) = review(&plan, &Map::new(), &files, &[]);
            assert!(made.is_empty() && faults.is_empty(), "{text}: {made:?} {faults:?}");
        }
    }

    #[test]
    fn where_it_cannot_be_known_nothing_is_said() {
        for (tasks, template) in [
            (
                "  - debug: {msg: \"{{ known }} {{ lazy }} {{ of_inventory }} {{ inventory_hostname }} {{ ansible_eth0.mtu }}\"}\n",
                "",
            ),
            ("  - debug: {msg: \"{{ gone | default('x') }} {{ 'y' if gone is defined else 'z' }}\"}\n", ""),
            (
                "  - command: /bin/true\n    register: out\n    until: out.rc == 0\n    failed_when: out.stdout | length > known\n  - debug: {msg: \"{{ out.stdout }}\"}\n",
                "",
            ),
            ("  - set_fact: {fresh: \"{{ ansible_hostname }}\"}\n  - debug: {msg: \"{{ fresh }}\"}\n", ""),
            (
                "  - debug: {msg: \"{{ item.x }} {{ i }}\"}\n    loop: [{x: 1}]\n    loop_control: {index_var: i}\n    changed_when: item.x == 1\n",
                "",
            ),
            (
                "  - set_fact: {\"{{ ansible_hostname }}_x\": 1}\n  - debug: {msg: \"{{ gone }}\"}\n  - command: echo\n    when: lost == 1\n",
                "",
            ),
            (
                "  - {command: a, notify: h}\n  - {meta: flush_handlers}\n  - {debug: {msg: \"{{ done.rc }}\"}}\n  handlers: [{name: h, command: b, register: done}]\n",
                "",
            ),
            ("  - debug: {msg: \"{{ gone }}\"}\n    when: gone is defined\n", ""),
            ("  - debug: {msg: \"{{ gone }}\"}\n    when: known == 2\n", ""),
            (
                "  - set_fact: {own: 1}\n  - debug: {msg: \"{{ ansible_facts.own }} {{ ansible_facts['eth1'] }} {{ ansible_facts.facter_x }}\"}\n",
                "",
            ),
            (
                "  - template: {src: t.j2, dest: /t}\n",
                "{% set q = 1 %}{% for a in [1] %}{{ a }}{{ loop.index }}{{ q }}{% endfor %}{% if gone is defined %}{{ gone }}{% endif %}",
            ),
            (
                "  - template: {src: t.j2, dest: /t}\n",
                "# {{ ansible_managed }} {{ template_path }} {{ template_destpath }}\n{{ ansible_hostname }}\n",
            ),
            (
                "  - block:\n    - command: /bin/false\n    rescue:\n    - debug: {msg: \"{{ ansible_failed_task.name }}\"}\n",
                "",
            ),
        ] {
            let said = review_messages(tasks, template);
            assert!(said.iter().all(|s| s.starts_with("warn")), "{tasks}{template}\n{said:#?}");
        }
    }
}
