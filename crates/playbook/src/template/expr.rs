//! Evaluates Jinja2 expressions and templates with minijinja, set up to behave as Ansible does.
//!
//! Evaluation is strict about undefined names and has limits for work and output. It can fail at an
//! undefined value in a chain such as `a.b.c | default(1)`. Then a second evaluation passes
//! undefined values along the chain, as Ansible does (`undefined_chain.rs`), also out of the
//! variables that read them. The use of an undefined value is still an error.

use crate::filters::{self, PluginUses, UndefinedPolicy};
use crate::lang::python;
use crate::template::{bounds, lint, python_source, undefined_chain};
use crate::vars::scope::{self, ExprScope};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::ValueKind;
use minijinja::{Environment, Error, ErrorKind, UndefinedBehavior, Value};
use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

/// Maximum number of minijinja instructions per evaluation.
const FUEL: u64 = 2_000_000;

/// Maximum number of plans whose environments are kept.
const PLANS_MAX: usize = 16;

static NATIVE: LazyLock<Arc<Environments>> = LazyLock::new(|| Arc::new(Environments::new("")));
/// The environments of plans that call plugins, by the value of `PLUGINS`.
static WITH_PLUGINS: Mutex<BTreeMap<String, Arc<Environments>>> = Mutex::new(BTreeMap::new());

/// The environments of one set of plugins.
struct Environments {
    strict: Environment<'static>,
    /// For texts that `undefined_chain` has rewritten.
    chain: Environment<'static>,
    /// Reports the name of an undefined variable. It renders every visible variable, so it is used
    /// only after a failure.
    named: Environment<'static>,
}

impl Environments {
    fn new(plugins: &str) -> Self {
        Self {
            strict: environment(Named::No, UndefinedPolicy::Fails, plugins),
            chain: environment(Named::No, UndefinedPolicy::Passes, plugins),
            named: environment(Named::Yes, UndefinedPolicy::Fails, plugins),
        }
    }

    /// The environments for the expressions of a scope.
    fn find_for(scope: &ExprScope) -> Arc<Self> {
        let Some(plugins) = filters::plugins_of(scope) else { return NATIVE.clone() };
        let mut all = WITH_PLUGINS.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = all.get(plugins) {
            return known.clone();
        }
        if all.len() >= PLANS_MAX {
            all.clear();
        }
        all.entry(plugins.to_owned()).or_insert_with(|| Arc::new(Self::new(plugins))).clone()
    }
}

thread_local! {
    /// One list for each template that is being rendered: the first two values that it printed.
    static PRINTED: RefCell<Vec<Vec<Value>>> = const { RefCell::new(Vec::new()) };
}

#[derive(PartialEq)]
enum Named {
    Yes,
    No,
}

fn environment(named: Named, undefined: UndefinedPolicy, plugins: &str) -> Environment<'static> {
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
    env.add_function(undefined_chain::STEP, undefined_chain::step);
    env.add_function(filters::CONTAINS, filters::search_list);
    env.set_formatter(|out, _, value| {
        // minijinja passes an undefined value to this function only for an `if` without `else`.
        if value.is_undefined() {
            return Ok(());
        }
        if value.is_none() {
            return Ok(());
        }
        PRINTED.with_borrow_mut(|frames| {
            if let Some(frame) = frames.last_mut() {
                frame.push(value.clone());
                frame.truncate(2);
            }
        });
        let text =
            value.as_str().map_or_else(|| python::text(value).map(Cow::Owned), |text| Ok(Cow::Borrowed(text)))?;
        bounds::print(&text)?;
        out.write_str(&text).map_err(Error::from)
    });
    filters::register(&mut env, undefined);
    bounds::register(&mut env);
    filters::register_plugins(&mut env, undefined, plugins);
    env
}

/// Describes an error in one line, without minijinja's file names.
pub fn explain(error: &Error) -> String {
    if let Some(circle) = circle(error) {
        return format!("templates include each other endlessly: {circle}");
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

/// Describes a cycle of templates that include each other, if the cycle caused `error`. The
/// description lists the includes of one round with their lines.
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

/// Evaluates an expression (without braces).
pub fn eval(scope: &ExprScope, text: &str) -> Result<Value, Error> {
    again_if_undefined(scope, |env, chained| {
        let text = if chained { undefined_chain::expression(text).into() } else { Cow::Borrowed(text) };
        let compiled = env.compile_expression_owned(python_source::expression(&text).into_owned())?;
        let value = bounds::value(bounds::with_visit_count(|| compiled.eval(root_for(scope, &[&text])))?)?;
        // The error of the first attempt says which variable reads an undefined value.
        if chained && value.is_undefined() { Err(ErrorKind::UndefinedError.into()) } else { Ok(value) }
    })
}

/// Runs `attempt` in strict mode. If a value was undefined, runs `attempt` again with `true` as the
/// second argument. `attempt` must then rewrite chains such as `a.b.c` in its text.
fn again_if_undefined<T>(
    scope: &ExprScope,
    attempt: impl Fn(&Environment<'static>, bool) -> Result<T, Error>,
) -> Result<T, Error> {
    let environments = Environments::find_for(scope);
    attempt(&environments.strict, false).or_else(|e| {
        if e.kind() != ErrorKind::UndefinedError {
            return Err(e);
        }
        // The retry has a maximum depth, because nested variables that all fail would double the
        // work with each level.
        if scope::depth() < 6 {
            match scope::passing_undefined(|| attempt(&environments.chain, true)) {
                Ok(value) => return Ok(value),
                // The retry got past the undefined value and failed later, so the later error is
                // reported.
                Err(then) if !matches!(then.kind(), ErrorKind::UndefinedError | ErrorKind::SyntaxError) => {
                    return Err(then);
                }
                Err(_) => {}
            }
        }
        if e.detail().is_none() { attempt(&environments.named, false) } else { Err(e) }
    })
}

/// Evaluates a condition (`when`, `changed_when`, `until` ...). A result that is not a boolean
/// counts by its truth, as in Ansible before 2.19. Ansible 2.19 fails.
pub fn truth(scope: &ExprScope, text: &str) -> Result<bool, Error> {
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

/// Renders a text of a playbook or inventory. If it prints a single value, returns that value with
/// its type.
pub fn native(scope: &ExprScope, text: &str) -> Result<Value, Error> {
    let text = &*double_backslashes(text);
    // A final newline is part of a text value only; values of other types lose it.
    let body = text.strip_suffix('\n').unwrap_or(text);
    let alone = body.starts_with("{{") && body.ends_with("}}");
    if let Some(inner) = inner_expression(body).filter(|_| alone) {
        let value = eval(scope, inner)?;
        if value.is_undefined() {
            return Err(Error::new(ErrorKind::UndefinedError, format!("`{inner}` is undefined")));
        }
        return Ok(match value.as_str() {
            Some(own) if body != text => Value::from(with_newlines_of(text, own.to_owned())),
            _ => value,
        });
    }
    let source = text;
    again_if_undefined(scope, |env, chained| {
        let text = if chained { undefined_chain::template(body).into() } else { Cow::Borrowed(body) };
        PRINTED.with_borrow_mut(|frames| frames.push(Vec::new()));
        let out =
            bounds::with_output_count(|| env.render_named_str("template", &ready(&text), root_for(scope, &[&text])));
        let printed = PRINTED.with_borrow_mut(Vec::pop).unwrap_or_default();
        let out = bounds::text(out?)?;
        match printed.as_slice() {
            [one] if one.as_str().is_none() && python::text(one)? == out => Ok(one.clone()),
            _ => Ok(Value::from(with_newlines_of(source, out))),
        }
    })
}

/// Adds newlines until the result ends with as many as its template. Jinja2 drops the last newline
/// of a template, and Ansible adds what the result lacks.
fn with_newlines_of(template: &str, result: String) -> String {
    let count = |text: &str| text.len() - text.trim_end_matches('\n').len();
    let missing = count(template).saturating_sub(count(&result));
    result + &"\n".repeat(missing)
}

/// Doubles the backslashes of quoted texts inside `{{ }}`, as Ansible does. So a backslash that
/// remains after the YAML parser is literal.
fn double_backslashes(text: &str) -> Cow<'_, str> {
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
                // The character after a backslash is taken together with the backslash, because an
                // escaped quote does not end the text.
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

/// The expression between the braces if the whole text is a single `{{ }}`.
pub fn inner_expression(text: &str) -> Option<&str> {
    let inner = text.trim().strip_prefix("{{")?.strip_suffix("}}")?;
    let inner = inner.strip_prefix('-').unwrap_or(inner);
    let inner = inner.strip_suffix('-').unwrap_or(inner).trim();
    // `{{ a }} {{ b }}` begins and ends in the same way, but its inside is not an expression.
    NATIVE.strict.compile_expression_owned(python_source::expression(inner).into_owned()).ok()?;
    Some(inner)
}

/// The variables for texts that are rendered together.
fn root_for(scope: &ExprScope, texts: &[&str]) -> Value {
    match texts.iter().any(|text| python_source::changes_in_place(text)) {
        true => scope.changeable_root(),
        false => scope.root(),
    }
}

/// Renders a template inside of another one, with the variables `vars` of [`ExprScope::root`].
pub fn render_inside(env: &Environment, text: &str, vars: Value) -> Result<String, Error> {
    let vars = if python_source::changes_in_place(text) { scope::changeable(vars) } else { vars };
    env.render_named_str("lookup", &ready(text), vars)
}

/// A template as minijinja gets it, with limits for the values that it stores.
fn ready(text: &str) -> Cow<'_, str> {
    match python_source::template(text) {
        Cow::Borrowed(text) => bounds::limit_stored_values(text),
        Cow::Owned(text) => bounds::limit_stored_values(&text).into_owned().into(),
    }
}

/// Renders a template file like `render`. Also returns whether the result is a value of another
/// type than text, or nothing at all. Ansible adds no newline to such a result.
pub fn render_file(
    scope: &ExprScope,
    name: &str,
    text: &str,
    parts: &BTreeMap<String, Arc<str>>,
) -> Result<(String, bool), Error> {
    PRINTED.with_borrow_mut(|frames| frames.push(Vec::new()));
    let out = render(scope, name, text, parts);
    let printed = PRINTED.with_borrow_mut(Vec::pop).unwrap_or_default();
    let out = out?;
    let is_value = match printed.as_slice() {
        [] => out.is_empty(),
        [one] => one.as_str().is_none() && python::text(one)? == out,
        _ => false,
    };
    Ok((out, is_value))
}

/// Renders a template file. `parts` are the templates that the file may include, by the names that
/// the file uses.
pub fn render(scope: &ExprScope, name: &str, text: &str, parts: &BTreeMap<String, Arc<str>>) -> Result<String, Error> {
    again_if_undefined(scope, |base, chained| {
        // A second attempt prints anew.
        PRINTED.with_borrow_mut(|frames| frames.last_mut().into_iter().for_each(Vec::clear));
        let written = |text| {
            let text: Cow<str> = if chained { undefined_chain::template(text).into() } else { Cow::Borrowed(text) };
            ready(&text).into_owned()
        };
        let mut own = Cow::Borrowed(base);
        for (part, source) in parts {
            own.to_mut().add_template_owned(part.clone(), written(source))?;
        }
        let texts: Vec<&str> = parts.values().map(|part| &**part).chain([text]).collect();
        let root = root_for(scope, &texts);
        bounds::text(bounds::with_output_count(|| own.render_named_str(name, &written(text), root))?)
    })
}

/// Whether minijinja has a function of this name.
pub fn is_function(name: &str) -> bool {
    NATIVE.strict.globals().any(|(own, _)| own == name)
}

/// Names that a template reads and does not set itself. Empty if the text is not a valid template.
pub fn names_read(text: &str) -> BTreeSet<String> {
    let text = ready(text);
    let Ok(template) = NATIVE.strict.template_from_named_str("template", &text) else { return BTreeSet::new() };
    template.undeclared_variables(false).into_iter().filter(|name| !is_function(name)).collect()
}

/// Checks syntax, filter names and test names of an expression without evaluating it. The line of
/// the error is relative to `text`. `plugins` are those that the text may call.
pub fn check_expression(text: &str, plugins: &PluginUses) -> Result<(), Error> {
    let (text, markup) = (text.trim(), crate::vars::var_map::has_markup(text));
    if markup {
        return check_template(text, plugins);
    }
    NATIVE.strict.compile_expression_owned(python_source::expression(text).into_owned())?;
    filters::check_names(&format!("{{{{ {text} }}}}"), plugins)
}

/// Checks syntax, filter names and test names of a template. `plugins` are those that it may call.
pub fn check_template(text: &str, plugins: &PluginUses) -> Result<(), Error> {
    NATIVE.strict.template_from_named_str("template", &ready(text))?;
    filters::check_names(text, plugins)
}

/// The position in a template of an error that [`check_template`] returned: line and column, from
/// 1.
pub fn place_of(error: &Error, template: &str, plugins: &PluginUses) -> (u32, u32) {
    if let Some(line) = error.line() {
        return (u32::try_from(line).unwrap_or(u32::MAX), 1);
    }
    // An error about an unknown name has no line. Its position is that of the first markup that
    // fails with the same error when it is checked alone.
    let mut offset = 0;
    for part in lint::parts(template) {
        if filters::check_names(part.whole, plugins).is_err_and(|own| own.detail() == error.detail()) {
            return lint::place(template, offset);
        }
        offset += part.whole.len();
    }
    (1, 1)
}

/// Maximum nesting depth of lists and maps.
const NESTED_MAX: usize = 64;

/// Converts a value to JSON. Undefined and failing parts are errors. Keys of maps become texts.
pub fn to_json(value: &Value) -> Result<serde_json::Value, Error> {
    json_at(value, 0)
}

fn json_at(value: &Value, depth: usize) -> Result<serde_json::Value, Error> {
    use serde_json::Value as Json;
    if depth > NESTED_MAX {
        return Err(Error::new(ErrorKind::InvalidOperation, format!("lists or maps nested deeper than {NESTED_MAX}")));
    }
    Ok(match value.kind() {
        ValueKind::Undefined => return Err(Error::new(ErrorKind::UndefinedError, "a value is undefined")),
        ValueKind::Invalid => {
            return Err(python::held_error(value));
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
        ValueKind::Number => serde_json::to_value(value).map_err(|e| {
            Error::new(ErrorKind::InvalidOperation, format!("a number cannot be converted to JSON: {e}"))
        })?,
        _ if value.as_object().is_some_and(|object| object.type_name().ends_with("BoxedFunction")) => {
            let why = "Type 'function' is unsupported for variable storage.";
            return Err(Error::new(ErrorKind::InvalidOperation, why));
        }
        _ => Json::String(value.to_string()),
    })
}

/// Renders every text in `value`, also the keys of maps.
pub fn render_json(scope: &ExprScope, value: &serde_json::Value) -> Result<serde_json::Value, Error> {
    use serde_json::Value as Json;
    Ok(match value {
        Json::String(s) if crate::vars::var_map::has_markup(s) => to_json(&native(scope, s)?)?,
        Json::Array(items) => Json::Array(items.iter().map(|item| render_json(scope, item)).collect::<Result<_, _>>()?),
        Json::Object(map) => {
            let mut out = serde_json::Map::new();
            for (key, item) in map {
                let key =
                    if crate::vars::var_map::has_markup(key) { text_of(&native(scope, key)?) } else { key.clone() };
                out.insert(key, render_json(scope, item)?);
            }
            Json::Object(out)
        }
        other => other.clone(),
    })
}

/// Renders a text. A value that is not a text is printed as text.
pub fn render_text(scope: &ExprScope, text: &str) -> Result<String, Error> {
    if !crate::vars::var_map::has_markup(text) {
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
