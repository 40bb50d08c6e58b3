//! Renders a check file with Tera or Go templates, and decides whether the file applies to a node.
//! Uses no clock, no files and no environment.

use super::go_template::{self, Outside};
use super::header::{Header, Template};
use super::missing_vars;
use remoor_host::template::{self as tera_template, LIMIT_HINT, TemplateError, new_engine};
use remoor_model::{Fault, did_you_mean};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

/// The names that a template may use.
pub(super) const NAMES: [&str; 4] = ["node", "vars", "peers", "expected"];
const WHEN: &str = "when";

/// Whether a check file applies to a node, and if not, the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Applies {
    Yes,
    /// `roles` contains neither the node's group nor its cluster role.
    OtherRole,
    /// The condition `when` of the file is false.
    WhenFalse,
}

/// Whether the file applies to a node. `cluster_role` is `manager` or `worker`; `context` is as for
/// [`render`]. Err if `when` cannot be evaluated.
pub fn applies(
    file: &str,
    header: &Header,
    group: &str,
    cluster_role: &str,
    context: &Map<String, Value>,
) -> Result<Applies, Vec<Fault>> {
    if !header.roles.is_empty() && !header.roles.iter().any(|role| role == group || role == cluster_role) {
        return Ok(Applies::OtherRole);
    }
    let Some(when) = &header.when else { return Ok(Applies::Yes) };
    let text = format!("{{% if {when} %}}true{{% endif %}}");
    let absent = missing_vars::faults(file, &text, context);
    if !absent.is_empty() {
        return Err(absent
            .into_iter()
            .map(|f| Fault { line: 0, message: format!("when: {}", f.message), ..f })
            .collect());
    }
    let rendered = tera(&text, header, context).map_err(|e| {
        let told = fault(file, &text, &e);
        vec![Fault { line: 0, column: 0, message: format!("when: {}", told.message), ..told }]
    })?;
    Ok(if rendered == "true" { Applies::Yes } else { Applies::WhenFalse })
}

/// Renders the goss text for one node. `context` contains `node`, `vars`, `peers` and `expected`;
/// the header's `vars` supply defaults for `vars`. A Go template sees only `vars`, no environment
/// and no files.
///
/// An undefined name is a fault. The exception is an undefined field of a defined value in the
/// condition of an `if`, which Tera takes for false.
pub fn render(
    file: &str,
    header: &Header,
    goss_text: &str,
    context: &Map<String, Value>,
) -> Result<String, Vec<Fault>> {
    match header.template {
        Template::None => Ok(goss_text.to_owned()),
        Template::Go => {
            let read = |_: &str| Err("a check file of a fleet cannot read files".to_owned());
            let outside = Outside { env: &BTreeMap::new(), read: &read };
            go_template::render(file, goss_text, &merged_vars(header, context), &outside).map_err(|fault| vec![fault])
        }
        Template::Tera => {
            let absent = missing_vars::faults(file, goss_text, context);
            if !absent.is_empty() {
                return Err(absent);
            }
            let rendered = tera(goss_text, header, context).map_err(|e| vec![fault(file, goss_text, &e)])?;
            let unknown = unknown_names(file, goss_text);
            if unknown.is_empty() { Ok(rendered) } else { Err(unknown) }
        }
    }
}

/// The header's variables, overridden by those of the context.
pub fn merged_vars(header: &Header, context: &Map<String, Value>) -> Map<String, Value> {
    let mut vars = header.vars.clone();
    if let Some(Value::Object(given)) = context.get("vars") {
        vars.extend(given.clone());
    }
    vars
}

fn tera(text: &str, header: &Header, context: &Map<String, Value>) -> Result<String, TemplateError> {
    let mut values: Map<String, Value> = NAMES
        .into_iter()
        .map(|name| (name.to_owned(), context.get(name).cloned().unwrap_or_else(|| Value::Object(Map::new()))))
        .collect();
    values.insert("vars".to_owned(), Value::Object(merged_vars(header, context)));
    tera_template::render(text, &values)
}

/// Faults for unknown names that rendering did not report, because Tera takes them for false in a
/// condition.
fn unknown_names(file: &str, text: &str) -> Vec<Fault> {
    let used = variables(text).unwrap_or_default();
    let set: BTreeSet<&str> = text.split("{%").skip(1).filter_map(set_name).collect();
    let unknown = used.into_iter().filter(|name| !NAMES.contains(&name.as_str()) && !set.contains(name.as_str()));
    unknown
        .map(|name| {
            let fault = Fault::error(file, first_line_with(text, &name), 1, format!("unknown name `{name}`"));
            let known = NAMES.into_iter().chain(set.iter().copied());
            fault.hint(did_you_mean(&name, known).unwrap_or_else(|| format!("known: {}", NAMES.join(", "))))
        })
        .collect()
}

/// Names that a template uses. None if it is not a valid template.
pub(super) fn variables(text: &str) -> Option<BTreeSet<String>> {
    let mut tera = new_engine();
    tera.add_raw_template(WHEN, text).ok()?;
    Some(tera.get_template_variables(WHEN).ok()?.into_iter().map(str::to_owned).collect())
}

/// The first line, from 1, that contains `name` as a whole word; 1 if there is none.
pub(super) fn first_line_with(text: &str, name: &str) -> u32 {
    let word = |c: char| c.is_alphanumeric() || c == '_';
    let line = text.lines().position(|line| line.split(|c| !word(c)).any(|part| part == name)).unwrap_or(0);
    u32::try_from(line + 1).unwrap_or(u32::MAX)
}

/// The name that a `set` tag assigns. `tag` is the text after its `{%`.
fn set_name(tag: &str) -> Option<&str> {
    let mut words =
        tag.trim_start_matches('-').split(|c: char| c.is_whitespace() || c == '=').filter(|w| !w.is_empty());
    words.next().filter(|word| matches!(*word, "set" | "set_global"))?;
    words.next()
}

fn fault(file: &str, text: &str, error: &TemplateError) -> Fault {
    let at = match error {
        TemplateError::Syntax { place, .. } | TemplateError::Rendering { place, .. } => place,
        TemplateError::Limit { text } => return Fault::error(file, 0, 0, text).hint(LIMIT_HINT),
        TemplateError::Other { text } => return plain_fault(file, text),
    };
    let place = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    let (line, column) = (at.line, at.column);
    let fault = Fault::error(file, place(line), place(column + 1), &at.message);
    let source = text.lines().nth(line.saturating_sub(1)).unwrap_or_default();
    let before: String = source.chars().take(column).collect();
    let calls = before.rfind('(').is_some_and(|at| before[..at].ends_with(char::is_alphanumeric));
    if matches!(error, TemplateError::Syntax { .. }) && calls && !before.trim_end().ends_with('=') {
        fault.hint("Tera takes arguments by name only: `replace(from=\"a\", to=\"b\")`, `default(value=\"x\")`")
    } else if at.message.contains("is not defined") {
        fault.hint("add `| default(value=...)` where it may be missing")
    } else {
        fault
    }
}

/// Reads the position from an error's text: the message, then a line `--> name:line:column`.
fn plain_fault(file: &str, text: &str) -> Fault {
    let message = text.lines().next().unwrap_or_default();
    let message = message.strip_prefix("error: ").unwrap_or(message);
    let place = text.lines().nth(1).and_then(|line| line.split_once("--> ")).map_or("", |(_, place)| place);
    let mut numbers = place.rsplit(':').map(|n| n.trim().parse().unwrap_or(0));
    let (column, line) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    Fault::error(file, line, column, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;
    use serde_json::json;

    fn context() -> Map<String, Value> {
        let value = json!({
            "node": {"name": "w1", "group": "web", "facts": {"cpus": 2}},
            "vars": {"port": 80},
            "peers": [],
            "expected": {"/etc/a": {"sha256": "ab"}},
        });
        value.as_object().unwrap().clone()
    }

    fn header(vars: Value) -> Header {
        Header { vars: vars.as_object().unwrap().clone(), ..Header::default() }
    }

    fn render_example(text: &str) -> String {
        match render("f.yml", &header(json!({"port": 1, "other": "<a & b>"})), text, &context()) {
            Ok(text) => text,
            Err(faults) => faults.iter().map(|fault| format!("{fault}\n")).collect(),
        }
    }

    #[test]
    fn the_inventory_wins_over_the_file_and_nothing_is_escaped() {
        assert_eq!(render_example("{{ vars.port }} {{ vars.other }} {{ expected['/etc/a'].sha256 }}"), "80 <a & b> ab");
    }

    #[test]
    fn faults_name_the_line() {
        expect![[r#"
            f.yml:2:12: Field `prot` is not defined. Available fields: other, port
              hint: add `| default(value=...)` where it may be missing
        "#]]
        .assert_eq(&render_example("a: 1\nb: {{ vars.prot }}\n"));
        expect![[r#"
            f.yml:3:7: Variable `nod` is not defined. Available variables: expected, node, peers, vars
              hint: add `| default(value=...)` where it may be missing
        "#]]
        .assert_eq(&render_example("a: 1\n\nb: {{ nod.name }}\n"));
        expect![[r#"
            f.yml:1:15: Field `x` is not defined. Available fields: other, port
              hint: add `| default(value=...)` where it may be missing
        "#]]
        .assert_eq(&render_example("a: {% if vars.x.y %}{% endif %}\n"));
        expect![[r#"
            f.yml:1:24: Found string but expected identifier.
              hint: Tera takes arguments by name only: `replace(from="a", to="b")`, `default(value="x")`
        "#]]
        .assert_eq(&render_example("{{ node.name | replace(\"a\", \"b\") }}"));
        expect![[r#"
            f.yml:2:1: Unexpected end of input
        "#]]
        .assert_eq(&render_example("{% if node.name %}\n"));
        expect![[r#"
            f.yml:1:4: Unknown function `now`
        "#]]
        .assert_eq(&render_example("{{ now() }}"));
        expect![[r#"
            f.yml:1:4: Field `sha256` is not defined
              hint: add `| default(value=...)` where it may be missing
        "#]]
        .assert_eq(&render_example("{{ expected['/etc/b'].sha256 }}"));
    }

    #[test]
    fn a_misspelt_name_in_a_condition_is_no_silent_false() {
        let text = "{% set proxy = true %}{%- set_global other=1 %}\n{% for p in peers %}{{ p }}{% endfor %}\n{% if prxy %}a{% endif %}{% if other %}b{% endif %}";
        expect![[r#"
            f.yml:3:1: unknown name `prxy`
              hint: did you mean `proxy`?
        "#]]
        .assert_eq(&render_example(text));
        assert_eq!(render_example(&text.replace("prxy", "proxy")), "\n\nab");
    }

    #[test]
    fn roles_take_groups_and_cluster_roles() {
        let ask = |roles: &[&str], when: Option<&str>| {
            let roles = roles.iter().map(|r| r.to_string()).collect();
            let header = Header { roles, when: when.map(str::to_owned), ..Header::default() };
            applies("f.yml", &header, "web", "manager", &context())
        };
        assert_eq!(ask(&[], None), Ok(Applies::Yes));
        assert_eq!(ask(&["db", "web"], None), Ok(Applies::Yes));
        assert_eq!(ask(&["manager"], None), Ok(Applies::Yes));
        assert_eq!(ask(&["worker"], None), Ok(Applies::OtherRole));
        assert_eq!(ask(&["web"], Some("node.facts.cpus > 1")), Ok(Applies::Yes));
        assert_eq!(ask(&["web"], Some("node.facts.cpus > 2")), Ok(Applies::WhenFalse));
        expect!["f.yml: when: Found `%}` but expected one of: integer, float, string, bool, ident, `-`, `not`, `<`, `{`, `[` or `(`"].assert_eq(&ask(&[], Some("node.facts.cpus >")).unwrap_err()[0].to_string());
    }
}
