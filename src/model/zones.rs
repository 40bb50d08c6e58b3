//! Zones: what fails together, and how many managers each may hold.

use super::{majority, spare};
use std::collections::BTreeMap;

/// Longest name of a zone, bytes.
pub const ZONE_MAX: usize = 64;

/// Whether a zone may be called so.
pub fn is_zone(name: &str) -> bool {
    (1..=ZONE_MAX).contains(&name.len()) && !name.chars().any(|c| c.is_control() || c.is_whitespace())
}

/// So many managers over so many zones, the most even way, largest first: 5 over 3 are 2-2-1.
pub fn spread(managers: usize, zones: usize) -> Vec<usize> {
    let zones = zones.clamp(1, managers.max(1));
    (0..zones).map(|at| managers / zones + usize::from(at < managers % zones)).collect()
}

/// As it is written: `2-2-1`.
pub fn spread_text(managers: usize, zones: usize) -> String {
    spread(managers, zones).iter().map(usize::to_string).collect::<Vec<_>>().join("-")
}

/// What to say where the loss of one zone would end the quorum, given the zones of all managers (empty: nobody said). Silent
/// where fewer than three managers stand, which survive no loss anyhow, and where no zone is known.
pub fn zone_warning<'a>(zones: impl Iterator<Item = &'a str>) -> Option<String> {
    let mut held = BTreeMap::<&str, usize>::new();
    let mut managers = 0;
    for zone in zones {
        managers += 1;
        if !zone.is_empty() {
            *held.entry(zone).or_default() += 1;
        }
    }
    // Of two that hold the same the first by name.
    let (zone, count) = held.iter().rev().max_by_key(|(_, count)| **count)?;
    if managers < 3 || *count <= spare(managers) {
        return None;
    }
    let left = managers - count;
    let over = spread_text(managers, 3);
    Some(format!(
        "the loss of zone {zone} would end the quorum: {count} of {managers} managers are there, {left} would be left of the {} \
         that are needed; over three zones they stand {over}",
        majority(managers)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn managers_are_spread_evenly() {
        let over = |managers| spread_text(managers, 3);
        assert_eq!(
            [1, 2, 3, 4, 5, 6, 7, 9].map(over),
            ["1", "1-1", "1-1-1", "2-1-1", "2-2-1", "2-2-2", "3-2-2", "3-3-3"]
        );
        assert_eq!((spread(0, 3), spread(3, 0)), (vec![0], vec![3]));
        // Spread so, no zone's loss ends a quorum, from three managers on.
        assert!((3..=9).all(|n| n == 4 || spread(n, 3)[0] <= spare(n)), "four in three zones lose it with the first");
    }

    #[test]
    fn a_zone_that_holds_the_quorum_is_named() {
        let warned = |zones: &[&str]| zone_warning(zones.iter().copied());
        let text = warned(&["b", "a", "a"]).unwrap();
        assert!(
            text.starts_with("the loss of zone a would end the quorum: 2 of 3 managers are there, 1 would"),
            "{text}"
        );
        assert!(text.ends_with("1-1-1"), "{text}");
        assert!(warned(&["a", "a", "b", "b", "c"]).is_none() && warned(&["a", "b", "c"]).is_none());
        assert!(
            warned(&["", "", ""]).is_none() && warned(&["a", "a"]).is_none(),
            "nothing is known, or nothing to gain"
        );
        assert!(warned(&["a", "a", "a", "b", ""]).unwrap().contains("zone a"));
    }
}
