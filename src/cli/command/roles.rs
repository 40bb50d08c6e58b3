//! `remoor promote` and `remoor demote`: send one order for all given nodes, then wait until the
//! order has taken effect. The leader executes the order even if this command does not wait.

use super::poll::{PollResult, poll_until};
use super::{local_status, selection};
use crate::cli::api::{self, Api};
use crate::cli::args::{NodeSelection, RoleArgs};
use crate::cli::exit::Exit;
use crate::cli::out::Out;
use crate::cli::state;
use remoor_cluster::rpc::client::ApiError;
use remoor_cluster::rpc::view::{
    AgentView, NodeView, OrderRequest, OrderedView, OrdersRequest, OrdersView, StatusView,
};
use serde::Serialize;
use serde_json::json;
use std::collections::BTreeMap;
use std::time::Duration;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TargetRole {
    Manager,
    Worker,
}

impl TargetRole {
    fn order(self) -> &'static str {
        match self {
            TargetRole::Manager => "promote",
            TargetRole::Worker => "demote",
        }
    }

    fn role_name(self) -> &'static str {
        match self {
            TargetRole::Manager => "manager",
            TargetRole::Worker => "worker",
        }
    }

    fn is_reached(self, state: &str) -> bool {
        match self {
            TargetRole::Manager => matches!(state, "voter" | "leader"),
            TargetRole::Worker => state == "worker",
        }
    }
}

/// The answer about the role change of one node, for programs.
#[derive(Debug, Serialize)]
struct ChangedRole {
    #[serde(flatten)]
    ordered: OrderedView,
    /// The node's last known state in Raft. None: the command did not wait.
    manager_state: Option<String>,
}

pub async fn promote(api: &Api, out: &Out, args: &RoleArgs) -> anyhow::Result<Exit> {
    change(api, out, args, TargetRole::Manager).await
}

pub async fn demote(api: &Api, out: &Out, args: &RoleArgs) -> anyhow::Result<Exit> {
    change(api, out, args, TargetRole::Worker).await
}

async fn change(api: &Api, out: &Out, args: &RoleArgs, role: TargetRole) -> anyhow::Result<Exit> {
    let which = NodeSelection { nodes: args.nodes.clone(), ..NodeSelection::default() };
    let nodes: Vec<String> = selection::choose(api, &which).await?.into_iter().map(|n| n.name).collect();
    let (order, request) = (role.order().to_owned(), OrderRequest::default());
    let view: OrdersView = api.post("/v1/orders", &OrdersRequest { order, nodes: nodes.clone(), request }).await?;
    if !out.format.is_machine() {
        for ordered in view.orders.iter().filter(|_| !out.quiet) {
            out.text(&format!("{}\n", ordered.order.text))?;
        }
        for warning in &view.warnings {
            out.talk(&format!("warning: {warning}"));
        }
    }
    let mut follower = Follower::new(out, role, nodes);
    let exit = if args.waiting.no_wait { Exit::Done } else { follower.follow(api, args.waiting.timeout.0).await? };
    let seen = |name: &str| follower.seen.get(name).cloned();
    let orders: Vec<ChangedRole> =
        view.orders.into_iter().map(|ordered| ChangedRole { manager_state: seen(&ordered.node), ordered }).collect();
    out.machine(&json!({"version": 1, "orders": orders, "warnings": view.warnings}))?;
    Ok(exit)
}

/// Waits for the role changes of nodes.
struct Follower<'a> {
    out: &'a Out,
    role: TargetRole,
    pending: Vec<String>,
    /// The last known `manager_state` of each node.
    seen: BTreeMap<String, String>,
}

impl<'a> Follower<'a> {
    fn new(out: &'a Out, role: TargetRole, pending: Vec<String>) -> Self {
        Self { out, role, pending, seen: BTreeMap::new() }
    }

    async fn follow(&mut self, api: &Api, timeout: Duration) -> anyhow::Result<Exit> {
        let out = self.out;
        let look = async |answer| match answer {
            Ok(view) => self.check_status(&view),
            Err(error) => self.handle_error(api, error).await,
        };
        poll_until(api, out, timeout, look).await
    }

    fn check_status(&mut self, view: &StatusView) -> anyhow::Result<PollResult> {
        if view.as_of.stale {
            return Ok(PollResult::Waits(format!("{} knows of no leader", view.as_of.by)));
        }
        let mut waits = Vec::new();
        for name in self.pending.clone() {
            let Some(node) = view.nodes.iter().find(|n| n.name == name) else {
                return Ok(self.report_other_order(&format!("{name} is no longer a node")));
            };
            self.seen.insert(name.clone(), node.membership.state.clone());
            if node.role != self.role.role_name() {
                return Ok(
                    self.report_other_order(&format!("{name} becomes a {} again, because of another order", node.role))
                );
            }
            match self.why_pending(node) {
                Some(why) => waits.push(why),
                None => self.report_reached(&name)?,
            }
        }
        Ok(self.look_result(waits))
    }

    /// Handles a failed request for the status. If the asked machine itself was demoted, its agent
    /// answers instead of its manager.
    async fn handle_error(&mut self, api: &Api, error: ApiError) -> anyhow::Result<PollResult> {
        if local_status::only_managers(&error) && self.role == TargetRole::Worker {
            let view: AgentView = match api.get("/v1/agent").await {
                Ok(view) => view,
                Err(_) => return Ok(PollResult::Waits(error.to_string())),
            };
            let name = view.node.name;
            if self.pending.contains(&name) {
                self.seen.insert(name.clone(), "worker".to_owned());
                self.report_reached(&name)?;
            }
            if !self.pending.is_empty() {
                let rest = self.pending.join(", ");
                let text = format!(
                    "{name} is a worker now and can't see {rest}; the order continues: remoor nodes on a manager"
                );
                self.out.talk(&text);
                return Ok(PollResult::Ended(Exit::CouldNotAsk));
            }
            return Ok(PollResult::Ended(Exit::Done));
        }
        // The other managers already reject a demoted manager before it learns of its demotion.
        let let_go = self.role == TargetRole::Worker
            && matches!(&error, ApiError::Status { code, .. } if ["forbidden", "retired"].contains(&code.as_str()));
        match let_go || api::temporary(&error) {
            true => Ok(PollResult::Waits(error.to_string())),
            false => Err(error.into()),
        }
    }

    fn why_pending(&self, node: &NodeView) -> Option<String> {
        (!self.role.is_reached(&node.membership.state)).then(|| match state::manager(node) {
            state_text if state_text.is_empty() => format!("{} is not a Raft member yet", node.name),
            state_text => format!("{}: {state_text}", node.name),
        })
    }

    fn report_reached(&mut self, name: &str) -> anyhow::Result<()> {
        self.pending.retain(|n| n != name);
        if !self.out.format.is_machine() && !self.out.quiet {
            let text = match self.role {
                TargetRole::Manager => "votes now",
                TargetRole::Worker => "is a worker now",
            };
            self.out.text(&format!("{name} {text}\n"))?;
        }
        Ok(())
    }

    fn look_result(&self, waits: Vec<String>) -> PollResult {
        if self.pending.is_empty() { PollResult::Ended(Exit::Done) } else { PollResult::Waits(waits.join("; ")) }
    }

    fn report_other_order(&self, why: &str) -> PollResult {
        self.out.talk(&format!("not done: {why}"));
        PollResult::Ended(Exit::No)
    }
}
