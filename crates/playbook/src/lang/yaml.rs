//! Parses YAML into one tree in which every value knows its line and column.
//!
//! Plain scalars have the types of YAML 1.1, as in Ansible (`yaml_scalar.rs`). Unknown tags,
//! duplicate keys and documents that grow too large are rejected. The tree knows nothing of
//! playbooks.

use super::merge_keys;
use remoor_model::Fault;
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Number, Value};
use serde_saphyr::Spanned;
use serde_saphyr::options::{DuplicateKeyPolicy, MergeKeyPolicy};
use std::borrow::Cow;
use std::fmt;

/// The tag of a text that is never a template.
const UNSAFE: &str = "!unsafe";
/// The tags of a text that ansible-vault has encrypted.
const VAULT: [&str; 2] = ["!vault", "!vault-encrypted"];
/// Maximum size in bytes of a YAML file.
const BYTES_MAX: usize = 4 << 20;
/// Maximum nesting depth. Real playbooks are far less deep, and the stack has room for this depth.
const DEPTH_MAX: usize = 64;

/// A YAML value with its position; lines and columns count from 1.
#[derive(Debug, Clone, PartialEq)]
pub struct SpannedNode {
    pub line: u32,
    pub column: u32,
    pub data: SpannedData,
}

#[derive(Debug, Clone, PartialEq)]
pub enum SpannedData {
    Null,
    Bool(bool),
    Number(Number),
    Text(String),
    /// A text that ansible-vault has encrypted.
    Encrypted(String),
    List(Vec<SpannedNode>),
    /// The pairs in the order of the file.
    Map(Vec<(SpannedKey, SpannedNode)>),
}

impl SpannedData {
    /// A value that is not from a file. Its parts have the position `at`.
    pub fn from_json(value: &Value, at: (u32, u32)) -> Self {
        let (line, column) = at;
        let node = |value: &Value| SpannedNode { line, column, data: Self::from_json(value, at) };
        match value {
            Value::Null => Self::Null,
            Value::Bool(b) => Self::Bool(*b),
            Value::Number(n) => Self::Number(n.clone()),
            Value::String(text) => Self::Text(text.clone()),
            Value::Array(items) => Self::List(items.iter().map(node).collect()),
            Value::Object(map) => {
                let key = |text: &String| SpannedKey { line, column, text: text.clone(), boolean: None };
                Self::Map(map.iter().map(|(name, value)| (key(name), node(value))).collect())
            }
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct SpannedKey {
    pub line: u32,
    pub column: u32,
    pub text: String,
    /// The boolean value of an unquoted key that is a boolean in YAML 1.1 (`on`, `yes`).
    pub boolean: Option<bool>,
}

impl SpannedKey {
    /// The name of the key in a map of variables. A boolean key has the name that Python prints for
    /// the boolean.
    fn name(&self) -> &str {
        match self.boolean {
            Some(true) => "True",
            Some(false) => "False",
            None => &self.text,
        }
    }
}

/// Parses a boolean of YAML 1.1.
pub(super) fn boolean(source: &str) -> Option<bool> {
    match source {
        "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => Some(true),
        "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => Some(false),
        _ => None,
    }
}

impl SpannedNode {
    /// The value as JSON, without positions.
    pub fn json(&self) -> Value {
        match &self.data {
            SpannedData::Null => Value::Null,
            SpannedData::Bool(b) => Value::Bool(*b),
            SpannedData::Number(n) => Value::Number(n.clone()),
            SpannedData::Text(s) => Value::String(s.clone()),
            SpannedData::Encrypted(s) => remoor_vault::seal(s),
            SpannedData::List(items) => Value::Array(items.iter().map(SpannedNode::json).collect()),
            SpannedData::Map(pairs) => {
                Value::Object(pairs.iter().map(|(k, v)| (k.name().to_owned(), v.json())).collect())
            }
        }
    }

    pub fn map(&self) -> Option<&[(SpannedKey, SpannedNode)]> {
        match &self.data {
            SpannedData::Map(pairs) => Some(pairs),
            _ => None,
        }
    }

    pub fn list(&self) -> Option<&[SpannedNode]> {
        match &self.data {
            SpannedData::List(items) => Some(items),
            _ => None,
        }
    }

    /// A scalar as text, as a person would have written it; None for null, lists and maps.
    pub fn text(&self) -> Option<String> {
        match &self.data {
            SpannedData::Text(s) => Some(s.clone()),
            SpannedData::Bool(b) => Some(if *b { "True" } else { "False" }.to_owned()),
            SpannedData::Number(n) => Some(n.to_string()),
            _ => None,
        }
    }

    pub fn get(&self, key: &str) -> Option<&SpannedNode> {
        self.map()?.iter().find(|(k, _)| k.text == key).map(|(_, v)| v)
    }

    /// The type of the value, for messages.
    pub fn kind(&self) -> &'static str {
        match self.data {
            SpannedData::Null => "nothing",
            SpannedData::Bool(_) => "a boolean",
            SpannedData::Number(_) => "a number",
            SpannedData::Text(_) => "a text",
            SpannedData::Encrypted(_) => "an encrypted text",
            SpannedData::List(_) => "a list",
            SpannedData::Map(_) => "a map",
        }
    }
}

/// Reads one document; an empty file is `Null`. The second value holds warnings.
pub fn parse(file: &str, text: &str) -> Result<(SpannedNode, Vec<Fault>), Fault> {
    if text.len() > BYTES_MAX {
        return Err(Fault::error(
            file,
            0,
            0,
            format!("the file has {} bytes, but the maximum for YAML is {BYTES_MAX}", text.len()),
        ));
    }
    let mut options = serde_saphyr::Options::default();
    // The tags of Ansible are not known to the parser. `place` rejects the other unknown tags then.
    options.reject_unsupported_tags = !has_own_tag(text);
    options.non_finite_float_policy = serde_saphyr::options::NonFiniteFloatPolicy::PassThrough;
    options.with_snippet = false;
    options.budget = serde_saphyr::budget! { max_depth: DEPTH_MAX, max_nodes: 200_000, max_aliases: 2_000 };
    options.alias_limits.max_total_replayed_events = 100_000;
    // The parser would add merged keys after the own keys of a map, and leave out replaced ones. So
    // `merge_keys` merges them.
    options.merge_keys = MergeKeyPolicy::AsOrdinary;
    let mut text = Cow::Borrowed(text);
    let mut read = serde_saphyr::from_str_with_options::<Spanned<Raw>>(&text, options.clone());
    for _ in 0..CHANGES_MAX {
        let error = read.as_ref().err().map(serde_saphyr::Error::without_snippet);
        let changed =
            error.and_then(|error| indent_quoted_line(&text, error).or_else(|| merge_keys::number_key(&text, error)));
        let Some(changed) = changed else { break };
        text = Cow::Owned(changed);
        read = serde_saphyr::from_str_with_options::<Spanned<Raw>>(&text, options.clone());
    }
    let text = &*text;
    let raw = read.map_err(|error| match error.without_snippet() {
        serde_saphyr::Error::DuplicateMappingKey { key: Some(key), location } => {
            options.duplicate_keys = DuplicateKeyPolicy::FirstWins;
            let all = serde_saphyr::from_str_with_options::<Spanned<Raw>>(text, options);
            duplicate_key_fault(file, key, (location.line() as u32, location.column() as u32), all.ok().as_ref())
        }
        error => parse_fault(file, error),
    })?;
    let mut faults = Vec::new();
    let node = place(raw, file, text, &mut faults);
    match faults.iter().position(|fault| !fault.warning) {
        Some(at) => Err(faults.swap_remove(at)),
        None => Ok((node, faults)),
    }
}

/// Maximum number of changes of the text of a file, so that the parser reads it as PyYAML does.
const CHANGES_MAX: usize = 100;
/// The blanks that it adds to a line.
const INDENTATION: &str = "                                ";

/// PyYAML accepts a quoted text whose later lines are indented less than its key; the parser
/// refuses such a line. Returns the text with this line indented, which does not change the value,
/// because blanks at the start of such a line are not part of it. None: the error is another one.
fn indent_quoted_line(text: &str, error: &serde_saphyr::Error) -> Option<String> {
    let line = error.location()?.line() as usize;
    if !error.to_string().contains("invalid indentation in multiline quoted scalar") {
        return None;
    }
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let own = lines.get(line.checked_sub(1)?).filter(|own| !own.starts_with(INDENTATION))?;
    Some([&lines[..line - 1].concat(), INDENTATION, own, &lines[line..].concat()].concat())
}

fn parse_fault(file: &str, error: &serde_saphyr::Error) -> Fault {
    let error = error.without_snippet();
    let at = error.location().map_or((0, 0), |l| (l.line() as u32, l.column() as u32));
    refusal(file, &error.to_string(), at)
}

fn refusal(file: &str, full: &str, (line, column): (u32, u32)) -> Fault {
    let message = match full.find(" at line ") {
        Some(at) if at > 0 && full[at..].len() < 40 => full[..at].to_owned(),
        _ => full.to_owned(),
    };
    let fault = Fault::error(file, line, column, message);
    if full.contains("tag") && full.contains("!vault") {
        fault.hint("only a text can be encrypted")
    } else if full.contains("tag") {
        fault.hint("tags are not part of the language; quote the text, or use `provisioner: ansible`")
    } else {
        fault
    }
}

/// The error for a duplicate `key` at the position `at`. `first` is the same file, parsed without
/// the repetitions of duplicate keys; None if that failed too.
fn duplicate_key_fault(file: &str, key: &str, at: (u32, u32), first: Option<&Spanned<Raw>>) -> Fault {
    fn places(raw: &Spanned<Raw>, key: &str, out: &mut Vec<(u32, u32)>) {
        match &raw.value {
            Raw::List(items) => items.iter().for_each(|item| places(item, key, out)),
            Raw::Map(pairs) => {
                for (own, value) in pairs {
                    if own.value == key {
                        out.push((own.referenced.line() as u32, own.referenced.column() as u32));
                    }
                    places(value, key, out);
                }
            }
            _ => {}
        }
    }
    let mut found = Vec::new();
    first.into_iter().for_each(|raw| places(raw, key, &mut found));
    // A key in the same column is preferred, because it is most likely in the same map. In flow
    // maps the columns differ.
    let before = found.into_iter().filter(|place| *place < at).max_by_key(|place| (place.1 == at.1, *place));
    let there = before
        .map_or_else(|| "the map already has this key".to_owned(), |(line, _)| format!("it is already in line {line}"));
    Fault::error(file, at.0, at.1, format!("duplicate key `{key}`: {there}"))
        .hint("Ansible warns and uses the last one; remove the others")
}

/// Adds positions to all values, and gives plain scalars their types.
fn place(raw: Spanned<Raw>, file: &str, text: &str, warnings: &mut Vec<Fault>) -> SpannedNode {
    let (line, column) = (raw.referenced.line() as u32, raw.referenced.column() as u32);
    let source = source_of(&raw, text);
    let data = match raw.value {
        scalar @ (Raw::Null | Raw::Bool(_) | Raw::Number(_) | Raw::Text(_)) => {
            let tag = tag_before(&raw.defined, text);
            let own = tag.is_empty() || tag == UNSAFE || VAULT.contains(&tag);
            // The search through the whole text comes last, because few values have a tag.
            if !own && !tag.starts_with("!!") && has_own_tag(text) {
                warnings.push(refusal(file, &tag_error(tag), (line, column)));
            }
            let known = match scalar {
                Raw::Bool(b) => SpannedData::Bool(b),
                Raw::Number(n) => SpannedData::Number(n),
                Raw::Text(s) => SpannedData::Text(s),
                _ => SpannedData::Null,
            };
            match known {
                _ if VAULT.contains(&tag) => SpannedData::Encrypted(match known {
                    SpannedData::Text(text) => text,
                    _ => source.to_owned(),
                }),
                SpannedData::Text(text) if tag == UNSAFE => {
                    SpannedData::Text(format!("{{% raw %}}{text}{{% endraw %}}"))
                }
                SpannedData::Text(text) if text != source => SpannedData::Text(text),
                known if tag.is_empty() && !source.is_empty() && is_plain(&raw.defined, source, text) => {
                    super::yaml_scalar::resolve(source).unwrap_or(known)
                }
                known => known,
            }
        }
        Raw::List(items) => {
            SpannedData::List(items.into_iter().map(|item| place(item, file, text, warnings)).collect())
        }
        Raw::Map(pairs) => {
            let (mut own, mut merged) = (Vec::new(), Vec::new());
            for (k, v) in pairs {
                let (line, column) = (k.referenced.line() as u32, k.referenced.column() as u32);
                let source = source_of(&k, text);
                let (boolean, is_merge) = (boolean(source), merge_keys::is_merge_key(&k.value, source));
                let value = place(v, file, text, warnings);
                match is_merge {
                    true => merged.push(value),
                    false => own.push((SpannedKey { line, column, text: k.value, boolean }, value)),
                }
            }
            if merged.is_empty() {
                SpannedData::Map(own)
            } else {
                let (pairs, wrong) = merge_keys::merge_maps(merged, own);
                let fault = |(line, column)| Fault::error(file, line, column, "`<<` takes a map or a list of maps");
                warnings.extend(wrong.map(fault));
                SpannedData::Map(pairs)
            }
        }
    };
    SpannedNode { line, column, data }
}

/// Whether a tag of Ansible may occur in the text.
fn has_own_tag(text: &str) -> bool {
    text.contains(UNSAFE) || text.contains("!vault")
}

fn tag_error(tag: &str) -> String {
    format!("unsupported tag {tag}")
}

/// The source before a value, without the blanks at its end.
fn source_before<'t>(defined: &serde_saphyr::Location, text: &'t str) -> &'t str {
    let at = defined.span().byte_offset().and_then(|at| text.get(..at as usize));
    at.unwrap_or_default().trim_end()
}

/// The tag that is written before a value, such as `!unsafe`. Empty: there is none.
fn tag_before<'t>(defined: &serde_saphyr::Location, text: &'t str) -> &'t str {
    let mut words = source_before(defined, text).rsplit([' ', '\t', '\n', '[', ',', '{']);
    let word = words.next().unwrap_or_default();
    let indicator = |word: &str| word.starts_with(['|', '>', '&']);
    let word = if indicator(word) { words.next().unwrap_or_default() } else { word };
    let name = |c: char| c.is_ascii_alphanumeric() || "!_-./".contains(c);
    if word.starts_with('!') && word.chars().all(name) { word } else { "" }
}

/// Whether a scalar is written without quotes, in one line, and not as a block.
fn is_plain(defined: &serde_saphyr::Location, source: &str, text: &str) -> bool {
    let before = source_before(defined, text);
    let last = before.rsplit([' ', '\n', '\t']).next().unwrap_or_default();
    let block = last.starts_with(['|', '>']) && last[1..].chars().all(|c| c.is_ascii_digit() || matches!(c, '+' | '-'));
    !block && !source.contains('\n') && !source.starts_with(['\'', '"', '|', '>', '!', '&', '*'])
}

/// The source text of a value, including quotes.
fn source_of<'t, T>(raw: &Spanned<T>, text: &'t str) -> &'t str {
    let span = raw.defined.span();
    let at = span.byte_offset().zip(span.byte_len());
    at.and_then(|(at, len)| text.get(at as usize..(at + len) as usize)).unwrap_or("").trim()
}

enum Raw {
    Null,
    Bool(bool),
    Number(Number),
    Text(String),
    List(Vec<Spanned<Raw>>),
    Map(Vec<(Spanned<String>, Spanned<Raw>)>),
}

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(RawVisitor)
    }
}

struct RawVisitor;

impl<'de> Visitor<'de> for RawVisitor {
    type Value = Raw;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a YAML value")
    }
    fn visit_unit<E>(self) -> Result<Raw, E> {
        Ok(Raw::Null)
    }
    fn visit_none<E>(self) -> Result<Raw, E> {
        Ok(Raw::Null)
    }
    fn visit_bool<E>(self, v: bool) -> Result<Raw, E> {
        Ok(Raw::Bool(v))
    }
    fn visit_i64<E>(self, v: i64) -> Result<Raw, E> {
        Ok(Raw::Number(v.into()))
    }
    fn visit_u64<E>(self, v: u64) -> Result<Raw, E> {
        Ok(Raw::Number(v.into()))
    }
    fn visit_f64<E>(self, v: f64) -> Result<Raw, E> {
        Ok(Number::from_f64(v).map_or(Raw::Null, Raw::Number))
    }
    fn visit_str<E>(self, v: &str) -> Result<Raw, E> {
        Ok(Raw::Text(v.to_owned()))
    }
    fn visit_string<E>(self, v: String) -> Result<Raw, E> {
        Ok(Raw::Text(v))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Raw, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element()? {
            items.push(item);
        }
        Ok(Raw::List(items))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Raw, A::Error> {
        let mut pairs = Vec::new();
        while let Some(pair) = map.next_entry()? {
            pairs.push(pair);
        }
        Ok(Raw::Map(pairs))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_booleans_and_octals() {
        let text = "- name: a\n  mode: 0644\n  on: yes\n  key: y\n  list: [1, 2.5, 'no']\n";
        let (node, warnings) = parse("p.yml", text).unwrap();
        let map = &node.list().unwrap()[0];
        assert_eq!(map.get("mode").unwrap().data, SpannedData::Number(420.into()));
        assert_eq!((map.get("mode").unwrap().line, map.get("mode").unwrap().column), (2, 9));
        assert_eq!(map.get("on").unwrap().data, SpannedData::Bool(true));
        assert_eq!(map.get("key").unwrap().data, SpannedData::Text("y".into()));
        assert_eq!(map.get("list").unwrap().json(), serde_json::json!([1, 2.5, "no"]));
        let keys = map.json().as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        assert_eq!(keys, ["name", "mode", "True", "key", "list"]);
        let quoted = parse("p.yml", "{'on': 1, off: 2, \"no\": 3, y: 4}").unwrap().0.json();
        assert_eq!(quoted, serde_json::json!({"on": 1, "False": 2, "no": 3, "y": 4}));
        assert!(warnings.is_empty());
    }

    /// PyYAML reads these files so.
    #[test]
    fn lines_of_a_quoted_text_need_no_indentation() {
        let text = "a: \"{{ {\n  'x': 1,\n}[k] }}\"\nb:\n  - c: 'one\n  two\n\nthree'\n    d: 2\n";
        let expected = serde_json::json!({"a": "{{ { 'x': 1, }[k] }}", "b": [{"c": "one two\nthree", "d": 2}]});
        assert_eq!(parse("p.yml", text).unwrap().0.json(), expected);
        assert!(parse("p.yml", "a: \"b\nc: d\n").is_err());
    }

    #[test]
    fn refuses_tags_duplicates_and_bombs() {
        let tagged = parse("v.yml", "a: !vault x\nb: !y x\n").unwrap_err();
        assert_eq!((tagged.line, tagged.message.as_str()), (2, "unsupported tag !y"));
        let twice = parse("d.yml", "a: 1\nb: 2\na: 3\n").unwrap_err();
        assert_eq!((twice.line, twice.message.as_str()), (3, "duplicate key `a`: it is already in line 1"));
        assert!(twice.hint.is_some_and(|hint| hint.contains("Ansible warns and uses the last one")));
        for (text, line, first) in [
            ("- a: {b: 1}\n  b: 2\n  c: {b: 3}\n  b: 4\n", 4, "line 2"),
            ("x: {a: 1, b: {c: 2},\n  a: 3}\n", 2, "line 1"),
            ("a: &m {k: 1}\nb:\n  <<: *m\n  k: 2\n  k: 3\n", 5, "line 4"),
            ("1: a\n1: b\n", 2, "line 1"),
            ("a: 1\na: [\n", 2, "already"),
        ] {
            let fault = parse("d.yml", text).unwrap_err();
            assert!(fault.line == line && fault.message.contains(first), "{text}: {fault}");
        }
        let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
        for i in 1..12 {
            let refs = vec![format!("*a{}", i - 1); 10].join(", ");
            bomb.push_str(&format!("a{i}: &a{i} [{refs}]\n"));
        }
        assert!(parse("b.yml", &bomb).is_err());
        assert!(parse("n.yml", &"[".repeat(5000)).is_err());
    }

    #[test]
    fn encrypted_texts_keep_their_ciphertext() {
        let text = "a: !vault |\n  $ANSIBLE_VAULT;1.1;AES256\n  00\nb: [1, !vault-encrypted '2']\nc: yes\n";
        let (node, _) = parse("v.yml", text).unwrap();
        let sealed = |text: &str| serde_json::json!({"__ansible_vault": text});
        let want =
            serde_json::json!({"a": sealed("$ANSIBLE_VAULT;1.1;AES256\n00\n"), "b": [1, sealed("2")], "c": true});
        assert_eq!(node.json(), want);
    }

    #[test]
    fn empty_is_null() {
        assert_eq!(parse("e.yml", "").unwrap().0.data, SpannedData::Null);
        assert_eq!(parse("e.yml", "---\n# only a comment\n").unwrap().0.data, SpannedData::Null);
    }
}
