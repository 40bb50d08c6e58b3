//! Passwords in URLs, which nobody is to see: `http://me:***@host/`. Pure.

/// `text` without the passwords of the URLs in it; users stay.
pub(super) fn masked(text: &str) -> String {
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        let (authority, behind) = after.split_at(after.find(['/', '?', '#']).unwrap_or(after.len()));
        out += before;
        match authority.rsplit_once('@').and_then(|(who, host)| Some((who.split_once(':')?.0, host))) {
            Some((user, host)) => out += &format!("{user}:***@{host}"),
            None => out += authority,
        }
        rest = behind;
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::masked;

    #[test]
    fn only_passwords_are_hidden() {
        for (text, shown) in [
            ("http://me:secret@h:80/a:b@c", "http://me:***@h:80/a:b@c"),
            ("https://me:a@b:c@h", "https://me:***@h"),
            ("http://:x@h?u=ftp://u:p@h", "http://:***@h?u=ftp://u:***@h"),
            ("http://me@h:80/", "http://me@h:80/"),
            ("http://h:80/", "http://h:80/"),
            ("tcp:80 a@b:c", "tcp:80 a@b:c"),
            ("`http://me:secret word@h` is none", "`http://me:***@h` is none"),
        ] {
            assert_eq!(masked(text), shown);
        }
    }
}
