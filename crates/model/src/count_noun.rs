//! Numbers in sentences.

use std::fmt::Display;

/// A number with its noun, such as `1 fault`, `0 faults` or `2 faults`. The noun's plural must end
/// in s.
pub fn count_noun<N: PartialEq + From<u8> + Display>(number: N, noun: &str) -> String {
    let s = if number == N::from(1) { "" } else { "s" };
    format!("{number} {noun}{s}")
}

#[cfg(test)]
mod tests {
    use super::count_noun;

    #[test]
    fn only_one_is_singular() {
        assert_eq!([0u32, 1, 2, 21].map(|n| count_noun(n, "fault")), ["0 faults", "1 fault", "2 faults", "21 faults"]);
        assert_eq!((count_noun(1usize, "node"), count_noun(1u64, "line")), ("1 node".to_owned(), "1 line".to_owned()));
    }
}
