//! Selects hosts by the patterns of `hosts:` and `--limit`: names, groups, `all`, wildcards,
//! `~regex`, `[0]` and `[1:3]`, with `!` and `&`. The selection is pure: it knows only the names of
//! an inventory and no variables.

use regex::Regex;
use std::collections::{BTreeMap, BTreeSet};

/// Names that refer to the local machine if the inventory does not define them.
pub const LOCAL: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// The names of the hosts and groups of an inventory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InventoryNames {
    /// All hosts, in the order of the inventory.
    pub hosts: Vec<String>,
    /// The hosts of each group, including those of its child groups. `all` may be missing.
    pub groups: BTreeMap<String, Vec<String>>,
    /// The hosts that a run is limited to, if any. Patterns are evaluated against the whole
    /// inventory, and the result is reduced to these hosts.
    pub limit: Option<BTreeSet<String>>,
}

/// The hosts that a list of host patterns selects.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selected {
    /// Each host once, in the order in which the patterns name them.
    pub hosts: Vec<String>,
    /// Patterns that match no host and no group. Ansible warns about them and continues.
    pub unknown: Vec<String>,
}

impl InventoryNames {
    /// Selects the hosts that all `patterns` together describe. Each item may hold several
    /// patterns, separated by `,` or `:`. Plain patterns are applied first, then those with `&`,
    /// then those with `!`, whatever their written order. Without a plain pattern, `all` is
    /// assumed. Fails if a pattern cannot be parsed.
    pub fn select<S: AsRef<str>>(&self, patterns: &[S]) -> Result<Selected, String> {
        let parts: Vec<String> = patterns.iter().flat_map(|p| split(p.as_ref())).collect();
        let of = |sign: &[char]| parts.iter().filter(|p| p.starts_with(sign)).map(|p| &p[1..]).collect::<Vec<_>>();
        let mut named: Vec<&str> = parts.iter().map(String::as_str).filter(|p| !p.starts_with(['&', '!'])).collect();
        if named.is_empty() && !parts.is_empty() {
            named.push("all");
        }
        let mut out = Selected::default();
        let mut seen = BTreeSet::new();
        for pattern in named {
            let found = self.hosts_matching(pattern, &mut out.unknown)?;
            out.hosts.extend(found.into_iter().filter(|host| seen.insert(host.clone())));
        }
        for pattern in of(&['&']) {
            let keep: BTreeSet<String> = self.hosts_matching(pattern, &mut out.unknown)?.into_iter().collect();
            out.hosts.retain(|host| keep.contains(host));
        }
        for pattern in of(&['!']) {
            let drop: BTreeSet<String> = self.hosts_matching(pattern, &mut out.unknown)?.into_iter().collect();
            out.hosts.retain(|host| !drop.contains(host));
        }
        out.hosts.retain(|host| self.limit.as_ref().is_none_or(|limit| limit.contains(host)));
        Ok(out)
    }

    /// Selects the hosts of one pattern without `&` or `!`. A pattern that matches nothing is added
    /// to `unknown`.
    fn hosts_matching(&self, pattern: &str, unknown: &mut Vec<String>) -> Result<Vec<String>, String> {
        if pattern.is_empty() {
            return Err("a host pattern is empty".into());
        }
        let (name, range) = if pattern.starts_with('~') { (pattern, None) } else { subscript(pattern)? };
        if name == "all" {
            return pick(self.hosts.clone(), range, pattern);
        }
        let fits = wildcard(name)?;
        let groups: Vec<&Vec<String>> =
            self.groups.iter().filter(|(group, _)| fits.is_match(group)).map(|(_, hosts)| hosts).collect();
        let mut found: Vec<String> = groups.iter().flat_map(|hosts| hosts.iter().cloned()).collect();
        if groups.is_empty() || name.starts_with('~') || name.contains(['.', '?', '*', '[']) {
            found.extend(self.hosts.iter().filter(|host| fits.is_match(host)).cloned());
        }
        if found.is_empty() && LOCAL.contains(&name) {
            found.push(name.to_owned());
        }
        if found.is_empty() && groups.is_empty() {
            unknown.push(pattern.to_owned());
        }
        let mut seen = BTreeSet::new();
        found.retain(|host| seen.insert(host.clone()));
        pick(found, range, pattern)
    }
}

/// Splits `web,db` or `web:db:&prod`. A colon inside brackets or in an IPv6 address does not
/// separate.
fn split(pattern: &str) -> Vec<String> {
    let bare = pattern.trim_start_matches(['&', '!']);
    let address = bare.matches(':').count() > 1 && bare.chars().all(|c| c.is_ascii_hexdigit() || c == ':' || c == '.');
    let mut parts = vec![String::new()];
    let mut depth = 0_usize;
    for c in pattern.chars() {
        match c {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        let parting = if pattern.contains(',') { c == ',' } else { !address && depth == 0 && c == ':' };
        match parts.last_mut() {
            Some(last) if !parting => last.push(c),
            _ => parts.push(String::new()),
        }
    }
    parts.into_iter().map(|p| p.trim().to_owned()).filter(|p| !p.is_empty()).collect()
}

/// The first and last host that a pattern selects, counted from 0; a negative number counts from
/// the end.
type Range = (i64, Option<i64>);

/// Parses `web[0]`, `web[-1]`, `web[1:3]`, `web[2:]`. Brackets with other content are part of a
/// wildcard.
fn subscript(pattern: &str) -> Result<(&str, Option<Range>), String> {
    let Some((name, inner)) = pattern.strip_suffix(']').and_then(|p| p.rsplit_once('[')).filter(|(n, _)| !n.is_empty())
    else {
        return Ok((pattern, None));
    };
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let number = |text: &str| {
        text.parse::<i64>().map_err(|_| format!("`{pattern}`: `{text}` is not a position in a list of hosts"))
    };
    if digits(inner.strip_prefix('-').unwrap_or(inner)) {
        let at = number(inner)?;
        return Ok((name, Some((at, Some(at)))));
    }
    match inner.split_once([':', '-']) {
        Some((first, "")) if digits(first) => Ok((name, Some((number(first)?, None)))),
        Some((first, last)) if digits(first) && digits(last) => Ok((name, Some((number(first)?, Some(number(last)?))))),
        _ => Ok((pattern, None)),
    }
}

fn pick(hosts: Vec<String>, range: Option<Range>, pattern: &str) -> Result<Vec<String>, String> {
    let Some((first, last)) = range else { return Ok(hosts) };
    if hosts.is_empty() {
        return Ok(hosts);
    }
    let count = i64::try_from(hosts.len()).unwrap_or(i64::MAX);
    let from_start = |at: i64| if at < 0 { at + count } else { at };
    let (first, last) = (from_start(first), last.map_or(count - 1, from_start));
    if first == last && !(0..count).contains(&first) {
        return Err(format!("`{pattern}`: the position is out of range, there are {count} hosts"));
    }
    let (skip, end) = (usize::try_from(first).unwrap_or(0), usize::try_from(last + 1).unwrap_or(0));
    Ok(hosts.into_iter().take(end).skip(skip).collect())
}

/// Converts a wildcard to a regular expression that must match a whole name, or `~regex` to one
/// that must match the beginning of a name. Fails if `pattern` cannot be parsed.
pub fn wildcard(pattern: &str) -> Result<Regex, String> {
    let text = match pattern.strip_prefix('~') {
        Some(regex) => format!("^(?:{regex})"),
        None => format!("^(?s:{})$", wildcard_to_regex(pattern)),
    };
    Regex::new(&text).map_err(|e| {
        let last = e.to_string().lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
        format!("`{pattern}` cannot be read: {last}")
    })
}

/// Translates `*`, `?`, `[ab]` and `[!ab]` to a regular expression. A bracket that is not closed is
/// literal.
fn wildcard_to_regex(pattern: &str) -> String {
    let mut out = String::new();
    let mut rest = pattern;
    while let Some(c) = rest.chars().next() {
        rest = &rest[c.len_utf8()..];
        let class = (c == '[').then(|| rest.char_indices().skip(1).find(|(_, c)| *c == ']')).flatten();
        match (c, class) {
            ('*', _) => out.push_str(".*"),
            ('?', _) => out.push('.'),
            ('[', Some((end, _))) => {
                let inner = rest[..end].replace('\\', "\\\\").replace('[', "\\[");
                match inner.strip_prefix('!') {
                    Some(not) => out.push_str(&format!("[^{not}]")),
                    None => out.push_str(&format!("[{}]", inner.replacen('^', "\\^", 1))),
                }
                rest = &rest[end + 1..];
            }
            (c, _) => out.push_str(&regex::escape(c.encode_utf8(&mut [0; 4]))),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn inventory() -> InventoryNames {
        let list = |names: &str| names.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let groups = [("web", "w1 w2 w3"), ("db", "d1 d2"), ("prod", "w2 d1"), ("stage", "w1 w3 d2")];
        InventoryNames {
            hosts: list("w1 w2 w3 d1 d2 x.example.org fe80::1"),
            groups: groups.into_iter().map(|(name, hosts)| (name.to_owned(), list(hosts))).collect(),
            limit: None,
        }
    }

    #[test]
    fn a_limit_leaves_patterns_their_meaning() {
        let limit = Some(["w2".to_owned(), "d1".to_owned()].into());
        let limited = InventoryNames { limit, ..inventory() };
        for (pattern, want) in
            [("all", "w2 d1"), ("web", "w2"), ("web[0]", ""), ("web[1]", "w2"), ("w1", ""), ("stage", "")]
        {
            let selected = limited.select(&[pattern]).unwrap();
            assert_eq!((selected.hosts.join(" ").as_str(), selected.unknown.len()), (want, 0), "{pattern}");
        }
        assert_eq!(limited.select(&["nobody"]).unwrap().unknown, ["nobody"]);
    }

    #[test]
    fn patterns_mean_what_ansible_says_they_mean() {
        let table = [
            ("all", "w1 w2 w3 d1 d2 x.example.org fe80::1"),
            ("*", "d1 d2 w2 w1 w3 x.example.org fe80::1"),
            ("web", "w1 w2 w3"),
            ("db:web", "d1 d2 w1 w2 w3"),
            ("db,w1", "d1 d2 w1"),
            ("web:&prod", "w2"),
            ("!prod:web", "w1 w3"),
            ("web:db:&stage:!w3", "w1 d2"),
            ("!web", "d1 d2 x.example.org fe80::1"),
            ("~w[12]$", "w1 w2"),
            ("~(web|db)", "d1 d2 w1 w2 w3"),
            ("w?", "w1 w2 w3"),
            ("[wd]1", "w1 d1"),
            ("?[!1]", "d1 d2 w2 w3"),
            ("*.example.org", "x.example.org"),
            ("web[0]", "w1"),
            ("web[-1]", "w3"),
            ("web[0:1]", "w1 w2"),
            ("web[1:]", "w2 w3"),
            ("web[1:9]:!w3", "w2"),
            ("all[2]", "w3"),
            ("fe80::1", "fe80::1"),
            ("localhost", "localhost"),
            ("nobody", ""),
            ("", ""),
        ];
        for (pattern, want) in table {
            let got = inventory().select(&[pattern]).unwrap().hosts.join(" ");
            assert_eq!(got, want, "{pattern}");
        }
        assert_eq!(inventory().select(&["web", "!w1", "nobody"]).unwrap().unknown, ["nobody"]);
        for wrong in ["web[3]", "~w(", "web:!"] {
            assert!(inventory().select(&[wrong]).is_err(), "{wrong}");
        }
    }

    proptest! {
        /// Any host pattern is either parsed or rejected. It selects only existing hosts, each
        /// once.
        #[test]
        fn nothing_but_known_hosts_comes_out(pattern in "[wd1-3a~!&*?,:\\[\\]^(.-]{0,12}") {
            let inventory = inventory();
            if let Ok(selected) = inventory.select(&[pattern]) {
                let set: BTreeSet<&String> = selected.hosts.iter().collect();
                prop_assert_eq!(set.len(), selected.hosts.len());
                prop_assert!(selected.hosts.iter().all(|host| inventory.hosts.contains(host)));
            }
        }
    }
}
