//! Rewrites what Jinja2 accepts and minijinja does not, before minijinja reads a text:
//!
//! - other blanks than ASCII's, such as U+00A0, between the words of an expression;
//! - `'%s' % x`, which becomes a call of `PERCENT`, and `a - b` in a text with times, which becomes
//!   a call of `MINUS`;
//! - lists and maps that the template changes in place. Where a text calls a method such as
//!   `append`, its literals and `set` values become objects of `filters::containers`;
//! - a list without parentheses in `for`, and a `block` inside of a macro;
//! - `x in [a, b]`, which becomes a call of `CONTAINS`, because an undefined item is an error.
//!
//! Texts without these constructs stay as they are.

use crate::filters::{CONTAINS, METHODS_IN_PLACE, MINUS, NEW_CONTAINER, OWN_CONTAINER, PERCENT};
use crate::template::lint::{self, KEYWORDS, Part, quoted_length, word_length};
use std::borrow::Cow;

/// Rewrites an expression.
pub fn expression(text: &str) -> Cow<'_, str> {
    let in_place = changes_in_place(text);
    if !in_place && !needs_rewriting(text) {
        return Cow::Borrowed(text);
    }
    Rewriter::new(in_place).rewrite(text).into()
}

/// Rewrites the expressions of a template.
pub fn template(text: &str) -> Cow<'_, str> {
    if !text.contains("{{") && !text.contains("{%") {
        return Cow::Borrowed(text);
    }
    let parts = lint::parts(text);
    let in_place = changes_in_place(text);
    let statement = |part: &Part| part.statement().unwrap_or_default().to_owned();
    let macros =
        parts.iter().any(|part| statement(part) == "macro") && !parts.iter().any(|p| statement(p) == "extends");
    let affected = |part: &Part| {
        part.inner.is_some_and(needs_rewriting)
            || macros && statement(part) == "block"
            || statement(part) == "for" && part.inner.is_some_and(|inner| inner.contains(','))
    };
    if !in_place && !parts.iter().any(affected) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 64);
    let mut macro_depth = 0usize;
    for part in &parts {
        let word = statement(part);
        match word.as_str() {
            "macro" => macro_depth += 1,
            "endmacro" => macro_depth = macro_depth.saturating_sub(1),
            "block" | "endblock" if macros && macro_depth > 0 => {
                out.push_str(&block_as_if(part.whole, &word));
                continue;
            }
            _ => {}
        }
        // Unclosed markup stays as it is; minijinja reports it.
        let Some(inner) = part.inner.filter(|inner| part.whole.len() > 2 + inner.len()) else {
            out.push_str(part.whole);
            continue;
        };
        // A sign at the begin of markup is about blanks and not part of the expression.
        let body = inner.strip_prefix(['-', '+']).unwrap_or(inner);
        out.push_str(&part.whole[..2 + inner.len() - body.len()]);
        out.push_str(&part_inner(body, &word, in_place));
        out.push_str(&part.whole[2 + inner.len()..]);
    }
    out.into()
}

/// A block inside of a macro runs where it is written, like an `if` that always holds.
fn block_as_if(whole: &str, word: &str) -> String {
    let sign = |c: Option<char>| c.filter(|c| matches!(c, '-' | '+')).map(String::from).unwrap_or_default();
    let inner = whole.get(2..whole.len().saturating_sub(2)).unwrap_or_default();
    let statement = if word == "block" { "if true" } else { "endif" };
    format!("{{%{} {statement} {}%}}", sign(inner.chars().next()), sign(inner.chars().next_back()))
}

fn part_inner(inner: &str, word: &str, in_place: bool) -> String {
    let rewrite = |text: &str| Rewriter::new(in_place).rewrite(text);
    match word {
        "include" | "import" | "from" | "extends" => Rewriter::new(false).rewrite(inner),
        "set" if in_place => match assignment(inner) {
            // These objects have an identity of their own, which a copy would not have.
            Some((_, value, _))
                if ["namespace", "loop", "cycler"].iter().any(|w| value.trim_start().starts_with(w)) =>
            {
                rewrite(inner)
            }
            Some((target, value, sign)) => format!("{target}= {OWN_CONTAINER}({}) {sign}", rewrite(value)),
            None => rewrite(inner),
        },
        "for" => Rewriter::of_loop(in_place).rewrite(&loop_over_list(inner)),
        _ => rewrite(inner),
    }
}

/// The target and the value of `set name = value`, and the sign before the end of the statement.
fn assignment(inner: &str) -> Option<(&str, &str, &str)> {
    let (target, value) = inner.split_once('=')?;
    let names = target.chars().all(|c| c.is_alphanumeric() || c.is_whitespace() || "_.,()-+".contains(c));
    let body = value.strip_suffix(['-', '+']).unwrap_or(value);
    names.then_some((target, body, &value[body.len()..]))
}

/// Adds the parentheses to `for x in a, b`.
fn loop_over_list(inner: &str) -> String {
    let (mut depth, mut at, mut from, mut comma) = (0i32, 0, None, false);
    let mut end = inner.strip_suffix(['-', '+']).unwrap_or(inner).len();
    while let Some(c) = inner[at..].chars().next() {
        let mut taken = c.len_utf8();
        match c {
            '\'' | '"' => taken = quoted_length(&inner[at..]),
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            ',' if depth == 0 => comma |= from.is_some(),
            c if c.is_alphabetic() || c == '_' => {
                taken = word_length(&inner[at..]);
                match &inner[at..at + taken] {
                    "in" if from.is_none() && depth == 0 => from = Some(at + taken),
                    "if" | "recursive" if from.is_some() && depth == 0 => {
                        end = at;
                        break;
                    }
                    _ => {}
                }
            }
            _ => {}
        }
        at += taken;
    }
    match from.filter(|from| comma && *from <= end) {
        Some(from) => format!("{} ({}) {}", &inner[..from], inner[from..end].trim(), &inner[end..]),
        None => inner.to_owned(),
    }
}

/// Whether the text begins with parentheses that contain a comma, or nothing.
fn begins_with_tuple(text: &str) -> bool {
    let Some(inner) = text.strip_prefix('(') else { return false };
    let (mut depth, mut at) = (0i32, 0);
    while let Some(c) = inner[at..].chars().next() {
        let mut taken = c.len_utf8();
        match c {
            '\'' | '"' => taken = quoted_length(&inner[at..]),
            '(' | '[' | '{' => depth += 1,
            ')' if depth == 0 => return inner[..at].trim().is_empty(),
            ')' | ']' | '}' => depth -= 1,
            ',' if depth == 0 => return true,
            _ => {}
        }
        at += taken;
    }
    false
}

pub fn changes_in_place(text: &str) -> bool {
    METHODS_IN_PLACE.iter().any(|name| {
        text.match_indices(name).any(|(at, _)| {
            text[..at].trim_end().ends_with('.') && text[at + name.len()..].trim_start().starts_with('(')
        })
    })
}

fn needs_rewriting(inner: &str) -> bool {
    inner.contains('%')
        || subtracts_times(inner)
        || searches_list(inner)
        || inner.chars().any(|c| !c.is_ascii() && c.is_whitespace())
}

/// Whether the text may search a list that it writes with names in it.
fn searches_list(inner: &str) -> bool {
    let after_in = |(at, _): (usize, &str)| list_of_names(&inner[at + 2..]).is_some();
    inner.contains('[') && inner.match_indices("in").any(after_in)
}

/// The list with which the text begins, if the list contains a name and is a value by itself.
fn list_of_names(text: &str) -> Option<&str> {
    let list = text.trim_start().strip_prefix('[')?;
    let (mut depth, mut at, mut names) = (0i32, 0, false);
    while let Some(c) = list[at..].chars().next() {
        let mut taken = c.len_utf8();
        match c {
            '\'' | '"' => taken = quoted_length(&list[at..]),
            '(' | '[' | '{' => depth += 1,
            ']' if depth == 0 => {
                let next = list[at + 1..].trim_start().chars().next();
                let goes_on = next.is_some_and(|c| "+-~*/%|.[(".contains(c));
                return (names && !goes_on).then_some(&list[..at]);
            }
            ')' | ']' | '}' => depth -= 1,
            c if c.is_alphabetic() || c == '_' => {
                taken = word_length(&list[at..]);
                names |= !KEYWORDS.contains(&&list[at..at + taken]);
            }
            _ => {}
        }
        at += taken;
    }
    None
}

/// Whether the text may subtract times. Other texts keep minijinja's operator.
fn subtracts_times(inner: &str) -> bool {
    inner.contains('-') && (inner.contains("to_datetime") || inner.contains("now("))
}

/// An open bracket, or the whole text.
#[derive(Default)]
struct Level {
    /// Whether the bracket is a literal that becomes a container.
    container: bool,
    /// Position in the result of the current factor chain (`a * b`), if one has begun.
    chain: Option<usize>,
    /// Whether the right side of a `%` is being read.
    right: bool,
    /// Position in the result of the call of `MINUS` whose right side is being read.
    minus: Option<usize>,
    /// Whether the bracket is the list of a call of `CONTAINS`.
    searched: bool,
    /// Position in the result of the value before `not in`.
    negated: Option<usize>,
}

struct Rewriter {
    in_place: bool,
    text: String,
    levels: Vec<Level>,
    /// Whether the text so far ends with a value, so that `[` is an index and `-` an operator.
    after_value: bool,
    /// Whether the text may subtract times.
    times: bool,
    /// Whether `in` searches a list. It does not in the head of a loop.
    searches: bool,
    /// Whether the next bracket is the list of a call of `CONTAINS`.
    searching: bool,
}

impl Rewriter {
    fn new(in_place: bool) -> Self {
        Self {
            in_place,
            text: String::new(),
            levels: vec![Level::default()],
            after_value: false,
            times: false,
            searches: true,
            searching: false,
        }
    }

    fn of_loop(in_place: bool) -> Self {
        Self { searches: false, ..Self::new(in_place) }
    }

    fn rewrite(mut self, text: &str) -> String {
        let mut rest = text;
        self.times = subtracts_times(text);
        while let Some(c) = rest.chars().next() {
            let mut taken = c.len_utf8();
            match c {
                '\'' | '"' => {
                    taken = quoted_length(rest);
                    self.value(&rest[..taken]);
                }
                c if c.is_alphanumeric() || c == '_' => {
                    taken = word_length(rest);
                    self.read_word(&rest[..taken], &rest[taken..]);
                }
                c if c.is_whitespace() => self.text.push(if c.is_ascii() { c } else { ' ' }),
                '(' | '[' | '{' => self.open(c),
                ')' | ']' | '}' => self.close(c),
                '%' if self.after_value => self.percent(rest),
                // A sign at the end of markup is about blanks.
                '-' if self.after_value && self.times && !rest[1..].trim().is_empty() => self.minus(),
                '.' | '|' => {
                    self.text.push(c);
                    self.after_value = false;
                }
                // A power binds more strongly than `%`.
                '*' if rest.starts_with("**") => {
                    taken = 2;
                    self.text.push_str("**");
                    self.after_value = false;
                }
                '*' | '/' => {
                    self.end_right();
                    self.text.push(c);
                    self.after_value = false;
                }
                c => {
                    match self.after_value {
                        true => self.end_chain(),
                        // A sign belongs to the number after it.
                        false if matches!(c, '-' | '+') => self.begin(),
                        false => {}
                    }
                    self.text.push(c);
                    self.after_value = false;
                }
            }
            rest = &rest[taken..];
        }
        self.end_chain();
        self.text
    }

    fn level(&mut self) -> &mut Level {
        if self.levels.is_empty() {
            self.levels.push(Level::default());
        }
        let last = self.levels.len() - 1;
        &mut self.levels[last]
    }

    fn begin(&mut self) {
        let at = self.text.len();
        self.level().chain.get_or_insert(at);
    }

    fn value(&mut self, text: &str) {
        self.begin();
        self.text.push_str(text);
        self.after_value = true;
    }

    fn read_word(&mut self, word: &str, rest: &str) {
        let named = self.text.trim_end().ends_with(['.', '|']);
        if word == "in" && !named && self.searches && list_of_names(rest).is_some() && self.search() {
            return;
        }
        let negated = self.level().chain.filter(|_| word == "not" && self.after_value);
        if !named && KEYWORDS.contains(&word) {
            self.end_chain();
            self.text.push_str(word);
            self.after_value = false;
            self.level().negated = negated;
        } else {
            self.value(word);
        }
    }

    /// Rewrites the chain before `in`, and leaves the call open for the list. False: the chain is
    /// only a part of the searched value.
    fn search(&mut self) -> bool {
        let Some(from) = self.level().chain.or(self.level().negated) else { return false };
        if self.text[..from].trim_end().ends_with(['+', '-', '~', '=', '<', '>', '!']) {
            return false;
        }
        self.end_right();
        let negated = self.level().negated.take().is_some();
        if negated {
            let end = self.text.trim_end().len() - "not".len();
            self.text.truncate(end);
        }
        let call = if negated { format!("not {CONTAINS}(") } else { format!("{CONTAINS}(") };
        self.text.insert_str(from, &call);
        self.text.push(',');
        self.level().chain = None;
        self.after_value = false;
        self.searching = true;
        true
    }

    fn open(&mut self, bracket: char) {
        let container = self.in_place && bracket != '(' && !self.after_value;
        self.begin();
        if container {
            self.text.push_str(NEW_CONTAINER);
            self.text.push('(');
        }
        self.text.push(bracket);
        let searched = std::mem::take(&mut self.searching);
        self.levels.push(Level { container, searched, ..Level::default() });
        self.after_value = false;
    }

    fn close(&mut self, bracket: char) {
        self.end_right();
        self.end_minus();
        let level = if self.levels.len() > 1 { self.levels.pop() } else { None }.unwrap_or_default();
        self.text.push(bracket);
        for _ in [level.container, level.searched].iter().filter(|closes| **closes) {
            self.text.push(')');
        }
        self.after_value = true;
    }

    /// Rewrites the chain before a `%`, and leaves the call open for the right side.
    fn percent(&mut self, rest: &str) {
        self.end_right();
        let from = self.level().chain.unwrap_or(self.text.len());
        self.text.insert_str(from, &format!("{PERCENT}("));
        // Parentheses around several values make a tuple, whose values fill the format one by one.
        let tuple = begins_with_tuple(rest[1..].trim_start());
        self.text.push_str(if tuple { ", true, " } else { ", false, " });
        self.level().right = true;
        self.after_value = false;
    }

    fn end_right(&mut self) {
        if std::mem::take(&mut self.level().right) {
            let end = self.text.trim_end().len();
            self.text.insert(end, ')');
        }
    }

    /// Rewrites the chain before a `-`, and leaves the call open for the right side.
    fn minus(&mut self) {
        self.end_right();
        let from = self.end_minus().or(self.level().chain).unwrap_or(self.text.len());
        self.text.insert_str(from, &format!("{MINUS}("));
        self.text.push_str(", ");
        let level = self.level();
        (level.minus, level.chain) = (Some(from), None);
        self.after_value = false;
    }

    /// Ends the right side of a `-`. Returns the position of the call.
    fn end_minus(&mut self) -> Option<usize> {
        let from = self.level().minus.take()?;
        let end = self.text.trim_end().len();
        self.text.insert(end, ')');
        Some(from)
    }

    fn end_chain(&mut self) {
        self.end_right();
        self.end_minus();
        self.level().chain = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_minijinja_does_not_read_is_rewritten() {
        for text in ["{{ a.b[0] | c }} %", "{% for a, b in c.items() if a %}", "{% set x = [1] %}", "{{ '%' }}", "x"] {
            assert_eq!(template(text), text);
        }
        for (text, want) in [
            ("{{\u{a0}a }}\u{a0}", "{{ a }}\u{a0}"),
            ("{{- a % 2 -}}", "{{- __percent(a , false,  2) -}}"),
            ("{% if -x % 2 == 0 %}", "{% if __percent(-x , false,  2) == 0 %}"),
            ("{{ '%s' % x }}", "{{ __percent('%s' , false,  x) }}"),
            ("{{ 1 + 2 * a % (3, 4) ~ b }}", "{{ 1 + __percent(2 * a , true,  (3, 4)) ~ b }}"),
            ("{{ a - b }}", "{{ a - b }}"),
            ("{{ now() - b * 2 -}}", "{{ __minus(now() ,  b * 2) -}}"),
            ("{{ 1 + now() - b - c + 2 }}", "{{ 1 + __minus(__minus(now() ,  b) ,  c) + 2 }}"),
            (
                "{{ ((a | to_datetime) - (b | to_datetime('%d'))).days > -1 }}",
                "{{ (__minus((a | to_datetime) ,  (b | to_datetime('%d')))).days > -1 }}",
            ),
            ("{{ a | to_datetime - b | to_datetime }}", "{{ __minus(a | to_datetime ,  b | to_datetime) }}"),
            ("{{ 'b' in [e] }}", "{{ __contains('b' , [e]) }}"),
            ("{{ x and a.b | c not in ['d', e] or y }}", "{{ x and not __contains(a.b | c , ['d', e]) or y }}"),
            ("{% if not a in [b(1)[0]] %}", "{% if not __contains(a , [b(1)[0]]) %}"),
            ("{{ a ~ b in [c] }}", "{{ a ~ b in [c] }}"),
            ("{{ a in [b] + c }}", "{{ a in [b] + c }}"),
            ("{{ a in ['b', 1] }}", "{{ a in ['b', 1] }}"),
            ("{% for x in [a] %}", "{% for x in [a] %}"),
            ("{{ 10 % 2 ** 2 }}", "{{ __percent(10 , false,  2 ** 2) }}"),
            ("{{ '%s' % (l) }}", "{{ __percent('%s' , false,  (l)) }}"),
            ("{% for x in 1, f(2) if x %}", "{% for x in (1, f(2)) if x %}"),
            (
                "{% set l = [1] -%}{{ l.append({'a': b[0]}) }}",
                "{% set l = __own( __new([1]) ) -%}{{ l.append(__new({'a': b[0]})) }}",
            ),
            (
                "{% macro m() %}{%- block b %}x{% endblock b -%}{% endmacro %}",
                "{% macro m() %}{%- if true %}x{% endif -%}{% endmacro %}",
            ),
        ] {
            assert_eq!(template(text), want);
        }
    }
}
