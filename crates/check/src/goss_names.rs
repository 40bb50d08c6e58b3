//! Names of types and properties in goss's results, which sometimes differ from those in check
//! files. Pure.

/// The name of a resource type in goss's results: `File`, `HTTP`, `KernelParam`.
pub fn goss_type(kind: &str) -> String {
    match kind {
        "dns" | "http" => kind.to_uppercase(),
        other => other.split('-').map(capital).collect(),
    }
}

/// The name of a property in goss's results: `linkedto` for `linked-to` of a file.
pub fn goss_property<'a>(kind: &str, property: &'a str) -> &'a str {
    match (kind, property) {
        ("file", "linked-to") => "linkedto",
        ("http", "headers") => "Headers",
        ("http", "body") => "Body",
        ("package", "versions") => "version",
        (_, same) => same,
    }
}

/// Writes the first letter in upper case.
pub(super) fn capital(word: &str) -> String {
    let mut chars = word.chars();
    chars.next().map(|first| first.to_ascii_uppercase()).into_iter().chain(chars).collect()
}
