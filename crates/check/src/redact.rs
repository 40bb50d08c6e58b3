//! Hides the passwords in URLs: `http://me:***@host/`. Pure.

/// The text that replaces a password.
pub(super) const MASK: &str = "***";

/// `text` with the passwords of all URLs replaced. User names stay.
pub(super) fn redact_passwords(text: &str) -> String {
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        out += before;
        rest = match password(after) {
            Some((begin, end)) => {
                out += &after[..begin];
                out += MASK;
                &after[end..]
            }
            None => after,
        };
    }
    out + rest
}

/// The position of the password in the text after `://`. The text may come from any command line,
/// so only `user:password@` without white space is a password.
fn password(after: &str) -> Option<(usize, usize)> {
    let word = &after[..after.find(char::is_whitespace).unwrap_or(after.len())];
    let url = &word[..word.find(['"', '\'', '`']).unwrap_or(word.len())];
    let authority = &url[..url.find(['/', '?', '#']).unwrap_or(url.len())];
    let begin = authority.find(':').map(|at| at + 1);
    let host = match authority.rfind('@') {
        Some(at) if begin.is_some_and(|begin| begin <= at) => return begin.map(|begin| (begin, at)),
        Some(at) => at + 1,
        None => 0,
    };
    // A port that is not a number is the beginning of a password, if an `@` follows.
    let port = authority[host..].split_once(':')?.1;
    if authority[host..].starts_with('[') || port.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let end = url.rfind('@').filter(|end| *end >= host).or_else(|| word.rfind('@'));
    begin.zip(end).filter(|(begin, end)| begin <= end)
}

#[cfg(test)]
mod tests {
    use super::redact_passwords;

    #[test]
    fn only_passwords_are_hidden() {
        for (text, shown) in [
            ("http://me:secret@h:80/a:b@c", "http://me:***@h:80/a:b@c"),
            ("https://me:a@b:c@h", "https://me:***@h"),
            ("http://:x@h?u=ftp://u:p@h", "http://:***@h?u=ftp://u:***@h"),
            ("http://me@h:80/", "http://me@h:80/"),
            ("http://h:80/", "http://h:80/"),
            ("http://[::1]:80/a@b", "http://[::1]:80/a@b"),
            ("http://me:secret@[::1]:80/", "http://me:***@[::1]:80/"),
            ("tcp:80 a@b:c", "tcp:80 a@b:c"),
            ("http://h://me:p@h", "http://h://me:***@h"),
            // Only passwords in URLs are hidden; other words of a command stay unchanged.
            ("curl -s http://localhost:8080 -u me@x", "curl -s http://localhost:8080 -u me@x"),
            ("curl 'http://localhost:8080','me@x'", "curl 'http://localhost:8080','me@x'"),
            ("curl \"http://me:pw@h:80\"\t'b@c'", "curl \"http://me:***@h:80\"\t'b@c'"),
            ("a http://h:80/?q=me@x http://me:pw@h", "a http://h:80/?q=me@x http://me:***@h"),
            ("`http://me:secret word@h` is none", "`http://me:secret word@h` is none"),
            // Passwords with characters that would end the authority.
            ("http://me:hunt/er2@h/", "http://me:***@h/"),
            ("http://me:hunt?er#2@h:80/", "http://me:***@h:80/"),
            ("http://me@work:hunt/er2@h/", "http://me@work:***@h/"),
            ("http://me:it's@h/", "http://me:***@h/"),
        ] {
            assert_eq!(redact_passwords(text), shown);
        }
    }
}
