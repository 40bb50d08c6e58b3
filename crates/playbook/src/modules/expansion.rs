//! Expansion of `$NAME`, `${NAME}`, `~` and `~user` in paths and in words of commands, as Python's
//! `expandvars` and `expanduser` do it.

use crate::os::acting_user::{env_var, home_dir};
use crate::vars::var_map;

/// Expands a text. Names without a value stay as written. `env` takes precedence over the
/// environment of this process. `home_of`: the home directory of a user, if the user exists.
pub fn expand(text: &str, env: &[(String, String)], home_of: &dyn Fn(&str) -> Option<String>) -> String {
    let value = |name: &str| {
        let own = env.iter().rev().find(|(k, _)| k == name).map(|(_, v)| v.clone());
        // A value with markup is left out, because the value of an environment variable must not be
        // rendered as a template.
        own.or_else(|| env_var(name)).filter(|v| !var_map::has_markup(v))
    };
    let mut out = String::new();
    let mut rest = text;
    if let Some(tail) = text.strip_prefix('~') {
        let user = tail.split('/').next().unwrap_or_default();
        if let Some(home) = match user {
            "" => value("HOME").or_else(|| Some(home_dir().display().to_string())),
            user => home_of(user),
        } {
            out.push_str(&home);
            rest = &tail[user.len()..];
        }
    }
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        let (name, len) = match after.strip_prefix('{').and_then(|inner| inner.split_once('}')) {
            Some((name, _)) => (name, name.len() + 2),
            None => {
                let end = after.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(after.len());
                (&after[..end], end)
            }
        };
        match value(name).filter(|_| !name.is_empty()) {
            Some(value) => out.push_str(&value),
            None => out.push_str(&rest[at..=at + len]),
        }
        rest = &after[len..];
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_and_home_directories_are_expanded() {
        let env = [("A".to_owned(), "1".to_owned()), ("HOME".to_owned(), "/h".to_owned())];
        let home_of = |name: &str| (name == "root").then(|| "/root".to_owned());
        for (text, want) in [
            ("$A", "1"),
            ("x${A}y$A", "x1y1"),
            ("$NO_SUCH_NAME-${NO_SUCH_NAME}$", "$NO_SUCH_NAME-${NO_SUCH_NAME}$"),
            ("$(id) ${", "$(id) ${"),
            ("~/x", "/h/x"),
            ("~", "/h"),
            ("~root/x", "/root/x"),
            ("~root", "/root"),
            ("~nobody-there/x", "~nobody-there/x"),
            ("a~ ~b", "a~ ~b"),
            ("{{ x }}$A", "{{ x }}1"),
        ] {
            assert_eq!(expand(text, &env, &home_of), want, "{text}");
        }
    }
}
