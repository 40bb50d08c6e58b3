//! The merge key `<<` of YAML 1.1, with the order and precedence of PyYAML.

use super::yaml::{SpannedData, SpannedKey, SpannedNode};
use std::collections::BTreeMap;

/// The key whose value is merged into the map.
const MERGE: &str = "<<";
/// Added to a repeated merge key, because the parser refuses a key that occurs twice. The character
/// is for private use, so it is no part of a real key.
const REPEATED: char = '\u{f8ff}';

/// Whether a key merges its value. A key in quotes does not.
pub fn is_merge_key(key: &str, source: &str) -> bool {
    key == source && key.trim_end_matches(REPEATED) == MERGE
}

/// A map may have several merge keys; the parser refuses the second. Returns the text with that key
/// changed. None: the error is another one.
pub fn number_key(text: &str, error: &serde_saphyr::Error) -> Option<String> {
    let serde_saphyr::Error::DuplicateMappingKey { key: Some(key), location } = error else { return None };
    let (line, column) = (location.line() as usize, location.column() as usize);
    let start = text.split_inclusive('\n').take(line.checked_sub(1)?).map(str::len).sum::<usize>();
    let at = start + text[start..].chars().take(column.checked_sub(1)?).map(char::len_utf8).sum::<usize>();
    let is_key = is_merge_key(key, key) && text[at..].starts_with(key.as_str());
    is_key.then(|| format!("{}{key}{REPEATED}{}", &text[..at], &text[at + key.len()..]))
}

/// The keys and values of a map, in order.
type Pairs = Vec<(SpannedKey, SpannedNode)>;

/// The pairs of a map that merges other maps, in the order of PyYAML: first the merged keys, in
/// their order, then the other own keys. An own key replaces the value of a merged key. The second
/// value is the position of a merged value that is no map.
pub fn merge_maps(merged: Vec<SpannedNode>, own: Pairs) -> (Pairs, Option<(u32, u32)>) {
    let (mut pairs, mut wrong) = (Vec::new(), None);
    for node in merged {
        let at = (node.line, node.column);
        match node.data {
            SpannedData::Map(more) => pairs.extend(more),
            // Of a list, the first map takes precedence over the others.
            SpannedData::List(items) => {
                for item in items.into_iter().rev() {
                    match item.data {
                        SpannedData::Map(more) => pairs.extend(more),
                        _ => wrong = Some((item.line, item.column)),
                    }
                }
            }
            _ => wrong = Some(at),
        }
    }
    pairs.extend(own);
    let mut out: Pairs = Vec::new();
    let mut place_of: BTreeMap<String, usize> = BTreeMap::new();
    for (key, value) in pairs {
        match place_of.get(&key.text) {
            Some(at) => out[*at] = (key, value),
            None => {
                place_of.insert(key.text.clone(), out.len());
                out.push((key, value));
            }
        }
    }
    (out, wrong)
}

#[cfg(test)]
mod tests {
    use super::super::yaml::parse;

    /// PyYAML gives these values, in this order.
    #[test]
    fn merged_keys_come_before_own_keys() {
        let maps = "a: &a {x: 1, y: 2}\nb: &b {y: 3, z: 4}\n";
        for (text, want) in [
            ("{<<: *a, y: 5}", r#"{"x":1,"y":5}"#),
            ("{w: 0, <<: *a, y: 5, v: 6}", r#"{"x":1,"y":5,"w":0,"v":6}"#),
            ("{<<: [*a, *b]}", r#"{"y":2,"z":4,"x":1}"#),
            ("{<<: {m: 1}, n: 2}", r#"{"m":1,"n":2}"#),
            ("{'<<': 1}", r#"{"<<":1}"#),
            ("{<<: *a, <<: *b}", r#"{"x":1,"y":3,"z":4}"#),
            ("\n  <<: *a\n  p: 0\n  <<: *b\n  <<: {z: 5}", r#"{"x":1,"y":3,"z":5,"p":0}"#),
            ("{<<: {<<: *a, p: 1}, q: 2}", r#"{"x":1,"y":2,"p":1,"q":2}"#),
        ] {
            let (node, _) =
                parse("m.yml", &format!("{maps}c: {text}\n")).unwrap_or_else(|fault| panic!("{text}: {fault}"));
            assert_eq!(node.get("c").unwrap().json().to_string(), want, "{text}");
        }
        for wrong in ["{<<: 1}", "{<<: [*a, 1]}", "{<<: }"] {
            let fault = parse("m.yml", &format!("{maps}c: {wrong}\n")).unwrap_err();
            assert_eq!((fault.line, fault.message.as_str()), (3, "`<<` takes a map or a list of maps"), "{wrong}");
        }
    }
}
