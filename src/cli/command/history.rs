//! `remoor history [NODE]`: prints the journal as text, the oldest event first.

use crate::cli::api::{self, Api};
use crate::cli::args::HistoryArgs;
use crate::cli::exit::Exit;
use crate::cli::moment::Today;
use crate::cli::out::Out;
use crate::cli::story::Story;
use crate::cli::table::Table;
use remoor_cluster::rpc::view::HistoryView;

pub async fn run(api: &Api, out: &Out, args: &HistoryArgs) -> anyhow::Result<Exit> {
    let node = args.node.as_ref().map(|n| format!("&node={}", api::segment(n))).unwrap_or_default();
    let view: HistoryView = api.get(&format!("/v1/history?limit={}{node}", args.limit)).await?;
    show(out, &view)
}

pub fn show(out: &Out, view: &HistoryView) -> anyhow::Result<Exit> {
    if !out.machine(view)? {
        let today = Today::from_answer(&view.as_of.at);
        let mut story = Story::new(view.names.clone());
        let mut table = Table::new(["TIME", "NODE", "WHAT"]);
        for item in &view.items {
            let name = item.node.map(|n| story.name(n.0)).unwrap_or_default();
            let text = story.describe_event(item);
            table.row([today.show(item.at), name, text.headline]);
            text.details.iter().for_each(|detail| table.detail(detail));
        }
        if table.is_empty() {
            out.talk("no events yet");
        } else {
            out.table(&table)?;
        }
    }
    Ok(out.source(&view.as_of))
}
