//! The matcher `xml`, which goss has since August 2026: compares the result of an XPath on an XML
//! text with a string.
//!
//! XPath 1.0 on a tree of its own. No crate for it is maintained, small and bounded;
//! `docs/dependencies.md` lists the existing ones. Pure. The cost is limited by a budget.

mod eval;
mod expr;
mod functions;
mod lex;
mod parse;
#[cfg(test)]
mod tests;
mod tree;
mod wellformed;

use super::go_value::float;
use eval::{Eval, XPathContext, XPathValue};
use expr::Expr;
use std::fmt;
use tree::XmlTree;

/// Maximum number of bytes of the found nodes, written as XML.
const WRITTEN_MAX: usize = 1 << 20;

/// A path and its expected result.
#[derive(Debug, Clone)]
pub(super) struct Xml {
    path: String,
    expr: Expr,
    wanted: String,
}

/// Spends budget; its error ends the evaluation.
pub(super) type Spend<'a> = &'a dyn Fn(usize) -> Result<(), String>;

impl Xml {
    /// Err: why `path` is not valid, or which part of it is not supported. An empty `wanted` asks
    /// only whether the path finds a node.
    pub fn new(path: &str, wanted: String) -> Result<Self, String> {
        Ok(Self { path: path.to_owned(), expr: parse::parse(path)?, wanted })
    }

    pub fn path(&self) -> &str {
        &self.path
    }

    pub fn expected_result(&self) -> &str {
        &self.wanted
    }

    /// The found result, if it differs from the expected one: nodes as concatenated XML, a number
    /// as Go prints it. None if the result is the expected one. Err if the text is not XML or the
    /// budget is used up.
    pub fn differing_result(&self, text: &str, spend: Spend<'_>) -> Result<Option<String>, String> {
        let tree = read(text, spend)?;
        match (self.find(&tree, spend)?, self.wanted.trim()) {
            (XPathValue::Nodes(nodes), "") => Ok(nodes.is_empty().then(String::new)),
            (found, _) => Ok(Some(result_text(&tree, found, spend)?).filter(|there| *there != self.wanted)),
        }
    }

    fn find(&self, tree: &XmlTree, spend: Spend<'_>) -> Result<XPathValue, String> {
        Eval { tree, spend }.eval(&self.expr, XPathContext { node: 0, position: 1, size: 1 })
    }
}

fn read(text: &str, spend: Spend<'_>) -> Result<XmlTree, String> {
    spend(text.len() / 64)?;
    let tree = tree::read(text)?;
    spend(tree.nodes.len())?;
    Ok(tree)
}

fn result_text(tree: &XmlTree, found: XPathValue, spend: Spend<'_>) -> Result<String, String> {
    Ok(match found {
        XPathValue::Text(text) => text,
        XPathValue::Bool(truth) => truth.to_string(),
        XPathValue::Number(number) if number.is_nan() => "NaN".to_owned(),
        XPathValue::Number(number) if number.is_infinite() => if number > 0.0 { "+Inf" } else { "-Inf" }.to_owned(),
        XPathValue::Number(number) => float(number).replace('e', "E"),
        XPathValue::Nodes(nodes) => {
            let mut out = String::new();
            for node in nodes {
                spend(tree.nodes[node].end - node)?;
                tree.write(node, &mut out);
                if out.len() > WRITTEN_MAX {
                    return Err(format!("the result at the path is longer than {WRITTEN_MAX} bytes"));
                }
            }
            out
        }
    })
}

impl fmt::Display for Xml {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{xpath: {}, result: {}}}", self.path, self.wanted)
    }
}
