//! The `validate_argument_spec` module: checks variables of the host against the argument specs of
//! a role. The compiler adds a task with this module to each role that has argument specs.

use super::argument_types::{convert, map_of_text, python_text, type_name};
use super::{ModuleCall, ModuleResult, TaskOutcome};
use crate::template::expr;
use crate::vars::scope::with_trace;
use crate::vars::unknown;
use crate::vars::variable_scope::OMIT;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// Maximum nesting of argument specs.
const DEPTH_MAX: usize = 20;

pub fn validate_argument_spec(call: &mut ModuleCall) -> ModuleResult {
    let map = |name: &str| match call.args.get(name) {
        None | Some(Value::Null) => Ok(Map::new()),
        Some(Value::Object(map)) => Ok(map.clone()),
        Some(other) => Err(format!("`{name}` takes a map, not {}", type_name(other))),
    };
    let (mut spec, given) = (map("argument_spec")?, map("provided_arguments")?);
    let mut values = Map::new();
    let mut is_certain = true;
    for name in spec.keys().cloned().collect::<Vec<_>>() {
        if !call.scope.knows(&name) || given.contains_key(&name) {
            continue;
        }
        // A name such as `foo-bar` is no expression.
        let read = || match call.scope.get(&name) {
            Some(var) => Ok(call.scope.value(&name, var)),
            None => expr::eval(call.scope, &name),
        };
        let (value, trace) = with_trace(|| read().and_then(|value| expr::to_json(&value)));
        match value {
            _ if trace.unknown => {
                is_certain = false;
                spec.shift_remove(&name);
            }
            Ok(value) if unknown::is_unknown(&value) => {
                is_certain = false;
                spec.shift_remove(&name);
            }
            Ok(value) => drop(values.insert(name, value)),
            Err(e) => return Err(format!("`{name}`: {}", expr::explain(&e))),
        }
    }
    values.extend(given);
    values.retain(|_, value| !remove_omitted(value));
    let mut check = ArgumentCheck::default();
    check.check_all(&spec, &mut values, &SpecLevel::default());
    let errors = check.finish();
    let mut out = if !errors.is_empty() {
        let msg = format!("Validation of arguments failed:\n{}", errors.join("\n"));
        TaskOutcome { failed: true, msg, ..TaskOutcome::default() }
    } else if is_certain {
        TaskOutcome::ok("The arg spec validation passed")
    } else {
        TaskOutcome::indeterminate("it depends on a result that is unknown in check mode")
    };
    if out.failed {
        out.extra_keys.insert("argument_errors".into(), json!(errors));
        out.extra_keys.insert("argument_spec_data".into(), Value::Object(spec));
    }
    out.extra_keys.insert("validate_args_context".into(), Value::Object(map("validate_args_context")?));
    Ok(out)
}

/// Removes the values of a map or a list that are `omit`, because they count as not given. Returns
/// whether `value` itself is `omit`.
fn remove_omitted(value: &mut Value) -> bool {
    match value {
        Value::Object(map) => map.retain(|_, value| !remove_omitted(value)),
        Value::Array(items) => items.retain_mut(|item| !remove_omitted(item)),
        _ => {}
    }
    value.as_str() == Some(OMIT)
}

/// The place of a spec in the specs around it.
#[derive(Default)]
struct SpecLevel<'s> {
    /// The arguments that contain this spec, outermost first.
    path: Vec<String>,
    /// The argument that has this spec as its `options`.
    rules: Option<&'s Map<String, Value>>,
}

impl SpecLevel<'_> {
    /// The message with the arguments that contain this spec.
    fn found_in(&self, message: String) -> String {
        if self.path.is_empty() { message } else { format!("{message} found in {}", self.path.join(" -> ")) }
    }

    fn found_in_quoted(&self) -> String {
        if self.path.is_empty() { String::new() } else { format!(" found in '{}'.", self.path.join(" -> ")) }
    }
}

/// The errors of one check, in Ansible's order.
#[derive(Default)]
struct ArgumentCheck {
    errors: Vec<String>,
    /// Arguments that no spec has, each with the arguments that its spec has.
    unsupported: Vec<(String, String)>,
}

impl ArgumentCheck {
    fn finish(mut self) -> Vec<String> {
        self.unsupported.sort();
        self.unsupported.dedup();
        if let Some((_, supported)) = self.unsupported.last() {
            let names: Vec<&str> = self.unsupported.iter().map(|(name, _)| name.as_str()).collect();
            self.errors.push(format!("{}. Supported parameters include: {supported}.", names.join(", ")));
        }
        self.errors
    }

    /// Checks the arguments of one spec, and converts them to their types.
    fn check_all(&mut self, spec: &Map<String, Value>, values: &mut Map<String, Value>, level: &SpecLevel) {
        self.apply_aliases(spec, values, level);
        if level.path.is_empty() {
            self.errors.extend(nested_text_error(spec, values, 0));
        }
        if let Some(rules) = level.rules {
            let message = exclusive_error(rules, values);
            self.errors.extend(message.map(|message| level.found_in(message)));
        }
        for (name, option) in spec {
            if let Some(default) = option.get("default").filter(|default| !default.is_null()) {
                values.entry(name.clone()).or_insert_with(|| default.clone());
            }
        }
        let mut missing: Vec<&str> = Vec::new();
        for (name, option) in spec {
            if is_set(option, "required") && !values.contains_key(name) {
                missing.push(name);
            }
        }
        if !missing.is_empty() {
            missing.sort_unstable();
            self.errors.push(level.found_in(format!("missing required arguments: {}", missing.join(", "))));
        }
        for (name, option) in spec {
            self.check_type(name, option, values, level);
        }
        for (name, option) in spec {
            self.check_choices(name, option, values, level);
        }
        if let Some(rules) = level.rules {
            self.errors.extend(related_errors(rules, values).map(|message| level.found_in(message)));
        }
        for (name, option) in spec {
            self.check_nested(name, option, values, level);
        }
    }

    /// Copies the values of aliases to their arguments, and records the arguments that no spec has.
    fn apply_aliases(&mut self, spec: &Map<String, Value>, values: &mut Map<String, Value>, level: &SpecLevel) {
        let mut aliases = BTreeSet::new();
        for (name, option) in spec {
            if is_set(option, "required") && option.get("default").is_some_and(|default| !default.is_null()) {
                self.errors.push(format!("internal error: required and default are mutually exclusive for {name}"));
                break;
            }
            for alias in texts(option.get("aliases")) {
                if let Some(value) = values.get(&alias).cloned() {
                    values.insert(name.clone(), value);
                }
                aliases.insert(alias);
            }
        }
        let mut supported: Vec<&str> = spec.keys().map(String::as_str).collect();
        supported.sort_unstable();
        let mut supported = supported.join(", ");
        if !aliases.is_empty() {
            supported += &format!(" ({})", aliases.iter().map(String::as_str).collect::<Vec<_>>().join(", "));
        }
        for name in values.keys().filter(|name| !spec.contains_key(*name) && !aliases.contains(*name)) {
            let path = level.path.iter().map(String::as_str).chain([name.as_str()]).collect::<Vec<_>>();
            self.unsupported.push((path.join("."), supported.clone()));
        }
    }

    fn check_type(&mut self, name: &str, option: &Value, values: &mut Map<String, Value>, level: &SpecLevel) {
        let Some(value) = values.get(name) else { return };
        let has_default = option.get("default").is_some_and(|default| !default.is_null());
        if value.is_null() && !is_set(option, "required") && !has_default {
            return;
        }
        let wanted = option.get("type").and_then(Value::as_str).unwrap_or("str");
        let mut converted = match convert(wanted, value) {
            Ok(converted) => converted,
            Err(why) => {
                let (kind, found) = (type_name(value), level.found_in_quoted());
                self.errors.push(format!(
                    "argument '{name}' is of type {kind}{found} and we were unable to convert to {wanted}: {why}"
                ));
                return;
            }
        };
        if let Some(elements) = option.get("elements").and_then(Value::as_str) {
            if !converted.is_array() {
                let (text, found) = (python_text(&converted), level.found_in_quoted());
                self.errors.push(format!(
                    "Invalid type {wanted} for option '{text}'{found}, elements value check is supported only with \
                     'list' type"
                ));
            }
            // As in Ansible, a text then counts as the list of its characters.
            let items: Vec<Value> = match &converted {
                Value::Array(items) => items.clone(),
                Value::String(text) => text.chars().map(|c| json!(c.to_string())).collect(),
                _ => Vec::new(),
            };
            converted = self.convert_elements(name, elements, items, level);
        }
        values.insert(name.to_owned(), converted);
    }

    fn convert_elements(&mut self, name: &str, wanted: &str, items: Vec<Value>, level: &SpecLevel) -> Value {
        let mut out = Vec::new();
        for item in items {
            match convert(wanted, &item) {
                Ok(converted) => out.push(converted),
                Err(why) => {
                    let found = match level.path.is_empty() {
                        true => String::new(),
                        false => format!(" found in '{}'", level.path.join(" -> ")),
                    };
                    self.errors.push(format!(
                        "Elements value for option '{name}'{found} is of type {} and we were unable to convert to \
                         {wanted}: {why}",
                        type_name(&item)
                    ));
                }
            }
        }
        Value::Array(out)
    }

    fn check_choices(&mut self, name: &str, option: &Value, values: &mut Map<String, Value>, level: &SpecLevel) {
        let Some(choices) = option.get("choices").filter(|choices| !choices.is_null()) else { return };
        let Some(choices) = choices.as_array() else {
            let message = format!("internal error: choices for argument {name} are not iterable: {choices}");
            return self.errors.push(level.found_in(message));
        };
        let shown = |values: &[&Value]| values.iter().map(|value| python_text(value)).collect::<Vec<_>>().join(", ");
        let known = || shown(&choices.iter().collect::<Vec<_>>());
        let is_choice = |value: &Value| choices.iter().any(|choice| is_equal(choice, value));
        let message = match values.get(name) {
            None => return,
            Some(Value::Array(items)) => {
                let others: Vec<&Value> = items.iter().filter(|item| !is_choice(item)).collect();
                if others.is_empty() {
                    return;
                }
                format!("value of {name} must be one or more of: {}. Got no match for: {}", known(), shown(&others))
            }
            Some(value) if is_choice(value) => return,
            Some(value) => {
                if let Some(choice) = boolean_choice(value, choices) {
                    values.insert(name.to_owned(), choice);
                    return;
                }
                format!("value of {name} must be one of: {}, got: {}", known(), python_text(value))
            }
        };
        self.errors.push(level.found_in(message));
    }

    /// Checks the `options` of an argument that is a map or a list of maps.
    fn check_nested(&mut self, name: &str, option: &Value, values: &mut Map<String, Value>, level: &SpecLevel) {
        let Some((rules, spec)) = nested_spec(option) else { return };
        if is_set(option, "apply_defaults") && values.get(name).is_none_or(Value::is_null) {
            values.insert(name.to_owned(), json!({}));
        }
        let Some(value) = values.get_mut(name).filter(|value| !value.is_null()) else { return };
        if level.path.len() >= DEPTH_MAX {
            self.errors.push(format!("the argument spec is nested deeper than {DEPTH_MAX}"));
            return;
        }
        let path = level.path.iter().cloned().chain([name.to_owned()]).collect();
        let inner = SpecLevel { path, rules: Some(rules) };
        let items = match value {
            Value::Array(items) => items.iter_mut().collect(),
            one => vec![one],
        };
        for item in items {
            match item {
                Value::Object(map) => self.check_all(spec, map, &inner),
                _ => self.errors.push(format!("value of '{name}' must be of type dict or list of dicts")),
            }
        }
    }
}

type JsonMap = Map<String, Value>;

/// The spec of an argument that is a map or a list of maps, with the argument's own rules.
fn nested_spec(option: &Value) -> Option<(&JsonMap, &JsonMap)> {
    let text = |name: &str| option.get(name).and_then(Value::as_str);
    let is_nested = text("type") == Some("dict") || text("type") == Some("list") && text("elements") == Some("dict");
    Some((option.as_object()?, option.get("options")?.as_object()?)).filter(|_| is_nested)
}

/// The first nested argument that is a text and no map.
fn nested_text_error(spec: &Map<String, Value>, values: &Map<String, Value>, depth: usize) -> Option<String> {
    for (name, option) in spec {
        let (Some((_, inner)), Some(value)) = (nested_spec(option), values.get(name)) else { continue };
        for item in value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice) {
            let error = match item {
                Value::String(text) => map_of_text(text).err(),
                Value::Object(map) if depth < DEPTH_MAX => nested_text_error(inner, map, depth + 1),
                _ => None,
            };
            if error.is_some() {
                return error;
            }
        }
    }
    None
}

fn is_set(option: &Value, name: &str) -> bool {
    option.get(name).is_some_and(|value| *value == true)
}

/// A list of texts, or one text.
fn texts(value: Option<&Value>) -> Vec<String> {
    let items = value.map_or(&[][..], |value| value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice));
    items.iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Whether two values are equal in Python: numbers and booleans are compared by their value.
fn is_equal(a: &Value, b: &Value) -> bool {
    let number = |value: &Value| value.as_f64().or_else(|| value.as_bool().map(|b| f64::from(u8::from(b))));
    a == b || number(a).is_some() && number(a) == number(b)
}

/// The choice that a boolean in YAML stands for, if there is only one.
fn boolean_choice(value: &Value, choices: &[Value]) -> Option<Value> {
    let words: &[&str] = match value.as_str()? {
        "True" => &["y", "yes", "on", "1", "true", "t"],
        "False" => &["n", "no", "off", "0", "false", "f"],
        _ => return None,
    };
    let number = if words.contains(&"1") { 1 } else { 0 };
    let mut fitting = choices.iter().filter(|choice| match choice {
        Value::String(text) => words.contains(&text.as_str()),
        other => is_equal(other, &json!(number)),
    });
    fitting.next().filter(|_| fitting.next().is_none()).cloned()
}

fn exclusive_error(rules: &Map<String, Value>, values: &Map<String, Value>) -> Option<String> {
    let groups = rules.get("mutually_exclusive")?.as_array()?.iter().map(|group| texts(Some(group)));
    let both = groups.filter(|group| group.iter().filter(|name| values.contains_key(*name)).count() > 1);
    let shown: Vec<String> = both.map(|group| group.join("|")).collect();
    (!shown.is_empty()).then(|| format!("parameters are mutually exclusive: {}", shown.join(", ")))
}

/// The errors of arguments that other arguments need.
fn related_errors(rules: &Map<String, Value>, values: &Map<String, Value>) -> impl Iterator<Item = String> {
    let has = |name: &String| values.contains_key(name);
    let groups = |rule: &str| -> Vec<Vec<String>> {
        let list = rules.get(rule).and_then(Value::as_array);
        list.into_iter().flatten().map(|group| texts(Some(group))).collect()
    };
    let together =
        groups("required_together").into_iter().find(|group| group.iter().any(has) && !group.iter().all(has));
    let together = together.map(|group| format!("parameters are required together: {}", group.join(", ")));
    let one_of = groups("required_one_of").into_iter().find(|group| !group.iter().any(has));
    let one_of = one_of.map(|group| format!("one of the following is required: {}", group.join(", ")));
    let conditional = rules.get("required_if").and_then(Value::as_array).into_iter().flatten().find_map(|rule| {
        let rule = rule.as_array()?;
        let (key, wanted) = (rule.first()?.as_str()?, rule.get(1)?);
        let names = texts(rule.get(2));
        let is_any = rule.get(3).is_some_and(|any| *any == true);
        let missing: Vec<String> = names.iter().filter(|name| !has(name)).cloned().collect();
        let applies = values.get(key).is_some_and(|value| is_equal(value, wanted));
        let enough = if is_any { missing.len() < names.len() } else { missing.is_empty() };
        let which = if is_any { "any" } else { "all" };
        let (wanted, missing) = (python_text(wanted), missing.join(", "));
        (applies && !enough).then(|| format!("{key} is {wanted} but {which} of the following are missing: {missing}"))
    });
    let filled = |name: &String| values.get(name).is_some_and(|value| !value.is_null());
    let by = rules.get("required_by").and_then(Value::as_object).into_iter().flatten().find_map(|(key, names)| {
        let missing: Vec<String> = texts(Some(names)).into_iter().filter(|name| !filled(name)).collect();
        let lacks = filled(key) && !missing.is_empty();
        lacks.then(|| format!("missing parameter(s) required by '{key}': {}", missing.join(", ")))
    });
    [together, one_of, conditional, by].into_iter().flatten()
}
