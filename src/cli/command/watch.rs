//! `remoor watch`: prints events as they happen. The formatting of stream items is also used by
//! `job logs` and by following jobs.

use crate::cli::api::Api;
use crate::cli::error::CommandError;
use crate::cli::exit::Exit;
use crate::cli::interrupt::Interrupt;
use crate::cli::moment::Today;
use crate::cli::out::Out;
use crate::cli::story::{self, Story};
use remoor_cluster::rpc::view::StreamItem;
use remoor_model::count_noun;
use serde_json::Value;
use std::collections::BTreeMap;

pub async fn run(api: &Api, out: &Out) -> anyhow::Result<Exit> {
    let mut interrupt = Interrupt::new()?;
    let mut lines = api.stream("/v1/watch").await?;
    let mut printer = StreamPrinter::default();
    if !out.quiet && !out.format.is_machine() {
        out.talk("watching; Ctrl-C ends it");
    }
    loop {
        let Some(line) = interrupt.unless_interrupted(lines.next()).await else { return Ok(Exit::Interrupted) };
        let Some(value) = line? else {
            let text = "the manager ended the stream";
            return Err(CommandError::new(Exit::CouldNotAsk, text)
                .next("remoor watch again, and remoor history for the missed events")
                .into());
        };
        printer.print(out, value)?;
    }
}

/// Formats the items of an event stream as lines.
#[derive(Debug, Default)]
pub struct StreamPrinter {
    story: Story,
}

impl StreamPrinter {
    pub fn new(names: BTreeMap<u64, String>) -> Self {
        Self { story: Story::new(names) }
    }

    /// Prints an item of an event stream. An item that this version can't parse is printed as JSON.
    pub fn print(&mut self, out: &Out, value: Value) -> anyhow::Result<()> {
        if out.machine_line(&value)? {
            return Ok(());
        }
        let text = match serde_json::from_value::<StreamItem>(value.clone()) {
            Ok(item) => self.line(&item, Today::now()),
            Err(_) => Some(value.to_string()),
        };
        if let Some(text) = text {
            out.text(&format!("{text}\n"))?;
        }
        Ok(())
    }

    /// The line for a stream item. None: the item is not shown to people.
    pub fn line(&mut self, item: &StreamItem, today: Today) -> Option<String> {
        match item {
            StreamItem::History { item, node } => {
                if let (Some(id), Some(name)) = (item.node, node) {
                    self.story.learn(id.0, name);
                }
                Some(story::lines(&mut self.story, item, today))
            }
            StreamItem::Task { job, phase, event, .. } => {
                task_text(event).map(|text| format!("job {job}  {phase}  {text}"))
            }
            StreamItem::Missed { count } => Some(format!("({})", missed_text(*count))),
            StreamItem::Resync { .. } => {
                Some("(this manager caught up by a snapshot; remoor history shows the missed events)".to_owned())
            }
            StreamItem::End { text } if text.is_empty() => None,
            StreamItem::End { text } => Some(format!("end: {text}")),
        }
    }
}

/// The text for stream items that were dropped because they came too fast.
pub fn missed_text(count: u64) -> String {
    format!("{} {} missed", count_noun(count, "line"), if count == 1 { "was" } else { "were" })
}

/// The text of a playbook event. None: the event is not shown.
pub fn task_text(event: &Value) -> Option<String> {
    let text = |key: &str| event.get(key).and_then(Value::as_str).unwrap_or_default();
    let item = event.get("item").and_then(Value::as_str).map(|i| format!(" [{i}]")).unwrap_or_default();
    match text("event") {
        "task-start" => None,
        "task" | "handler" => {
            let ms = event.get("took_ms").and_then(Value::as_u64).unwrap_or(0);
            let message = match text("msg") {
                "" => String::new(),
                msg => format!(": {msg}"),
            };
            let rc = event.get("rc").and_then(Value::as_i64).filter(|rc| *rc != 0);
            let rc = rc.map(|rc| format!(" rc={rc}")).unwrap_or_default();
            let took = crate::cli::duration::age(ms);
            Some(format!("{:<8} {}{item}{rc} ({took}){message}", text("status"), text("name")))
        }
        "output" => Some(format!("    {}", text("line"))),
        _ => Some(event.to_string()),
    }
}

/// Whether an event is shown while a job is followed. This is so for a task that changed something
/// or failed.
pub fn is_notable(event: &Value) -> bool {
    matches!(event.get("status").and_then(Value::as_str), Some("changed" | "failed"))
}
