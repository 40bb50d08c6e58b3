//! Date and time filters, and the function `now`. Only `now` and `strftime` read the node's clock.

use super::{Args, Filter, FilterResult, failure, filter};
use crate::lang::python;
use crate::vars::scope::on_the_node;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};
use minijinja::value::{Kwargs, Object, ObjectRepr};
use minijinja::{Environment, Error, ErrorKind, State, Value};
use std::fmt;
use std::sync::Arc;

pub const FILTERS: &[Filter] = &[
    filter("strftime", &["second", "utc"], strftime),
    filter("to_datetime", &["format"], |_, v, a| {
        let (text, format) = (python::text(&v)?, a.text("format")?.unwrap_or_else(|| "%Y-%m-%d %H:%M:%S".into()));
        Ok(Value::from_object(NaiveDateTime(parse(&text, &format)?)))
    }),
];

/// Parses a date with an optional time, which defaults to midnight.
fn parse(text: &str, format: &str) -> Result<DateTime, Error> {
    let wrong = || failure(format!("to_datetime: `{text}` does not match `{format}`"));
    let parsed = jiff::fmt::strtime::parse(format, text).map_err(|_| wrong())?;
    parsed.to_datetime().or_else(|_| parsed.to_date().map(|date| date.at(0, 0, 0, 0))).map_err(|_| wrong())
}

fn strftime(state: &mut State, v: Value, a: Args) -> FilterResult {
    let format = python::text(&v)?;
    // The current time and the local time zone must be those of the node, so such a call fails
    // before the run.
    if !a.flag("utc") || a.get("second").is_none_or(Value::is_none) {
        on_the_node(state)?;
    }
    let zone = if a.flag("utc") { TimeZone::UTC } else { TimeZone::system() };
    let at = match a.get("second").filter(|s| !s.is_none()) {
        None => Timestamp::now(),
        Some(second) => {
            let text = python::text(second)?;
            let seconds: f64 =
                text.trim().parse().map_err(|_| failure(format!("strftime: `{text}` is not a number of seconds")))?;
            Timestamp::from_second(seconds.floor() as i64).map_err(|e| failure(format!("strftime: {e}")))?
        }
    };
    format_zoned(&at.to_zoned(zone), &format)
}

fn format_zoned(at: &Zoned, format: &str) -> FilterResult {
    jiff::fmt::strtime::format(format, at).map(Value::from).map_err(|e| failure(format!("strftime: {e}")))
}

/// A date and time without a time zone, like Python's naive `datetime`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct NaiveDateTime(DateTime);

impl NaiveDateTime {
    fn to_zoned(self) -> Result<Zoned, Error> {
        self.0.to_zoned(TimeZone::system()).map_err(|e| failure(e.to_string()))
    }
}

impl Object for NaiveDateTime {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        Some(match key.as_str()? {
            "year" => self.0.year().into(),
            "month" => self.0.month().into(),
            "day" => self.0.day().into(),
            "hour" => self.0.hour().into(),
            "minute" => self.0.minute().into(),
            "second" => self.0.second().into(),
            "microsecond" => (self.0.subsec_nanosecond() / 1000).into(),
            _ => return None,
        })
    }

    fn call_method(self: &Arc<Self>, state: &mut State, method: &str, args: &[Value]) -> FilterResult {
        if matches!(method, "strftime" | "timestamp") {
            on_the_node(state)?;
        }
        match (method, args) {
            ("strftime", [format]) => format_zoned(&self.to_zoned()?, &python::text(format)?),
            ("isoformat", []) => Ok(self.0.strftime("%Y-%m-%dT%H:%M:%S").to_string().into()),
            ("timestamp", []) => Ok((self.to_zoned()?.timestamp().as_microsecond() as f64 / 1e6).into()),
            ("date", []) => Ok(self.0.date().to_string().into()),
            ("weekday", []) => Ok(i64::from(self.0.weekday().to_monday_zero_offset()).into()),
            ("isoweekday", []) => Ok(i64::from(self.0.weekday().to_monday_one_offset()).into()),
            _ => Err(Error::from(ErrorKind::UnknownMethod)),
        }
    }

    fn render(self: &Arc<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.strftime("%Y-%m-%d %H:%M:%S"))
    }
}

/// The name of the function that `template/python_source.rs` writes for `-` in texts with times.
pub const MINUS: &str = "__minus";

/// The difference of two times, like Python's `timedelta`, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct TimeDifference(i64);

const SECOND: i64 = 1_000_000;
const DAY: i64 = 86_400 * SECOND;

impl Object for TimeDifference {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        let within = self.0.rem_euclid(DAY);
        Some(match key.as_str()? {
            "days" => self.0.div_euclid(DAY).into(),
            "seconds" => (within / SECOND).into(),
            "microseconds" => (within % SECOND).into(),
            _ => return None,
        })
    }

    fn call_method(self: &Arc<Self>, _: &mut State, method: &str, args: &[Value]) -> FilterResult {
        match (method, args) {
            ("total_seconds", []) => Ok((self.0 as f64 / SECOND as f64).into()),
            _ => Err(Error::from(ErrorKind::UnknownMethod)),
        }
    }

    fn render(self: &Arc<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (days, within) = (self.0.div_euclid(DAY), self.0.rem_euclid(DAY));
        match days {
            0 => {}
            1 | -1 => write!(f, "{days} day, ")?,
            _ => write!(f, "{days} days, ")?,
        }
        let (seconds, micros) = (within / SECOND, within % SECOND);
        write!(f, "{}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)?;
        if micros > 0 { write!(f, ".{micros:06}") } else { Ok(()) }
    }
}

/// `left - right`, for times, differences of times, and numbers.
fn minus(left: Value, right: Value) -> FilterResult {
    if left.is_undefined() || right.is_undefined() {
        return Err(Error::from(ErrorKind::UndefinedError));
    }
    let time = |value: &Value| value.downcast_object_ref::<NaiveDateTime>().copied();
    let difference = |value: &Value| value.downcast_object_ref::<TimeDifference>().copied();
    let micros = |time: NaiveDateTime| -> Result<i64, Error> {
        let zoned = time.0.to_zoned(TimeZone::UTC).map_err(|e| failure(e.to_string()))?;
        Ok(zoned.timestamp().as_microsecond())
    };
    match (time(&left), time(&right), difference(&left), difference(&right)) {
        (Some(a), Some(b), ..) => Ok(Value::from_object(TimeDifference(micros(a)? - micros(b)?))),
        (Some(a), None, _, Some(by)) => {
            let earlier = a.0.checked_sub(jiff::SignedDuration::from_micros(by.0));
            Ok(Value::from_object(NaiveDateTime(earlier.map_err(|e| failure(e.to_string()))?)))
        }
        (None, None, Some(a), Some(b)) => Ok(Value::from_object(TimeDifference(a.0 - b.0))),
        _ => subtract_numbers(&left, &right),
    }
}

fn subtract_numbers(left: &Value, right: &Value) -> FilterResult {
    let whole = |value: &Value| value.as_i64().filter(|_| value.is_integer());
    if let Some(out) = whole(left).zip(whole(right)).and_then(|(a, b)| a.checked_sub(b)) {
        return Ok(out.into());
    }
    let wrong = |_| failure(format!("`-` takes numbers or times, not {} and {}", left.kind(), right.kind()));
    let (a, b) = (f64::try_from(left.clone()).map_err(wrong)?, f64::try_from(right.clone()).map_err(wrong)?);
    Ok((a - b).into())
}

/// Adds the functions `now` and `__minus`.
pub fn register(env: &mut Environment<'static>) {
    env.add_function(MINUS, minus);
    env.add_function("now", |state: &State, kwargs: Kwargs| -> FilterResult {
        on_the_node(state)?;
        let (utc, format) = (kwargs.get::<Option<bool>>("utc")?, kwargs.get::<Option<String>>("fmt")?);
        kwargs.assert_all_used()?;
        let zone = if utc.unwrap_or(false) { TimeZone::UTC } else { TimeZone::system() };
        let now = Zoned::now().with_time_zone(zone);
        match format {
            Some(format) => format_zoned(&now, &format),
            None => Ok(Value::from_object(NaiveDateTime(now.datetime()))),
        }
    });
}
