//! Jinja2 expressions and templates by minijinja, set up to answer as Ansible's do.
//!
//! Strict about undefined names, bounded in work and output. Where a chain such as `a.b.c | default(1)` fails, it is tried
//! again with undefined values passed along it (`chain.rs`), as Ansible does; to use one is still an error.

use super::filters::{self, Undefined};
use super::scope::Scope;
use super::{bounds, chain, lint, python};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::ValueKind;
use minijinja::{Environment, Error, ErrorKind, UndefinedBehavior, Value};
use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, LazyLock};

/// Instructions per evaluation.
const FUEL: u64 = 2_000_000;

static STRICT: LazyLock<Environment<'static>> = LazyLock::new(|| environment(Named::No, Undefined::Fails));
/// For texts that `chain` wrote anew.
static CHAIN: LazyLock<Environment<'static>> = LazyLock::new(|| environment(Named::No, Undefined::Passes));
/// Says which name is undefined, at the price of rendering every variable in sight: only for what failed already.
static NAMED: LazyLock<Environment<'static>> = LazyLock::new(|| environment(Named::Yes, Undefined::Fails));

thread_local! {
    /// The first values that each template under way printed, at most two.
    static PRINTED: RefCell<Vec<Vec<Value>>> = const { RefCell::new(Vec::new()) };
}

#[derive(PartialEq)]
enum Named {
    Yes,
    No,
}

fn environment(named: Named, undefined: Undefined) -> Environment<'static> {
    let mut env = Environment::new();
    env.set_undefined_behavior(UndefinedBehavior::Strict);
    env.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    env.set_unknown_method_callback(move |state, value, method, args| {
        filters::call_method(undefined, state, value, method, args)
    });
    env.set_fuel(Some(FUEL));
    env.set_recursion_limit(100);
    env.set_debug(named == Named::Yes);
    if let Ok(syntax) = SyntaxConfig::builder().trim_blocks(true).keep_trailing_newline(true).build() {
        env.set_syntax(syntax);
    }
    env.add_function(chain::STEP, chain::step);
    env.set_formatter(|out, _, value| {
        // Only what an `if` without `else` leaves comes here undefined.
        if value.is_undefined() {
            return Ok(());
        }
        PRINTED.with_borrow_mut(|frames| {
            if let Some(frame) = frames.last_mut() {
                frame.push(value.clone());
                frame.truncate(2);
            }
        });
        if value.is_none() {
            return Ok(());
        }
        let text =
            value.as_str().map_or_else(|| python::text(value).map(Cow::Owned), |text| Ok(Cow::Borrowed(text)))?;
        bounds::print(&text)?;
        out.write_str(&text).map_err(Error::from)
    });
    filters::register(&mut env, undefined);
    bounds::register(&mut env);
    env
}

/// One line that says what is wrong, without the engine's file names.
pub fn explain(error: &Error) -> String {
    if let Some(circle) = circle(error) {
        return format!("templates include each other without an end: {circle}");
    }
    let mut text = match (error.kind(), error.detail()) {
        (ErrorKind::UndefinedError, Some(detail)) => detail.to_owned(),
        (ErrorKind::UndefinedError, None) => "a value is undefined".to_owned(),
        (ErrorKind::OutOfFuel, _) => "the template runs too long".to_owned(),
        (ErrorKind::InvalidOperation, Some(detail)) => detail.to_owned(),
        (kind, Some(detail)) => format!("{kind}: {detail}"),
        (kind, None) => kind.to_string(),
    };
    let mut source = std::error::Error::source(error);
    while let Some(inner) = source {
        if let Some(inner) = inner.downcast_ref::<Error>() {
            text = format!("{text}: {}", explain(inner));
            break;
        }
        text = format!("{text}: {inner}");
        source = inner.source();
    }
    text
}

/// Where one template includes another until the engine gives up: each with the line of its include, once round.
fn circle(error: &Error) -> Option<String> {
    let mut way: Vec<(&str, usize)> = Vec::new();
    let mut at = Some(error);
    while let Some(inner) = at.filter(|inner| inner.kind() == ErrorKind::BadInclude) {
        way.push((inner.name()?, inner.line()?));
        at = std::error::Error::source(inner).and_then(|source| source.downcast_ref());
    }
    let first = way
        .iter()
        .enumerate()
        .find_map(|(i, place)| Some((i, i + 1 + way[i + 1..].iter().position(|p| p == place)?)))?;
    let told: Vec<String> = way[first.0..=first.1].iter().map(|(name, line)| format!("{name}:{line}")).collect();
    Some(told.join(" -> "))
}

/// The value of an expression (no braces).
pub fn eval(scope: &Scope, text: &str) -> Result<Value, Error> {
    again_if_undefined(|env, chained| {
        let text = if chained { chain::expression(text) } else { text.to_owned() };
        bounds::value(env.compile_expression_owned(text)?.eval(scope.root())?)
    })
}

/// Tries strictly; where something was undefined, again with chains that may be (`attempt` is told so).
fn again_if_undefined<T>(attempt: impl Fn(&Environment<'static>, bool) -> Result<T, Error>) -> Result<T, Error> {
    attempt(&STRICT, false).or_else(|e| {
        if e.kind() != ErrorKind::UndefinedError {
            return Err(e);
        }
        // Variables in variables that all fail would double the work with each level.
        if super::scope::depth() < 6 {
            match attempt(&CHAIN, true) {
                Ok(value) => return Ok(value),
                // It got past what is undefined: what stopped it there is the matter.
                Err(then) if !matches!(then.kind(), ErrorKind::UndefinedError | ErrorKind::SyntaxError) => {
                    return Err(then);
                }
                Err(_) => {}
            }
        }
        if e.detail().is_none() { attempt(&NAMED, false) } else { Err(e) }
    })
}

/// A condition (`when`, `changed_when`, `until` ...).
pub fn truth(scope: &Scope, text: &str) -> Result<bool, Error> {
    let value = match inner_expression(text) {
        Some(_) => native(scope, text)?,
        None => eval(scope, text)?,
    };
    if value.is_undefined() {
        return Err(Error::new(ErrorKind::UndefinedError, format!("`{}` is undefined", text.trim())));
    }
    Ok(match value.as_str() {
        Some("False" | "false") => false,
        _ => value.is_true(),
    })
}

/// A text of a playbook or inventory with markup. Where nothing but one value is printed, that value with its type.
pub fn native(scope: &Scope, text: &str) -> Result<Value, Error> {
    let text = &*escaped(text);
    // A last line's end belongs to a text, and to nothing else.
    let body = text.strip_suffix('\n').unwrap_or(text);
    let alone = body.starts_with("{{") && body.ends_with("}}");
    if let Some(inner) = inner_expression(body).filter(|_| alone) {
        let value = eval(scope, inner)?;
        if value.is_undefined() {
            return Err(Error::new(ErrorKind::UndefinedError, format!("`{inner}` is undefined")));
        }
        return Ok(match value.as_str() {
            Some(own) if body != text => Value::from(format!("{own}\n")),
            _ => value,
        });
    }
    again_if_undefined(|env, chained| {
        let text = if chained { chain::template(text).into() } else { Cow::Borrowed(text) };
        PRINTED.with_borrow_mut(|frames| frames.push(Vec::new()));
        let out = bounds::counted(|| env.render_named_str("template", &bounds::keeping(&text), scope.root()));
        let printed = PRINTED.with_borrow_mut(Vec::pop).unwrap_or_default();
        let out = bounds::text(out?)?;
        match printed.as_slice() {
            [one] if one.as_str().is_none() && !one.is_none() && python::text(one)? == out => Ok(one.clone()),
            _ => Ok(Value::from(out)),
        }
    })
}

/// Backslashes in the quotes inside `{{ }}` doubled, as Ansible does with texts of YAML: what YAML left stands for itself.
fn escaped(text: &str) -> Cow<'_, str> {
    if !text.contains('\\') {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    let (mut rest, mut quote, mut inside) = (text, None, None);
    while let Some(c) = rest.chars().next() {
        match (inside, quote) {
            (None, _) => {
                inside = ["{{", "{%", "{#"].into_iter().find(|begin| rest.starts_with(begin));
            }
            (Some("{#"), _) if rest.starts_with("#}") => inside = None,
            (Some("{%"), None) if rest.starts_with("%}") => inside = None,
            (Some("{{"), None) if rest.starts_with("}}") => inside = None,
            (Some("{{" | "{%"), None) if matches!(c, '\'' | '"') => quote = Some(c),
            (Some(_), Some(open)) if c == open => quote = None,
            (Some(begin), Some(_)) if c == '\\' => {
                // The pair first: a quote behind a backslash does not end the text.
                let next = rest[1..].chars().next();
                let twice = begin == "{{";
                out.push_str(if twice { "\\\\" } else { "\\" });
                if let Some(next) = next {
                    out.push_str(if twice && next == '\\' { "\\\\" } else { "" });
                    if next != '\\' || !twice {
                        out.push_str(if twice && matches!(next, '\'' | '"') { "\\" } else { "" });
                        out.push(next);
                    }
                    rest = &rest[1 + next.len_utf8()..];
                    continue;
                }
                rest = &rest[1..];
                continue;
            }
            _ => {}
        }
        out.push(c);
        rest = &rest[c.len_utf8()..];
    }
    Cow::Owned(out)
}

/// What stands between the braces if the whole text is one `{{ }}`.
pub fn inner_expression(text: &str) -> Option<&str> {
    let inner = text.trim().strip_prefix("{{")?.strip_suffix("}}")?;
    let inner = inner.strip_prefix('-').unwrap_or(inner);
    let inner = inner.strip_suffix('-').unwrap_or(inner).trim();
    // `{{ a }} {{ b }}` has the same ends, and is no expression inside.
    STRICT.compile_expression_owned(inner.to_owned()).ok()?;
    Some(inner)
}

/// A template file to text. `parts` are the templates it may include, by the name used in it.
pub fn render(scope: &Scope, name: &str, text: &str, parts: &BTreeMap<String, Arc<str>>) -> Result<String, Error> {
    again_if_undefined(|base, chained| {
        let written = |text| {
            let text: Cow<str> = if chained { chain::template(text).into() } else { Cow::Borrowed(text) };
            bounds::keeping(&text).into_owned()
        };
        let mut own = Cow::Borrowed(base);
        for (part, source) in parts {
            own.to_mut().add_template_owned(part.clone(), written(source))?;
        }
        bounds::text(bounds::counted(|| own.render_named_str(name, &written(text), scope.root()))?)
    })
}

/// Whether the engine itself has a function of this name.
pub fn is_function(name: &str) -> bool {
    STRICT.globals().any(|(own, _)| own == name)
}

/// Names that a template reads and does not set itself; none where it is no template.
pub fn names_read(text: &str) -> BTreeSet<String> {
    let Ok(template) = STRICT.template_from_named_str("template", text) else { return BTreeSet::new() };
    template.undeclared_variables(false).into_iter().filter(|name| !is_function(name)).collect()
}

/// Syntax, filter and test names of an expression; nothing is evaluated. The error's line counts within `text`.
pub fn check_expression(text: &str) -> Result<(), Error> {
    let (text, markup) = (text.trim(), super::data::has_markup(text));
    if markup {
        return check_template(text);
    }
    STRICT.compile_expression_owned(text.to_owned())?;
    filters::check_names(&format!("{{{{ {text} }}}}"))
}

/// Syntax, filter and test names of a template.
pub fn check_template(text: &str) -> Result<(), Error> {
    STRICT.template_from_named_str("template", text)?;
    filters::check_names(text)
}

/// Where in a template the error is that [`check_template`] gave of it: line and column, from 1.
pub fn place_of(error: &Error, template: &str) -> (u32, u32) {
    if let Some(line) = error.line() {
        return (u32::try_from(line).unwrap_or(u32::MAX), 1);
    }
    // A name has no line: it is that of the markup which is refused for it alone.
    let mut offset = 0;
    for part in lint::parts(template) {
        if filters::check_names(part.whole).is_err_and(|own| own.detail() == error.detail()) {
            return lint::place(template, offset);
        }
        offset += part.whole.len();
    }
    (1, 1)
}

/// Lists and maps inside of each other.
const NESTED_MAX: usize = 64;

/// A value as JSON; undefined and failing parts are errors. Keys of maps become texts.
pub fn to_json(value: &Value) -> Result<serde_json::Value, Error> {
    json_at(value, 0)
}

fn json_at(value: &Value, depth: usize) -> Result<serde_json::Value, Error> {
    use serde_json::Value as Json;
    if depth > NESTED_MAX {
        return Err(Error::new(ErrorKind::InvalidOperation, format!("over {NESTED_MAX} lists or maps deep")));
    }
    Ok(match value.kind() {
        ValueKind::Undefined => return Err(Error::new(ErrorKind::UndefinedError, "a value is undefined")),
        ValueKind::Invalid => {
            return Err(value.try_iter().err().unwrap_or_else(|| ErrorKind::BadSerialization.into()));
        }
        ValueKind::None => Json::Null,
        ValueKind::Bool => Json::Bool(value.is_true()),
        ValueKind::String => Json::String(value.as_str().unwrap_or_default().to_owned()),
        ValueKind::Seq | ValueKind::Iterable => {
            Json::Array(value.try_iter()?.map(|item| json_at(&item, depth + 1)).collect::<Result<_, _>>()?)
        }
        ValueKind::Map => {
            let mut out = serde_json::Map::new();
            for key in value.try_iter()? {
                out.insert(python::text(&key)?, json_at(&value.get_item(&key)?, depth + 1)?);
            }
            Json::Object(out)
        }
        ValueKind::Number => serde_json::to_value(value)
            .map_err(|e| Error::new(ErrorKind::InvalidOperation, format!("a number can't be told: {e}")))?,
        _ => Json::String(value.to_string()),
    })
}

/// Renders every text inside `value`.
pub fn render_json(scope: &Scope, value: &serde_json::Value) -> Result<serde_json::Value, Error> {
    use serde_json::Value as Json;
    Ok(match value {
        Json::String(s) if super::data::has_markup(s) => to_json(&native(scope, s)?)?,
        Json::Array(items) => Json::Array(items.iter().map(|item| render_json(scope, item)).collect::<Result<_, _>>()?),
        Json::Object(map) => {
            let mut out = serde_json::Map::new();
            for (key, item) in map {
                let key = if super::data::has_markup(key) { text_of(&native(scope, key)?) } else { key.clone() };
                out.insert(key, render_json(scope, item)?);
            }
            Json::Object(out)
        }
        other => other.clone(),
    })
}

/// A rendered text; values that are no text are printed.
pub fn render_text(scope: &Scope, text: &str) -> Result<String, Error> {
    if !super::data::has_markup(text) {
        return Ok(text.to_owned());
    }
    Ok(text_of(&native(scope, text)?))
}

fn text_of(value: &Value) -> String {
    match value.as_str() {
        Some(s) => s.to_owned(),
        None => value.to_string(),
    }
}
