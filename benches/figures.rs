//! The rows of the table of figures, and the files from which `make bench` prints all rows as one
//! table.

use std::fmt::Write as _;

/// A row of the table of figures: a target and its measured result.
pub struct Figure {
    pub what: &'static str,
    pub wanted: &'static str,
    pub found: String,
    pub met: bool,
    pub command: &'static str,
}

/// Prints the rows, and writes them to `figures-NAME.md` in the `tmp` of the build directory.
pub fn publish(name: &str, figures: &[Figure]) {
    let mut rows = String::new();
    for figure in figures {
        let Figure { what, wanted, found, met, command } = figure;
        let mark = if *met { "" } else { " **missed**" };
        let _ = writeln!(rows, "| {what} | {wanted} | {found}{mark} | `{command}` |"); // a write to a String never fails
    }
    print!("{rows}");
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("figures-{name}.md"));
    if let Err(error) = std::fs::write(&path, rows) {
        println!("the rows could not be left in {}: {error}", path.display());
    }
}
