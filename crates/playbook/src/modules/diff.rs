//! Unified diffs of file contents. Binary and long contents are summarised by size and SHA-256.

use remoor_model::Sha256;
use std::path::Path;
use std::time::Duration;

/// Maximum length of a content that is diffed, in bytes (the limit of Ansible).
const CONTENT_MAX: usize = 104_448;
/// Maximum length of a diff, in bytes.
const DIFF_MAX: usize = 256 << 10;

/// The diff of two contents of the file at `path`. `before` is None if the file did not exist;
/// `source` names the origin of the new content.
pub fn unified_diff(before: Option<&[u8]>, after: &[u8], path: &Path, source: &str) -> String {
    let old = before.unwrap_or_default();
    let name = path.display().to_string();
    let from = if before.is_some() { name.as_str() } else { "/dev/null" };
    let said = |bytes: &[u8]| format!("{} bytes, sha256 {}", bytes.len(), Sha256::digest(bytes));
    let summary = || format!("--- {from}: {}\n+++ {source}: {}\n", said(old), said(after));
    let text = |bytes| std::str::from_utf8(bytes).ok().filter(|t| t.len() <= CONTENT_MAX && !t.contains('\0'));
    let Some((a, b)) = text(old).zip(text(after)) else { return summary() };
    let diff = similar::TextDiff::configure().timeout(Duration::from_millis(500)).diff_lines(a, b);
    let out = diff.unified_diff().context_radius(3).header(from, source).to_string();
    if out.len() > DIFF_MAX { summary() } else { out }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn text_is_diffed_and_other_content_is_summarised() {
        let path = Path::new("/etc/x");
        expect![[r#"
            --- /etc/x
            +++ x.j2
            @@ -1,2 +1,2 @@
             a
            -b
            +c
            \ No newline at end of file
        "#]]
        .assert_eq(&unified_diff(Some(b"a\nb\n"), b"a\nc", path, "x.j2"));
        expect![[r#"
            --- /dev/null
            +++ content
            @@ -0,0 +1 @@
            +a
        "#]]
        .assert_eq(&unified_diff(None, b"a\n", path, "content"));
        let long = vec![b'x'; CONTENT_MAX + 1];
        for (old, new) in [(&b"a\0"[..], &b"b"[..]), (b"\xff", b""), (&long, b"")] {
            let told = unified_diff(Some(old), new, path, "s");
            assert!(told.starts_with(&format!("--- /etc/x: {} bytes, sha256 ", old.len())), "{told}");
        }
        assert!(unified_diff(Some(&long[1..]), b"", path, "s").contains("@@"));
    }
}
