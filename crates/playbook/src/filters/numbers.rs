//! Filters for numbers, booleans and human-readable sizes.

use super::{Args, Filter, FilterResult, failure, filter, filter_with_difference};
use crate::lang::python;
use minijinja::value::ValueKind;
use minijinja::{Error, State, Value};

pub const FILTERS: &[Filter] = &[
    filter("bool", &[], |_, v, _| Ok(boolean(&v).into())),
    filter("int", &["default", "base"], int),
    filter("float", &["default"], |_, v, a| {
        let other = || a.get("default").cloned().unwrap_or_else(|| Value::from(0.0));
        Ok(number(&v).map_or_else(other, Value::from))
    }),
    filter("round", &["precision", "method"], round),
    filter("abs", &[], |_, v, _| match v.as_i64() {
        Some(n) => n.checked_abs().map(Value::from).ok_or_else(|| failure("abs: too large")),
        None => Ok(required_number("abs", &v)?.abs().into()),
    }),
    filter("log", &["base"], |_, v, a| {
        let x = required_number("log", &v)?;
        let base = a.get("base").map(|b| required_number("log", b)).transpose()?;
        finite(match base {
            Some(10.0) => x.log10(),
            Some(b) => x.ln() / b.ln(),
            None => x.ln(),
        })
    }),
    filter("pow", &["y"], |_, v, a| finite(required_number("pow", &v)?.powf(required_number("pow", a.need("y")?)?))),
    filter("root", &["base"], |_, v, a| {
        let x = required_number("root", &v)?;
        let base = a.get("base").map_or(Ok(2.0), |b| required_number("root", b))?;
        finite(if base == 2.0 { x.sqrt() } else { x.powf(1.0 / base) })
    }),
    filter_with_difference(
        "human_readable",
        &["size_as_bits", "unit", "isbits"],
        human_readable,
        "sizes of more than 2^63 are refused",
    ),
    filter("human_to_bytes", &["default_unit", "isbits"], human_to_bytes),
    filter("filesizeformat", &["binary"], filesizeformat),
];

/// The filter `bool`. Fewer values count as true than in module options.
fn boolean(v: &Value) -> bool {
    match v.as_str() {
        Some(s) => matches!(s.to_ascii_lowercase().as_str(), "yes" | "on" | "1" | "true"),
        None if v.is_number() => v.as_i64() == Some(1),
        None => v.kind() == ValueKind::Bool && v.is_true(),
    }
}

/// The value of a number or a numeric text.
fn number(v: &Value) -> Option<f64> {
    match v.kind() {
        ValueKind::Number | ValueKind::Bool => f64::try_from(v.clone()).ok().or(Some(f64::from(u8::from(v.is_true())))),
        ValueKind::String => {
            let text = v.as_str()?.trim().to_ascii_lowercase();
            let digits = text.trim_start_matches(['+', '-']);
            let plain = digits.starts_with(|c: char| c.is_ascii_digit() || c == '.');
            let named = matches!(digits, "inf" | "infinity" | "nan");
            (plain || named).then(|| text.replace('_', "").parse().ok()).flatten()
        }
        _ => None,
    }
}

fn required_number(who: &str, v: &Value) -> Result<f64, Error> {
    match v.kind() {
        ValueKind::Number | ValueKind::Bool => number(v),
        _ => None,
    }
    .ok_or_else(|| failure(format!("{who}: takes a number, not {}", v.kind())))
}

fn finite(x: f64) -> FilterResult {
    if x.is_nan() { Err(failure("the result is not a number")) } else { Ok(x.into()) }
}

fn int(_: &mut State, v: Value, a: Args) -> FilterResult {
    let other = || a.get("default").cloned().unwrap_or_else(|| Value::from(0));
    if v.is_integer() {
        return Ok(v);
    }
    if let Some(text) = v.as_str() {
        let base = u32::try_from(a.number("base")?.unwrap_or(10)).unwrap_or(0);
        if !(2..=36).contains(&base) {
            return Err(failure("int: `base` must be 2 to 36"));
        }
        let text = text.trim().replace('_', "");
        let (sign, digits) = match text.strip_prefix('-') {
            Some(rest) => ("-", rest),
            None => ("", text.strip_prefix('+').unwrap_or(&text)),
        };
        let lower = digits.to_ascii_lowercase();
        let digits = match base {
            16 => lower.strip_prefix("0x").unwrap_or(&lower),
            8 => lower.strip_prefix("0o").unwrap_or(&lower),
            2 => lower.strip_prefix("0b").unwrap_or(&lower),
            _ => &lower,
        };
        if !digits.starts_with(['-', '+'])
            && let Ok(n) = i64::from_str_radix(&format!("{sign}{digits}"), base)
        {
            return Ok(n.into());
        }
    }
    Ok(match number(&v).filter(|x| x.is_finite() && x.abs() < 9.2e18) {
        Some(x) => Value::from(x.trunc() as i64),
        None => other(),
    })
}

fn round(_: &mut State, v: Value, a: Args) -> FilterResult {
    let precision = i32::try_from(a.number("precision")?.unwrap_or(0)).unwrap_or(0).clamp(-30, 30);
    let x = required_number("round", &v)?;
    let factor = 10f64.powi(precision);
    Ok(match a.text("method")?.as_deref() {
        None | Some("common") if v.is_integer() && precision >= 0 => v,
        // Rounds to the nearest value with `precision` digits. Ties go to the even digit.
        None | Some("common") if precision >= 0 => {
            let digits = usize::try_from(precision).unwrap_or(0);
            if digits == 0 { x.round_ties_even().into() } else { format!("{x:.digits$}").parse().unwrap_or(x).into() }
        }
        None | Some("common") => ((x * factor).round_ties_even() / factor).into(),
        Some("ceil") => ((x * factor).ceil() / factor).into(),
        Some("floor") => ((x * factor).floor() / factor).into(),
        Some(other) => return Err(failure(format!("round: `method` must be common, ceil or floor, not {other}"))),
    })
}

/// Unit prefixes and their factors, largest first.
const RANGES: [(char, f64); 9] = [
    ('Y', 1_208_925_819_614_629_174_706_176.0),
    ('Z', 1_180_591_620_717_411_303_424.0),
    ('E', 1_152_921_504_606_846_976.0),
    ('P', 1_125_899_906_842_624.0),
    ('T', 1_099_511_627_776.0),
    ('G', 1_073_741_824.0),
    ('M', 1_048_576.0),
    ('K', 1024.0),
    ('B', 1.0),
];

fn human_readable(_: &mut State, v: Value, a: Args) -> FilterResult {
    let size = required_number("human_readable", &v)?;
    let bits = a.flag("isbits") || a.flag("size_as_bits");
    let base = if bits { "bits" } else { "Bytes" };
    let unit = a.text("unit")?.map(|u| u.to_ascii_uppercase());
    let found = RANGES.iter().find(|(name, limit)| match &unit {
        Some(unit) => unit.starts_with(*name) && unit.len() == 1,
        None => size >= *limit,
    });
    let (name, limit) = found.copied().unwrap_or(('B', 1.0));
    Ok(match name {
        'B' => format!("{size:.2} {base}"),
        name => format!("{:.2} {name}{}", size / limit, if bits { 'b' } else { 'B' }),
    }
    .into())
}

fn human_to_bytes(_: &mut State, v: Value, a: Args) -> FilterResult {
    let text = python::text(&v)?;
    let wrong = || failure(format!("human_to_bytes: `{text}` is not a size"));
    let bare = text.trim_end();
    let end = bare.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(bare.len());
    let (number, unit) = (&bare[..end], bare[end..].trim_start());
    if number.is_empty() || number.ends_with('.') || !unit.chars().all(|c| c.is_ascii_alphabetic()) {
        return Err(wrong());
    }
    let number: f64 = number.parse().map_err(|_| wrong())?;
    let unit = if unit.is_empty() { a.text("default_unit")?.unwrap_or_default() } else { unit.to_owned() };
    let Some(first) = unit.chars().next() else { return to_integer(number) };
    let bits = a.flag("isbits");
    let name = first.to_ascii_uppercase();
    let (_, limit) = RANGES.iter().find(|(n, _)| *n == name).ok_or_else(wrong)?;
    let long = ["byte", "kilo", "mega", "giga", "tera", "peta", "exa", "zeta", "yotta"]
        .iter()
        .find(|l| l.starts_with(first.to_ascii_lowercase()))
        .unwrap_or(&"");
    let word = match (name, bits) {
        ('B', false) => "byte".to_owned(),
        ('B', true) => "bit".to_owned(),
        (_, bits) => format!("{long}{}", if bits { "bit" } else { "byte" }),
    };
    let short = match (name, bits) {
        ('B', bits) => if bits { "b" } else { "B" }.to_owned(),
        (name, bits) => format!("{name}{}", if bits { 'b' } else { 'B' }),
    };
    if unit.len() > 1 && unit.to_ascii_lowercase() != word && unit != short {
        return Err(wrong());
    }
    to_integer(number * limit)
}

fn to_integer(x: f64) -> FilterResult {
    if x.abs() < 9.2e18 { Ok((x.round_ties_even() as i64).into()) } else { Err(failure("human_to_bytes: too large")) }
}

fn filesizeformat(_: &mut State, v: Value, a: Args) -> FilterResult {
    let size = number(&v).ok_or_else(|| failure("filesizeformat: takes a number"))?;
    let (base, units) = match a.flag("binary") {
        true => (1024.0, ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB"]),
        false => (1000.0, ["kB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB"]),
    };
    if size == 1.0 {
        return Ok("1 Byte".into());
    }
    if size < base {
        return Ok(format!("{} Bytes", size.trunc()).into());
    }
    let mut unit: f64 = base;
    for name in units {
        let next = unit * base;
        if size < next || name.starts_with('Y') {
            return Ok(format!("{:.1} {name}", size / unit).into());
        }
        unit = next;
    }
    Err(failure("filesizeformat: too large"))
}
