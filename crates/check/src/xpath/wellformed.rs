//! Rules of well-formed XML that the reader of the crate does not check. Pure.

use quick_xml::errors::{Error, IllFormedError};

pub(super) const NO_CHARACTER: &str = "a character that is not allowed in XML";
pub(super) const NO_ENTITY: &str = "an entity that is not supported";
pub(super) const NO_NAME: &str = "a name that is not allowed in XML";
pub(super) const NOT_ENDED: &str = "an element is not closed";
pub(super) const OUTSIDE: &str = "a text outside of all elements";

/// The reader's error, without the names and entities that it quotes.
pub(super) fn describe_error(error: &Error) -> String {
    match error {
        Error::IllFormed(IllFormedError::MismatchedEndTag { .. } | IllFormedError::UnmatchedEndTag(_)) => {
            "an end tag that does not match the open element".to_owned()
        }
        Error::IllFormed(IllFormedError::MissingEndTag(_)) => NOT_ENDED.to_owned(),
        Error::Escape(_) => NO_ENTITY.to_owned(),
        other => other.to_string(),
    }
}

pub(super) fn is_char(c: char) -> bool {
    !matches!(c, '\0'..='\u{8}' | '\u{b}' | '\u{c}' | '\u{e}'..='\u{1f}' | '\u{fffe}' | '\u{ffff}')
}

/// Whether this is a name with at most one colon and text on both sides of it.
pub(super) fn is_name(text: &str) -> bool {
    let begins = |c: char| {
        matches!(c, 'A'..='Z' | 'a'..='z' | '_' | '\u{c0}'..='\u{d6}' | '\u{d8}'..='\u{f6}' | '\u{f8}'..='\u{2ff}'
            | '\u{370}'..='\u{37d}' | '\u{37f}'..='\u{1fff}' | '\u{200c}' | '\u{200d}' | '\u{2070}'..='\u{218f}'
            | '\u{2c00}'..='\u{2fef}' | '\u{3001}'..='\u{d7ff}' | '\u{f900}'..='\u{fdcf}' | '\u{fdf0}'..='\u{fffd}'
            | '\u{10000}'..='\u{effff}')
    };
    let goes_on = |c: char| {
        begins(c) || matches!(c, '-' | '.' | '0'..='9' | '\u{b7}' | '\u{300}'..='\u{36f}' | '\u{203f}'..='\u{2040}')
    };
    let is_part = |part: &str| part.starts_with(begins) && part.chars().all(goes_on);
    let (prefix, local) = text.split_once(':').unwrap_or(("_", text));
    is_part(prefix) && is_part(local)
}

/// Whether this is a valid target of a processing instruction: a name without a colon that is not
/// reserved for XML.
pub(super) fn is_instruction(target: &str) -> bool {
    is_name(target) && !target.contains(':') && !target.eq_ignore_ascii_case("xml")
}

/// Whether white space follows each attribute value of a tag except the last.
pub(super) fn are_apart(attributes: &str) -> bool {
    let mut quote = None;
    attributes.bytes().zip(attributes.bytes().skip(1).chain([b' '])).all(|(byte, next)| match quote {
        Some(open) if open == byte => {
            quote = None;
            next.is_ascii_whitespace()
        }
        None if matches!(byte, b'"' | b'\'') => {
            quote = Some(byte);
            true
        }
        _ => true,
    })
}

pub(super) fn predefined_entity(name: &str) -> Option<char> {
    Some(match name {
        "lt" => '<',
        "gt" => '>',
        "amp" => '&',
        "quot" => '"',
        "apos" => '\'',
        _ => return None,
    })
}
