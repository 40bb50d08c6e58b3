//! What goss's results call types and properties, which is not always what check files call them. Pure.

/// `File`, `HTTP`, `KernelParam`.
pub fn goss_type(kind: &str) -> String {
    match kind {
        "dns" | "http" => kind.to_uppercase(),
        other => other.split('-').map(capital).collect(),
    }
}

/// The property of a type of this name: `linkedto` of a file's `linked-to`.
pub fn goss_property<'a>(kind: &str, property: &'a str) -> &'a str {
    match (kind, property) {
        ("file", "linked-to") => "linkedto",
        ("http", "headers") => "Headers",
        ("http", "body") => "Body",
        ("package", "versions") => "version",
        (_, same) => same,
    }
}

/// The first letter large.
pub(super) fn capital(word: &str) -> String {
    let mut chars = word.chars();
    chars.next().map(|first| first.to_ascii_uppercase()).into_iter().chain(chars).collect()
}
