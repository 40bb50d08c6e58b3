//! An XML text as a flat list of nodes in the order of the document, so that a number is a place and a subtree a range.
//!
//! Expands nothing but character references and the five names that XML has; fetches nothing. Bounded in bytes, nodes and depth.

use quick_xml::Reader;
use quick_xml::XmlVersion;
use quick_xml::events::{BytesStart, Event};
use std::collections::BTreeMap;

/// Most nodes of one document, attributes included, and elements within elements.
const NODES_MAX: usize = 200_000;
/// Most bytes of one document.
const TEXT_MAX: usize = 4 << 20;
const DEEPEST: usize = 256;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Root,
    Element,
    Attribute,
    Text,
    /// A text that stood in `<![CDATA[...]]>`; shown as one, otherwise a text.
    Cdata,
    Comment,
    Instruction,
}

#[derive(Debug)]
pub(super) struct Node {
    pub kind: Kind,
    /// As written, with its prefix; of an instruction its target.
    pub name: String,
    /// Of an attribute its value; of elements nothing.
    pub text: String,
    pub parent: usize,
    /// Where what is in it begins: behind its attributes.
    pub inside: usize,
    /// The first number behind this node and all that is in it.
    pub end: usize,
}

impl Node {
    pub fn is_text(&self) -> bool {
        matches!(self.kind, Kind::Text | Kind::Cdata)
    }

    pub fn local_name(&self) -> &str {
        self.name.split_once(':').map_or(&self.name, |(_, local)| local)
    }

    pub fn prefix(&self) -> &str {
        self.name.split_once(':').map_or("", |(prefix, _)| prefix)
    }
}

/// Behind each element stand its attributes, behind them what is in it. Number 0 is the root.
#[derive(Debug)]
pub(super) struct Tree {
    pub nodes: Vec<Node>,
}

/// The tree of `text`. Err: why it is none, or that it is too much.
pub(super) fn read(text: &str) -> Result<Tree, String> {
    if text.len() > TEXT_MAX {
        return Err(format!("XML of more than {TEXT_MAX} bytes"));
    }
    let mut reader = Reader::from_str(text);
    let mut growing = Growing { nodes: Vec::new(), open: Vec::new(), prefixes: BTreeMap::new() };
    growing.add(Kind::Root, "", String::new())?;
    growing.open.push(0);
    loop {
        let byte = reader.buffer_position();
        let at = |why: String| format!("not XML, behind byte {byte}: {why}");
        match reader.read_event().map_err(|e| format!("not XML: {e}"))? {
            Event::Start(tag) => growing.element(&tag).map_err(at)?,
            Event::Empty(tag) => {
                growing.element(&tag).map_err(at)?;
                growing.close();
            }
            Event::End(_) => growing.close(),
            Event::Text(text) => growing.text(&text.xml10_content()).map_err(at)?,
            Event::GeneralRef(name) => {
                let one = match name.resolve_char_ref().map_err(|e| at(e.to_string()))? {
                    Some(one) => one,
                    None => predefined(&name).ok_or_else(|| at(format!("the entity `{}` is unknown here", &*name)))?,
                };
                growing.text(one.encode_utf8(&mut [0; 4])).map_err(at)?;
            }
            Event::CData(text) => drop(growing.add(Kind::Cdata, "", text.xml10_content().into_owned()).map_err(at)?),
            Event::Comment(text) => {
                growing.add(Kind::Comment, "", text.xml10_content().into_owned()).map_err(at)?;
            }
            Event::PI(it) => {
                growing.add(Kind::Instruction, it.target(), it.content().trim().to_owned()).map_err(at)?;
            }
            Event::Decl(_) | Event::DocType(_) => {}
            Event::Eof => return growing.finished(),
        }
    }
}

fn predefined(name: &str) -> Option<char> {
    Some(match name {
        "lt" => '<',
        "gt" => '>',
        "amp" => '&',
        "quot" => '"',
        "apos" => '\'',
        _ => return None,
    })
}

struct Growing {
    nodes: Vec<Node>,
    /// The root, and the elements that were begun and not ended.
    open: Vec<usize>,
    /// Prefixes that are declared there, each as often as it is.
    prefixes: BTreeMap<String, usize>,
}

impl Growing {
    fn inside(&self) -> usize {
        self.open.last().copied().unwrap_or(0)
    }

    fn add(&mut self, kind: Kind, name: &str, text: String) -> Result<usize, String> {
        let number = self.nodes.len();
        if number == NODES_MAX {
            return Err(format!("more than {NODES_MAX} nodes"));
        }
        if self.open.len() == 1 && kind == Kind::Cdata {
            return Err("a text outside of all elements".to_owned());
        }
        let behind = number + 1;
        let name = name.to_owned();
        self.nodes.push(Node { kind, name, text, parent: self.inside(), inside: behind, end: behind });
        Ok(number)
    }

    fn element(&mut self, tag: &BytesStart<'_>) -> Result<(), String> {
        if self.open.len() == 1 && self.nodes.iter().any(|node| node.kind == Kind::Element) {
            return Err("a second element beside the outermost".to_owned());
        }
        if self.open.len() > DEEPEST {
            return Err(format!("more than {DEEPEST} elements within each other"));
        }
        let name = tag.name();
        let element = self.add(Kind::Element, name.as_ref(), String::new())?;
        self.open.push(element);
        // One attribute twice is told apart by nobody later, and to look for it costs a square of their number.
        for attribute in tag.attributes().with_checks(false) {
            let attribute = attribute.map_err(|e| e.to_string())?;
            let value = attribute.normalized_value(XmlVersion::Implicit1_0).map_err(|e| e.to_string())?;
            self.add(Kind::Attribute, attribute.key.as_ref(), value.into_owned())?;
            if let Some(prefix) = attribute.key.as_ref().strip_prefix("xmlns:") {
                *self.prefixes.entry(prefix.to_owned()).or_default() += 1;
            }
        }
        self.nodes[element].inside = self.nodes.len();
        let prefix = self.nodes[element].prefix();
        if !prefix.is_empty() && prefix != "xml" && !self.prefixes.contains_key(prefix) {
            return Err(format!("the prefix `{prefix}` is not declared"));
        }
        Ok(())
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

    /// What stands beside a text, with nothing but references between them, is one text with it.
    fn text(&mut self, text: &str) -> Result<(), String> {
        let inside = self.inside();
        if inside == 0 {
            return match text.trim() {
                "" => Ok(()),
                _ => Err("a text outside of all elements".to_owned()),
            };
        }
        match self.nodes.last_mut() {
            Some(last) if last.kind == Kind::Text && last.parent == inside => last.text.push_str(text),
            _ => drop(self.add(Kind::Text, "", text.to_owned())?),
        }
        Ok(())
    }

    fn finished(mut self) -> Result<Tree, String> {
        if self.open.len() > 1 {
            return Err(format!("not XML: `{}` is not ended", self.nodes[self.inside()].name));
        }
        if !self.nodes.iter().any(|node| node.kind == Kind::Element) {
            return Err("not XML: there is no element".to_owned());
        }
        self.nodes[0].end = self.nodes.len();
        Ok(Tree { nodes: self.nodes })
    }
}

impl Tree {
    /// Numbers of the attributes of an element.
    pub fn attributes(&self, node: usize) -> std::ops::Range<usize> {
        node + 1..self.nodes[node].inside
    }

    /// Numbers of what is directly in a node, attributes left out.
    pub fn children(&self, node: usize) -> impl Iterator<Item = usize> + '_ {
        let end = self.nodes[node].end;
        let first = self.nodes[node].inside;
        let next = move |number: &usize| Some(self.nodes[*number].end).filter(|next| *next < end);
        std::iter::successors(Some(first).filter(|first| *first < end), next)
    }

    /// What XPath calls the value: of an element all texts in it.
    pub fn value(&self, node: usize) -> String {
        let it = &self.nodes[node];
        match it.kind {
            Kind::Root | Kind::Element => {
                self.nodes[node..it.end].iter().filter(|node| node.is_text()).map(|node| node.text.as_str()).collect()
            }
            _ => it.text.clone(),
        }
    }

    /// The namespace that counts for a node's prefix; empty if it has none.
    pub fn namespace(&self, node: usize) -> &str {
        let it = &self.nodes[node];
        let attribute = match (it.kind, it.prefix()) {
            (_, "xml") => return "http://www.w3.org/XML/1998/namespace",
            (Kind::Element, "") => "xmlns".to_owned(),
            (Kind::Element | Kind::Attribute, prefix) if !prefix.is_empty() => format!("xmlns:{prefix}"),
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

    /// How many nodes stand above, with their attributes: what it costs to look a prefix up.
    pub fn steps_up(&self, node: usize) -> usize {
        let parent = |number: &usize| Some(self.nodes[*number].parent).filter(|_| *number != 0);
        std::iter::successors(Some(node), parent).map(|number| 1 + self.attributes(number).len()).sum()
    }

    /// A node as XML again, as goss writes it: an attribute as an element of its name.
    pub fn write(&self, node: usize, out: &mut String) {
        let it = &self.nodes[node];
        if it.kind == Kind::Attribute {
            let name = it.local_name();
            *out += &format!("<{name}>{}</{name}>", escaped(&it.text));
            return;
        }
        // Elements whose end is still to be written, the innermost last.
        let mut open: Vec<usize> = Vec::new();
        for number in node..it.end {
            while let Some(last) = open.last().filter(|last| self.nodes[**last].end <= number) {
                *out += &format!("</{}>", self.nodes[*last].name);
                open.pop();
            }
            let it = &self.nodes[number];
            match it.kind {
                Kind::Root | Kind::Attribute => {}
                Kind::Element => {
                    *out += &format!("<{}", it.name);
                    for attribute in self.attributes(number).map(|number| &self.nodes[number]) {
                        *out += &format!(" {}=\"{}\"", attribute.name, escaped(&attribute.text));
                    }
                    if self.children(number).next().is_none() {
                        out.push_str("/>");
                    } else {
                        out.push('>');
                        open.push(number);
                    }
                }
                Kind::Text => *out += &escaped(&it.text),
                Kind::Cdata => *out += &format!("<![CDATA[{}]]>", it.text),
                Kind::Comment => *out += &format!("<!--{}-->", it.text),
                Kind::Instruction if it.text.is_empty() => *out += &format!("<?{}?>", it.name),
                Kind::Instruction => *out += &format!("<?{} {}?>", it.name, it.text),
            }
        }
        for last in open.iter().rev() {
            *out += &format!("</{}>", self.nodes[*last].name);
        }
    }
}

/// As Go's `html.EscapeString`.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&#34;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}
