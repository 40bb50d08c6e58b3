//! `remoor raft-members`: the members of the Raft cluster, and a table of the failures that each
//! number of managers survives.

use crate::cli::api::Api;
use crate::cli::duration;
use crate::cli::exit::Exit;
use crate::cli::out::Out;
use crate::cli::table::Table;
use remoor_cluster::rpc::view::{RaftMemberView, RaftView};
use remoor_model::{majority, spread, spread_text, tolerated_losses};
use serde_json::json;

/// Numbers of managers in the table of survived failures.
const SIZES: std::ops::RangeInclusive<usize> = 1..=9;
/// Number of zones in the table. It is the smallest number with which the loss of one zone does not
/// end the quorum.
const ZONES: usize = 3;

pub async fn run(api: &Api, out: &Out) -> anyhow::Result<Exit> {
    show(out, &api.get("/v1/raft").await?)
}

pub fn show(out: &Out, view: &RaftView) -> anyhow::Result<Exit> {
    if !out.machine(view)? {
        if out.quiet {
            out.names(view.members.iter().map(|m| m.node.as_deref().unwrap_or("-")))?;
        } else {
            out.text(&heading(view))?;
            out.table(&list(view))?;
        }
    }
    Ok(out.source(&view.as_of))
}

fn heading(view: &RaftView) -> String {
    let joint = if view.joint { "yes" } else { "no" };
    let mut out =
        format!("term {}   log to {}, applied to {}   joint: {joint}", view.term, view.last_log, view.last_applied);
    if !view.committed {
        out.push_str("   this list is not committed yet");
    }
    out.push('\n');
    for warning in &view.warnings {
        out.push_str(&format!("warning: {warning}\n"));
    }
    out + "\n"
}

fn list(view: &RaftView) -> Table {
    let mut table = Table::new(["ID", "NODE", "ADDRESS", "RAFT", "MATCH", "LAG", "ANSWERED", "NOTE"]);
    let number = |n: Option<u64>| n.map(|n| n.to_string()).unwrap_or_default();
    for member in &view.members {
        let mark = if member.node.as_ref() == Some(&view.as_of.by) { "*" } else { "" };
        table.row([
            member.id.to_string(),
            member.node.as_ref().map(|name| format!("{name}{mark}")).unwrap_or_default(),
            member.address.clone(),
            member.is.clone(),
            number(member.matched),
            number(member.lag),
            member.answered_ms.map(|ms| format!("{} ago", duration::age(ms))).unwrap_or_default(),
            note(member),
        ]);
    }
    table
}

fn note(member: &RaftMemberView) -> String {
    let mut notes = Vec::new();
    if member.orphan {
        notes.push("orphan");
    }
    if member.leaving {
        notes.push("leaving");
    } else if member.role.as_deref() == Some("worker") {
        notes.push("to become a worker");
    }
    notes.join(", ")
}

/// Prints the table of `--table`. No manager is contacted.
pub fn table(out: &Out) -> anyhow::Result<Exit> {
    let row = |managers: usize| json!({"managers": managers, "majority": majority(managers), "survives": tolerated_losses(managers), "zones": spread(managers, ZONES)});
    if !out.machine(&json!({"version": 1, "table": SIZES.map(row).collect::<Vec<_>>()}))? {
        let mut table = Table::new(["MANAGERS", "MAJORITY", "FAILURES SURVIVED", "OVER THREE ZONES"]);
        for managers in SIZES {
            let [n, majority, spare] =
                [managers, majority(managers), tolerated_losses(managers)].map(|n| n.to_string());
            table.row([n, majority, spare, spread_text(managers, ZONES)]);
        }
        out.table(&table)?;
    }
    Ok(Exit::Done)
}
