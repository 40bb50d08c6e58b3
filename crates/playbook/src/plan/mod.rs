//! The plan that the compiler makes and the node runs: plain, self-contained data. Plans are
//! compared by their SHA-256. Making a plan belongs in `compile`, and running it in `run`.

mod blob;
mod controller_names;
pub(crate) mod delegation;
pub(crate) mod elevation;
mod idle_modules;
pub(crate) mod plan_hash;
mod plan_secrets;
pub mod python_module;
mod refused_tasks;
mod same_play;
pub(crate) mod schedule;
mod shared_names;

use crate::vars::var_map::SharedVar;
pub use blob::{Asset, Blob};
pub use controller_names::{ControllerNames, NamePattern, NamesOfRun, is_private_name};
pub use delegation::{DelegatedRun, Delegation, HostRules, ReplacedPlan, ResumedRun};
pub use idle_modules::is_idle;
pub use plan_secrets::PlanSecrets;
pub use python_module::{
    ModuleOrigin, ModuleRefusal, ModuleRequest, ModuleSource, PYTHON_PLAN_VERSION, PackedModule, PluginRequest,
    PythonModule,
};
use remoor_model::flat_form;
pub use same_play::PlayExchange;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
pub use shared_names::SharedNames;
use std::collections::BTreeMap;

/// Version of the format of a plan without Python modules. A node rejects plans of other versions.
pub const PLAN_VERSION: u32 = 4;

/// Module of a step that stands for a task that could not be compiled. The step fails with the text
/// in its option `msg`, which is never rendered.
pub(crate) const REFUSED: &str = "refused";

/// The plan of one host: the plays and tasks of a playbook that run on this host, with all data
/// that they need.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    pub version: u32,
    /// Path of the playbook in the fleet directory.
    pub playbook: String,
    pub host: String,
    /// The inventory variables of the host that the plan could read.
    pub vars: Map<String, Value>,
    /// The inventory variables that are the same on all hosts and that the plan could read.
    pub shared: BTreeMap<String, SharedVar>,
    /// Extra variables, which take precedence over all other variables.
    pub extra: Map<String, Value>,
    /// Maps of variables, called layers. Other fields of the plan name a layer by its index.
    pub layers: Vec<Map<String, Value>>,
    pub plays: Vec<Play>,
    /// Files and templates by the hex SHA-256 of their content.
    pub blobs: BTreeMap<String, Blob>,
    /// Modules that run as Python, by the name that tasks have in `module`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub modules: BTreeMap<String, PythonModule>,
    /// Set if the plan contains one delegated task of another plan: the state of that plan's run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delegated: Option<DelegatedRun>,
    /// Set if the run continues after its host was restarted, or after another plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resumed: Option<ResumedRun>,
    /// Set if other hosts of the run may read values of this host in later plays, and this host
    /// theirs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shares: Option<SharedNames>,
    /// The texts and files of the plan that no output may show.
    #[serde(default, skip_serializing_if = "PlanSecrets::is_empty")]
    pub secrets: PlanSecrets,
}

impl Plan {
    /// Calls `f` with every task of every play.
    pub fn each_task<'a>(&'a self, f: &mut dyn FnMut(&'a Task)) {
        self.plays.iter().for_each(|play| play.each_task(f));
    }

    /// Whether a failure of this host may end the play for all hosts (`any_errors_fatal`,
    /// `run_once`).
    pub fn may_end_all(&self) -> bool {
        let mut may = false;
        self.each_task(&mut |task| may |= task.outcome.fatal || task.hosts.once);
        may
    }

    /// Number of tasks and handlers, without blocks and includes.
    pub fn task_count(&self) -> usize {
        fn count(steps: &[PlanStep]) -> usize {
            steps
                .iter()
                .map(|step| match step {
                    PlanStep::Task(_) => 1,
                    PlanStep::Block(b) => count(&b.block) + count(&b.rescue) + count(&b.always),
                    PlanStep::Include(i) => i.choices.values().map(|steps| count(steps)).sum(),
                })
                .sum()
        }
        self.plays.iter().map(|p| p.sections.iter().map(|s| count(s)).sum::<usize>() + p.handlers.len()).sum()
    }
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Play {
    /// Index of the play among all plays of the playbook, including those of other hosts.
    pub index: u32,
    pub name: String,
    pub place: SourcePlace,
    /// Layers with the defaults of the play's roles, which have less precedence than inventory
    /// variables.
    pub defaults: Vec<u32>,
    /// Layers of the play's `vars` and of those of its `vars_files` that are known before the run.
    pub vars: Vec<u32>,
    /// Items of `vars_files` whose file names are only known during a run.
    pub files: Vec<VarsFile>,
    /// Layers of the variables of the play's roles, which all tasks of the play see.
    pub exports: Vec<u32>,
    /// Whether notified handlers run even after a task has failed.
    pub force_handlers: bool,
    /// The steps of `pre_tasks`, of `roles` with `tasks`, and of `post_tasks`. Notified handlers
    /// run after each of these sections.
    pub sections: Vec<Vec<PlanStep>>,
    pub handlers: Vec<Handler>,
}

/// An item of `vars_files`: the node selects the first name for which a file exists.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct VarsFile {
    pub names: Vec<String>,
    /// Index of the layer of each file that `names` may select, by rendered name.
    pub choices: BTreeMap<String, u32>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum PlanStep {
    Task(Box<Task>),
    Block(Block),
    Include(Box<DynamicInclude>),
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Block {
    pub place: SourcePlace,
    pub block: Vec<PlanStep>,
    pub rescue: Vec<PlanStep>,
    pub always: Vec<PlanStep>,
    /// Set if the block holds the tasks of a role.
    pub role: Option<RoleRun>,
    /// Variables that the rest of the play sees after the block has started.
    pub exports: Option<Exports>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RoleRun {
    pub name: String,
    /// A text that identifies the role and its parameters. A play runs a role only the first time
    /// that this text occurs. None: the role runs each time.
    pub once: Option<String>,
}

/// Layers of variables that a role shows to tasks outside the role.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Exports {
    pub defaults: Vec<u32>,
    pub vars: Vec<u32>,
}

/// The possible targets of an include, by the name that the include uses for the target.
pub type Choices = BTreeMap<String, Vec<PlanStep>>;

/// Possible targets that a plan cannot hold, with the reason.
pub type RejectedChoices = BTreeMap<String, String>;

/// `include_tasks` and `include_role`: the node selects one of the possible targets.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DynamicInclude {
    /// The task of the include, with its name, condition and loop. The rendered arguments of this
    /// task give the key in `choices` (see `choice`).
    pub task: Task,
    pub choices: Choices,
    /// Targets that the plan does not contain, with the reason. A run that selects one of them
    /// fails.
    pub refused: RejectedChoices,
}

/// The key that an include with these rendered arguments has in `DynamicInclude::choices`.
pub fn choice(task: &Task, args: &Map<String, Value>) -> String {
    match task.module.as_str() {
        "include_role" => role_choice(args),
        _ => {
            let name = args.get("file").and_then(Value::as_str).unwrap_or_default();
            task.files.choice_paths.get(name).map_or(name, String::as_str).to_owned()
        }
    }
}

/// The key of an included role: its name and, if it is not `main`, its tasks file.
pub fn role_choice(args: &Map<String, Value>) -> String {
    let text = |name: &str| args.get(name).and_then(Value::as_str);
    let name = text("name").or(text("role")).unwrap_or_default();
    text("tasks_from").map_or_else(|| name.to_owned(), |from| format!("{name} {from}"))
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Handler {
    /// The name of the handler, and in addition `role : name` if the handler belongs to a role.
    pub names: Vec<String>,
    pub listen: Vec<String>,
    pub task: Task,
    /// The number of the list that contains the handler. The play and each of its roles have a list
    /// of their own.
    pub list: u32,
    /// Possible targets, if the handler is `include_tasks`.
    pub choices: Choices,
    pub refused: RejectedChoices,
}

impl Play {
    /// Calls `f` with every task, including those of includes, and then with every handler.
    pub fn each_task<'a>(&'a self, f: &mut dyn FnMut(&'a Task)) {
        fn steps<'a>(list: &'a [PlanStep], f: &mut dyn FnMut(&'a Task)) {
            for step in list {
                match step {
                    PlanStep::Task(task) => f(task),
                    PlanStep::Block(b) => [&b.block, &b.rescue, &b.always].into_iter().for_each(|part| steps(part, f)),
                    PlanStep::Include(include) => {
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

    /// Calls `f` with every task and handler that is no include.
    pub fn each_single_task_mut(&mut self, f: &mut dyn FnMut(&mut Task)) {
        fn steps(list: &mut [PlanStep], f: &mut dyn FnMut(&mut Task)) {
            for step in list {
                match step {
                    PlanStep::Task(task) => f(task),
                    PlanStep::Block(b) => {
                        [&mut b.block, &mut b.rescue, &mut b.always].into_iter().for_each(|part| steps(part, f));
                    }
                    PlanStep::Include(include) => include.choices.values_mut().for_each(|part| steps(part, f)),
                }
            }
        }
        self.sections.iter_mut().for_each(|section| steps(section, f));
        for handler in &mut self.handlers {
            if handler.choices.is_empty() {
                f(&mut handler.task);
            }
            handler.choices.values_mut().for_each(|part| steps(part, f));
        }
    }

    /// Whether a notification of this name selects any handler.
    pub fn means(&self, name: &str) -> bool {
        (0..self.handlers.len()).any(|at| self.answers(at, name))
    }

    /// Whether a notification of this name selects the handler at index `at`. A notification
    /// selects one handler with this name. It also selects handlers that listen to this name, but
    /// only one for each handler name. If several handlers qualify, it selects the earliest in the
    /// latest list.
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

/// The file and line of a task, for messages.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourcePlace {
    pub file: String,
    pub line: u32,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Task {
    /// Number of the task, unique in the plan.
    pub id: u32,
    /// The name of the task, which may contain markup.
    pub name: String,
    pub place: SourcePlace,
    /// The module's short name.
    pub module: String,
    /// The module's options, not rendered.
    pub args: Map<String, Value>,
    /// The task runs only if all these conditions hold.
    pub when: Vec<TaskCondition>,
    pub repeat: Option<Repeat>,
    pub register: Option<String>,
    pub outcome: OutcomeRules,
    pub retry: RetryRules,
    pub notify: Vec<String>,
    /// Maps of environment variables, which are merged in order.
    pub environment: Vec<Value>,
    pub modes: TaskModes,
    pub no_log: bool,
    pub privileges: TaskPrivileges,
    /// The maximum duration of the task in seconds. None: the default of the run.
    pub timeout: Option<Value>,
    pub tags: Vec<String>,
    pub layers: TaskLayers,
    pub files: TaskFiles,
    pub hosts: HostRules,
}

/// The conditions that make a task changed or failed, and what a failure of the task means for the
/// play.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct OutcomeRules {
    pub changed_when: Option<Vec<TaskCondition>>,
    pub failed_when: Option<Vec<TaskCondition>>,
    pub ignore_errors: Option<Value>,
    /// Whether a failure of the task ends the play for all hosts (`any_errors_fatal`).
    pub fatal: bool,
}

/// The keywords that repeat a task until its result is accepted.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RetryRules {
    pub until: Option<Vec<TaskCondition>>,
    pub retries: Option<Value>,
    /// Seconds between two tries of the task.
    pub delay: Option<Value>,
}

/// The modes of the run that a task may change for itself.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TaskModes {
    /// Whether this task runs in check mode: a boolean or a template. None: the task runs in check
    /// mode if the whole run does.
    pub check_mode: Option<Value>,
    /// Whether this task reports diffs: a boolean or a template. None: it does.
    pub diff: Option<Value>,
    /// The value of `poll` of a task with `async`. If it is 0, the run does not wait for the task.
    pub poll: Option<Value>,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct TaskPrivileges {
    /// Whether the task runs as root, or may do so.
    pub elevated: bool,
    /// The value of `become` if only the node knows it: a template. None: `elevated` decides.
    pub elevated_if: Option<String>,
    /// The user as whom the task runs, if the task names a user other than root. It is a template
    /// if only the node knows the user.
    pub become_user: Option<String>,
}

/// Indices of the layers (see `Plan::layers`) whose variables a task sees in addition to those of
/// its play.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TaskLayers {
    /// Layers that have less precedence than inventory variables, in ascending order of precedence.
    pub defaults: Vec<u32>,
    /// Layers that have precedence over facts, in ascending order of precedence.
    pub vars: Vec<u32>,
    /// Layers with the parameters of roles and includes, which have precedence over registered
    /// results.
    pub params: Vec<u32>,
}

/// The files that a task may read, by the name used in the task.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TaskFiles {
    /// Layers of the variable files that the option `file` of the task may name.
    pub vars_files: BTreeMap<String, u32>,
    /// Files that the option `src` of the task may name.
    pub assets: BTreeMap<String, Asset>,
    /// Templates that the templates in `assets` include.
    pub parts: BTreeMap<String, Asset>,
    /// Files that the controller sends during the run.
    pub on_controller: ControllerNames,
    /// The key in `DynamicInclude::choices` of each file, by its paths.
    pub choice_paths: BTreeMap<String, String>,
}

fn is_false(value: &bool) -> bool {
    !value
}

fn is_zero(value: &u32) -> bool {
    *value == 0
}

flat_form! {
    Task {
        id: u32,
        name: String,
        place: SourcePlace,
        module: String,
        args: Map<String, Value>,
        when: Vec<TaskCondition>,
        repeat: Option<Repeat>,
        register: Option<String>,
        changed_when: Option<Vec<TaskCondition>>,
        failed_when: Option<Vec<TaskCondition>>,
        until: Option<Vec<TaskCondition>>,
        retries: Option<Value>,
        delay: Option<Value>,
        notify: Vec<String>,
        environment: Vec<Value>,
        ignore_errors: Option<Value>,
        check_mode: Option<Value>,
        diff: Option<Value>,
        no_log: bool,
        elevated: bool,
        become_user: Option<String>,
        fatal: bool,
        timeout: Option<Value>,
        tags: Vec<String>,
        defaults: Vec<u32>,
        vars: Vec<u32>,
        params: Vec<u32>,
        vars_files: BTreeMap<String, u32>,
        assets: BTreeMap<String, Asset>,
        parts: BTreeMap<String, Asset>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        delegation: Option<Delegation>,
        #[serde(default, skip_serializing_if = "is_false")]
        once: bool,
        #[serde(default, skip_serializing_if = "is_zero")]
        throttle: u32,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        elevated_if: Option<String>,
        #[serde(default, skip_serializing_if = "ControllerNames::is_empty")]
        on_controller: ControllerNames,
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        choice_paths: BTreeMap<String, String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        poll: Option<Value>,
    } = Self {
        id,
        name,
        place,
        module,
        args,
        when,
        repeat,
        register,
        outcome: OutcomeRules { changed_when, failed_when, ignore_errors, fatal },
        retry: RetryRules { until, retries, delay },
        notify,
        environment,
        modes: TaskModes { check_mode, diff, poll },
        no_log,
        privileges: TaskPrivileges { elevated, elevated_if, become_user },
        timeout,
        tags,
        layers: TaskLayers { defaults, vars, params },
        files: TaskFiles { vars_files, assets, parts, on_controller, choice_paths },
        hosts: HostRules { delegation, once, throttle },
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskCondition {
    pub text: String,
    pub line: u32,
}

impl TaskCondition {
    /// Whether the condition is literally `false`. The compiler writes YAML booleans in this form.
    /// A text `no` is a variable name.
    pub fn is_always_false(&self) -> bool {
        matches!(self.text.trim(), "false" | "False")
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Repeat {
    pub kind: RepeatKind,
    /// The expression that gives the items of the loop, not rendered.
    pub items: Value,
    pub var: String,
    pub index_var: Option<String>,
    pub label: Option<String>,
    /// Seconds to wait between two items of the loop.
    pub pause: Option<Value>,
    /// Whether to set `ansible_loop`.
    pub extended: bool,
    /// Whether to leave out `ansible_loop.allitems`.
    pub leave_out_all: bool,
    /// The loop ends after the first item for which all these conditions hold.
    pub break_when: Vec<TaskCondition>,
    /// For loops over files: the directories to search, in order of preference.
    pub dirs: Vec<String>,
    /// For loops over files: the files that could be found.
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
    /// The items unchanged.
    Loop,
    /// One level of lists is flattened.
    Items,
    /// The entries of a map as `{key, value}`.
    Dict,
    /// The first items of all lists, then the second items, and so on.
    Together,
    /// All combinations of the items of the lists.
    Nested,
    /// A sequence of numbers.
    Sequence,
    /// Each element with each item of a list inside the element.
    Subelements,
    /// Each item with its index.
    Indexed,
    /// All levels of lists are flattened.
    Flattened,
    /// Files of the plan that match patterns.
    FileGlob,
    /// The first file that exists.
    FirstFound,
    /// The items of the map `{lookup: name, terms: list}`: what a lookup of the controller finds.
    Lookup,
}

#[cfg(test)]
mod tests {
    use super::*;
    use remoor_model::Sha256;

    /// The hash of a plan depends on the serialized form of its tasks, and managers of the previous
    /// version read this form.
    #[test]
    fn the_form_of_a_task() {
        let text = include_str!("../tests/task_form.json");
        let task: Task = serde_json::from_str(text).expect("the JSON form");
        assert_eq!(serde_json::to_string_pretty(&task).expect("JSON"), text.trim_end(), "all fields in their order");
        let named = rmp_serde::to_vec_named(&task).expect("MessagePack");
        assert_eq!(Sha256::digest(&named).short_hex(), "2f3356dfb672", "the MessagePack form");
        let ordered = rmp_serde::to_vec(&task).expect("MessagePack without names");
        for packed in [named, ordered] {
            assert_eq!(rmp_serde::from_slice::<Task>(&packed).expect("a task"), task);
        }

        let fields: Map<String, Value> = serde_json::from_str(text).expect("a JSON object");
        let read = |name: &str| {
            let kept = fields.iter().filter(|(field, _)| *field != name);
            serde_json::from_value::<Task>(kept.map(|(k, v)| (k.clone(), v.clone())).collect())
        };
        let optional: Vec<&str> = fields.keys().map(String::as_str).filter(|name| read(name).is_ok()).collect();
        let expected = "repeat register changed_when failed_when until retries delay ignore_errors check_mode diff \
            become_user timeout";
        assert_eq!(optional.join(" "), expected, "the fields that may be missing");
        assert_eq!(read("fatal").unwrap_err().to_string(), "missing field `fatal`");
        let error = serde_json::from_str::<Task>("1").unwrap_err().to_string();
        assert_eq!(error, "invalid type: integer `1`, expected struct Task at line 1 column 1");
    }

    #[test]
    fn only_what_is_written_false_never_holds() {
        let never = |text: &str| TaskCondition { text: text.to_owned(), line: 1 }.is_always_false();
        for text in ["False", "false", " false "] {
            assert!(never(text), "{text}");
        }
        for text in ["no", "off", "x == false", "True", ""] {
            assert!(!never(text), "{text}");
        }
    }
}
