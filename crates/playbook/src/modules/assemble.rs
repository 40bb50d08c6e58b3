//! The `assemble` module: builds a file from the files of a directory, which is on the node or in
//! the fleet directory.

use super::content::asset_content;
use super::{ModuleCall, ModuleResult, write_file};
use crate::lang::pyregex;
use crate::os::atomic_fs;
use regex::bytes::Regex;
use rustix::fs::FileType;
use serde_json::json;

/// Maximum number of fragments.
const FRAGMENTS_MAX: usize = 10_000;
/// Maximum size of the file, in bytes.
const FILE_MAX: usize = 64 << 20;

/// The name and the content of a fragment.
type Fragment = (Vec<u8>, Vec<u8>);

pub fn assemble(call: &mut ModuleCall) -> ModuleResult {
    let remote = call.flag("remote_src", true);
    let dest = call.path(&["dest"])?;
    let pattern = call.text(&["regexp"]);
    let pattern = pattern.map(|text| pyregex::bytes(&text).build().map_err(|e| format!("pattern `{text}`: {e}")));
    let pattern = pattern.transpose()?;
    let src = call.required_text(&["src"])?;
    let fragments = if remote { fragments_of_node(call)? } else { fragments_of_plan(call, &src)? };
    let skips_hidden = call.flag("ignore_hidden", false);
    let wanted = |name: &[u8]| {
        pattern.as_ref().is_none_or(|pattern: &Regex| pattern.is_match(name))
            && !(skips_hidden && name.starts_with(b"."))
    };
    let fragments: Vec<Vec<u8>> =
        fragments.into_iter().filter(|(name, _)| wanted(name)).map(|(_, content)| content).collect();
    let content = join_fragments(&fragments, &delimiter(call, remote));
    if content.len() > FILE_MAX {
        return Err(format!("the fragments have more than {FILE_MAX} bytes"));
    }
    let (dest, now) = write_file::resolve_target(call, &dest)?.unwrap_or((dest, None));
    let old = write_file::read_old(call, &dest, now.as_ref())?;
    let mut out = write_file::update_file(call, &dest, old, content, "assemble")?;
    out.extra_keys.remove("path");
    out.diff_path = Some(dest.display().to_string());
    if remote {
        out.extra_keys.insert("src".into(), json!(src));
        out.extra_keys.insert("msg".into(), json!("OK"));
    }
    Ok(out)
}

/// The text between two fragments, with the newline after it.
fn delimiter(call: &ModuleCall, remote: bool) -> Vec<u8> {
    let Some(text) = call.text(&["delimiter"]).filter(|text| !text.is_empty()) else { return Vec::new() };
    let mut out = unescape(&text);
    // With fragments of the controller, Ansible adds a newline in any case.
    if !remote || out.last() != Some(&b'\n') {
        out.push(b'\n');
    }
    out
}

fn join_fragments(fragments: &[Vec<u8>], delimiter: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for (at, fragment) in fragments.iter().enumerate() {
        if at > 0 {
            if !fragments[at - 1].ends_with(b"\n") {
                out.push(b'\n');
            }
            out.extend_from_slice(delimiter);
        }
        out.extend_from_slice(fragment);
    }
    out
}

/// Names and contents of the files in the directory `src` of the node, sorted by name.
fn fragments_of_node(call: &ModuleCall) -> Result<Vec<Fragment>, String> {
    let src = call.path(&["src"])?;
    let node = &call.ground.node;
    let Some((dir, stat)) = node.find_trusted(&src)? else {
        return Err(node.note_missing(format!("Source ({}) does not exist", src.display())));
    };
    if atomic_fs::kind(&stat) != FileType::Directory {
        return Err(format!("Source ({}) is not a directory", src.display()));
    }
    let names = node.list(&dir)?;
    if names.len() > FRAGMENTS_MAX {
        return Err(format!("{} has more than {FRAGMENTS_MAX} files", src.display()));
    }
    let mut out = Vec::new();
    for name in names {
        let Some((path, stat)) = node.find_trusted(&dir.join(&name))? else { continue };
        if atomic_fs::kind(&stat) == FileType::RegularFile {
            out.push((name.into_encoded_bytes(), node.read(&path)?));
        }
    }
    Ok(out)
}

/// Names and contents of the files of the plan in the directory `src`, sorted by name.
fn fragments_of_plan(call: &ModuleCall, src: &str) -> Result<Vec<Fragment>, String> {
    let plain = src.trim_end_matches('/');
    let plain = plain.strip_prefix("./").unwrap_or(plain);
    let mut out = Vec::new();
    for (name, asset) in &call.task.files.assets {
        let Some(name) = name.strip_prefix(plain).and_then(|rest| rest.strip_prefix('/')) else { continue };
        if !name.contains('/') {
            out.push((name.as_bytes().to_vec(), asset_content(call.plan, asset)?.to_vec()));
        }
    }
    if out.is_empty() {
        return Err(format!("the plan does not contain the directory `{src}`"));
    }
    Ok(out)
}

/// Replaces the escape sequences of Python's byte strings.
fn unescape(text: &str) -> Vec<u8> {
    let bytes = text.as_bytes();
    let mut out = Vec::new();
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        at += 1;
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        let Some(&next) = bytes.get(at) else {
            out.push(byte);
            break;
        };
        at += 1;
        let digits = |most: usize, radix: u32| {
            let is_digit = |b: &&u8| char::from(**b).is_digit(radix);
            bytes[at..].iter().take(most).take_while(is_digit).count()
        };
        let number = |from: usize, to: usize, radix: u32| u32::from_str_radix(&text[from..to], radix).ok();
        let simple = match next {
            b'n' => Some(b'\n'),
            b't' => Some(b'\t'),
            b'r' => Some(b'\r'),
            b'a' => Some(7),
            b'b' => Some(8),
            b'f' => Some(12),
            b'v' => Some(11),
            b'\\' | b'\'' | b'"' => Some(next),
            _ => None,
        };
        match next {
            b'\n' => {}
            b'x' if digits(2, 16) == 2 => {
                out.extend(number(at, at + 2, 16).map(|n| n.to_le_bytes()[0]));
                at += 2;
            }
            b'0'..=b'7' => {
                let more = digits(2, 8);
                out.extend(number(at - 1, at + more, 8).map(|n| n.to_le_bytes()[0]));
                at += more;
            }
            _ => match simple {
                Some(byte) => out.push(byte),
                None => out.extend([b'\\', next]),
            },
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escape_sequences_are_those_of_python() {
        assert_eq!(unescape(r"a\n\x41\101\q\\"), b"a\nAA\\q\\");
        assert_eq!(unescape("#\\"), b"#\\");
    }

    #[test]
    fn fragments_are_on_lines_of_their_own() {
        let parts = [b"a".to_vec(), b"b\n".to_vec(), b"c".to_vec()];
        assert_eq!(join_fragments(&parts, b"--\n"), b"a\n--\nb\n--\nc");
    }
}
