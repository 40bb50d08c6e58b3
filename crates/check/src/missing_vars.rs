//! Checks a template that is rendered without a node of a fleet. A name that is known only for such
//! a node is a fault, because Tera treats a missing name in a condition as false. The check would
//! then assert less than its text suggests.
//!
//! The template engine decides which names are used. The text is searched only for the line to
//! report.

use super::render::{NAMES, first_line_with, variables};
use regex::Regex;
use remoor_model::Fault;
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::sync::LazyLock;

const HINT: &str = "run `remoor check NODE`, which knows all values of the node";
/// Maximum number of occurrences of `node` that are examined to find the line to report.
const PLACES_MAX: usize = 100;

/// A name that is assigned by `set`. The assignment may be inside a condition, but the engine
/// treats the name as known from there on.
static SET: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"\bset(?:_global)?\s+(\w+)").ok());
static NODE: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"\bnode\b(?:\s*\??\.\s*(\w+))?").ok());

/// Faults for names and fields of `node` that exist on a node of a fleet but not in `context`.
pub(super) fn faults(file: &str, text: &str, context: &Map<String, Value>) -> Vec<Fault> {
    let mut used = used_names(text).unwrap_or_default();
    used.retain(|name| name != "vars" && NAMES.contains(&name.as_str()) && !context.contains_key(name));
    let told = used.iter().map(|name| {
        let message = format!("`{name}` is known only for a node of a fleet");
        Fault::error(file, first_line_with(text, name), 1, message).hint(HINT)
    });
    told.chain(field(file, text, context)).collect()
}

/// A use `node.NAME` is correct if `context` has the field `NAME`. Returns a fault for the first
/// other use of `node`.
fn field(file: &str, text: &str, context: &Map<String, Value>) -> Option<Fault> {
    let node = context.get("node").filter(|_| !context.contains_key("peers"))?.as_object()?;
    // An invalid template is not checked here, because rendering reports the fault.
    used_names(text)?;
    let rest = replace_node_uses(text, |_, field| field.is_some_and(|field| node.contains_key(field)));
    // The variable `__tera_context` contains all values, so it uses every field of `node`.
    let dumped = text.contains("__tera_context");
    // If the text without the known fields is no valid template, the remaining uses of `node` are
    // unclear. The template is then rejected.
    if !dumped && used_names(&rest).is_some_and(|used| !used.contains("node")) {
        return None;
    }
    let places: Vec<(usize, Option<&str>)> = places(&rest).take(PLACES_MAX).collect();
    let is_use = |at: usize| {
        used_names(&replace_node_uses(&rest, |other, _| other != at)).is_none_or(|used| used.contains("node"))
    };
    let (at, field) = places.into_iter().find(|(at, _)| is_use(*at)).unwrap_or_default();
    let line = u32::try_from(rest[..at].matches('\n').count() + 1).unwrap_or(u32::MAX);
    let message = match field {
        Some(field) if !node.contains_key(field) => format!("`node.{field}` is known only for a node of a fleet"),
        _ => {
            let known: Vec<String> = node.keys().map(|field| format!("`node.{field}`")).collect();
            format!("without a fleet `node` has only {}, which must be written in this form", known.join(" and "))
        }
    };
    Some(Fault::error(file, line, 1, message).hint(HINT))
}

/// Byte offsets of `node` in the text, each with the field name that follows it.
fn places(text: &str) -> impl Iterator<Item = (usize, Option<&str>)> {
    let found = NODE.iter().flat_map(move |node| node.captures_iter(text));
    found.map(|found| (found.get(0).map_or(0, |all| all.start()), found.get(1).map(|field| field.as_str())))
}

/// Replaces `node` by `vars` at the places that `left_out` selects. `vars` is always known and has
/// the same length, so that offsets stay valid.
fn replace_node_uses(text: &str, left_out: impl Fn(usize, Option<&str>) -> bool) -> String {
    let mut out = text.to_owned();
    for (at, _) in places(text).filter(|(at, field)| left_out(*at, *field)) {
        out.replace_range(at..at + "node".len(), "vars");
    }
    out
}

/// Names that the template uses. None if it is not a valid template.
fn used_names(text: &str) -> Option<BTreeSet<String>> {
    let mut used = variables(text)?;
    let set = SET.iter().flat_map(|set| set.captures_iter(text)).filter_map(|found| found.get(1));
    used.extend(set.map(|name| name.as_str().to_owned()));
    Some(used)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn names_known_only_in_a_fleet_are_rejected() {
        let context = json!({"node": {"name": "w1", "hostname": "w1"}, "vars": {}});
        let told = |text: &str| {
            let faults = faults("f", text, context.as_object().unwrap());
            faults.first().map(|fault| (fault.line, fault.message.clone()))
        };
        for text in [
            "{{ node.role }}",
            "{% if node[\"role\"] %}{% endif %}",
            "{% if node['na' ~ 'me'] %}{% endif %}",
            "{% set n = node %}{% if n.role %}{% endif %}",
            "{% if node .role %}{% endif %}",
            "{% if node\n.\nrole %}{% endif %}",
            "{% if node?.role %}{% endif %}",
            "{% for k, v in node %}{% endfor %}",
            "{{ node | get(key=\"role\", default=\"\") }}",
            "{% if \"%}\" and node.role %}{% endif %}",
            "{% if vars.x %}{% set node = vars %}{% endif %}{% if node.role %}{% endif %}",
            "{% for n in vars %}{% set_global peers = n %}{% endfor %}{% if peers %}{% endif %}",
            "{% for node in vars.nodes %}{% endfor %}{% if node.role %}{% endif %}",
            "{{ __tera_context }}",
            "{% if expected %}{% endif %}",
        ] {
            assert!(told(text).is_some(), "{text}");
        }
        for text in [
            "{{ node.name }} {{ node . hostname }} {{ node?.name }}",
            "{% raw %}{{ node.role }}{% endraw %}{# node.role #} node.role",
            "{{ 'node.role' }}{{ vars.node.role }}",
            "{% for node in vars.nodes %}{{ node.role }}{% endfor %}",
            "{% if node.role",
        ] {
            assert_eq!(told(text), None, "{text}");
        }
        let (line, message) =
            told("node.example.org: '{{ node.name }}'\n{{ 'node.x' }}\n{% if node.role %}{% endif %}").unwrap();
        assert_eq!((line, message.as_str()), (3, "`node.role` is known only for a node of a fleet"));
        let (line, message) = told("{{ node.name }}\n{{ node['name'] }}").unwrap();
        assert!(
            line == 2 && message.starts_with("without a fleet `node` has only `node.name` and `node.hostname`, "),
            "{message}"
        );
        let fleet = json!({"node": {}, "peers": [], "expected": {}});
        assert_eq!(faults("f", "{% if node.role %}{% endif %}", fleet.as_object().unwrap()), []);
    }
}
