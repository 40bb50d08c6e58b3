//! Compares the formats of two versions: the source text of all types that serde writes or reads,
//! and the numbers of the formats. Comments, visibility, paths and the file of a type are ignored,
//! so that code can be moved and documented freely.
//!
//! `tests/fixtures/formats.txt` contains the formats of the previous version. If they are equal,
//! `make test` does not need the program of that version (`versions.rs`). This comparison does not
//! cover rules that are written by hand, or the effect of an applied entry. So `make long-versions`
//! runs both programs even if the source is equal.

use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

pub const FILE: &str = "tests/fixtures/formats.txt";

/// The names of the formats that differ from the previous version.
pub fn changed_formats() -> BTreeSet<String> {
    let before = previous().1;
    present().symmetric_difference(&before).map(|line| line.split(' ').next().unwrap_or_default().to_owned()).collect()
}

/// The commit of the previous version, and its formats.
pub fn previous() -> (String, BTreeSet<String>) {
    let text = fs::read_to_string(root().join(FILE)).expect("the formats of the previous version");
    let commit =
        text.lines().next().and_then(|line| line.strip_prefix("# commit ")).expect("a commit in the first line");
    (commit.to_owned(), text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect())
}

/// Name and digest of each type and each format number in the present source.
fn present() -> BTreeSet<String> {
    let mut files = Vec::new();
    ["src", "crates"].into_iter().for_each(|dir| sources(&root().join(dir), &mut files));
    files.iter().flat_map(|file| items(&fs::read_to_string(file).expect("a source file"))).collect()
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Collects all source files, except files that contain only tests.
fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(dir) else { return };
    for path in entries.map(|entry| entry.expect("an entry").path()) {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        if path.is_dir() {
            if name != "tests" && name != "target" {
                sources(&path, found);
            }
        } else if name.ends_with(".rs") && !name.ends_with("tests.rs") {
            found.push(path);
        }
    }
}

/// The items of a source text. This function relies on rustfmt: an item ends at a closing line with
/// the same indentation as its first line.
fn items(source: &str) -> Vec<String> {
    let (mut found, mut attributes) = (Vec::new(), Vec::new());
    let mut lines = source.lines().peekable();
    while let Some(line) = lines.next() {
        let (text, indent) = (line.trim(), &line[..line.len() - line.trim_start().len()]);
        if text.starts_with("//") {
            continue;
        }
        if text.starts_with("#[") {
            let mut attribute = text.to_owned();
            while !attribute.ends_with(']') {
                attribute += lines.next().unwrap_or("]").trim();
            }
            attributes.push(attribute);
            continue;
        }
        let derived = attributes
            .iter()
            .any(|a| a.starts_with("#[derive") && (has_word(a, "Serialize") || has_word(a, "Deserialize")));
        let written_by_hand =
            text.starts_with("impl") && (text.contains("Serialize for ") || text.contains("Deserialize<'de> for "));
        let number = text.split("const ").nth(1).filter(|rest| {
            let name = rest.split(':').next().unwrap_or_default();
            ["FORMAT", "VERSION", "PROTOCOL", "MAGIC"].iter().any(|word| name.contains(word))
        });
        if !derived && !written_by_hand && number.is_none() {
            attributes.clear();
            continue;
        }
        let mut item: String = attributes.drain(..).filter(|a| a.starts_with("#[serde")).collect();
        item += text;
        let open = !text.ends_with(';') && !text.ends_with('}');
        while open && let Some(line) = lines.next() {
            let code = line.split("//").next().unwrap_or_default().trim();
            item.push(' ');
            item += code;
            let ends_item = line.strip_prefix(indent).is_some_and(|rest| !rest.starts_with(' '));
            if ends_item && (code.ends_with('}') || code.ends_with(';')) {
                break;
            }
        }
        let item = normalize(&item);
        let digest = hex::encode(&Sha256::digest(item.as_bytes())[..6]);
        found.push(format!("{} {digest}", name(&item)));
    }
    found
}

fn has_word(text: &str, word: &str) -> bool {
    split_words(text).any(|one| one == word)
}

fn split_words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

/// Reduces an item to one line without visibility, without paths before names, and without a comma
/// before a closing bracket.
fn normalize(item: &str) -> String {
    let mut out: Vec<String> = Vec::new();
    let mut rest = item;
    while let Some(first) = rest.chars().next() {
        let word = |c: char| c.is_alphanumeric() || c == '_';
        let length = if word(first) { rest.find(|c| !word(c)).unwrap_or(rest.len()) } else { first.len_utf8() };
        let (token, after) = rest.split_at(length);
        rest = after;
        if token.trim().is_empty() {
            continue;
        }
        if word(first) && rest.starts_with("::") {
            rest = &rest[2..];
            continue;
        }
        if token == "pub" {
            if rest.starts_with('(') {
                rest = rest.split_once(')').map_or("", |(_, after)| after);
            }
            continue;
        }
        if matches!(token, ")" | "}" | "]" | ">") && out.last().is_some_and(|last| last == ",") {
            out.pop();
        }
        out.push(token.to_owned());
    }
    out.join(" ")
}

/// The name of the item, used in messages.
fn name(item: &str) -> &str {
    let all: Vec<&str> = split_words(item).collect();
    let after = |key: &str| all.iter().position(|word| *word == key).and_then(|at| all.get(at + 1)).copied();
    if item.starts_with("impl") {
        return after("for").unwrap_or("impl");
    }
    ["struct", "enum", "const"].into_iter().find_map(after).unwrap_or("item")
}

#[test]
fn a_type_is_compared_by_its_fields_and_attributes_and_not_by_its_place() {
    let one = "/// A point.\n#[derive(Debug, Serialize)]\n#[serde(rename_all = \"kebab-case\")]\npub struct Point {\n    \
               /// Across.\n    pub x: crate::model::Millis, // ms\n}\n";
    let moved = "mod inner {\n    #[derive(serde::Serialize, Clone)]\n    #[serde(rename_all = \"kebab-case\")]\n    \
                 pub(crate) struct Point {\n        x: super::Millis,\n    }\n}\n";
    assert_eq!(items(one), items(moved));
    assert!(items(one)[0].starts_with("Point "), "{:?}", items(one));
    for (what, other) in [
        ("a field", one.replace("x:", "y:")),
        ("a type", one.replace("Millis", "Seconds")),
        ("an attribute", one.replace("kebab-case", "snake_case")),
        ("a field more", one.replace("// ms\n", "\n    z: u8,\n")),
    ] {
        assert_ne!(items(one), items(&other), "{what}");
    }
    assert_eq!(items("#[derive(Debug)]\npub struct Point {\n    x: u8,\n}\n"), Vec::<String>::new());
    assert_eq!(items("pub const DATA_FORMAT: u32 = 1;\nconst OTHER: u8 = 1;\n").len(), 1);
    assert_ne!(items("pub const DATA_FORMAT: u32 = 1;\n"), items("pub const DATA_FORMAT: u32 = 2;\n"));
    assert_eq!(items("impl<'de> Deserialize<'de> for Point {\n    fn f() {\n    }\n}\nfn g() {}\n").len(), 1);
}

/// With `REMOOR_PUBLISHED=COMMIT` this test writes `tests/fixtures/formats.txt` again, because the
/// present source is published as that commit.
#[test]
fn the_formats_of_the_previous_version_are_known() {
    if let Ok(commit) = std::env::var("REMOOR_PUBLISHED") {
        let lines: Vec<String> = present().into_iter().collect();
        let text = format!(
            "# commit {commit}\n# The formats of the previous version; tests/it/formats/types.rs says how they are found. \
             `make published` writes this file.\n{}\n",
            lines.join("\n")
        );
        fs::write(root().join(FILE), text).expect("written");
    }
    let (commit, before) = previous();
    assert!(commit.len() >= 7 && commit.chars().all(|c| c.is_ascii_hexdigit()), "{commit}");
    for name in ["ENTRY_FORMAT ", "DATA_FORMAT ", "PROTOCOL ", "Command "] {
        assert!(before.iter().any(|line| line.starts_with(name)), "no {name}among {} formats", before.len());
        assert!(present().iter().any(|line| line.starts_with(name)), "no {name}in this source");
    }
}
