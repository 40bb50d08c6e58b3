//! Rules for names and sizes. No function has the name of a bare preposition, participle or
//! pronoun. Names of public types are unique. Functions and structs stay short. Documents that a
//! text refers to exist.
//!
//! The rules read tokens, and lines of code that rustfmt has formatted. They do not parse the
//! language.

use super::source::Source;
use std::collections::BTreeMap;
use std::path::Path;

/// Words that are not allowed as a whole function name: prepositions, adverbs, pronouns,
/// determiners, participles, and verbs that need an object.
const BARE: &str = "of at by in on to up out off over under above below behind beside between beyond among after before \
    since until once about apart aside away along across against near through towards toward instead as like unlike per \
    than then here there elsewhere again always never often soon late later early together alone otherwise perhaps far \
    only also else within without with down inside outside around ahead back afterwards everywhere anywhere twice all \
    any both each every few many most more none nobody nothing one other others another ours us it itself own same some \
    such that this these those what which who whose whoever anybody two three several told said held kept left lost led \
    made met sent seen shown taken written given gone done drawn found heard known ran begun began built bound spent \
    hidden broken chosen forgotten spoilt won thrown meant sworn come came saw became understood untold unseen unread \
    unmet unknown undone unset look looks looked word words plain tell tells hear hears lets rest nap small whole good \
    says say short long large wrong well way is has must may would let because whether when where why how yes no not \
    and or but if ago";
/// Nouns and verbs that end like participles but are not participles.
const NOUNS: &str = "need seed feed speed embed shed red bed exceed proceed ping string timing warning setting heading \
    finding mapping padding encoding listing recording open listen token ten children len even screen happen shorten \
    flatten golden tighten lengthen deepen";

/// Bare names that are allowed, because a trait of the standard library or of another crate
/// requires them.
const DEMANDED: &str = "from into next expecting enabled";

/// Maximum number of lines of a function, from its signature to its closing brace.
const FUNCTION_LINES_MAX: usize = 100;
/// Maximum number of fields of a struct. If a stored or sent form has more fields, `flat_form!`
/// lists them, because such a form is flat. The struct itself then consists of smaller structs.
const FIELDS_MAX: usize = 20;

fn is_bare(name: &str) -> bool {
    let among = |list: &str| list.split_whitespace().any(|word| word == name);
    let is_function = name.starts_with(|c: char| c.is_ascii_lowercase());
    if !is_function || name.contains('_') || among(DEMANDED) {
        return false;
    }
    let participle = ["ed", "ing", "en"].iter().any(|end| name.ends_with(end)) && name.len() > 3 && !among(NOUNS);
    among(BARE) || participle
}

/// Functions whose name is a bare word, as `file: name`.
pub fn bare_functions(sources: &[Source]) -> Vec<String> {
    let mut faults = Vec::new();
    for source in sources {
        for pair in source.names.windows(2) {
            if let [[keyword], [name]] = [pair[0].as_slice(), pair[1].as_slice()]
                && keyword == "fn"
                && is_bare(name)
            {
                faults.push(format!("{}: fn {name}: name it by a verb phrase (docs/style.md, Names)", source.path));
            }
        }
    }
    faults
}

/// Names of public types that occur more than once, with their files.
pub fn repeated_types(sources: &[Source]) -> Vec<String> {
    let mut types: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for source in sources {
        for line in source.text.lines() {
            let rest = ["struct", "enum", "trait", "type", "union"]
                .iter()
                .find_map(|kind| line.trim_start().strip_prefix("pub ")?.strip_prefix(kind)?.strip_prefix(' '));
            let end = |rest: &str| rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
            if let Some(name) = rest.map(|rest| &rest[..end(rest)]) {
                // `$name` in a macro is not a name.
                if name.is_empty() {
                    continue;
                }
                types.entry(name).or_default().push(&source.path);
            }
        }
    }
    let repeated = types.into_iter().filter(|(_, files)| files.len() > 1);
    repeated.map(|(name, files)| format!("public type {name}: in {}", files.join(", "))).collect()
}

/// Functions over [`FUNCTION_LINES_MAX`] lines and structs of more than [`FIELDS_MAX`] fields.
pub fn oversized_items(sources: &[Source]) -> Vec<String> {
    let mut faults = Vec::new();
    for source in sources {
        let lines: Vec<&str> = source.text.lines().collect();
        for (start, line) in lines.iter().enumerate() {
            let code = line.trim_start();
            let words: Vec<&str> = code.split(['(', '<', ' ']).collect();
            let is_head = |word: &str| ["pub", "const", "async", "unsafe", "crate)", "super)"].contains(&word);
            let keyword = words.iter().position(|word| !is_head(word)).unwrap_or(0);
            let kind = words.get(keyword).copied().unwrap_or_default();
            if !matches!(kind, "fn" | "struct") || code.ends_with(';') || code.ends_with('}') {
                continue;
            }
            let closing = format!("{}}}", &line[..line.len() - code.len()]);
            let Some(length) =
                lines[start..].iter().position(|l| *l == closing || (*l).starts_with(&format!("{closing} ")))
            else {
                continue;
            };
            let name = words.get(keyword + 1).copied().unwrap_or_default();
            let body = &lines[start..start + length];
            if kind == "fn" && length + 1 > FUNCTION_LINES_MAX {
                let path = &source.path;
                faults.push(format!("{path}: fn {name}: {} lines, the maximum is {FUNCTION_LINES_MAX}", length + 1));
            }
            let field = |l: &&&str| {
                let l = l.trim_start();
                let l = l.strip_prefix("pub ").unwrap_or(l);
                l.split_once(": ").is_some_and(|(n, _)| n.chars().all(|c| c.is_alphanumeric() || c == '_'))
            };
            let fields = body.iter().filter(field).count();
            if kind == "struct" && fields > FIELDS_MAX {
                faults.push(format!("{}: struct {name}: {fields} fields, the maximum is {FIELDS_MAX}", source.path));
            }
        }
    }
    faults
}

/// References to documents that are not in the repository. These are file names `*.md` that exist
/// neither below the root, nor below `docs/`, nor next to the text; and the titles of the first
/// design papers.
pub fn dangling_references(root: &Path, path: &str, text: &str) -> Vec<String> {
    let papers = ["DES IGN", "SCENA RIOS", "PLAY BOOKS"].map(|title| title.replace(' ', ""));
    let beside = Path::new(path).parent().unwrap_or(Path::new(""));
    let mut faults = Vec::new();
    for word in text.split(|c: char| !c.is_alphanumeric() && !"_./-".contains(c)) {
        let word = word.trim_matches(|c| c == '.' || c == '-');
        if papers.iter().any(|paper| paper == word) {
            faults.push(format!("{path}: refers to {word}, which is not in the repository"));
        }
        let there = |base: &Path| root.join(base).join(word).exists();
        // Outside of pages, a name that does not begin with `docs/` may be data of a test.
        let is_page = path.ends_with(".md");
        let is_document = word.len() > 3 && word.ends_with(".md") && !word.starts_with('/');
        let is_document = is_document && (is_page || word.starts_with("docs/"));
        if is_document
            && !["", "docs", "docs/concepts", "docs/guides", "docs/reference"]
                .map(Path::new)
                .into_iter()
                .chain([beside])
                .any(there)
        {
            faults.push(format!("{path}: refers to {word}, which does not exist"));
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bare_names_are_found() {
        let text = "impl A { fn of() {} pub async fn told() {} fn load_identity() {} fn from() {} fn joining() {} }";
        assert_eq!(bare_functions(&[Source::new("a.rs", text)]).len(), 3);
        assert_eq!(
            bare_functions(&[Source::new("a.rs", "fn ping() {} fn open() {} let f: fn(u8); fn held_by() {}")]),
            [""; 0]
        );
    }

    #[test]
    fn repeated_public_types_are_found() {
        let one = Source::new("a.rs", "pub struct Place;\npub enum Kind {}\nstruct Private;\n");
        let two = Source::new("b.rs", "    pub enum Place<T> {}\nstruct Private;\n");
        assert_eq!(repeated_types(&[one, two]), ["public type Place: in a.rs, b.rs"]);
    }

    #[test]
    fn long_functions_and_large_structs_are_found() {
        let long =
            format!("    pub async fn long(\n    ) {{\n{}    }}\n", "        step();\n".repeat(FUNCTION_LINES_MAX));
        let large =
            format!("pub struct Large {{\n{}}}\n", "    /// Why: so.\n    pub field: u8,\n".repeat(FIELDS_MAX + 1));
        let source = Source::new("a.rs", &(long + &large));
        let faults = oversized_items(&[source]);
        assert_eq!(faults.len(), 2, "{faults:?}");
        assert!(faults[0].contains("fn long") && faults[1].contains("struct Large"), "{faults:?}");
        let fine = format!("fn short() {{\n}}\n{}", "step();\n".repeat(FUNCTION_LINES_MAX));
        assert_eq!(oversized_items(&[Source::new("a.rs", &fine)]), [""; 0]);
    }

    #[test]
    fn references_to_missing_documents_are_found() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let found = |text: &str| dangling_references(root, "src/x.rs", text).len();
        assert_eq!(found(&["see DES", "IGN section 4"].concat()), 1);
        assert_eq!(found(&["see docs/none-such", ".md."].concat()), 1);
        assert_eq!(found("see README.md and docs/dependencies.md."), 0);
    }
}
