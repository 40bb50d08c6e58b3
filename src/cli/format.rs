//! The format of an answer: for people, for programs, or from a template.

use super::error::CommandError;
use remoor_cluster::rpc::view::with_times;
use serde::Serialize;
use std::str::FromStr;

/// Value of `--output`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Format {
    #[default]
    Table,
    /// A table with more columns and no cut cells.
    Wide,
    Json,
    /// A Tera template that is rendered with the JSON of the answer.
    Template(String),
}

impl FromStr for Format {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "table" => Ok(Self::Table),
            "wide" => Ok(Self::Wide),
            "json" => Ok(Self::Json),
            _ => match text.strip_prefix("template=") {
                Some(template) => Ok(Self::Template(template.to_owned())),
                None => Err("expected table, wide, json or template='...'".to_owned()),
            },
        }
    }
}

impl Format {
    /// Whether the format is for programs.
    pub fn is_machine(&self) -> bool {
        matches!(self, Self::Json | Self::Template(_))
    }

    /// The answer (`view`) in a format for programs, with a line end. None: the format is for
    /// people.
    pub fn machine(&self, view: &impl Serialize) -> anyhow::Result<Option<String>> {
        let text = match self {
            Self::Table | Self::Wide => return Ok(None),
            Self::Json => serde_json::to_string_pretty(&with_timestamps(view)?)?,
            Self::Template(template) => render(template, view)?,
        };
        Ok(Some(if text.is_empty() || text.ends_with('\n') { text } else { text + "\n" }))
    }

    /// Like [`Format::machine`], but JSON is on one line, for streams.
    pub fn machine_line(&self, view: &impl Serialize) -> anyhow::Result<Option<String>> {
        match self {
            Self::Json => Ok(Some(serde_json::to_string(&with_timestamps(view)?)? + "\n")),
            other => other.machine(view),
        }
    }
}

/// The answer (`view`) as JSON. The API sends timestamps as numbers; each gets a text in RFC 3339
/// beside it.
fn with_timestamps(view: &impl Serialize) -> anyhow::Result<serde_json::Value> {
    let mut value = serde_json::to_value(view)?;
    with_times(&mut value);
    Ok(value)
}

fn render(template: &str, view: &impl Serialize) -> anyhow::Result<String> {
    let value = with_timestamps(view)?;
    let wrong = |e: tera::Error| CommandError::usage_error("the template can't be rendered").cause(&e);
    let context = tera::Context::from_serialize(&value).map_err(wrong)?;
    Ok(tera::Tera::one_off(template, &context, false).map_err(wrong)?)
}
