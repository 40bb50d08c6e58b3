//! The filters, tests, functions and methods that a template may use. Unknown names are reported
//! before a template runs.

use super::methods::KNOWN;
use super::{PluginUse, PluginUses, REFUSED, all_filters, all_tests};
use crate::template::lint::{self, NameKind};
use minijinja::{Error, ErrorKind};
use remoor_model::nearest_word;

/// Tests of minijinja that behave as in Jinja2.
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

/// The supported functions.
pub const FUNCTIONS: &[&str] = &["dict", "lookup", "namespace", "now", "q", "query", "range"];

/// Functions of Jinja2 and Ansible that are refused, each with the reason or an alternative.
pub const FUNCTIONS_REFUSED: &[(&str, &str)] = &[
    ("cycler", "use loop.cycle"),
    ("joiner", "use join"),
    ("lipsum", "random results are refused"),
    ("undef", "use fail or mandatory"),
];

/// Tests that are refused, with the reason.
pub const TESTS_REFUSED: &[(&str, &str)] =
    &[("vaulted_file", "it reads a file of the controller"), ("escaped", "there is no automatic escaping")];

/// Short names of filters that Ansible finds in Jinja2 or, by a redirect, in a collection, and that
/// `all_filters` does not have.
const ELSEWHERE: [&str; 12] = [
    "comp_type5",
    "gcp_kms_decrypt",
    "gcp_kms_encrypt",
    "hash_salt",
    "k8s_config_resource_name",
    "parse_cli",
    "parse_cli_textfsm",
    "parse_xml",
    "pprint",
    "random_mac",
    "type5_pw",
    "vlan_parser",
];

/// Whether Ansible does not know the filter or test either that an error of `check_names` with this
/// text is about. It must have a short name, because only ansible-core knows what collections have.
pub fn is_unknown_to_ansible(detail: &str) -> bool {
    let name = detail.strip_prefix('`').and_then(|rest| rest.split('`').next());
    name.is_some_and(|name| !name.contains('.') && !ELSEWHERE.contains(&name))
}

/// Checks that all filters, tests and methods in a template exist. The error names the first
/// unknown one and suggests a similar name. `plugins` are those that the template may call.
pub fn check_names(template: &str, plugins: &PluginUses) -> Result<(), Error> {
    for (kind, name) in lint::filters_and_tests(template) {
        let unknown = match kind {
            NameKind::Filter => ErrorKind::UnknownFilter,
            NameKind::Test => ErrorKind::UnknownTest,
        };
        let found = plugins.get(&(kind, name.clone()));
        match found {
            Some(PluginUse::Callable) => continue,
            Some(PluginUse::Refused(why)) => return Err(Error::new(unknown, format!("`{name}` {why}"))),
            None => {}
        }
        let collections =
            ["ansible.builtin.", "ansible.legacy.", "ansible.utils.", "ansible.netcommon.", "community.general."];
        let prefix = collections.into_iter().find(|prefix| name.starts_with(prefix)).unwrap_or_default();
        let short = &name[prefix.len()..];
        let (known, refused): (Vec<&str>, _) = match kind {
            NameKind::Filter => (all_filters().map(|f| f.name).collect(), REFUSED),
            NameKind::Test => {
                let known = all_tests().map(|a| a.name).chain(BUILTIN_TESTS.iter().copied());
                (known.collect(), TESTS_REFUSED)
            }
        };
        if known.contains(&short) {
            let prefixes = if kind == NameKind::Filter { super::prefixes(short) } else { &[prefix] };
            if prefixes.contains(&prefix) {
                continue;
            }
            let full = format!("{}{short}", prefixes.first().unwrap_or(&""));
            return Err(Error::new(unknown, format!("`{name}` (did you mean `{full}`?)")));
        }
        let hint = match refused.iter().find(|(own, _)| *own == short) {
            Some((_, why)) => format!(" is not part of the language: {why}"),
            None => nearest_word(short, known).map(|n| format!(" (did you mean `{n}`?)")).unwrap_or_default(),
        };
        return Err(Error::new(unknown, format!("`{name}`{hint}")));
    }
    // Macros of an imported template may have any name, and calls of them look like methods.
    if !template.contains("import") {
        for name in lint::methods(template) {
            if !KNOWN.contains(&name.as_str()) && name != "cycle" && name != "changed" {
                let hint = nearest_word(&name, KNOWN.iter().copied()).map(|n| format!(" (did you mean `{n}`?)"));
                return Err(Error::new(ErrorKind::UnknownMethod, format!("`.{name}()`{}", hint.unwrap_or_default())));
            }
        }
    }
    Ok(())
}
