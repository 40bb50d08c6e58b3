//! Every word of the playbook language, and whether it has the same meaning as in Ansible.
//! `docs/reference/playbooks.md` lists the same words, and a test compares the two lists. This file
//! does not implement the words.

use crate::compile::{HINT_ANSIBLE, module_specs};
use crate::{facts, filters};

/// The kind of a word of the playbook language.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum WordKind {
    PlayKeyword,
    BlockKeyword,
    TaskKeyword,
    Module,
    /// An option of the module in `LanguageWord::of`.
    Option,
    Filter,
    Test,
    Function,
    Lookup,
    Method,
    Fact,
}

/// How the meaning of a word compares to its meaning in Ansible.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Supported. `docs/reference/playbooks.md` states how a keyword, module or option differs.
    Known,
    /// Supported, with this difference.
    Differs(&'static str),
    /// A module that is not native. It needs Python on the node, and ansible-core on the machine of
    /// `remoor play` or `remoor apply`.
    Python,
    /// Rejected at compile time, for this reason.
    Refused(&'static str),
}

/// One word of the playbook language.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LanguageWord {
    pub kind: WordKind,
    pub name: &'static str,
    /// The module that has the option. For other kinds of words, the text is empty.
    pub of: &'static str,
    pub state: State,
}

/// Lists every word that is supported or rejected by name.
pub fn all_words() -> Vec<LanguageWord> {
    let mut out = Vec::new();
    let mut put = |kind, name, of, state| out.push(LanguageWord { kind, name, of, state });
    let told = |differs: &'static str| if differs.is_empty() { State::Known } else { State::Differs(differs) };
    for (kind, names) in [
        (WordKind::PlayKeyword, module_specs::PLAY_KEYS),
        (WordKind::BlockKeyword, module_specs::BLOCK_KEYS),
        (WordKind::TaskKeyword, module_specs::TASK_KEYS),
    ] {
        names.iter().for_each(|name| put(kind, *name, "", State::Known));
    }
    module_specs::UNSUPPORTED_KEYWORDS
        .split_whitespace()
        .for_each(|n| put(WordKind::TaskKeyword, n, "", State::Refused(HINT_ANSIBLE)));
    for module in module_specs::MODULES {
        put(WordKind::Module, module.name, "", State::Known);
        module.options.iter().for_each(|option| put(WordKind::Option, *option, module.name, State::Known));
    }
    module_specs::UNSUPPORTED_MODULES
        .split_whitespace()
        .for_each(|name| put(WordKind::Module, name, "", State::Refused(HINT_ANSIBLE)));
    module_specs::PYTHON_MODULES.split_whitespace().for_each(|name| put(WordKind::Module, name, "", State::Python));
    filters::all_filters().for_each(|filter| put(WordKind::Filter, filter.name, "", told(filter.differs)));
    filters::all_tests().for_each(|ask| put(WordKind::Test, ask.name, "", told(ask.differs)));
    filters::BUILTIN_TESTS.iter().for_each(|name| put(WordKind::Test, *name, "", State::Known));
    filters::FUNCTIONS.iter().for_each(|name| put(WordKind::Function, *name, "", State::Known));
    filters::LOOKUPS.iter().for_each(|(name, differs)| put(WordKind::Lookup, *name, "", told(differs)));
    filters::METHODS.iter().for_each(|name| put(WordKind::Method, *name, "", State::Known));
    facts::NAMES.iter().for_each(|name| put(WordKind::Fact, *name, "", State::Known));
    for (kind, refused) in [
        (WordKind::Filter, filters::REFUSED),
        (WordKind::Test, filters::TESTS_REFUSED),
        (WordKind::Function, filters::FUNCTIONS_REFUSED),
        (WordKind::Fact, facts::ABSENT),
    ] {
        refused.iter().for_each(|(name, why)| put(kind, *name, "", State::Refused(why)));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn document() -> String {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/playbooks.md");
        std::fs::read_to_string(path).unwrap()
    }

    /// The rows of the tables below a heading: name and description.
    fn rows<'d>(document: &'d str, heading: &str) -> Vec<(&'d str, &'d str)> {
        let from = document.find(&format!("\n## {heading}\n")).unwrap_or_else(|| panic!("no heading `{heading}`"));
        let body = &document[from + 4..];
        let body = &body[..body.find("\n## ").unwrap_or(body.len())];
        let rows = body.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` |"));
        rows.map(|(name, rest)| (name, rest.trim().trim_end_matches('|').trim())).collect()
    }

    fn describe_state(state: State) -> String {
        match state {
            State::Known => "same".into(),
            State::Differs(how) => format!("differs: {how}"),
            State::Python => "python".into(),
            State::Refused(why) => format!("refused: {why}"),
        }
    }

    /// Reports each word that the tables in `document` do not list, and each row of the tables
    /// whose word does not exist. If `exact`, also reports descriptions that are not those of the
    /// code.
    fn compare(document: &str, heading: &str, kind: WordKind, exact: bool, faults: &mut Vec<String>) {
        let rows = rows(document, heading);
        let words: Vec<LanguageWord> = all_words().into_iter().filter(|w| w.kind == kind).collect();
        for word in &words {
            let want = describe_state(word.state);
            match rows.iter().find(|(name, _)| *name == word.name) {
                None => faults.push(format!("{heading}: lacks `| `{}` | {want} |`", word.name)),
                Some((_, said)) if exact && *said != want => {
                    faults.push(format!("{heading}: `{}` is `{want}`, not `{said}`", word.name));
                }
                Some((_, said)) => {
                    let refused = said.starts_with("refused");
                    let python = said == &"python";
                    if refused != matches!(word.state, State::Refused(_))
                        || python != (word.state == State::Python)
                        || !["same", "differs", "python", "refused"].iter().any(|s| said.starts_with(s))
                    {
                        faults.push(format!("{heading}: `{}` is `{want}`, not `{said}`", word.name));
                    }
                }
            }
        }
        let known: BTreeSet<&str> = words.iter().map(|w| w.name).collect();
        for (name, _) in rows.iter().filter(|(name, _)| !known.contains(name)) {
            faults.push(format!("{heading}: `{name}` is not in the code"));
        }
        let once: BTreeSet<&str> = rows.iter().map(|(name, _)| *name).collect();
        if once.len() != rows.len() {
            faults.push(format!("{heading}: a word is there twice"));
        }
    }

    #[test]
    fn the_document_says_what_the_code_knows() {
        let document = document();
        let mut faults = Vec::new();
        for (heading, kind, exact) in [
            ("Keywords of plays", WordKind::PlayKeyword, false),
            ("Keywords of blocks", WordKind::BlockKeyword, false),
            ("Keywords of tasks", WordKind::TaskKeyword, false),
            ("Filters", WordKind::Filter, true),
            ("Tests", WordKind::Test, true),
            ("Functions", WordKind::Function, true),
            ("Lookups", WordKind::Lookup, true),
            ("Methods", WordKind::Method, true),
            ("Facts", WordKind::Fact, true),
        ] {
            compare(&document, heading, kind, exact, &mut faults);
        }
        compare(&document, "Modules", WordKind::Module, false, &mut faults);
        // The row of a module lists its options.
        for (module, said) in
            rows(&document, "Modules").into_iter().filter(|(_, said)| !said.starts_with("refused") && *said != "python")
        {
            let (said, refused) = said.split_once("; refused:").unwrap_or((said, ""));
            let named: BTreeSet<&str> = said.split('`').skip(1).step_by(2).collect();
            let known: BTreeSet<&str> =
                all_words().iter().filter(|w| w.kind == WordKind::Option && w.of == module).map(|w| w.name).collect();
            for option in known.difference(&named) {
                faults.push(format!("Modules: the row of `{module}` lacks its option `{option}`"));
            }
            for option in refused.split('`').skip(1).step_by(2).filter(|option| known.contains(option)) {
                faults.push(format!("Modules: the row of `{module}` refuses `{option}`, which is one of its options"));
            }
            for option in named.difference(&known) {
                faults.push(format!("Modules: the row of `{module}` names `{option}`, which is none of its options"));
            }
        }
        assert!(faults.is_empty(), "docs/reference/playbooks.md\n{}", faults.join("\n"));
    }

    #[test]
    fn a_fault_is_found() {
        let mut faults = Vec::new();
        compare(
            "\n## Lookups\n| `env` | same |\n| `nosuch` | same |\n",
            "Lookups",
            WordKind::Lookup,
            true,
            &mut faults,
        );
        let text = faults.join("\n");
        for part in ["lacks `| `dict`", "`env` is `differs", "`nosuch` is not in the code"] {
            assert!(text.contains(part), "{part}\n{text}");
        }
    }
}
