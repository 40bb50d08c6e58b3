//! Executes a parsed template. Every value and text that the template creates counts against the
//! limits of `budget`.

use super::budget::TemplateBudget;
use super::functions::{self, FunctionCall};
use super::tree::{Base, Operand, Pipeline, Program, TemplateNode};
use super::values::{format_printed, is_true, kind};
use super::{Outside, Place, TemplateError};
use remoor_model::did_you_mean;
use serde_json::{Map, Value};
use std::rc::Rc;

/// Maximum nesting of blocks and of templates that call each other.
const DEPTH_MAX: usize = 120;

pub(super) fn run(program: &Program, vars: &Map<String, Value>, outside: &Outside) -> Result<String, TemplateError> {
    let env: Map<String, Value> =
        outside.env.iter().map(|(name, value)| (name.clone(), value.as_str().into())).collect();
    let root =
        Map::from_iter([("Vars".to_owned(), Value::Object(vars.clone())), ("Env".to_owned(), Value::Object(env))]);
    let root = Rc::new(Value::Object(root));
    let mut machine = Machine {
        program,
        outside,
        budget: TemplateBudget::new(),
        out: String::new(),
        variables: vec![(String::new(), root.clone())],
        depth: 0,
    };
    machine.nodes(&program.body, &root)?;
    Ok(machine.out)
}

struct Machine<'a> {
    program: &'a Program,
    outside: &'a Outside<'a>,
    budget: TemplateBudget,
    out: String,
    /// The variables in scope, innermost last. The first is `$`.
    variables: Vec<(String, Rc<Value>)>,
    depth: usize,
}

/// The next step after a node of the template: the following node, the end of the innermost
/// `range`, or the next turn of this `range`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flow {
    Next,
    Break,
    Continue,
}

impl Machine<'_> {
    fn deeper<T>(
        &mut self,
        at: Place,
        work: impl FnOnce(&mut Self) -> Result<T, TemplateError>,
    ) -> Result<T, TemplateError> {
        if self.depth >= DEPTH_MAX {
            return Err(at.trouble(format!(
                "blocks or templates are nested more than {DEPTH_MAX} deep; does a template call itself?"
            )));
        }
        self.depth += 1;
        let done = work(self);
        self.depth -= 1;
        done
    }

    /// Executes a block. The variables that the block declares are removed afterwards.
    fn in_scope<T>(
        &mut self,
        at: Place,
        work: impl FnOnce(&mut Self) -> Result<T, TemplateError>,
    ) -> Result<T, TemplateError> {
        let scope = self.variables.len();
        let done = self.deeper(at, work);
        self.variables.truncate(scope);
        done
    }

    fn nodes(&mut self, nodes: &[TemplateNode], dot: &Rc<Value>) -> Result<Flow, TemplateError> {
        for node in nodes {
            let flow = self.node(node, dot)?;
            if flow != Flow::Next {
                return Ok(flow);
            }
        }
        Ok(Flow::Next)
    }

    fn node(&mut self, node: &TemplateNode, dot: &Rc<Value>) -> Result<Flow, TemplateError> {
        match node {
            TemplateNode::Text(text) => self.write(Place::default(), text)?,
            TemplateNode::Print(pipeline) => {
                let value = self.pipeline(pipeline, dot)?;
                if pipeline.variables.is_empty() {
                    self.write(pipeline.at, &format_printed(&value))?;
                }
            }
            TemplateNode::If { arms, otherwise } => {
                let at = arms.first().map_or(Place::default(), |(when, _)| when.at);
                return self.in_scope(at, |machine| {
                    for (when, body) in arms {
                        if is_true(&*machine.pipeline(when, dot)?) {
                            return machine.nodes(body, dot);
                        }
                    }
                    machine.nodes(otherwise, dot)
                });
            }
            TemplateNode::With { with, body, otherwise } => {
                return self.in_scope(with.at, |machine| {
                    let value = machine.pipeline(with, dot)?;
                    if is_true(&value) { machine.nodes(body, &value) } else { machine.nodes(otherwise, dot) }
                });
            }
            TemplateNode::Range { over, body, otherwise } => {
                return self.in_scope(over.at, |machine| machine.range(over, body, otherwise, dot));
            }
            TemplateNode::Template { at, name, with } => {
                let data = match with {
                    Some(with) => self.pipeline(with, dot)?,
                    None => Rc::new(Value::Null),
                };
                let program = self.program;
                let Some(body) = program.templates.get(name) else {
                    let hint = did_you_mean(name, program.templates.keys().map(String::as_str));
                    return Err(TemplateError { hint, ..at.trouble(format!("there is no template `{name}`")) });
                };
                let outer = std::mem::replace(&mut self.variables, vec![(String::new(), data.clone())]);
                let done = self.deeper(*at, |machine| machine.nodes(body, &data));
                self.variables = outer;
                done?;
            }
            TemplateNode::Break => return Ok(Flow::Break),
            TemplateNode::Continue => return Ok(Flow::Continue),
        }
        Ok(Flow::Next)
    }

    fn write(&mut self, at: Place, text: &str) -> Result<(), TemplateError> {
        self.budget.write(&mut self.out, text).map_err(|why| at.trouble(why))
    }

    fn range(
        &mut self,
        over: &Pipeline,
        body: &[TemplateNode],
        otherwise: &[TemplateNode],
        dot: &Rc<Value>,
    ) -> Result<Flow, TemplateError> {
        let value = self.commands(over, dot)?;
        let length = match &*value {
            Value::Null => 0,
            Value::Array(items) => items.len(),
            Value::Object(map) => map.len(),
            Value::Number(n) if !n.is_f64() => n.as_i64().and_then(|n| usize::try_from(n).ok()).unwrap_or(0),
            other => return Err(over.at.trouble(format!("`range` cannot iterate over {}", kind(other)))),
        };
        let mut keys: Vec<&String> = match &*value {
            Value::Object(map) => map.keys().collect(),
            _ => Vec::new(),
        };
        keys.sort();
        for number in 0..length {
            let (key, element) = match &*value {
                Value::Array(items) => (number.into(), items[number].clone()),
                Value::Object(map) => (keys[number].as_str().into(), map[keys[number]].clone()),
                _ => (Value::from(number), number.into()),
            };
            self.budget.spend(&element).map_err(|why| over.at.trouble(why))?;
            let element = Rc::new(element);
            let scope = self.variables.len();
            match &over.variables[..] {
                [] => {}
                [one] => self.set(one, element.clone(), over.declares),
                [first, second, ..] => {
                    self.set(first, Rc::new(key), over.declares);
                    self.set(second, element.clone(), over.declares);
                }
            }
            let flow = self.nodes(body, &element);
            self.variables.truncate(scope);
            if flow? == Flow::Break {
                break;
            }
        }
        if length == 0 { self.nodes(otherwise, dot) } else { Ok(Flow::Next) }
    }

    fn set(&mut self, name: &str, value: Rc<Value>, declares: bool) {
        match self.variables.iter_mut().rev().find(|(known, _)| known == name) {
            Some((_, old)) if !declares => *old = value,
            _ => self.variables.push((name.to_owned(), value)),
        }
    }

    fn pipeline(&mut self, pipeline: &Pipeline, dot: &Rc<Value>) -> Result<Rc<Value>, TemplateError> {
        let value = self.commands(pipeline, dot)?;
        match &pipeline.variables[..] {
            [] => {}
            [one] => self.set(one, value.clone(), pipeline.declares),
            _ => return Err(pipeline.at.trouble("only `range` sets two variables")),
        }
        Ok(value)
    }

    fn commands(&mut self, pipeline: &Pipeline, dot: &Rc<Value>) -> Result<Rc<Value>, TemplateError> {
        let mut last = None;
        for command in &pipeline.commands {
            last = Some(self.deeper(pipeline.at, |machine| machine.command(command, last, dot))?);
        }
        last.ok_or_else(|| pipeline.at.trouble("a value is expected here"))
    }

    fn command(
        &mut self,
        command: &[Operand],
        last: Option<Rc<Value>>,
        dot: &Rc<Value>,
    ) -> Result<Rc<Value>, TemplateError> {
        let Some((first, rest)) = command.split_first() else {
            return Err(Place::default().trouble("an empty command"));
        };
        let Base::Function(name) = &first.base else {
            if let Some(more) = rest.first() {
                return Err(more.at.trouble("only a function takes arguments"));
            }
            if matches!(first.base, Base::Nil) {
                return Err(first.at.trouble("`nil` alone is not a value"));
            }
            return self.operand(first, dot);
        };
        let value = match name.as_str() {
            "and" | "or" => self.choose(name == "or", first.at, rest, last, dot)?,
            _ => {
                let mut arguments = Vec::new();
                for operand in rest {
                    arguments.push(self.operand(operand, dot)?);
                }
                arguments.extend(last);
                self.call(first.at, name, &arguments)?
            }
        };
        self.fields(value, first)
    }

    /// `and` and `or`: the first argument that decides the result, or the last one. Later arguments
    /// are not evaluated.
    fn choose(
        &mut self,
        wanted: bool,
        at: Place,
        rest: &[Operand],
        last: Option<Rc<Value>>,
        dot: &Rc<Value>,
    ) -> Result<Rc<Value>, TemplateError> {
        let mut value = None;
        for operand in rest {
            let found = self.operand(operand, dot)?;
            if is_true(&found) == wanted {
                return Ok(found);
            }
            value = Some(found);
        }
        last.or(value).ok_or_else(|| at.trouble("`and` and `or` take at least one argument"))
    }

    fn call(&mut self, at: Place, name: &str, arguments: &[Rc<Value>]) -> Result<Rc<Value>, TemplateError> {
        let values: Vec<&Value> = arguments.iter().map(|value| &**value).collect();
        self.budget.ask(name, &values).map_err(|why| at.trouble(format!("{name}: {why}")))?;
        let call = FunctionCall { name, arguments: &values, outside: self.outside };
        let value = functions::call(&call).map_err(|why| at.trouble(format!("{name}: {why}")))?;
        self.budget.spend(&value).map_err(|why| at.trouble(format!("{name}: {why}")))?;
        Ok(Rc::new(value))
    }

    fn operand(&mut self, operand: &Operand, dot: &Rc<Value>) -> Result<Rc<Value>, TemplateError> {
        self.budget.work(1).map_err(|why| operand.at.trouble(why))?;
        let base = match &operand.base {
            Base::Dot => dot.clone(),
            Base::Variable(name) => {
                let found = self.variables.iter().rev().find(|(known, _)| known == name);
                found
                    .map(|(_, value)| value.clone())
                    .ok_or_else(|| operand.at.trouble(format!("unknown variable `${name}`")))?
            }
            Base::Literal(value) => Rc::new(value.clone()),
            Base::Nil => Rc::new(Value::Null),
            Base::Function(name) if matches!(name.as_str(), "and" | "or") => {
                return Err(operand.at.trouble(format!("{name}: write it and its arguments in parentheses")));
            }
            Base::Function(name) => self.call(operand.at, name, &[])?,
            Base::Group(inner) => self.deeper(operand.at, |machine| machine.pipeline(inner, dot))?,
        };
        self.fields(base, operand)
    }

    fn fields(&mut self, base: Rc<Value>, operand: &Operand) -> Result<Rc<Value>, TemplateError> {
        if operand.fields.is_empty() {
            return Ok(base);
        }
        let mut value = &*base;
        for name in &operand.fields {
            let Value::Object(map) = value else {
                return Err(operand.at.trouble(format!("`.{name}`: {} has no fields", kind(value))));
            };
            value = map.get(name).ok_or_else(|| {
                let trouble = operand.at.trouble(format!("`{}` has no field `{name}`", shown_path(operand, name)));
                let near = did_you_mean(name, map.keys().map(String::as_str));
                trouble.hint(near.unwrap_or_else(|| "variables come from --vars and --vars-inline".to_owned()))
            })?;
        }
        self.budget.spend(value).map_err(|why| operand.at.trouble(why))?;
        Ok(Rc::new(value.clone()))
    }
}

/// The operand as written, up to the missing field.
fn shown_path(operand: &Operand, missing: &str) -> String {
    let base = match &operand.base {
        Base::Variable(name) => format!("${name}"),
        Base::Group(_) => "(..)".to_owned(),
        _ => String::new(),
    };
    let before = operand.fields.iter().take_while(|name| *name != missing);
    let path = before.fold(base, |path, name| path + "." + name);
    if path.is_empty() { ".".to_owned() } else { path }
}
