//! `remoor leave`: asks, has this machine's daemon tell the managers, and follows until its agent has parked.

use super::own;
use super::until::{Look, until};
use crate::cli::api::{self, Api};
use crate::cli::args::LeaveArgs;
use crate::cli::ask::{self, Confirmed};
use crate::cli::exit::Exit;
use crate::cli::out::Out;
use crate::rpc::client::ApiError;
use crate::rpc::view::{AgentView, LeaveReply, Nothing, StatusView};
use serde_json::json;

pub async fn run(api: &Api, out: &Out, args: &LeaveArgs) -> anyhow::Result<Exit> {
    let before: AgentView = api.get("/v1/agent").await?;
    let name = before.node.name.clone();
    if before.node.left {
        out.talk(&format!("nothing to do: {}", before.node.removed.unwrap_or_default()));
        return Ok(Exit::Done);
    }
    let Confirmed(()) = ask::agreed(out, &format!("leaving of {name}"), &effect(&before), args.yes)?;
    let reply: LeaveReply = api.post("/v1/leave", &Nothing {}).await?;
    let view = json!({"version": 1, "node": name, "text": reply.text, "until": reply.until});
    let told = out.machine(&view)? || out.quiet;
    if !told {
        out.text(&format!("{}\n", reply.text))?;
    }
    if args.no_wait {
        return Ok(Exit::Done);
    }
    let look = async |answer: Result<StatusView, ApiError>| match answer {
        Err(error) if own::only_managers(&error) => {
            let view: AgentView = match api.get("/v1/agent").await {
                Ok(view) => view,
                Err(error) => return Ok(Look::Waits(error.to_string())),
            };
            let parked = view.node.removed.is_some();
            Ok(if parked { Look::Ended(Exit::Done) } else { Look::Waits(format!("the agent of {name} ends its work")) })
        }
        Err(error) if !api::temporary(&error) => Err(error.into()),
        Ok(_) | Err(_) => Ok(Look::Waits(format!("the daemon of {name} is to park"))),
    };
    let exit = until(api, out, args.timeout.0, look).await?;
    if exit == Exit::Done {
        out.talk("its daemon does nothing any more; nothing was cleaned up here: what this machine serves it goes on serving");
        out.talk(
            "next: systemctl disable --now remoor; remoor join, with the data directory as it is, brings the node back",
        );
    }
    Ok(exit)
}

/// What is to be said yes to.
fn effect(view: &AgentView) -> String {
    let serves = match view.manifest.as_ref().map(|m| m.services.as_slice()) {
        None | Some([]) => "its services".to_owned(),
        Some(services) => services.join(", "),
    };
    format!(
        "{} leaves cluster {}: it is watched and set up no more. Nothing is cleaned up here: {serves} go on as they are \
         (remoor decommission {0} on a manager, before, cleans up)",
        view.node.name, view.node.cluster
    )
}
