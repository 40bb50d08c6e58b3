//! "Did you mean": the nearest of a few known names. Not used for names of hosts or files.

/// The known name nearest to `word`, if it is near enough to be a typing error.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let limit = 1 + word.chars().count() / 4;
    known
        .into_iter()
        .map(|name| (distance(word, name), name))
        .filter(|(d, _)| *d <= limit)
        // If two are equally near, prefer the one that contains all typed letters: `taks` is
        // `tasks` rather than `tags`.
        .min_by_key(|(d, name)| (*d, word.chars().filter(|c| !name.contains(*c)).count(), *name))
        .map(|(_, name)| name)
}

/// Number of edits (insert, delete, replace, swap of neighbours) from `a` to `b`.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut before: Vec<usize> = vec![0; b.len() + 1];
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let same = usize::from(a[i - 1] != b[j - 1]);
            row[j] = (last[j] + 1).min(row[j - 1] + 1).min(last[j - 1] + same);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(before[j - 2] + 1);
            }
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_slips_only() {
        let known = ["template", "copy", "file", "service", "notify"];
        assert_eq!(nearest("tempalte", known), Some("template"));
        assert_eq!(nearest("notfy", known), Some("notify"));
        assert_eq!(nearest("docker_container", known), None);
        assert_eq!(nearest("cpy", known), Some("copy"));
        assert_eq!(nearest("taks", ["tags", "tasks"]), Some("tasks"));
    }
}
