//! "Did you mean": the known word that is nearest to an unknown one.

/// The known word nearest to `word`, if it is near enough to be a typing error. Case does not
/// count, nor does `_` in place of `-`.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let letters = word.chars().count();
    if letters < 2 {
        return None;
    }
    // A more distant suggestion would mislead.
    let limit = 1 + letters / 4;
    let fold = |text: &str| text.to_lowercase().replace('_', "-");
    let folded = fold(word);
    known
        .into_iter()
        .map(|name| (strsim::osa_distance(&folded, &fold(name)), name))
        .filter(|(distance, _)| *distance <= limit)
        // If two are equally near, prefer the one that contains all typed letters: `taks` is
        // `tasks` rather than `tags`.
        .min_by_key(|(distance, name)| (*distance, word.chars().filter(|c| !name.contains(*c)).count(), *name))
        .map(|(_, name)| name)
}

/// Returns the hint for an unknown word if a known one is near.
pub fn did_you_mean<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<String> {
    nearest(word, known).map(|name| format!("did you mean `{name}`?"))
}

/// The hint for an unknown word: the nearest known word, else all of them if they are few.
pub fn suggest_or_list<'a>(word: &str, known: impl IntoIterator<Item = &'a str> + Clone) -> Option<String> {
    did_you_mean(word, known.clone()).or_else(|| {
        let known: Vec<_> = known.into_iter().collect();
        (1..=20).contains(&known.len()).then(|| format!("known here: {}", known.join(", ")))
    })
}

#[cfg(test)]
mod tests {
    use super::{did_you_mean, nearest, suggest_or_list};

    #[test]
    fn only_near_words_are_suggested() {
        let known = ["services", "provision", "cleanup", "depends-on"];
        assert_eq!(nearest("service", known), Some("services"));
        assert_eq!(nearest("provsion", known), Some("provision"));
        assert_eq!(nearest("claenup", known), Some("cleanup"));
        assert_eq!(nearest("depends_on", known), Some("depends-on"));
        assert_eq!(nearest("quorum", known), None);
        assert_eq!(suggest_or_list("quorum", known).unwrap(), "known here: services, provision, cleanup, depends-on");
    }

    #[test]
    fn near_words_are_found_and_far_ones_are_not() {
        let known = ["exists", "mode", "contents", "sha256"];
        let ask = |word| did_you_mean(word, known);
        assert_eq!(ask("exits").as_deref(), Some("did you mean `exists`?"));
        assert_eq!(ask("modee").as_deref(), Some("did you mean `mode`?"));
        assert_eq!(ask("conetnts").as_deref(), Some("did you mean `contents`?"));
        assert_eq!(ask("listening"), None);
    }

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
