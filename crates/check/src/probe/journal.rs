//! `journal`: entries of the journal, by `journalctl`. `docs/dependencies.md` says why no crate
//! reads the files.

use super::super::go_regex::{GoRegex, go_regex};
use super::super::load::Assertion;
use super::super::matcher::{MAX_COST, Matcher};
use super::super::spawn::run_with_limit;
use super::super::units::SECONDS;
use super::service::is_unit_name;
use super::{ProbeAnswer, ProbeAnswers, ProbeContext, ProbeError, failed_error, unknown_error};
use remoor_host::systemd::unit_name;
use serde::Deserialize;
use serde_json::Value;
use std::process::Command;
use std::time::Duration;

const DEFAULT_MS: u64 = 5000;
/// The time that the check examines without `since`.
const SINCE: &str = "1h";
/// The unit name that means all entries, including those of the kernel.
const ALL: &str = "*";
/// Maximum number of entries that a check examines, and maximum bytes of the output of
/// `journalctl`. An entry without its message has about 400 bytes.
const ENTRIES_MAX: usize = 5_000;
const BYTES_MAX: usize = 8 << 20;
const PRIORITIES: [&str; 8] = ["emerg", "alert", "crit", "err", "warning", "notice", "info", "debug"];

/// Err: the reason why the unit or an argument is not valid.
pub(super) fn validate<'c>(unit: &str, argument: impl Fn(&str) -> Option<&'c str>) -> Result<(), String> {
    if unit != ALL && !is_unit_name(unit) {
        return Err(format!("`{unit}` is not a valid unit name; write `unit: \"*\"` for the whole journal"));
    }
    if let Some(since) = argument("since").filter(|since| SECONDS.read(since).is_none()) {
        return Err(format!("`since: {since}` is not a time; write it as 90s, 5m, 26h, 2d or 1w"));
    }
    if let Some(priority) = argument("priority").filter(|priority| !PRIORITIES.contains(priority)) {
        return Err(format!("unknown priority `{priority}`; known: {}", PRIORITIES.join(", ")));
    }
    argument("pattern").map_or(Ok(()), |pattern| compile(pattern).map(drop))
}

fn compile(pattern: &str) -> Result<GoRegex, String> {
    go_regex(pattern).map_err(|why| format!("`pattern` is not a valid regular expression: {why}"))
}

pub(super) fn ask(ask: &ProbeContext) -> ProbeAnswers {
    let found = read(command(ask), ask.timeout(DEFAULT_MS)).and_then(|found| select(found, ask.argument("pattern")));
    let answer = |assertion: &Assertion| {
        let answer = found.as_ref().map_err(Clone::clone).and_then(|found| answer(found, assertion));
        (assertion.property, answer)
    };
    ask.check.assertions.iter().map(answer).collect()
}

/// The call that prints the newest entries, the newest first.
fn command(ask: &ProbeContext) -> Command {
    let mut command = Command::new("journalctl");
    command.args(["--no-pager", "--all", "--reverse", "--output=json", "--output-fields=MESSAGE"]);
    command.arg(format!("--lines={}", ENTRIES_MAX + 1));
    let since = SECONDS.read(ask.argument("since").unwrap_or(SINCE)).and_then(|seconds| seconds.as_f64());
    command.arg(format!("--since=-{:.0}s", since.unwrap_or_default()));
    if ask.check.name != ALL {
        command.arg(format!("--unit={}", unit_name(&ask.check.name)));
    }
    if let Some(priority) = ask.argument("priority") {
        command.arg(format!("--priority={priority}"));
    }
    command.env("LC_ALL", "C");
    command
}

/// The messages of the examined entries.
#[derive(Debug, Clone, PartialEq)]
struct Entries {
    /// The oldest first.
    messages: Vec<String>,
    /// Whether there are more entries, which are older.
    more: bool,
}

#[derive(Deserialize)]
struct Entry {
    #[serde(rename = "MESSAGE")]
    message: Option<Value>,
}

fn read(mut command: Command, timeout: Duration) -> Result<Entries, ProbeError> {
    let output = run_with_limit(&mut command, timeout, BYTES_MAX).map_err(unknown_error)?;
    let said = output.stderr.text();
    // Without access to the journal, `journalctl` prints no entry and may still succeed.
    let refused = said.lines().find(|line| {
        ["No journal files", "insufficient permissions", "not seeing messages"].iter().any(|part| line.contains(part))
    });
    if let Some(why) = refused.or_else(|| said.lines().next().filter(|_| output.status != 0)) {
        return Err(unknown_error(format!("journalctl: {why}")));
    }
    if output.status != 0 {
        return Err(unknown_error(format!("journalctl ended with status {}", output.status)));
    }
    parse(&output.stdout.text(), output.stdout.truncated)
}

/// Reads entries, the newest first. With `cut`, the end of the text is missing.
fn parse(text: &str, cut: bool) -> Result<Entries, ProbeError> {
    let mut lines: Vec<&str> = text.lines().collect();
    if cut {
        lines.pop();
    }
    let more = cut || lines.len() > ENTRIES_MAX;
    lines.truncate(ENTRIES_MAX);
    let read = |line: &&str| serde_json::from_str(line).map(message_text);
    let messages: Result<Vec<String>, _> = lines.iter().rev().map(read).collect();
    Ok(Entries { messages: messages.map_err(|e| unknown_error(format!("journalctl printed no JSON: {e}")))?, more })
}

/// The text of an entry. A message that is not UTF-8 is a list of bytes.
fn message_text(entry: Entry) -> String {
    match entry.message {
        Some(Value::String(text)) => text,
        Some(Value::Array(bytes)) => {
            let bytes: Vec<u8> = bytes.iter().filter_map(|b| u8::try_from(b.as_u64()?).ok()).collect();
            String::from_utf8_lossy(&bytes).into_owned()
        }
        _ => String::new(),
    }
}

/// The entries that the pattern matches.
fn select(mut found: Entries, pattern: Option<&str>) -> Result<Entries, ProbeError> {
    let Some(pattern) = pattern else { return Ok(found) };
    let regex = compile(pattern).map_err(unknown_error)?;
    let cost = found.messages.iter().fold(0, |cost: usize, message| cost.saturating_add(regex.cost(message)));
    if cost as u64 >= MAX_COST {
        return Err(failed_error("too much to compare"));
    }
    found.messages.retain(|message| regex.is_match(message));
    Ok(found)
}

/// The answer about the examined entries. It is unknown if the assertion holds for these entries
/// but an older entry could change that.
fn answer(found: &Entries, assertion: &Assertion) -> ProbeAnswer {
    let count = found.messages.len();
    let (value, is_final) = match assertion.property {
        "count" => {
            // Only an order relation that holds for the largest number holds for all larger counts.
            let grows = matches!(assertion.matcher, Matcher::Compare(..));
            (Value::from(count), grows && assertion.matcher.matches(&u64::MAX.into()) == Ok(true))
        }
        _ => {
            let wants_only = match &assertion.matcher {
                Matcher::Lines(patterns) => !patterns.texts().any(|text| text.starts_with('!')),
                _ => false,
            };
            (found.messages.iter().flat_map(|message| [message, "\n"]).collect::<String>().into(), wants_only)
        }
    };
    if found.more && !is_final && assertion.matcher.matches(&value) == Ok(true) {
        return Err(unknown_error(format!(
            "more entries than the {ENTRIES_MAX} or {} MiB that a check examines; narrow it by unit, since or priority",
            BYTES_MAX >> 20
        )));
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program that prints `stdout` and `stderr` in the place of `journalctl`.
    fn read_printed(stdout: &str, stderr: &str, status: u8) -> Result<Entries, ProbeError> {
        let mut command = Command::new("sh");
        command.args(["-c", "printf '%s' \"$1\"; printf '%s' \"$2\" >&2; exit $3", "-", stdout, stderr]);
        command.arg(status.to_string());
        read(command, Duration::from_secs(60))
    }

    #[test]
    fn entries_are_read_in_their_order() {
        let text =
            "{\"MESSAGE\":\"two\\nlines\",\"__CURSOR\":\"s=1\"}\n{\"MESSAGE\":[104,105,255]}\n{\"MESSAGE\":null}\n{}\n";
        let messages = ["", "", "hi\u{fffd}", "two\nlines"].map(str::to_owned).to_vec();
        assert_eq!(read_printed(text, "", 0), Ok(Entries { messages, more: false }));
        assert_eq!(read_printed("", "", 0), Ok(Entries { messages: Vec::new(), more: false }));
        let many = "{\"MESSAGE\":\"a\"}\n".repeat(ENTRIES_MAX + 1);
        assert_eq!(parse(&many, false).map(|found| (found.messages.len(), found.more)), Ok((ENTRIES_MAX, true)));
        assert_eq!(parse("{\"MESSAGE\":\"a\"}\n{\"MESS", true).map(|found| found.messages), Ok(vec!["a".to_owned()]));
    }

    #[test]
    fn a_journal_that_cannot_be_read_is_not_empty() {
        let unknown = |why: &str| Err(unknown_error(why));
        for hint in ["No journal files were found.", "No journal files were opened due to insufficient permissions."] {
            assert_eq!(read_printed("", hint, 0), unknown(&format!("journalctl: {hint}")));
        }
        assert_eq!(read_printed("", "Failed to parse timestamp", 1), unknown("journalctl: Failed to parse timestamp"));
        assert_eq!(read_printed("", "", 3), unknown("journalctl ended with status 3"));
        assert!(matches!(read_printed("-- No entries --\n", "", 0), Err(ProbeError::Unknown(_))));
    }

    #[test]
    fn more_entries_may_only_confirm_an_answer() {
        let text = "journal:\n  a: {count: COUNT, messages: PATTERNS}\n";
        let states = |more: bool, count: &str, patterns: &str| {
            let text = text.replace("COUNT", count).replace("PATTERNS", patterns);
            let checks = super::super::super::parse("f.yml", &"s".into(), &text).unwrap();
            let found = Entries { messages: vec!["started".into(), "error 5".into()], more };
            checks[0].assertions.iter().map(|one| answer(&found, one).is_ok()).collect::<Vec<_>>()
        };
        assert_eq!(states(false, "{lt: 5}", "[started, '!fatal']"), [true, true]);
        assert_eq!(states(true, "{lt: 5}", "[started, '!fatal']"), [false, false]);
        assert_eq!(states(true, "{ge: 2}", "[started]"), [true, true]);
        // What does not hold for the newest entries does not hold for all of them.
        assert_eq!(states(true, "{lt: 2}", "[started, '!error']"), [true, true]);
    }

    #[test]
    fn only_matching_entries_count() {
        let found =
            |messages: &[&str]| Entries { messages: messages.iter().map(|m| (*m).to_owned()).collect(), more: false };
        let all = found(&["a 500", "b 200", "c 502"]);
        assert_eq!(select(all.clone(), Some(r" 5\d\d$")), Ok(found(&["a 500", "c 502"])));
        assert_eq!(select(all.clone(), None), Ok(all));
        let long = found(&["a".repeat(1 << 20).as_str()]);
        assert_eq!(select(long, Some("(?:a{1,60}){1,60}")), Err(failed_error("too much to compare")));
    }
}
