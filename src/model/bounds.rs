//! How much of what a node says of itself may enter the log: whoever may write there must not fill it here.

/// Longest text of one kind, in bytes.
pub const TEXT_MAX: usize = 4096;
/// Room for a separator and the count of what is left out.
const MORE: usize = 40;

/// At most [`TEXT_MAX`] bytes of it, the beginning.
pub fn clipped(text: String) -> String {
    clip(text, TEXT_MAX)
}

/// All of them one after the other, or as many as fit in [`TEXT_MAX`] bytes, and how many more there are.
pub fn listed(items: &[String], separator: &str) -> String {
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
    fn what_is_short_stays_and_the_rest_is_counted() {
        let items = |n: usize, text: &str| vec![text.to_owned(); n];
        assert_eq!(listed(&[], ", "), "");
        assert_eq!(listed(&items(3, "a"), ", "), "a, a, a");
        let long = listed(&items(100_000, "/etc/app/file"), ", ");
        assert!(long.len() <= TEXT_MAX && long.ends_with("file, and 99730 more"), "{}", &long[long.len() - 40..]);
        // Said again it is the same.
        assert_eq!(listed(std::slice::from_ref(&long), "; "), long);
        let huge = "ä".repeat(TEXT_MAX);
        let once = clipped(huge.clone());
        assert!(once.len() <= TEXT_MAX && once.ends_with("ä.."));
        assert_eq!(clipped(once.clone()), once);
        let two = listed(&[huge.clone(), huge], "; ");
        assert!(two.len() <= TEXT_MAX && two.ends_with("ä..; and 1 more"), "{}", two.len());
        assert_eq!(listed(&items(1, &"x".repeat(TEXT_MAX)), ", ").len(), TEXT_MAX);
    }
}
