//! Checks argument specs of roles: required variables must be set, and literal values must be one
//! of the choices. Types and nested values are not checked.

use super::needed_vars::names_set;
use super::{Compiler, Context};
use crate::lang::yaml::SpannedNode;
use crate::plan::Plan;
use crate::vars::var_map;
use remoor_model::Fault;
use serde_json::{Map, Value};
use std::collections::BTreeSet;

/// An error about a variable that an argument spec describes. It is reported only if no task of the
/// plan sets that variable.
pub(super) struct Unmet {
    name: String,
    fault: Fault,
    /// The error is that the variable has no value. It is dropped if the inventory, an extra
    /// variable or a layer of the plan defines the variable.
    missing: bool,
}

impl Compiler<'_> {
    /// Records the errors of a role's argument specs. `entry` is the file name of the role's tasks.
    pub(super) fn argument_specs(
        &mut self,
        dir: &str,
        meta: Option<&SpannedNode>,
        entry: &str,
        own: &Context,
        from: (&str, (u32, u32)),
    ) {
        let paths = ["yml", "yaml"].map(|ending| format!("{dir}/meta/argument_specs.{ending}"));
        let path = paths.into_iter().find(|path| self.files.get(path).is_some());
        let parsed = path.as_ref().and_then(|path| self.yaml(path, from));
        let specs = parsed.as_deref().and_then(|node| node.get("argument_specs"));
        let Some(specs) = specs.or_else(|| meta?.get("argument_specs")) else { return };
        let entry = entry.trim_end_matches(".yml").trim_end_matches(".yaml");
        let options =
            specs.get(entry).and_then(|entry| entry.get("options")).and_then(SpannedNode::map).unwrap_or_default();
        let (file, at) = from;
        let role = own.role.as_ref().map(|role| role.name.clone()).unwrap_or_default();
        if options.iter().any(|(_, option)| option.get("type").is_some() || option.get("options").is_some()) {
            let message = format!("types in the argument specs of role `{role}` are not checked");
            self.warn(
                file,
                at,
                message,
                "required options and choices are checked; use `assert` for other requirements",
            );
        }
        // Reports nothing about a role in a dynamic include or with a condition, because the role
        // is perhaps never run.
        if own.dynamic || !own.keywords.when.is_empty() {
            return;
        }
        let place = path.unwrap_or_else(|| format!("{dir}/meta/main.yml"));
        for (key, option) in options {
            let says = format!("required by {place}:{}", key.line);
            if option.get("required").is_some_and(|r| r.json() == true) && option.get("default").is_none() {
                let message = format!("role `{role}` needs `{}`, which nothing sets", key.text);
                let fault = Fault::error(file, at.0, at.1, message).hint(says.clone());
                self.unmet.push(Unmet { name: key.text.clone(), fault, missing: true });
            }
            let Some(Value::Array(choices)) = option.get("choices").map(SpannedNode::json) else { continue };
            let Some(value) = self.fixed_value(&key.text, own) else { continue };
            let given = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
            let Some(wrong) = given.iter().find(|v| !choices.iter().any(|choice| value_text(choice) == value_text(v)))
            else {
                continue;
            };
            let known: Vec<String> = choices.iter().map(value_text).collect();
            let message =
                format!("role `{role}`: `{}` is `{}`, not one of {}", key.text, value_text(wrong), known.join(", "));
            let fault = Fault::error(file, at.0, at.1, message).hint(says);
            self.unmet.push(Unmet { name: key.text.clone(), fault, missing: false });
        }
    }

    /// The value of a variable for a role, if it is defined once and without markup.
    fn fixed_value(&self, name: &str, own: &Context) -> Option<&Value> {
        let chain = &own.layers;
        let lists = [
            &chain.defaults,
            &chain.play_vars,
            &chain.role_vars,
            &chain.vars,
            &chain.role_params,
            &chain.include_params,
        ];
        let layers = lists.into_iter().flatten().filter_map(|i| self.parts.layers.get(*i as usize));
        let all = layers.chain([&self.options.extra_vars, &self.host.vars]);
        let found: Vec<&Value> = all.filter_map(|layer| layer.get(name)).collect();
        match found[..] {
            [one] if !var_map::has_markup(&one.to_string()) && !one.is_object() && !one.is_null() => Some(one),
            _ => None,
        }
    }
}

fn value_text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Selects the errors of argument specs that still apply to the finished plan.
pub(super) fn unmet_faults(plan: &Plan, noted: Vec<Unmet>, host: &Map<String, Value>) -> Vec<Fault> {
    let mut set = Vec::new();
    for play in &plan.plays {
        play.sections.iter().for_each(|section| names_set(section, &mut set));
    }
    let set: BTreeSet<String> = set.into_iter().collect();
    let defined = |name: &str| plan.layers.iter().chain([&plan.extra, host]).any(|layer| layer.contains_key(name));
    let wrong = noted.into_iter().filter(|one| !(set.contains(&one.name) || one.missing && defined(&one.name)));
    wrong.map(|one| one.fault).collect()
}

#[cfg(test)]
mod tests {
    use crate::{CompileOptions, HostContext, compile};
    use remoor_model::FileSet;
    use serde_json::{Map, json};

    const SPECS: &str = "argument_specs:\n  main:\n    options:\n      listen: {type: int, required: true}\n      mode: {choices: [a, b]}\n      size: {required: true, default: 3}\n";

    /// The compile errors of a play with the keywords `play`, which may run the role `r` that has
    /// the argument specs `SPECS`.
    fn faults(play: &str, host: &[(&str, serde_json::Value)]) -> String {
        let playbook = format!("- hosts: all\n{play}");
        let files = [
            ("site.yml", playbook.as_str()),
            ("roles/r/meta/argument_specs.yml", SPECS),
            ("roles/r/tasks/main.yml", "- debug: {msg: x}\n"),
        ];
        let files = FileSet(files.map(|(path, text)| (path.to_owned(), text.as_bytes().to_vec())).into());
        let vars: Map<_, _> = host.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        let host = HostContext { name: "h".into(), group: "all".into(), vars, ..HostContext::default() };
        match compile(&files, "site.yml", &host, &CompileOptions::default()) {
            Ok(_) => String::new(),
            Err(faults) => faults.iter().map(|fault| format!("{}: {}\n", fault.line, fault.message)).collect(),
        }
    }

    #[test]
    fn what_a_role_requires_is_set_and_what_is_fixed_is_one_of_its_choices() {
        let missing = "2: role `r` needs `listen`, which nothing sets\n";
        assert_eq!(faults("  roles: [r]\n", &[]), missing);
        assert_eq!(faults("  roles: [r]\n", &[("listen", json!(1))]), "");
        assert_eq!(faults("  roles: [{role: r, listen: 1, mode: a}]\n", &[]), "");
        let wrong = "2: role `r`: `mode` is `c`, not one of a, b\n";
        assert_eq!(faults("  roles: [{role: r, listen: 1, mode: c}]\n", &[]), wrong);
        assert_eq!(faults("  roles: [{role: r, listen: 1, mode: '{{ m }}'}]\n", &[("m", json!("c"))]), "");
        // Before the run, a missing variable is no error if a task sets it, or if the role has a
        // condition.
        assert_eq!(faults("  pre_tasks: [{set_fact: {listen: 1}}]\n  roles: [r]\n", &[]), "");
        assert_eq!(faults("  roles: [{role: r, when: no_such_thing is defined}]\n", &[]), "");
        let unchecked = "  tasks: [{import_role: {name: r, rolespec_validate: false}}]\n";
        assert_eq!(faults(unchecked, &[]), "");
        assert_eq!(faults("  tasks: [{import_role: {name: r}}]\n", &[]), missing);
    }
}
