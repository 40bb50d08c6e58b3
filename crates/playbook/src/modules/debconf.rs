//! The `debconf` module: the answer to a question of a package, in the database of debconf.

use super::apt::is_package_name;
use super::{ModuleCall, ModuleResult, TaskOutcome, require_success};
use crate::run::event::AttributeChange;
use serde_json::{Map, Value, json};

pub fn debconf(call: &mut ModuleCall) -> ModuleResult {
    let package = call.required_text(&["name", "pkg"])?;
    if !is_package_name(&package) {
        return Err(format!("`{package}` is not the name of a package"));
    }
    let question = call.text(&["question", "selection", "setting"]);
    let kind = call.text(&["vtype"]);
    let value = ["value", "answer"].iter().find_map(|name| call.args.get(*name)).filter(|value| !value.is_null());
    let value = value.cloned();
    call.env.push(("LC_ALL".into(), "C".into()));
    let have = selections(call, &package)?;
    let (question, kind, value) = match (question, kind, value) {
        (Some(question), Some(kind), Some(value)) => (question, kind, value),
        (None, None, None) => return Ok(TaskOutcome::default().with_result(json!({"msg": "", "current": have}))),
        _ => return Err("`question`, `vtype` and `value` belong together".into()),
    };
    let wanted = wanted_value(&kind, &value)?;
    let present = match have.get(&question).and_then(Value::as_str) {
        None => None,
        Some(_) if kind == "password" => Some(json!(password(call, &package, &question)?)),
        Some(text) if kind == "boolean" => Some(json!(text.to_lowercase())),
        Some(text) if wanted.is_array() => Some(json!(sort_items(text.split(',').map(|item| item.trim().to_owned())))),
        Some(text) => Some(json!(text)),
    };
    let written = match &wanted {
        Value::Array(items) => items.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(", "),
        other => super::text_of(other),
    };
    let predicted = format!("debconf {package} {question}");
    let told = call.predicted_text(&predicted);
    let same = told.map_or(present.as_ref() == Some(&wanted), |told| told == written);
    if same {
        return Ok(TaskOutcome::default().with_result(json!({"msg": "", "current": have})));
    }
    let program = call.find_program("debconf-set-selections")?;
    let mut argv = vec![program.as_str()];
    argv.extend(call.flag("unseen", false).then_some("-u"));
    let input = [&package, &question, &kind, &written].map(String::as_str).join(" ");
    if input.contains('\n') {
        return Err("`question` and `value` must be one line".into());
    }
    let done = call.feed_or_predict(&argv, Some(input.into_bytes()), |would| would.set_text(&predicted, &written))?;
    require_success("debconf-set-selections", &done)?;
    let mut previous = have;
    match previous.get(&question).cloned() {
        Some(old) => previous = Map::from_iter([(question.clone(), old)]),
        None => drop(previous.insert(question.clone(), json!(""))),
    }
    let mut out = TaskOutcome { changed: true, ..TaskOutcome::default() };
    if kind != "password" {
        let old = super::text_of(&previous[&question]);
        out.attributes.push(AttributeChange::new(&question, old, written.clone()));
    }
    let current = if call.ground.node.is_check_mode() { wanted } else { json!(written) };
    let msg = done.stdout.trim_end_matches('\n').to_owned();
    Ok(out.with_result(json!({"msg": msg, "current": {question: current}, "previous": previous})))
}

/// The answers of a package that `debconf-show` shows, by question.
fn selections(call: &ModuleCall, package: &str) -> Result<Map<String, Value>, String> {
    let program = call.find_program("debconf-show")?;
    let done = call.run_quietly(&[&program, package])?;
    require_success("debconf-show", &done)?;
    let pair = |line: &str| {
        let (question, value) = line.split_once(':')?;
        Some((question.trim_matches('*').trim().to_owned(), json!(value.trim())))
    };
    Ok(done.stdout.lines().filter_map(pair).collect())
}

/// A password, which `debconf-show` does not show.
fn password(call: &ModuleCall, package: &str, question: &str) -> Result<String, String> {
    let program = call
        .find_program("debconf-get-selections")
        .map_err(|why| format!("{why}, which reads passwords; install the package debconf-utils"))?;
    let done = call.run_quietly(&[&program])?;
    require_success("debconf-get-selections", &done)?;
    let found = done.stdout.lines().find_map(|line| {
        let fields: Vec<&str> = line.split('\t').collect();
        let is = line.starts_with(package) && fields.get(1) == Some(&question) && fields.get(2) == Some(&"password");
        is.then(|| fields.get(3).map(|value| (*value).to_owned())).flatten()
    });
    Ok(found.unwrap_or_default())
}

/// The value in the form that debconf has: a boolean as `true` or `false`, a list sorted.
fn wanted_value(kind: &str, value: &Value) -> Result<Value, String> {
    Ok(match value {
        Value::Bool(on) if kind == "boolean" => json!(if *on { "true" } else { "false" }),
        Value::String(text) if kind == "boolean" => json!(text.to_lowercase()),
        Value::Bool(on) => json!(if *on { "True" } else { "False" }),
        Value::Array(items) if kind == "multiselect" => {
            let texts = items
                .iter()
                .map(|item| item.as_str().map(str::to_owned).ok_or("the items of a `multiselect` value must be texts"));
            json!(sort_items(texts.collect::<Result<Vec<_>, _>>()?.into_iter()))
        }
        Value::Array(_) | Value::Object(_) => return Err(format!("`value` of the type {kind} must be a text")),
        other => json!(super::text_of(other)),
    })
}

fn sort_items(items: impl Iterator<Item = String>) -> Vec<String> {
    let mut items: Vec<String> = items.collect();
    items.sort();
    items
}
