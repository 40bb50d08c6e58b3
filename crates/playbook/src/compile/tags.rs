//! Selects tasks by tags.

use super::Compiler;

/// Tags with a special meaning. `--tags` and `--skip-tags` accept them even if no task has them.
pub const SPECIAL: [&str; 5] = ["all", "always", "never", "tagged", "untagged"];

impl Compiler<'_> {
    /// Whether a task with these tags is selected, as by Ansible's `--tags` and `--skip-tags`. A
    /// task without tags counts as `untagged`. Also adds the tags to `Compiler::tags`.
    pub(super) fn is_selected(&mut self, tags: &[String]) -> bool {
        self.tags.extend(tags.iter().cloned());
        tags_select(tags, self.options.tags, self.options.skip_tags)
    }
}

fn tags_select(own: &[String], only: &[String], skip: &[String]) -> bool {
    let has = |list: &[String], tag: &str| list.iter().any(|t| t == tag);
    let untagged = own.is_empty();
    let named = |list: &[String]| if untagged { has(list, "untagged") } else { own.iter().any(|tag| has(list, tag)) };
    let never = has(own, "never");
    let all = only.is_empty() || has(only, "all");
    let runs = has(own, "always") || all && !never || named(only) || has(only, "tagged") && !untagged && !never;
    let left_out = match has(skip, "all") {
        true => !has(own, "always") || has(skip, "always"),
        false => named(skip) || has(skip, "tagged") && !untagged,
    };
    runs && !left_out
}

#[cfg(test)]
mod tests {
    #[test]
    fn tags_select_as_ansible_selects() {
        // Results of ansible-core 2.19: the tags of a task, --tags, --skip-tags, and whether the
        // task runs.
        let table = [
            ("", "", "", true),
            ("a", "", "", true),
            ("never", "", "", false),
            ("a never", "", "", false),
            ("a never", "a", "", true),
            ("always never", "", "", true),
            ("", "a", "", false),
            ("always", "a", "", true),
            ("a", "tagged", "", true),
            ("", "tagged", "", false),
            ("never", "tagged", "", false),
            ("", "untagged", "", true),
            ("a", "untagged", "", false),
            ("never", "all", "", false),
            ("a", "all", "a", false),
            ("a b", "a", "b", false),
            ("always", "", "always", false),
            ("always", "", "all", true),
            ("a", "", "all", false),
            ("a", "", "tagged", false),
            ("", "", "untagged", false),
            ("", "", "tagged", true),
        ];
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        for (own, only, skip, runs) in table {
            assert_eq!(super::tags_select(&words(own), &words(only), &words(skip)), runs, "{own} | {only} | {skip}");
        }
    }
}
