//! Argument specs of roles. Each role with argument specs begins with a task that checks them on
//! the node. What is known before the run is checked here: required variables must be set, and
//! literal values must be one of the choices.

use super::needed_vars::names_set;
use super::{Compiler, Context};
use crate::lang::yaml::{SpannedData, SpannedKey, SpannedNode};
use crate::plan::{Plan, PlanStep};
use crate::vars::var_map;
use remoor_model::Fault;
use serde_json::{Map, Value, json};
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
    /// Records the errors of a role's argument specs that are known before the run, and returns the
    /// task that checks all of them. `entry` is the file name of the role's tasks, and `params` are
    /// the parameters that are written next to the role's name.
    pub(super) fn argument_specs(
        &mut self,
        dir: &str,
        meta: Option<&SpannedNode>,
        entry: &str,
        own: &Context,
        params: &Map<String, Value>,
        from: (&str, (u32, u32)),
    ) -> Vec<PlanStep> {
        let paths = ["yml", "yaml"].map(|ending| format!("{dir}/meta/argument_specs.{ending}"));
        let path = paths.into_iter().find(|path| self.files.get(path).is_some());
        let parsed = path.as_ref().and_then(|path| self.yaml(path, from));
        let specs = parsed.as_deref().and_then(|node| node.get("argument_specs"));
        let Some(specs) = specs.or_else(|| meta?.get("argument_specs")) else { return Vec::new() };
        let Some(spec) = specs.get(entry).filter(|spec| spec.map().is_some_and(|pairs| !pairs.is_empty())) else {
            return Vec::new();
        };
        let place = path.unwrap_or_else(|| format!("{dir}/meta/main.yml"));
        // Reports nothing about a role in a dynamic include or with a condition, because the role
        // is perhaps never run.
        if !own.dynamic && own.keywords.when.is_empty() {
            self.check_known_arguments(spec.get("options"), &place, own, params, from);
        }
        let task = self.validation_task(spec, entry, own, params);
        let context = Context { file: place, ..own.clone() };
        self.task(&task, &context)
    }

    /// The task that checks the argument specs of a role, as Ansible adds it.
    fn validation_task(
        &self,
        spec: &SpannedNode,
        entry: &str,
        own: &Context,
        params: &Map<String, Value>,
    ) -> SpannedNode {
        let at = |data: SpannedData| SpannedNode { line: spec.line, column: spec.column, data };
        let key = |text: &str| SpannedKey { line: spec.line, column: spec.column, text: text.into(), boolean: None };
        let mut name = format!("Validating arguments against arg spec '{entry}'");
        if let Some(short) = spec.get("short_description").and_then(SpannedNode::text) {
            name += &format!(" - {short}");
        }
        let (role, dir) = own.role.as_ref().map(|role| (role.name.as_str(), role.dir.as_str())).unwrap_or_default();
        let about = json!({
            "type": "role", "name": role, "argument_spec_name": entry, "path": self.playbook_path(dir),
        });
        let options = spec.get("options").filter(|options| options.data != SpannedData::Null).map(checked_options);
        let arguments = vec![
            (key("argument_spec"), options.unwrap_or_else(|| at(SpannedData::Map(Vec::new())))),
            (key("provided_arguments"), at(SpannedData::from_json(&json!(params), (spec.line, spec.column)))),
            (key("validate_args_context"), at(SpannedData::from_json(&about, (spec.line, spec.column)))),
        ];
        at(SpannedData::Map(vec![
            (key("name"), at(SpannedData::Text(name))),
            (key("tags"), at(SpannedData::Text("always".into()))),
            (key("ansible.builtin.validate_argument_spec"), at(SpannedData::Map(arguments))),
        ]))
    }

    /// Records the required variables that nothing sets, and the fixed values that are not one of
    /// the choices.
    fn check_known_arguments(
        &mut self,
        options: Option<&SpannedNode>,
        place: &str,
        own: &Context,
        params: &Map<String, Value>,
        from: (&str, (u32, u32)),
    ) {
        let (file, at) = from;
        // As in Ansible, an alias is read from the parameters only, and from no other variables.
        let has_alias = |option: &SpannedNode| match option.get("aliases").map(SpannedNode::json) {
            Some(Value::Array(aliases)) => {
                aliases.iter().filter_map(Value::as_str).any(|alias| params.contains_key(alias))
            }
            _ => false,
        };
        let role = own.role.as_ref().map(|role| role.name.clone()).unwrap_or_default();
        for (key, option) in options.and_then(SpannedNode::map).unwrap_or_default() {
            let says = format!("required by {place}:{}", key.line);
            let required = option.get("required").is_some_and(|r| r.json() == true);
            if required && option.get("default").is_none() && !has_alias(option) {
                let message = format!("role `{role}` needs `{}`, which nothing sets", key.text);
                let fault = Fault::error(file, at.0, at.1, message).hint(says.clone());
                self.unmet.push(Unmet { name: key.text.clone(), fault, missing: true });
            }
            let Some(Value::Array(choices)) = option.get("choices").map(SpannedNode::json) else { continue };
            let Some(value) = self.fixed_value(&key.text, own) else { continue };
            // Other values are converted to the type of the argument first.
            let plain = match option.get("type").and_then(SpannedNode::text).as_deref() {
                None | Some("str") => value.is_string() || value.is_number(),
                Some("list") => value.is_array(),
                _ => false,
            };
            if !plain {
                continue;
            }
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

/// The keys of an argument that the check on the node reads.
const CHECKED_KEYS: [&str; 13] = [
    "aliases",
    "apply_defaults",
    "choices",
    "default",
    "elements",
    "mutually_exclusive",
    "options",
    "required",
    "required_by",
    "required_if",
    "required_one_of",
    "required_together",
    "type",
];

/// The arguments of a spec without what the check does not read. A description must not be part of
/// the plan: its words would count as names of variables, and an edit would change the desired
/// state.
fn checked_options(options: &SpannedNode) -> SpannedNode {
    let checked = |(key, value): &(SpannedKey, SpannedNode)| {
        let value = match key.text.as_str() {
            "options" => checked_options(value),
            _ => value.clone(),
        };
        CHECKED_KEYS.contains(&key.text.as_str()).then(|| (key.clone(), value))
    };
    let argument = |argument: &SpannedNode| match &argument.data {
        SpannedData::Map(pairs) => {
            let data = SpannedData::Map(pairs.iter().filter_map(checked).collect());
            SpannedNode { data, ..argument.clone() }
        }
        _ => argument.clone(),
    };
    match &options.data {
        SpannedData::Map(pairs) => {
            let pairs = pairs.iter().map(|(key, value)| (key.clone(), argument(value)));
            SpannedNode { data: SpannedData::Map(pairs.collect()), ..options.clone() }
        }
        _ => options.clone(),
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
    use crate::{CompileOptions, HostContext, Plan, compile};
    use remoor_model::{Fault, FileSet};
    use serde_json::{Map, json};

    const SPECS: &str = "argument_specs:\n  main:\n    options:\n      listen: {type: int, required: true, aliases: [address]}\n      mode: {choices: [a, b]}\n      size: {required: true, default: 3}\n";

    /// The compile errors of a play with the keywords `play`, which may run the role `r` that has
    /// the argument specs `SPECS`.
    fn faults(play: &str, host: &[(&str, serde_json::Value)]) -> String {
        match compile_play(play, host) {
            Ok(_) => String::new(),
            Err(faults) => faults.iter().map(|fault| format!("{}: {}\n", fault.line, fault.message)).collect(),
        }
    }

    fn compile_play(play: &str, host: &[(&str, serde_json::Value)]) -> Result<Plan, Vec<Fault>> {
        let playbook = format!("- hosts: all\n{play}");
        let files = [
            ("site.yml", playbook.as_str()),
            ("roles/r/meta/argument_specs.yml", SPECS),
            ("roles/r/tasks/main.yml", "- debug: {msg: x}\n"),
        ];
        let files = FileSet(files.map(|(path, text)| (path.to_owned(), text.as_bytes().to_vec())).into());
        let vars: Map<_, _> = host.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        let host = HostContext { name: "h".into(), group: "all".into(), vars, ..HostContext::default() };
        compile(&files, "site.yml", &host, &CompileOptions::default()).map(|compiled| compiled.plan)
    }

    #[test]
    fn a_role_begins_with_the_check_of_its_arguments() {
        let values = [("listen", json!(1)), ("mode", json!("a")), ("other", json!(2))];
        let plan = compile_play("  roles: [{role: r, size: 4}]\n", &values).unwrap();
        let mut tasks = Vec::new();
        plan.each_task(&mut |task| tasks.push(task.clone()));
        assert_eq!(
            (tasks[0].module.as_str(), tasks[0].tags.join(",")),
            ("validate_argument_spec", "always".to_owned())
        );
        assert_eq!(tasks[0].args["provided_arguments"], json!({"size": 4}));
        assert_eq!(tasks[0].place.file, "roles/r/meta/argument_specs.yml");
        // Only the spec names these variables of the host.
        assert_eq!(plan.vars.keys().collect::<Vec<_>>(), ["listen", "mode"]);
    }

    #[test]
    fn descriptions_of_arguments_are_no_part_of_the_plan() {
        let specs = "argument_specs:\n  main:\n    options:\n      description: {type: dict, description: Ask secret, options: {a: {description: [secret]}}}\n";
        let files = [
            ("site.yml", "- hosts: all\n  roles: [r]\n"),
            ("roles/r/meta/argument_specs.yml", specs),
            ("roles/r/tasks/main.yml", "- debug: {msg: x}\n"),
        ];
        let files = FileSet(files.map(|(path, text)| (path.to_owned(), text.as_bytes().to_vec())).into());
        let vars = [("secret".to_owned(), json!(1)), ("description".to_owned(), json!({}))].into_iter().collect();
        let host = HostContext { name: "h".into(), group: "all".into(), vars, ..HostContext::default() };
        let plan = compile(&files, "site.yml", &host, &CompileOptions::default()).unwrap().plan;
        assert_eq!(plan.vars.keys().collect::<Vec<_>>(), ["description"]);
        let mut specs = Vec::new();
        plan.each_task(&mut |task| specs.extend(task.args.get("argument_spec").cloned()));
        assert_eq!(specs, [json!({"description": {"type": "dict", "options": {"a": {}}}})]);
    }

    #[test]
    fn what_a_role_requires_is_set_and_what_is_fixed_is_one_of_its_choices() {
        let missing = "2: role `r` needs `listen`, which nothing sets\n";
        assert_eq!(faults("  roles: [r]\n", &[]), missing);
        assert_eq!(faults("  roles: [r]\n", &[("listen", json!(1))]), "");
        assert_eq!(faults("  roles: [{role: r, listen: 1, mode: a}]\n", &[]), "");
        assert_eq!(faults("  roles: [{role: r, address: 1}]\n", &[]), "", "an alias");
        assert_eq!(faults("  roles: [r]\n", &[("address", json!(1))]), missing, "only parameters have aliases");
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
