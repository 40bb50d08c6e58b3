//! Filters of Ansible's collection community.general that convert durations such as `1h 30m`.

use super::{Args, Filter, FilterResult, failure, filter};
use minijinja::{Error, Value};

pub const FILTERS: &[Filter] = &[
    filter("to_time_unit", &["unit", "year", "month"], |_, v, a| {
        let unit = a.text("unit")?.unwrap_or_else(|| "ms".into());
        convert(&v, &unit, &a)
    }),
    filter("to_milliseconds", &["year", "month"], |_, v, a| convert(&v, "ms", &a)),
    filter("to_seconds", &["year", "month"], |_, v, a| convert(&v, "s", &a)),
    filter("to_minutes", &["year", "month"], |_, v, a| convert(&v, "m", &a)),
    filter("to_hours", &["year", "month"], |_, v, a| convert(&v, "h", &a)),
    filter("to_days", &["year", "month"], |_, v, a| convert(&v, "d", &a)),
    filter("to_weeks", &["year", "month"], |_, v, a| convert(&v, "w", &a)),
    filter("to_months", &["year", "month"], |_, v, a| convert(&v, "mo", &a)),
    filter("to_years", &["year", "month"], |_, v, a| convert(&v, "y", &a)),
];

const DAY: i128 = 86_400_000;

/// The number of milliseconds of a unit. A year and a month have the number of days that the
/// arguments give.
fn unit_size(unit: &str, a: &Args) -> Result<Option<i128>, Error> {
    let days = |name: &str, usual: i64| a.number(name).map(|days| i128::from(days.unwrap_or(usual)) * DAY);
    // As in Ansible, any number of `s` at the end of a unit means the plural.
    let singular = unit.trim_end_matches('s');
    Ok(Some(match if singular.is_empty() { unit } else { singular } {
        "millisecond" | "msec" | "msecond" => 1,
        "sec" | "second" => 1000,
        "min" | "minute" => 60_000,
        "hour" => 3_600_000,
        "day" => DAY,
        "week" => 7 * DAY,
        "month" => days("month", 30)?,
        "year" => days("year", 365)?,
        _ => match unit {
            "ms" => 1,
            "s" => 1000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => DAY,
            "w" => 7 * DAY,
            "mo" => days("month", 30)?,
            "y" => days("year", 365)?,
            _ => return Ok(None),
        },
    }))
}

fn convert(value: &Value, unit: &str, a: &Args) -> FilterResult {
    let Some(text) = value.as_str() else {
        return Err(failure(format!("to_time_unit() takes a text, not {}", value.kind())));
    };
    if text == "0" {
        return Ok(0.into());
    }
    let Some(size) = unit_size(unit, a)? else {
        return Err(failure(format!("to_time_unit() can not convert to the following unit: {unit}")));
    };
    let mut total = 0_i128;
    for part in text.split_whitespace() {
        let wrong = || failure(format!("to_time_unit() can not interpret following string: {text}"));
        let unsigned = part.strip_prefix('-').unwrap_or(part);
        let digits = unsigned.find(|c: char| !c.is_ascii_digit()).unwrap_or(unsigned.len());
        let (count, rest) = unsigned.split_at(digits);
        let end = rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len());
        let count: i128 = count.parse::<i64>().map_err(|_| wrong())?.into();
        let one = unit_size(&rest[..end], a)?.ok_or_else(wrong)?;
        let count = if unsigned.len() < part.len() { -count } else { count };
        total = count.checked_mul(one).and_then(|more| total.checked_add(more)).ok_or_else(wrong)?;
    }
    if size == 0 {
        return Err(failure("to_time_unit(): a year and a month have at least one day"));
    }
    // The result is rounded to twelve digits after the point, as in Ansible.
    let exact = total as f64 / size as f64;
    Ok(format!("{exact:.12}").parse::<f64>().unwrap_or(exact).into())
}
