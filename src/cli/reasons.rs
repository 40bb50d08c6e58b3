//! Formats the reasons of a verdict for people: one line for each file or check that differs. A
//! line has the difference first and the checksum last. The input is the texts that the journal
//! stores. A text of an unknown form is printed unchanged.

use super::moment::Today;
use remoor_model::{Reason, Wall, Witness};

/// Maximum number of reasons that are printed in a sentence or below an event.
const SHOWN_MAX: usize = 3;

/// One file or check that differs. Several stored reasons about the same file are merged into one
/// line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReasonLine {
    service: String,
    /// The path of the file. Empty: the reason names no file, and `differences` are its complete
    /// texts.
    path: String,
    differences: Vec<String>,
    /// The change of the checksum: `sha256 1f2e.. -> 99aa..`.
    checksum: Option<String>,
    /// Whether the reason is actionable. Otherwise it is only reported.
    grave: bool,
    since: Option<Wall>,
}

impl ReasonLine {
    /// The difference in words. The checksum is included only if no other difference is known.
    pub fn summary(&self) -> String {
        let what = match (&self.checksum, self.differences.is_empty()) {
            (Some(checksum), true) => format!("content changed ({checksum})"),
            _ => self.differences.join("; "),
        };
        let path = if self.path.is_empty() { String::new() } else { format!("{}: ", self.path) };
        // A text of an unknown form begins with the name of its service already.
        match self.service.is_empty() || self.path.is_empty() && what.starts_with(&self.service) {
            true => format!("{path}{what}"),
            false => format!("{}: {path}{what}", self.service),
        }
    }

    /// The summary, and a mark if the reason is only reported. If known, the time at which the
    /// difference was first found follows.
    pub fn with_date(&self, today: Today) -> String {
        let weight = if self.grave { "" } else { " (reported only)" };
        let since = self.since.map(|at| format!(", since {}", today.show(at))).unwrap_or_default();
        format!("{}{weight}{since}", self.summary())
    }

    /// The checksum with the path of its file. None: the summary contains the checksum already, or
    /// no checksum is known.
    pub fn checksum(&self) -> Option<String> {
        let checksum = self.checksum.as_ref().filter(|_| !self.differences.is_empty())?;
        Some(format!("{}: {checksum}", self.path))
    }

    fn add(&mut self, reason: &Reason, change: Change) {
        match change {
            Change::Checksum(checksum) => self.checksum = Some(checksum),
            Change::Other(text) if self.differences.contains(&text) => {}
            Change::Other(text) => self.differences.push(text),
        }
        self.grave |= reason.actionable;
        self.since = match (self.since, reason.since) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
    }
}

enum Change {
    Checksum(String),
    Other(String),
}

/// The lines for `reasons`, in the same order, except that files of which only the checksum is
/// known come last.
pub fn lines(reasons: &[Reason]) -> Vec<ReasonLine> {
    let mut lines: Vec<ReasonLine> = Vec::new();
    for reason in reasons {
        let (path, change) = match reason.by {
            Witness::Digest => file_change(reason),
            Witness::Check => contents_change(reason),
            Witness::Desired => None,
        }
        .unwrap_or_else(|| (String::new(), Change::Other(shorten_check(&reason.text))));
        let service = reason.service.to_string();
        let same = |line: &&mut ReasonLine| !path.is_empty() && line.path == path && line.service == service;
        if let Some(line) = lines.iter_mut().find(same) {
            line.add(reason, change);
            continue;
        }
        let mut line = ReasonLine { service, path, differences: Vec::new(), checksum: None, grave: false, since: None };
        line.add(reason, change);
        lines.push(line);
    }
    lines.sort_by_key(|line| line.differences.is_empty());
    lines
}

/// The summaries of the first reasons, followed by the number of the other reasons.
pub fn top_summaries(reasons: &[Reason]) -> Vec<String> {
    let lines = lines(reasons);
    let mut shown: Vec<String> = lines.iter().take(SHOWN_MAX).map(ReasonLine::summary).collect();
    if lines.len() > SHOWN_MAX {
        shown.push(format!("and {} more", lines.len() - SHOWN_MAX));
    }
    shown
}

/// The path and the change in a reason that comes from a digest: `etcd: /etc/etcd.conf mode
/// expected 0644 got 0600`.
fn file_change(reason: &Reason) -> Option<(String, Change)> {
    let text = reason.text.strip_prefix(reason.service.as_str()).and_then(|text| text.strip_prefix(": "))?;
    let (path, what) = match reason.about.as_str() {
        // A reason in a journal of an older version has an empty `about`, and the path only in its
        // text.
        "" => text.split_once(' ').filter(|(path, _)| path.starts_with('/'))?,
        path => (path, text.strip_prefix(path)?.strip_prefix(' ')?),
    };
    let change = match what {
        "missing" => Change::Other("missing".to_owned()),
        "extra" => Change::Other("exists, but should not".to_owned()),
        "content differs" => Change::Other("content changed (secret)".to_owned()),
        _ => {
            let (attribute, values) = what.split_once(" expected ")?;
            let (expected, found) = values.rsplit_once(" got ")?;
            match attribute {
                "sha256" => Change::Checksum(format!("sha256 {expected} -> {found}")),
                "mode" | "owner" | "group" | "kind" | "target" => {
                    Change::Other(format!("{attribute} {expected} -> {found}"))
                }
                _ => return None,
            }
        }
    };
    Some((path.to_owned(), change))
}

/// The path and the change in a reason that comes from a failed `contents` check. The reason names
/// the patterns that were not met. The content itself is never stored, because it may be secret.
fn contents_change(reason: &Reason) -> Option<(String, Change)> {
    let path = reason.about.strip_prefix("file:")?.strip_suffix(" contents")?;
    let unmet = unmet_patterns(&reason.text)?;
    path.starts_with('/').then(|| (path.to_owned(), Change::Other(unmet)))
}

/// The text after `(not met: ` in the text of a failed check.
fn unmet_patterns(text: &str) -> Option<String> {
    let (_, unmet) = text.strip_suffix(')')?.rsplit_once(" (not met: ")?;
    let unmet = unmet.trim();
    // `!pattern` means that no line may match the pattern. The list is not split, because patterns
    // may contain commas.
    Some(match unmet.starts_with('!') || unmet.contains(", !") || unmet.contains("; not asked for: ") {
        true => format!("content not as expected: {unmet}"),
        false => format!("not found in it: {unmet}"),
    })
}

/// The text of a failed check, shortened if it names the patterns that were not met. Then the list
/// of all expected patterns is omitted.
fn shorten_check(text: &str) -> String {
    match (text.split_once(": expected "), unmet_patterns(text)) {
        (Some((check, _)), Some(unmet)) => format!("{check}: {unmet}"),
        _ => text.to_owned(),
    }
}

/// Joins `items` with `; ` to lines of at most `width` columns. The first line begins with `label`;
/// the other lines are indented by its length. An item is never split, so a line with one long item
/// may be longer.
pub fn pack_lines(label: &str, items: &[String], width: usize) -> Vec<String> {
    let indent = " ".repeat(label.chars().count());
    let mut lines: Vec<String> = Vec::new();
    for item in items {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 2 + item.chars().count() <= width => {
                line.push_str("; ");
                line.push_str(item);
            }
            Some(_) => lines.push(format!("{indent}{item}")),
            None => lines.push(format!("{label}{item}")),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use remoor_model::{CheckResult, Difference, DigestChange};

    const PATH: &str = "/etc/default/netplugin";

    fn digest(attribute: &str, expected: &str, found: &str) -> Reason {
        let (attribute, expected, found) = (attribute.to_owned(), expected.to_owned(), found.to_owned());
        difference(DigestChange::Changed { attribute, expected, found })
    }

    /// A reason about a file, in the form that the engine makes.
    fn difference(what: DigestChange) -> Reason {
        let difference = Difference { service: "net".into(), path: PATH.to_owned(), what };
        let reason = Reason::new(Witness::Digest, "net".into(), difference.to_string(), true);
        Reason { about: difference.path, ..reason }
    }

    /// A reason about a check, in the form that the engine makes.
    fn check(check: &str, property: &str, expected: &str, found: &str, message: &str) -> Reason {
        let result = CheckResult {
            property: property.to_owned(),
            expected: expected.to_owned(),
            found: found.to_owned(),
            message: message.to_owned(),
            ..CheckResult::sample_failing("net", check)
        };
        let reason = Reason::new(Witness::Check, "net".into(), format!("net: {}", result.describe()), false);
        Reason { about: format!("{check} {property}"), ..reason }
    }

    #[test]
    fn a_changed_line_is_named_once_and_the_checksum_comes_last() {
        let expected = "[-vtep-ip 10.0.0.1 , -vlan-if eth0 , -cluster-store etcd://127.0.0.1:2379]";
        let reasons = [
            digest("sha256", "6c3b..", "5230.."),
            digest("mode", "0644", "0600"),
            check("file:/etc/default/netplugin", "contents", expected, "1 lines", "not met: -vlan-if eth0 "),
        ];
        let lines = lines(&reasons);
        let [line] = &lines[..] else { panic!("one file, one line: {lines:?}") };
        assert_eq!(line.summary(), "net: /etc/default/netplugin: mode 0644 -> 0600; not found in it: -vlan-if eth0");
        assert_eq!(line.checksum().as_deref(), Some("/etc/default/netplugin: sha256 6c3b.. -> 5230.."));
        assert!(line.grave, "one of them asks for a re-setup");
    }

    #[test]
    fn a_checksum_is_shown_if_nothing_else_is_known() {
        let lines =
            lines(&[digest("sha256", "6c3b..", "5230.."), check("port:tcp:80", "listening", "true", "false", "")]);
        let texts: Vec<String> = lines.iter().map(ReasonLine::summary).collect();
        assert_eq!(
            texts,
            [
                "net: port:tcp:80 listening: expected true, found false",
                "net: /etc/default/netplugin: content changed (sha256 6c3b.. -> 5230..)"
            ]
        );
        assert_eq!(lines[1].checksum(), None, "it is in the summary");
    }

    #[test]
    fn all_kinds_of_differences_are_formatted() {
        let secret = digest("sha256", "(secret)", "(secret)");
        for (reason, text) in [
            (difference(DigestChange::Missing), "net: /etc/default/netplugin: missing"),
            (difference(DigestChange::Extra), "net: /etc/default/netplugin: exists, but should not"),
            (secret, "net: /etc/default/netplugin: content changed (secret)"),
            (digest("owner", "root", "nobody"), "net: /etc/default/netplugin: owner root -> nobody"),
            (
                check("command:say", "stdout", "[one, two]", "[two]", "not met: one"),
                "net: command:say stdout: not found in it: one",
            ),
            (
                check("file:/a", "contents", "[one, !two]", "2 lines", "not met: !two"),
                "net: /a: content not as expected: !two",
            ),
        ] {
            assert_eq!(top_summaries(&[reason]), [text]);
        }
    }

    #[test]
    fn texts_of_an_unknown_form_are_shown_as_they_are() {
        let plain = |by, service: &str, text: &str| Reason::new(by, service.into(), text.to_owned(), false);
        for (reason, text) in [
            (plain(Witness::Desired, "", "the desired state changed"), "the desired state changed"),
            (plain(Witness::Digest, "net", "net: and 3 more"), "net: and 3 more"),
            (plain(Witness::Digest, "net", "the owner of /a"), "net: the owner of /a"),
            (
                plain(Witness::Digest, "net", "net: /a sha256 expected 1.. got 2.."),
                "net: /a: content changed (sha256 1.. -> 2..)",
            ),
            (
                plain(Witness::Check, "net", "unknown: command:x exit-status: no answer"),
                "net: unknown: command:x exit-status: no answer",
            ),
        ] {
            assert_eq!(top_summaries(&[reason]), [text]);
        }
        let many: Vec<Reason> = (0..5).map(|n| plain(Witness::Check, "net", &format!("net: {n}"))).collect();
        assert_eq!(top_summaries(&many), ["net: 0", "net: 1", "net: 2", "and 2 more"]);
    }

    #[test]
    fn items_are_packed_into_lines_and_never_split() {
        let items = ["the first one", "the second", "a third one that is longer than a line"].map(str::to_owned);
        assert_eq!(
            pack_lines("evidence: ", &items, 36),
            ["evidence: the first one; the second", "          a third one that is longer than a line"]
        );
        assert!(pack_lines("evidence: ", &[], 36).is_empty());
    }
}
