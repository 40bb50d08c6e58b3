//! `.tera` templates: Tera 2 without escaping, with the same variables as `.j2` templates.

use crate::template::expr;
use crate::template::template_fault::TemplateFault;
use crate::vars::scope::{ExprScope, with_trace};
use remoor_host::template::{self as tera_template, LIMIT_HINT, TemplateError, new_engine};
use serde_json::Map;
use std::collections::BTreeSet;

/// Checks syntax, filters and tests. The error is (line, column, message).
pub fn check(text: &str) -> Result<(), (u32, u32, String)> {
    new_engine().add_raw_template("template", text).map_err(|e| describe(TemplateError::of_tera(&e).text()))
}

/// Splits the text of a Tera error into line, column and message.
fn describe(message: &str) -> (u32, u32, String) {
    let place = message.lines().find_map(|line| {
        let at = line.split_once("-->")?.1.trim().trim_start_matches('[').trim_end_matches(']');
        let mut numbers = at.rsplit(':').filter_map(|n| n.trim().parse::<u32>().ok());
        let column = numbers.next()?;
        Some((numbers.next()?, column))
    });
    let (line, column) = place.unwrap_or((0, 0));
    let first = message.lines().find(|l| !l.trim().is_empty()).unwrap_or("syntax error").trim();
    let last = message
        .lines()
        .rev()
        .find_map(|l| l.split_once('^').map(|(_, text)| text.trim_start_matches(['^', ' ']).to_owned()));
    let detail = match last {
        Some(text) if !text.is_empty() && !first.contains(&text) => format!("{first}: {text}"),
        _ => first.to_owned(),
    };
    (line, column, format!("template (Tera): {detail}"))
}

/// Suggests `replace(from=".", to="-")` if the call at this position is `replace(".", "-")`,
/// because Tera takes only named arguments.
pub fn named_arguments(text: &str, line: u32, column: u32) -> Option<String> {
    let source = text.lines().nth((line as usize).checked_sub(1)?)?;
    let before: String = source.chars().take(column as usize).collect();
    let open = before.rfind('(')?;
    let head = before[..open].trim_end();
    let name = &head[head.rfind(|c: char| !(c.is_alphanumeric() || c == '_')).map_or(0, |at| at + 1)..];
    if name.is_empty() || before[open..].trim_end().ends_with('=') {
        return None;
    }
    let rest = &source[open + 1..];
    let given: Vec<&str> = rest[..rest.find(')')?].split(',').map(str::trim).collect();
    let known: &[&str] = match name {
        "replace" => &["from", "to"],
        "default" => &["value"],
        "join" => &["sep"],
        "split" => &["pat"],
        "truncate" => &["length"],
        "round" => &["method", "precision"],
        _ => &[],
    };
    if given.iter().any(|g| g.contains('=') && !g.starts_with(['"', '\''])) {
        return None; // the arguments are named, so the error has another cause
    }
    // `given` is also split at commas inside quotes. There are then too many arguments, and the
    // hint shows only the general form.
    let spelled = (!known.is_empty() && given.len() <= known.len())
        .then(|| known.iter().zip(&given).map(|(k, g)| format!("{k}={g}")).collect::<Vec<_>>().join(", "));
    Some(match spelled {
        Some(arguments) => format!("Tera takes arguments by name only: `{name}({arguments})`"),
        None => format!("Tera takes arguments by name only: `{name}(name=value)`"),
    })
}

/// Names that a template reads and does not set itself. Empty if the text is not a valid template.
pub fn names_read(text: &str) -> BTreeSet<String> {
    let mut tera = new_engine();
    if tera.add_raw_template("template", text).is_err() {
        return BTreeSet::new();
    }
    let names = tera.get_template_variables("template").unwrap_or_default();
    names.into_iter().map(|name| name.split('.').next().unwrap_or(name).to_owned()).collect()
}

/// Renders a template from the file `path` with the variables of `scope` that it reads.
pub fn render(scope: &ExprScope, path: &str, text: &str) -> Result<String, TemplateFault> {
    let mut variables = Map::new();
    let mut unknown = None;
    for name in names_read(text) {
        if scope.get(&name).is_some() {
            let (value, trace) = with_trace(|| expr::eval(scope, &name).and_then(|v| expr::to_json(&v)));
            let value = value.map_err(|e| TemplateFault::of_jinja(path, text, &e, &trace, scope))?;
            variables.insert(name, value);
        } else if scope.asks_a_run(&name) {
            unknown = Some(name);
        }
    }
    let rendered = tera_template::render(text, &variables).map_err(|e| fault(path, text, &e, scope))?;
    match unknown {
        None => Ok(rendered),
        // Tera treats the unknown name as false in a condition, and `default` replaces it. So the
        // text could differ from the text of a run.
        Some(name) => {
            let message = format!("`{name}` is known only during a run");
            Err(TemplateFault { path: path.to_owned(), message, ..TemplateFault::default() })
        }
    }
}

/// Converts an error of Tera. If the name at the position of the error has no value, the new error
/// is about that variable.
fn fault(path: &str, text: &str, error: &TemplateError, scope: &ExprScope) -> TemplateFault {
    let (line, column, message) = describe(error.text());
    let mut out = TemplateFault { path: path.to_owned(), line, column, message, ..TemplateFault::default() };
    out.hint = named_arguments(text, line, column);
    let place = match error {
        TemplateError::Rendering { place, .. } => place,
        TemplateError::Limit { .. } => {
            out.hint = Some(LIMIT_HINT.to_owned());
            return out;
        }
        TemplateError::Syntax { .. } | TemplateError::Other { .. } => return out,
    };
    out.line = u32::try_from(place.line).unwrap_or(0);
    out.column = u32::try_from(place.column + 1).unwrap_or(0);
    let is_word = |c: char| c.is_alphanumeric() || c == '_' || c == '.';
    // For `a.b`, Tera may report the position of `b`, but the variable's name begins with `a`.
    let from = text[..place.start.min(text.len())].rfind(|c| !is_word(c)).map_or(0, |at| at + 1);
    let read = text.get(from..).unwrap_or_default();
    let read = &read[..read.find(|c| !is_word(c)).unwrap_or(read.len())];
    let mut parts = read.split('.').filter(|part| !part.is_empty());
    let Some(root) = parts.next().filter(|root| root.starts_with(|c: char| c.is_alphabetic() || c == '_')) else {
        return out;
    };
    let local = !names_read(text).contains(root);
    let mut value = match expr::eval(scope, root) {
        Ok(value) => Some(value).filter(|value| !value.is_undefined()),
        Err(_) => None,
    };
    let mut name = root.to_owned();
    for part in parts {
        let Some(known) = value else { break };
        name = format!("{name}.{part}");
        value = known.get_attr(part).ok().filter(|value| !value.is_undefined());
    }
    if value.is_none() && !local {
        out.undefined = true;
        out.variable = Some(name);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vars::var_map::VarMap;
    use std::sync::Arc;

    #[test]
    fn renders_without_escaping_and_places_mistakes() {
        let vars = serde_json::json!({"a": {"b": "<x>"}, "c": "{{ a.b }}!"});
        let vars = VarMap::from_trusted(vars.as_object().unwrap());
        let scope = ExprScope::new(vec![Arc::new(vars)], Default::default());
        let render = |text: &str| render(&scope, "t.tera", text);
        assert_eq!(render("{{ a.b }} {{ c }}\n").unwrap(), "<x> <x>!\n");
        for (text, name, column) in [("ok\n {{ missing }}\n", "missing", 5), ("\n{{ a.bb }}", "a.bb", 6)] {
            let fault = render(text).unwrap_err();
            let at = (fault.line, fault.column, fault.variable.as_deref(), fault.undefined);
            assert_eq!(at, (2, column, Some(name), true), "{fault:?}");
        }
        let endless =
            "{% for i in range(end=100000) %}{% for j in range(end=100000) %}0123456789{% endfor %}{% endfor %}";
        let fault = render(endless).unwrap_err();
        assert!(fault.message.contains("longer than 16777216 bytes"), "{fault:?}");
        let (line, _, message) = check("ok\n{{ a | nope }}\n").unwrap_err();
        assert_eq!(line, 2, "{message}");
    }

    #[test]
    fn positional_arguments_are_answered_with_the_right_spelling() {
        for (text, hint) in [
            ("a\n{{ x | replace(\".\", \"-\") }}\n", "`replace(from=\".\", to=\"-\")`"),
            ("{{ x | default('y') }}", "`default(value='y')`"),
            ("{{ x | nofilter(1) }}", "`nofilter(name=value)`"),
        ] {
            let (line, column, message) = check(text).unwrap_err();
            let told = named_arguments(text, line, column).unwrap_or_default();
            assert!(told.contains(hint), "{text}: {told} ({line}:{column}: {message})");
        }
        let (line, column, _) = check("{{ x | default(value=) }}").unwrap_err();
        assert_eq!(named_arguments("{{ x | default(value=) }}", line, column), None);
    }
}
