//! Adds a check to the text of a check file and leaves every other line unchanged. Pure.

use super::header::header;
use super::redact::redact_passwords;
use super::yaml::{self, YamlKey, YamlNode};
use remoor_model::Fault;
use serde_json::{Map, Value};

/// A new check: its resource type, its id and its attributes.
#[derive(Debug, Clone)]
pub struct Addition {
    pub kind: String,
    pub id: String,
    pub attributes: Vec<(&'static str, Value)>,
}

impl Addition {
    /// `type:id` for messages, without the passwords of URLs.
    pub fn label(&self) -> String {
        redact_passwords(&format!("{}:{}", self.kind, self.id))
    }

    /// The check as YAML lines, to be inserted below the line of its resource type.
    fn lines(&self, indent: usize) -> String {
        let blank = " ".repeat(indent);
        let mut text = format!("{blank}{}:\n", key(&self.id));
        for (name, value) in &self.attributes {
            match value {
                Value::Array(items) => {
                    text += &format!("{blank}  {name}:\n");
                    for item in items {
                        text += &format!("{blank}    - {}\n", scalar(item));
                    }
                }
                other => text += &format!("{blank}  {name}: {}\n", scalar(other)),
            }
        }
        text
    }

    fn value(&self) -> Value {
        Value::Object(self.attributes.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect())
    }
}

/// Returns `text` with the check `more` added. Err if a check of that type and id exists already,
/// or if the file cannot be extended as it is written.
pub fn add(file: &str, text: &str, more: &Addition) -> Result<String, Vec<Fault>> {
    let refuse = |message: String, hint: &str| vec![Fault::error(file, 0, 0, message).hint(hint)];
    if ["{{", "{%", "{#"].iter().any(|mark| text.contains(mark)) {
        let message = "the file is a template, so its content is not known before rendering".to_owned();
        return Err(refuse(message, "run the command without --file to print the check, and insert it by hand"));
    }
    if ["{{", "{%", "{#"].iter().any(|mark| more.lines(0).contains(mark)) {
        let message = format!("`{}` contains template markup", more.label());
        return Err(refuse(message, "write it by hand into a file with `template: none` in its `remoor:` block"));
    }
    let before = tree(file, text)?;
    if text.trim_start().starts_with('{') {
        return Err(refuse(
            "the file is JSON; checks can be added to YAML only".to_owned(),
            "run the command without --file to print the check",
        ));
    }
    let types = before.pairs();
    let block = types.iter().find(|(key, _)| key.text == more.kind);
    if let Some((id, _)) = block.and_then(|(_, ids)| ids.pairs().iter().find(|(id, _)| id.text == more.id)) {
        let message = format!("`{}` already exists", more.label());
        return Err(vec![Fault::error(file, id.line, id.column, message)]);
    }
    let added = match block {
        None => append(text, &format!("{}:\n{}", more.kind, more.lines(2))),
        Some((kind, ids)) => {
            let after = types.iter().map(|(other, _)| other.line).filter(|line| *line > kind.line).min();
            insert(text, kind, ids, after, more)
        }
    };
    // The result must contain everything that was in the file, and the new check.
    let wanted = with_addition(before.value(), more);
    match tree(file, &added) {
        Ok(tree) if tree.value() == wanted => Ok(added),
        _ => Err(refuse(
            format!("`{}` is written in a form that cannot be extended", more.kind),
            "run the command without --file to print the check, and insert it by hand",
        )),
    }
}

/// The YAML tree without the `remoor:` block, which is read separately.
fn tree(file: &str, text: &str) -> Result<YamlNode, Vec<Fault>> {
    yaml::parse(file, &header(file, text)?.1)
}

/// The value that the file must have after `more` is added.
fn with_addition(tree: Value, more: &Addition) -> Value {
    let mut types = match tree {
        Value::Object(types) => types,
        _ => Map::new(),
    };
    let ids = types.entry(more.kind.clone()).or_insert(Value::Null);
    if ids.is_null() {
        *ids = Value::Object(Map::new());
    }
    if let Value::Object(ids) = ids {
        ids.insert(more.id.clone(), more.value());
    }
    Value::Object(types)
}

/// The line ending of `text`; new lines use the same one.
fn line_end(text: &str) -> &'static str {
    match text.split_once('\n') {
        Some((first, _)) if first.ends_with('\r') => "\r\n",
        _ => "\n",
    }
}

fn append(text: &str, block: &str) -> String {
    let end = line_end(text);
    let gap = if text.is_empty() || text.ends_with('\n') { "" } else { end };
    format!("{text}{gap}{}", block.replace('\n', end))
}

/// Inserts `more` after the last line of the block of its type. `after` is the line on which the
/// next block begins.
fn insert(text: &str, kind: &YamlKey, ids: &YamlNode, after: Option<u32>, more: &Addition) -> String {
    let indent = ids.pairs().first().map_or(2, |(id, _)| id.column.saturating_sub(1) as usize);
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let end = after.map_or(lines.len(), |line| line.saturating_sub(1) as usize).min(lines.len());
    let is_block = |line: &&&str| line.starts_with([' ', '\t']) && !line.trim().is_empty();
    let own = lines.get(kind.line as usize..end).unwrap_or_default();
    let length = own.iter().rposition(|line| is_block(&line)).map_or(0, |at| at + 1);
    let at = (kind.line as usize + length).min(lines.len());
    append(&lines[..at].concat(), &more.lines(indent)) + &lines[at..].concat()
}

fn key(text: &str) -> String {
    scalar(&text.into())
}

/// Writes a string plain if every YAML reader reads it as the same string; otherwise in double
/// quotes.
fn scalar(value: &Value) -> String {
    const WORDS: [&str; 9] = ["yes", "no", "on", "off", "true", "false", "null", "y", "n"];
    match value {
        Value::String(text) => {
            let plain = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/')
                && text.chars().all(|c| c.is_ascii_alphanumeric() || "/_.@+-:".contains(c))
                && !text.ends_with(':')
                && !WORDS.iter().any(|word| text.eq_ignore_ascii_case(word));
            if plain { text.clone() } else { quote_yaml(text) }
        }
        other => other.to_string(),
    }
}

fn quote_yaml(text: &str) -> String {
    let mut out = String::from('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            c if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}') => {
                out.push_str(&format!("\\U{:08x}", u32::from(c)));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;
    use proptest::prelude::*;

    fn file(id: &str) -> Addition {
        let attributes = vec![("exists", true.into()), ("mode", "0644".into())];
        Addition { kind: "file".into(), id: id.into(), attributes }
    }

    fn add_example(text: &str) -> String {
        match add("f.yml", text, &file("/etc/x")) {
            Ok(text) => text,
            Err(faults) => faults.iter().map(|fault| format!("{fault}\n")).collect(),
        }
    }

    #[test]
    fn adding_a_check_keeps_all_other_lines() {
        let text = "# about\nremoor: {service: web}\n\nfile: # the files\n    /etc/a: {exists: true} # one\n    # more\n\n\n# users\nuser:\n  root: {exists: true}";
        expect![[r##"
            # about
            remoor: {service: web}

            file: # the files
                /etc/a: {exists: true} # one
                # more
                /etc/x:
                  exists: true
                  mode: "0644"


            # users
            user:
              root: {exists: true}
        "##]]
        .assert_eq(&(add_example(text) + "\n"));
        expect![[r#"
            file:
              /etc/x:
                exists: true
                mode: "0644"
            --
            user: {}
            file:
              /etc/x:
                exists: true
                mode: "0644"
            --
            file:
              /etc/x:
                exists: true
                mode: "0644"
            --
            file:
              /etc/x:
                exists: true
                mode: "0644"
            user: {root: {exists: true}}
        "#]]
        .assert_eq(
            &[
                add_example(""),
                add_example("user: {}\n"),
                add_example("file:\n"),
                add_example("file:\nuser: {root: {exists: true}}\n"),
            ]
            .join("--\n"),
        );
        expect![[r#"
            f.yml:2:3: `file:/etc/x` already exists
            f.yml: `file` is written in a form that cannot be extended
              hint: run the command without --file to print the check, and insert it by hand
            f.yml: the file is JSON; checks can be added to YAML only
              hint: run the command without --file to print the check
            f.yml: the file is a template, so its content is not known before rendering
              hint: run the command without --file to print the check, and insert it by hand
            f.yml:1:7: unclosed bracket '['
            f.yml: `file` is written in a form that cannot be extended
              hint: run the command without --file to print the check, and insert it by hand
        "#]]
        .assert_eq(
            &[
                "file:\n  /etc/x: {exists: true}\n",
                "file: {/etc/a: {exists: true}}\n",
                "{\"file\": {}}",
                "file:\n{{ if true }}",
                "file: [\n",
                "a: 1\n...\n",
            ]
            .map(add_example)
            .concat(),
        );
    }

    #[test]
    fn messages_hide_passwords() {
        let more = Addition { kind: "http".into(), id: "http://me:secret@h/".into(), attributes: Vec::new() };
        let told = add("f", "http:\n  http://me:secret@h/: {status: 200}\n", &more).unwrap_err();
        assert_eq!(told[0].message, "`http:http://me:***@h/` already exists");
    }

    #[test]
    fn line_endings_are_kept() {
        let text = "# a\r\nfile:\r\n  /etc/a: {exists: true}\r\n\r\nuser:\r\n  root: {exists: true}";
        let new = "  /etc/x:\r\n    exists: true\r\n    mode: \"0644\"\r\n";
        assert_eq!(add_example(text), text.replace("true}\r\n\r\nuser", &format!("true}}\r\n{new}\r\nuser")));
        let text = "user:\r\n  root: {exists: true}";
        assert_eq!(add_example(text), format!("{text}\r\nfile:\r\n{new}"));
        assert_eq!(
            add_example("file:\r\n  /etc/a: {exists: true}"),
            format!("file:\r\n  /etc/a: {{exists: true}}\r\n{new}")
        );
    }

    proptest! {
        #[test]
        fn any_id_and_value_is_read_back(id in "\\PC{1,12}", value in "[\\PC\n\t\u{7f}\u{85}\u{1b}]{0,12}") {
            let attributes = vec![("stdout", Value::from(vec![value.clone(), "!x".to_owned()])), ("stderr", value.into())];
            let more = Addition { kind: "command".into(), id: id.clone(), attributes };
            // An id with markup would make the file a template, to which nothing can be added.
            prop_assume!(!["{{", "{%", "{#"].iter().any(|mark| more.lines(0).contains(mark)));
            let once = add("f", "# c\ncommand:\n  a b: {exit-status: 0}\n", &more);
            let text = once.map_err(|faults| TestCaseError::fail(faults[0].to_string()))?;
            let twice = add("f", &text, &more).unwrap_err();
            prop_assert!(twice[0].message.contains("already exists"), "{}", twice[0]);
        }
    }
}
