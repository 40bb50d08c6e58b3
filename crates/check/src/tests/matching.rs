//! Compares goss 0.4.9 and remoor on the same assertions: `tests/goss/matching` has one assertion
//! per line, and goss's recorded answers.

use super::*;
use crate::probe::{ProbeContext, World, ask};
use remoor_model::CheckState;
use serde_json::{Map, Number, Value};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Assertions that remoor answers differently from goss, with remoor's result and the reason.
/// `docs/reference/checks.md` has the same list for users.
const DEPARTURES: &[(&str, &str, &str)] = &[
    ("empty-list", "error", "asserts nothing"),
    ("empty-reader", "error", "asserts nothing"),
    ("empty-and", "error", "asserts nothing"),
    ("empty-or", "error", "holds for nothing"),
    ("empty-contain-elements", "error", "asserts nothing"),
    ("empty-have-patterns", "error", "asserts nothing"),
    ("empty-gjson", "error", "asserts nothing"),
    ("empty-pattern", "error", "asserts nothing"),
    ("empty-pattern-not", "error", "asserts that there are no lines, which is not obvious"),
    ("empty-regex-pattern", "error", "asserts nothing"),
    ("pattern-slash", "fail", "goss takes all of \\ / ! from the beginning of a plain pattern"),
    ("pattern-escape", "fail", "the same"),
    ("pattern-not-slash", "pass", "the same"),
    ("word-yes", "error", "true to some readers of YAML"),
    ("octal", "error", "octal to some readers of YAML"),
    ("octal-new", "error", "octal to some readers of YAML"),
    ("date", "pass", "goss compares a time, printed with hours and zone"),
    ("over-63-bits", "pass", "goss has no number of this size"),
    ("list-of-one-number", "pass", "goss does it for lists that come from the machine only"),
    ("hexadecimal-fraction", "error", "nobody writes such numbers"),
    ("length-with-fraction", "error", "goss takes 2.7 for 2"),
    ("semver-two-x", "error", "goss takes 1.x.x for 1.0.x"),
    ("semver-not-x", "error", "in goss it never holds"),
    ("semver-x-in-pre-release", "pass", "goss takes any x for a wildcard"),
    ("gjson-lines", "error", "not supported"),
    ("gjson-tostr", "error", "not supported"),
    ("gjson-join", "error", "not supported"),
    ("gjson-twice", "fail", "goss takes the first of two equal keys, remoor the last"),
    ("gjson-half-a-character", "error", "not a valid string"),
    ("regex-class-of-rust", "pass", "the crate knows more classes"),
];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/goss/matching")
}

fn files() -> Vec<PathBuf> {
    let all = fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> = all.filter(|path| path.extension().is_some_and(|e| e == "yaml")).collect();
    files.sort();
    files
}

/// The assertions by id, each as a check file of its own.
fn assertions() -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    for file in files() {
        let text = fs::read_to_string(file).unwrap();
        let document = text.lines().find_map(|line| line.strip_prefix("doc: &doc ")).unwrap_or_default();
        for line in text.lines().filter(|line| line.starts_with("  ")) {
            let (id, _) = line.trim_start().split_once(':').unwrap();
            let alone = format!("matching:\n{}\n", line.replace("*doc", document));
            assert!(all.insert(id.to_owned(), alone).is_none(), "{id} is there twice");
        }
    }
    all
}

fn load_recorded() -> Map<String, Value> {
    let text = fs::read_to_string(folder().join("answers.json")).unwrap();
    let Value::Object(mut all) = serde_json::from_str(&text).unwrap() else { panic!() };
    let Some(Value::Object(answers)) = all.remove("answers") else { panic!() };
    answers
}

/// remoor's answer in goss's terms: an assertion that cannot be loaded or evaluated is `error`.
fn answer(text: &str) -> Value {
    let Ok(checks) = parse("f.yml", &"s".into(), text) else { return result_object("error") };
    let world = World::new(&checks, Duration::ZERO);
    let answers = ask(&ProbeContext { check: &checks[0], world: &world, limit: Duration::ZERO, now: Wall(0) });
    let value = answers.get("matches").cloned().unwrap().unwrap();
    let matcher = &checks[0].assertions[0].matcher;
    let result = matcher.matches(&value);
    let state = super::super::run(&checks, &CheckRunOptions::with_defaults(Wall(0))).remove(0).state;
    assert_eq!(state == CheckState::Pass, result == Ok(true));
    match result {
        Ok(true) => result_object("pass"),
        Err(_) => result_object("error"),
        Ok(false) => {
            let why = matcher.explain(&value);
            let mut answer = result_object("fail");
            answer["message"] = why.message.into();
            answer["expected"] = why.expected;
            answer["actual"] = why.actual;
            for (name, values) in [
                ("missing", why.missing),
                ("found", why.found.unwrap_or_default()),
                ("extra", why.extra),
                ("transforms", why.transforms),
            ] {
                answer[name] = values.into();
            }
            answer
        }
    }
}

fn result_object(result: &str) -> Value {
    serde_json::json!({"result": result})
}

/// Removes the differences between 5 and 5.0, and between null and an empty list.
fn normalize(value: &Value) -> Value {
    match value {
        Value::Number(n) => n.as_f64().and_then(Number::from_f64).map_or(Value::Null, Value::Number),
        Value::Array(items) => items.iter().map(normalize).collect(),
        Value::Object(map) => {
            let there = |v: &Value| *v != Value::Null && *v != Value::Array(Vec::new());
            map.iter().map(|(k, v)| (k.clone(), normalize(v))).filter(|(_, v)| there(v)).collect()
        }
        other => other.clone(),
    }
}

#[test]
fn each_answer_is_that_of_goss() {
    let (assertions, recorded) = (assertions(), load_recorded());
    assert!(
        assertions.keys().eq(recorded.keys().collect::<std::collections::BTreeSet<_>>()),
        "record the answers again"
    );
    assert!(assertions.len() >= 300);
    let mut differ = String::new();
    for (id, text) in &assertions {
        let (ours, theirs) = (normalize(&answer(text)), normalize(&recorded[id]));
        match DEPARTURES.iter().find(|(departure, ..)| departure == id) {
            Some((_, result, _)) => {
                assert_eq!(ours["result"], *result, "{id}");
                assert_ne!(theirs["result"], *result, "{id} is no departure");
            }
            None if ours != theirs => differ += &format!("{text}  ours {ours}\n  goss {theirs}\n"),
            None => {}
        }
    }
    assert!(differ.is_empty(), "{differ}");
    let unknown: Vec<_> = DEPARTURES.iter().filter(|(id, ..)| !assertions.contains_key(*id)).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
}

#[test]
fn the_recorded_answers_are_those_of_the_goss_on_path() {
    let recorded = load_recorded();
    for file in files() {
        let Ok(output) = Command::new("goss").arg("-g").arg(&file).args(["validate", "-f", "json"]).output() else {
            eprintln!("SKIPPED: GOSS IS NOT ON THE PATH, SO THE RECORDED ANSWERS WERE NOT COMPARED WITH IT");
            return;
        };
        let all: Value = serde_json::from_slice(&output.stdout).unwrap();
        for said in all["results"].as_array().unwrap() {
            let id = said["resource-id"].as_str().unwrap();
            let result = match (said["result"].as_u64(), &said["err"]) {
                (Some(0), _) => "pass",
                (_, Value::Null) => "fail",
                _ => "error",
            };
            assert_eq!(recorded[id]["result"], result, "{id}");
        }
    }
}
