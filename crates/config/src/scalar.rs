//! The meaning of a plain YAML scalar under YAML 1.1 as in PyYAML, which users of Ansible know.
//!
//! `yes` and `on` are booleans, `0644` is octal, `1:30` is base 60, `1e3` is text because it has no
//! point and sign. Dates stay text.

use serde_json::{Number, Value};

/// The type of a scalar, with its value.
#[derive(Debug, Clone, PartialEq)]
pub enum Scalar {
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    Str,
    /// `<<` as a key; as a value it is text.
    MergeKey,
    /// A text with the tag `!vault`, encrypted by ansible-vault.
    Encrypted,
}

impl Scalar {
    /// The JSON value; `text` is the scalar as written.
    pub fn to_json(&self, text: &str) -> Value {
        match self {
            Scalar::Null => Value::Null,
            Scalar::Bool(value) => Value::Bool(*value),
            Scalar::Int(value) => Value::from(*value),
            // JSON has no infinity and NaN; such a value keeps its text.
            Scalar::Float(value) => Number::from_f64(*value).map_or_else(|| Value::from(text), Value::Number),
            Scalar::Str | Scalar::MergeKey => Value::from(text),
            Scalar::Encrypted => remoor_vault::seal(text),
        }
    }
    /// The name of the scalar's core tag in YAML.
    pub fn tag(&self) -> &'static str {
        match self {
            Scalar::Null => "null",
            Scalar::Bool(_) => "bool",
            Scalar::Int(_) => "int",
            Scalar::Float(_) => "float",
            Scalar::Str | Scalar::MergeKey | Scalar::Encrypted => "str",
        }
    }
    /// The type of the scalar in words, for messages.
    pub fn kind_name(&self) -> &'static str {
        match self {
            Scalar::Null => "nothing",
            Scalar::Bool(_) => "a boolean",
            Scalar::Int(_) | Scalar::Float(_) => "a number",
            Scalar::Str | Scalar::MergeKey => "text",
            Scalar::Encrypted => "an encrypted value",
        }
    }
}

/// The meaning of the unquoted scalar `text` under YAML 1.1.
pub fn resolve(text: &str) -> Scalar {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Scalar::Null,
        "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => return Scalar::Bool(true),
        "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => return Scalar::Bool(false),
        "<<" => return Scalar::MergeKey,
        ".nan" | ".NaN" | ".NAN" => return Scalar::Float(f64::NAN),
        _ => {}
    }
    let (negative, rest) = match text.as_bytes()[0] {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    if matches!(rest, ".inf" | ".Inf" | ".INF") {
        return Scalar::Float(if negative { f64::NEG_INFINITY } else { f64::INFINITY });
    }
    if let Some(value) = integer(rest, negative) {
        return value;
    }
    match float(rest).filter(|_| !(rest.starts_with('.') && rest.len() < text.len())) {
        Some(value) => Scalar::Float(if negative { -value } else { value }),
        None => Scalar::Str,
    }
}

fn integer(rest: &str, negative: bool) -> Option<Scalar> {
    let bare = |digits: &str| digits.replace('_', "");
    let of = |digits: &str, radix: u32, ok: fn(u8) -> bool| {
        let digits_bare = bare(digits);
        let fits = !digits.is_empty() && digits.bytes().all(|b| b == b'_' || ok(b)) && !digits_bare.is_empty();
        fits.then(|| i128::from_str_radix(&digits_bare, radix).ok()).flatten()
    };
    let value = if let Some(digits) = rest.strip_prefix("0b") {
        of(digits, 2, |b| matches!(b, b'0' | b'1'))?
    } else if let Some(digits) = rest.strip_prefix("0x") {
        of(digits, 16, |b| b.is_ascii_hexdigit())?
    } else if rest == "0" {
        0
    } else if let Some(digits) = rest.strip_prefix('0') {
        match digits.bytes().all(|b| b == b'_') {
            true => 0,
            false => of(digits, 8, |b| matches!(b, b'0'..=b'7'))?,
        }
    } else if rest.contains(':') {
        base_60(rest)?
    } else if rest.as_bytes().first()?.is_ascii_digit() {
        of(rest, 10, |b| b.is_ascii_digit())?
    } else {
        return None;
    };
    // A number that does not fit into 64 bits stays text.
    i64::try_from(if negative { -value } else { value }).ok().map(Scalar::Int)
}

/// Parses numbers in base 60, such as `1:30:00`.
fn base_60(text: &str) -> Option<i128> {
    let mut parts = text.split(':');
    let first = parts.next()?;
    if !matches!(first.as_bytes().first(), Some(b'0'..=b'9')) || !first.bytes().all(|b| b == b'_' || b.is_ascii_digit())
    {
        return None;
    }
    let mut value: i128 = first.replace('_', "").parse().ok()?;
    for part in parts {
        let small = matches!(part.len(), 1 | 2) && part.bytes().all(|b| b.is_ascii_digit());
        let part: i128 = part.parse().ok().filter(|n| small && *n < 60)?;
        value = value.checked_mul(60)?.checked_add(part)?;
    }
    Some(value)
}

/// A number with a point; an exponent needs its sign.
fn float(rest: &str) -> Option<f64> {
    let (whole, after) = rest.split_once('.')?;
    let (fraction, exponent) = match after.find(['e', 'E']) {
        Some(at) => (&after[..at], Some(&after[at + 1..])),
        None => (after, None),
    };
    if whole.contains(':') {
        let fraction =
            after.bytes().all(|b| b == b'_' || b.is_ascii_digit()).then(|| format!("0.{after}0").replace('_', ""))?;
        return Some(base_60(whole)? as f64 + fraction.parse::<f64>().ok()?);
    }
    let digits = |s: &str| s.bytes().all(|b| b == b'_' || b.is_ascii_digit());
    let begins = |s: &str| s.as_bytes().first().is_some_and(u8::is_ascii_digit);
    if !digits(whole) || !digits(fraction) || !(begins(whole) || whole.is_empty() && begins(fraction)) {
        return None;
    }
    if let Some(exponent) = exponent {
        let rest = exponent.strip_prefix(['+', '-'])?;
        if rest.is_empty() || !rest.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
    }
    let plain = format!("{whole}.{fraction}{}", exponent.map(|e| format!("e{e}")).unwrap_or_default()).replace('_', "");
    let plain = if plain.starts_with('.') { format!("0{plain}") } else { plain };
    plain.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::{Scalar, resolve};

    #[test]
    fn scalars_are_parsed_like_pyyaml() {
        use Scalar::{Bool, Float, Int, Null, Str};
        let table = [
            ("yes", Bool(true)),
            ("Off", Bool(false)),
            ("y", Str),
            ("yEs", Str),
            ("~", Null),
            ("0644", Int(420)),
            ("0o644", Str),
            ("0888", Str),
            ("-0x1F", Int(-31)),
            ("0b101", Int(5)),
            ("1_000", Int(1000)),
            ("_1", Str),
            ("+7", Int(7)),
            ("1:30", Int(90)),
            ("1:30:00", Int(5400)),
            ("01:30", Str),
            ("1:60", Str),
            ("1e3", Str),
            ("1.5e3", Str),
            ("1.5e+3", Float(1500.0)),
            ("1.", Float(1.0)),
            (".5", Float(0.5)),
            ("-.5", Str),
            ("-0.5", Float(-0.5)),
            ("0_", Int(0)),
            ("1:30.5", Float(90.5)),
            (".", Str),
            ("-", Str),
            ("1.2.3", Str),
            ("10.0.0.1", Str),
            ("2024-01-31", Str),
            ("99999999999999999999", Str),
            ("-.inf", Float(f64::NEG_INFINITY)),
            ("été", Str),
        ];
        for (text, want) in table {
            assert_eq!(resolve(text), want, "{text}");
        }
    }
}
