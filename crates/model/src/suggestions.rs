//! The hint "did you mean": the known word that is nearest to an unknown one.

/// The known word that is nearest to `word`. None if no known word is near enough for a typing
/// error. Upper and lower case are equal, and so are `_` and `-`.
pub fn nearest_word<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let letters = word.chars().count();
    if letters < 2 {
        return None;
    }
    // A more distant suggestion would mislead the user.
    let limit = 1 + letters / 4;
    let fold = |text: &str| text.to_lowercase().replace('_', "-");
    let word = fold(word);
    let rank = |name: &'a str| {
        let folded = fold(name);
        // If two words are equally near, the word with all typed letters is better: `taks` is
        // `tasks` rather than `tags`.
        let missing = word.chars().filter(|c| !folded.contains(*c)).count();
        (strsim::osa_distance(&word, &folded), missing, name)
    };
    known.into_iter().map(rank).filter(|(distance, ..)| *distance <= limit).min().map(|(.., name)| name)
}

/// The hint for an unknown word. None if no known word is near.
pub fn did_you_mean<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<String> {
    nearest_word(word, known).map(|name| format!("did you mean `{name}`?"))
}

/// The hint for an unknown word: the nearest known word. If no known word is near, the hint lists
/// all known words, provided that they are few.
pub fn suggest_or_list<'a>(word: &str, known: impl IntoIterator<Item = &'a str> + Clone) -> Option<String> {
    did_you_mean(word, known.clone()).or_else(|| {
        let known: Vec<_> = known.into_iter().collect();
        (1..=20).contains(&known.len()).then(|| format!("known here: {}", known.join(", ")))
    })
}

#[cfg(test)]
mod tests {
    use super::{did_you_mean, nearest_word, suggest_or_list};

    #[test]
    fn only_near_words_are_suggested() {
        let known = ["services", "provision", "cleanup", "depends-on"];
        assert_eq!(nearest_word("service", known), Some("services"));
        assert_eq!(nearest_word("provsion", known), Some("provision"));
        assert_eq!(nearest_word("claenup", known), Some("cleanup"));
        assert_eq!(nearest_word("depends_on", known), Some("depends-on"));
        assert_eq!(nearest_word("quorum", known), None);
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
        assert_eq!(nearest_word("tempalte", known), Some("template"));
        assert_eq!(nearest_word("notfy", known), Some("notify"));
        assert_eq!(nearest_word("docker_container", known), None);
        assert_eq!(nearest_word("cpy", known), Some("copy"));
        assert_eq!(nearest_word("taks", ["tags", "tasks"]), Some("tasks"));
        assert_eq!(nearest_word("TAKS", ["tags", "tasks"]), Some("tasks"), "case does not count");
        assert_eq!(nearest_word("e", ["eq", "ne"]), None, "one letter is no word");
    }
}
