//! Which words a template may use: filters, tests, functions and methods. What it names besides is found before it runs.

use super::methods::{CHANGING, KNOWN};
use super::{REFUSED, all, asks};
use crate::playbook::lint::{self, Kind};
use crate::playbook::names::nearest;
use minijinja::{Error, ErrorKind};

/// Tests that the engine brings and that are as Jinja2's.
pub const BUILTIN_TESTS: &[&str] = &[
    "boolean",
    "defined",
    "divisibleby",
    "eq",
    "equalto",
    "even",
    "false",
    "filter",
    "float",
    "ge",
    "greaterthan",
    "gt",
    "integer",
    "le",
    "lessthan",
    "lower",
    "lt",
    "mapping",
    "ne",
    "none",
    "odd",
    "sameas",
    "string",
    "test",
    "true",
    "undefined",
    "upper",
];

/// Functions besides lookups.
pub const FUNCTIONS: &[&str] = &["dict", "lookup", "namespace", "now", "q", "query", "range"];

/// Functions of Jinja2 and Ansible that are not here.
pub const FUNCTIONS_REFUSED: &[(&str, &str)] = &[
    ("cycler", "use loop.cycle"),
    ("joiner", "use join"),
    ("lipsum", "chance is refused"),
    ("undef", "use fail or mandatory"),
];

/// Tests that are refused, with the reason.
pub const TESTS_REFUSED: &[(&str, &str)] = &[
    ("vault_encrypted", "vault files are not part of the language"),
    ("vaulted_file", "vault files are not part of the language"),
    ("escaped", "nothing is escaped by itself"),
];

/// Every filter, test and method that a template names must exist; the error's detail names it and what was perhaps meant.
pub fn check_names(template: &str) -> Result<(), Error> {
    for (kind, name) in lint::filters_and_tests(template) {
        let short =
            ["ansible.builtin.", "ansible.legacy.", "ansible.utils.", "ansible.netcommon.", "community.general."]
                .iter()
                .find_map(|prefix| name.strip_prefix(prefix))
                .unwrap_or(&name);
        let (known, refused, what): (Vec<&str>, _, _) = match kind {
            Kind::Filter => (all().map(|f| f.name).collect(), REFUSED, ErrorKind::UnknownFilter),
            Kind::Test => {
                let known = asks().map(|a| a.name).chain(BUILTIN_TESTS.iter().copied());
                (known.collect(), TESTS_REFUSED, ErrorKind::UnknownTest)
            }
        };
        if known.contains(&short) {
            continue;
        }
        let hint = match refused.iter().find(|(own, _)| *own == short) {
            Some((_, why)) => format!(" is not part of the language: {why}"),
            None => nearest(short, known).map(|n| format!(" (did you mean `{n}`?)")).unwrap_or_default(),
        };
        return Err(Error::new(what, format!("`{name}`{hint}")));
    }
    // A module of macros has functions of any name.
    if !template.contains("import") {
        for name in lint::methods(template) {
            if CHANGING.contains(&name.as_str()) {
                let message =
                    format!("`.{name}()` changes a value, and values do not change here; build a new one, as with `+`");
                return Err(Error::new(ErrorKind::UnknownMethod, message));
            }
            if !KNOWN.contains(&name.as_str()) && name != "cycle" && name != "changed" {
                let hint = nearest(&name, KNOWN.iter().copied()).map(|n| format!(" (did you mean `{n}`?)"));
                return Err(Error::new(ErrorKind::UnknownMethod, format!("`.{name}()`{}", hint.unwrap_or_default())));
            }
        }
    }
    if lint::formats_by_percent(template) {
        return Err(Error::new(
            ErrorKind::SyntaxError,
            "`%` on a text is not part of the language; write `| format(...)`",
        ));
    }
    Ok(())
}
