//! `remoor remove`: asks for confirmation, places one order for all given nodes, and waits until
//! the managers among them have left Raft. `nodes --removed` lists the removed nodes.

use super::poll::{PollResult, poll_until};
use super::{local_status, selection};
use crate::cli::api::{self, Api};
use crate::cli::args::{NodeSelection, RemoveArgs};
use crate::cli::ask::{self, UserConfirmation};
use crate::cli::exit::Exit;
use crate::cli::moment::{self, Today};
use crate::cli::out::Out;
use crate::cli::state;
use crate::cli::table::Table;
use remoor_cluster::rpc::client::ApiError;
use remoor_cluster::rpc::view::{
    AgentView, NodeView, OrderRequest, OrdersRequest, OrdersView, RemovedView, StatusView,
};
use remoor_model::count_noun;
use std::time::Duration;

pub async fn run(api: &Api, out: &Out, args: &RemoveArgs) -> anyhow::Result<Exit> {
    let status: StatusView = api.get("/v1/status").await?;
    // The list of nodes does not contain a node that left the cluster by `remoor leave`. Such a
    // node can be removed too.
    let (left, named): (Vec<String>, Vec<String>) =
        args.nodes.iter().cloned().partition(|name| status.left.iter().any(|l| l.name == *name));
    let nodes = selection::pick(&status, &NodeSelection { nodes: named, ..NodeSelection::default() })?;
    let names: Vec<String> = nodes.iter().map(|n| n.name.clone()).chain(left.iter().cloned()).collect();
    let what = format!("removing {}", names.join(", "));
    let UserConfirmation(()) =
        ask::confirm_yes(out, &what, &removal_effect(&nodes, &left, Today::from_answer(&status.as_of.at)), args.yes)?;
    let request = OrderRequest { force: args.force, keep_gossip_key: args.keep_gossip_key, ..OrderRequest::default() };
    let order = OrdersRequest { order: "remove".to_owned(), nodes: names.clone(), request };
    let view: OrdersView = api.post("/v1/orders", &order).await?;
    if !out.machine(&view)? {
        for ordered in view.orders.iter().filter(|_| !out.quiet) {
            out.text(&format!("{}\n", ordered.order.text))?;
        }
        for warning in &view.warnings {
            out.talk(&format!("warning: {warning}"));
        }
    }
    if args.waiting.no_wait {
        return Ok(Exit::Done);
    }
    let managed = nodes.into_iter().filter(|n| n.role == "manager" || n.manager.is_some()).map(|n| n.name).collect();
    follow(api, out, PendingRemovals { out, pending: names.clone(), names, managed }, args.waiting.timeout.0).await
}

/// The nodes that are removed, one per line, for the confirmation.
fn removal_effect(nodes: &[NodeView], left: &[String], today: Today) -> String {
    let line = |node: &NodeView| {
        let group = node.group.as_ref().map_or("in no group".to_owned(), |group| format!("of group {group}"));
        let serves = match (node.services.as_slice(), node.config.baseline.is_some()) {
            ([], _) => "no services".to_owned(),
            (some, true) => format!("keeps running {}", some.join(", ")),
            (some, false) => format!("never set up with {}", some.join(", ")),
        };
        format!(
            "  {}: {} {group}, {}, {}; {serves}",
            node.name,
            state::role(node),
            state::presence(node, today),
            node.operation.lifecycle
        )
    };
    let left =
        left.iter().map(|name| format!("  {name}: left the cluster; after this it can't return as the same node"));
    let lines: Vec<String> = nodes.iter().map(line).chain(left).collect();
    format!("{} permanently removed; nothing is run there:\n{}", count_noun(lines.len(), "node"), lines.join("\n"))
}

/// Waits until none of the removed nodes is listed anymore, and reports each former manager.
async fn follow(api: &Api, out: &Out, mut followed: PendingRemovals<'_>, timeout: Duration) -> anyhow::Result<Exit> {
    let look = async |answer: Result<StatusView, ApiError>| match answer {
        Ok(view) => followed.check_status(&view),
        Err(error) if is_own_removal(api, &error, &followed.names).await => {
            Ok(PollResult::Ended(report_own_removal(out, &followed.names)?))
        }
        Err(error) if is_rejected(&error) || api::temporary(&error) || local_status::only_managers(&error) => {
            Ok(PollResult::Waits(error.to_string()))
        }
        Err(error) => Err(error.into()),
    };
    poll_until(api, out, timeout, look).await
}

struct PendingRemovals<'a> {
    out: &'a Out,
    names: Vec<String>,
    pending: Vec<String>,
    /// The nodes that were managers when their removal was ordered. They leave Raft first.
    managed: Vec<String>,
}

impl PendingRemovals<'_> {
    fn check_status(&mut self, view: &StatusView) -> anyhow::Result<PollResult> {
        if view.as_of.stale {
            return Ok(PollResult::Waits(format!("{} knows of no leader", view.as_of.by)));
        }
        let still: Vec<&NodeView> = view.nodes.iter().filter(|n| self.pending.contains(&n.name)).collect();
        if let Some(kept) = still.iter().find(|n| n.operation.lifecycle != "removing") {
            let (name, role) = (&kept.name, &kept.role);
            self.out.talk(&format!("not done: {name} is still a {role}, or again one because of another order"));
            return Ok(PollResult::Ended(Exit::No));
        }
        let (pending, gone): (Vec<String>, Vec<String>) =
            self.pending.drain(..).partition(|name| still.iter().any(|n| n.name == *name));
        self.pending = pending;
        for name in gone.iter().filter(|name| self.managed.contains(name)) {
            if !self.out.quiet && !self.out.format.is_machine() {
                self.out.text(&format!("{name} is removed; its name is free\n"))?;
            }
        }
        let describe = |node: &&NodeView| match state::manager(node) {
            is if is.is_empty() => format!("{} has left Raft", node.name),
            is => format!("{}: {is}", node.name),
        };
        Ok(match self.pending.is_empty() {
            true => PollResult::Ended(Exit::Done),
            false => PollResult::Waits(still.iter().map(describe).collect::<Vec<_>>().join("; ")),
        })
    }
}

/// Whether the other managers already reject the manager that answers. That manager does not know
/// yet that it was removed.
fn is_rejected(error: &ApiError) -> bool {
    error.code().is_some_and(|code| ["forbidden", "retired", "node-removed"].contains(&code))
}

/// Whether this command asked one of the removed nodes and the agent of that node knows of its
/// removal.
async fn is_own_removal(api: &Api, error: &ApiError, removed: &[String]) -> bool {
    let may_be_removed = local_status::only_managers(error) || is_rejected(error);
    may_be_removed
        && match api.get::<AgentView>("/v1/agent").await {
            Ok(view) => view.node.removed.is_some() && removed.contains(&view.node.name),
            Err(_) => false,
        }
}

fn report_own_removal(out: &Out, all: &[String]) -> anyhow::Result<Exit> {
    if let [name] = all {
        if !out.quiet && !out.format.is_machine() {
            out.text(&format!("{name} (this machine) is removed; its name is free\n"))?;
        }
        return Ok(Exit::Done);
    }
    out.talk("this machine was removed and can't see the others; the order continues: remoor nodes on a manager");
    Ok(Exit::CouldNotAsk)
}

/// Prints the removed nodes, for `remoor nodes --removed`.
pub async fn list(api: &Api, out: &Out) -> anyhow::Result<Exit> {
    show(out, &api.get("/v1/removed").await?)
}

pub fn show(out: &Out, view: &RemovedView) -> anyhow::Result<Exit> {
    if !out.machine(view)? {
        if out.quiet {
            out.names(view.removed.iter().map(|n| n.name.as_str()))?;
        } else {
            let today = Today::from_answer(&view.as_of.at);
            let moment = |at: &str| moment::parse(at).map_or_else(|| at.to_owned(), |at| today.show(at));
            let mut table = Table::new(["NODE", "ID", "REMOVED", "BY", "REMEMBERED UNTIL"]);
            for node in &view.removed {
                let (removed, until) = (moment(&node.removed), moment(&node.until));
                table.row([node.name.clone(), node.id.to_string(), removed, node.by.clone(), until]);
            }
            out.table(&table)?;
        }
    }
    Ok(out.source(&view.as_of))
}
