//! Limits of the output of one template and of the values that it stores.
//!
//! minijinja limits the number of instructions. It does not limit the size of a text or of the
//! results of `~` and `+`. Thirty instructions that double a text fill the memory. So output is
//! counted while it is printed, and values stored by `set` must be within limits. Within one
//! expression, a value can only grow as far as its operators allow.

use crate::template::lint;
use minijinja::value::ValueKind;
use minijinja::{Environment, Error, ErrorKind, Value};
use std::borrow::Cow;
use std::cell::Cell;

/// Maximum length in bytes of the text that a template returns, and of a text that it stores.
pub const TEXT_MAX: usize = 16 << 20;
/// Maximum number of bytes that one template may print, including text that it stores and does not
/// return.
const PRINTED_MAX: usize = 4 * TEXT_MAX;
/// Maximum number of values that one evaluation may search for cycles.
const VISITED_MAX: usize = 10_000_000;
/// Maximum number of items of a list that a template stores.
const ITEMS_MAX: usize = 1_000_000;
/// The filter that checks values stored by `set`. A playbook cannot use it, because the compiler
/// rejects its name as unknown.
const KEEP: &str = "remoor_keep";

thread_local! {
    /// Number of bytes that the current template has printed.
    static PRINTED: Cell<usize> = const { Cell::new(0) };
    /// Number of values that the current evaluation has searched for cycles.
    static VISITED: Cell<usize> = const { Cell::new(0) };
}

/// Runs `f`, which renders one template, with an output counter of its own.
pub fn with_output_count<T>(f: impl FnOnce() -> T) -> T {
    let around = PRINTED.replace(0);
    let out = with_visit_count(f);
    PRINTED.set(around);
    out
}

/// Runs `f`, which evaluates one text, with a counter of its own for the search for cycles.
pub fn with_visit_count<T>(f: impl FnOnce() -> T) -> T {
    let around = VISITED.replace(0);
    let out = f();
    VISITED.set(around);
    out
}

/// Counts a value that is searched for cycles. Fails if the evaluation has searched too many.
pub fn visit() -> Result<(), Error> {
    VISITED.set(VISITED.get().saturating_add(1));
    check_limit("the list of searched values", VISITED.get(), VISITED_MAX)
}

/// Counts a text that is about to be printed. Fails if the template has printed too much.
pub fn print(text: &str) -> Result<(), Error> {
    let all = PRINTED.get().saturating_add(text.len());
    PRINTED.set(all);
    check_limit("the output", all, PRINTED_MAX)
}

/// Returns the output of a template. Fails if the output is too long.
pub fn text(out: String) -> Result<String, Error> {
    check_limit("the output", out.len(), TEXT_MAX).map(|()| out)
}

/// Returns the value of an expression. Fails if it is a text or a list that is too large.
pub fn value(value: Value) -> Result<Value, Error> {
    if let Some(text) = value.as_str() {
        check_limit("a text", text.len(), TEXT_MAX)?;
    }
    let list = matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable);
    if list && value.len().is_some_and(|len| len > ITEMS_MAX) {
        return Err(Error::new(ErrorKind::InvalidOperation, format!("a list has more than {ITEMS_MAX} items")));
    }
    Ok(value)
}

fn check_limit(what: &str, len: usize, max: usize) -> Result<(), Error> {
    match len <= max {
        true => Ok(()),
        false => Err(Error::new(ErrorKind::InvalidOperation, format!("{what} is longer than {max} bytes"))),
    }
}

/// Registers the filter that `limit_stored_values` inserts.
pub fn register(env: &mut Environment<'static>) {
    env.add_filter(KEEP, value);
}

/// Rewrites a template so that each `set` with `~` or `+` checks the size of the value it stores.
pub fn limit_stored_values(template: &str) -> Cow<'_, str> {
    if !template.contains("{%") || !template.contains(['~', '+']) {
        return Cow::Borrowed(template);
    }
    lint::parts(template)
        .iter()
        .map(|part| limit_set_statement(part).unwrap_or(Cow::Borrowed(part.whole)))
        .collect::<String>()
        .into()
}

/// Rewrites `{% set name = a ~ b %}` to `{% set name = (a ~ b) | remoor_keep %}`. Returns None if
/// the part is not such a statement.
fn limit_set_statement<'t>(part: &lint::Part<'t>) -> Option<Cow<'t, str>> {
    let (left, right) = part.inner.filter(|_| part.statement() == Some("set"))?.split_once('=')?;
    // A block `set` contains no assignment, but an `=` may be in the arguments of its filter.
    let names = left.chars().all(|c| c.is_alphanumeric() || c.is_whitespace() || "_.,()-+".contains(c));
    if !names || !right.contains(['~', '+']) || !part.whole.ends_with("%}") {
        return None;
    }
    let body = right.strip_suffix(['-', '+']).unwrap_or(right);
    Some(format!("{{%{left}=({body}) | {KEEP} {}%}}", &right[body.len()..]).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::template::expr;
    use crate::vars::scope::ExprScope;

    #[test]
    fn a_set_looks_at_what_it_keeps() {
        for (text, want) in [
            ("{% set x = a ~ b %}", "{% set x =( a ~ b ) | remoor_keep %}"),
            ("{%- set ns.x = a if b else a + 'x' -%}", "{%- set ns.x =( a if b else a + 'x' ) | remoor_keep -%}"),
            ("{% set a, b = c ~ 1, 2 %}", "{% set a, b =( c ~ 1, 2 ) | remoor_keep %}"),
            ("{% set x = a %}~", "{% set x = a %}~"),
            ("{% set x | indent(width=4 + 1) %}", "{% set x | indent(width=4 + 1) %}"),
            ("{% if x == a ~ b %}", "{% if x == a ~ b %}"),
            ("{# {% set x = a ~ b %} #}", "{# {% set x = a ~ b %} #}"),
        ] {
            assert_eq!(limit_stored_values(text), want);
        }
        for (text, want) in [
            ("{% set a, b = 1 + 1, 'x' ~ 'y' %}{{ a }}{{ b }}", "2xy"),
            ("{% set x = '=' ~\n 'b' %}{{ x }}", "=b"),
            ("{% set x = nope.a | default(1) + 1 %}{{ x }}", "2"),
            ("{% set x = [1] + [2] %}{{ x }} {{ x | sum }}", "[1, 2] 3"),
        ] {
            assert_eq!(
                expr::render_text(&ExprScope::default(), text).unwrap_or_else(|e| expr::explain(&e)),
                want,
                "{text}"
            );
        }
    }

    #[test]
    fn what_doubles_is_refused_before_it_fills_the_memory() {
        let ns = "{% set ns = namespace(x='x', l=[1]) %}";
        let start = resident();
        for (text, want) in [
            ("{% for i in range(40) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}{{ ns.x | length }}", "a text is longer"),
            ("{% for i in range(40) %}{% set ns.x = ns.x + ns.x %}{% endfor %}{{ ns.x | length }}", "a text is longer"),
            ("{% for i in range(40) %}{% set ns.l = ns.l + ns.l %}{% endfor %}{{ ns.l | join }}", "items"),
            (
                "{% for i in range(40) %}{% set y %}{{ ns.x }}{{ ns.x }}{% endset %}{% set ns.x = y %}{% endfor %}",
                "the output is longer",
            ),
            (
                "{% for i in range(40) %}{% set ns.x = [ns.x, ns.x] | join %}{% endfor %}",
                "the text would be longer than",
            ),
            (
                "{% for i in range(40) %}{% set ns.x = ns.x | replace('x', 'xx') %}{% endfor %}",
                "the text would be longer than",
            ),
            ("{{ ('x' * 90000000) ~ ('y' * 90000000) }}", "longer"),
        ] {
            let error =
                expr::render_text(&ExprScope::default(), &format!("{ns}{text}")).map(|out| out.len()).unwrap_err();
            let told = expr::explain(&error);
            assert!(told.contains(want) && told.contains("than"), "{text}: {told}");
        }
        assert!(resident().saturating_sub(start) < 1 << 20, "{} KiB more at the most", resident() - start);
    }

    /// The peak memory of this process in KiB.
    fn resident() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }
}
