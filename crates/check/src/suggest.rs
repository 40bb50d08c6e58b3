//! Finds the known word nearest to a mistyped one.

/// Returns the hint `did you mean ...` if one of `known` is similar enough to `word`.
pub(super) fn did_you_mean<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<String> {
    let allowed = 1 + word.chars().count() / 4;
    known
        .into_iter()
        .map(|candidate| (distance(word, candidate), candidate))
        .filter(|(distance, _)| *distance <= allowed)
        .min()
        .map(|(_, candidate)| format!("did you mean `{candidate}`?"))
}

/// Edit distance of two words; a transposition of neighbours counts as one edit.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.to_lowercase().chars().collect(), b.to_lowercase().chars().collect());
    let mut rows = vec![(0..=b.len()).collect::<Vec<usize>>()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let differs = usize::from(a[i - 1] != b[j - 1]);
            let mut best = (rows[i - 1][j] + 1).min(row[j - 1] + 1).min(rows[i - 1][j - 1] + differs);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_words_are_found_and_far_ones_are_not() {
        let known = ["exists", "mode", "contents", "sha256"];
        let ask = |word| did_you_mean(word, known);
        assert_eq!(ask("exits").as_deref(), Some("did you mean `exists`?"));
        assert_eq!(ask("modee").as_deref(), Some("did you mean `mode`?"));
        assert_eq!(ask("conetnts").as_deref(), Some("did you mean `contents`?"));
        assert_eq!(ask("listening"), None);
    }
}
