//! One row of the table of figures, and where the benches leave theirs for `make bench` to print as one table.

use std::fmt::Write as _;

/// What was asked for and what was found.
pub struct Figure {
    pub what: &'static str,
    pub wanted: &'static str,
    pub found: String,
    pub met: bool,
    pub command: &'static str,
}

/// Prints the rows and leaves them in the build directory's `tmp`, as `figures-NAME.md`.
pub fn publish(name: &str, figures: &[Figure]) {
    let mut rows = String::new();
    for figure in figures {
        let Figure { what, wanted, found, met, command } = figure;
        let mark = if *met { "" } else { " **missed**" };
        let _ = writeln!(rows, "| {what} | {wanted} | {found}{mark} | `{command}` |"); // a String takes everything
    }
    print!("{rows}");
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("figures-{name}.md"));
    if let Err(error) = std::fs::write(&path, rows) {
        println!("the rows could not be left in {}: {error}", path.display());
    }
}
