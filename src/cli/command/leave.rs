//! `remoor leave`: asks for confirmation, orders the daemon of this machine to leave, and waits
//! until its agent has stopped.

use super::local_status;
use super::poll::{PollResult, poll_until};
use crate::cli::api::{self, Api};
use crate::cli::args::LeaveArgs;
use crate::cli::ask::{self, UserConfirmation};
use crate::cli::exit::Exit;
use crate::cli::out::Out;
use remoor_cluster::rpc::client::ApiError;
use remoor_cluster::rpc::view::{AgentView, LeaveReply, Nothing, StatusView};
use serde_json::json;

pub async fn run(api: &Api, out: &Out, args: &LeaveArgs) -> anyhow::Result<Exit> {
    let before: AgentView = api.get("/v1/agent").await?;
    let name = before.node.name.clone();
    if before.node.left {
        out.talk(&format!("nothing to do: {}", before.node.removed.unwrap_or_default()));
        return Ok(Exit::Done);
    }
    let UserConfirmation(()) = ask::confirm_yes(out, &format!("leaving of {name}"), &effect(&before), args.yes)?;
    let reply: LeaveReply = api.post("/v1/leave", &Nothing {}).await?;
    let view = json!({"version": 1, "node": name, "text": reply.text, "until": reply.until});
    let is_printed = out.machine(&view)? || out.quiet;
    if !is_printed {
        out.text(&format!("{}\n", reply.text))?;
    }
    if args.waiting.no_wait {
        return Ok(Exit::Done);
    }
    let look = async |answer: Result<StatusView, ApiError>| match answer {
        Err(error) if local_status::only_managers(&error) => {
            let view: AgentView = match api.get("/v1/agent").await {
                Ok(view) => view,
                Err(error) => return Ok(PollResult::Waits(error.to_string())),
            };
            let parked = view.node.removed.is_some();
            Ok(if parked {
                PollResult::Ended(Exit::Done)
            } else {
                PollResult::Waits(format!("the agent of {name} is stopping"))
            })
        }
        Err(error) if !api::temporary(&error) => Err(error.into()),
        Ok(_) | Err(_) => Ok(PollResult::Waits(format!("the daemon of {name} has not stopped yet"))),
    };
    let exit = poll_until(api, out, args.waiting.timeout.0, look).await?;
    if exit == Exit::Done {
        out.talk("the daemon is inactive; nothing was cleaned up here: the services of this machine keep running");
        out.talk(
            "next: systemctl disable --now remoor; remoor join, with the data directory unchanged, restores the node",
        );
    }
    Ok(exit)
}

/// The consequences of leaving, for the confirmation.
fn effect(view: &AgentView) -> String {
    let serves = match view.manifest.as_ref().map(|m| m.services.as_slice()) {
        None | Some([]) => "its services".to_owned(),
        Some(services) => services.join(", "),
    };
    format!(
        "{} leaves cluster {}: it is no longer watched or set up. Nothing is cleaned up here: {serves} keep running \
         (to clean up, run remoor decommission {0} on a manager first)",
        view.node.name, view.node.cluster
    )
}
