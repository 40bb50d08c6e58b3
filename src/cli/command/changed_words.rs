//! Describes the difference of two texts in a few words: `-vlan-if eth0 -> eth9`. The input is a
//! unified diff that a manager made.

/// Maximum number of changed lines that are described.
const LINES_MAX: usize = 3;
/// Maximum number of characters of the changed words of one line.
const PART_MAX: usize = 40;

/// One text for each changed line. The result is empty if lines were only added or removed, or if
/// the changes are too long for a few words.
pub fn changed_words(unified: &str) -> Vec<String> {
    let body = unified.lines().skip_while(|line| !line.starts_with("@@"));
    let (mut removed, mut added) = (Vec::new(), Vec::new());
    for line in body {
        match (line.strip_prefix('-'), line.strip_prefix('+')) {
            (Some(text), _) => removed.push(text),
            (_, Some(text)) => added.push(text),
            _ => {}
        }
    }
    if removed.len() != added.len() || removed.len() > LINES_MAX {
        return Vec::new();
    }
    let words: Option<Vec<String>> = removed.iter().zip(&added).map(|(old, new)| changed_part(old, new)).collect();
    words.unwrap_or_default()
}

/// The words of a line that changed, with the unchanged word before them.
fn changed_part(old: &str, new: &str) -> Option<String> {
    let (old, new): (Vec<&str>, Vec<&str>) = (old.split_whitespace().collect(), new.split_whitespace().collect());
    let same = |(one, other): &(&&str, &&str)| one == other;
    let before = old.iter().zip(&new).take_while(same).count();
    let after = old[before..].iter().rev().zip(new[before..].iter().rev()).take_while(same).count();
    let (was, is) = (old[before..old.len() - after].join(" "), new[before..new.len() - after].join(" "));
    if was.is_empty() || is.is_empty() || was.chars().count().max(is.chars().count()) > PART_MAX {
        return None;
    }
    let context = before.checked_sub(1).map(|at| format!("{} ", old[at])).unwrap_or_default();
    Some(format!("{context}{was} -> {is}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changes_in(lines: &str) -> Vec<String> {
        changed_words(&format!("--- rendered\n+++ found\n@@ -1 +1 @@\n{lines}"))
    }

    #[test]
    fn changed_words_are_shown_with_the_word_before_them() {
        assert_eq!(
            changes_in(
                "-ARGS=\"-plugin-mode docker -vlan-if eth0 -ctrl-ip 10.0.0.1\"\n+ARGS=\"-plugin-mode docker -vlan-if eth9 -ctrl-ip 10.0.0.1\"\n"
            ),
            ["-vlan-if eth0 -> eth9"]
        );
        assert_eq!(changes_in(" a\n-port=2379\n+port=2380\n b\n"), ["port=2379 -> port=2380"]);
        assert_eq!(changes_in("-  listen: 80\n-a 1\n+  listen: 8080\n+a 2\n"), ["listen: 80 -> 8080", "a 1 -> 2"]);
    }

    #[test]
    fn added_lines_and_large_changes_give_no_summary() {
        assert!(changes_in("+new\n").is_empty());
        assert!(changes_in("-a b\n+a\n").is_empty(), "a word was removed");
        assert!(changes_in(&format!("-{}\n+x\n", "y".repeat(PART_MAX + 1))).is_empty());
        assert!(changes_in("-a 1\n-b 1\n-c 1\n-d 1\n+a 2\n+b 2\n+c 2\n+d 2\n").is_empty());
        assert!(changed_words("").is_empty());
    }
}
