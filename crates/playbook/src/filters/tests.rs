//! Evaluates the templates of `tests/ansible/expressions.txt`, one in each line. Compares each
//! result with that of Ansible's own templar, or with the documented difference.

use super::*;
use crate::template::expr;
use crate::vars::scope::ExprScope;
use crate::vars::var_map::VarMap;
use serde_json::Value as Json;
use std::path::PathBuf;
use std::sync::Arc;

fn table(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/ansible").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn scope() -> ExprScope {
    let (node, _) = crate::lang::yaml::parse("vars.yml", &table("vars.yml")).unwrap();
    let Json::Object(vars) = node.json() else { panic!("vars.yml is a map") };
    ExprScope::new(vec![Arc::new(VarMap::from_trusted(&vars))], Default::default())
}

/// The result of remoor for one line of `tests/ansible/expressions.txt`.
fn evaluate_line(scope: &ExprScope, line: &str) -> Result<Json, String> {
    let text = line.replace('↵', "\n");
    let told = |e: Error| expr::explain(&e);
    if let Some(text) = text.strip_prefix("[file] ") {
        expr::check_template(text, &PluginUses::new()).map_err(told)?;
        return expr::render(scope, "t", text, &Default::default()).map(Json::from).map_err(told);
    }
    if let Some(text) = text.strip_prefix("[when] ") {
        expr::check_expression(text, &PluginUses::new()).map_err(told)?;
        return expr::truth(scope, text).map(Json::from).map_err(told);
    }
    expr::check_template(&text, &PluginUses::new()).map_err(told)?;
    expr::native(scope, &text).and_then(|v| expr::to_json(&v)).map_err(told)
}

#[test]
fn expressions_give_ansibles_results() {
    let (scope, answers) = (scope(), table("answers.json"));
    // JSON can represent all numbers in the recorded results.
    let answers: Json = serde_json::from_str(&answers).unwrap();
    let (mut faults, mut asked, mut failing) = (Vec::new(), 0, 0);
    let table = table("expressions.txt");
    let mut lines = table.lines().filter(|l| !l.is_empty() && !l.starts_with('#')).peekable();
    while let Some(line) = lines.next() {
        let own = lines.next_if(|l| l.starts_with(' ')).map(|l| l.trim().strip_prefix("differs: ").expect("differs:"));
        let answer = answers["answers"].get(line).unwrap_or_else(|| panic!("not recorded: {line}"));
        let theirs = answer.get("is").cloned();
        let want = match own {
            None => theirs.clone(),
            Some(own) => {
                let mut values = serde_json::Deserializer::from_str(own).into_iter::<Json>();
                let want = values.next().expect("what it is").expect("JSON");
                assert!(!own[values.byte_offset()..].trim().is_empty(), "no reason: {line}");
                (want != "error").then_some(want)
            }
        };
        assert!(own.is_none() || want != theirs, "no longer differs: {line}");
        let got = evaluate_line(&scope, line);
        asked += 1;
        failing += usize::from(want.is_none());
        if got.as_ref().ok() != want.as_ref() {
            let want = want.map_or_else(|| format!("an error, as {}", answer["error"]), |w| w.to_string());
            let got = got.map_or_else(|e| format!("error: {e}"), |g| g.to_string());
            faults.push(format!("{line}\n  want {want}\n  got  {got}"));
        }
    }
    assert!(faults.is_empty(), "{} of {asked}\n{}", faults.len(), faults.join("\n"));
    assert!(asked > 400 && failing > 60, "{asked} expressions, {failing} failing");
}

#[test]
fn the_error_of_an_undefined_item_names_the_variable() {
    let Json::Object(vars) = serde_json::json!({"parts": ["a", "{{ nowhere }}"]}) else { panic!("a map") };
    let scope = ExprScope::new(vec![Arc::new(VarMap::from_trusted(&vars))], Default::default());
    for text in ["{{ parts | join }}", "{{ parts | map('upper') | join }}", "{{ [parts] }}", "{{ {'a': parts} }}"] {
        let error = expr::explain(&expr::render_json(&scope, &text.into()).unwrap_err());
        assert!(error.contains("`nowhere` is undefined"), "{text}: {error}");
    }
}

#[test]
fn an_endless_template_is_stopped() {
    let endless = "{% for i in range(9999) %}{% for j in range(9999) %}{{ j }}{% endfor %}{% endfor %}";
    let error = expr::render(&scope(), "t", endless, &Default::default()).unwrap_err();
    assert!(expr::explain(&error).contains("too long"), "{}", expr::explain(&error));
}

#[test]
fn filter_names_are_unique_and_not_refused() {
    let mut names: Vec<&str> = all_filters().map(|f| f.name).collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
    let refused: Vec<&str> = REFUSED.iter().map(|(name, _)| *name).filter(|name| names.contains(name)).collect();
    assert!(refused.is_empty(), "{refused:?}");
    for name in ["defualt", "regex_replac"] {
        let error = check_names(&format!("{{{{ x | {name} }}}}"), &PluginUses::new()).unwrap_err();
        assert!(expr::explain(&error).contains("did you mean"), "{}", expr::explain(&error));
    }
}
