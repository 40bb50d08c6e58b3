//! Writes YAML byte for byte as PyYAML does for `to_yaml` and `to_nice_yaml`: its indents, quotes
//! and line folds.
//!
//! Only JSON values are written: no tags and no anchors. A value that occurs twice is written
//! twice.

use regex::Regex;
use serde_json::Value;
use std::sync::LazyLock;

/// The format of a YAML document. The fields are keyword arguments of PyYAML's `dump`.
#[derive(Debug, Clone, Copy)]
pub struct Style {
    pub indent: usize,
    pub width: usize,
    pub sort_keys: bool,
    /// Whether lists and maps are written in flow style, with brackets or braces. None: only those
    /// that hold nothing but scalars.
    pub flow: Option<bool>,
    pub explicit_start: bool,
    pub allow_unicode: bool,
}

impl Default for Style {
    fn default() -> Self {
        Self { indent: 2, width: 80, sort_keys: true, flow: None, explicit_start: false, allow_unicode: true }
    }
}

/// Texts that would be parsed as another type without quotes.
static RESOLVED: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let parts = [
        r"yes|Yes|YES|no|No|NO|true|True|TRUE|false|False|FALSE|on|On|ON|off|Off|OFF",
        r"[-+]?(?:[0-9][0-9_]*)\.[0-9_]*(?:[eE][-+][0-9]+)?",
        r"\.[0-9][0-9_]*(?:[eE][-+][0-9]+)?",
        r"[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+\.[0-9_]*",
        r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
        r"[-+]?0b[0-1_]+|[-+]?0[0-7_]+|[-+]?(?:0|[1-9][0-9_]*)|[-+]?0x[0-9a-fA-F_]+",
        r"[-+]?[1-9][0-9_]*(?::[0-5]?[0-9])+",
        r"<<|=|~|null|Null|NULL|",
        r"[0-9]{4}-[0-9]{2}-[0-9]{2}",
        r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:[Tt]|[ \t]+)[0-9]{1,2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]*)?(?:[ \t]*(?:Z|[-+][0-9]{1,2}(?::?[0-9]{2})?))?",
    ];
    Regex::new(&format!("^(?:{})$", parts.join("|"))).ok()
});

/// Writes a whole YAML document.
pub fn write(value: &Value, style: Style) -> String {
    let style = Style { indent: if (2..10).contains(&style.indent) { style.indent } else { 2 }, ..style };
    let width = if style.width > style.indent * 2 { style.width } else { 80 };
    let mut out = Writer {
        out: String::new(),
        column: 0,
        indent: None,
        flow_level: 0,
        whitespace: true,
        indention: true,
        style: Style { width, ..style },
    };
    if style.explicit_start {
        out.indicator("---", true, false, false);
        if !matches!(value, Value::Array(_) | Value::Object(_)) {
            out.whitespace = false;
        }
        out.newline_if(matches!(value, Value::Array(_) | Value::Object(_)));
    }
    out.node(value, Place::Root);
    out.out.push('\n');
    out.out
}

#[derive(Clone, Copy, PartialEq)]
enum Place {
    Root,
    Sequence,
    Mapping,
    Key,
}

struct Writer {
    out: String,
    column: usize,
    indent: Option<usize>,
    flow_level: usize,
    /// Whether the last character is a blank, or nothing was written yet.
    whitespace: bool,
    /// Whether the current line holds only indents and indicators.
    indention: bool,
    style: Style,
}

impl Writer {
    fn put(&mut self, text: &str) {
        self.out.push_str(text);
        self.column += text.chars().count();
    }

    fn line_break(&mut self) {
        self.out.push('\n');
        (self.whitespace, self.indention, self.column) = (true, true, 0);
    }

    fn newline_if(&mut self, needed: bool) {
        if needed {
            self.line_break();
        }
    }

    fn write_indent(&mut self) {
        let indent = self.indent.unwrap_or(0);
        if !self.indention || self.column > indent || (self.column == indent && !self.whitespace) {
            self.line_break();
        }
        if self.column < indent {
            self.whitespace = true;
            let pad = " ".repeat(indent - self.column);
            self.put(&pad);
        }
    }

    fn indicator(&mut self, text: &str, need_whitespace: bool, whitespace: bool, indention: bool) {
        if need_whitespace && !self.whitespace {
            self.put(" ");
        }
        self.whitespace = whitespace;
        self.indention = self.indention && indention;
        self.put(text);
    }

    /// Increases the indent for the items of a list or map. Returns the previous indent, which the
    /// caller restores.
    fn deeper(&mut self, flow: bool, indentless: bool) -> Option<usize> {
        let before = self.indent;
        self.indent = match before {
            None => Some(if flow { self.style.indent } else { 0 }),
            Some(n) if !indentless => Some(n + self.style.indent),
            same => same,
        };
        before
    }

    fn node(&mut self, value: &Value, place: Place) {
        let leaf = |v: &Value| !v.is_array() && !v.is_object();
        match value {
            Value::Array(items) => {
                let flow = self.style.flow.unwrap_or_else(|| items.iter().all(leaf));
                if self.flow_level > 0 || flow || items.is_empty() {
                    self.flow(items.iter().map(|item| (None, item)).collect(), '[', ']');
                } else {
                    let before = self.deeper(false, place == Place::Mapping && !self.indention);
                    for item in items {
                        self.write_indent();
                        self.indicator("-", true, false, true);
                        self.node(item, Place::Sequence);
                    }
                    self.indent = before;
                }
            }
            Value::Object(map) => {
                let mut pairs: Vec<(&String, &Value)> = map.iter().collect();
                if self.style.sort_keys {
                    pairs.sort_by_key(|(key, _)| *key);
                }
                let flow = self.style.flow.unwrap_or_else(|| map.values().all(leaf));
                if self.flow_level > 0 || flow || map.is_empty() {
                    self.flow(pairs.into_iter().map(|(key, value)| (Some(key), value)).collect(), '{', '}');
                } else {
                    let before = self.deeper(false, false);
                    for (key, value) in pairs {
                        self.write_indent();
                        self.pair(key, value, true);
                    }
                    self.indent = before;
                }
            }
            scalar => self.scalar(scalar, place == Place::Key),
        }
    }

    fn pair(&mut self, key: &str, value: &Value, block: bool) {
        let key_value = Value::String(key.to_owned());
        if key.chars().count() < 128 && !key.contains('\n') {
            self.scalar(&key_value, true);
            self.indicator(":", false, false, false);
        } else {
            self.indicator("?", true, false, block);
            self.scalar(&key_value, false);
            if block {
                self.write_indent();
            }
            self.indicator(":", true, false, block);
        }
        self.node(value, Place::Mapping);
    }

    fn flow(&mut self, items: Vec<(Option<&String>, &Value)>, open: char, close: char) {
        self.indicator(&open.to_string(), true, true, false);
        self.flow_level += 1;
        let before = self.deeper(true, false);
        for (i, (key, value)) in items.into_iter().enumerate() {
            if i > 0 {
                self.indicator(",", false, false, false);
            }
            if self.column > self.style.width {
                self.write_indent();
            }
            match key {
                Some(key) => self.pair(key, value, false),
                None => self.node(value, Place::Sequence),
            }
        }
        self.indent = before;
        self.flow_level -= 1;
        self.indicator(&close.to_string(), false, false, false);
    }

    fn scalar(&mut self, value: &Value, key: bool) {
        let before = self.deeper(true, false);
        match value {
            Value::Null => self.write_plain("null", key),
            Value::Bool(b) => self.write_plain(&b.to_string(), key),
            Value::Number(n) => self.write_plain(&number(n), key),
            Value::String(text) => self.text(text, key),
            Value::Array(_) | Value::Object(_) => {}
        }
        self.indent = before;
    }

    fn text(&mut self, text: &str, key: bool) {
        let allowed = Allowed::for_text(text, self.style.allow_unicode);
        let resolved = RESOLVED.as_ref().is_some_and(|regex| regex.is_match(text));
        let fits = if self.flow_level > 0 { allowed.flow_plain } else { allowed.block_plain };
        if !resolved && fits && !(key && (text.is_empty() || allowed.multiline)) {
            self.write_plain(text, key);
        } else if allowed.single && !(key && allowed.multiline) {
            self.single(text, key);
        } else {
            self.double(text, key);
        }
    }

    fn write_plain(&mut self, text: &str, key: bool) {
        if text.is_empty() {
            return;
        }
        if !self.whitespace {
            self.put(" ");
        }
        (self.whitespace, self.indention) = (false, false);
        // The text consists of words and the blanks between them. A single blank may become a line
        // fold.
        let mut rest = text;
        while !rest.is_empty() {
            let word = rest.find(' ').unwrap_or(rest.len());
            self.put(&rest[..word]);
            rest = &rest[word..];
            let blanks = rest.len() - rest.trim_start_matches(' ').len();
            if blanks == 1 && self.column > self.style.width && !key {
                self.write_indent();
                (self.whitespace, self.indention) = (false, false);
            } else {
                self.put(&rest[..blanks]);
            }
            rest = &rest[blanks..];
        }
    }

    fn single(&mut self, text: &str, key: bool) {
        self.indicator("'", true, false, false);
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            let len = match first {
                ' ' => rest.len() - rest.trim_start_matches(' ').len(),
                '\n' => rest.len() - rest.trim_start_matches('\n').len(),
                '\'' => 1,
                _ => rest.find([' ', '\n', '\'']).unwrap_or(rest.len()),
            };
            let (part, after) = rest.split_at(len);
            let inside = rest.len() != text.len() && !after.is_empty();
            match first {
                ' ' if len == 1 && self.column > self.style.width && !key && inside => self.write_indent(),
                '\n' => {
                    // Writes one line break more than the text has, because YAML folds a single
                    // line break into a blank.
                    (0..=len).for_each(|_| self.line_break());
                    self.write_indent();
                }
                '\'' => self.put("''"),
                _ => self.put(part),
            }
            rest = after;
        }
        self.indicator("'", false, false, false);
    }

    fn double(&mut self, text: &str, key: bool) {
        self.indicator("\"", true, false, false);
        let chars: Vec<char> = text.chars().collect();
        let mut run = String::new();
        for end in 0..=chars.len() {
            let ch = chars.get(end).copied();
            let bare = ch.is_some_and(|c| {
                !matches!(c, '"' | '\\' | '\u{85}' | '\u{2028}' | '\u{2029}' | '\u{feff}')
                    && (matches!(c, ' '..='~') || self.style.allow_unicode && ('\u{a0}'..='\u{fffd}').contains(&c))
            });
            let mut started = false;
            if !bare {
                let data = std::mem::take(&mut run);
                self.put(&data);
                if let Some(c) = ch {
                    let data = escape_char(c);
                    self.put(&data);
                    started = true;
                }
            }
            let long = self.column + run.chars().count() > self.style.width;
            if end > 0 && end + 1 < chars.len() && (ch == Some(' ') || started) && long && !key {
                let data = format!("{}\\", std::mem::take(&mut run));
                self.put(&data);
                self.write_indent();
                (self.whitespace, self.indention) = (false, false);
                let next = if started { chars.get(end + 1) } else { chars.get(end) };
                if next == Some(&' ') {
                    self.put("\\");
                }
            }
            run.extend(ch.filter(|_| bare));
        }
        self.indicator("\"", false, false, false);
    }
}

fn escape_char(c: char) -> String {
    let short = match c {
        '\0' => '0',
        '\u{7}' => 'a',
        '\u{8}' => 'b',
        '\t' => 't',
        '\n' => 'n',
        '\u{b}' => 'v',
        '\u{c}' => 'f',
        '\r' => 'r',
        '\u{1b}' => 'e',
        '"' => '"',
        '\\' => '\\',
        '\u{85}' => 'N',
        '\u{a0}' => '_',
        '\u{2028}' => 'L',
        '\u{2029}' => 'P',
        _ => {
            return match u32::from(c) {
                n @ 0..=0xff => format!("\\x{n:02X}"),
                n @ 0x100..=0xffff => format!("\\u{n:04X}"),
                n => format!("\\U{n:08X}"),
            };
        }
    };
    format!("\\{short}")
}

/// The styles in which a text can be written.
struct Allowed {
    multiline: bool,
    flow_plain: bool,
    block_plain: bool,
    single: bool,
}

impl Allowed {
    fn for_text(text: &str, allow_unicode: bool) -> Self {
        if text.is_empty() {
            return Self { multiline: false, flow_plain: false, block_plain: true, single: true };
        }
        let chars: Vec<char> = text.chars().collect();
        let is_break = |c: char| matches!(c, '\n' | '\u{85}' | '\u{2028}' | '\u{2029}');
        let blank = |c: Option<&char>| c.is_none_or(|c| matches!(c, '\0' | ' ' | '\t' | '\r') || is_break(*c));
        let (mut block, mut flow) = (text.starts_with("---") || text.starts_with("..."), false);
        flow |= block;
        let (mut breaks, mut special, mut break_space, mut space_break) = (false, false, false, false);
        for (i, &c) in chars.iter().enumerate() {
            let before = i.checked_sub(1).and_then(|i| chars.get(i));
            let followed = blank(chars.get(i + 1));
            if i == 0 {
                let leading = "#,[]{}&*!|>'\"%@`".contains(c) || c == '-' && followed;
                flow |= leading || matches!(c, '?' | ':');
                block |= leading || matches!(c, '?' | ':') && followed;
            } else {
                flow |= matches!(c, ',' | '?' | '[' | ']' | '{' | '}' | ':') || c == '#' && blank(before);
                block |= c == ':' && followed || c == '#' && blank(before);
            }
            breaks |= is_break(c);
            let printable = c == '\n' || matches!(c, ' '..='~');
            let unicode = c == '\u{85}' || c >= '\u{a0}' && c != '\u{feff}' && c != '\u{fffe}' && c != '\u{ffff}';
            special |= !(printable || unicode && allow_unicode);
            break_space |= c == ' ' && before.is_some_and(|b| is_break(*b));
            space_break |= is_break(c) && before == Some(&' ');
        }
        let edge = |c: Option<&char>| c.is_some_and(|c| *c == ' ' || is_break(*c));
        let edges = edge(chars.first()) || edge(chars.last());
        let plain = !(edges || break_space || space_break || special || breaks);
        Self {
            multiline: breaks,
            flow_plain: plain && !flow,
            block_plain: plain && !block,
            single: !(break_space || space_break || special),
        }
    }
}

/// A number as Python's `repr` writes it, with the decimal point that YAML requires before an
/// exponent.
fn number(n: &serde_json::Number) -> String {
    match n.as_f64() {
        Some(x) if n.is_f64() => {
            let text = crate::lang::python::float(x);
            match text.as_str() {
                "inf" => ".inf".into(),
                "-inf" => "-.inf".into(),
                "nan" => ".nan".into(),
                _ if text.contains('e') && !text.contains('.') => text.replacen('e', ".0e", 1),
                _ => text,
            }
        }
        _ => n.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lang::yaml;
    use proptest::prelude::*;
    use serde_json::json;

    fn value() -> impl Strategy<Value = Value> {
        let text = prop_oneof![
            "[a-z0-9 :#,'\"\\[\\]{}&*!|>%@?=~<.-]{0,12}",
            "(word ){0,40}end",
            "[a\u{e9}\u{2603}\u{1f600}\\\\\t\n ]{0,30}",
            Just("yes".to_owned()),
            Just("0755".to_owned()),
        ];
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i32>().prop_map(Value::from),
            text.clone().prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 40, 6, move |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                proptest::collection::btree_map(text.clone(), inner, 0..6)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(value in value(), indent in 2usize..5, flow in any::<Option<bool>>(), width in 20usize..100) {
            let style = Style { indent, flow, width, ..Style::default() };
            let text = write(&value, style);
            let (node, _) = yaml::parse("t", &text).map_err(|e| TestCaseError::fail(format!("{e}\n{text}")))?;
            prop_assert_eq!(node.json(), value, "{}", text);
        }
    }

    #[test]
    fn long_keys_and_rare_characters() {
        let style = Style { flow: Some(false), ..Style::default() };
        let long = "k".repeat(130);
        assert_eq!(write(&json!({ long.as_str(): 1 }), style), format!("? {long}\n: 1\n"));
        assert_eq!(write(&json!({"a": "tab\there \u{7}\u{85}"}), style), "a: \"tab\\there \\a\\N\"\n");
        assert_eq!(write(&json!([["x"], {"a": {"b": []}}]), style), "- - x\n- a:\n    b: []\n");
    }
}
