//! Tera within bounds: no template of a user takes a manager down, and none takes a misspelt name for false.
//!
//! Tera bounds the nesting and the length of expressions, and the numbers of a `range`, but neither loops nor values. So behind each
//! loop's beginning and each value that is kept a call is put which counts (`metered`), and the template that results is
//! rendered in its place; it writes the same. What can't be counted is refused: components, and lists that are made by a `for`
//! within an expression. Knows nothing of files, hosts or checks.

mod markup;
mod meter;
mod metered;

use meter::{Meter, RESULT_MAX};
use metered::{Metered, metered};
use std::io::{self, Write};
use tera::{Context, Tera};

/// Whether a path of names, as `["vars", "port"]`, is certainly without a value.
pub type Missing<'a> = &'a dyn Fn(&[&str]) -> bool;

/// Why there is no text. Lines and columns begin with 1; 0: not known.
#[derive(Debug, thiserror::Error)]
pub enum Stop {
    /// It is no template, or can't be rendered.
    #[error(transparent)]
    Tera(Box<tera::Error>),
    /// It takes too much, or can't be counted.
    #[error("{why}")]
    Bound { line: u32, column: u32, why: String },
    /// It asks for a value that is not there, where Tera would say false.
    #[error("`{name}` is not defined")]
    Undefined { line: u32, column: u32, name: String },
}

impl From<tera::Error> for Stop {
    fn from(error: tera::Error) -> Self {
        Self::Tera(Box::new(error))
    }
}

/// Renders `text` as `tera` is set up, under `name`. `missing`: of which paths a use is a fault, unless the template asks
/// whether they are defined, or has a default for them.
pub fn render(tera: &Tera, name: &str, text: &str, context: &Context, missing: Missing<'_>) -> Result<String, Stop> {
    let mut plain = tera.clone();
    plain.add_raw_template(name, text)?;
    let run = |missing: Missing<'_>| measured(tera, name, metered(text, missing)?, context);
    // Once it is known to end with this error within the bounds, it is Tera's own, whose columns are those of the text.
    let own = |error| match plain.render(name, context) {
        Err(own) => Stop::from(own),
        Ok(_) => Stop::Tera(error),
    };
    match run(missing) {
        Err(Stop::Tera(error)) => Err(own(error)),
        Err(undefined @ Stop::Undefined { .. }) => match run(&|_: &[&str]| false) {
            Ok(_) => Err(undefined),
            Err(Stop::Tera(error)) => Err(own(error)),
            Err(other) => Err(other),
        },
        other => other,
    }
}

fn measured(tera: &Tera, name: &str, metered: Metered, context: &Context) -> Result<String, Stop> {
    let meter = Meter::new(metered.places);
    let mut tera = tera.clone();
    meter.register(&mut tera);
    let unbounded = |why: String| Stop::Bound { line: 0, column: 0, why };
    tera.add_raw_template(name, &metered.text)
        .map_err(|_| unbounded("what the template does can't be counted: write it in smaller steps".to_owned()))?;
    let mut out = Page::default();
    match tera.render_to(name, context, &mut out) {
        Ok(()) => String::from_utf8(out.bytes).map_err(|e| unbounded(e.to_string())),
        Err(error) => Err(match meter.ended() {
            Some(Stop::Bound { line: 0, column, why }) => Stop::Bound { line: line_of(&error), column, why },
            Some(stop) => stop,
            None if out.full => unbounded(format!("the text that results is larger than {} MiB", RESULT_MAX >> 20)),
            None => error.into(),
        }),
    }
}

/// Lines are those of the text: what is put into it has no line ends.
fn line_of(error: &tera::Error) -> u32 {
    match error.kind() {
        tera::ErrorKind::RenderingError(report) => u32::try_from(report.span().start_line).unwrap_or(0),
        _ => 0,
    }
}

/// What is rendered, of bounded length.
#[derive(Default)]
struct Page {
    bytes: Vec<u8>,
    full: bool,
}

impl Write for Page {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.full = self.full || self.bytes.len() + bytes.len() > RESULT_MAX;
        if self.full {
            return Err(io::Error::other("the text is too long"));
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
