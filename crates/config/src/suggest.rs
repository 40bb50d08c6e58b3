//! "Did you mean": the known word that is nearest to an unknown one.

/// The word of `known` with the fewest changed, missing, extra or swapped letters, if it is near
/// enough.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // At most a third of the letters may differ; a more distant suggestion would mislead.
    let far = match word.chars().count() {
        0 | 1 => return None,
        letters => (letters / 3).max(1),
    };
    let fold = |s: &str| s.to_lowercase().replace('_', "-");
    let word = fold(word);
    known
        .into_iter()
        .map(|candidate| (distance(&word, &fold(candidate)), candidate))
        .filter(|(distance, _)| *distance <= far)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// The hint for an unknown word: the nearest known word, else all of them if they are few.
pub fn hint<'a>(word: &str, known: impl IntoIterator<Item = &'a str> + Clone) -> Option<String> {
    if let Some(near) = nearest(word, known.clone()) {
        return Some(format!("did you mean `{near}`?"));
    }
    let known: Vec<_> = known.into_iter().collect();
    (1..=20).contains(&known.len()).then(|| format!("known here: {}", known.join(", ")))
}

/// Edit distance in which two swapped neighbours count once.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let same = usize::from(a[i - 1] != b[j - 1]);
            let mut best = (last[j - 1] + same).min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(before[j - 2] + 1);
            }
            row.push(best);
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::{hint, nearest};

    #[test]
    fn only_near_words_are_suggested() {
        let known = ["services", "provision", "cleanup", "depends-on"];
        assert_eq!(nearest("service", known), Some("services"));
        assert_eq!(nearest("provsion", known), Some("provision"));
        assert_eq!(nearest("claenup", known), Some("cleanup"));
        assert_eq!(nearest("depends_on", known), Some("depends-on"));
        assert_eq!(nearest("quorum", known), None);
        assert_eq!(hint("quorum", known).unwrap(), "known here: services, provision, cleanup, depends-on");
    }
}
