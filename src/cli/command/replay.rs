//! `remoor why NODE --replay`: what the leader was told of a node and what it asked for, and the rules of the last verdict.

use crate::cli::exit::Exit;
use crate::cli::moment::{self, Today};
use crate::cli::out::Out;
use crate::rpc::view::{ReplayVerdict, ReplayView};

pub fn show(out: &Out, view: &ReplayView) -> anyhow::Result<Exit> {
    if !out.machine(view)? {
        out.lines(&tell(view))?;
    }
    Ok(out.source(&view.as_of))
}

fn tell(view: &ReplayView) -> String {
    let today = Today::of(&view.as_of.at);
    let moment = |at: &str| moment::parse(at).map_or_else(|| at.to_owned(), |at| today.show(at));
    let by = &view.as_of.by;
    let mut out = match &view.since {
        Some(since) => {
            format!("{}: what {by} was told and asked for since {}, when it began to lead", view.node, moment(since))
        }
        None => format!("{}: {by} never led since its start, so it was told nothing", view.node),
    };
    if view.dropped > 0 {
        out.push_str(&format!("; {} older steps of all nodes are forgotten", view.dropped));
    }
    if view.left_out > 0 {
        out.push_str(&format!("; {} older ones of this node are left out", view.left_out));
    }
    out.push('\n');
    for step in &view.steps {
        out.push_str(&format!("{}  {}\n", moment(&step.at), step.told));
        for asked in &step.asked {
            out.push_str(&format!("          -> {asked}\n"));
        }
    }
    if view.steps.is_empty() && view.since.is_some() {
        out.push_str("nothing yet\n");
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
                out.push_str(&format!(" (by the state of today; then it was {})", rule.concluded));
            }
            out.push('\n');
        }
    }
    out
}

fn basis(verdict: &ReplayVerdict) -> &'static str {
    match verdict.from.as_str() {
        "evidence" => "rule by rule from the examination behind it:",
        _ => "rule by rule from what the journal keeps (the examination was another leader's, or is forgotten):",
    }
}
