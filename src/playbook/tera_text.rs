//! `.tera` templates: Tera 2, no escaping, the same variables.

use super::expr;
use super::scope::Scope;
use std::error::Error as _;
use tera::{Context, Kwargs, State, Tera};

fn engine() -> Tera {
    let mut tera = Tera::new();
    tera.autoescape_on(Vec::<&'static str>::new());
    tera.register_filter("to_json", |v: &tera::Value, _: Kwargs, _: &State| {
        serde_json::to_string(v).map_err(tera::Error::message)
    });
    tera
}

/// Syntax, filters and tests; the error is (line, column, message), with Tera's spelling of Jinja's habits as a help.
pub fn check(text: &str) -> Result<(), (u32, u32, String)> {
    engine().add_raw_template("template", text).map_err(|e| describe(&e))
}

fn describe(error: &tera::Error) -> (u32, u32, String) {
    let mut message = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        message = format!("{message}: {inner}");
        source = inner.source();
    }
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

/// `replace(from=".", to="-")` for what stands at this place as `replace(".", "-")`; Tera takes arguments by name only.
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
        return None; // named already, and wrong in another way
    }
    // A comma inside a text is no end of an argument: then only the form is shown.
    let spelled = (!known.is_empty() && given.len() <= known.len())
        .then(|| known.iter().zip(&given).map(|(k, g)| format!("{k}={g}")).collect::<Vec<_>>().join(", "));
    Some(match spelled {
        Some(arguments) => format!("Tera takes arguments by name only: `{name}({arguments})`"),
        None => format!("Tera takes arguments by name only: `{name}(name=value)`"),
    })
}

/// Renders a template with the variables of a scope that it names; the error is (line, column, message).
pub fn render(scope: &Scope, text: &str) -> Result<String, (u32, u32, String)> {
    let mut tera = engine();
    let fail = describe;
    tera.add_raw_template("template", text).map_err(|e| fail(&e))?;
    let mut context = Context::new();
    let names: Vec<String> = tera
        .get_template_variables("template")
        .map_err(|e| fail(&e))?
        .into_iter()
        .map(|n| n.split('.').next().unwrap_or(n).to_owned())
        .collect();
    for name in names {
        if scope.get(&name).is_some() {
            let value =
                expr::eval(scope, &name).and_then(|v| expr::to_json(&v)).map_err(|e| (0, 0, expr::explain(&e)))?;
            context.insert(name, &value);
        }
    }
    tera.render("template", &context).map_err(|e| fail(&e))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::playbook::data::VarMap;
    use std::sync::Arc;

    #[test]
    fn renders_without_escaping_and_places_mistakes() {
        let vars = serde_json::json!({"a": {"b": "<x>"}, "c": "{{ a.b }}!"});
        let vars = VarMap::trusted(vars.as_object().unwrap());
        let scope = Scope::new(vec![Arc::new(vars)], Default::default());
        assert_eq!(render(&scope, "{{ a.b }} {{ c }}\n").unwrap(), "<x> <x>!\n");
        let (line, _, message) = render(&scope, "ok\n{{ missing }}\n").unwrap_err();
        assert!(line == 2 && message.contains("missing"), "{line}: {message}");
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
