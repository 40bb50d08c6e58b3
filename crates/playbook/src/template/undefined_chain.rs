//! Undefined values in chains such as `a.b.c`.
//!
//! For Ansible, `a.b.c` is undefined if `a.b` is undefined, and only its use is an error. minijinja
//! has two modes. The strict mode fails at the chain, and the other mode passes undefined values on
//! everywhere, also in comparisons and loops.
//!
//! So a text that failed in strict mode is rendered again in strict mode. Before that, its chains
//! are rewritten as calls of `STEP`, which passes undefined values on.

use crate::template::lint::{self, quoted_length, word_length};
use minijinja::value::ValueKind;
use minijinja::{Error, Value};

/// The name of the template function that evaluates one step of a chain: `STEP(value, key)`.
pub const STEP: &str = "__step";

/// Implements `STEP`: returns the item or attribute `key` of `value`, or undefined if it does not
/// exist.
pub fn step(value: Value, key: Value) -> Result<Value, Error> {
    match value.kind() {
        ValueKind::Undefined | ValueKind::None => Ok(Value::UNDEFINED),
        _ => value.get_item(&key),
    }
}

/// Rewrites the chains of an expression as calls.
pub fn expression(text: &str) -> String {
    let mut out = Rewritten::default();
    out.rewrite(text);
    out.text
}

/// Rewrites the chains in the expressions of a template as calls. Other text is unchanged.
pub fn template(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for part in lint::parts(text) {
        // An unclosed `{{` is left unchanged; minijinja reports it.
        let Some(inner) = part.inner.filter(|inner| part.whole.len() > 2 + inner.len()) else {
            out.push_str(part.whole);
            continue;
        };
        let (before, after) = (&part.whole[..2], &part.whole[2 + inner.len()..]);
        let written = if part.statement() == Some("set") { setting(inner) } else { expression(inner) };
        out.extend([before, &written, after]);
    }
    out
}

/// Rewrites only the value of a `set` statement, because the target must stay a name.
fn setting(text: &str) -> String {
    match text.split_once('=') {
        Some((target, value)) => format!("{target}={}", expression(value)),
        None => text.to_owned(),
    }
}

/// An open bracket.
enum Open {
    /// A bracket that groups, or that holds arguments. The field is the position in the result at
    /// which the value with this bracket begins.
    Group(usize),
    /// An index bracket, as in `value[`. The fields are the positions of the value and of the
    /// bracket in the result.
    Index(usize, usize),
}

#[derive(Default)]
struct Rewritten {
    text: String,
    open: Vec<Open>,
    /// Position in `text` of the value that was just read; None after an operator.
    value: Option<usize>,
}

impl Rewritten {
    fn rewrite(&mut self, text: &str) {
        let mut rest = text;
        // A name follows after `|` and `is`. It may contain dots.
        let mut named = false;
        while let Some(c) = rest.chars().next() {
            let mut taken = c.len_utf8();
            match c {
                '\'' | '"' => {
                    taken = quoted_length(rest);
                    self.begin(&rest[..taken]);
                }
                c if c.is_alphabetic() || c == '_' => {
                    taken = word_length(rest);
                    while named && rest[taken..].starts_with('.') {
                        taken += 1 + word_length(&rest[taken + 1..]);
                    }
                    let name = &rest[..taken];
                    if named && name == "not" {
                        self.text.push_str(name);
                    } else if std::mem::take(&mut named) || lint::KEYWORDS.contains(&name) {
                        named = name == "is";
                        self.text.push_str(name);
                        self.value = None;
                    } else {
                        self.begin(name);
                    }
                }
                c if c.is_ascii_digit() => {
                    let number = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_');
                    taken = rest.find(|c| !number(c)).unwrap_or(rest.len());
                    self.begin(&rest[..taken]);
                }
                '.' if self.value.is_some() => {
                    let name = word_length(&rest[1..]);
                    taken = 1 + name;
                    self.attribute(&rest[1..taken], rest[taken..].trim_start().starts_with('('));
                }
                '(' | '{' => {
                    self.open.push(Open::Group(self.value.unwrap_or(self.text.len())));
                    self.operator(c);
                }
                '[' => {
                    self.open.push(match self.value {
                        Some(value) => Open::Index(value, self.text.len()),
                        None => Open::Group(self.text.len()),
                    });
                    self.operator(c);
                }
                ')' | '}' | ']' => self.close(c),
                c if c.is_whitespace() => self.text.push(c),
                c => {
                    named = c == '|';
                    self.operator(c);
                }
            }
            rest = &rest[taken..];
        }
    }

    fn begin(&mut self, text: &str) {
        self.value = Some(self.text.len());
        self.text.push_str(text);
    }

    fn operator(&mut self, c: char) {
        self.value = None;
        self.text.push(c);
    }

    fn attribute(&mut self, name: &str, called: bool) {
        match self.value {
            Some(value) if !called && !name.is_empty() => {
                self.text.insert_str(value, &format!("{STEP}("));
                let index = name.bytes().all(|b| b.is_ascii_digit());
                self.text.push_str(&if index { format!(", {name})") } else { format!(", '{name}')") });
            }
            _ => {
                self.text.push('.');
                self.text.push_str(name);
            }
        }
    }

    fn close(&mut self, c: char) {
        match self.open.pop() {
            Some(Open::Index(value, bracket)) if c == ']' && !slices(&self.text[bracket + 1..]) => {
                self.text.replace_range(bracket..=bracket, ", ");
                self.text.insert_str(value, &format!("{STEP}("));
                self.text.push(')');
                self.value = Some(value);
            }
            Some(Open::Group(value) | Open::Index(value, _)) => {
                self.text.push(c);
                self.value = Some(value);
            }
            None => self.operator(c),
        }
    }
}

/// Whether the content of brackets is a slice (`1:2`) and not a single index.
fn slices(inside: &str) -> bool {
    let mut depth = 0;
    let mut rest = inside;
    while let Some(c) = rest.chars().next() {
        let mut taken = c.len_utf8();
        match c {
            '\'' | '"' => taken = quoted_length(rest),
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            ':' if depth == 0 => return true,
            _ => {}
        }
        rest = &rest[taken..];
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chains_are_calls_and_all_else_stands() {
        for (text, want) in [
            ("a", "a"),
            ("a.b", "__step(a, 'b')"),
            ("a.b.c | default(1)", "__step(__step(a, 'b'), 'c') | default(1)"),
            ("a['b'][0].c", "__step(__step(__step(a, 'b'), 0), 'c')"),
            ("a.0", "__step(a, 0)"),
            ("a[1:2].b", "__step(a[1:2], 'b')"),
            ("a[{'x': 1}['x']]", "__step(a, __step({'x': 1}, 'x'))"),
            ("a.b.get('c.d', e.f)", "__step(a, 'b').get('c.d', __step(e, 'f'))"),
            ("(a.b).c", "__step((__step(a, 'b')), 'c')"),
            ("not (a).b and 1.5 < x.y", "not __step((a), 'b') and 1.5 < __step(x, 'y')"),
            ("a.b is not ansible.builtin.match('x.y')", "__step(a, 'b') is not ansible.builtin.match('x.y')"),
            ("a | ansible.builtin.default(b.c)", "a | ansible.builtin.default(__step(b, 'c'))"),
            ("[a.b, {'k': c.d}]", "[__step(a, 'b'), {'k': __step(c, 'd')}]"),
            ("'a.b' ~ \"c\\\"d.e\"", "'a.b' ~ \"c\\\"d.e\""),
            ("x.y if a.b else c", "__step(x, 'y') if __step(a, 'b') else c"),
        ] {
            assert_eq!(expression(text), want, "{text}");
        }
        for (text, want) in [
            ("a.b {{ a.b }} {# {{ a.b }} #}", "a.b {{ __step(a, 'b') }} {# {{ a.b }} #}"),
            ("{% set ns.x = a.b %}", "{% set ns.x = __step(a, 'b') %}"),
            ("{%- if (a).b %}x{% endif %}", "{%- if __step((a), 'b') %}x{% endif %}"),
            ("{% for x in a.b %}{{ x }}{% endfor %}", "{% for x in __step(a, 'b') %}{{ x }}{% endfor %}"),
            ("{{ '}}' ~ a.b }}", "{{ '}}' ~ __step(a, 'b') }}"),
            ("{% raw %}{{ a.b }}{% endraw %}{{ a.b }}", "{% raw %}{{ a.b }}{% endraw %}{{ __step(a, 'b') }}"),
            ("{{ a.b", "{{ a.b"),
        ] {
            assert_eq!(template(text), want, "{text}");
        }
    }
}
