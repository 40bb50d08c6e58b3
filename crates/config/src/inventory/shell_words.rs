//! Splits a line into words like a POSIX shell. `#` begins a comment in host lines of INI
//! inventories and in SSH arguments, but not in variables of a command line.

/// The words of `line`. Err: the reason why the line cannot be split, such as a quote without its
/// end. As in Python's shlex, `#` begins a comment also within a word.
pub fn split(line: &str) -> Result<Vec<String>, &'static str> {
    split_words(line, true)
}

/// Like [`split`], but `#` is an ordinary character.
pub fn split_without_comments(line: &str) -> Result<Vec<String>, &'static str> {
    split_words(line, false)
}

fn split_words(line: &str, comments: bool) -> Result<Vec<String>, &'static str> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        match c {
            '#' if comments => break,
            c if c.is_whitespace() => words.extend(word.take()),
            '\'' => {
                let word = word.get_or_insert_default();
                loop {
                    match chars.next() {
                        Some('\'') => break,
                        Some(c) => word.push(c),
                        None => return Err("a `'` without its end"),
                    }
                }
            }
            '"' => {
                let word = word.get_or_insert_default();
                loop {
                    match chars.next() {
                        Some('"') => break,
                        Some('\\') => match chars.next() {
                            Some(c @ ('"' | '\\')) => word.push(c),
                            Some(c) => word.extend(['\\', c]),
                            None => return Err("a `\\` at the end"),
                        },
                        Some(c) => word.push(c),
                        None => return Err("a `\"` without its end"),
                    }
                }
            }
            '\\' => match chars.next() {
                Some(c) => word.get_or_insert_default().push(c),
                None => return Err("a `\\` at the end"),
            },
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::split;

    #[test]
    fn words_are_split_as_by_shlex() {
        let table: &[(&str, &[&str])] = &[
            ("a  b\tc", &["a", "b", "c"]),
            (r#"a='x y' b="p \"q\" \n" c\ d"#, &["a=x y", r#"b=p "q" \n"#, "c d"]),
            ("a # rest", &["a"]),
            ("a=b#c d", &["a=b"]),
            ("a='' ''", &["a=", ""]),
            ("", &[]),
        ];
        for (line, want) in table {
            assert_eq!(split(line).unwrap(), *want, "{line}");
        }
        assert_eq!(super::split_without_comments("a=#fff  b").unwrap(), ["a=#fff", "b"]);
        for line in ["'a", "\"a", "a\\"] {
            assert!(split(line).is_err(), "{line}");
        }
    }
}
