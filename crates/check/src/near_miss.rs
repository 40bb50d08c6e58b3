//! Finds the line that nearly satisfies a line pattern, for the author of a check file. Pure.

use super::matcher::shorten;
use serde_json::Value;

/// Maximum number of lines and of characters of a line that are compared.
const LINES_MAX: usize = 10_000;
const LINE_MAX: usize = 256;
/// Maximum share of the characters of the pattern that may differ, as a fraction.
const DIFFERENCE_MAX: (usize, usize) = (1, 3);

/// A remark about the line of `text` that is the most similar to `wanted`, with its number from 1.
/// None if no line is similar.
pub(super) fn describe_near_miss(wanted: &str, text: &str) -> Option<String> {
    let wanted: Vec<char> = wanted.chars().take(LINE_MAX).collect();
    let most = wanted.len() * DIFFERENCE_MAX.0 / DIFFERENCE_MAX.1;
    let mut best: Option<(usize, usize, &str)> = None;
    for (number, line) in text.lines().take(LINES_MAX).enumerate() {
        let limit = best.map_or(most, |(distance, ..)| distance.saturating_sub(1));
        if let Some(distance) = substring_distance(&wanted, line).filter(|distance| *distance <= limit) {
            best = Some((distance, number + 1, line));
            if distance <= 1 {
                break;
            }
        }
    }
    let (_, number, line) = best?;
    Some(format!("line {number} is similar: {}", shorten(&Value::from(line.replace('\t', "\\t")))))
}

/// The minimum number of insertions, deletions and replacements that turn `wanted` into a part of
/// `line`. Upper and lower case are equal here, and so are all blanks.
fn substring_distance(wanted: &[char], line: &str) -> Option<usize> {
    if wanted.is_empty() {
        return None;
    }
    let same =
        |a: char, b: char| a == b || a.to_lowercase().eq(b.to_lowercase()) || a.is_whitespace() && b.is_whitespace();
    let mut row: Vec<usize> = (0..=wanted.len()).collect();
    let mut least = row[wanted.len()];
    for c in line.chars().take(LINE_MAX) {
        let mut diagonal = std::mem::replace(&mut row[0], 0);
        for (at, w) in wanted.iter().enumerate() {
            let replaced = diagonal + usize::from(!same(*w, c));
            diagonal = row[at + 1];
            row[at + 1] = replaced.min(row[at] + 1).min(diagonal + 1);
        }
        least = least.min(row[wanted.len()]);
    }
    Some(least)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_that_differs_least_is_named() {
        let text = "# PermitRootLogin\npermitrootlogin no\nPermitRootLogin  yes\nX11Forwarding no\n";
        let near = |wanted: &str| describe_near_miss(wanted, text);
        assert_eq!(near("PermitRootLogin no").as_deref(), Some("line 2 is similar: permitrootlogin no"));
        assert_eq!(near("X11Forwardin no").as_deref(), Some("line 4 is similar: X11Forwarding no"));
        assert_eq!((near("something else"), near("")), (None, None));
    }
}
