//! `remoor why NODE --replay`: prints the events and actions of the leader for a node, and the
//! rules behind the last verdict.

use crate::cli::exit::Exit;
use crate::cli::moment::{self, Today};
use crate::cli::out::Out;
use remoor_cluster::rpc::view::{ReplayVerdict, ReplayView};

pub fn show(out: &Out, view: &ReplayView) -> anyhow::Result<Exit> {
    if !out.machine(view)? {
        out.lines(&replay_text(view))?;
    }
    Ok(out.source(&view.as_of))
}

fn replay_text(view: &ReplayView) -> String {
    let today = Today::from_answer(&view.as_of.at);
    let moment = |at: &str| moment::parse(at).map_or_else(|| at.to_owned(), |at| today.show(at));
    let by = &view.as_of.by;
    let mut out = match &view.since {
        Some(since) => {
            format!("{}: events and actions of {by} since {}, when it became the leader", view.node, moment(since))
        }
        None => format!("{}: {by} was not the leader since its start, so it has no events", view.node),
    };
    if view.dropped > 0 {
        out.push_str(&format!("; {} older steps of all nodes were dropped", view.dropped));
    }
    if view.left_out > 0 {
        out.push_str(&format!("; {} older steps of this node are not shown", view.left_out));
    }
    out.push('\n');
    for step in &view.steps {
        out.push_str(&format!("{}  {}\n", moment(&step.at), step.told));
        for asked in &step.asked {
            out.push_str(&format!("          -> {asked}\n"));
        }
    }
    if view.steps.is_empty() && view.since.is_some() {
        out.push_str("no events yet\n");
    }
    if let Some(verdict) = &view.verdict {
        out.push_str(&format!(
            "\nThe last verdict, of {} by {}, {}\n",
            moment(&verdict.at),
            verdict.by,
            basis(verdict)
        ));
        for evidence in &verdict.evidence {
            out.push_str(&format!("  evidence  {evidence}\n"));
        }
        for rule in &verdict.rules {
            out.push_str(&format!("  {:<8}  {} -> {}", rule.decides, rule.rule, rule.gives));
            if !rule.agrees {
                out.push_str(&format!(" (by the present state; then it was {})", rule.concluded));
            }
            out.push('\n');
        }
    }
    out
}

fn basis(verdict: &ReplayVerdict) -> &'static str {
    match verdict.from.as_str() {
        "evidence" => "rule by rule, from its examination:",
        _ => "rule by rule, from the journal (this leader does not have the examination):",
    }
}
