//! What a template asks of a fleet, where there is none: refused, since Tera takes what is not there for false in a condition,
//! and the check would assert less than it seems to. The engine is asked for what is used; the text only says where.

use super::render::{NAMES, first_line_with, variables};
use crate::model::Fault;
use regex::Regex;
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::sync::LazyLock;

const HINT: &str = "remoor check NODE asks with all that is known";
/// So many places are looked at for the one that is told.
const PLACES_MAX: usize = 100;

/// A name that a `set` gives a value to. That may be within a condition, and the engine counts it as known from there on.
static SET: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"\bset(?:_global)?\s+(\w+)").ok());
static NODE: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"\bnode\b(?:\s*\??\.\s*(\w+))?").ok());

/// Names, and fields of `node`, that have a meaning on a node of a fleet and that `context` lacks.
pub(super) fn faults(file: &str, text: &str, context: &Map<String, Value>) -> Vec<Fault> {
    let mut used = used(text).unwrap_or_default();
    used.retain(|name| name != "vars" && NAMES.contains(&name.as_str()) && !context.contains_key(name));
    let told = used.iter().map(|name| {
        let message = format!("`{name}` is known only for a node of a fleet");
        Fault::error(file, first_line_with(text, name), 1, message).hint(HINT)
    });
    told.chain(field(file, text, context)).collect()
}

/// A use of `node` that is not one of the fields which are known, each by its name.
fn field(file: &str, text: &str, context: &Map<String, Value>) -> Option<Fault> {
    let node = context.get("node").filter(|_| !context.contains_key("peers"))?.as_object()?;
    // No template: what is wrong with it is told elsewhere.
    used(text)?;
    let rest = without(text, |_, field| field.is_some_and(|field| node.contains_key(field)));
    // It shows all that there is.
    let dumped = text.contains("__tera_context");
    // What is no template without the known fields is not understood, and so not taken.
    if !dumped && used(&rest).is_some_and(|used| !used.contains("node")) {
        return None;
    }
    let places: Vec<(usize, Option<&str>)> = places(&rest).take(PLACES_MAX).collect();
    let is_use = |at: usize| used(&without(&rest, |other, _| other != at)).is_none_or(|used| used.contains("node"));
    let (at, field) = places.into_iter().find(|(at, _)| is_use(*at)).unwrap_or_default();
    let line = u32::try_from(rest[..at].matches('\n').count() + 1).unwrap_or(u32::MAX);
    let message = match field {
        Some(field) if !node.contains_key(field) => format!("`node.{field}` is known only for a node of a fleet"),
        _ => {
            let known: Vec<String> = node.keys().map(|field| format!("`node.{field}`")).collect();
            format!("of `node` only {} are known without a fleet, and are to be written so", known.join(" and "))
        }
    };
    Some(Fault::error(file, line, 1, message).hint(HINT))
}

/// Where `node` stands, and the field that is named behind it.
fn places(text: &str) -> impl Iterator<Item = (usize, Option<&str>)> {
    let found = NODE.iter().flat_map(move |node| node.captures_iter(text));
    found.map(|found| (found.get(0).map_or(0, |all| all.start()), found.get(1).map(|field| field.as_str())))
}

/// `text` with `vars`, which is always known and as long, for each `node` that `left_out` says.
fn without(text: &str, left_out: impl Fn(usize, Option<&str>) -> bool) -> String {
    let mut out = text.to_owned();
    for (at, _) in places(text).filter(|(at, field)| left_out(*at, *field)) {
        out.replace_range(at..at + "node".len(), "vars");
    }
    out
}

/// None: it is no template.
fn used(text: &str) -> Option<BTreeSet<String>> {
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
    fn what_only_a_fleet_knows_is_refused_however_it_is_written() {
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
            line == 2 && message.starts_with("of `node` only `node.name` and `node.hostname` are known"),
            "{message}"
        );
        let fleet = json!({"node": {}, "peers": [], "expected": {}});
        assert_eq!(faults("f", "{% if node.role %}{% endif %}", fleet.as_object().unwrap()), []);
    }
}
