//! Zones (failure domains), and the number of managers that each zone should contain.

use super::{majority, tolerated_losses};
use std::collections::BTreeMap;

/// Maximum length of a zone name in bytes.
pub const ZONE_MAX: usize = 64;

/// Whether a zone may have this name.
pub fn is_zone(name: &str) -> bool {
    (1..=ZONE_MAX).contains(&name.len()) && !name.chars().any(|c| c.is_control() || c.is_whitespace())
}

/// Distributes the managers as evenly as possible over the zones. The largest number is the first:
/// 5 managers over 3 zones are 2-2-1.
pub fn spread(managers: usize, zones: usize) -> Vec<usize> {
    let zones = zones.clamp(1, managers.max(1));
    (0..zones).map(|at| managers / zones + usize::from(at < managers % zones)).collect()
}

/// The distribution in the form `2-2-1`.
pub fn spread_text(managers: usize, zones: usize) -> String {
    spread(managers, zones).iter().map(usize::to_string).collect::<Vec<_>>().join("-")
}

/// Warns if the loss of one zone would break the quorum. `zones` contains the zone of each manager,
/// or an empty text for a manager without a zone. There is no warning for fewer than three
/// managers, because they survive no loss anyway. There is none either if no zone is known.
pub fn zone_warning<'a>(zones: impl Iterator<Item = &'a str>) -> Option<String> {
    let mut held = BTreeMap::<&str, usize>::new();
    let mut managers = 0;
    for zone in zones {
        managers += 1;
        if !zone.is_empty() {
            *held.entry(zone).or_default() += 1;
        }
    }
    // If two zones have equally many managers, the first zone by name is chosen.
    let (zone, count) = held.iter().rev().max_by_key(|(_, count)| **count)?;
    if managers < 3 || *count <= tolerated_losses(managers) {
        return None;
    }
    let left = managers - count;
    // No spread of four managers over three zones survives the loss of every zone.
    let (first, target) = if managers == 4 { ("promote a fifth manager and ", 5) } else { ("", managers) };
    let over = spread_text(target, 3);
    Some(format!(
        "the loss of zone {zone} would break the quorum: {count} of {managers} managers are in it, {left} would remain of the {} \
         that are needed; {first}spread over three zones: {over}",
        majority(managers)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn managers_are_spread_evenly_over_zones() {
        let over = |managers| spread_text(managers, 3);
        assert_eq!(
            [1, 2, 3, 4, 5, 6, 7, 9].map(over),
            ["1", "1-1", "1-1-1", "2-1-1", "2-2-1", "2-2-2", "3-2-2", "3-3-3"]
        );
        assert_eq!((spread(0, 3), spread(3, 0)), (vec![0], vec![3]));
        // Over three zones, the loss of one zone does not break the quorum of three or more
        // managers. The only exception is four managers.
        assert!(
            (3..=9).all(|n| n == 4 || spread(n, 3)[0] <= tolerated_losses(n)),
            "four in three zones lose it with the first"
        );
    }

    #[test]
    fn a_zone_that_holds_the_quorum_is_named() {
        let warned = |zones: &[&str]| zone_warning(zones.iter().copied());
        let text = warned(&["b", "a", "a"]).unwrap();
        assert!(
            text.starts_with("the loss of zone a would break the quorum: 2 of 3 managers are in it, 1 would"),
            "{text}"
        );
        assert!(text.ends_with("1-1-1"), "{text}");
        assert!(warned(&["a", "a", "b", "b", "c"]).is_none() && warned(&["a", "b", "c"]).is_none());
        assert!(
            warned(&["", "", ""]).is_none() && warned(&["a", "a"]).is_none(),
            "nothing is known, or nothing to gain"
        );
        assert!(warned(&["a", "a", "a", "b", ""]).unwrap().contains("zone a"));
        let four = warned(&["a", "a", "b", "c"]).unwrap();
        assert!(four.ends_with("promote a fifth manager and spread over three zones: 2-2-1"), "{four}");
    }
}
