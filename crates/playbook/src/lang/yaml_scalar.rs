//! The types of plain scalars in YAML 1.1, as PyYAML resolves them.

use super::yaml::SpannedData;
use regex::Regex;
use serde_json::Number;
use std::sync::LazyLock;

static INTEGER: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r"^[-+]?(?:0b[01_]+|0[0-7_]+|(?:0|[1-9][0-9_]*)|0x[0-9a-fA-F_]+|[1-9][0-9_]*(?::[0-5]?[0-9])+)$").ok()
});
static FLOAT: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let exponent = "(?:[eE][-+][0-9]+)?";
    Regex::new(&format!(
        r"^(?:[-+]?[0-9][0-9_]*\.[0-9_]*{exponent}|\.[0-9][0-9_]*{exponent}|[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+\.[0-9_]*)$"
    ))
    .ok()
});
static TIME: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(
        r"^(\d{4})-(\d\d?)-(\d\d?)(?:[Tt]|[ \t]+)(\d\d?):(\d\d):(\d\d)(?:\.(\d*))?[ \t]*(Z|[-+]\d\d?(?::\d\d)?)?$",
    )
    .ok()
});

/// The value of a plain scalar. None: a number that is too large.
pub fn resolve(source: &str) -> Option<SpannedData> {
    let is = |pattern: &LazyLock<Option<Regex>>| pattern.as_ref().is_some_and(|regex| regex.is_match(source));
    Some(match source {
        "" | "~" | "null" | "Null" | "NULL" => SpannedData::Null,
        _ if super::yaml::boolean(source).is_some() => SpannedData::Bool(super::yaml::boolean(source)?),
        // JSON has no infinite numbers, so these have the text that Python prints.
        _ if matches!(source.trim_start_matches(['+', '-']), ".inf" | ".Inf" | ".INF") => {
            SpannedData::Text(if source.starts_with('-') { "-inf" } else { "inf" }.to_owned())
        }
        ".nan" | ".NaN" | ".NAN" => SpannedData::Text("nan".to_owned()),
        _ if is(&INTEGER) => SpannedData::Number(integer(source)?.into()),
        _ if is(&FLOAT) => SpannedData::Number(Number::from_f64(float(source)?)?),
        _ if is(&TIME) => SpannedData::Text(time(source)?),
        _ => SpannedData::Text(source.to_owned()),
    })
}

fn integer(source: &str) -> Option<i64> {
    let text = source.replace('_', "");
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, text.strip_prefix('+').unwrap_or(&text)),
    };
    let value = if let Some(binary) = digits.strip_prefix("0b") {
        i64::from_str_radix(binary, 2).ok()?
    } else if let Some(hex) = digits.strip_prefix("0x") {
        i64::from_str_radix(hex, 16).ok()?
    } else if digits.contains(':') {
        digits.split(':').try_fold(0i64, |all, part| all.checked_mul(60)?.checked_add(part.parse().ok()?))?
    } else if digits.len() > 1 && digits.starts_with('0') {
        i64::from_str_radix(digits, 8).ok()?
    } else {
        digits.parse().ok()?
    };
    value.checked_mul(sign)
}

fn float(source: &str) -> Option<f64> {
    let text = source.replace('_', "");
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => (-1.0, digits),
        None => (1.0, text.strip_prefix('+').unwrap_or(&text)),
    };
    let parts = digits.split(':').map(|part| part.parse::<f64>().ok()).collect::<Option<Vec<_>>>()?;
    Some(sign * parts.into_iter().fold(0.0, |all, part| all * 60.0 + part))
}

/// A time as Python's `str` prints it. A date without a time is its own text already.
fn time(source: &str) -> Option<String> {
    let found = TIME.as_ref()?.captures(source)?;
    let number = |at: usize| found.get(at).and_then(|part| part.as_str().parse::<u32>().ok());
    let date = format!("{:04}-{:02}-{:02}", number(1)?, number(2)?, number(3)?);
    let mut out = format!("{date} {:02}:{:02}:{:02}", number(4)?, number(5)?, number(6)?);
    if let Some(fraction) = found.get(7).map(|part| part.as_str()).filter(|digits| digits.contains(|c| c != '0')) {
        out.push_str(&format!(".{fraction:0<6}")[..7]);
    }
    if let Some(zone) = found.get(8) {
        let (sign, rest) = zone.as_str().split_at(1);
        let (hours, minutes) = rest.split_once(':').unwrap_or((rest, "0"));
        match sign {
            "Z" => out.push_str("+00:00"),
            sign => {
                out.push_str(&format!("{sign}{:02}:{:02}", hours.parse::<u32>().ok()?, minutes.parse::<u32>().ok()?))
            }
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::super::yaml;
    use serde_json::{Value, json};

    /// The values that PyYAML 6 reads, printed as Ansible prints them.
    #[test]
    fn plain_scalars_have_the_types_of_yaml_1_1() {
        for (source, want) in [
            ("010", json!(8)),
            ("0644", json!(420)),
            ("09", json!("09")),
            ("0o755", json!("0o755")),
            ("0x1F", json!(31)),
            ("0b101", json!(5)),
            ("1_000", json!(1000)),
            ("+5", json!(5)),
            ("1e3", json!("1e3")),
            ("1.0e3", json!("1.0e3")),
            ("1.0e+3", json!(1000.0)),
            ("1.", json!(1.0)),
            (".5", json!(0.5)),
            ("12:30:45", json!(45045)),
            ("1:30.5", json!(90.5)),
            ("22:22", json!(1342)),
            ("00:30", json!("00:30")),
            (".inf", json!("inf")),
            ("-.INF", json!("-inf")),
            (".nan", json!("nan")),
            ("2024-01-31", json!("2024-01-31")),
            ("2024-01-31T10:20:30Z", json!("2024-01-31 10:20:30+00:00")),
            ("2024-01-31 10:20:30.25", json!("2024-01-31 10:20:30.250000")),
            ("yes", json!(true)),
            ("y", json!("y")),
            ("~", Value::Null),
            ("Null", Value::Null),
            ("'010'", json!("010")),
            ("\"1:30\"", json!("1:30")),
            ("!!str 010", json!("010")),
            ("|-\n  010", json!("010")),
            (">\n  010\n", json!("010\n")),
            ("a\n  010", json!("a 010")),
            ("!unsafe '{{ x }}'", json!("{% raw %}{{ x }}{% endraw %}")),
            ("1.2.3", json!("1.2.3")),
        ] {
            let text = format!("a: {source}\nb: [{{k: 1}}]\n");
            let node = yaml::parse("t.yml", &text).unwrap_or_else(|fault| panic!("{source}: {fault}")).0;
            assert_eq!(node.json()["a"], want, "{source}");
        }
        let list = yaml::parse("t.yml", "- 010\n- - 1:30\n- {a: 0x10, b: &x 07}\n- *x\n").unwrap().0.json();
        assert_eq!(list, json!([8, [90], {"a": 16, "b": 7}, 7]));
        assert!(
            yaml::parse("t.yml", "a: !nonsense 1\n").is_err()
                && yaml::parse("t.yml", "a: !unsafe 1\nb: !other x\n").is_err()
        );
    }
}
