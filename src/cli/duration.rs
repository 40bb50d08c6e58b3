//! Durations. The input form is `90s`, `5m` or `1h30m`; the output form is `3 m`.

use std::str::FromStr;
use std::time::Duration;

/// A duration from the command line. It is never zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span(pub Duration);

/// Maximum duration, in ms: ten years, so that a sum with another time never overflows.
const MS_MAX: u64 = 10 * 365 * 86_400_000;

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not a duration; use a form like 90s, 5m, 1h30m or 2d");
        let mut rest = text.trim();
        let mut total: u64 = 0;
        if rest.is_empty() {
            return Err(wrong());
        }
        while !rest.is_empty() {
            let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
            let number: u64 = rest[..digits].parse().map_err(|_| wrong())?;
            rest = &rest[digits..];
            let unit = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
            let ms = match &rest[..unit] {
                "ms" => 1,
                "s" => 1_000,
                "m" => 60_000,
                "h" => 3_600_000,
                "d" => 86_400_000,
                _ => return Err(wrong()),
            };
            rest = &rest[unit..];
            total = number.checked_mul(ms).and_then(|n| n.checked_add(total)).ok_or_else(wrong)?;
        }
        if total == 0 || total > MS_MAX {
            return Err(format!("{text:?} is out of range; the minimum is 1ms, the maximum ten years"));
        }
        Ok(Self(Duration::from_millis(total)))
    }
}

/// A duration in one unit, rounded down: `850 ms`, `42 s`, `3 m`, `5 h`, `2 d`.
pub fn age(ms: u64) -> String {
    match ms {
        0..1_000 => format!("{ms} ms"),
        1_000..120_000 => format!("{} s", ms / 1_000),
        120_000..7_200_000 => format!("{} m", ms / 60_000),
        7_200_000..172_800_000 => format!("{} h", ms / 3_600_000),
        _ => format!("{} d", ms / 86_400_000),
    }
}

/// A duration as a clock: `0:04`, `12:30`, `1:02:03`.
pub fn clock(ms: u64) -> String {
    let s = ms / 1_000;
    if s < 3_600 {
        format!("{}:{:02}", s / 60, s % 60)
    } else {
        format!("{}:{:02}:{:02}", s / 3_600, s / 60 % 60, s % 60)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(text: &str) -> Option<u64> {
        text.parse::<Span>().ok().map(|s| s.0.as_millis() as u64)
    }

    #[test]
    fn durations_are_parsed() {
        assert_eq!(ms("90s"), Some(90_000));
        assert_eq!(ms("1h30m"), Some(5_400_000));
        assert_eq!(ms("500ms"), Some(500));
        assert_eq!(ms("2d"), Some(172_800_000));
        for bad in ["", "5", "m", "5 m", "-1s", "0s", "1y", "99999999999999999999s", "9999999d", "1hh"] {
            assert_eq!(ms(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn ages_and_clocks_are_formatted() {
        assert_eq!([age(850), age(92_000), age(185_000), age(90_000_000)], ["850 ms", "92 s", "3 m", "25 h"]);
        assert_eq!([clock(4_900), clock(750_000), clock(3_723_000)], ["0:04", "12:30", "1:02:03"]);
    }
}
