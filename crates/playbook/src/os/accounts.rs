//! Users and groups by name: from the local files first, then from `getent`.

use crate::os::process::{CommandSpec, run};
use crate::run::event::CancelToken;
use std::time::Duration;

/// Looks up a user or group by name or id; returns its line split at the colons.
fn entry(database: &str, key: &str, cancel: &CancelToken) -> Option<Vec<String>> {
    let cut = |line: &str| line.split(':').map(str::to_owned).collect::<Vec<_>>();
    let matches = |line: &&str| {
        let mut parts = line.split(':');
        parts.next() == Some(key) || parts.nth(1) == Some(key)
    };
    let text = std::fs::read_to_string(format!("/etc/{database}")).unwrap_or_default();
    if let Some(line) = text.lines().find(matches) {
        return Some(cut(line));
    }
    let job = CommandSpec {
        argv: vec!["getent".into(), database.into(), "--".into(), key.into()],
        timeout: Some(Duration::from_secs(10)),
        ..CommandSpec::default()
    };
    let done = run(&job, cancel, &mut |_| {}).ok()?;
    done.stdout.lines().next().filter(|_| done.success()).map(cut)
}

/// Looks up a user: name:x:uid:gid:comment:home:shell
pub fn user(key: &str, cancel: &CancelToken) -> Option<Vec<String>> {
    entry("passwd", key, cancel).filter(|e| e.len() >= 7)
}

/// Looks up a group: name:x:gid:members
pub fn group(key: &str, cancel: &CancelToken) -> Option<Vec<String>> {
    entry("group", key, cancel).filter(|e| e.len() >= 3)
}

/// Parses a mode: octal digits, or letters (`u=rw,g-w,o=`) applied to `old`.
pub fn mode(text: &str, old: u32, directory: bool) -> Result<u32, String> {
    let text = text.trim();
    let wrong = || format!("`{text}` is not a file mode");
    // Python's int() takes the prefix too.
    let digits = text.strip_prefix("0o").unwrap_or(text);
    if digits.bytes().all(|b| b.is_ascii_digit()) && !digits.is_empty() {
        return u32::from_str_radix(digits, 8).ok().filter(|m| *m <= 0o7777).ok_or_else(wrong);
    }
    let mut mode = old;
    for clause in text.split(',') {
        let at = clause.find(['+', '-', '=']).ok_or_else(wrong)?;
        let who = if at == 0 { "a" } else { &clause[..at] };
        let operator = clause.as_bytes()[at];
        for class in who.chars() {
            let shifts: &[u32] = match class {
                'u' => &[6],
                'g' => &[3],
                'o' => &[0],
                'a' => &[6, 3, 0],
                _ => return Err(wrong()),
            };
            for &shift in shifts {
                let mut bits = 0;
                for letter in clause[at + 1..].chars() {
                    bits |= match letter {
                        'r' => 4 << shift,
                        'w' => 2 << shift,
                        'x' => 1 << shift,
                        'X' if directory || mode & 0o111 != 0 => 1 << shift,
                        'X' => 0,
                        's' if shift == 6 => 0o4000,
                        's' if shift == 3 => 0o2000,
                        't' => 0o1000,
                        's' => 0,
                        _ => return Err(wrong()),
                    };
                }
                mode = match operator {
                    b'+' => mode | bits,
                    b'-' => mode & !bits,
                    _ => mode & !(7 << shift) | bits,
                };
            }
        }
    }
    Ok(mode)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_modes_and_names() {
        assert_eq!(mode("0644", 0, false), Ok(0o644));
        assert_eq!(mode("0o755", 0, false), Ok(0o755));
        assert_eq!(mode("u=rw,g=r,o=", 0o777, false), Ok(0o640));
        assert_eq!(mode("a+X", 0o600, true), Ok(0o711));
        assert_eq!(mode("+x", 0o644, false), Ok(0o755));
        assert!(mode("99", 0, false).is_err() && mode("rwx", 0, false).is_err());
        assert_eq!(user("root", &CancelToken::new()).map(|e| e[2].clone()).as_deref(), Some("0"));
        assert!(group("no-such-group-here", &CancelToken::new()).is_none());
    }
}
