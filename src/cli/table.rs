//! Aligned columns without borders, with a header in capitals. Line ends in cells are escaped, so
//! that no cell can fake a row.

use remoor_model::sanitize;

/// Maximum length of a cell on a terminal, in characters. A longer cell is cut unless the format is
/// wide.
const CELL_MAX: usize = 60;

#[derive(Debug, Clone, Default)]
pub struct Table {
    header: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

/// The options for printing a table.
#[derive(Debug, Clone, Copy, Default)]
pub struct TableStyle {
    pub headers: bool,
    /// Whether long cells are cut. A cut is marked with `…`.
    pub cut: bool,
}

impl Table {
    pub fn new(header: impl IntoIterator<Item = &'static str>) -> Self {
        Self { header: header.into_iter().collect(), rows: Vec::new() }
    }

    /// Adds a row. An empty cell is shown as `-`.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let cells = cells.into_iter().map(|cell| match cell.is_empty() {
            true => "-".to_owned(),
            false => sanitize::cell(&cell).into_owned(),
        });
        self.rows.push(cells.collect());
    }

    /// Adds a line below the last row. The text is in the last column; the cells before it stay
    /// blank.
    pub fn detail(&mut self, text: &str) {
        let mut row = vec![String::new(); self.header.len().saturating_sub(1)];
        row.push(format!("  {}", sanitize::cell(text)));
        self.rows.push(row);
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The lines of the table. Each ends with a line end and has no trailing spaces.
    pub fn render(&self, look: TableStyle) -> String {
        let mut lines: Vec<Vec<String>> = Vec::new();
        if look.headers {
            lines.push(self.header.iter().map(|h| (*h).to_owned()).collect());
        }
        let last = self.header.len().saturating_sub(1);
        for row in &self.rows {
            let cells = row.iter().enumerate();
            lines.push(cells.map(|(i, c)| if look.cut && i < last { cut(c) } else { c.clone() }).collect());
        }
        let width = |i: usize| lines.iter().filter_map(|l| l.get(i)).map(|c| c.chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..self.header.len()).map(width).collect();
        let mut out = String::new();
        for line in &lines {
            let mut text = String::new();
            for (cell, width) in line.iter().zip(&widths) {
                text.push_str(&format!("{cell:<width$}  "));
            }
            out.push_str(text.trim_end());
            out.push('\n');
        }
        out
    }
}

fn cut(cell: &str) -> String {
    if cell.chars().count() <= CELL_MAX {
        return cell.to_owned();
    }
    cell.chars().take(CELL_MAX - 1).chain(['…']).collect()
}

/// `name: value` lines with aligned values.
pub fn fields(fields: &[(&str, String)]) -> String {
    let width = fields.iter().map(|(name, _)| name.len()).max().unwrap_or(0) + 1;
    let mut out = String::new();
    for (name, value) in fields {
        let value = if value.is_empty() { "-".into() } else { sanitize::cell(value) };
        let name = format!("{name}:");
        out.push_str(&format!("{name:<width$}  {value}\n"));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_cut() {
        let mut table = Table::new(["NODE", "WHY"]);
        table.row(["ä".repeat(70), String::new()]);
        table.row(["w1".to_owned(), "x".repeat(80)]);
        let text = table.render(TableStyle { headers: true, cut: true });
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], format!("NODE{}  WHY", " ".repeat(CELL_MAX - 4)));
        assert_eq!(lines[1], format!("{}…  -", "ä".repeat(CELL_MAX - 1)));
        assert!(lines[2].ends_with(&"x".repeat(80)), "the last column is never cut");
        assert_eq!(table.render(TableStyle::default()).lines().count(), 2);
        table.row(["a\nw2".to_owned(), "x\r".to_owned()]);
        let text = table.render(TableStyle::default());
        assert!(text.contains("\na␊w2 ") && text.ends_with(" x␍\n") && text.lines().count() == 3, "{text}");
        table.detail("more\rof it");
        assert!(table.render(TableStyle::default()).ends_with(&format!("\n{}more␍of it\n", " ".repeat(74))));
        assert_eq!(fields(&[("of", "a\nroot: b".to_owned())]), "of:  a␊root: b\n");
    }
}
