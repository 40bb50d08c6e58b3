//! An XML document as a flat list of nodes in document order, so that an index is a position and a
//! subtree is a range.
//!
//! Expands only character references and the five predefined entities, and fetches nothing. Limited
//! in bytes, nodes and depth. Errors quote nothing of the text, because it may be a secret. A
//! document type is skipped and not validated.

use super::wellformed::{NO_CHARACTER, NO_ENTITY, NO_NAME, NOT_ENDED, OUTSIDE};
use super::wellformed::{are_apart, describe_error, is_char, is_instruction, is_name, predefined_entity};
use crate::markup::escape_markup;
use quick_xml::events::{BytesStart, Event};
use quick_xml::{Reader, XmlVersion};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Maximum number of nodes of one document, including attributes.
const NODES_MAX: usize = 200_000;
/// Maximum number of bytes of one document.
const TEXT_MAX: usize = 4 << 20;
/// Maximum nesting of elements.
const DEEPEST: usize = 256;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum XmlNodeKind {
    Root,
    Element,
    Attribute,
    Text,
    Comment,
    Instruction,
}

#[derive(Debug)]
pub(super) struct XmlNode {
    pub kind: XmlNodeKind,
    /// The name as written, with its prefix. For an instruction, its target.
    pub name: String,
    /// The value of an attribute, or the content of a text, comment or instruction. Empty for
    /// elements.
    pub text: String,
    pub parent: usize,
    /// Index of the first node within this one, after its attributes.
    pub inside: usize,
    /// Index of the first node after this one and everything within it.
    pub end: usize,
}

impl XmlNode {
    pub fn is_text(&self) -> bool {
        self.kind == XmlNodeKind::Text
    }

    pub fn local_name(&self) -> &str {
        self.name.split_once(':').map_or(&self.name, |(_, local)| local)
    }

    pub fn prefix(&self) -> &str {
        self.name.split_once(':').map_or("", |(prefix, _)| prefix)
    }
}

/// Each element is followed by its attributes and then by its content. Index 0 is the root.
#[derive(Debug)]
pub(super) struct XmlTree {
    pub nodes: Vec<XmlNode>,
    /// For texts, by index: the byte ranges that were in `<![CDATA[...]]>`, and are written so
    /// again.
    cdata: BTreeMap<usize, Vec<Range<usize>>>,
}

/// Parses `text`. Err: why it is not XML, or that it is too large.
pub(super) fn read(text: &str) -> Result<XmlTree, String> {
    if text.len() > TEXT_MAX {
        return Err(format!("XML of more than {TEXT_MAX} bytes"));
    }
    if let Some(at) = text.char_indices().find(|(_, c)| !is_char(*c)).map(|(at, _)| at) {
        return Err(format!("not XML after byte {at}: {NO_CHARACTER}"));
    }
    let mut reader = Reader::from_str(text);
    reader.config_mut().enable_all_checks(true);
    let mut growing = TreeBuilder::default();
    growing.add(XmlNodeKind::Root, "", String::new())?;
    growing.open.push(0);
    let (mut is_first, mut has_type) = (true, false);
    loop {
        let byte = reader.buffer_position();
        let at = |why: String| format!("not XML after byte {byte}: {why}");
        match reader.read_event().map_err(|e| at(describe_error(&e)))? {
            Event::Start(tag) => growing.element(&tag).map_err(at)?,
            Event::Empty(tag) => {
                growing.element(&tag).map_err(at)?;
                growing.close();
            }
            Event::End(_) => growing.close(),
            Event::Text(text) if text.contains("]]>") => return Err(at("`]]>` in a text".to_owned())),
            Event::Text(text) => growing.text(&text.xml10_content(), false).map_err(at)?,
            Event::GeneralRef(name) => {
                let one = match name.resolve_char_ref().map_err(|e| at(describe_error(&e)))? {
                    Some(one) if !is_char(one) => return Err(at(NO_CHARACTER.to_owned())),
                    Some(one) => one,
                    None => predefined_entity(&name).ok_or_else(|| at(NO_ENTITY.to_owned()))?,
                };
                if growing.current_parent() == 0 {
                    return Err(at(OUTSIDE.to_owned()));
                }
                growing.text(one.encode_utf8(&mut [0; 4]), false).map_err(at)?;
            }
            Event::CData(text) => growing.text(&text.xml10_content(), true).map_err(at)?,
            Event::Comment(text) => {
                growing.add(XmlNodeKind::Comment, "", text.xml10_content().into_owned()).map_err(at)?;
            }
            Event::PI(it) if !is_instruction(it.target()) => return Err(at(NO_NAME.to_owned())),
            Event::PI(it) => {
                growing.add(XmlNodeKind::Instruction, it.target(), it.content().trim().to_owned()).map_err(at)?;
            }
            Event::Decl(declaration) => {
                if !is_first {
                    return Err(at("`<?xml` is allowed only at the beginning".to_owned()));
                }
                declaration.version().map_err(|_| at("`<?xml` without a version".to_owned()))?;
            }
            Event::DocType(_) => {
                if has_type || growing.has_element {
                    return Err(at("a document type is allowed only once, before the outermost element".to_owned()));
                }
                has_type = true;
            }
            Event::Eof => return growing.finish(),
        }
        is_first = false;
    }
}

#[derive(Default)]
struct TreeBuilder {
    nodes: Vec<XmlNode>,
    cdata: BTreeMap<usize, Vec<Range<usize>>>,
    /// The root and the elements that are not closed yet.
    open: Vec<usize>,
    /// Prefixes declared in these elements, each with the number of declarations.
    prefixes: BTreeMap<String, usize>,
    /// The outermost element has been opened.
    has_element: bool,
}

impl TreeBuilder {
    fn current_parent(&self) -> usize {
        self.open.last().copied().unwrap_or(0)
    }

    fn add(&mut self, kind: XmlNodeKind, name: &str, text: String) -> Result<usize, String> {
        let number = self.nodes.len();
        if number == NODES_MAX {
            return Err(format!("more than {NODES_MAX} nodes"));
        }
        let behind = number + 1;
        let name = name.to_owned();
        self.nodes.push(XmlNode { kind, name, text, parent: self.current_parent(), inside: behind, end: behind });
        Ok(number)
    }

    fn element(&mut self, tag: &BytesStart<'_>) -> Result<(), String> {
        if self.open.len() == 1 && self.has_element {
            return Err("a second outermost element".to_owned());
        }
        if self.open.len() > DEEPEST {
            return Err(format!("more than {DEEPEST} elements within each other"));
        }
        self.has_element = true;
        if !is_name(tag.name().as_ref()) {
            return Err(NO_NAME.to_owned());
        }
        if !are_apart(tag.attributes_raw()) {
            return Err("no white space between two attributes".to_owned());
        }
        let element = self.add(XmlNodeKind::Element, tag.name().as_ref(), String::new())?;
        self.open.push(element);
        // Duplicates are found with a set, because the reader's own check costs the square of their
        // number.
        let mut seen = BTreeSet::new();
        for attribute in tag.attributes().with_checks(false) {
            let attribute = attribute.map_err(|e| e.to_string())?;
            let key = attribute.key.as_ref();
            if !is_name(key) {
                return Err(NO_NAME.to_owned());
            }
            if !seen.insert(key.to_owned()) {
                return Err("a duplicate attribute".to_owned());
            }
            if attribute.value.contains('<') {
                return Err("`<` in the value of an attribute".to_owned());
            }
            let value = attribute.normalized_value(XmlVersion::Implicit1_0).map_err(|_| NO_ENTITY.to_owned())?;
            if !value.chars().all(is_char) {
                return Err(NO_CHARACTER.to_owned());
            }
            if let Some(prefix) = key.strip_prefix("xmlns:") {
                if value.is_empty() || matches!(prefix, "xml" | "xmlns") {
                    return Err("a namespace declaration that is not valid".to_owned());
                }
                *self.prefixes.entry(prefix.to_owned()).or_default() += 1;
            }
            self.add(XmlNodeKind::Attribute, key, value.into_owned())?;
        }
        self.nodes[element].inside = self.nodes.len();
        let known = |node: &XmlNode| {
            let prefix = node.prefix();
            matches!(prefix, "" | "xml")
                || self.prefixes.contains_key(prefix)
                || (prefix == "xmlns" && node.kind == XmlNodeKind::Attribute)
        };
        if self.nodes[element..].iter().all(known) { Ok(()) } else { Err("a prefix that is not declared".to_owned()) }
    }

    fn close(&mut self) {
        let Some(element) = self.open.pop() else { return };
        self.nodes[element].end = self.nodes.len();
        let attributes = &self.nodes[element + 1..self.nodes[element].inside];
        for prefix in attributes.iter().filter_map(|node| node.name.strip_prefix("xmlns:")) {
            if let Some(count) = self.prefixes.get_mut(prefix) {
                *count -= 1;
                if *count == 0 {
                    self.prefixes.remove(prefix);
                }
            }
        }
    }

    /// Adds text. Adjacent text, character references and CDATA sections form one text node.
    fn text(&mut self, text: &str, is_cdata: bool) -> Result<(), String> {
        let inside = self.current_parent();
        if inside == 0 {
            let is_blank = text.bytes().all(|b| b.is_ascii_whitespace());
            return if is_blank && !is_cdata { Ok(()) } else { Err(OUTSIDE.to_owned()) };
        }
        // An empty text creates no node.
        if text.is_empty() {
            return Ok(());
        }
        match self.nodes.last_mut() {
            Some(last) if last.kind == XmlNodeKind::Text && last.parent == inside => last.text.push_str(text),
            _ => drop(self.add(XmlNodeKind::Text, "", text.to_owned())?),
        }
        let number = self.nodes.len() - 1;
        if is_cdata {
            let end = self.nodes[number].text.len();
            self.cdata.entry(number).or_default().push(end - text.len()..end);
        }
        Ok(())
    }

    fn finish(mut self) -> Result<XmlTree, String> {
        if self.open.len() > 1 {
            return Err(format!("not XML: {NOT_ENDED}"));
        }
        if !self.has_element {
            return Err("not XML: there is no element".to_owned());
        }
        self.nodes[0].end = self.nodes.len();
        Ok(XmlTree { nodes: self.nodes, cdata: self.cdata })
    }
}

impl XmlTree {
    /// Indexes of the attributes of an element.
    pub fn attributes(&self, node: usize) -> std::ops::Range<usize> {
        node + 1..self.nodes[node].inside
    }

    /// Indexes of the direct children of a node, without attributes.
    pub fn children(&self, node: usize) -> impl Iterator<Item = usize> + '_ {
        let end = self.nodes[node].end;
        let first = self.nodes[node].inside;
        let next = move |number: &usize| Some(self.nodes[*number].end).filter(|next| *next < end);
        std::iter::successors(Some(first).filter(|first| *first < end), next)
    }

    /// The string value as XPath defines it: for an element, all texts within it.
    pub fn value(&self, node: usize) -> String {
        let it = &self.nodes[node];
        match it.kind {
            XmlNodeKind::Root | XmlNodeKind::Element => {
                self.nodes[node..it.end].iter().filter(|node| node.is_text()).map(|node| node.text.as_str()).collect()
            }
            _ => it.text.clone(),
        }
    }

    /// The namespace of a node; empty if it has none.
    pub fn namespace(&self, node: usize) -> &str {
        let it = &self.nodes[node];
        let attribute = match (it.kind, it.prefix()) {
            (_, "xml") => return "http://www.w3.org/XML/1998/namespace",
            (XmlNodeKind::Element, "") => "xmlns".to_owned(),
            (XmlNodeKind::Element | XmlNodeKind::Attribute, prefix) if !prefix.is_empty() => format!("xmlns:{prefix}"),
            _ => return "",
        };
        let mut at = node;
        loop {
            if let Some(found) = self.attributes(at).find(|number| self.nodes[*number].name == attribute) {
                return &self.nodes[found].text;
            }
            if at == 0 {
                return "";
            }
            at = self.nodes[at].parent;
        }
    }

    /// Number of ancestors with their attributes, which is the cost of looking up a prefix.
    pub fn steps_up(&self, node: usize) -> usize {
        let parent = |number: &usize| Some(self.nodes[*number].parent).filter(|_| *number != 0);
        std::iter::successors(Some(node), parent).map(|number| 1 + self.attributes(number).len()).sum()
    }

    /// Writes a node as XML, as goss does: an attribute becomes an element of its name.
    pub fn write(&self, node: usize, out: &mut String) {
        let it = &self.nodes[node];
        if it.kind == XmlNodeKind::Attribute {
            let name = it.local_name();
            *out += &format!("<{name}>{}</{name}>", escape_markup(&it.text));
            return;
        }
        // Elements whose end tag must still be written, innermost last.
        let mut open: Vec<usize> = Vec::new();
        for number in node..it.end {
            while let Some(last) = open.last().filter(|last| self.nodes[**last].end <= number) {
                *out += &format!("</{}>", self.nodes[*last].name);
                open.pop();
            }
            let it = &self.nodes[number];
            match it.kind {
                XmlNodeKind::Root | XmlNodeKind::Attribute => {}
                XmlNodeKind::Element => {
                    *out += &format!("<{}", it.name);
                    for attribute in self.attributes(number).map(|number| &self.nodes[number]) {
                        *out += &format!(" {}=\"{}\"", attribute.name, escape_markup(&attribute.text));
                    }
                    if self.children(number).next().is_none() {
                        out.push_str("/>");
                    } else {
                        out.push('>');
                        open.push(number);
                    }
                }
                XmlNodeKind::Text => {
                    let mut from = 0;
                    for part in self.cdata.get(&number).into_iter().flatten() {
                        *out += &escape_markup(&it.text[from..part.start]);
                        *out += &format!("<![CDATA[{}]]>", &it.text[part.clone()]);
                        from = part.end;
                    }
                    *out += &escape_markup(&it.text[from..]);
                }
                XmlNodeKind::Comment => *out += &format!("<!--{}-->", it.text),
                XmlNodeKind::Instruction if it.text.is_empty() => *out += &format!("<?{}?>", it.name),
                XmlNodeKind::Instruction => *out += &format!("<?{} {}?>", it.name, it.text),
            }
        }
        for last in open.iter().rev() {
            *out += &format!("</{}>", self.nodes[*last].name);
        }
    }
}
