//! Filters and tests that are plugins in Python: of roles, of the playbook, and of collections.
//!
//! The compiler finds the names that a plan uses and adds them to the plan (`PLUGINS`). An
//! expression of this plan has these names in addition to the native ones, and a plugin replaces a
//! native filter of the same short name, as in Ansible. The controller evaluates each call, as it
//! performs lookups (`asked_lookups`). A computed name, as in `map(name)`, can mean only a plugin
//! whose name the playbook contains as a text.

use super::asked_lookups::{self, LookupCall};
use super::{FilterResult, UndefinedPolicy, all_filters, all_tests, failure, prefixes, vocabulary};
use crate::template::expr;
use crate::template::lint::NameKind;
use crate::vars::scope::ExprScope;
use crate::vars::var_map::{Var, has_markup};
use minijinja::value::{Kwargs, Rest};
use minijinja::{Environment, Error, State, Value};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};
use std::collections::{BTreeMap, BTreeSet};

/// The variable with the plugins that a plan may call. A playbook cannot have a variable of this
/// name.
pub const PLUGINS: &str = "plugins in Python";

/// The kind of plugin that the controller calls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PluginKind {
    #[default]
    Lookup,
    Filter,
    Test,
    /// A native test that reads files of the controller.
    FileTest,
}

impl PluginKind {
    pub fn as_word(self) -> &'static str {
        match self {
            Self::Lookup => "lookup",
            Self::Filter => "filter",
            Self::Test | Self::FileTest => "test",
        }
    }

    pub fn is_lookup(&self) -> bool {
        *self == Self::Lookup
    }
}

impl From<NameKind> for PluginKind {
    fn from(kind: NameKind) -> Self {
        match kind {
            NameKind::Filter => Self::Filter,
            NameKind::Test => Self::Test,
        }
    }
}

/// What the compiler has found for a name that is no native filter or test, or that replaces one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PluginUse {
    /// The controller can call it.
    Callable,
    /// The plugin exists, but this plan cannot call it for this reason.
    Refused(String),
}

/// The plugins that the texts of a plan name.
pub type PluginUses = BTreeMap<(NameKind, String), PluginUse>;

/// The plugins of a plan.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PluginSet {
    pub names: BTreeSet<(PluginKind, String)>,
    /// Directories below the root of the playbook's files that may contain `filter_plugins`,
    /// `test_plugins` and `collections`. The first one with a plugin is used.
    pub dirs: Vec<String>,
}

impl PluginSet {
    /// The plugins that the extra variables of a plan contain.
    pub fn of_plan(extra: &Map<String, Json>) -> Self {
        extra.get(PLUGINS).and_then(Json::as_str).map(Self::parse).unwrap_or_default()
    }

    fn parse(text: &str) -> Self {
        let mut out = Self::default();
        for (word, name) in text.lines().filter_map(|line| line.split_once(' ')) {
            match word {
                "filter" => drop(out.names.insert((PluginKind::Filter, name.to_owned()))),
                "test" => drop(out.names.insert((PluginKind::Test, name.to_owned()))),
                _ => out.dirs.push(name.to_owned()),
            }
        }
        out
    }

    /// The value of the variable `PLUGINS`. None: the plan calls no plugin.
    pub fn to_variable(&self) -> Option<Json> {
        if self.names.is_empty() {
            return None;
        }
        let names = self.names.iter().map(|(kind, name)| format!("{} {name}\n", kind.as_word()));
        // A variable of a plan is a template if it has markup.
        let plain = |dir: &&String| !has_markup(dir) && !dir.contains('\n');
        let dirs = self.dirs.iter().filter(plain).map(|dir| format!("dir {dir}\n"));
        Some(Json::String(names.chain(dirs).collect()))
    }
}

/// The value of `PLUGINS` in a scope. Its text identifies the environment of the scope.
pub fn plugins_of(scope: &ExprScope) -> Option<&str> {
    match scope.get(PLUGINS)? {
        Var::Plain(Json::String(text)) => Some(text),
        _ => None,
    }
}

/// Whether this name is a native filter or test.
pub fn is_native(kind: NameKind, name: &str) -> bool {
    let builtin =
        |short: &str| ["ansible.builtin.", "ansible.legacy.", ""].iter().any(|p| format!("{p}{short}") == name);
    match kind {
        NameKind::Filter => {
            all_filters().any(|filter| prefixes(filter.name).iter().any(|p| format!("{p}{}", filter.name) == name))
        }
        NameKind::Test => {
            all_tests().any(|test| builtin(test.name)) || vocabulary::BUILTIN_TESTS.iter().any(|short| builtin(short))
        }
    }
}

/// Adds the plugins of `text`, a value of the variable `PLUGINS`, to an environment.
pub fn register(env: &mut Environment<'static>, undefined: UndefinedPolicy, text: &str) {
    for (kind, name) in PluginSet::parse(text).names {
        let own = name.clone();
        let call = move |state: &State, value: Value, rest: Rest<Value>, kwargs: Kwargs| -> FilterResult {
            let mut call = LookupCall { plugin: kind, ..LookupCall::new(&own, Vec::new()) };
            let arguments = kwargs.args().map(|name| Ok((name, kwargs.get::<Value>(name)?)));
            let arguments = arguments.collect::<Result<Vec<_>, Error>>()?;
            let all = || std::iter::once(&value).chain(&rest.0).chain(arguments.iter().map(|(_, value)| value));
            if all().any(Value::is_undefined) {
                return undefined.undefined_result();
            }
            call.terms = std::iter::once(&value).chain(&rest.0).map(expr::to_json).collect::<Result<_, _>>()?;
            for (name, value) in &arguments {
                call.options.insert((*name).to_owned(), expr::to_json(value)?);
            }
            let found = asked_lookups::ask(state, &call)?;
            found.into_iter().next().ok_or_else(|| failure(format!("{}: there is no result", call.label())))
        };
        match kind {
            PluginKind::Filter => {
                env.add_filter(name, move |state: &mut State, value: Value, rest: Rest<Value>, kwargs: Kwargs| {
                    call(state, value, rest, kwargs)
                });
            }
            PluginKind::Test => {
                env.add_test(
                    name,
                    move |state: &mut State, value: Value, rest: Rest<Value>, kwargs: Kwargs| -> Result<bool, Error> {
                        let result = call(state, value, rest, kwargs)?;
                        match result.is_undefined() {
                            true => Err(Error::from(minijinja::ErrorKind::UndefinedError)),
                            false => Ok(result.is_true()),
                        }
                    },
                );
            }
            PluginKind::Lookup | PluginKind::FileTest => {}
        }
    }
}
