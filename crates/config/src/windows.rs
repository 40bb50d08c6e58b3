//! Reads maintenance windows: `Mon-Fri 22:00-06:00` in UTC or at a fixed offset, converted to
//! weekly minutes in UTC. Time zones with daylight saving time are not supported, because their
//! rules differ between managers and the replicated state must not depend on them.

use super::reader::ConfigReader;
use super::tree::ConfigNode;
use remoor_model::{WEEK_MINUTES, WeekSpan, Windows};

pub const WINDOW_FIELDS: &[&str] = &["allow", "deny", "offset"];

const DAY: u32 = 24 * 60;
const DAYS: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
const SHAPE: &str = "write it as \"Mon-Fri 22:00-06:00\", \"Sat,Sun\" or \"02:00-04:00\"";

/// Reads a `windows:` section; records faults in `r`.
pub fn windows(r: &mut ConfigReader, node: &ConfigNode, path: &str) -> Windows {
    let s = r.section(node, path, WINDOW_FIELDS);
    let mut offset = 0;
    if let Some(node) = s.get("offset")
        && let Some(text) = r.text(node, &s.path("offset"))
    {
        match minutes_of_offset(&text) {
            Some(minutes) => offset = minutes,
            None => {
                r.fault(node, format!("`{}` takes an offset from UTC, not `{text}`", s.path("offset"))).hint = Some(
                    "write \"+01:00\"; time zones with daylight saving time are not supported; make the window an hour wider".into(),
                );
            }
        }
    }
    let mut read = |field: &str| -> Vec<WeekSpan> {
        let Some(node) = s.get(field) else { return Vec::new() };
        let path = s.path(field);
        let mut out = Vec::new();
        for (n, item) in r.list(node, &path).iter().enumerate() {
            let Some(text) = r.text(item, &format!("{path}.{n}")) else { continue };
            match spans(&text, offset) {
                Ok(more) => out.extend(more),
                Err(why) => {
                    r.fault(item, format!("`{text}` is not a maintenance window: {why}")).hint = Some(SHAPE.into())
                }
            }
        }
        out
    };
    let (allow, deny) = (read("allow"), read("deny"));
    Windows { allow, deny }
}

/// The spans of one entry such as `Mon-Fri 22:00-06:00`, one span for each day. An end that is not
/// after the start is on the next day.
fn spans(text: &str, offset: i32) -> Result<Vec<WeekSpan>, String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let (days, times) = match words[..] {
        [one] if one.starts_with(|c: char| c.is_ascii_digit()) => (None, Some(one)),
        [one] => (Some(one), None),
        [days, times] => (Some(days), Some(times)),
        _ => return Err("days and times are two words".to_owned()),
    };
    let days = days.map_or_else(|| Ok((0..7).collect()), days_of)?;
    let (from, to) = match times {
        None => (0, DAY),
        Some(times) => {
            let (from, to) = times.split_once('-').ok_or("a time is a range such as 22:00-06:00")?;
            let (from, to) = (minute(from)?, minute(to)?);
            (from, if to <= from { to + DAY } else { to })
        }
    };
    let shifted = |minute: u32| (minute as i32 - offset).rem_euclid(WEEK_MINUTES as i32) as u32;
    Ok(days.into_iter().map(|day| WeekSpan { from: shifted(day * DAY + from), to: shifted(day * DAY + to) }).collect())
}

/// Parses days such as `Mon`, `Mon-Fri`, `Sat-Mon` and `Mon,Wed,Fri`.
fn days_of(text: &str) -> Result<Vec<u32>, String> {
    let day = |word: &str| -> Result<u32, String> {
        let small = word.to_lowercase();
        let known = DAYS.iter().position(|day| *day == small).ok_or_else(|| format!("`{word}` is not a day"))?;
        Ok(known as u32)
    };
    let mut out = Vec::new();
    for part in text.split(',') {
        match part.split_once('-') {
            None => out.push(day(part)?),
            Some((first, last)) => {
                let (mut at, last) = (day(first)?, day(last)?);
                out.push(at);
                while at != last {
                    at = (at + 1) % 7;
                    out.push(at);
                }
            }
        }
    }
    out.sort_unstable();
    out.dedup();
    Ok(out)
}

/// Parses a time of day such as `06:30`; `24:00` is the end of a day. Returns minutes.
fn minute(text: &str) -> Result<u32, String> {
    let wrong = || format!("`{text}` is not a time of day");
    let two = |part: &str| part.parse::<u32>().ok().filter(|_| part.len() == 2 && part.is_ascii());
    let (hour, minute) = text.split_once(':').ok_or_else(wrong)?;
    match (two(hour), two(minute)) {
        (Some(24), Some(0)) => Ok(DAY),
        (Some(hour @ 0..=23), Some(minute @ 0..=59)) => Ok(hour * 60 + minute),
        _ => Err(wrong()),
    }
}

/// Parses an offset such as `UTC`, `+01:00` or `-03:30`. Returns minutes.
fn minutes_of_offset(text: &str) -> Option<i32> {
    if text == "UTC" || text == "Z" {
        return Some(0);
    }
    let (sign, rest) = match text.split_at_checked(1)? {
        ("+", rest) => (1, rest),
        ("-", rest) => (-1, rest),
        _ => return None,
    };
    let minutes = minute(rest).ok()? as i32;
    (minutes <= 14 * 60).then_some(sign * minutes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree;

    fn read(text: &str) -> (Windows, String) {
        let node = tree::parse("remoor.yml", text).unwrap().unwrap();
        let mut reader = ConfigReader::new("remoor.yml");
        let windows = windows(&mut reader, &node, "windows");
        (windows, reader.faults.iter().map(|fault| format!("{fault}\n")).collect())
    }

    fn allow(text: &str, offset: i32) -> Vec<(u32, u32)> {
        spans(text, offset).unwrap().into_iter().map(|s| (s.from, s.to)).collect()
    }

    #[test]
    fn days_and_times_become_minutes_of_the_week() {
        assert_eq!(allow("Tue 22:00-06:00", 0), [(1440 + 1320, 2 * 1440 + 360)]);
        assert_eq!(allow("Mon-Wed 00:00-24:00", 0), [(0, 1440), (1440, 2880), (2880, 4320)]);
        assert_eq!(allow("sat,Sun", 0), [(5 * 1440, 6 * 1440), (6 * 1440, 0)]);
        assert_eq!(allow("Sat-Mon 01:00-02:00", 0).len(), 3);
        assert_eq!(allow("02:00-04:00", 0).len(), 7);
        // Across the end of the week, and at an offset: Monday 00:30 at +01:00 is Sunday 23:30 UTC.
        assert_eq!(allow("Sun 22:00-06:00", 0), [(6 * 1440 + 1320, 360)]);
        assert_eq!(allow("Mon 00:30-01:30", 60), [(WEEK_MINUTES - 30, 30)]);
        assert_eq!(allow("Sun 23:00-24:00", -120), [(60, 120)]);
    }

    #[test]
    fn faults_have_a_position_and_a_hint() {
        let (windows, faults) = read(concat!(
            "offset: Europe/Berlin\n",
            "allow: [\"Mon-Fry 22:00-06:00\", \"22-06\", \"Mon 25:00-26:00\", \"Mon 1:00-2:00\"]\n",
            "deny: [\"Mon at 02:00-03:00\", Sun]\nclosed: []\n"
        ));
        assert_eq!((windows.allow.len(), windows.deny.len()), (0, 1));
        expect_test::expect![[r#"
            remoor.yml:4:1: unknown field `closed` in `windows`
              hint: known here: allow, deny, offset
            remoor.yml:1:9: `windows.offset` takes an offset from UTC, not `Europe/Berlin`
              hint: write "+01:00"; time zones with daylight saving time are not supported; make the window an hour wider
            remoor.yml:2:9: `Mon-Fry 22:00-06:00` is not a maintenance window: `Fry` is not a day
              hint: write it as "Mon-Fri 22:00-06:00", "Sat,Sun" or "02:00-04:00"
            remoor.yml:2:32: `22-06` is not a maintenance window: `22` is not a time of day
              hint: write it as "Mon-Fri 22:00-06:00", "Sat,Sun" or "02:00-04:00"
            remoor.yml:2:41: `Mon 25:00-26:00` is not a maintenance window: `25:00` is not a time of day
              hint: write it as "Mon-Fri 22:00-06:00", "Sat,Sun" or "02:00-04:00"
            remoor.yml:2:60: `Mon 1:00-2:00` is not a maintenance window: `1:00` is not a time of day
              hint: write it as "Mon-Fri 22:00-06:00", "Sat,Sun" or "02:00-04:00"
            remoor.yml:3:8: `Mon at 02:00-03:00` is not a maintenance window: days and times are two words
              hint: write it as "Mon-Fri 22:00-06:00", "Sat,Sun" or "02:00-04:00"
        "#]]
        .assert_eq(&faults);
    }
}
