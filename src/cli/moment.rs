//! Timestamps for people: `12:01:09` for today, RFC 3339 otherwise. All times are in UTC, so that
//! all readers see the same time.

use remoor_cluster::rpc::wire::rfc3339;
use remoor_model::Wall;

/// The time of an answer. "today" and "3 m ago" are relative to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Today(pub Wall);

impl Today {
    /// Parses the field `at`, the time at which a manager gave its answer. If it can't be parsed,
    /// every timestamp is shown in full.
    pub fn from_answer(at: &str) -> Self {
        Self(parse(at).unwrap_or_default())
    }

    /// The time of this machine's clock. It is for streams of events, because these do not contain
    /// the time of an answer.
    pub fn now() -> Self {
        Self(Wall(u64::try_from(jiff::Timestamp::now().as_millisecond()).unwrap_or(0)))
    }

    pub fn show(self, at: Wall) -> String {
        const DAY_MS: u64 = 86_400_000;
        let full = rfc3339(at);
        if at.0 / DAY_MS == self.0.0 / DAY_MS {
            full.get(11..19).unwrap_or(&full).to_owned()
        } else {
            full.get(..19).map_or_else(|| full.clone(), |seconds| format!("{seconds}Z"))
        }
    }

    /// The time between `at` and the time of the answer.
    pub fn age(self, at: Wall) -> String {
        super::duration::age(self.0.ms_since(at))
    }
}

/// Parses a timestamp in RFC 3339.
pub fn parse(text: &str) -> Option<Wall> {
    let moment: jiff::Timestamp = text.parse().ok()?;
    u64::try_from(moment.as_millisecond()).ok().map(Wall)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_today_are_short() {
        let today = Today::from_answer("2026-03-05T12:01:09.500Z");
        let at = |text| parse(text).unwrap();
        assert_eq!(today.show(at("2026-03-05T00:00:01Z")), "00:00:01");
        assert_eq!(today.show(at("2026-03-04T23:59:59.999Z")), "2026-03-04T23:59:59Z");
        assert_eq!(today.age(at("2026-03-05T11:58:00Z")), "3 m");
        assert_eq!(Today::from_answer("nonsense").show(at("2026-03-05T12:00:00Z")), "2026-03-05T12:00:00Z");
        assert_eq!(parse("yesterday"), None);
    }
}
