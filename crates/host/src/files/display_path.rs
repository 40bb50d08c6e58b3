//! Paths as texts in a digest. Two different paths never have the same text.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The path itself if it is UTF-8. Otherwise the path in shell notation, `$'/etc/\xff'`: every byte
/// that is not printable ASCII is a hex escape, so that an operator can name the file in a shell.
/// No absolute path begins with `$`.
pub(super) fn display_path(path: &Path) -> String {
    if let Some(text) = path.to_str() {
        return text.to_owned();
    }
    let mut out = "$'".to_owned();
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'\'' | b'\\' => out.extend(['\\', char::from(*byte)]),
            b' '..=b'~' => out.push(char::from(*byte)),
            _ => out.push_str(&format!("\\x{byte:02x}")),
        }
    }
    out.push('\'');
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::ffi::OsStr;

    fn display_bytes(bytes: &[u8]) -> String {
        display_path(Path::new(OsStr::from_bytes(bytes)))
    }

    #[test]
    fn displayed_paths_are_valid_in_a_shell() {
        assert_eq!(display_bytes("/etc/ü\n".as_bytes()), "/etc/ü\n");
        assert_eq!(display_bytes(b"/a'b\\\n\xff"), r"$'/a\'b\\\x0a\xff'");
        for bytes in [&b"/a'b\\\n\xff\x01 0f\x7f"[..], b"/\xc3\xbc/\xc3"] {
            let script = format!("printf %s {}", display_bytes(bytes));
            let out = std::process::Command::new("bash").args(["-c", &script]).output().unwrap();
            assert_eq!(out.stdout, bytes);
        }
    }

    fn path() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(prop::sample::select(b"x\xff\xfe\\'f".to_vec()), 0..4)
            .prop_map(|b| [b"/", &b[..]].concat())
    }

    proptest! {
        #[test]
        fn different_paths_have_different_texts(a in path(), b in path()) {
            prop_assert_eq!(a == b, display_bytes(&a) == display_bytes(&b));
        }
    }
}
