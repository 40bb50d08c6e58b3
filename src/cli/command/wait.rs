//! `remoor wait`: polls until the nodes have reached the requested state, or until the timeout.

use super::{local_status, selection};
use crate::cli::api::{self, Api};
use crate::cli::args::{Goal, WaitArgs};
use crate::cli::exit::Exit;
use crate::cli::interrupt::Interrupt;
use crate::cli::out::Out;
use crate::cli::state;
use remoor_cluster::rpc::view::{NodeView, StatusView};
use std::time::{Duration, Instant};

const EVERY: Duration = Duration::from_millis(500);

pub async fn run(api: &Api, out: &Out, args: &WaitArgs) -> anyhow::Result<Exit> {
    let ends = Instant::now() + args.timeout.0;
    let mut last_text = String::new();
    let mut interrupt = Interrupt::new()?;
    loop {
        let Some(answer) = interrupt.unless_interrupted(api.get::<StatusView>("/v1/status")).await else {
            return Ok(Exit::Interrupted);
        };
        let over = Instant::now() >= ends;
        match answer {
            Ok(view) if !view.as_of.stale => {
                let nodes = selection::pick(&view, &args.which)?;
                let missing: Vec<String> = nodes.iter().filter_map(|n| why_not_reached(n, args.goal)).collect();
                if missing.is_empty() {
                    if !out.machine(&view)? && !out.quiet {
                        out.text(&format!("{}: done\n", selection::selection_name(&args.which, &nodes)))?;
                    }
                    return Ok(Exit::Done);
                }
                let text = missing.join("; ");
                if over {
                    out.machine(&view)?;
                    out.talk(&format!(
                        "not done within {}: {text}",
                        crate::cli::duration::age(args.timeout.0.as_millis() as u64)
                    ));
                    return Ok(Exit::No);
                }
                print_waiting(out, &mut last_text, &text);
            }
            Ok(view) if over => {
                out.machine(&view)?;
                return Ok(out.source(&view.as_of));
            }
            Ok(_) => print_waiting(out, &mut last_text, "no quorum"),
            Err(error) if over || !api::temporary(&error) || local_status::only_managers(&error) => {
                return Err(error.into());
            }
            Err(error) => print_waiting(out, &mut last_text, &error.to_string()),
        }
        let pause = EVERY.min(ends.saturating_duration_since(Instant::now()));
        if interrupt.unless_interrupted(tokio::time::sleep(pause)).await.is_none() {
            return Ok(Exit::Interrupted);
        }
    }
}

/// Prints the reason for waiting whenever it changes.
fn print_waiting(out: &Out, last_text: &mut String, text: &str) {
    if *last_text != text && !out.quiet {
        out.talk(&format!("waiting: {text}"));
    }
    *last_text = text.to_owned();
}

/// The reason why the node has not reached the goal. None: the node has reached it.
pub fn why_not_reached(node: &NodeView, goal: Goal) -> Option<String> {
    let lifecycle =
        |wanted: &str| (node.operation.lifecycle != wanted).then(|| format!("is {}", node.operation.lifecycle));
    let why = match goal {
        Goal::Clean if node.operation.lifecycle == "decommissioned" => Some("is decommissioned".to_owned()),
        Goal::Clean => state::why_not_desired(node),
        Goal::Alive => (node.presence != "alive").then(|| format!("is {}", node.presence)),
        Goal::Commissioned => lifecycle("commissioned"),
        Goal::Decommissioned => lifecycle("decommissioned"),
    };
    why.map(|why| format!("{} {why}", node.name))
}
