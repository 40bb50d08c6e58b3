//! Reads `meta.remoor` of a resource: severity, reaction, retries and waivers.

use super::spec::{AttributeUse, ResourceKind, ResourceSpec, SPECS};
use super::yaml::{Yaml, YamlKey, YamlNode};
use jiff::Timestamp;
use jiff::civil::Date;
use remoor_model::{Fault, OnFail, Severity, Wall, did_you_mean};
use std::time::Duration;

/// Limits of `retry`, so that one check cannot delay a run of checks for long.
pub(super) const MAX_RETRIES: u64 = 20;
const MAX_DELAY: Duration = Duration::from_secs(60);

/// The settings of one check in `meta.remoor`, which goss does not have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Meta {
    pub severity: Severity,
    pub on_fail: OnFail,
    /// A periodic check counts as failed only after it has failed for this long (see
    /// `FailureThreshold`).
    pub fail_for: Duration,
    /// Number of retries, and the delay before each.
    pub retries: u32,
    pub retry_delay: Duration,
    /// Results of this check must not contain the value that was found.
    pub secret: bool,
    pub waiver: Option<Waiver>,
}

/// A failure that is accepted until a given time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiver {
    /// The time at which the waiver expires.
    pub until: Wall,
    pub reason: String,
}

impl Default for Meta {
    fn default() -> Self {
        Self {
            severity: Severity::default(),
            on_fail: default_on_fail(Severity::default(), true),
            fail_for: Duration::ZERO,
            retries: 0,
            retry_delay: Duration::from_secs(1),
            secret: false,
            waiver: None,
        }
    }
}

/// The reaction of a check that does not set `on-fail`. `repairable`: a re-setup can remove the
/// cause of a failure.
fn default_on_fail(severity: Severity, repairable: bool) -> OnFail {
    if severity == Severity::Critical && repairable { OnFail::Resetup } else { OnFail::Alert }
}

/// Whether a re-setup can remove the cause of a failure. It does not free space on a disk, renew a
/// certificate, repair a name server, remove an entry of the journal or lower a measured value.
pub(super) fn is_repairable(kind: ResourceKind, asserts: impl Fn(&str) -> bool) -> bool {
    match kind {
        ResourceKind::Cert | ResourceKind::Dns | ResourceKind::Filesystem | ResourceKind::Journal => false,
        ResourceKind::Mount => !asserts("usage"),
        // These are measured values and not settings, although the other assertions of the check
        // may be about settings.
        kind => !kind.spec().extensions().iter().any(|(name, use_)| is_measured(name, *use_) && asserts(name)),
    }
}

fn is_measured(name: &str, use_: AttributeUse) -> bool {
    matches!(use_, AttributeUse::Entries | AttributeUse::Seconds) || name == "last-result"
}

impl Meta {
    /// The settings of a check without `meta.remoor`.
    pub(super) fn with_default_reaction(repairable: bool) -> Self {
        let meta = Self::default();
        Self { on_fail: default_on_fail(meta.severity, repairable), ..meta }
    }
}

pub(super) const KEYS: [&str; 6] = ["severity", "on-fail", "for", "retry", "secret", "waiver"];

/// Reads `meta`. Keys other than `remoor` belong to the user. Keys that only this `spec` accepts
/// are left to the caller.
///
/// `repairable` decides the default of `on-fail`; see [`is_repairable`].
pub(super) fn read(
    file: &str,
    node: &YamlNode,
    spec: &ResourceSpec,
    repairable: bool,
    faults: &mut Vec<Fault>,
) -> Meta {
    let mut meta = Meta::with_default_reaction(repairable);
    let Yaml::Map(pairs) = &node.yaml else {
        faults.push(node.fault(file, format!("`meta` is {}, not a map", node.kind())));
        return meta;
    };
    let Some((_, own)) = pairs.iter().find(|(key, _)| key.text == "remoor") else { return meta };
    let mut reader = Reader { file, faults };
    let mut on_fail = None;
    let is_own = |(key, _): &&(YamlKey, YamlNode)| !spec.extensions().iter().any(|(name, _)| *name == key.text);
    for (key, node) in reader.map("remoor", own).iter().filter(is_own) {
        match key.text.as_str() {
            "severity" => {
                let words =
                    [("info", Severity::Info), ("warning", Severity::Warning), ("critical", Severity::Critical)];
                meta.severity = reader.read_word(key, node, &words).unwrap_or_default();
            }
            "on-fail" => {
                on_fail = reader.read_word(
                    key,
                    node,
                    &[("none", OnFail::None), ("alert", OnFail::Alert), ("resetup", OnFail::Resetup)],
                );
            }
            "for" => meta.fail_for = reader.duration(key, node),
            "retry" => reader.retry(node, &mut meta),
            "secret" => match node.yaml {
                Yaml::Bool(secret) => meta.secret = secret,
                _ => reader.report_wrong_kind(key, node, "true or false"),
            },
            "waiver" => meta.waiver = reader.waiver(key, node),
            _ => reader.report_unknown_key(key, &KEYS),
        }
    }
    meta.on_fail = on_fail.unwrap_or_else(|| default_on_fail(meta.severity, repairable));
    meta
}

/// The entries of `meta.remoor` that only this `spec` accepts.
pub(super) fn extensions<'n>(node: &'n YamlNode, spec: &ResourceSpec) -> Vec<(&'n YamlKey, &'n YamlNode)> {
    let own = node.pairs().iter().find(|(key, _)| key.text == "remoor").map_or(&[][..], |(_, own)| own.pairs());
    let known = |key: &YamlKey| spec.extensions().iter().any(|(name, _)| *name == key.text);
    own.iter().filter(|(key, _)| known(key)).map(|(key, node)| (key, node)).collect()
}

/// Reads a number of retries within the limit.
pub(super) fn retries(file: &str, key: &YamlKey, node: &YamlNode, faults: &mut Vec<Fault>) -> u32 {
    match &node.yaml {
        Yaml::Number(n) if n.as_u64().is_some_and(|n| n <= MAX_RETRIES) => {
            n.as_u64().and_then(|n| u32::try_from(n).ok()).unwrap_or(0)
        }
        _ => {
            faults.push(node.fault(file, format!("`{}` is not a number up to {MAX_RETRIES}", key.text)));
            0
        }
    }
}

/// Reads a retry delay within the limit.
pub(super) fn retry_delay(file: &str, key: &YamlKey, node: &YamlNode, faults: &mut Vec<Fault>) -> Duration {
    let delay = Reader { file, faults }.duration(key, node);
    if delay > MAX_DELAY {
        faults.push(node.fault(file, format!("`{}` is longer than {} s", key.text, MAX_DELAY.as_secs())));
    }
    delay
}

struct Reader<'a> {
    file: &'a str,
    faults: &'a mut Vec<Fault>,
}

impl Reader<'_> {
    fn map<'n>(&mut self, name: &str, node: &'n YamlNode) -> &'n [(YamlKey, YamlNode)] {
        match &node.yaml {
            Yaml::Map(pairs) => pairs,
            _ => {
                self.faults.push(node.fault(self.file, format!("`{name}` is {}, not a map", node.kind())));
                &[]
            }
        }
    }

    fn report_unknown_key(&mut self, key: &YamlKey, known: &[&str]) {
        let takes = |spec: &&ResourceSpec| spec.extensions().iter().any(|(name, _)| *name == key.text);
        let others: Vec<String> = SPECS.iter().filter(takes).map(|other| format!("`{}`", other.name)).collect();
        let hint = match &others[..] {
            [_, ..] => format!("it is available only for {}", others.join(", ")),
            [] => {
                did_you_mean(&key.text, known.iter().copied()).unwrap_or_else(|| format!("known: {}", known.join(", ")))
            }
        };
        self.faults.push(key.fault(self.file, format!("unknown key `{}`", key.text)).hint(hint));
    }

    fn report_wrong_kind(&mut self, key: &YamlKey, node: &YamlNode, wanted: &str) {
        self.faults.push(node.fault(self.file, format!("`{}` is {}, not {wanted}", key.text, node.kind())));
    }

    fn read_word<T: Copy>(&mut self, key: &YamlKey, node: &YamlNode, words: &[(&str, T)]) -> Option<T> {
        let known = || words.iter().map(|(word, _)| *word);
        let Yaml::Text(text) = &node.yaml else {
            self.report_wrong_kind(key, node, "a string");
            return None;
        };
        let found = words.iter().find(|(word, _)| word == text).map(|(_, value)| *value);
        if found.is_none() {
            let hint = did_you_mean(text, known())
                .unwrap_or_else(|| format!("known: {}", known().collect::<Vec<_>>().join(", ")));
            self.faults.push(node.fault(self.file, format!("unknown {} `{text}`", key.text)).hint(hint));
        }
        found
    }

    fn duration(&mut self, key: &YamlKey, node: &YamlNode) -> Duration {
        let parsed = match &node.yaml {
            Yaml::Number(n) => n.as_u64().map(Duration::from_millis),
            Yaml::Text(text) => duration(text),
            _ => None,
        };
        parsed.unwrap_or_else(|| {
            let fault = node.fault(self.file, format!("`{}` is not a duration", key.text));
            self.faults.push(fault.hint("write it as 500ms, 10s, 5m or 1h"));
            Duration::ZERO
        })
    }

    fn retry(&mut self, node: &YamlNode, meta: &mut Meta) {
        for (key, node) in self.map("retry", node) {
            match key.text.as_str() {
                "count" => meta.retries = retries(self.file, key, node, self.faults),
                "delay" => meta.retry_delay = retry_delay(self.file, key, node, self.faults),
                _ => self.report_unknown_key(key, &["count", "delay"]),
            }
        }
    }

    fn waiver(&mut self, key: &YamlKey, node: &YamlNode) -> Option<Waiver> {
        let (mut until, mut reason) = (None, None);
        for (key, node) in self.map("waiver", node) {
            match (key.text.as_str(), &node.yaml) {
                ("until", Yaml::Text(text)) => match moment(text) {
                    Some(moment) => until = Some(moment),
                    None => {
                        let fault = node.fault(self.file, format!("`{text}` is not a date"));
                        self.faults.push(fault.hint("write 2026-12-31, or a time as in RFC 3339"));
                        return None;
                    }
                },
                ("reason", Yaml::Text(text)) if !text.trim().is_empty() => reason = Some(text.clone()),
                ("until" | "reason", _) => self.report_wrong_kind(key, node, "a string"),
                _ => self.report_unknown_key(key, &["until", "reason"]),
            }
        }
        match (until, reason) {
            (Some(until), Some(reason)) => Some(Waiver { until, reason }),
            _ => {
                self.faults.push(key.fault(self.file, "a waiver needs both `until` and `reason`"));
                None
            }
        }
    }
}

fn duration(text: &str) -> Option<Duration> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let unit = match &text[digits..] {
        "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return None,
    };
    text[..digits].parse::<u64>().ok()?.checked_mul(unit).map(Duration::from_millis)
}

/// Reads a date as the end of that day in UTC, or a time as in RFC 3339.
fn moment(text: &str) -> Option<Wall> {
    let ms = match text.parse::<Date>() {
        Ok(day) if text.len() == 10 => {
            day.tomorrow().ok()?.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp().as_millisecond()
        }
        _ => text.parse::<Timestamp>().ok()?.as_millisecond(),
    };
    u64::try_from(ms).ok().map(Wall)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_and_days() {
        assert_eq!(duration("90s"), Some(Duration::from_secs(90)));
        assert_eq!(duration("500ms"), Some(Duration::from_millis(500)));
        assert_eq!(["10", "s", "1d", "-1s", "99999999999999999999h"].map(duration), [None; 5]);
        assert_eq!(moment("1970-01-01"), Some(Wall(86_400_000)), "the whole day still counts");
        assert_eq!(moment("1970-01-01T00:00:01Z"), Some(Wall(1000)));
        assert_eq!(moment("soon"), None);
    }
}
