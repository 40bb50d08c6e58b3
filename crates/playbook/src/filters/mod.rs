//! The filters and tests of Ansible and Jinja2: their tables, their arguments, and their
//! registration in an environment.
//!
//! The implementations are in the other files of this folder. `REFUSED` lists the filters that
//! Ansible has and remoor does not support. `vocabulary.rs` reports them at compile time, never at
//! run time.

mod asked_lookups;
mod containers;
mod digest;
mod durations;
mod file_lookups;
mod hardware_address;
mod ip_network;
mod jinja_tests;
mod json_query;
mod lists;
mod lookups;
mod maps;
mod methods;
mod net;
mod numbers;
mod paths;
mod per_item;
mod percent;
mod python_plugins;
mod random;
mod regexes;
mod serialization;
mod subnets;
mod text;
mod time;
mod vocabulary;

pub use asked_lookups::{
    AnswersLookups, KnownAnswers, LOOKUP_ANSWERS, LookupAnswer, LookupCall, ONLY_IN_PLAY, answers_read, ask_controller,
    has_found, makes_call, with_lookup_answers,
};
pub use containers::{NEW as NEW_CONTAINER, OWN as OWN_CONTAINER, own_container};
pub use digest::crypt_password;
pub use file_lookups::{BY_CONTROLLER, LOOKUP_FILES, lookup_place, placed_key, search_places, searched_names};
pub use jinja_tests::{CONTAINS, search_list};
pub use jinja_tests::{ENCRYPTED_TEXTS, names_of_file_tests, perform_file_test};
pub use lookups::{ASKED as LOOKUPS_ASKED, KNOWN as LOOKUPS, short_name};
pub use methods::call as call_method;
pub use methods::{IN_PLACE as METHODS_IN_PLACE, KNOWN as METHODS};
pub use per_item::as_pair;
pub use percent::NAME as PERCENT;
pub use python_plugins::register as register_plugins;
pub use python_plugins::{PLUGINS, PluginKind, PluginSet, PluginUse, PluginUses, is_native, plugins_of};
pub use regexes::replacement;
pub use text::{capitalize, shell_quote};
pub use time::MINUS;
pub use vocabulary::{BUILTIN_TESTS, FUNCTIONS, FUNCTIONS_REFUSED, TESTS_REFUSED, check_names, is_unknown_to_ansible};

use crate::lang::python;
use crate::vars::var_map;
use minijinja::value::{Kwargs, Rest};
use minijinja::{Environment, Error, ErrorKind, State, Value, tests as engine};

pub type FilterResult = Result<Value, Error>;

/// A filter. Arguments may be positional or named, as in Python.
pub struct Filter {
    pub name: &'static str,
    /// Names of the arguments in order. `*` takes all further positional arguments, and `**` all
    /// further named arguments.
    pub takes: &'static [&'static str],
    pub run: fn(&mut State, Value, Args) -> FilterResult,
    /// Whether the filter accepts undefined values.
    pub lenient: bool,
    /// The difference from Ansible. An empty text means that there is none.
    pub differs: &'static str,
}

/// A Jinja test, used with `is`.
pub struct JinjaTest {
    pub name: &'static str,
    pub takes: &'static [&'static str],
    pub run: fn(&mut State, Value, Args) -> Result<bool, Error>,
    pub differs: &'static str,
}

/// A table row: a filter that behaves as in Ansible.
const fn filter(
    name: &'static str,
    takes: &'static [&'static str],
    run: fn(&mut State, Value, Args) -> FilterResult,
) -> Filter {
    Filter { name, takes, run, lenient: false, differs: "" }
}

/// A table row: a filter that differs from Ansible as described in `differs`.
const fn filter_with_difference(
    name: &'static str,
    takes: &'static [&'static str],
    run: fn(&mut State, Value, Args) -> FilterResult,
    differs: &'static str,
) -> Filter {
    Filter { name, takes, run, lenient: false, differs }
}

/// The arguments of one call of a filter or test.
pub struct Args {
    name: &'static str,
    takes: &'static [&'static str],
    values: Vec<Option<Value>>,
    /// Positional arguments after those in `Filter::takes`, if it has `*`.
    pub rest: Vec<Value>,
    /// Named arguments that are not in `Filter::takes`, if it has `**`.
    pub named: Vec<(String, Value)>,
}

/// The answer of the controller to a test of files.
fn test_on_controller(state: &State, name: &str, value: &Value, args: &Args) -> Result<bool, Error> {
    let terms = jinja_tests::paths_of(value, args)?.into_iter().map(serde_json::Value::from).collect();
    let call = LookupCall { plugin: PluginKind::FileTest, ..LookupCall::new(name, terms) };
    Ok(asked_lookups::ask(state, &call)?.first().is_some_and(Value::is_true))
}

impl Args {
    fn new(
        name: &'static str,
        takes: &'static [&'static str],
        rest: Vec<Value>,
        kwargs: &Kwargs,
    ) -> Result<Self, Error> {
        let fixed = takes.iter().filter(|t| !t.starts_with('*')).count();
        let mut out = Self { name, takes, values: vec![None; fixed], rest: Vec::new(), named: Vec::new() };
        let open = takes.iter().any(|t| t.starts_with('*') && !t.starts_with("**"));
        for (i, value) in rest.into_iter().enumerate() {
            match out.values.get_mut(i) {
                Some(slot) => *slot = Some(value),
                None if open => out.rest.push(value),
                None => return Err(failure(format!("{name}: takes at most {fixed} arguments"))),
            }
        }
        for key in kwargs.args() {
            let value: Value = kwargs.get(key)?;
            match takes.iter().position(|t| *t == key) {
                Some(at) if out.values[at].is_some() => {
                    return Err(failure(format!("{name}: `{key}` is given twice")));
                }
                Some(at) => out.values[at] = Some(value),
                None if takes.contains(&"**") => out.named.push((key.to_owned(), value)),
                None => return Err(failure(format!("{name}: unknown argument `{key}`"))),
            }
        }
        Ok(out)
    }

    /// The argument of this name. None: not given.
    pub fn get(&self, name: &str) -> Option<&Value> {
        let at = self.takes.iter().position(|t| *t == name)?;
        self.values.get(at)?.as_ref()
    }

    /// The argument of this name. Fails if it is not given.
    pub fn need(&self, name: &str) -> Result<&Value, Error> {
        self.get(name).ok_or_else(|| failure(format!("{}: `{name}` is missing", self.name)))
    }

    /// An argument as text; other types are converted as in Python. None: not given, or null.
    pub fn text(&self, name: &str) -> Result<Option<String>, Error> {
        self.get(name).filter(|v| !v.is_none()).map(python::text).transpose()
    }

    /// An argument as text. Fails if it is not given.
    pub fn need_text(&self, name: &str) -> Result<String, Error> {
        python::text(self.need(name)?)
    }

    /// Whether an argument is given and is true by Python's rules.
    pub fn flag(&self, name: &str) -> bool {
        self.get(name).is_some_and(Value::is_true)
    }

    /// An argument as integer. Fails if it is not a number. None: not given, or null.
    pub fn number(&self, name: &str) -> Result<Option<i64>, Error> {
        let Some(value) = self.get(name).filter(|v| !v.is_none()) else { return Ok(None) };
        let number = value.as_i64().or_else(|| value.as_str()?.trim().parse().ok());
        number.map(Some).ok_or_else(|| failure(format!("{}: `{name}` takes a number", self.name)))
    }

    /// An argument as non-negative integer; negative numbers become 0.
    pub fn count(&self, name: &str) -> Result<Option<usize>, Error> {
        self.number(name).map(|n| n.map(|n| usize::try_from(n).unwrap_or(0)))
    }

    /// Whether any argument is undefined.
    fn has_undefined(&self) -> bool {
        self.values.iter().flatten().chain(&self.rest).any(Value::is_undefined)
            || self.named.iter().any(|(_, v)| v.is_undefined())
    }
}

/// Every table of filters.
const TABLES: &[&[Filter]] = &[
    text::FILTERS,
    regexes::FILTERS,
    serialization::FILTERS,
    lists::FILTERS,
    per_item::FILTERS,
    maps::FILTERS,
    paths::FILTERS,
    net::FILTERS,
    subnets::FILTERS,
    hardware_address::FILTERS,
    numbers::FILTERS,
    random::FILTERS,
    digest::FILTERS,
    time::FILTERS,
    durations::FILTERS,
    json_query::FILTERS,
];

/// Filters of Ansible and Jinja2 that are refused, each with the reason.
pub const REFUSED: &[(&str, &str)] = &[
    ("vault", "remoor encrypts nothing; encrypt values with ansible-vault"),
    ("unvault", "remoor opens encrypted files and values of the playbook itself"),
    ("fileglob", "it lists files of the manager; use the module find, or with_fileglob"),
    ("urlize", "the filter makes HTML"),
    ("xmlattr", "the filter makes HTML"),
    ("forceescape", "the filter makes HTML"),
    ("expandvars", "the environment of a manager is not that of a node"),
];

/// All supported filters.
pub fn all_filters() -> impl Iterator<Item = &'static Filter> {
    TABLES.iter().flat_map(|table| table.iter())
}

/// All supported tests, except those that minijinja itself implements.
pub fn all_tests() -> impl Iterator<Item = &'static JinjaTest> {
    jinja_tests::TESTS.iter()
}

pub(super) fn failure(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, message.into())
}

/// Maximum length of a text that one filter or method may produce, in bytes.
const TEXT_MAX: usize = 16 << 20;

/// Fails if a text would exceed the maximum length; called before the text is built.
fn check_length(len: usize) -> Result<(), Error> {
    if len > TEXT_MAX {
        return Err(failure(format!("the text would be longer than {TEXT_MAX} bytes")));
    }
    Ok(())
}

fn undefined_error(what: &str) -> Error {
    Error::new(ErrorKind::UndefinedError, what.to_owned())
}

/// The treatment of an undefined value by a filter that does not accept it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UndefinedPolicy {
    Fails,
    /// The result is undefined, so that a later filter such as `default` can replace it.
    Passes,
}

impl UndefinedPolicy {
    fn undefined_result(self) -> FilterResult {
        match self {
            Self::Passes => Ok(Value::UNDEFINED),
            Self::Fails => Err(Error::from(ErrorKind::UndefinedError)),
        }
    }
}

/// Adds all filters, tests and functions to an environment, also under Ansible's full names.
pub fn register(env: &mut Environment<'static>, undefined: UndefinedPolicy) {
    for filter in all_filters() {
        let run = move |state: &mut State, value: Value, rest: Rest<Value>, kwargs: Kwargs| -> FilterResult {
            let args = Args::new(filter.name, filter.takes, rest.0, &kwargs)?;
            if !filter.lenient && (value.is_undefined() || args.has_undefined()) {
                return undefined.undefined_result();
            }
            let out = (filter.run)(state, value, args)?;
            check_length(out.as_str().map_or(0, str::len))?;
            Ok(out)
        };
        for prefix in prefixes(filter.name) {
            env.add_filter(format!("{prefix}{}", filter.name), run);
        }
    }
    for ask in all_tests() {
        let run = move |state: &mut State, value: Value, rest: Rest<Value>, kwargs: Kwargs| -> Result<bool, Error> {
            let args = Args::new(ask.name, ask.takes, rest.0, &kwargs)?;
            if value.is_undefined() || args.has_undefined() {
                return Err(Error::from(ErrorKind::UndefinedError));
            }
            if ask.differs == jinja_tests::OF_FILES {
                if asked_lookups::are_answered(state) {
                    return test_on_controller(state, ask.name, &value, &args);
                }
                crate::vars::scope::on_the_node(state)?;
            }
            (ask.run)(state, value, args)
        };
        for prefix in ["", "ansible.builtin.", "ansible.legacy."] {
            env.add_test(format!("{prefix}{}", ask.name), run);
        }
    }
    strict_tests(env);
    for name in vocabulary::BUILTIN_TESTS {
        let run = move |state: &mut State, args: Rest<Value>| state.perform_test(name, &args.0);
        env.add_test(format!("ansible.builtin.{name}"), run);
    }
    env.add_function("dict", maps::dict);
    containers::register(env);
    percent::register(env);
    lookups::register(env);
    time::register(env);
}

type UnaryTest = fn(&Value) -> bool;
type BinaryTest = fn(&Value, &Value) -> bool;

/// Replaces minijinja's tests by strict ones. minijinja's own tests return false for an undefined
/// value. Here, an undefined value is an error.
fn strict_tests(env: &mut Environment<'static>) {
    let used = |value: &Value| match value.is_undefined() {
        true => Err(Error::from(ErrorKind::UndefinedError)),
        false => Ok(()),
    };
    let of_one: [(&str, UnaryTest); 12] = [
        ("boolean", engine::is_boolean),
        ("even", |value| engine::is_even(value.clone())),
        ("false", engine::is_false),
        ("float", engine::is_float),
        ("integer", engine::is_integer),
        ("lower", engine::is_lower),
        ("mapping", engine::is_mapping),
        ("none", engine::is_none),
        ("odd", |value| engine::is_odd(value.clone())),
        ("string", engine::is_string),
        ("true", engine::is_true),
        ("upper", engine::is_upper),
    ];
    for (name, test) in of_one {
        env.add_test(name, move |value: &Value| used(value).map(|()| test(value)));
    }
    let of_two: [(&[&str], BinaryTest); 8] = [
        (&["divisibleby"], engine::is_divisibleby),
        (&["eq", "equalto", "=="], engine::is_eq),
        (&["ne", "!="], engine::is_ne),
        (&["lt", "lessthan", "<"], engine::is_lt),
        (&["le", "<="], engine::is_le),
        (&["gt", "greaterthan", ">"], engine::is_gt),
        (&["ge", ">="], engine::is_ge),
        (&["sameas"], engine::is_sameas),
    ];
    for (names, test) in of_two {
        for name in names {
            let both = move |a: &Value, b: &Value| used(a).and_then(|()| used(b)).map(|()| test(a, b));
            env.add_test(*name, both);
        }
    }
}

/// The collection prefixes under which a filter is registered.
fn prefixes(name: &str) -> &'static [&'static str] {
    let is_in = |table: &[Filter]| table.iter().any(|filter| filter.name == name);
    match name {
        // These are not among the names that ansible-core redirects.
        "ipcut" | "ipv6form" | "macaddr" | "usable_range" => &["ansible.utils."],
        _ if is_in(net::FILTERS) || is_in(subnets::FILTERS) || is_in(hardware_address::FILTERS) => {
            &["", "ansible.utils.", "ansible.netcommon."]
        }
        _ if is_in(durations::FILTERS) => &["community.general."],
        "json_query" => &["", "community.general."],
        _ => &["", "ansible.builtin.", "ansible.legacy."],
    }
}

/// Whether a value is true by Ansible's rules for module options and keywords.
pub fn truthy(v: &Value) -> bool {
    match v.as_str() {
        Some(s) => var_map::boolean_word(s) == Some(true),
        None => v.is_true(),
    }
}

/// The items of a list, map or text. Fails for other types with a message that starts with `who`.
fn list(who: &str, v: &Value) -> Result<Vec<Value>, Error> {
    use minijinja::value::ValueKind::{Iterable, Map, Seq, String};
    match v.kind() {
        Seq | Iterable | Map => v.try_iter()?.map(valid).collect(),
        String => Ok(v.as_str().unwrap_or_default().chars().map(|c| Value::from(c.to_string())).collect()),
        kind => Err(failure(format!("{who}: takes a list, not {kind}"))),
    }
}

/// Returns the value. An invalid value holds an error, which is returned instead.
fn valid(v: Value) -> FilterResult {
    match v.kind() {
        minijinja::value::ValueKind::Invalid => Err(python::held_error(&v)),
        _ => Ok(v),
    }
}

/// Converts a value to JSON.
fn json(who: &str, v: &Value) -> Result<serde_json::Value, Error> {
    crate::template::expr::to_json(v).map_err(|e| match e.kind() {
        ErrorKind::UndefinedError => e,
        _ => failure(format!("{who}: {}", crate::template::expr::explain(&e))),
    })
}

#[cfg(test)]
mod tests;
