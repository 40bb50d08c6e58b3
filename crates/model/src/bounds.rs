//! Limits for the text that a node reports about itself and that enters the log. Without the
//! limits, one node could fill the log.

/// Maximum length of one text, in bytes.
pub const TEXT_MAX: usize = 4096;
/// Bytes that are reserved for a separator and the count of omitted items.
const MORE: usize = 40;

/// The beginning of `text`. The result has at most [`TEXT_MAX`] bytes.
pub fn truncate_text(text: String) -> String {
    clip(text, TEXT_MAX)
}

/// Joins the items with `separator`. If they exceed [`TEXT_MAX`] bytes, the text ends with the
/// number of omitted items.
pub fn join_limited(items: &[String], separator: &str) -> String {
    let mut text = String::new();
    for (n, item) in items.iter().enumerate() {
        let left = items.len() - n;
        let room = if left == 1 { TEXT_MAX } else { TEXT_MAX - MORE };
        if n == 0 {
            text = clip(item.clone(), room);
        } else if text.len() + separator.len() + item.len() <= room {
            text.push_str(separator);
            text.push_str(item);
        } else {
            text.push_str(&format!("{separator}and {left} more"));
            break;
        }
    }
    text
}

fn clip(mut text: String, max: usize) -> String {
    if text.len() > max {
        let end = (0..=max - 2).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text.truncate(end);
        text.push_str("..");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_lists_are_unchanged_and_omitted_items_are_counted() {
        let items = |n: usize, text: &str| vec![text.to_owned(); n];
        assert_eq!(join_limited(&[], ", "), "");
        assert_eq!(join_limited(&items(3, "a"), ", "), "a, a, a");
        let long = join_limited(&items(100_000, "/etc/app/file"), ", ");
        assert!(long.len() <= TEXT_MAX && long.ends_with("file, and 99730 more"), "{}", &long[long.len() - 40..]);
        // A second call of `join_limited` does not change the text.
        assert_eq!(join_limited(std::slice::from_ref(&long), "; "), long);
        let huge = "ä".repeat(TEXT_MAX);
        let once = truncate_text(huge.clone());
        assert!(once.len() <= TEXT_MAX && once.ends_with("ä.."));
        assert_eq!(truncate_text(once.clone()), once);
        let two = join_limited(&[huge.clone(), huge], "; ");
        assert!(two.len() <= TEXT_MAX && two.ends_with("ä..; and 1 more"), "{}", two.len());
        assert_eq!(join_limited(&items(1, &"x".repeat(TEXT_MAX)), ", ").len(), TEXT_MAX);
    }
}
