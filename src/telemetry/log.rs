//! Sets up logging to stderr, for people or as JSON. The number of lines of memberlist and openraft
//! is limited, and the suspicions of memberlist are counted.

use super::registry::{MetricKind, Registry};
use super::throttle::{Throttle, WINDOW_MS};
use remoor_model::sanitize;
use std::io::{IsTerminal, Write};
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tracing::subscriber::Interest;
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::field::RecordFields;
use tracing_subscriber::filter::{FilterExt, LevelFilter, filter_fn};
use tracing_subscriber::fmt::format::{DefaultFields, Writer};
use tracing_subscriber::fmt::{FormatFields, MakeWriter};
use tracing_subscriber::layer::{Context, Filter, Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, fmt};

/// memberlist logs one line to this target for each bad datagram. Anybody who can send a packet
/// could therefore flood the log.
const NETWORK: &str = "memberlist_core::network";
/// memberlist logs one line to this target for each gossip record of a node that it rejects. It
/// receives the same record again at every exchange.
const STATE: &str = "memberlist_core::state";
/// Without a quorum, openraft logs several lines for every election attempt.
const RAFT: &str = "openraft";
/// The levels of the two log lines of memberlist that report a suspicion. One filter selects both
/// levels. If a second filter were nested, tracing would call both filters for each line and span
/// of openraft.
const SUSPICIOUS: RangeInclusive<Level> = Level::INFO..=Level::DEBUG;
const NETWORK_LINES: u32 = 5;
const STATE_LINES: u32 = 30;
const RAFT_LINES: u32 = 30;
/// The default filter. Without `openraft=warn`, two thirds of all lines would be regular events of
/// openraft, which do not help operators.
const USUAL: &str = "info,openraft=warn";

const SUPPRESSED: &str = "remoor_log_suppressed_total";
const SUSPICIONS: &str = "remoor_gossip_suspicions_total";
const UNANSWERED: &str = "remoor_gossip_unanswered_total";

#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// Logging was not set up, because `REMOOR_LOG_FORMAT` has an invalid value.
    #[error("REMOOR_LOG_FORMAT is {0:?}, not `human` or `json`")]
    Format(String),
    /// Logging was not set up, because `REMOOR_LOG` has an invalid value.
    #[error("REMOOR_LOG is not a log filter")]
    Filter(#[source] tracing_subscriber::filter::ParseError),
    /// Logging of this process is already set up and stays unchanged.
    #[error("logging is already set up")]
    Twice(#[source] tracing_subscriber::util::TryInitError),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Human,
    Json,
}

/// Sets up logging of this process. `REMOOR_LOG` is a filter (default: `info`, and `warn` for
/// openraft). `REMOOR_LOG_FORMAT` is `human` or `json`. Counts suppressed lines and gossip
/// suspicions in `registry`. Starts one thread.
pub fn init(registry: &Registry) -> Result<(), TelemetryError> {
    let var = |name| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned()).unwrap_or_default();
    let format = parse_format(&var("REMOOR_LOG_FORMAT"))?;
    let filter = parse_filter(&var("REMOOR_LOG"))?;
    let floods = Floods::new();
    let color = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    subscriber(format, color, filter, floods.clone(), registry, std::io::stderr)
        .try_init()
        .map_err(TelemetryError::Twice)?;
    let registry = registry.clone();
    let summary = move || {
        loop {
            std::thread::sleep(Duration::from_millis(WINDOW_MS));
            floods.report(&registry);
        }
    };
    if let Err(error) = std::thread::Builder::new().name("log-summary".to_owned()).spawn(summary) {
        tracing::warn!(%error, "suppressed log lines will not be counted");
    }
    Ok(())
}

fn parse_format(text: &str) -> Result<Format, TelemetryError> {
    match text {
        "" | "human" => Ok(Format::Human),
        "json" => Ok(Format::Json),
        other => Err(TelemetryError::Format(other.to_owned())),
    }
}

fn parse_filter(text: &str) -> Result<EnvFilter, TelemetryError> {
    let text = if text.is_empty() { USUAL } else { text };
    EnvFilter::builder().parse(text).map_err(TelemetryError::Filter)
}

fn subscriber<W>(
    format: Format,
    color: bool,
    filter: EnvFilter,
    floods: Floods,
    registry: &Registry,
    writer: W,
) -> impl Subscriber + Send + Sync + 'static
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    registry.describe(SUPPRESSED, MetricKind::Counter, "Log lines suppressed by the rate limit, by target.");
    registry.describe(
        SUSPICIONS,
        MetricKind::Counter,
        "Times this node got no answer from a peer and suspected it as failed.",
    );
    registry.add(SUSPICIONS, &[], 0);
    registry.describe(
        UNANSWERED,
        MetricKind::Counter,
        "Pings that a peer did not answer in time, after which other peers are asked.",
    );
    let filter = filter.and(floods);
    let lines: Box<dyn Layer<_> + Send + Sync> = match format {
        Format::Human => {
            fmt::layer().with_writer(writer).with_ansi(color).fmt_fields(CleanFields).with_filter(filter).boxed()
        }
        Format::Json => {
            let writer = CleanJson(writer);
            fmt::layer().json().flatten_event(true).with_writer(writer).with_filter(filter).boxed()
        }
    };
    let suspicions = Suspicions(registry.clone()).with_filter(
        filter_fn(|meta| meta.target() == STATE && SUSPICIOUS.contains(meta.level())).with_max_level_hint(Level::DEBUG),
    );
    tracing_subscriber::registry().with(lines).with(suspicions)
}

/// Formats the fields of a line for people. Fields contain names and messages of other machines, so
/// control characters are made visible.
struct CleanFields;

impl<'w> FormatFields<'w> for CleanFields {
    fn format_fields<R: RecordFields>(&self, mut writer: Writer<'w>, fields: R) -> std::fmt::Result {
        let mut text = String::new();
        DefaultFields::new().format_fields(Writer::new(&mut text), fields)?;
        std::fmt::Write::write_str(&mut writer, &sanitize::log_field(&text))
    }
}

/// Writes lines of JSON with escaped control characters. Each call of `write` must contain a whole
/// line.
struct CleanJson<W>(W);

impl<'w, W: MakeWriter<'w>> MakeWriter<'w> for CleanJson<W> {
    type Writer = CleanJson<W::Writer>;

    fn make_writer(&'w self) -> Self::Writer {
        CleanJson(self.0.make_writer())
    }
}

impl<W: Write> Write for CleanJson<W> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.write_all(sanitize::json(&String::from_utf8_lossy(bytes)).as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}

/// The throttles of the log targets that may write many lines.
#[derive(Clone)]
struct Floods {
    started: Instant,
    throttles: Arc<[(&'static str, Mutex<Throttle>)]>,
}

impl Floods {
    fn new() -> Self {
        let throttle = |target, lines| (target, Mutex::new(Throttle::new(lines)));
        Self {
            started: Instant::now(),
            throttles: Arc::new([
                throttle(NETWORK, NETWORK_LINES),
                throttle(STATE, STATE_LINES),
                throttle(RAFT, RAFT_LINES),
            ]),
        }
    }

    /// Counts the lines that were suppressed since the last call, and logs their number.
    fn report(&self, registry: &Registry) {
        for (target, throttle) in self.throttles.iter() {
            let lines = throttle.lock().unwrap_or_else(PoisonError::into_inner).take_suppressed();
            if lines > 0 {
                registry.add(SUPPRESSED, &[("target", target)], lines);
                tracing::warn!(source = target, lines, "log lines were suppressed");
            }
        }
    }
}

impl<S> Filter<S> for Floods {
    fn enabled(&self, _meta: &Metadata<'_>, _cx: &Context<'_, S>) -> bool {
        true
    }

    // `callsite_enabled` and `max_level_hint` leave the decision to the level filter. A line that
    // the level filter always rejects never reaches this filter.
    fn callsite_enabled(&self, _meta: &'static Metadata<'static>) -> Interest {
        Interest::always()
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::TRACE)
    }

    fn event_enabled(&self, event: &Event<'_>, _cx: &Context<'_, S>) -> bool {
        let target = event.metadata().target();
        // The throttle of a target also covers its submodules, such as
        // `memberlist_core::network::packet`.
        let of = |noisy: &str| target.strip_prefix(noisy).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"));
        let Some((_, throttle)) = self.throttles.iter().find(|(noisy, _)| of(noisy)) else { return true };
        let now = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        throttle.lock().unwrap_or_else(PoisonError::into_inner).allow(now)
    }
}

/// Number of this node's pings that `peer` did not answer since the process started.
pub fn unanswered_pings(registry: &Registry, peer: &str) -> u64 {
    registry.get(UNANSWERED, &[("peer", peer)]).unwrap_or_default() as u64
}

/// Counts the suspicions of memberlist, which memberlist reports only by two log lines. The first
/// line reports a ping without an answer in time. The second line reports the suspicion, after the
/// other peers that were asked can't reach the node either.
struct Suspicions(Registry);

/// The fields of a log line of memberlist that [`Suspicions`] needs.
#[derive(Default)]
struct SuspicionFields {
    message: String,
    remote: String,
}

impl tracing::field::Visit for SuspicionFields {
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
        match field.name() {
            "message" => self.message = format!("{value:?}"),
            "remote" => self.remote = format!("{value:?}"),
            _ => {}
        }
    }
}

impl<S: Subscriber + for<'s> LookupSpan<'s>> Layer<S> for Suspicions {
    fn on_event(&self, event: &Event<'_>, _cx: Context<'_, S>) {
        let mut line = SuspicionFields::default();
        event.record(&mut line);
        if line.message.contains("no acks received") {
            self.0.add(SUSPICIONS, &[], 1);
        } else if line.message.contains("failed unreliable connection ping (timeout reached)") {
            self.0.add(UNANSWERED, &[("peer", &line.remote)], 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A log writer whose content the tests can read.
    #[derive(Clone, Default)]
    struct Paper(Arc<Mutex<Vec<u8>>>);

    impl Write for Paper {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().expect("paper").extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    impl Paper {
        fn lines(&self) -> Vec<String> {
            let text = String::from_utf8(self.0.lock().expect("paper").clone()).expect("text");
            text.lines().map(str::to_owned).collect()
        }
    }

    struct Setup {
        paper: Paper,
        floods: Floods,
        registry: Registry,
        _guard: tracing::subscriber::DefaultGuard,
    }

    fn setup(format: Format, filter: &str) -> Setup {
        let (paper, floods, registry) = (Paper::default(), Floods::new(), Registry::new());
        let writer = paper.clone();
        let filter = parse_filter(filter).expect("filter");
        let made = subscriber(format, false, filter, floods.clone(), &registry, move || writer.clone());
        Setup { paper, floods, registry, _guard: made.set_default() }
    }

    #[test]
    fn the_environment_is_checked() {
        assert_eq!(parse_format("").expect("default"), Format::Human);
        assert_eq!(parse_format("json").expect("json"), Format::Json);
        assert!(matches!(parse_format("JSON"), Err(TelemetryError::Format(_))));
        assert!(parse_filter("").is_ok());
        assert!(matches!(parse_filter("remoor=loud"), Err(TelemetryError::Filter(_))));
    }

    #[test]
    fn a_flood_of_bad_datagrams_is_a_few_lines_and_a_count() {
        let s = setup(Format::Human, "");
        for n in 0..4000 {
            tracing::error!(target: "memberlist_core::network::packet", n, "bad datagram");
            tracing::debug!(target: "memberlist_core::network", "not even counted");
        }
        tracing::info!("other lines pass");
        assert_eq!(s.paper.lines().len(), NETWORK_LINES as usize + 1);
        s.floods.report(&s.registry);
        let held = 4000 - u64::from(NETWORK_LINES);
        assert_eq!(s.registry.get(SUPPRESSED, &[("target", NETWORK)]), Some(held as f64));
        assert!(s.paper.lines().last().is_some_and(|line| line.contains("were suppressed") && line.contains("3995")));
    }

    #[test]
    fn elections_without_a_quorum_are_a_few_lines_a_minute() {
        let s = setup(Format::Human, "");
        for n in 0..1000 {
            tracing::warn!(target: "openraft::core::raft_core", n, "while requesting pre-vote");
            tracing::info!(target: "openraft::engine", "as usual");
        }
        tracing::info!(target: "remoor_cluster::raft", "ours pass");
        assert_eq!(s.paper.lines().len(), RAFT_LINES as usize + 1);
        s.floods.report(&s.registry);
        let held = 1000 - u64::from(RAFT_LINES);
        assert_eq!(s.registry.get(SUPPRESSED, &[("target", RAFT)]), Some(held as f64));
    }

    #[test]
    fn json_lines_are_json() {
        let s = setup(Format::Json, "debug");
        tracing::debug!(node = %"w1", attempt = 7, "phase \"cleanup\"");
        let line: serde_json::Value = serde_json::from_str(&s.paper.lines()[0]).expect("json");
        assert_eq!((&line["node"], &line["attempt"]), (&"w1".into(), &7.into()));
        assert_eq!(line["message"], "phase \"cleanup\"");
    }

    #[test]
    fn text_of_others_neither_controls_a_terminal_nor_begins_a_line() {
        let evil = "w1\u{1b}[2J\u{9b}2J\u{202e}\r\n2026-11-25T00:00:00Z  INFO remoor: all is well";
        let s = setup(Format::Human, "");
        tracing::warn!(node = %evil, error = evil, "refused {evil}");
        let text = s.paper.lines().join("\n");
        assert!(!text.chars().any(|c| (c.is_control() && c != '\n') || c == '\u{202e}'), "{text:?}");
        assert!(s.paper.lines().iter().all(|line| line.contains(" WARN ") || line.starts_with("    ")), "{text}");
        drop(s);
        let s = setup(Format::Json, "");
        tracing::warn!(node = %evil, "refused");
        let line = s.paper.lines().remove(0);
        assert!(!line.chars().any(|c| c.is_control() || c == '\u{202e}'), "{line:?}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&line).expect("json")["node"], evil);
    }

    #[test]
    fn suspicions_are_counted_even_if_not_logged() {
        let s = setup(Format::Human, "error");
        assert_eq!(s.registry.get(SUSPICIONS, &[]), Some(0.0));
        tracing::info!(target: "memberlist_core::state", "memberlist.state: suspecting has failed, no acks received");
        tracing::info!(target: "memberlist_core::state", "memberlist.state: updating address");
        assert_eq!(s.registry.get(SUSPICIONS, &[]), Some(1.0));
        let missed = "memberlist.state: failed unreliable connection ping (timeout reached)";
        tracing::debug!(target: "memberlist_core::state", local = %"m1", remote = %"w1", "{missed}");
        assert_eq!((unanswered_pings(&s.registry, "w1"), unanswered_pings(&s.registry, "m1")), (1, 0));
        assert_eq!(s.paper.lines(), Vec::<String>::new());
    }
}
