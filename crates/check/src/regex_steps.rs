//! Estimates the work that a regular expression may cause, from the text of the expression. Pure.

/// Approximate number of steps of a pattern for each byte of a text: its characters and classes,
/// each counted as often as it is repeated.
pub(super) fn steps(pattern: &str) -> usize {
    // The number of steps of each open group; the first entry is that of the whole pattern.
    let mut groups = vec![1_usize];
    let mut last = 0_usize;
    let mut chars = pattern.chars().peekable();
    while let Some(c) = chars.next() {
        let added = match c {
            '(' => {
                groups.push(0);
                continue;
            }
            ')' if groups.len() > 1 => groups.pop().unwrap_or(0).max(1),
            '{' => {
                let mut counts = String::new();
                while let Some(c) = chars.next_if(|c| c.is_ascii_digit() || *c == ',') {
                    counts.push(c);
                }
                let _ = chars.next_if_eq(&'}');
                let most = counts.split(',').filter_map(|count| count.parse::<usize>().ok()).max().unwrap_or(1);
                last.saturating_mul(most.max(1) - 1)
            }
            '[' => {
                let mut first = true;
                while let Some(c) = chars.next().filter(|c| *c != ']' || first) {
                    first = first && c == '^';
                    if c == '\\' {
                        chars.next();
                    }
                }
                1
            }
            '\\' => {
                chars.next();
                1
            }
            _ => 1,
        };
        last = if c == '{' { last.saturating_add(added) } else { added };
        if let Some(group) = groups.last_mut() {
            *group = group.saturating_add(added);
        }
    }
    groups.into_iter().fold(0, usize::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::steps;

    #[test]
    fn repetitions_count_as_often_as_they_repeat() {
        for (pattern, most) in [
            ("", 1),
            ("abc", 4),
            ("a{100}", 101),
            ("(ab{3,10}){5}", 56),
            ("[a{9}]]{3}", 5),
            (r"[^]\]]\{2", 4),
            ("(a{1,500}){1,500}", 250_001),
            ("((", 1),
            (")", 2),
        ] {
            assert_eq!(steps(pattern), most, "{pattern}");
        }
        assert_eq!(steps(&format!("{}a{}", "(".repeat(30), "){1000}".repeat(30))), usize::MAX);
    }
}
