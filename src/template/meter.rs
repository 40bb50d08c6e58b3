//! Counts what a template does while it is rendered, and ends it when that is too much: by functions that stand behind its loops and
//! values, and by filters in the place of Tera's. Its clock ends what would take too long, and decides nothing else.

use super::Stop;
use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tera::{Error, Kwargs, State, Tera, TeraResult, Value};

/// How often all loops turn, together.
pub(super) const TURNS_MAX: u64 = 1_000_000;
/// Bytes of one value, told as JSON.
pub(super) const VALUE_MAX: u64 = 1 << 20;
/// Bytes of everything that is written in loops and blocks, together.
pub(super) const TEXT_MAX: u64 = 64 << 20;
/// Bytes of all values that are kept in variables and made by filters, one after the other.
pub(super) const WORK_MAX: u64 = 512 << 20;
/// Bytes of the result.
pub(super) const RESULT_MAX: usize = 16 << 20;
/// From the beginning to the last turn of a loop.
const TIME_MAX: Duration = Duration::from_secs(10);

/// What the markup calls; a template has no reason to.
pub(super) const TURN: &str = "remoor_turn";
pub(super) const WEIGH: &str = "remoor_weigh";
pub(super) const KEEP: &str = "remoor_keep";
pub(super) const UNDEFINED: &str = "remoor_undefined";
/// Before the name of each filter that makes more of its value.
pub(super) const MEASURED: &str = "remoor_measured_";
pub(super) const FILTERS: [&str; 24] = [
    "capitalize",
    "escape",
    "escape_html",
    "escape_xml",
    "group_by",
    "indent",
    "join",
    "keys",
    "lower",
    "newlines_to_br",
    "pairs",
    "replace",
    "reverse",
    "sort",
    "split",
    "str",
    "title",
    "trim",
    "trim_end",
    "trim_start",
    "truncate",
    "unique",
    "upper",
    "values",
];

/// A place that is counted.
#[derive(Debug, Clone, Default)]
pub(super) struct Place {
    pub line: u32,
    pub column: u32,
    /// Text of a loop's body, which each turn may write.
    pub bytes: u64,
    /// Of a name that is not defined.
    pub name: String,
}

/// The counts of one rendering.
pub(super) struct Meter {
    places: Vec<Place>,
    turns: AtomicU64,
    text: AtomicU64,
    work: AtomicU64,
    begun: Instant,
    /// The first reason to end.
    stop: Mutex<Option<Stop>>,
}

impl Meter {
    pub fn new(places: Vec<Place>) -> Arc<Self> {
        let zero = AtomicU64::default;
        Arc::new(Self {
            places,
            turns: zero(),
            text: zero(),
            work: zero(),
            begun: Instant::now(),
            stop: Mutex::default(),
        })
    }

    /// Makes the functions and filters known.
    pub fn register(self: &Arc<Self>, tera: &mut Tera) {
        let meter = self.clone();
        tera.register_function(TURN, move |args: Kwargs, _: &State| -> TeraResult<Value> {
            let place = meter.place(&args)?;
            let turns = meter.turns.fetch_add(1, Ordering::Relaxed) + 1;
            if turns > TURNS_MAX {
                return meter.end(&place, format!("the loops of the template turn more than {TURNS_MAX} times"));
            }
            meter.written(&place, place.bytes)
        });
        let meter = self.clone();
        tera.register_function(WEIGH, move |args: Kwargs, _: &State| -> TeraResult<Value> {
            meter.written(&meter.place(&args)?, args.get::<&Value>("value")?.map_or(0, weight))
        });
        let meter = self.clone();
        tera.register_function(KEEP, move |args: Kwargs, _: &State| -> TeraResult<Value> {
            let (place, weight) = (meter.place(&args)?, args.get::<&Value>("value")?.map_or(0, weight));
            if weight > VALUE_MAX {
                return meter.end(&place, format!("a variable of the template is larger than {} MiB", VALUE_MAX >> 20));
            }
            meter.worked(&place, weight)
        });
        let meter = self.clone();
        tera.register_function(UNDEFINED, move |args: Kwargs, _: &State| -> TeraResult<Value> {
            let Place { line, column, name, .. } = meter.place(&args)?;
            meter.stop(Stop::Undefined { line, column, name })
        });
        for name in FILTERS {
            let meter = self.clone();
            tera.register_filter(format!("{MEASURED}{name}"), move |value: &Value, args: Kwargs, state: &State| {
                // Where it stands is told by Tera's error.
                if grown(name, value, &args) > VALUE_MAX {
                    let why = format!("`{name}` makes a value larger than {} MiB", VALUE_MAX >> 20);
                    return meter.end(&Place::default(), why);
                }
                let made = state.call_filter(name, value, args)?;
                meter.worked(&Place::default(), weight(&made))?;
                Ok(made)
            });
        }
    }

    /// Why the rendering was ended by this.
    pub fn ended(&self) -> Option<Stop> {
        self.stop.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn place(&self, args: &Kwargs) -> TeraResult<Place> {
        let at = args.must_get::<usize>("at")?;
        self.places.get(at).cloned().ok_or_else(|| Error::message("there is no such place"))
    }

    fn written(&self, place: &Place, bytes: u64) -> TeraResult<Value> {
        if self.text.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes) > TEXT_MAX {
            return self.end(place, format!("the template makes more than {} MiB of text", TEXT_MAX >> 20));
        }
        self.in_time(place)
    }

    fn worked(&self, place: &Place, bytes: u64) -> TeraResult<Value> {
        if self.work.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes) > WORK_MAX {
            return self.end(place, format!("the template makes values of more than {} MiB", WORK_MAX >> 20));
        }
        self.in_time(place)
    }

    fn in_time(&self, place: &Place) -> TeraResult<Value> {
        if self.begun.elapsed() > TIME_MAX {
            return self.end(place, format!("the template takes longer than {} s", TIME_MAX.as_secs()));
        }
        Ok(Value::from(""))
    }

    fn end(&self, place: &Place, why: String) -> TeraResult<Value> {
        self.stop(Stop::Bound { line: place.line, column: place.column, why })
    }

    fn stop(&self, stop: Stop) -> TeraResult<Value> {
        let error = Error::message(stop.to_string());
        self.stop.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(stop);
        Err(error)
    }
}

/// Bytes of a value as JSON, or one more than all text may have. A list that holds another twice has it twice.
fn weight(value: &Value) -> u64 {
    let mut scale = Scale(TEXT_MAX + 1);
    // What can't be told as JSON counts as far as it can.
    let _ = serde_json::to_writer(&mut scale, value);
    TEXT_MAX + 1 - scale.0
}

/// Takes so many bytes and no more.
struct Scale(u64);

impl Write for Scale {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let length = bytes.len() as u64;
        let fits = length <= self.0;
        self.0 = self.0.saturating_sub(length);
        if fits { Ok(bytes.len()) } else { Err(io::Error::other("too much")) }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// At least so many bytes come of a filter whose arguments multiply the value; 0: of any other.
fn grown(name: &str, value: &Value, args: &Kwargs) -> u64 {
    let text = value.as_str().unwrap_or_default();
    let argument = |name: &'static str| args.get::<&Value>(name).ok().flatten();
    let length = |name: &'static str| argument(name).map_or(0, weight);
    match name {
        "replace" => {
            let from = argument("from").and_then(Value::as_str).unwrap_or_default();
            let times = if from.is_empty() { text.chars().count() + 1 } else { text.matches(from).count() };
            (times as u64).saturating_mul(length("to"))
        }
        "indent" => {
            let width = argument("width").and_then(Value::as_u64).unwrap_or(4).min(1000);
            (text.lines().count() as u64).saturating_mul(width * 4)
        }
        "join" => {
            let items = value.as_array().map_or(0, <[Value]>::len) as u64;
            items.saturating_mul(length("sep")).saturating_add(weight(value))
        }
        _ => 0,
    }
}
