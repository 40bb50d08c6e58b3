//! Tera as remoor configures it, and its errors in a form that a child process can send to its
//! parent.

use super::RENDERED_MAX;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tera::{Context, ErrorKind, Kwargs, State, Tera};

/// The name of the only template of an engine.
const NAME: &str = "template";

/// The reason why a template can't be rendered. `text` is the message of Tera, with a drawing of
/// the position.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum TemplateError {
    #[error("{text}")]
    Syntax { place: TeraPlace, text: String },
    #[error("{text}")]
    Rendering { place: TeraPlace, text: String },
    /// An error without a position.
    #[error("{text}")]
    Other { text: String },
    /// A limit was exceeded; see [`super::LIMIT_HINT`].
    #[error("{text}")]
    Limit { text: String },
}

/// A position in a template, and the error at this position.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TeraPlace {
    /// The line in the template, counted from 1.
    pub line: usize,
    /// The column in this line, counted from 0.
    pub column: usize,
    /// The offset in bytes from the beginning of the template.
    pub start: usize,
    pub message: String,
}

impl TemplateError {
    pub fn of_tera(error: &tera::Error) -> Self {
        let text = remoor_model::error_with_causes(error);
        let (ErrorKind::SyntaxError(report) | ErrorKind::RenderingError(report)) = error.kind() else {
            return Self::Other { text };
        };
        let place = TeraPlace {
            line: report.span().start_line,
            column: report.span().start_col,
            start: report.span().range.start,
            message: report.message().to_owned(),
        };
        match error.kind() {
            ErrorKind::SyntaxError(_) => Self::Syntax { place, text },
            _ => Self::Rendering { place, text },
        }
    }

    /// The message of Tera or of the limit.
    pub fn text(&self) -> &str {
        match self {
            Self::Syntax { text, .. } | Self::Rendering { text, .. } | Self::Other { text } | Self::Limit { text } => {
                text
            }
        }
    }
}

/// The output so far. Writing fails when it becomes too long, which also ends an endless loop that
/// prints.
#[derive(Default)]
struct BoundedOutput(Vec<u8>);

impl std::io::Write for BoundedOutput {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.0.len() + bytes.len() > RENDERED_MAX {
            return Err(std::io::Error::other(format!("the output is longer than {RENDERED_MAX} bytes")));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Tera without escaping, with the filter `to_json`.
pub fn new_engine() -> Tera {
    let mut tera = Tera::new();
    tera.autoescape_on(Vec::<&'static str>::new());
    tera.register_filter("to_json", |v: &tera::Value, _: Kwargs, _: &State| {
        serde_json::to_string(v).map_err(tera::Error::message)
    });
    tera
}

/// Renders in this process.
pub fn render_here(text: &str, variables: &Map<String, Value>) -> Result<String, TemplateError> {
    let mut tera = new_engine();
    tera.add_raw_template(NAME, text).map_err(|e| TemplateError::of_tera(&e))?;
    let mut context = Context::new();
    for (name, value) in variables {
        context.insert(name.clone(), value);
    }
    let mut out = BoundedOutput::default();
    tera.render_to(NAME, &context, &mut out).map_err(|e| TemplateError::of_tera(&e))?;
    // Tera writes texts only.
    String::from_utf8(out.0).map_err(|e| TemplateError::Other { text: e.to_string() })
}
