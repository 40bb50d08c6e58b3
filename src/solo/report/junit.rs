//! JUnit XML. The result is well formed for all names and values.

use super::json::moment;
use super::{Counts, describe, describe_compact, is_bad, is_skipped, property};
use crate::solo::run::SuiteRun;
use remoor_check::{entity, goss_type};
use remoor_model::sanitize::is_invisible;

pub(super) fn junit(run: &SuiteRun) -> String {
    let counts = Counts::for_reported(run);
    let mut text = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite name=\"remoor\" errors=\"0\" tests=\"{}\" failures=\"{}\" \
         skipped=\"{}\" time=\"{:.3}\" timestamp=\"{}\">\n",
        counts.all,
        counts.failed,
        counts.skipped,
        run.took.as_secs_f64(),
        moment(run.started)
    );
    for outcome in run.reported_outcomes() {
        let name = format!("{} {} {}", goss_type(&outcome.kind), outcome.id, property(outcome));
        text += &format!(
            "<testcase classname=\"{}\" name=\"{}\" time=\"{:.3}\">\n",
            escape_xml(outcome.result.service.as_str()),
            escape_xml(&name),
            outcome.took.as_secs_f64()
        );
        let line = escape_xml(&describe_compact(outcome));
        text += &if is_bad(outcome) {
            format!(
                "<failure message=\"{line}\">{}</failure>\n<system-err>{line}</system-err>\n",
                escape_xml(&describe(outcome))
            )
        } else if is_skipped(outcome) {
            format!("<skipped/><system-out>{line}</system-out>\n")
        } else {
            format!("<system-out>{line}</system-out>\n")
        };
        text += "</testcase>\n";
    }
    text + "</testsuite>\n"
}

/// Escapes text for content and attributes. Characters that XML does not allow become U+FFFD. Line
/// ends become numeric references.
fn escape_xml(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' | '\t' | '\r' => out.push_str(&format!("&#{};", u32::from(c))),
            '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            c if c.is_control() => out.push('\u{fffd}'),
            c if is_invisible(c) => out.push_str(&format!("&#{};", u32::from(c))),
            c => match entity(c) {
                Some(written) => out.push_str(written),
                None => out.push(c),
            },
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use remoor_model::sanitize;

    proptest! {
        #[test]
        fn no_text_breaks_the_document(text in any::<String>(), at in 0..8_u32) {
            let hidden = char::from_u32(0x2028 + at).unwrap();
            let text = format!("{text}{hidden}<");
            let out = escape_xml(&text);
            prop_assert!(!out.contains(['<', '>', '"', '\'']));
            prop_assert!(out.chars().all(|c| !c.is_control() && c != '\u{fffe}' && c != '\u{ffff}'), "{:?}", out);
            for entity in out.split('&').skip(1) {
                let name = entity.split(';').next().unwrap();
                prop_assert!(["amp", "lt", "gt"].contains(&name) || name.starts_with('#'), "{}", name);
            }
            prop_assert_eq!(sanitize::block(&out), &*out, "nothing is left to sanitize after the escaping");
        }
    }
}
