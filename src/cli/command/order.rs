//! Orders about nodes: those that lead to a job, and those that are done at once.

use super::follow::{self, Followed};
use super::which;
use crate::cli::api::{self, Api};
use crate::cli::args::{
    CommissionArgs, DecommissionArgs, Following, MaintenanceArgs, ResetupArgs, ResumeArgs, TrustKeyArgs, UpdateArgs,
    Which,
};
use crate::cli::ask::{self, Confirmed};
use crate::cli::error::Stop;
use crate::cli::exit::Exit;
use crate::cli::out::Out;
use crate::cli::state;
use crate::model::Job;
use crate::rpc::view::{NodeView, OrderRequest, OrderView};
use serde::Serialize;
use serde_json::json;

/// One line of the answer of an order, for programs.
#[derive(Debug, Serialize)]
struct Ordered {
    node: String,
    #[serde(flatten)]
    order: OrderView,
    job: Option<Job>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verb {
    Resetup,
    Update,
    Commission,
    Decommission,
}

impl Verb {
    fn word(self) -> &'static str {
        match self {
            Verb::Resetup => "resetup",
            Verb::Update => "update",
            Verb::Commission => "commission",
            Verb::Decommission => "decommission",
        }
    }
}

pub async fn resetup(api: &Api, out: &Out, args: &ResetupArgs) -> anyhow::Result<Exit> {
    let request = OrderRequest {
        services: args.service.clone(),
        force: args.force,
        now: args.now,
        no_queue: args.following.no_queue,
        ..OrderRequest::default()
    };
    let nodes = serving(out, which::choose(api, &args.which).await?, &args.which);
    work(api, out, &nodes, Verb::Resetup, &request, &args.following).await
}

pub async fn commission(api: &Api, out: &Out, args: &CommissionArgs) -> anyhow::Result<Exit> {
    let request = OrderRequest { no_queue: args.following.no_queue, ..OrderRequest::default() };
    let nodes = which::choose(api, &args.which).await?;
    work(api, out, &nodes, Verb::Commission, &request, &args.following).await
}

pub async fn decommission(api: &Api, out: &Out, args: &DecommissionArgs) -> anyhow::Result<Exit> {
    let nodes = which::choose(api, &args.which).await?;
    let called = which::called(&args.which, &nodes);
    let names: Vec<&str> = nodes.iter().map(|n| n.name.as_str()).collect();
    let what = format!("decommissioning {}", names.join(", "));
    let effect = format!("{what}: its services are cleaned up and not provisioned again");
    let Confirmed(()) = ask::confirm(out, &what, &effect, &called, args.confirm.as_deref(), args.no_input)?;
    let request = OrderRequest { force: args.force, no_queue: args.following.no_queue, ..OrderRequest::default() };
    work(api, out, &nodes, Verb::Decommission, &request, &args.following).await
}

/// The first node alone, and the others only if it ends well.
pub async fn update(api: &Api, out: &Out, args: &UpdateArgs) -> anyhow::Result<Exit> {
    let request = OrderRequest { now: args.now, no_queue: args.following.no_queue, ..OrderRequest::default() };
    let mut nodes = serving(out, which::choose(api, &args.which).await?, &args.which);
    if nodes.len() < 2 || args.no_canary || args.following.detach {
        return work(api, out, &nodes, Verb::Update, &request, &args.following).await;
    }
    preflight(&nodes, Verb::Update, &request)?;
    // An absent canary would hold everything up, one that has the generation already would prove nothing.
    nodes.sort_by_key(|n| (n.presence != "alive", state::config(n) != "outdated"));
    let (canary, others) = nodes.split_at(1);
    let mut told = place(api, out, canary, Verb::Update, &request, &args.following).await?;
    if told.exit == Exit::Done && told.ordered.iter().all(|o| !o.order.queued) {
        let rest = place(api, out, others, Verb::Update, &request, &args.following).await?;
        told.ordered.extend(rest.ordered);
        told.exit = told.exit.and(rest.exit);
    } else {
        let left: Vec<&str> = others.iter().map(|n| n.name.as_str()).collect();
        out.talk(&format!("{} goes first and did not end well; not ordered: {}", canary[0].name, left.join(", ")));
        told.exit = told.exit.and(Exit::No);
    }
    told.finish(out)
}

struct Told {
    ordered: Vec<Ordered>,
    exit: Exit,
}

impl Told {
    fn finish(self, out: &Out) -> anyhow::Result<Exit> {
        out.machine(&json!({"version": 1, "orders": self.ordered}))?;
        Ok(self.exit)
    }
}

async fn work(
    api: &Api,
    out: &Out,
    nodes: &[NodeView],
    verb: Verb,
    request: &OrderRequest,
    following: &Following,
) -> anyhow::Result<Exit> {
    preflight(nodes, verb, request)?;
    place(api, out, nodes, verb, request, following).await?.finish(out)
}

/// Gives the orders and follows their jobs to the end.
async fn place(
    api: &Api,
    out: &Out,
    nodes: &[NodeView],
    verb: Verb,
    request: &OrderRequest,
    following: &Following,
) -> anyhow::Result<Told> {
    let before = follow::newest_jobs(api).await?;
    let mut ordered: Vec<Ordered> = Vec::new();
    let mut pending: Vec<Followed> = Vec::new();
    for node in nodes {
        let order = send(api, node, verb.word(), request, &ordered).await?;
        if !out.format.is_machine() && !out.quiet {
            out.text(&format!("{}\n", order.text))?;
        }
        if !order.queued && !order.nothing_to_do {
            pending.push(Followed::new(&node.name, node.id, before.get(&node.id).copied().unwrap_or(0)));
        }
        ordered.push(Ordered { node: node.name.clone(), order, job: None });
    }
    let exit = if following.detach {
        follow::begin(api, out, &mut pending).await?;
        Exit::Done
    } else {
        follow::to_the_end(api, out, &mut pending).await?
    };
    for followed in pending {
        if let Some(one) = ordered.iter_mut().find(|o| o.node == followed.node) {
            one.job = followed.last;
        }
    }
    Ok(Told { ordered, exit })
}

async fn send(
    api: &Api,
    node: &NodeView,
    verb: &str,
    request: &OrderRequest,
    before: &[Ordered],
) -> anyhow::Result<OrderView> {
    let path = format!("/v1/nodes/{}/{verb}", api::segment(&node.name));
    api.post(&path, request).await.map_err(|error| {
        let done: Vec<&str> = before.iter().map(|o| o.node.as_str()).collect();
        let error = anyhow::Error::new(error);
        match done.as_slice() {
            [] => error,
            done => error.context(format!("{verb} stopped at {}; ordered before it: {}", node.name, done.join(", "))),
        }
    })
}

/// Refuses a batch as a whole for what a manager would refuse one of its nodes for, so that nothing of it happens. Only
/// for batches: the manager's own answer about one node is better.
fn preflight(nodes: &[NodeView], verb: Verb, request: &OrderRequest) -> anyhow::Result<()> {
    if nodes.len() < 2 {
        return Ok(());
    }
    match nodes.iter().find_map(|n| Some((n, objection(n, verb, request)?))) {
        None => Ok(()),
        Some((node, (why, next))) => {
            let text = format!("{} {why}; nothing was ordered", node.name);
            Err(Stop::refused(text).next(format!("leave {} out, or {next}", node.name)).into())
        }
    }
}

/// A group, or all, means those of it that are in service; who is named is meant in any case.
fn serving(out: &Out, nodes: Vec<NodeView>, which: &Which) -> Vec<NodeView> {
    if !which.nodes.is_empty() {
        return nodes;
    }
    let (serving, others): (Vec<_>, Vec<_>) = nodes.into_iter().partition(|n| !out_of_service(n));
    for node in others {
        out.talk(&format!("{} is {}: left out", node.name, node.lifecycle));
    }
    serving
}

fn out_of_service(node: &NodeView) -> bool {
    matches!(node.lifecycle.as_str(), "accepted" | "decommissioning" | "decommissioned")
}

/// A job of the node is open, between two attempts too.
fn working(node: &NodeView) -> bool {
    node.job.is_some() && node.conditions.iter().any(|c| c.is == "resetup" || c.is == "waiting")
}

fn objection(node: &NodeView, verb: Verb, request: &OrderRequest) -> Option<(String, &'static str)> {
    let gone = matches!(node.presence.as_str(), "away" | "left" | "agent-down");
    let is = format!("is {}", node.presence);
    if gone && request.no_queue {
        return Some((is, "leave out --no-queue"));
    }
    if let Some(job) = node.job.filter(|_| working(node)) {
        return Some((format!("is being set up by job {job}"), "wait for its end"));
    }
    match verb {
        Verb::Resetup | Verb::Update if node.lifecycle == "accepted" => {
            Some(("was never commissioned".into(), "remoor commission it"))
        }
        Verb::Resetup | Verb::Update if out_of_service(node) => {
            Some((format!("is {}", node.lifecycle), "remoor commission it"))
        }
        Verb::Resetup if node.presence == "agent-down" && !request.force => Some((is, "add --force")),
        Verb::Decommission if gone && !request.force => Some((is, "add --force: it is cleaned up on its return")),
        _ => None,
    }
}

/// An order that is done at once, for every node.
async fn at_once(api: &Api, out: &Out, nodes: &[NodeView], verb: &str, request: &OrderRequest) -> anyhow::Result<Exit> {
    let mut ordered: Vec<Ordered> = Vec::new();
    for node in nodes {
        let order = send(api, node, verb, request, &ordered).await?;
        if !out.format.is_machine() && !out.quiet {
            out.text(&format!("{}\n", order.text))?;
        }
        ordered.push(Ordered { node: node.name.clone(), order, job: None });
    }
    Told { ordered, exit: Exit::Done }.finish(out)
}

pub async fn pause(api: &Api, out: &Out, which: &Which) -> anyhow::Result<Exit> {
    let nodes = which::choose(api, which).await?;
    at_once(api, out, &nodes, "pause", &OrderRequest::default()).await
}

pub async fn resume(api: &Api, out: &Out, args: &ResumeArgs) -> anyhow::Result<Exit> {
    if !args.nodes.is_empty() {
        let which = Which { nodes: args.nodes.clone(), ..Which::default() };
        let nodes = which::choose(api, &which).await?;
        return at_once(api, out, &nodes, "resume", &OrderRequest::default()).await;
    }
    let view: OrderView = api.post("/v1/resume", &json!({})).await?;
    if !out.machine(&view)? && !out.quiet {
        out.text(&format!("{}\n", view.text))?;
    }
    Ok(Exit::Done)
}

pub async fn maintenance(api: &Api, out: &Out, args: &MaintenanceArgs) -> anyhow::Result<Exit> {
    let for_ms = args.time.map_or(0, |span| span.0.as_millis() as u64);
    let nodes = which::choose(api, &args.which).await?;
    at_once(api, out, &nodes, "maintenance", &OrderRequest { for_ms, ..OrderRequest::default() }).await
}

pub async fn trust_key(api: &Api, out: &Out, args: &TrustKeyArgs) -> anyhow::Result<Exit> {
    let request = OrderRequest { fingerprint: args.fingerprint.clone(), ..OrderRequest::default() };
    let which = Which { nodes: vec![args.node.clone()], ..Which::default() };
    let nodes = which::choose(api, &which).await?;
    at_once(api, out, &nodes, "trust-key", &request).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::tests::views;
    use crate::rpc::view::ConditionView;

    fn why(node: &NodeView, verb: Verb) -> Option<String> {
        objection(node, verb, &OrderRequest::default()).map(|(why, _)| why)
    }

    #[test]
    fn a_batch_is_refused_for_a_node_at_work_or_out_of_service() {
        let fine = views::node(4, "w1");
        assert_eq!(why(&fine, Verb::Resetup), None);
        let gone = NodeView { lifecycle: "decommissioned".into(), ..views::node(4, "w1") };
        assert_eq!(why(&gone, Verb::Update).as_deref(), Some("is decommissioned"));
        assert_eq!(why(&gone, Verb::Commission), None);
        let mut busy = NodeView { job: Some(17), ..views::node(4, "w1") };
        assert_eq!(why(&busy, Verb::Resetup), None, "a held job gives way");
        busy.conditions = vec![ConditionView { is: "resetup".into(), why: String::new() }];
        assert_eq!(why(&busy, Verb::Decommission).as_deref(), Some("is being set up by job 17"));
    }
}
