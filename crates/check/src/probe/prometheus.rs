//! Reads samples in the text format of Prometheus. Pure.

/// A metric by its name and labels: `up`, `http_requests_total{code="500"}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Metric {
    name: String,
    labels: Vec<(String, String)>,
}

impl Metric {
    /// Err: the reason why the text is not valid.
    pub fn parse(text: &str) -> Result<Self, String> {
        match split_metric(text) {
            Some((metric, "")) => Ok(metric),
            _ => Err(format!("`{text}` is not a metric; write NAME or NAME{{LABEL=\"VALUE\"}}")),
        }
    }

    /// Whether this metric has the name and all labels of `wanted`.
    fn satisfies(&self, wanted: &Metric) -> bool {
        self.name == wanted.name && wanted.labels.iter().all(|label| self.labels.contains(label))
    }
}

/// The values of the samples whose metrics have the name and the labels of `wanted`, as written.
/// Err: `text` is not in the format.
pub(super) fn find<'t>(wanted: &Metric, text: &'t str) -> Result<Vec<&'t str>, String> {
    let mut found = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let sample = split_metric(line).and_then(|(metric, rest)| Some((metric, rest.split_whitespace().next()?)));
        let Some((metric, value)) = sample else {
            return Err(format!("line {} is not in the text format of Prometheus", number + 1));
        };
        if metric.satisfies(wanted) {
            found.push(value);
        }
    }
    Ok(found)
}

/// Splits `NAME{LABEL="VALUE",...} REST`. The labels may be missing.
fn split_metric(text: &str) -> Option<(Metric, &str)> {
    let (name, rest) = split_name(text, true)?;
    let mut metric = Metric { name: name.to_owned(), labels: Vec::new() };
    let Some(mut rest) = rest.trim_start().strip_prefix('{') else { return Some((metric, rest)) };
    loop {
        rest = rest.trim_start();
        if let Some(rest) = rest.strip_prefix('}') {
            return Some((metric, rest));
        }
        let (label, after) = split_name(rest, false)?;
        let (value, after) = split_quoted(after.trim_start().strip_prefix('=')?.trim_start())?;
        metric.labels.push((label.to_owned(), value));
        rest = after.trim_start();
        // The last label may have a comma too.
        rest = rest.strip_prefix(',').or_else(|| rest.starts_with('}').then_some(rest))?;
    }
}

/// Splits the text behind a name. Only the name of a metric may contain colons.
fn split_name(text: &str, colon: bool) -> Option<(&str, &str)> {
    let part = |c: char| c.is_ascii_alphanumeric() || c == '_' || (colon && c == ':');
    let end = text.find(|c| !part(c)).unwrap_or(text.len());
    (end > 0 && !text.starts_with(|c: char| c.is_ascii_digit())).then(|| text.split_at(end))
}

/// The value of a label, and the rest of the text behind its closing quote.
fn split_quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = text.strip_prefix('"')?.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((value, &text[at + 2..])),
            '\\' => match chars.next()?.1 {
                'n' => value.push('\n'),
                escaped @ ('\\' | '"') => value.push(escaped),
                other => value.extend(['\\', other]),
            },
            c => value.push(c),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn samples_are_split() {
        let text = "# HELP a text {\n\na 1\na{} 2\na{x=\"1\"} 3 1700000000\n  a{ x = \"}\\\"\\n\\\\\" , y=\"2\", } 4\r\nb:c 5e-3\n";
        let find = |selector: &str| find(&Metric::parse(selector).unwrap(), text).unwrap();
        assert_eq!(find("a"), ["1", "2", "3", "4"]);
        assert_eq!(find(r#"a{x="1"}"#), ["3"]);
        assert_eq!(find(r#"a{y="2",x="}\"\n\\"}"#), ["4"]);
        assert_eq!(find("b:c"), ["5e-3"]);
        for wrong in ["", "1a", "a b", "a{x}", "a{x=1}", "a{x=\"1\"", "a{x=\"1\"} 5", "a{x=\"1\"y=\"2\"}", "a-b"] {
            assert!(Metric::parse(wrong).is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn no_text_is_read_out_of_bounds(text in "[a{}=\",\\\\n \u{e4}1]{0,40}") {
            let _ = find(&Metric::parse("a").unwrap(), &text);
            let _ = Metric::parse(&text);
        }
    }
}
