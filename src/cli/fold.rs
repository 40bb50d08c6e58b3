//! Folds long lines for a terminal, between words. The folded text is indented, so that it stays in
//! its column.

/// Minimum width, in columns. On a narrower terminal nothing is folded.
const NARROWEST: usize = 40;

/// Folds each line of `text` that is longer than `width` characters. A cell is a text between two
/// or more spaces. The folded text is indented to the last cell that begins in the first half of
/// the line. A word that is too long for a line is not split, so that paths and hashes can be
/// copied. Line ends are kept.
pub fn fold(text: &str, width: usize) -> String {
    text.split_inclusive('\n').map(|line| fold_line(line, width)).collect()
}

fn fold_line(line: &str, width: usize) -> String {
    let bare = line.trim_end_matches('\n');
    if width < NARROWEST || bare.chars().count() <= width {
        return line.to_owned();
    }
    let hang = last_cell(bare, width / 2);
    let mut out: String = bare.chars().take(hang).collect();
    let mut column = hang;
    let rest: String = bare.chars().skip(hang).collect();
    for (number, word) in rest.split(' ').enumerate() {
        let long = word.chars().count();
        if number > 0 {
            if column + 1 + long > width && column > hang {
                out.truncate(out.trim_end().len());
                out.push('\n');
                out.push_str(&" ".repeat(hang));
                column = hang;
            } else {
                out.push(' ');
                column += 1;
            }
        }
        out.push_str(word);
        column += long;
    }
    out + &line[bare.len()..]
}

/// Column of the last cell that begins before `limit`.
fn last_cell(line: &str, limit: usize) -> usize {
    let mut spaces = 0;
    let mut cell = 0;
    for (at, c) in line.chars().enumerate().take(limit) {
        match c {
            ' ' => spaces += 1,
            _ if spaces >= 2 => (spaces, cell) = (0, at),
            _ => spaces = 0,
        }
    }
    cell
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_cell_is_folded_under_itself() {
        let text = "12:01  w1    back after 92 s: network, and so on — drifted: /etc/default/netplugin\nshort\n";
        let folded = fold(text, 40);
        assert_eq!(
            folded,
            "12:01  w1    back after 92 s: network,\n             and so on — drifted:\n             /etc/default/netplugin\nshort\n"
        );
        assert_eq!(folded.split_whitespace().collect::<Vec<_>>(), text.split_whitespace().collect::<Vec<_>>());
    }

    #[test]
    fn a_word_that_is_too_long_stays_whole() {
        let word = "x".repeat(60);
        assert_eq!(fold(&format!("  - {word} {word}"), 50), format!("  - {word}\n  {word}").replace("- ", "-\n  "));
    }

    #[test]
    fn text_that_fits_and_narrow_terminals_are_not_folded() {
        let text = "a line of forty-five characters, more or less";
        assert_eq!(fold(text, text.len()), text);
        assert_eq!(fold(text, NARROWEST - 1), text);
        assert_eq!(fold("", 80), "");
    }
}
