//! Compares the answers of a probe with the assertions of its check, and decides which parts of a
//! secret may be shown. Pure.

use super::explain::Explained;
use super::hint::failure_hint;
use super::load::{Assertion, Check};
use super::matcher::{Matcher, shorten};
use super::outcome::limit_sizes;
use super::probe::{PRIVATE, ProbeAnswers, ProbeError};
use super::spec::ResourceKind;
use remoor_model::{CheckResult, CheckState, SECRET, Sha256};
use serde_json::Value;

/// The amount of detail per assertion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Detail {
    /// The result without values, for agents and managers, which must not store values.
    Results,
    /// The result with the found value and the expected value.
    Full,
}

/// The result of one assertion.
pub(super) struct JudgedAssertion {
    pub result: CheckResult,
    /// None if there was no value, or if [`Detail::Results`] was requested.
    pub explained: Option<Explained>,
    /// With [`Detail::Full`]: the hash of the complete found value, if the assertion does not hold
    /// and the value is not hidden.
    pub seen: Option<Sha256>,
    /// With [`Detail::Full`]: what the failure means, and the next command.
    pub hint: Option<String>,
}

/// Returns one result per assertion. An assertion without an answer is `Unknown`. `took_ms` stays
/// 0.
pub(super) fn judge(check: &Check, answers: &ProbeAnswers, detail: Detail) -> Vec<JudgedAssertion> {
    let judge = Judge { check, secret: check.meta.secret || is_private(check, answers) };
    let mut shut = check.skip;
    let mut all: Vec<JudgedAssertion> = Vec::new();
    for (number, assertion) in check.assertions.iter().enumerate() {
        if shut {
            let result = judge.result(assertion, CheckState::Skip, None, String::new());
            all.push(JudgedAssertion { result, explained: None, seen: None, hint: None });
            continue;
        }
        let answer = answers.answer_to(assertion);
        let found_false = answer == Ok(Value::Bool(false));
        let explained = match (&answer, detail) {
            (Ok(value), Detail::Full) => Some(judge.explain(assertion, value)),
            _ => None,
        };
        let result = match &answer {
            Ok(value) => judge.compare(assertion, value, detail),
            Err(ProbeError::Failed(why)) => judge.result(assertion, CheckState::Fail, None, why.clone()),
            Err(ProbeError::Unknown(why)) => judge.result(assertion, CheckState::Unknown, None, why.clone()),
        };
        // The command of a hint may print the content of a secret.
        let failed = detail == Detail::Full && result.state == CheckState::Fail && !judge.hides(assertion);
        let hint = failed.then(|| failure_hint(check, assertion, answer.as_ref().ok())).flatten();
        let told = detail == Detail::Full && result.state != CheckState::Pass && !judge.hides(assertion);
        let seen = answer.ok().filter(|_| told).map(|value| Sha256::digest(value.to_string().as_bytes()));
        let first_is_off = number == 0 && (result.state != CheckState::Pass || found_false);
        shut |= check.kind.spec().gated && first_is_off;
        all.push(JudgedAssertion { result, explained, seen, hint });
    }
    judge.explain_status(answers, &mut all);
    all
}

/// Whether the check is about a file that only its owner may read. Results contain neither the
/// content nor the hash of such a file, even if the check is not marked as secret.
fn is_private(check: &Check, answers: &ProbeAnswers) -> bool {
    check.kind == ResourceKind::File && matches!(answers.get(PRIVATE), Some(Ok(Value::Bool(true))))
}

/// The text that goss shows instead of a value that it reads line by line.
fn reader(kind: ResourceKind, property: &str) -> &'static str {
    match (kind, property) {
        (ResourceKind::File, _) => "object: *os.File",
        (ResourceKind::Command, _) => "object: *bytes.Reader",
        (ResourceKind::Http, "body") => "object: *http.cancelTimerBody",
        _ => "object: *strings.Reader",
    }
}

/// The message of a failed assertion: the unmet patterns, or the found elements that a list does
/// not expect. A result without this message has all expected values and would not show which one
/// failed. Empty for other matchers. The message never quotes the content of a file, because it
/// quotes only elements of lists.
fn explain_unmet(matcher: &Matcher, value: &Value) -> String {
    match matcher {
        Matcher::Lines(_) | Matcher::Patterns(_) | Matcher::ConsistOf(_) => {}
        Matcher::And(all) => {
            let first = all.iter().find(|one| one.matches(value) != Ok(true));
            return first.map_or_else(String::new, |first| explain_unmet(first, value));
        }
        _ => return String::new(),
    }
    let told = matcher.explain(value);
    let list = |all: &[Value]| all.iter().map(shorten).collect::<Vec<_>>().join(", ");
    let missing = (!told.missing.is_empty()).then(|| format!("not met: {}", list(&told.missing)));
    let extra = (!told.extra.is_empty()).then(|| format!("not asked for: {}", list(&told.extra)));
    shorten(&Value::from(missing.into_iter().chain(extra).collect::<Vec<_>>().join("; ")))
}

/// A remark about what nearly matches: a line of the text, or a text that differs only in its line
/// ends.
fn near_miss(matcher: &Matcher, value: &Value) -> Option<String> {
    match (matcher, value) {
        (Matcher::Lines(patterns) | Matcher::Patterns(patterns), Value::String(text)) => patterns.near_miss(text),
        (Matcher::Is(Value::String(wanted)) | Matcher::Equal(Value::String(wanted)), Value::String(text)) => {
            let visible = |text: &str| shorten(&Value::from(format!("{text:?}")));
            let lines_only = wanted.trim_end() == text.trim_end();
            (wanted != text && (lines_only || text.contains('\n')))
                .then(|| format!("expected {}, found {}", visible(wanted), visible(text)))
        }
        _ => None,
    }
}

/// Properties of a secret check that reveal nothing of the secret. Its other properties are hidden,
/// including those of resource types that are added later.
const NON_SECRET_PROPERTIES: [&str; 20] = [
    "exists",
    "mode",
    "owner",
    "uid",
    "group",
    "gid",
    "filetype",
    "linked-to",
    "exit-status",
    "status",
    "running",
    "enabled",
    "runlevels",
    "count",
    "installed",
    "listening",
    "reachable",
    "resolvable",
    "not-after",
    "holds",
];

struct Judge<'a> {
    check: &'a Check,
    secret: bool,
}

impl Judge<'_> {
    fn compare(&self, assertion: &Assertion, value: &Value, detail: Detail) -> CheckResult {
        let hide_value = self.is_content(assertion);
        let (state, message) = match assertion.matcher.evaluate(value, hide_value) {
            Ok(true) => (CheckState::Pass, String::new()),
            Ok(false) => {
                let unmet = explain_unmet(&assertion.matcher, value);
                // A line of the content is shown only to the author, and never stored.
                let near = (detail == Detail::Full).then(|| near_miss(&assertion.matcher, value)).flatten();
                (
                    CheckState::Fail,
                    [unmet].into_iter().chain(near).filter(|part| !part.is_empty()).collect::<Vec<_>>().join("; "),
                )
            }
            Err(why) => (CheckState::Fail, why),
        };
        self.result(assertion, state, Some(value), if self.hides(assertion) { String::new() } else { message })
    }

    fn explain(&self, assertion: &Assertion, value: &Value) -> Explained {
        if !self.hides(assertion) {
            // The value is cut immediately: otherwise the contents of a thousand files of 16 MiB
            // would be kept until the last check has answered.
            let mut told = assertion.matcher.explain(value);
            if matches!(assertion.matcher, Matcher::Lines(_)) && told.actual.is_string() {
                told.actual = reader(self.check.kind, assertion.property).into();
            }
            return limit_sizes(told);
        }
        Explained {
            expected: SECRET.into(),
            message: "to be as expected".to_owned(),
            missing: Vec::new(),
            found: None,
            extra: Vec::new(),
            transforms: Vec::new(),
            actual: SECRET.into(),
            untransformed: Value::Null,
        }
    }

    /// Adds the first line of stderr to an unexpected exit status, because it often gives the
    /// reason.
    fn explain_status(&self, answers: &ProbeAnswers, all: &mut [JudgedAssertion]) {
        let said = match answers.get("stderr") {
            Some(Ok(Value::String(text))) => text.lines().find(|line| !line.trim().is_empty()),
            _ => None,
        };
        if let (Some(line), false) = (said, self.secret) {
            let results = all.iter_mut().map(|judged| &mut judged.result);
            let failing = results.filter(|r| r.property == "exit-status" && r.state == CheckState::Fail);
            failing.for_each(|result| result.message = shorten(&Value::from(line)));
        }
    }

    fn result(&self, assertion: &Assertion, state: CheckState, found: Option<&Value>, message: String) -> CheckResult {
        let found = match found {
            None => String::new(),
            Some(_) if self.hides(assertion) => SECRET.to_owned(),
            Some(Value::String(text)) if self.is_content(assertion) => format!("{} lines", text.lines().count()),
            Some(value) => shorten(value),
        };
        let expected = if self.hides(assertion) { SECRET.to_owned() } else { assertion.matcher.to_string() };
        CheckResult {
            service: self.check.service.clone(),
            check: self.check.label(),
            property: assertion.entry.clone().unwrap_or_else(|| assertion.written.to_owned()),
            state,
            severity: self.check.meta.severity,
            on_fail: self.check.meta.on_fail,
            expected,
            found,
            message,
            took_ms: 0,
        }
    }

    /// Results that agents and managers keep never contain the content of a file or a message of
    /// the journal. Both may contain a password even if the check is not marked as secret. goss's
    /// output formats show contents on the machine itself ([`Detail::Full`]), unless the check is
    /// secret.
    fn is_content(&self, assertion: &Assertion) -> bool {
        assertion.stream && matches!(self.check.kind, ResourceKind::File | ResourceKind::Journal)
    }

    /// Whether the value of the asserted property is hidden, because it could reveal something of a
    /// secret.
    fn hides(&self, assertion: &Assertion) -> bool {
        self.secret && (assertion.stream || !NON_SECRET_PROPERTIES.contains(&assertion.property))
    }
}
