//! Parses YAML into one tree in which every value and key has its line and column.
//!
//! The module uses the event parser of serde-saphyr, because a serde derive stops at the first
//! fault and users want all faults. It refuses duplicate keys, unknown tags, several
//! documents, and alias bombs. It does not know the meaning of keys.

use super::scalar::{self, Scalar};
use remoor_model::Fault;
use serde_json::{Map, Value};
use serde_saphyr::granit_parser::{Event, Marker, Parser, ScalarStyle, Tag};
use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};

/// Maximum size of a YAML file in bytes.
pub const FILE_MAX: usize = 4 << 20;
/// Maximum nesting. A file with a deeper nesting was probably generated, and could exhaust the
/// stack of later code.
const DEPTH_MAX: usize = 64;
/// Maximum number of values in one file, counted after aliases are expanded.
const NODES_MAX: usize = 200_000;
/// Maximum bytes of text in one file, counted after aliases are expanded.
const TEXT_MAX: usize = 16 << 20;

/// A value and its position; lines and columns count from 1.
#[derive(Debug, Clone, PartialEq)]
pub struct ConfigNode {
    pub line: u32,
    pub column: u32,
    pub kind: ConfigNodeKind,
}

/// The content of a value.
#[derive(Debug, Clone, PartialEq)]
pub enum ConfigNodeKind {
    /// The text as written (plain) or unescaped (quoted), and its meaning in YAML 1.1.
    Scalar {
        text: String,
        scalar: Scalar,
    },
    List(Vec<ConfigNode>),
    /// A mapping with its entries in the order of the file; keys are unique.
    Map(Vec<(ConfigKey, ConfigNode)>),
}

/// A key of a mapping, always as text: `on:` is `on`, not `true`.
#[derive(Debug, Clone, PartialEq)]
pub struct ConfigKey {
    pub text: String,
    pub line: u32,
    pub column: u32,
}

impl ConfigNode {
    /// The value without positions.
    pub fn to_json(&self) -> Value {
        match &self.kind {
            ConfigNodeKind::Scalar { text, scalar } => scalar.to_json(text),
            ConfigNodeKind::List(items) => Value::Array(items.iter().map(ConfigNode::to_json).collect()),
            ConfigNodeKind::Map(entries) => Value::Object(
                entries.iter().map(|(key, node)| (key.text.clone(), node.to_json())).collect::<Map<_, _>>(),
            ),
        }
    }
    /// The entries of a mapping.
    pub fn entries(&self) -> Option<&[(ConfigKey, ConfigNode)]> {
        match &self.kind {
            ConfigNodeKind::Map(entries) => Some(entries),
            _ => None,
        }
    }
    /// Whether the value is null or missing.
    pub fn is_null(&self) -> bool {
        matches!(&self.kind, ConfigNodeKind::Scalar { scalar: Scalar::Null, .. })
    }
    /// The type of the value in words, for messages.
    pub fn kind_name(&self) -> &'static str {
        match &self.kind {
            ConfigNodeKind::Scalar { scalar, .. } => scalar.kind_name(),
            ConfigNodeKind::List(_) => "a list",
            ConfigNodeKind::Map(_) => "a mapping",
        }
    }
}

/// Parses the single document of `text`. None if it contains only comments. `file` is used only in
/// faults.
pub fn parse(file: &str, text: &str) -> Result<Option<ConfigNode>, Vec<Fault>> {
    parse_document(file, text, DuplicateKeys::Refused).map(|(node, _)| node)
}

/// Like `parse`, but the last of several equal keys counts, as in Ansible. Returns also a warning
/// for each such key.
pub fn parse_variables(file: &str, text: &str) -> Result<(Option<ConfigNode>, Vec<Fault>), Vec<Fault>> {
    parse_document(file, text, DuplicateKeys::LastCounts)
}

/// Whether a mapping may have a key more than once.
#[derive(Clone, Copy, PartialEq, Eq)]
enum DuplicateKeys {
    Refused,
    LastCounts,
}

fn parse_document(
    file: &str,
    text: &str,
    duplicates: DuplicateKeys,
) -> Result<(Option<ConfigNode>, Vec<Fault>), Vec<Fault>> {
    if text.len() > FILE_MAX {
        return Err(vec![Fault::error(file, 0, 0, format!("is larger than {} MiB", FILE_MAX >> 20))]);
    }
    let mut builder = Builder {
        file,
        open: Vec::new(),
        root: None,
        anchors: HashMap::new(),
        nodes: 0,
        bytes: 0,
        tag_at: (0, 0),
        faults: Vec::new(),
        warnings: Vec::new(),
        duplicates,
    };
    let mut documents = 0;
    for event in Parser::new_from_str(text) {
        let (event, span) = match event {
            Ok(pair) => pair,
            Err(error) => {
                let (line, column) = (error.marker().line(), error.marker().col() + 1);
                builder.faults.push(Fault::error(file, line as u32, column as u32, error.info()));
                return Err(builder.faults);
            }
        };
        let place = |marker: Marker| (marker.line() as u32, marker.col() as u32 + 1);
        let at = place(span.start);
        builder.tag_at = span.tag_start.map_or(at, place);
        if matches!(event, Event::DocumentStart(..)) {
            documents += 1;
            if documents > 1 {
                builder.fault(at, "a second document begins here, but only one is read").hint =
                    Some("remove the `---`".into());
                break;
            }
        }
        if builder.handle_event(event, at).is_err() {
            return Err(builder.faults);
        }
    }
    if !builder.faults.is_empty() {
        return Err(builder.faults);
    }
    // An empty document is parsed as an implicit null.
    let root = builder.root.filter(|node| {
        !(node.is_null() && matches!(&node.kind, ConfigNodeKind::Scalar { text, .. } if text.is_empty() || text == "~"))
    });
    Ok((root, builder.warnings))
}

/// A limit was exceeded; the fault is recorded and parsing ends.
struct LimitExceeded;

/// A collection whose end was not read yet.
struct OpenCollection {
    at: (u32, u32),
    anchor: usize,
    items: Items,
}

enum Items {
    List(Vec<ConfigNode>),
    Map {
        entries: Vec<(ConfigKey, ConfigNode)>,
        seen: BTreeSet<String>,
        merged: Vec<(ConfigKey, ConfigNode)>,
        key: Option<ConfigKey>,
    },
}

struct Builder<'a> {
    file: &'a str,
    open: Vec<OpenCollection>,
    root: Option<ConfigNode>,
    /// The YAML nodes with an anchor that were read to their end, by the number of the anchor.
    anchors: HashMap<usize, (ConfigNode, NodeSize)>,
    nodes: usize,
    bytes: usize,
    /// Position of the tag of the current event.
    tag_at: (u32, u32),
    faults: Vec<Fault>,
    warnings: Vec<Fault>,
    duplicates: DuplicateKeys,
}

impl Builder<'_> {
    fn fault(&mut self, at: (u32, u32), message: impl Into<String>) -> &mut Fault {
        self.faults.push(Fault::error(self.file, at.0, at.1, message));
        self.faults.last_mut().expect("one was pushed")
    }

    fn add_size(&mut self, at: (u32, u32), nodes: usize, bytes: usize) -> Result<(), LimitExceeded> {
        self.nodes = self.nodes.saturating_add(nodes);
        self.bytes = self.bytes.saturating_add(bytes);
        if self.nodes > NODES_MAX || self.bytes > TEXT_MAX {
            self.fault(at, format!("grows beyond {NODES_MAX} values or {} MiB", TEXT_MAX >> 20)).hint =
                Some("aliases that repeat aliases grow quickly; write the values out, or split the file".into());
            return Err(LimitExceeded);
        }
        Ok(())
    }

    fn handle_event(&mut self, event: Event<'_>, at: (u32, u32)) -> Result<(), LimitExceeded> {
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                self.add_size(at, 1, text.len())?;
                let node = self.scalar(text.into_owned(), style, tag, at);
                self.finish(node, anchor)
            }
            Event::SequenceStart(_, anchor, tag) => {
                self.check_tag(tag.as_deref(), "seq");
                self.begin(at, anchor, Items::List(Vec::new()))
            }
            Event::MappingStart(_, anchor, tag) => {
                self.check_tag(tag.as_deref(), "map");
                let items = Items::Map { entries: Vec::new(), seen: BTreeSet::new(), merged: Vec::new(), key: None };
                self.begin(at, anchor, items)
            }
            Event::SequenceEnd | Event::MappingEnd => {
                let Some(open) = self.open.pop() else { return Ok(()) };
                let kind = match open.items {
                    Items::List(items) => ConfigNodeKind::List(items),
                    Items::Map { mut entries, seen, merged, .. } => {
                        entries.extend(merged.into_iter().filter(|(key, _)| !seen.contains(&key.text)));
                        ConfigNodeKind::Map(entries)
                    }
                };
                self.finish(ConfigNode { line: open.at.0, column: open.at.1, kind }, open.anchor)
            }
            Event::Alias(id) => match self.anchors.get(&id).cloned() {
                Some((node, size)) => {
                    self.add_size(at, size.nodes, size.bytes)?;
                    self.check_depth(at, size.depth)?;
                    self.finish(ConfigNode { line: at.0, column: at.1, ..node }, 0)
                }
                None => {
                    self.fault(at, "this alias stands for a value that contains it");
                    Err(LimitExceeded)
                }
            },
            _ => Ok(()),
        }
    }

    fn begin(&mut self, at: (u32, u32), anchor: usize, items: Items) -> Result<(), LimitExceeded> {
        self.add_size(at, 1, 0)?;
        self.check_depth(at, 1)?;
        self.open.push(OpenCollection { at, anchor, items });
        Ok(())
    }

    fn check_depth(&mut self, at: (u32, u32), more: usize) -> Result<(), LimitExceeded> {
        if self.open.len() + more > DEPTH_MAX {
            self.fault(at, format!("is nested deeper than {DEPTH_MAX} levels"));
            return Err(LimitExceeded);
        }
        Ok(())
    }

    /// Puts a finished value into the innermost open collection, as key or as value.
    fn finish(&mut self, node: ConfigNode, anchor: usize) -> Result<(), LimitExceeded> {
        if anchor != 0 {
            self.anchors.insert(anchor, (node.clone(), size(&node)));
        }
        let at = (node.line, node.column);
        match self.open.last_mut().map(|open| &mut open.items) {
            None => self.root = Some(node),
            Some(Items::List(items)) => items.push(node),
            Some(Items::Map { key: slot @ None, .. }) => {
                let ConfigNodeKind::Scalar { text, scalar } = node.kind else {
                    *slot = Some(ConfigKey { text: String::new(), line: at.0, column: at.1 });
                    let is_template = matches!(&node.kind, ConfigNodeKind::Map(_));
                    let fault = self.fault(at, "a key must be text");
                    if is_template {
                        fault.hint = Some("quote values that begin with `{{`: \"{{ name }}\"".into());
                    }
                    return Ok(());
                };
                let text = if scalar == Scalar::MergeKey { "<<".to_owned() } else { text };
                *slot = Some(ConfigKey { text, line: at.0, column: at.1 });
            }
            Some(Items::Map { entries, seen, merged, key }) => {
                let Some(key) = key.take() else { return Ok(()) };
                if key.text == "<<" {
                    return match merge(node) {
                        Some(more) => {
                            for entry in more {
                                if !merged.iter().any(|(k, _)| k.text == entry.0.text) {
                                    merged.push(entry);
                                }
                            }
                            Ok(())
                        }
                        None => {
                            self.fault(at, "`<<` takes a mapping or a list of mappings");
                            Ok(())
                        }
                    };
                }
                if !seen.insert(key.text.clone()) {
                    let first = entries.iter().find(|(k, _)| k.text == key.text).map_or(0, |(k, _)| k.line);
                    let last_counts = self.duplicates == DuplicateKeys::LastCounts;
                    let message = match last_counts {
                        true => format!("`{}` appears again; the last value counts", key.text),
                        false => format!("`{}` appears here a second time", key.text),
                    };
                    let hint = match last_counts {
                        true => format!("remove the entry on line {first}"),
                        false => format!("the first is on line {first}"),
                    };
                    if last_counts {
                        let place = entries.iter_mut().find(|(k, _)| k.text == key.text);
                        self.warnings.push(Fault::warn(self.file, key.line, key.column, message).hint(hint));
                        if let Some(entry) = place {
                            *entry = (key, node);
                        }
                        return Ok(());
                    }
                    self.fault((key.line, key.column), message).hint = Some(hint);
                    return Ok(());
                }
                entries.push((key, node));
            }
        }
        Ok(())
    }

    fn scalar(&mut self, text: String, style: ScalarStyle, tag: Option<Cow<'_, Tag>>, at: (u32, u32)) -> ConfigNode {
        let plain = style == ScalarStyle::Plain;
        let scalar = match tag.as_deref().map(tag_name) {
            None if plain => scalar::resolve(&text),
            None => Scalar::Str,
            Some(Ok("str")) => Scalar::Str,
            Some(Err(())) if tag.as_deref().is_some_and(is_vault_tag) => Scalar::Encrypted,
            Some(Ok(wanted @ ("int" | "float" | "bool" | "null"))) => {
                let scalar = scalar::resolve(&text);
                if scalar.tag() != wanted && !(wanted == "float" && scalar.tag() == "int") {
                    self.fault(at, format!("`{text}` is not {wanted}"));
                }
                scalar
            }
            Some(_) => {
                self.check_tag(tag.as_deref(), "str");
                Scalar::Str
            }
        };
        ConfigNode { line: at.0, column: at.1, kind: ConfigNodeKind::Scalar { text, scalar } }
    }

    fn check_tag(&mut self, tag: Option<&Tag>, allowed: &str) {
        let Some(tag) = tag else { return };
        if tag_name(tag) == Ok(allowed) {
            return;
        }
        let name = tag.original();
        let hint = match name.as_str() {
            "!vault" | "!vault-encrypted" => "only a text can be encrypted",
            "!unsafe" => "write the value without markup, or escape it with {% raw %}",
            _ => "write a plain value",
        };
        self.fault(self.tag_at, format!("the tag `{name}` is not known here")).hint = Some(hint.into());
    }
}

/// Whether a tag marks a text that ansible-vault has encrypted.
fn is_vault_tag(tag: &Tag) -> bool {
    matches!(tag.original().as_str(), "!vault" | "!vault-encrypted")
}

/// The core type that a tag names; `!` alone means text.
fn tag_name(tag: &Tag) -> Result<&str, ()> {
    match tag.core_suffix() {
        Some(name) => Ok(name),
        None if tag.original() == "!" => Ok("str"),
        None => Err(()),
    }
}

fn merge(node: ConfigNode) -> Option<Vec<(ConfigKey, ConfigNode)>> {
    match node.kind {
        ConfigNodeKind::Map(entries) => Some(entries),
        ConfigNodeKind::List(items) => {
            items.into_iter().map(merge).collect::<Option<Vec<_>>>().map(|maps| maps.into_iter().flatten().collect())
        }
        ConfigNodeKind::Scalar { .. } => None,
    }
}

/// The size of a value with everything in it. Each alias of the value adds this size to the totals
/// of the file (`NODES_MAX`, `TEXT_MAX`).
#[derive(Clone, Copy)]
struct NodeSize {
    nodes: usize,
    bytes: usize,
    depth: usize,
}

fn size(node: &ConfigNode) -> NodeSize {
    let inner = |all: NodeSize, one: NodeSize| NodeSize {
        nodes: all.nodes + one.nodes,
        bytes: all.bytes + one.bytes,
        depth: all.depth.max(one.depth + 1),
    };
    let empty = NodeSize { nodes: 1, bytes: 0, depth: 1 };
    match &node.kind {
        ConfigNodeKind::Scalar { text, .. } => NodeSize { nodes: 1, bytes: text.len(), depth: 0 },
        ConfigNodeKind::List(items) => items.iter().map(size).fold(empty, inner),
        ConfigNodeKind::Map(entries) => entries.iter().fold(empty, |all, (key, node)| {
            let all = inner(all, size(node));
            NodeSize { nodes: all.nodes + 1, bytes: all.bytes + key.text.len(), depth: all.depth }
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::parse;
    use expect_test::{Expect, expect};
    use remoor_model::Fault;
    use std::fmt::Write;

    fn faults(text: &str, want: Expect) {
        let faults = parse("f.yml", text).expect_err("a fault was expected");
        want.assert_eq(&faults.iter().map(Fault::to_string).collect::<Vec<_>>().join("\n"));
    }

    #[test]
    fn order_positions_and_merges_are_kept() {
        let node = parse("f", "base: &b {x: 1, y: [yes, '1']}\nweb:\n  <<: *b\n  x: 0o7\n").unwrap().unwrap();
        let want = r#"{"base":{"x":1,"y":[true,"1"]},"web":{"x":"0o7","y":[true,"1"]}}"#;
        assert_eq!(node.to_json().to_string(), want);
        let (key, _) = &node.entries().unwrap()[1].1.entries().unwrap()[0];
        assert_eq!((key.text.as_str(), key.line, key.column), ("x", 4, 3));
        assert_eq!(parse("f", "# nothing\n---\n").unwrap(), None);
    }

    #[test]
    fn encrypted_texts_keep_their_ciphertext() {
        let node =
            parse("f", "a: !vault |\n  $ANSIBLE_VAULT;1.1;AES256\n  00\nb: [!vault-encrypted x]\n").unwrap().unwrap();
        let want = r#"{"a":{"__ansible_vault":"$ANSIBLE_VAULT;1.1;AES256\n00\n"},"b":[{"__ansible_vault":"x"}]}"#;
        assert_eq!(node.to_json().to_string(), want);
    }

    #[test]
    fn every_fault_is_reported() {
        faults(
            "a: 1\nb: !vault [deadbeef]\na: {{ x }}\nc: !!int x\nd: !x y\n",
            expect![[r#"
            f.yml:2:4: the tag `!vault` is not known here
              hint: only a text can be encrypted
            f.yml:3:5: a key must be text
              hint: quote values that begin with `{{`: "{{ name }}"
            f.yml:3:1: `a` appears here a second time
              hint: the first is on line 1
            f.yml:4:10: `x` is not int
            f.yml:5:4: the tag `!x` is not known here
              hint: write a plain value"#]],
        );
        faults("a: [\n", expect!["f.yml:1:4: unclosed bracket '['"]);
        faults(
            "a: 1\n---\nb: 1\n",
            expect![[r#"
            f.yml:2:1: a second document begins here, but only one is read
              hint: remove the `---`"#]],
        );
        faults("a: &a [*a]\n", expect!["f.yml:1:8: this alias stands for a value that contains it"]);
    }

    #[test]
    fn alias_bombs_are_limited() {
        let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
        for n in 1..12 {
            writeln!(text, "a{n}: &a{n} [{}]", vec![format!("*a{}", n - 1); 9].join(", ")).unwrap();
        }
        faults(
            &text,
            expect![[r#"
            f.yml:6:15: grows beyond 200000 values or 16 MiB
              hint: aliases that repeat aliases grow quickly; write the values out, or split the file"#]],
        );
        faults(&"[".repeat(100_000), expect!["f.yml:1:256: recursion limit exceeded"]);
        let mut deep = "a0: &a0 [x]\n".to_owned();
        for n in 1..9 {
            writeln!(deep, "a{n}: &a{n} {}*a{}{}", "[".repeat(30), n - 1, "]".repeat(30)).unwrap();
        }
        faults(&deep, expect!["f.yml:4:39: is nested deeper than 64 levels"]);
        faults(&"x".repeat(super::FILE_MAX + 1), expect!["f.yml: is larger than 4 MiB"]);
    }
}
