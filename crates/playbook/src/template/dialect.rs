//! Templates with settings of their own: the header line `#jinja2:` and the options of the module
//! `template` for delimiters. Such a template is rewritten to one with the usual delimiters.

use serde_json::{Map, Value};
use std::borrow::Cow;

/// Begins the first line of a template that sets options for itself.
const HEADER: &str = "#jinja2:";
/// The options for delimiters with the usual delimiters: begin and end of an expression, of a
/// statement, and of a comment.
const DELIMITERS: [(&str, &str); 6] = [
    ("variable_start_string", "{{"),
    ("variable_end_string", "}}"),
    ("block_start_string", "{%"),
    ("block_end_string", "%}"),
    ("comment_start_string", "{#"),
    ("comment_end_string", "#}"),
];
/// Options of a header that are options of the module too.
const OPTIONS: [&str; 3] = ["trim_blocks", "lstrip_blocks", "newline_sequence"];
/// Options of a header that change nothing here: the usual value, and what remoor always does.
const WITHOUT_EFFECT: [&str; 2] = ["keep_trailing_newline", "autoescape"];

/// A template without its header. The header's options replace those of the task.
pub struct Dialect<'t> {
    pub text: Cow<'t, str>,
    pub options: Map<String, Value>,
}

/// The names of the options for delimiters.
pub fn delimiter_options() -> impl Iterator<Item = &'static str> {
    DELIMITERS.into_iter().map(|(name, _)| name)
}

/// Reads the header of a template whose task has these options, and gives the template the usual
/// delimiters. `is_part` is true for an included template, which has no header of its own.
pub fn read<'t>(text: &'t str, options: &Map<String, Value>, is_part: bool) -> Result<Dialect<'t>, String> {
    let mut options = options.clone();
    let mut body = text;
    if let Some(rest) = text.strip_prefix(HEADER).filter(|_| !is_part) {
        let (line, after) = rest.split_once('\n').unwrap_or((rest, ""));
        body = after;
        for pair in pairs(line.trim_end_matches('\r')) {
            let (name, value) =
                pair.split_once(':').ok_or_else(|| format!("`{HEADER}`: `{pair}` is not NAME: VALUE"))?;
            let (name, value) = (name.trim(), literal(value.trim())?);
            let known = OPTIONS.contains(&name) || DELIMITERS.iter().any(|(own, _)| *own == name);
            if known {
                options.insert(name.to_owned(), value);
            } else if !WITHOUT_EFFECT.contains(&name) {
                return Err(format!("`{HEADER}`: the option `{name}` is not part of the language"));
            }
        }
    }
    let marks: Vec<&str> = DELIMITERS
        .iter()
        .map(|(name, usual)| options.get(*name).and_then(Value::as_str).filter(|own| !own.is_empty()).unwrap_or(usual))
        .collect();
    let usual = marks.iter().zip(DELIMITERS).all(|(own, (_, usual))| *own == usual);
    let text = if usual { Cow::Borrowed(body) } else { usual_delimiters(body, &marks).into() };
    Ok(Dialect { text, options })
}

/// The pairs of a header, which commas outside of quotes separate.
fn pairs(line: &str) -> Vec<&str> {
    let (mut out, mut from, mut quote) = (Vec::new(), 0, None);
    for (at, c) in line.char_indices() {
        match (c, quote) {
            ('\'' | '"', None) => quote = Some(c),
            (c, Some(open)) if c == open => quote = None,
            (',', None) => {
                out.push(&line[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    out.push(&line[from..]);
    out.retain(|pair| !pair.trim().is_empty());
    out
}

/// A literal of Python: a text, a boolean or a number.
fn literal(text: &str) -> Result<Value, String> {
    let quoted = ['\'', '"'].iter().find_map(|q| text.strip_prefix(*q)?.strip_suffix(*q));
    match (quoted, text) {
        (Some(inner), _) => Ok(Value::from(inner.replace("\\r", "\r").replace("\\n", "\n"))),
        (None, "True") => Ok(Value::Bool(true)),
        (None, "False") => Ok(Value::Bool(false)),
        (None, "None") => Ok(Value::Null),
        (None, number) => number
            .parse::<i64>()
            .map(Value::from)
            .map_err(|_| format!("`{HEADER}`: `{number}` is neither a text in quotes nor True or False")),
    }
}

/// Replaces the delimiters `marks`, which are in the order of `DELIMITERS`, by the usual ones. What
/// only looks like a usual delimiter becomes a text.
fn usual_delimiters(text: &str, marks: &[&str]) -> String {
    let mut out = String::with_capacity(text.len() + 64);
    let mut rest = text;
    while !rest.is_empty() {
        // The longest delimiter that begins here counts, as in Jinja2.
        let begins = |at: usize| {
            let all = (0..marks.len()).step_by(2).filter(move |i| rest[at..].starts_with(marks[*i]));
            all.max_by_key(|i| marks[*i].len())
        };
        let found = rest.char_indices().find_map(|(at, _)| begins(at).map(|kind| (at, kind)));
        let Some((at, kind)) = found else {
            push_text(rest, &mut out);
            break;
        };
        push_text(&rest[..at], &mut out);
        let inner = &rest[at + marks[kind].len()..];
        let end = match kind {
            4 => inner.find(marks[5]),
            kind => end_of_markup(inner, marks[kind + 1]),
        };
        let (inner, after) = match end {
            Some(end) => (&inner[..end], &inner[end + marks[kind + 1].len()..]),
            None => (inner, ""),
        };
        out.push_str(DELIMITERS[kind].1);
        out.push_str(inner);
        if end.is_some() {
            out.push_str(DELIMITERS[kind + 1].1);
        }
        rest = after;
        if kind == 2 && inner.trim_matches(['-', '+', ' ']) == "raw" {
            let close = marks[2];
            let end = rest
                .match_indices(close)
                .map(|(at, _)| at)
                .find(|at| rest[at + close.len()..].trim_start_matches(['-', '+', ' ']).starts_with("endraw"));
            let (verbatim, after) = rest.split_at(end.unwrap_or(rest.len()));
            out.push_str(verbatim);
            rest = after;
        }
    }
    out
}

fn end_of_markup(inner: &str, end: &str) -> Option<usize> {
    let mut at = 0;
    while let Some(c) = inner[at..].chars().next() {
        match c {
            _ if inner[at..].starts_with(end) => return Some(at),
            '\'' | '"' => at += super::lint::quoted_length(&inner[at..]),
            _ => at += c.len_utf8(),
        }
    }
    None
}

fn push_text(text: &str, out: &mut String) {
    let mut rest = text;
    while let Some(at) = ["{{", "{%", "{#"].iter().filter_map(|mark| rest.find(mark)).min() {
        out.push_str(&rest[..at]);
        out.push_str("{{ '{' }}");
        rest = &rest[at + 1..];
    }
    out.push_str(rest);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_obeyed_and_not_written() {
        fn read(text: &str) -> Result<(String, Map<String, Value>), String> {
            super::read(text, &Map::new(), false).map(|dialect| (dialect.text.into_owned(), dialect.options))
        }
        let (text, options) =
            read("#jinja2: trim_blocks: False, lstrip_blocks:True,newline_sequence: '\\n'\nx {{ y }}").unwrap();
        assert_eq!(text, "x {{ y }}");
        assert_eq!((&options["trim_blocks"], &options["lstrip_blocks"]), (&Value::from(false), &Value::from(true)));
        let marks = "#jinja2: variable_start_string:'[[', variable_end_string: ']]', block_start_string: '<%', block_end_string: '%>'\n";
        let body = "{{ a }} [[ b ~ ']]' ]] <% if c -%>{# d #}<% raw %>[[ {{ ]]<% endraw %>\n";
        assert_eq!(
            read(&format!("{marks}{body}")).unwrap().0,
            "{{ '{' }}{ a }} {{ b ~ ']]' }} {% if c -%}{# d #}{% raw %}[[ {{ ]]{% endraw %}\n"
        );
        for bad in ["#jinja2: trim_blocks\n", "#jinja2: line_statement_prefix: '%'\n", "#jinja2: trim_blocks: x y\n"] {
            assert!(read(bad).unwrap_err().starts_with("`#jinja2:`"), "{bad}");
        }
        assert_eq!(read("a\n#jinja2: x: 1\n").unwrap().0, "a\n#jinja2: x: 1\n");
    }
}
