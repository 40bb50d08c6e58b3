//! `remoor resetup --check`: shows the work that a re-setup would do, and the rules that prevent
//! it. The command sends a manager one request for each node, one after the other.

use crate::cli::api::{self, Api};
use crate::cli::error::CommandError;
use crate::cli::exit::Exit;
use crate::cli::out::Out;
use remoor_cluster::rpc::view::{NodeView, OrderRequest, PlanView};
use remoor_model::count_noun;
use remoor_model::sanitize;
use serde_json::json;

/// Exit code 3: a node could not be examined. 1: a re-setup would be ordered. 0: nothing would be
/// done.
pub async fn run(api: &Api, out: &Out, nodes: &[NodeView], request: &OrderRequest) -> anyhow::Result<Exit> {
    let mut plans: Vec<PlanView> = Vec::new();
    let mut exit = Exit::Done;
    for node in nodes {
        let asked = api.post::<PlanView>(&format!("/v1/nodes/{}/plan", api::segment(&node.name)), request).await;
        match asked {
            Ok(plan) => {
                exit = exit.more_serious(verdict(&plan));
                if !out.format.is_machine() && !out.quiet {
                    out.text(&plan_text(&plan))?;
                }
                plans.push(plan);
            }
            Err(error) if nodes.len() == 1 => return Err(error.into()),
            Err(error) => {
                let stop = CommandError::from_error(&anyhow::Error::from(error));
                exit = exit.more_serious(stop.exit);
                out.talk(stop.render().trim_end());
            }
        }
    }
    if out.quiet && !out.format.is_machine() {
        out.names(plans.iter().filter(|p| p.would_change).map(|p| p.node.as_str()))?;
    }
    out.machine(&json!({"version": 1, "plans": plans}))?;
    Ok(exit)
}

fn verdict(plan: &PlanView) -> Exit {
    match plan.would_change {
        true => Exit::No,
        false if plan.verdict == "same" => Exit::Done,
        false => Exit::CouldNotAsk,
    }
}

pub fn plan_text(plan: &PlanView) -> String {
    let mut text = format!("{}: {}\n", plan.node, sanitize::line(&plan.verdict));
    let mut line = |line: String| text.push_str(&format!("  {}\n", sanitize::line(&line)));
    plan.reasons.iter().for_each(|reason| line(format!("reason: {reason}")));
    match (plan.would_change, plan.services.as_slice()) {
        (false, _) => line("nothing would be done".to_owned()),
        (true, []) => line("would set up again: the whole group".to_owned()),
        (true, services) => line(format!("would set up again: {}", services.join(", "))),
    }
    for phase in ["cleanup", "provision"] {
        let tasks: Vec<_> = plan.tasks.iter().filter(|t| t.phase == phase).collect();
        if !tasks.is_empty() {
            let count = count_noun(tasks.len(), "task");
            line(format!("{phase}: {count} selected"));
            tasks.iter().for_each(|t| line(format!("  {}:{}  {}  {}", t.file, t.line, t.module, t.name)));
        }
    }
    plan.notes.iter().for_each(|note| line(format!("note: {note}")));
    plan.against.iter().for_each(|why| line(format!("prevented by: {why}")));
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use remoor_cluster::rpc::view::{AsOf, PlanTaskView};

    fn plan(verdict: &str, would_change: bool) -> PlanView {
        let task = |phase: &str, line| PlanTaskView {
            phase: phase.to_owned(),
            name: "stop netplugin".to_owned(),
            module: "systemd".to_owned(),
            file: "playbooks/net.yml".to_owned(),
            line,
        };
        PlanView {
            version: 1,
            as_of: AsOf::default(),
            node: "w1".to_owned(),
            verdict: verdict.to_owned(),
            reasons: vec!["net: /etc/default/netplugin sha256".to_owned()],
            would_change,
            services: vec!["net".to_owned(), "web".to_owned()],
            tasks: vec![task("cleanup", 3), task("provision", 9)],
            against: vec!["held: undone by root@m1".to_owned()],
            notes: Vec::new(),
            took_ms: 1,
        }
    }

    #[test]
    fn the_answer_names_services_tasks_and_obstacles() {
        let text = plan_text(&plan("drifted", true));
        for part in [
            "w1: drifted",
            "would set up again: net, web",
            "cleanup: 1 task selected",
            "playbooks/net.yml:9  systemd  stop netplugin",
            "prevented by: held: undone by root@m1",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn exit_codes_distinguish_yes_no_and_unknown() {
        assert_eq!(verdict(&plan("same", false)), Exit::Done);
        assert_eq!(verdict(&plan("drifted", true)), Exit::No);
        assert_eq!(verdict(&plan("unknown: a check hangs", false)), Exit::CouldNotAsk);
    }
}
