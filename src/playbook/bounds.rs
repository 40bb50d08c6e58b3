//! How much one template may make: texts that it prints, and values that it keeps for later.
//!
//! The engine counts steps, and bounds neither what a text grows to nor what is put together by `~` and `+`: thirty steps that
//! double a text fill the memory. So what is printed is counted as it is printed, and what `set` keeps must be within bounds.
//! Within one expression a value grows no further than its operators reach.

use super::lint;
use minijinja::value::ValueKind;
use minijinja::{Environment, Error, ErrorKind, Value};
use std::borrow::Cow;
use std::cell::Cell;

/// Longest text that one template may give, and that it may keep, in bytes.
pub const TEXT_MAX: usize = 16 << 20;
/// All that one template may print, in bytes, what it keeps and does not give among it.
const PRINTED_MAX: usize = 4 * TEXT_MAX;
/// Longest list that a template may keep.
const ITEMS_MAX: usize = 1_000_000;
/// The filter behind what `set` keeps; no template can name it, for the compiler does not know it.
const KEEP: &str = "remoor_keep";

thread_local! {
    /// What the template under way has printed, in bytes.
    static PRINTED: Cell<usize> = const { Cell::new(0) };
}

/// `f` renders one template, whose prints are counted by themselves.
pub fn counted<T>(f: impl FnOnce() -> T) -> T {
    let around = PRINTED.replace(0);
    let out = f();
    PRINTED.set(around);
    out
}

/// Counts a text that is about to be printed. Err: it is too much.
pub fn print(text: &str) -> Result<(), Error> {
    let all = PRINTED.get().saturating_add(text.len());
    PRINTED.set(all);
    within("output", all, PRINTED_MAX)
}

/// A text that a template gives. Err: it is too long.
pub fn text(out: String) -> Result<String, Error> {
    within("output", out.len(), TEXT_MAX).map(|()| out)
}

/// A value that an expression gives. Err: it is too large.
pub fn value(value: Value) -> Result<Value, Error> {
    if let Some(text) = value.as_str() {
        within("a text", text.len(), TEXT_MAX)?;
    }
    let list = matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable);
    if list && value.len().is_some_and(|len| len > ITEMS_MAX) {
        return Err(Error::new(ErrorKind::InvalidOperation, format!("a list of over {ITEMS_MAX} items")));
    }
    Ok(value)
}

fn within(what: &str, len: usize, max: usize) -> Result<(), Error> {
    match len <= max {
        true => Ok(()),
        false => Err(Error::new(ErrorKind::InvalidOperation, format!("over {max} bytes of {what}"))),
    }
}

/// Makes an environment know what `keeping` writes.
pub fn register(env: &mut Environment<'static>) {
    env.add_filter(KEEP, value);
}

/// A template in which every `set` that puts values together looks at what it keeps.
pub fn keeping(template: &str) -> Cow<'_, str> {
    if !template.contains("{%") || !template.contains(['~', '+']) {
        return Cow::Borrowed(template);
    }
    lint::parts(template).iter().map(|part| kept(part).unwrap_or(Cow::Borrowed(part.whole))).collect::<String>().into()
}

/// A `{% set name = a ~ b %}` as `{% set name = (a ~ b) | remoor_keep %}`; None: it is another part.
fn kept<'t>(part: &lint::Part<'t>) -> Option<Cow<'t, str>> {
    let (left, right) = part.inner.filter(|_| part.statement() == Some("set"))?.split_once('=')?;
    // Of a block that is set, the sign stands among the arguments of a filter.
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
    use crate::playbook::expr;
    use crate::playbook::scope::Scope;

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
            assert_eq!(keeping(text), want);
        }
        for (text, want) in [
            ("{% set a, b = 1 + 1, 'x' ~ 'y' %}{{ a }}{{ b }}", "2xy"),
            ("{% set x = '=' ~\n 'b' %}{{ x }}", "=b"),
            ("{% set x = nope.a | default(1) + 1 %}{{ x }}", "2"),
            ("{% set x = [1] + [2] %}{{ x }} {{ x | sum }}", "[1, 2] 3"),
        ] {
            assert_eq!(
                expr::render_text(&Scope::default(), text).unwrap_or_else(|e| expr::explain(&e)),
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
            ("{% for i in range(40) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}{{ ns.x | length }}", "of a text"),
            ("{% for i in range(40) %}{% set ns.x = ns.x + ns.x %}{% endfor %}{{ ns.x | length }}", "of a text"),
            ("{% for i in range(40) %}{% set ns.l = ns.l + ns.l %}{% endfor %}{{ ns.l | join }}", "items"),
            (
                "{% for i in range(40) %}{% set y %}{{ ns.x }}{{ ns.x }}{% endset %}{% set ns.x = y %}{% endfor %}",
                "of output",
            ),
            ("{% for i in range(40) %}{% set ns.x = [ns.x, ns.x] | join %}{% endfor %}", "a text of over"),
            ("{% for i in range(40) %}{% set ns.x = ns.x | replace('x', 'xx') %}{% endfor %}", "a text of over"),
            ("{{ ('x' * 90000000) ~ ('y' * 90000000) }}", "of"),
        ] {
            let error = expr::render_text(&Scope::default(), &format!("{ns}{text}")).map(|out| out.len()).unwrap_err();
            let told = expr::explain(&error);
            assert!(told.contains(want) && told.contains("over"), "{text}: {told}");
        }
        assert!(resident().saturating_sub(start) < 1 << 20, "{} KiB more at the most", resident() - start);
    }

    /// The most memory that this process ever had, in KiB.
    fn resident() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }
}
