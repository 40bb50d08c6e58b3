//! The times at which a group may be set up again: weekly spans of minutes in UTC. This file reads
//! no clock and knows no time zones. Offsets are converted when the fleet is read.

use super::Wall;
use serde::{Deserialize, Serialize};

/// The number of minutes in a week. Minute 0 is Monday 00:00 UTC.
pub const WEEK_MINUTES: u32 = 7 * 24 * 60;
const MINUTE_MS: u64 = 60_000;
/// The minute of the week at which 1970 began, a Thursday.
const EPOCH_MINUTE: u64 = 3 * 24 * 60;
const DAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];

/// A span from one minute of the week to another; the last minute is excluded. If `from > to`, the
/// span continues past the end of Sunday. If `from == to`, the span is the whole week.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct WeekSpan {
    pub from: u32,
    pub to: u32,
}

impl WeekSpan {
    fn contains(self, minute: u32) -> bool {
        if self.from < self.to {
            (self.from..self.to).contains(&minute)
        } else {
            minute >= self.from || minute < self.to
        }
    }
}

/// The allowed and the denied spans. `deny` overrides `allow`. Without any `allow`, the whole week
/// is allowed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Windows {
    #[serde(default)]
    pub allow: Vec<WeekSpan>,
    #[serde(default)]
    pub deny: Vec<WeekSpan>,
}

impl Windows {
    /// Whether a re-setup may begin at this moment.
    pub fn is_open(&self, at: Wall) -> bool {
        self.open_at(minute_of_week(at))
    }

    /// The next opening after a moment at which the windows are closed. None if they never open.
    pub fn next_opening(&self, at: Wall) -> Option<Wall> {
        let now = minute_of_week(at);
        // Windows can only open at the beginning of an `allow` span or at the end of a `deny` span.
        let edges = self.allow.iter().map(|s| s.from).chain(self.deny.iter().map(|s| s.to % WEEK_MINUTES));
        let wait = edges
            .filter(|minute| self.open_at(*minute))
            .map(|minute| (minute + WEEK_MINUTES - now - 1) % WEEK_MINUTES + 1)
            .min()?;
        Some(Wall((at.0 / MINUTE_MS + u64::from(wait)) * MINUTE_MS))
    }

    /// Whether the windows are open at any minute of the week.
    pub fn ever_open(&self) -> bool {
        self.is_open(Wall(0)) || self.next_opening(Wall(0)).is_some()
    }

    fn open_at(&self, minute: u32) -> bool {
        let among = |spans: &[WeekSpan]| spans.iter().any(|span| span.contains(minute));
        (self.allow.is_empty() || among(&self.allow)) && !among(&self.deny)
    }
}

fn minute_of_week(at: Wall) -> u32 {
    ((at.0 / MINUTE_MS + EPOCH_MINUTE) % u64::from(WEEK_MINUTES)) as u32
}

/// Day and time of a moment that is less than a week away, for example `Mon 22:00 UTC`.
pub fn weekday_text(at: Wall) -> String {
    let minute = minute_of_week(at);
    let (day, hour, minute) = (minute / 1440, minute / 60 % 24, minute % 60);
    format!("{} {hour:02}:{minute:02} UTC", DAYS[day as usize % 7])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Monday, 5 January 1970, 00:00 UTC.
    const MONDAY: u64 = 4 * 24 * 60 * MINUTE_MS;

    fn moment(day: u64, hour: u64, minute: u64) -> Wall {
        Wall(MONDAY + ((day * 24 + hour) * 60 + minute) * MINUTE_MS)
    }

    fn span(from: (u32, u32), to: (u32, u32)) -> WeekSpan {
        WeekSpan { from: from.0 * 1440 + from.1 * 60, to: to.0 * 1440 + to.1 * 60 }
    }

    #[test]
    fn deny_overrides_allow_and_empty_windows_are_open() {
        assert!(Windows::default().is_open(moment(2, 12, 0)));
        let windows =
            Windows { allow: vec![span((0, 22), (1, 6)), span((6, 22), (0, 6))], deny: vec![span((1, 0), (1, 2))] };
        for (day, hour, minute, open) in [
            (0, 21, 59, false),
            (0, 22, 0, true),
            (0, 23, 59, true),
            (1, 0, 0, false),
            (1, 1, 59, false),
            (1, 2, 0, true),
            (1, 5, 59, true),
            (1, 6, 0, false),
            (6, 23, 0, true), // a span past the end of the week
            (7, 5, 59, true),
            (7, 6, 0, false),
        ] {
            assert_eq!(windows.is_open(moment(day, hour, minute)), open, "day {day} {hour}:{minute}");
        }
    }

    #[test]
    fn the_next_opening_is_the_first_minute_that_is_open() {
        let windows =
            Windows { allow: vec![span((0, 22), (1, 6)), span((6, 22), (0, 6))], deny: vec![span((1, 0), (1, 2))] };
        for (from, to) in [
            (moment(0, 12, 0), moment(0, 22, 0)),
            (moment(0, 21, 59), moment(0, 22, 0)),
            (moment(1, 0, 0), moment(1, 2, 0)), // the end of a `deny` span
            (moment(1, 6, 0), moment(6, 22, 0)),
            (moment(7, 6, 0), moment(7, 22, 0)),
        ] {
            let next = windows.next_opening(from).unwrap();
            assert_eq!(weekday_text(next), weekday_text(to));
            assert_eq!(next, to);
            assert!(windows.is_open(next) && !windows.is_open(Wall(next.0 - 1)));
        }
        // The search begins in the middle of a minute, and the window opens once a week.
        let weekly = Windows { allow: vec![span((2, 3), (2, 4))], deny: Vec::new() };
        assert_eq!(weekly.next_opening(Wall(moment(2, 4, 0).0 + 30_000)), Some(moment(9, 3, 0)));
    }

    #[test]
    fn windows_that_never_open_are_recognized() {
        let whole = WeekSpan { from: 0, to: 0 };
        assert!(!Windows { allow: Vec::new(), deny: vec![whole] }.ever_open());
        assert_eq!(Windows { allow: Vec::new(), deny: vec![whole] }.next_opening(moment(0, 0, 0)), None);
        let inside = Windows { allow: vec![span((1, 2), (1, 3))], deny: vec![span((1, 0), (1, 12))] };
        assert!(!inside.ever_open());
        assert!(Windows { allow: vec![whole], deny: vec![span((1, 0), (1, 12))] }.ever_open());
        assert!(Windows { allow: Vec::new(), deny: vec![span((1, 0), (1, 12))] }.ever_open());
    }
}
