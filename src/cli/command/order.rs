//! Orders for nodes: orders that start a job, and orders that take effect at once.

use super::follow::{self, FollowedJob};
use super::selection;
use crate::cli::api::{self, Api};
use crate::cli::args::{
    CommissionArgs, DecommissionArgs, FollowOptions, MaintenanceArgs, NodeSelection, ResetupArgs, ResumeArgs,
    TrustKeyArgs, UndoArgs, UpdateArgs, ZoneArgs,
};
use crate::cli::ask::{self, UserConfirmation};
use crate::cli::error::CommandError;
use crate::cli::exit::Exit;
use crate::cli::out::Out;
use crate::cli::state;
use remoor_cluster::rpc::view::{NodeView, OrderRequest, OrderView, OrderedView, OrdersRequest, OrdersView};
use remoor_model::Job;
use serde::Serialize;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of nodes that are named for each affected service.
const LOST_NAMED: usize = 5;

/// The answer to an order for one node, for programs.
#[derive(Debug, Serialize)]
struct OrderedNode {
    node: String,
    #[serde(flatten)]
    order: OrderView,
    job: Option<Job>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum JobOrder {
    Resetup,
    Update,
    Commission,
    Decommission,
    Drain,
}

impl JobOrder {
    fn api_name(self) -> &'static str {
        match self {
            JobOrder::Resetup => "resetup",
            JobOrder::Update => "update",
            JobOrder::Commission => "commission",
            JobOrder::Decommission => "decommission",
            JobOrder::Drain => "drain",
        }
    }
}

pub async fn resetup(api: &Api, out: &Out, args: &ResetupArgs) -> anyhow::Result<Exit> {
    let request = OrderRequest {
        services: args.service.clone(),
        force: args.force,
        now: args.now,
        no_queue: args.following.no_queue,
        vars: args.extra_vars.iter().cloned().collect(),
        ..OrderRequest::default()
    };
    let nodes = nodes_in_service(out, selection::choose(api, &args.which).await?, &args.which);
    if args.check {
        return super::plan::run(api, out, &nodes, &request).await;
    }
    place_and_finish(api, out, &nodes, JobOrder::Resetup, &request, &args.following).await
}

pub async fn commission(api: &Api, out: &Out, args: &CommissionArgs) -> anyhow::Result<Exit> {
    let vars = args.extra_vars.iter().cloned().collect();
    let request = OrderRequest { vars, no_queue: args.following.no_queue, ..OrderRequest::default() };
    let nodes = selection::choose(api, &args.which).await?;
    place_and_finish(api, out, &nodes, JobOrder::Commission, &request, &args.following).await
}

pub async fn decommission(api: &Api, out: &Out, args: &DecommissionArgs) -> anyhow::Result<Exit> {
    take_out(api, out, args, JobOrder::Decommission, "decommissioning").await
}

pub async fn drain(api: &Api, out: &Out, args: &DecommissionArgs) -> anyhow::Result<Exit> {
    take_out(api, out, args, JobOrder::Drain, "draining").await
}

async fn take_out(api: &Api, out: &Out, args: &DecommissionArgs, verb: JobOrder, doing: &str) -> anyhow::Result<Exit> {
    let nodes = selection::choose(api, &args.which).await?;
    let called = selection::selection_name(&args.which, &nodes);
    let names: Vec<&str> = nodes.iter().map(|n| n.name.as_str()).collect();
    let what = format!("{doing} {}", names.join(", "));
    let effect = format!("{what}: cleaned up and not provisioned again: {}", affected_services(&nodes));
    let UserConfirmation(()) = ask::confirm_name(out, &what, &effect, &called, args.confirm.as_deref(), args.no_input)?;
    let request = OrderRequest { force: args.force, no_queue: args.following.no_queue, ..OrderRequest::default() };
    place_and_finish(api, out, &nodes, verb, &request, &args.following).await
}

/// The services that run on the nodes now and stop when the order is executed, each with its nodes.
fn affected_services(nodes: &[NodeView]) -> String {
    let mut by_service = BTreeMap::<&str, Vec<&str>>::new();
    for node in nodes.iter().filter(|n| !out_of_service(n)) {
        node.services.iter().for_each(|service| by_service.entry(service).or_default().push(&node.name));
    }
    let services = |(service, nodes): (&&str, &Vec<&str>)| {
        let (some, more) = (&nodes[..nodes.len().min(LOST_NAMED)], nodes.len().saturating_sub(LOST_NAMED));
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        format!("{service} (on {}{more})", some.join(", "))
    };
    let services: Vec<String> = by_service.iter().map(services).collect();
    if services.is_empty() { "no services".to_owned() } else { services.join(", ") }
}

/// Sets up the first node of each group with the current generation. Sets up the other nodes only
/// if the first nodes succeed. With `--detach` the managers apply the same rule.
pub async fn update(api: &Api, out: &Out, args: &UpdateArgs) -> anyhow::Result<Exit> {
    let request = OrderRequest {
        now: args.now,
        no_queue: args.following.no_queue,
        no_canary: args.no_canary,
        vars: args.extra_vars.iter().cloned().collect(),
        ..OrderRequest::default()
    };
    let mut nodes = nodes_in_service(out, selection::choose(api, &args.which).await?, &args.which);
    if nodes.len() < 2 || args.no_canary || args.following.detach {
        return place_and_finish(api, out, &nodes, JobOrder::Update, &request, &args.following).await;
    }
    // The order for the canary is sent first. With `--no-queue`, one absent node is a reason to
    // refuse the whole command, so this is checked before anything is sent.
    let gone = |n: &&NodeView| matches!(n.presence.as_str(), "away" | "left" | "agent-down");
    if let Some(node) = nodes.iter().find(gone).filter(|_| request.no_queue) {
        let text = format!("{} is {}; nothing was ordered", node.name, node.presence);
        return Err(CommandError::refusal(text)
            .next(format!("run the command without {}, or without --no-queue", node.name))
            .into());
    }
    // An absent canary would delay the set-up of all nodes. A canary that already has the current
    // generation would prove nothing.
    nodes.sort_by_key(|n| (n.presence != "alive", state::config(n) != "outdated"));
    let (first, others) = first_of_each(nodes);
    let mut result = place(api, out, &first, JobOrder::Update, &request, &args.following).await?;
    if others.is_empty() {
        return result.finish(out);
    }
    if result.exit == Exit::Done && result.ordered.iter().all(|o| !o.order.queued) {
        // The canary was set up successfully, so the order for the other nodes needs no canary.
        let request = OrderRequest { no_canary: true, ..request };
        let rest = place(api, out, &others, JobOrder::Update, &request, &args.following).await?;
        result.ordered.extend(rest.ordered);
        result.exit = result.exit.more_serious(rest.exit);
    } else {
        let names = |nodes: &[NodeView]| nodes.iter().map(|n| n.name.as_str()).collect::<Vec<_>>().join(", ");
        out.talk(&format!("the canary did not succeed: {}; not ordered: {}", names(&first), names(&others)));
        result.exit = result.exit.more_serious(Exit::No);
    }
    result.finish(out)
}

/// Splits the nodes into the first node of each group and all other nodes.
fn first_of_each(nodes: Vec<NodeView>) -> (Vec<NodeView>, Vec<NodeView>) {
    let mut groups = BTreeSet::new();
    nodes.into_iter().partition(|node| groups.insert(node.group.clone()))
}

struct OrderResult {
    ordered: Vec<OrderedNode>,
    exit: Exit,
}

impl OrderResult {
    fn finish(self, out: &Out) -> anyhow::Result<Exit> {
        out.machine(&json!({"version": 1, "orders": self.ordered}))?;
        Ok(self.exit)
    }
}

async fn place_and_finish(
    api: &Api,
    out: &Out,
    nodes: &[NodeView],
    verb: JobOrder,
    request: &OrderRequest,
    following: &FollowOptions,
) -> anyhow::Result<Exit> {
    place(api, out, nodes, verb, request, following).await?.finish(out)
}

/// Sends an order that starts a job on each node, and follows these jobs to their ends. With
/// `--detach`, waits only for the numbers of the jobs.
async fn place(
    api: &Api,
    out: &Out,
    nodes: &[NodeView],
    verb: JobOrder,
    request: &OrderRequest,
    following: &FollowOptions,
) -> anyhow::Result<OrderResult> {
    let (before, _) = follow::newest_job(api).await?;
    let mut ordered: Vec<OrderedNode> = Vec::new();
    let mut pending: Vec<FollowedJob> = Vec::new();
    for (node, order) in nodes.iter().zip(send(api, nodes, verb.api_name(), request).await?) {
        if !out.format.is_machine() && !out.quiet {
            out.text(&format!("{}\n", order.text))?;
        }
        if !order.queued && !order.nothing_to_do {
            pending.push(FollowedJob::new(&node.name, node.id, before));
        }
        ordered.push(OrderedNode { node: node.name.clone(), order, job: None });
    }
    let exit = follow_jobs(api, out, &mut pending, following.detach).await?;
    for followed in pending {
        if let Some(one) = ordered.iter_mut().find(|o| o.node == followed.node) {
            one.job = followed.last;
        }
    }
    Ok(OrderResult { ordered, exit })
}

async fn follow_jobs(api: &Api, out: &Out, pending: &mut [FollowedJob], detach: bool) -> anyhow::Result<Exit> {
    if detach {
        follow::wait_for_jobs(api, out, pending).await?;
        return Ok(Exit::Done);
    }
    follow::follow_to_end(api, out, pending).await
}

/// Sends one order for all nodes; the order is accepted or refused as a whole. The answers have the
/// order of `nodes`.
async fn send(api: &Api, nodes: &[NodeView], verb: &str, request: &OrderRequest) -> anyhow::Result<Vec<OrderView>> {
    if let [node] = nodes {
        return Ok(vec![api.post(&format!("/v1/nodes/{}/{verb}", api::segment(&node.name)), request).await?]);
    }
    let names = nodes.iter().map(|n| n.name.clone()).collect();
    let batch = OrdersRequest { order: verb.to_owned(), nodes: names, request: request.clone() };
    let mut view: OrdersView = api.post("/v1/orders", &batch).await?;
    let answers = nodes.iter().map(|node| {
        let at = view.orders.iter().position(|o| o.node == node.name)?;
        Some(view.orders.swap_remove(at).order)
    });
    let answers: Option<Vec<OrderView>> = answers.collect();
    answers.ok_or_else(|| {
        CommandError::new(Exit::CouldNotAsk, "the manager did not answer for every node").next("remoor history").into()
    })
}

/// The nodes that an order applies to. If the command line names a group or all nodes, nodes
/// without services (new or decommissioned) are skipped.
fn nodes_in_service(out: &Out, nodes: Vec<NodeView>, which: &NodeSelection) -> Vec<NodeView> {
    if !which.nodes.is_empty() {
        return nodes;
    }
    let (serving, others): (Vec<_>, Vec<_>) = nodes.into_iter().partition(|n| !out_of_service(n));
    for node in others {
        out.talk(&format!("{} is {}: skipped", node.name, node.operation.lifecycle));
    }
    serving
}

fn out_of_service(node: &NodeView) -> bool {
    matches!(node.operation.lifecycle.as_str(), "accepted" | "decommissioning" | "decommissioned")
}

/// `remoor undo`: restores the files that an attempt backed up.
pub async fn undo(api: &Api, out: &Out, args: &UndoArgs) -> anyhow::Result<Exit> {
    let (before, names) = follow::newest_job(api).await?;
    let view: OrderedView = api.post(&format!("/v1/attempts/{}/undo", args.attempt), &json!({})).await?;
    if !out.format.is_machine() && !out.quiet {
        out.text(&format!("{}\n", view.order.text))?;
    }
    let id = names.iter().find(|(_, name)| **name == view.node).map_or(0, |(id, _)| *id);
    let mut pending = vec![FollowedJob::new(&view.node, id, before)];
    let exit = follow_jobs(api, out, &mut pending, args.detach).await?;
    let job = pending.pop().and_then(|f| f.last);
    OrderResult { ordered: vec![OrderedNode { node: view.node, order: view.order, job }], exit }.finish(out)
}

/// Sends one order for all nodes to a manager. The order takes effect at once, without a job.
async fn order_immediate(
    api: &Api,
    out: &Out,
    nodes: &[NodeView],
    verb: &str,
    request: &OrderRequest,
) -> anyhow::Result<Exit> {
    let mut ordered: Vec<OrderedNode> = Vec::new();
    for (node, order) in nodes.iter().zip(send(api, nodes, verb, request).await?) {
        if !out.format.is_machine() && !out.quiet {
            out.text(&format!("{}\n", order.text))?;
        }
        ordered.push(OrderedNode { node: node.name.clone(), order, job: None });
    }
    OrderResult { ordered, exit: Exit::Done }.finish(out)
}

pub async fn pause(api: &Api, out: &Out, which: &NodeSelection) -> anyhow::Result<Exit> {
    let nodes = selection::choose(api, which).await?;
    order_immediate(api, out, &nodes, "pause", &OrderRequest::default()).await
}

pub async fn resume(api: &Api, out: &Out, args: &ResumeArgs) -> anyhow::Result<Exit> {
    if !args.nodes.is_empty() {
        let which = NodeSelection { nodes: args.nodes.clone(), ..NodeSelection::default() };
        let nodes = selection::choose(api, &which).await?;
        return order_immediate(api, out, &nodes, "resume", &OrderRequest::default()).await;
    }
    let view: OrderView = api.post("/v1/resume", &json!({})).await?;
    if !out.machine(&view)? && !out.quiet {
        out.text(&format!("{}\n", view.text))?;
    }
    Ok(Exit::Done)
}

pub async fn maintenance(api: &Api, out: &Out, args: &MaintenanceArgs) -> anyhow::Result<Exit> {
    let for_ms = args.time.map_or(0, |span| span.0.as_millis() as u64);
    let nodes = selection::choose(api, &args.which).await?;
    order_immediate(api, out, &nodes, "maintenance", &OrderRequest { for_ms, ..OrderRequest::default() }).await
}

pub async fn zone(api: &Api, out: &Out, args: &ZoneArgs) -> anyhow::Result<Exit> {
    let request = OrderRequest { zone: args.set.clone().unwrap_or_default(), ..OrderRequest::default() };
    let nodes = selection::choose(api, &args.which).await?;
    order_immediate(api, out, &nodes, "zone", &request).await
}

pub async fn trust_key(api: &Api, out: &Out, args: &TrustKeyArgs) -> anyhow::Result<Exit> {
    let request = OrderRequest { fingerprint: args.fingerprint.clone(), ..OrderRequest::default() };
    let which = NodeSelection { nodes: vec![args.node.clone()], ..NodeSelection::default() };
    let nodes = selection::choose(api, &which).await?;
    order_immediate(api, out, &nodes, "trust-key", &request).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_group_has_its_own_canary() {
        let node = |id: u64, name: &str, group: &str| NodeView {
            group: Some(group.to_owned()),
            ..crate::cli::tests::views::node(id, name)
        };
        let nodes = vec![node(1, "w2", "web"), node(2, "w1", "web"), node(3, "d1", "db"), node(4, "d2", "db")];
        let (first, others) = first_of_each(nodes);
        let names = |nodes: &[NodeView]| nodes.iter().map(|n| n.name.clone()).collect::<Vec<_>>();
        assert_eq!((names(&first), names(&others)), (vec!["w2".into(), "d1".into()], vec!["w1".into(), "d2".into()]));
    }
}
