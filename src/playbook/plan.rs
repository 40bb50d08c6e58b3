//! What the compiler makes and the node runs: plain data, complete in itself, comparable by its SHA-256.

use super::data::Shared;
use crate::model::Sha256;
use base64::Engine as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Version of the plan's form; a node refuses others.
pub const PLAN_VERSION: u32 = 4;

/// Modules that look and say, and leave the node as it is.
const IDLE: [&str; 15] = [
    "assert",
    "debug",
    "fail",
    "find",
    "getent",
    "include_vars",
    "meta",
    "package_facts",
    "pause",
    "ping",
    "service_facts",
    "set_fact",
    "setup",
    "slurp",
    "stat",
];

/// One host's part of a playbook.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    pub version: u32,
    /// Path of the playbook in the fleet directory.
    pub playbook: String,
    pub host: String,
    /// Those of the inventory's variables that anything here could read.
    pub vars: Map<String, Value>,
    /// The same of those that all hosts have alike.
    pub shared: BTreeMap<String, Shared>,
    /// Win over everything.
    pub extra: Map<String, Value>,
    /// Variables of plays, roles, blocks and tasks; named by their index.
    pub layers: Vec<Map<String, Value>>,
    pub plays: Vec<Play>,
    /// Files and templates by the hex SHA-256 of their content.
    pub blobs: BTreeMap<String, Blob>,
}

impl Plan {
    /// Equal plans, equal hash, whatever order their maps were built in by the same compiler.
    pub fn sha256(&self) -> Sha256 {
        Sha256::of(&serde_json::to_vec(self).unwrap_or_default())
    }

    /// Whether a task is in it that could set anything up. Handlers only follow what tasks did.
    pub fn does_something(&self) -> bool {
        fn any(steps: &[Step]) -> bool {
            steps.iter().any(|step| match step {
                Step::Task(task) => !IDLE.contains(&task.module.as_str()),
                Step::Block(b) => any(&b.block) || any(&b.always),
                Step::Include(i) => i.choices.values().any(|steps| any(steps)),
            })
        }
        self.plays.iter().flat_map(|play| &play.sections).any(|section| any(section))
    }

    /// Whether a task that could set anything up has one of these tags.
    pub fn has_tag(&self, tags: &[String]) -> bool {
        fn any(steps: &[Step], tags: &[String]) -> bool {
            steps.iter().any(|step| match step {
                Step::Task(task) => {
                    !IDLE.contains(&task.module.as_str()) && task.tags.iter().any(|tag| tags.contains(tag))
                }
                Step::Block(b) => any(&b.block, tags) || any(&b.always, tags),
                // Which of its tasks are in, its own tags decide as well.
                Step::Include(_) => false,
            })
        }
        self.plays.iter().flat_map(|play| &play.sections).any(|section| any(section, tags))
    }

    /// Calls `f` with every task of every play.
    pub fn each_task<'a>(&'a self, f: &mut dyn FnMut(&'a Task)) {
        self.plays.iter().for_each(|play| play.each_task(f));
    }

    /// How many tasks and handlers there are, blocks and includes not counted.
    pub fn task_count(&self) -> usize {
        fn count(steps: &[Step]) -> usize {
            steps
                .iter()
                .map(|step| match step {
                    Step::Task(_) => 1,
                    Step::Block(b) => count(&b.block) + count(&b.rescue) + count(&b.always),
                    Step::Include(i) => i.choices.values().map(|steps| count(steps)).sum(),
                })
                .sum()
        }
        self.plays.iter().map(|p| p.sections.iter().map(|s| count(s)).sum::<usize>() + p.handlers.len()).sum()
    }
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Play {
    /// Place among all plays of the playbook, those of other hosts counted.
    pub index: u32,
    pub name: String,
    pub place: Place,
    /// Layers below the inventory: defaults of its roles.
    pub defaults: Vec<u32>,
    /// Of the play and of those of its files that are known before the run.
    pub vars: Vec<u32>,
    /// Files of variables that a run chooses by what it knows.
    pub files: Vec<VarsFile>,
    /// Variables of its roles, which all of its tasks see.
    pub exports: Vec<u32>,
    /// Notified handlers run after a failure too.
    pub force_handlers: bool,
    /// Handlers are flushed after each.
    pub sections: Vec<Vec<Step>>,
    pub handlers: Vec<Handler>,
}

/// An item of `vars_files`: of its names, not rendered, the first counts that there is a file for.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct VarsFile {
    pub names: Vec<String>,
    /// Layers by the rendered name.
    pub choices: BTreeMap<String, u32>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Step {
    Task(Box<Task>),
    Block(Block),
    Include(Box<Include>),
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Block {
    pub place: Place,
    pub block: Vec<Step>,
    pub rescue: Vec<Step>,
    pub always: Vec<Step>,
    /// It is a role's tasks.
    pub role: Option<RoleRun>,
    /// Variables that all that follows in the play sees, once the block has begun.
    pub exports: Option<Exports>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RoleRun {
    pub name: String,
    /// What tells it from other runs of the role: of those with the same, a play does one.
    pub once: Option<String>,
}

/// Layers of a role that others see.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Exports {
    pub defaults: Vec<u32>,
    pub vars: Vec<u32>,
}

/// What an include may mean, by the name that it is called by there.
pub type Choices = BTreeMap<String, Vec<Step>>;

/// What it may mean and no plan can hold, with the reason.
pub type Refused = BTreeMap<String, String>;

/// `include_tasks` and `include_role`: what is included is chosen on the node among what could be meant.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Include {
    /// Name, condition and loop; its arguments are rendered and looked up in `choices` (`choice`).
    pub task: Task,
    pub choices: Choices,
    /// A run that needs one of these is refused.
    pub refused: Refused,
}

/// The name under which the `choices` of an include have what it means with these rendered arguments.
pub fn choice(module: &str, args: &Map<String, Value>) -> String {
    match module {
        "include_role" => role_choice(args),
        _ => args.get("file").and_then(Value::as_str).unwrap_or_default().to_owned(),
    }
}

/// A role and, where it is not `main`, its file of tasks.
pub fn role_choice(args: &Map<String, Value>) -> String {
    let text = |name: &str| args.get(name).and_then(Value::as_str);
    let name = text("name").or(text("role")).unwrap_or_default();
    text("tasks_from").map_or_else(|| name.to_owned(), |from| format!("{name} {from}"))
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Handler {
    /// Its name, and `role : name` if it belongs to one.
    pub names: Vec<String>,
    pub listen: Vec<String>,
    pub task: Task,
    /// Which list of handlers it stands in: each role and the play have one.
    pub list: u32,
    /// Of one that is `include_tasks`; of what no plan can hold, the reason.
    pub choices: Choices,
    pub refused: Refused,
}

impl Play {
    /// Calls `f` with every task, those of includes and handlers among them; handlers last.
    pub fn each_task<'a>(&'a self, f: &mut dyn FnMut(&'a Task)) {
        fn steps<'a>(list: &'a [Step], f: &mut dyn FnMut(&'a Task)) {
            for step in list {
                match step {
                    Step::Task(task) => f(task),
                    Step::Block(b) => [&b.block, &b.rescue, &b.always].into_iter().for_each(|part| steps(part, f)),
                    Step::Include(include) => {
                        f(&include.task);
                        include.choices.values().for_each(|part| steps(part, f));
                    }
                }
            }
        }
        self.sections.iter().for_each(|section| steps(section, f));
        for handler in &self.handlers {
            f(&handler.task);
            handler.choices.values().for_each(|part| steps(part, f));
        }
    }

    /// Whether a notification of this name means any handler.
    pub fn means(&self, name: &str) -> bool {
        (0..self.handlers.len()).any(|at| self.answers(at, name))
    }

    /// Whether a notification of this name means the handler at `at`. Later lists are searched first, each from its start;
    /// the first of that name is meant, and of those that listen to it the first of each name.
    pub fn answers(&self, at: usize, name: &str) -> bool {
        let own = &self.handlers[at];
        let before = |i: usize, other: &Handler| other.list > own.list || other.list == own.list && i < at;
        let mut sooner =
            self.handlers.iter().enumerate().filter(|(i, other)| before(*i, other)).map(|(_, other)| other);
        let named = |handler: &Handler| handler.names.iter().any(|n| n == name);
        let listens = |handler: &Handler| handler.listen.iter().any(|l| l == name);
        named(own) && !sooner.clone().any(named)
            || listens(own) && !sooner.any(|other| listens(other) && other.task.name == own.task.name)
    }
}

/// A file and a line, for messages.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    pub file: String,
    pub line: u32,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Task {
    /// Unique in the plan.
    pub id: u32,
    /// May hold markup.
    pub name: String,
    pub place: Place,
    /// Short name of the module.
    pub module: String,
    /// Options, not rendered.
    pub args: Map<String, Value>,
    /// All must hold.
    pub when: Vec<Condition>,
    pub repeat: Option<Repeat>,
    pub register: Option<String>,
    pub changed_when: Option<Vec<Condition>>,
    pub failed_when: Option<Vec<Condition>>,
    pub until: Option<Vec<Condition>>,
    pub retries: Option<Value>,
    pub delay: Option<Value>,
    pub notify: Vec<String>,
    /// Merged in order.
    pub environment: Vec<Value>,
    pub ignore_errors: Option<Value>,
    /// Whether this task only predicts; None: as the run does. A truth value or a template.
    pub check_mode: Option<Value>,
    /// Whether this task shows diffs; None: it does. A truth value or a template.
    pub diff: Option<Value>,
    pub no_log: bool,
    /// Root is needed.
    pub elevated: bool,
    /// Whose its command is, if it is not root's. Only of modules that run one, and of those that touch nothing.
    pub become_user: Option<String>,
    /// Its failure ends the play for all hosts.
    pub fatal: bool,
    /// Seconds.
    pub timeout: Option<Value>,
    pub tags: Vec<String>,
    /// Layers below the inventory, then above facts, in order.
    pub defaults: Vec<u32>,
    pub vars: Vec<u32>,
    /// Layers above what a run registers: parameters of roles and includes.
    pub params: Vec<u32>,
    /// Layers of the files of variables that `file` may name, by the name written there.
    pub vars_files: BTreeMap<String, u32>,
    /// Files that `src` may name, by the name written there.
    pub assets: BTreeMap<String, Asset>,
    /// Templates that those templates include, by the name written there.
    pub parts: BTreeMap<String, Asset>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Condition {
    pub text: String,
    pub line: u32,
}

impl Condition {
    /// Whether it is `false`, as every boolean of YAML is written here that is none of truth. A text `no` is a variable.
    pub fn never(&self) -> bool {
        matches!(self.text.trim(), "false" | "False")
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Repeat {
    pub kind: RepeatKind,
    /// Not rendered.
    pub items: Value,
    pub var: String,
    pub index_var: Option<String>,
    pub label: Option<String>,
    /// Seconds between items.
    pub pause: Option<Value>,
    /// `ansible_loop` is set.
    pub extended: bool,
    /// `ansible_loop.allitems` is not.
    pub leave_out_all: bool,
    /// The loop ends after the item for which all of these hold.
    pub break_when: Vec<Condition>,
    /// Of a loop over files: where they are looked for, best first, and those that could be meant.
    pub dirs: Vec<String>,
    pub files: Vec<String>,
}

impl Default for Repeat {
    fn default() -> Self {
        Self {
            kind: RepeatKind::Loop,
            items: Value::Null,
            var: "item".into(),
            index_var: None,
            label: None,
            pause: None,
            extended: false,
            leave_out_all: false,
            break_when: Vec::new(),
            dirs: Vec::new(),
            files: Vec::new(),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RepeatKind {
    /// Items as they are.
    Loop,
    /// One level of lists is opened.
    Items,
    /// `{key, value}` of a map.
    Dict,
    /// The first of each list, the second of each, and so on.
    Together,
    /// Each of the first list with each of the others.
    Nested,
    /// Numbers.
    Sequence,
    /// Each element with each of a list in it.
    Subelements,
    /// Each with its place.
    Indexed,
    /// All levels of lists are opened.
    Flattened,
    /// Files of the set that fit patterns.
    FileGlob,
    /// The first file that there is.
    FirstFound,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asset {
    /// Path in the fleet directory.
    pub path: String,
    /// Key of the plan's blobs.
    pub sha256: String,
    /// Where the file's is known: that of a generation is not.
    pub mode: Option<u32>,
}

/// Bytes: base64 in JSON, bytes in MessagePack.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Blob(pub Vec<u8>);

impl Serialize for Blob {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        if s.is_human_readable() {
            s.serialize_str(&base64::engine::general_purpose::STANDARD.encode(&self.0))
        } else {
            s.serialize_bytes(&self.0)
        }
    }
}

impl<'de> Deserialize<'de> for Blob {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct Bytes;
        impl<'de> serde::de::Visitor<'de> for Bytes {
            type Value = Blob;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("bytes")
            }
            fn visit_bytes<E>(self, v: &[u8]) -> Result<Blob, E> {
                Ok(Blob(v.to_vec()))
            }
            fn visit_byte_buf<E>(self, v: Vec<u8>) -> Result<Blob, E> {
                Ok(Blob(v))
            }
        }
        if d.is_human_readable() {
            let text = String::deserialize(d)?;
            base64::engine::general_purpose::STANDARD.decode(text).map(Blob).map_err(serde::de::Error::custom)
        } else {
            d.deserialize_byte_buf(Bytes)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_written_false_never_holds() {
        let never = |text: &str| Condition { text: text.to_owned(), line: 1 }.never();
        for text in ["False", "false", " false "] {
            assert!(never(text), "{text}");
        }
        for text in ["no", "off", "x == false", "True", ""] {
            assert!(!never(text), "{text}");
        }
    }
}
