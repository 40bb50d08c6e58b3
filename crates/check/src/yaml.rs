//! Parses YAML into a tree whose nodes have their positions. Rejects values that YAML 1.1 and 1.2
//! read differently.

use super::redact::redact_passwords;
use remoor_model::Fault;
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Number, Value};
use serde_saphyr::Spanned;
use std::fmt;

#[derive(Debug, Clone, PartialEq)]
pub(super) struct YamlNode {
    pub line: u32,
    pub column: u32,
    pub yaml: Yaml,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Yaml {
    Null,
    Bool(bool),
    Number(Number),
    Text(String),
    List(Vec<YamlNode>),
    Map(Vec<(YamlKey, YamlNode)>),
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct YamlKey {
    pub line: u32,
    pub column: u32,
    pub text: String,
}

impl YamlNode {
    pub fn fault(&self, file: &str, message: impl Into<String>) -> Fault {
        Fault::error(file, self.line, self.column, message)
    }

    /// The entries of a map; empty for other values.
    pub fn pairs(&self) -> &[(YamlKey, YamlNode)] {
        match &self.yaml {
            Yaml::Map(pairs) => pairs,
            _ => &[],
        }
    }

    /// The kind of value, for messages.
    pub fn kind(&self) -> &'static str {
        match self.yaml {
            Yaml::Null => "nothing",
            Yaml::Bool(_) => "true or false",
            Yaml::Number(_) => "a number",
            Yaml::Text(_) => "a string",
            Yaml::List(_) => "a list",
            Yaml::Map(_) => "a map",
        }
    }

    /// The value without positions.
    pub fn value(&self) -> Value {
        match &self.yaml {
            Yaml::Null => Value::Null,
            Yaml::Bool(b) => Value::Bool(*b),
            Yaml::Number(n) => Value::Number(n.clone()),
            Yaml::Text(s) => Value::String(s.clone()),
            Yaml::List(items) => Value::Array(items.iter().map(YamlNode::value).collect()),
            Yaml::Map(pairs) => Value::Object(pairs.iter().map(|(k, v)| (k.text.clone(), v.value())).collect()),
        }
    }
}

impl YamlKey {
    pub fn fault(&self, file: &str, message: impl Into<String>) -> Fault {
        Fault::error(file, self.line, self.column, message)
    }
}

/// Maximum nesting, which also limits nested matchers. Real check files have a much smaller
/// nesting. A larger limit is not safe: in a debug build, 64 (the limit of the crate `serde_saphyr`
/// itself) overflows a stack of 2 MiB.
const DEPTH_MAX: usize = 32;

/// Parses the single document of `text`. An empty document is `Null`.
pub(super) fn parse(file: &str, text: &str) -> Result<YamlNode, Vec<Fault>> {
    match parse_with_faults(file, text)? {
        (node, faults) if faults.is_empty() => Ok(node),
        (_, faults) => Err(faults),
    }
}

/// Like [`parse`], but also returns the document if it has ambiguous values, so that the caller can
/// report its other faults too.
pub(super) fn parse_with_faults(file: &str, text: &str) -> Result<(YamlNode, Vec<Fault>), Vec<Fault>> {
    let node = read(file, text, true)?;
    let mut faults = Vec::new();
    ambiguous(file, &lines(text), &node, &mut faults);
    Ok((node, faults))
}

/// Parses the first document of `text` as goss's YAML reader does. Each value that [`parse`]
/// rejects is a warning.
pub(super) fn parse_as_goss(file: &str, text: &str) -> Result<(YamlNode, Vec<Fault>), Vec<Fault>> {
    let (first, next) = first_document(text);
    let mut node = read(file, first, false)?;
    let mut faults = Vec::new();
    if let Some(line) = next {
        faults.push(Fault::error(file, line, 1, "only the first YAML document is read, as in goss"));
    }
    let lines = lines(first);
    ambiguous(file, &lines, &node, &mut faults);
    read_plain_values(&lines, &mut node);
    Ok((node, faults.into_iter().map(|fault| Fault { warning: true, ..fault }).collect()))
}

/// Reads a document. Unknown tags are rejected, or otherwise ignored.
fn read(file: &str, text: &str, reject_tags: bool) -> Result<YamlNode, Vec<Fault>> {
    let options = serde_saphyr::options! {
        strict_booleans: true,
        with_snippet: false,
        reject_unsupported_tags: reject_tags,
        // Many aliases of one anchor are common in check files. The number of events that all
        // aliases together replay has a limit of its own.
        budget: serde_saphyr::budget! { max_depth: DEPTH_MAX, enforce_alias_anchor_ratio: false },
    };
    serde_saphyr::from_str_with_options(text, options).map_err(|e| vec![syntax(file, &e)])
}

/// The text of the first document, and the line on which another document begins. A line with a
/// marker ends a document even within a quoted text, so no parser is needed.
fn first_document(text: &str) -> (&str, Option<u32>) {
    let is_marker = |line: &str, marker: &str| {
        line.strip_prefix(marker).is_some_and(|rest| rest.is_empty() || rest.starts_with(char::is_whitespace))
    };
    let (mut at, mut begun) = (0, false);
    for (number, line) in text.split_inclusive('\n').enumerate() {
        let starts = is_marker(line, "---");
        if begun && (starts || is_marker(line, "...")) {
            let more = starts || text[at + line.len()..].lines().any(|line| is_marker(line, "---"));
            return (&text[..at], more.then(|| u32::try_from(number + 1).unwrap_or(u32::MAX)));
        }
        begun |= starts || !(line.trim().is_empty() || line.starts_with(['#', '%']));
        at += line.len();
    }
    (text, None)
}

/// Gives plain values the meaning that they have for goss: the number `0644` is 420, and an unknown
/// tag without a value, such as `!md5`, is an empty text.
fn read_plain_values(lines: &[&str], node: &mut YamlNode) {
    let octal = octal_digits(lines, node).and_then(|digits| u64::from_str_radix(digits, 8).ok());
    let tagged = plain_token(lines, node).starts_with('!');
    match &mut node.yaml {
        Yaml::List(items) => items.iter_mut().for_each(|item| read_plain_values(lines, item)),
        Yaml::Map(pairs) => pairs.iter_mut().for_each(|(_, value)| read_plain_values(lines, value)),
        Yaml::Number(number) => *number = octal.map_or_else(|| number.clone(), Number::from),
        Yaml::Null if tagged => node.yaml = Yaml::Text(String::new()),
        _ => {}
    }
}

/// The digits of a number that YAML 1.1 reads as octal.
fn octal_digits<'a>(lines: &[&'a str], node: &YamlNode) -> Option<&'a str> {
    let token = matches!(node.yaml, Yaml::Number(_)).then(|| plain_token(lines, node))?;
    let digits = token.strip_prefix("0o").or_else(|| token.strip_prefix('0'))?;
    (!digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit())).then_some(digits)
}

/// Splits into lines as YAML does: a carriage return alone also ends a line.
fn lines(text: &str) -> Vec<&str> {
    text.split('\n').flat_map(|line| line.strip_suffix('\r').unwrap_or(line).split('\r')).collect()
}

fn syntax(file: &str, error: &serde_saphyr::Error) -> Fault {
    let full = error.without_snippet().to_string();
    // The position is reported separately, and the names of the options of `serde_saphyr` mean
    // nothing to the user.
    let message = full.split(" at line ").next().unwrap_or(&full);
    let message = message.split(", set DuplicateKeyPolicy").next().unwrap_or(message);
    let (line, column) = error.location().map_or((0, 0), |at| (saturating_u32(at.line()), saturating_u32(at.column())));
    let text = message.to_lowercase();
    // The message may quote a key that is a URL with a password.
    let fault = Fault::error(file, line, column, redact_passwords(message));
    if text.contains("escape") {
        fault.hint("write regular expressions in single quotes: '\\.' keeps its backslash")
    } else if text.contains("duplicate") {
        fault.hint("put both under one key")
    } else {
        fault
    }
}

fn saturating_u32(n: u64) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

/// Finds plain words and numbers that another YAML reader interprets differently.
fn ambiguous(file: &str, lines: &[&str], node: &YamlNode, faults: &mut Vec<Fault>) {
    match &node.yaml {
        Yaml::List(items) => items.iter().for_each(|item| ambiguous(file, lines, item, faults)),
        Yaml::Map(pairs) => pairs.iter().for_each(|(_, value)| ambiguous(file, lines, value, faults)),
        Yaml::Text(text) if is_old_boolean(text) && is_plain(lines, node) => {
            let meant = matches!(text.to_ascii_lowercase().as_str(), "yes" | "on");
            faults.push(
                node.fault(file, format!("`{text}` is a boolean for some YAML readers and a string for others"))
                    .hint(format!("write `{meant}`, or \"{text}\" for the string")),
            );
        }
        Yaml::Number(_) => {
            if let Some(digits) = octal_digits(lines, node) {
                let token = plain_token(lines, node);
                faults.push(
                    node.fault(file, format!("`{token}` is octal for some YAML readers and decimal for others"))
                        .hint(format!("write \"0{digits}\" in quotes")),
                );
            }
        }
        _ => {}
    }
}

fn is_old_boolean(text: &str) -> bool {
    ["yes", "no", "on", "off"].iter().any(|word| text.eq_ignore_ascii_case(word))
}

/// The text from the node's position to the end of the token.
fn plain_token<'a>(lines: &[&'a str], node: &YamlNode) -> &'a str {
    let Some(line) = (node.line as usize).checked_sub(1).and_then(|n| lines.get(n)) else { return "" };
    let start = line.char_indices().nth((node.column as usize).saturating_sub(1)).map_or(line.len(), |(at, _)| at);
    let rest = &line[start..];
    &rest[..rest.find(|c: char| c.is_whitespace() || ",]}".contains(c)).unwrap_or(rest.len())]
}

fn is_plain(lines: &[&str], node: &YamlNode) -> bool {
    is_old_boolean(plain_token(lines, node))
}

impl<'de> Deserialize<'de> for YamlNode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = Spanned::<Yaml>::deserialize(deserializer)?;
        let at = spanned.referenced;
        Ok(Self { line: saturating_u32(at.line()), column: saturating_u32(at.column()), yaml: spanned.value })
    }
}

impl<'de> Deserialize<'de> for YamlKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = Spanned::<String>::deserialize(deserializer)?;
        let at = spanned.referenced;
        Ok(Self { line: saturating_u32(at.line()), column: saturating_u32(at.column()), text: spanned.value })
    }
}

impl<'de> Deserialize<'de> for Yaml {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(YamlVisitor)
    }
}

struct YamlVisitor;

impl<'de> Visitor<'de> for YamlVisitor {
    type Value = Yaml;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("any YAML value")
    }
    fn visit_unit<E>(self) -> Result<Yaml, E> {
        Ok(Yaml::Null)
    }
    fn visit_bool<E>(self, value: bool) -> Result<Yaml, E> {
        Ok(Yaml::Bool(value))
    }
    fn visit_i64<E>(self, value: i64) -> Result<Yaml, E> {
        Ok(Yaml::Number(value.into()))
    }
    fn visit_u64<E>(self, value: u64) -> Result<Yaml, E> {
        Ok(Yaml::Number(value.into()))
    }
    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Yaml, E> {
        Number::from_f64(value).map(Yaml::Number).ok_or_else(|| E::custom("not a finite number"))
    }
    fn visit_str<E>(self, value: &str) -> Result<Yaml, E> {
        Ok(Yaml::Text(value.to_owned()))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Yaml, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element()? {
            items.push(item);
        }
        Ok(Yaml::List(items))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Yaml, A::Error> {
        let mut pairs = Vec::new();
        while let Some(pair) = map.next_entry()? {
            pairs.push(pair);
        }
        Ok(Yaml::Map(pairs))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;
    use std::fmt::Write;

    fn faults(text: &str) -> String {
        parse("f.yml", text).unwrap_err().iter().fold(String::new(), |mut out, fault| {
            let _ = writeln!(out, "{fault}");
            out
        })
    }

    #[test]
    fn positions_and_types_are_kept() {
        let node = parse("f", "a: 1\nb:\n  - x: true\n    8080: \"0644\"\n  - 'yes'\n").unwrap();
        assert_eq!(node.value(), serde_json::json!({"a": 1, "b": [{"x": true, "8080": "0644"}, "yes"]}));
        let Yaml::Map(pairs) = &node.yaml else { panic!() };
        assert_eq!((pairs[1].0.line, pairs[1].0.column), (2, 1));
        let Yaml::List(items) = &pairs[1].1.yaml else { panic!() };
        let Yaml::Map(inner) = &items[0].yaml else { panic!() };
        assert_eq!((inner[1].0.line, inner[1].0.column, inner[1].1.line, inner[1].1.column), (4, 5, 4, 11));
        assert_eq!(parse("f", "# nothing\n").unwrap().yaml, Yaml::Null);
    }

    #[test]
    fn many_aliases_of_one_anchor_are_accepted_within_a_limit() {
        let list = |count: usize| format!("a: &a [x]\nb:\n{}", "  - *a\n".repeat(count));
        assert!(parse("f", &list(500)).is_ok());
        let levels: String =
            (1..12).map(|n| format!("a{n}: &a{n} [{}]\n", format!("*a{}, ", n - 1).repeat(10))).collect();
        assert!(parse("f", &format!("a0: &a0 [x]\n{levels}")).is_err(), "the values would fill the memory");
    }

    #[test]
    fn ambiguous_values_are_rejected() {
        expect![[r#"
            f.yml:1:11: `0644` is octal for some YAML readers and decimal for others
              hint: write "0644" in quotes
            f.yml:1:21: `0o17` is octal for some YAML readers and decimal for others
              hint: write "017" in quotes
            f.yml:1:27: `yes` is a boolean for some YAML readers and a string for others
              hint: write `true`, or "yes" for the string
            f.yml:1:36: `off` is a boolean for some YAML readers and a string for others
              hint: write `false`, or "off" for the string
            f.yml:2:4: `On` is a boolean for some YAML readers and a string for others
              hint: write `true`, or "On" for the string
        "#]]
        .assert_eq(&faults("a: {mode: 0644, x: [0o17, yes], é: off}\nb: On\n"));
        // The fault must also be found if lines end in `\r` or `\r\n`, which change the reported
        // position of a word (found by fuzzing).
        for text in ["# old\rmode: 0644\n", "# old\r\nmode: 0644\r\n", "# old\rx: 1\r\nmode: 0644"] {
            assert!(faults(text).contains("`0644` is octal"), "{text:?}");
        }
        expect![[r#"
            f.yml:2:1: duplicate mapping key: a
              hint: put both under one key
        "#]]
        .assert_eq(&faults("a: 1\na: 2\n"));
        expect![[r#"
            f.yml:1:4: while parsing a quoted scalar, found unknown escape character
              hint: write regular expressions in single quotes: '\.' keeps its backslash
        "#]]
        .assert_eq(&faults("a: \"^1\\.2\"\n"));
        expect![[r#"
            f.yml:1:11: unsupported tag `!vault`
        "#]]
        .assert_eq(&faults("a: !vault x\n"));
        expect![[r#"
            f.yml:2:2: illegal placement of ':' indicator
        "#]]
        .assert_eq(&faults("a: [1\nb: 2\n"));
    }
}
