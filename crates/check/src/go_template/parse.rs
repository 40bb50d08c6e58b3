//! Parses tokens into a program. Rejects unknown functions and variables before anything is
//! executed.

use super::lex::{Lexeme, TemplateToken, lex};
use super::tree::{Base, Operand, Pipeline, Program, TemplateNode};
use super::{Place, TemplateError, functions};
use remoor_model::did_you_mean;
use serde_json::Value;
use std::collections::BTreeMap;

/// Maximum nesting of blocks and parentheses.
const DEPTH_MAX: usize = 60;

pub(super) fn parse(text: &str) -> Result<Program, TemplateError> {
    let mut parser = Parser {
        lexemes: lex(text)?,
        next: 0,
        variables: vec![String::new()],
        depth: 0,
        loops: 0,
        templates: BTreeMap::new(),
    };
    let (body, end) = parser.body()?;
    match end {
        Some((at, word)) => Err(at.trouble(format!("`{word}` without an `if`, `range` or `with`"))),
        None => Ok(Program { body, templates: parser.templates }),
    }
}

struct Parser {
    lexemes: Vec<Lexeme>,
    next: usize,
    /// The variables in scope.
    variables: Vec<String>,
    depth: usize,
    loops: usize,
    templates: BTreeMap<String, Vec<TemplateNode>>,
}

/// The `end` or `else` that the parser has just read, with its position.
type End = Option<(Place, String)>;

impl Parser {
    fn peek(&self) -> Option<&Lexeme> {
        self.lexemes.get(self.next)
    }

    fn next_is(&self, token: &TemplateToken) -> bool {
        self.peek().is_some_and(|lexeme| lexeme.token == *token)
    }

    fn take(&mut self) -> Option<Lexeme> {
        let taken = self.lexemes.get(self.next).cloned();
        self.next += 1;
        taken
    }

    fn place(&self) -> Place {
        self.peek().or(self.lexemes.last()).map_or(Place { line: 1, column: 1 }, |lexeme| lexeme.at)
    }

    fn close(&mut self) -> Result<(), TemplateError> {
        let at = self.place();
        match self.take() {
            Some(Lexeme { token: TemplateToken::Close, .. }) => Ok(()),
            _ => Err(at.trouble("`}}` is expected here")),
        }
    }

    fn deeper<T>(&mut self, work: impl FnOnce(&mut Self) -> Result<T, TemplateError>) -> Result<T, TemplateError> {
        if self.depth >= DEPTH_MAX {
            return Err(self.place().trouble(format!("nested more than {DEPTH_MAX} deep")));
        }
        self.depth += 1;
        let done = work(self);
        self.depth -= 1;
        done
    }

    fn body(&mut self) -> Result<(Vec<TemplateNode>, End), TemplateError> {
        let mut nodes = Vec::new();
        while let Some(lexeme) = self.take() {
            if let TemplateToken::Text(text) = lexeme.token {
                nodes.push(TemplateNode::Text(text));
                continue;
            }
            let (at, word) = match self.peek() {
                Some(Lexeme { token: TemplateToken::Word(word), at, .. }) => (*at, word.clone()),
                _ => (lexeme.at, String::new()),
            };
            let known = ["if", "with", "range", "template", "block", "define", "break", "continue", "end", "else"];
            if known.contains(&word.as_str()) {
                self.next += 1;
            }
            match word.as_str() {
                "end" => {
                    self.close()?;
                    return Ok((nodes, Some((at, word))));
                }
                "else" => return Ok((nodes, Some((at, word)))),
                "if" => nodes.push(self.deeper(|p| p.condition(at))?),
                "with" => nodes.push(self.deeper(|p| p.with_block(at))?),
                "range" => nodes.push(self.deeper(|p| p.range(at))?),
                "template" => {
                    let name = self.name(at)?;
                    let with = if self.next_is(&TemplateToken::Close) { None } else { Some(self.pipeline()?) };
                    self.close()?;
                    nodes.push(TemplateNode::Template { at, name, with });
                }
                "define" if self.depth > 0 => return Err(at.trouble("`define` must not be inside a block")),
                "define" => {
                    let name = self.name(at)?;
                    self.close()?;
                    self.deeper(|p| p.define(at, name))?;
                }
                "block" => {
                    let name = self.name(at)?;
                    let with = Some(self.pipeline()?);
                    self.close()?;
                    self.deeper(|p| p.define(at, name.clone()))?;
                    nodes.push(TemplateNode::Template { at, name, with });
                }
                "break" | "continue" => {
                    self.close()?;
                    if self.loops == 0 {
                        return Err(at.trouble(format!("`{word}` is not inside a `range`")));
                    }
                    nodes.push(if word == "break" { TemplateNode::Break } else { TemplateNode::Continue });
                }
                _ => {
                    let pipeline = self.pipeline()?;
                    self.close()?;
                    nodes.push(TemplateNode::Print(pipeline));
                }
            }
        }
        Ok((nodes, None))
    }

    /// Parses up to `else` or `end`; returns true for `else`. The variables that the block declares
    /// are removed afterwards.
    fn block(&mut self, at: Place) -> Result<(Vec<TemplateNode>, bool), TemplateError> {
        let scope = self.variables.len();
        let (body, end) = self.body()?;
        self.variables.truncate(scope);
        match end {
            Some((_, word)) => Ok((body, word == "else")),
            None => Err(at.trouble("the block has no `{{ end }}`")),
        }
    }

    /// Parses the part between `else` and `end`.
    fn else_block(&mut self, at: Place) -> Result<Vec<TemplateNode>, TemplateError> {
        self.close()?;
        match self.block(at)? {
            (body, false) => Ok(body),
            (_, true) => Err(at.trouble("the block has two `else`")),
        }
    }

    fn condition(&mut self, at: Place) -> Result<TemplateNode, TemplateError> {
        let scope = self.variables.len();
        let mut arms = Vec::new();
        let mut otherwise = Vec::new();
        loop {
            let when = self.pipeline()?;
            self.close()?;
            let (body, more) = self.block(at)?;
            arms.push((when, body));
            if !more {
                break;
            }
            if self.next_is(&TemplateToken::Word("if".to_owned())) {
                self.next += 1;
                continue;
            }
            otherwise = self.else_block(at)?;
            break;
        }
        self.variables.truncate(scope);
        Ok(TemplateNode::If { arms, otherwise })
    }

    fn with_block(&mut self, at: Place) -> Result<TemplateNode, TemplateError> {
        let scope = self.variables.len();
        let with = self.pipeline()?;
        self.close()?;
        let (body, more) = self.block(at)?;
        let otherwise = if more { self.else_block(at)? } else { Vec::new() };
        self.variables.truncate(scope);
        Ok(TemplateNode::With { with, body, otherwise })
    }

    fn range(&mut self, at: Place) -> Result<TemplateNode, TemplateError> {
        let scope = self.variables.len();
        let over = self.pipeline()?;
        self.close()?;
        self.loops += 1;
        let block = self.block(at);
        self.loops -= 1;
        let (body, more) = block?;
        let otherwise = if more { self.else_block(at)? } else { Vec::new() };
        self.variables.truncate(scope);
        Ok(TemplateNode::Range { over, body, otherwise })
    }

    fn define(&mut self, at: Place, name: String) -> Result<(), TemplateError> {
        let outer = (std::mem::replace(&mut self.variables, vec![String::new()]), std::mem::take(&mut self.loops));
        let block = self.block(at);
        (self.variables, self.loops) = outer;
        match block? {
            (_, true) => Err(at.trouble("`define` has no `else`")),
            (body, false) => {
                // As in Go, a template that contains only white space counts as not defined.
                let is_none = |body: &[TemplateNode]| {
                    body.iter().all(|node| matches!(node, TemplateNode::Text(text) if text.trim_ascii().is_empty()))
                };
                match self.templates.get(&name) {
                    Some(known) if !is_none(known) && !is_none(&body) => {
                        return Err(at.trouble(format!("there are two templates `{name}`")));
                    }
                    Some(known) if !is_none(known) => {}
                    _ => drop(self.templates.insert(name, body)),
                }
                Ok(())
            }
        }
    }

    fn name(&mut self, at: Place) -> Result<String, TemplateError> {
        match self.take() {
            Some(Lexeme { token: TemplateToken::Literal(Value::String(name)), .. }) => Ok(name),
            _ => Err(at.trouble("a template name in quotes is expected")),
        }
    }

    fn pipeline(&mut self) -> Result<Pipeline, TemplateError> {
        let at = self.place();
        let (variables, declares) = self.declaration()?;
        let mut commands = vec![self.command()?];
        while self.next_is(&TemplateToken::Pipe) {
            self.next += 1;
            let at = self.place();
            let command = self.command()?;
            if !matches!(command.first(), Some(Operand { base: Base::Function(_), .. })) {
                return Err(at.trouble("after `|` comes a function"));
            }
            commands.push(command);
        }
        if declares {
            self.variables.extend(variables.iter().cloned());
        }
        Ok(Pipeline { at, variables, declares, commands })
    }

    /// Parses `$x :=`, `$x =` or `$i, $x :=`, if present.
    fn declaration(&mut self) -> Result<(Vec<String>, bool), TemplateError> {
        let token = |at: usize| self.lexemes.get(at).map(|lexeme| &lexeme.token);
        let Some(TemplateToken::Variable(first)) = token(self.next) else { return Ok((Vec::new(), false)) };
        let mut names = vec![first.clone()];
        let mut after = self.next + 1;
        if let (Some(TemplateToken::Comma), Some(TemplateToken::Variable(second))) = (token(after), token(after + 1)) {
            names.push(second.clone());
            after += 2;
        }
        let declares = match token(after) {
            Some(TemplateToken::Declare) => true,
            Some(TemplateToken::Assign) => false,
            _ => return Ok((Vec::new(), false)),
        };
        let at = self.place();
        self.next = after + 1;
        if let Some(unknown) = names.iter().find(|name| !declares && !self.variables.contains(name)) {
            return Err(self.unknown_variable(at, unknown));
        }
        Ok((names, declares))
    }

    fn unknown_variable(&self, at: Place, name: &str) -> TemplateError {
        let known = self.variables.iter().map(String::as_str).filter(|known| !known.is_empty());
        let trouble = at.trouble(format!("unknown variable `${name}`"));
        match did_you_mean(name, known) {
            Some(hint) => trouble.hint(hint.replacen('`', "`$", 1)),
            None => trouble.hint("declare it with `{{ $name := ... }}`; it is valid until the `end` of that block"),
        }
    }

    fn command(&mut self) -> Result<Vec<Operand>, TemplateError> {
        let mut operands = Vec::new();
        while let Some(operand) = self.operand()? {
            operands.push(operand);
        }
        match operands.is_empty() {
            true => Err(self.place().trouble("a value is expected here")),
            false => Ok(operands),
        }
    }

    /// Parses an operand. None if the next token does not begin one.
    fn operand(&mut self) -> Result<Option<Operand>, TemplateError> {
        let Some(Lexeme { token, at, .. }) = self.peek().cloned() else { return Ok(None) };
        let mut fields = Vec::new();
        let base = match token {
            TemplateToken::Field(name) => {
                fields.extend(Some(name).filter(|name| !name.is_empty()));
                Base::Dot
            }
            TemplateToken::Variable(name) if self.variables.contains(&name) => Base::Variable(name),
            TemplateToken::Variable(name) => return Err(self.unknown_variable(at, &name)),
            TemplateToken::Literal(value) => Base::Literal(value),
            TemplateToken::Word(word) => match word.as_str() {
                "true" | "false" => Base::Literal((word == "true").into()),
                "nil" => Base::Nil,
                name if functions::is_known(name) => Base::Function(word),
                _ => return Err(functions::unknown_function(at, &word)),
            },
            TemplateToken::Left => {
                self.next += 1;
                let inner = self.deeper(Self::pipeline)?;
                if !self.next_is(&TemplateToken::Right) {
                    return Err(at.trouble("`(` has no `)`"));
                }
                Base::Group(Box::new(inner))
            }
            _ => return Ok(None),
        };
        self.next += 1;
        while let Some(Lexeme { token: TemplateToken::Field(name), apart: false, .. }) = self.peek()
            && !name.is_empty()
        {
            fields.push(name.clone());
            self.next += 1;
        }
        Ok(Some(Operand { at, base, fields }))
    }
}
