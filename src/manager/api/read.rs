//! Read requests: status, history, job output, `why` and metrics.

use super::super::backup::BACKUP;
use super::super::certificates::CERTIFICATE;
use super::super::clocks::CLOCK;
use super::super::{ManagerContext, addresses, metrics, wall};
use super::{Actor, as_of, find_node, keys, operators, roles};
use crate::telemetry::{Registry, render_all};
use axum::Extension;
use axum::extract::{Path, Query, State};
use axum::response::Response;
use remoor_cluster::rpc::view::{
    AddressesView, ConditionView, ConfigView, HistoryView, NodeMembershipView, NodeView, OperationView,
    ReachabilityView, ReportView, ReportedAgentView, StatusView, StreamItem, WhyView, with_times,
};
use remoor_cluster::rpc::wire::{self, ApiFailure, Code, TimedJson};
use remoor_engine::Presence;
use remoor_model::{Inventory, JobId, Node, PlannedAction, RaftId, Verdict, Wall, zone_warning};
use serde::Deserialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tokio::sync::{broadcast, mpsc};

/// Maximum number of history items in one answer.
const HISTORY_PAGE: usize = 1_000;
const STREAM_DEPTH: usize = 256;

pub async fn status(State(shared): State<Arc<ManagerContext>>) -> TimedJson<StatusView> {
    let inventory = shared.inventory();
    let raft = shared.raft.status().borrow().clone();
    let nodes: Vec<NodeView> = inventory.nodes.values().map(|n| node_view(&shared, &inventory, n)).collect();
    let managers = raft.voters.len() as u32;
    let refused = shared.raft.refusals();
    let told: BTreeSet<u64> = refused.keys().filter_map(|raft| Some(inventory.raft_id_holder(*raft)?.id.0)).collect();
    let managers_up = roles::answering_managers(&raft, &inventory, nodes.iter().filter(|n| !told.contains(&n.id)));
    let as_of = as_of(&shared);
    let mut warnings = match as_of.leader.as_ref().filter(|_| as_of.heard) {
        // Only the leader knows how many managers answer.
        Some(leader) => vec![format!("{leader} leads and sends heartbeats, but its API does not answer")],
        None => roles::outlook(raft.is_leader, managers, managers_up),
    };
    warnings.extend(zone_warning(inventory.managers().map(|n| n.spec.zone.as_str())));
    let heard = nodes.iter().filter(|n| n.agent.report.is_some());
    warnings.extend(other_versions(heard.map(|n| (n.name.as_str(), n.agent.version.as_str()))));
    let contradicted = |n: &Arc<Node>| Some(format!("{}: {}", n.name(), addresses::contradiction(&shared, n)?));
    warnings.extend(inventory.nodes.values().filter_map(contradicted));
    warnings.extend(stale_directories(&refused, &inventory));
    warnings.extend(silent_managers(nodes.iter().filter(|n| !told.contains(&n.id))));
    warnings.extend(shared.observed.certificates.expiry_warnings(&inventory, wall()).into_iter().map(|(_, text)| text));
    warnings.extend(shared.compare_clocks().warnings(&shared.identity.name));
    warnings.extend(keys::warnings(&shared, &inventory));
    let pending = super::pending::views(&inventory, wall());
    warnings.extend(super::pending::warnings(&pending));
    warnings.extend(shared.own_warnings());
    // Notices of these kinds are omitted. They may be days old, and the warnings above already
    // cover their subjects.
    warnings.extend(shared.notices.recent_but(&[CERTIFICATE, CLOCK, BACKUP]).into_iter().rev().take(5));
    TimedJson(StatusView {
        version: 1,
        as_of,
        cluster: inventory.cluster.to_string(),
        epoch: inventory.epoch.0,
        generation: inventory.current.0,
        generation_at: inventory.generation().map(|g| wire::rfc3339(g.at)),
        managers_up,
        managers,
        breaker: inventory.breaker.clone(),
        warnings,
        nodes,
        ssh_key: shared.keys.ssh_line(),
        backup: shared.backups.view(&shared.identity.name, wall()),
        pending,
        left: super::leave::views(&inventory),
    })
}

/// Warnings about managers whose machines are up but that do not answer the leader.
fn silent_managers<'a>(nodes: impl Iterator<Item = &'a NodeView>) -> Vec<String> {
    let there = nodes.filter(|n| n.presence == "alive" && n.manager.as_deref() == Some("voter"));
    let told = there.filter_map(|n| {
        let (name, silent) = (&n.name, n.membership.silent.as_ref()?);
        Some(format!(
            "{name} is up and is a voter, but does not work as a manager: {silent}; next: on {name}, remoor status and its log \
             show why; if it does not recover: remoor demote {name}, then remoor promote {name}, which gives it a new Raft id"
        ))
    });
    told.collect()
}

/// Warnings about members of Raft whose data directory the managers reject, as long as a node has
/// the member's Raft id.
fn stale_directories(refused: &BTreeMap<RaftId, (String, Wall)>, inventory: &Inventory) -> Vec<String> {
    let told = refused.iter().filter_map(|(id, (why, since))| {
        let (name, since) = (inventory.raft_id_holder(*id)?.name(), wire::rfc3339(*since));
        Some(format!(
            "{name} is rejected as a manager: {why} (the accepted start was first seen {since}); next: remoor demote {name}, \
             then remoor promote {name}; for a copy see docs/guides/backup-and-disaster.md",
        ))
    });
    told.collect()
}

/// Warnings about agents whose version differs from this manager's version, one line for each
/// version.
fn other_versions<'a>(agents: impl Iterator<Item = (&'a str, &'a str)>) -> Vec<String> {
    let own = env!("CARGO_PKG_VERSION");
    let mut by_version: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (name, version) in agents.filter(|(_, version)| !["", own].contains(version)) {
        by_version.entry(version).or_default().push(name);
    }
    let told = by_version.iter().map(|(version, names)| {
        format!("version differs: remoor {version} runs on {}, this manager is {own}", first_names(names))
    });
    told.collect()
}

/// The first five names, and the number of the others.
pub(super) fn first_names(names: &[&str]) -> String {
    let (some, more) = (&names[..names.len().min(5)], names.len().saturating_sub(5));
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    some.join(", ") + &more
}

#[derive(Debug, Default, Deserialize)]
pub struct HistoryQuery {
    node: Option<String>,
    limit: Option<usize>,
}

pub async fn history(
    State(shared): State<Arc<ManagerContext>>,
    Query(query): Query<HistoryQuery>,
) -> Result<TimedJson<HistoryView>, ApiFailure> {
    let inventory = shared.inventory();
    let of = |name: String| inventory.id_by_name(&name).map_or_else(|| find_node(&inventory, &name).map(|n| n.id), Ok);
    let node = query.node.map(of).transpose()?;
    let limit = query.limit.unwrap_or(200).min(HISTORY_PAGE);
    let matching = inventory.history.iter().rev().filter(|i| node.is_none() || i.node == node).take(limit);
    let mut items: Vec<_> = matching.cloned().collect();
    items.reverse();
    Ok(TimedJson(HistoryView { version: 1, as_of: as_of(&shared), names: names(&inventory), items }))
}

#[derive(Debug, Default, Deserialize)]
pub struct LogQuery {
    #[serde(default)]
    follow: bool,
}

/// Streams the output of a job's attempts, which comes from the managers that ran them. With
/// `follow`, the stream continues until the job is closed.
pub async fn job_log(
    State(shared): State<Arc<ManagerContext>>,
    Extension(by): Extension<Actor>,
    Path(id): Path<u64>,
    Query(query): Query<LogQuery>,
) -> Result<Response, ApiFailure> {
    let inventory = shared.inventory();
    let unknown = || ApiFailure::new(Code::NotFound, format!("no job has the number {id}")).next("remoor job list");
    let job = inventory.job(JobId(id)).cloned().ok_or_else(unknown)?;
    let stream = shared.published.watch_stream();
    let (tx, rx) = mpsc::channel::<Value>(STREAM_DEPTH);
    tokio::spawn(async move {
        for attempt in &job.attempts {
            let text = super::jobs::log_of(&shared, attempt).await;
            for line in text.lines().filter_map(|l| serde_json::from_str(l).ok()) {
                if tx.send(line).await.is_err() {
                    return;
                }
            }
        }
        let open = |s: &ManagerContext| {
            s.inventory().job(JobId(id)).is_some_and(|j| j.closed.is_none() && j.state == remoor_model::JobState::Open)
        };
        if query.follow {
            tokio::select! {
                () = pump(stream, &tx, |item| about_job(item, &job, id), || open(&shared)) => {}
                () = operators::until_refused(&shared, &by) => return,
            }
        }
        let end = StreamItem::End { text: shared.inventory().job(JobId(id)).map_or_else(String::new, outcome) };
        let _ = tx.send(serde_json::to_value(end).unwrap_or_default()).await;
    });
    Ok(wire::ndjson(rx))
}

fn outcome(job: &remoor_model::Job) -> String {
    format!("{:?}", job.state).to_lowercase()
}

fn about_job(item: &StreamItem, job: &remoor_model::Job, id: u64) -> bool {
    match item {
        StreamItem::Task { job, .. } => *job == id,
        StreamItem::History { item, .. } => item.node == Some(job.node),
        _ => true,
    }
}

/// Streams all journal items from now on.
pub async fn watch(State(shared): State<Arc<ManagerContext>>, Extension(by): Extension<Actor>) -> Response {
    let stream = shared.published.watch_stream();
    let (tx, rx) = mpsc::channel::<Value>(STREAM_DEPTH);
    tokio::spawn(async move {
        tokio::select! {
            () = pump(stream, &tx, |_| true, || true) => {}
            () = operators::until_refused(&shared, &by) => {}
        }
    });
    wire::ndjson(rx)
}

/// Copies the stream of journal items to one reader, until `goes_on` returns false or the reader
/// disconnects.
async fn pump(
    mut stream: broadcast::Receiver<StreamItem>,
    tx: &mpsc::Sender<Value>,
    wanted: impl Fn(&StreamItem) -> bool,
    goes_on: impl Fn() -> bool,
) {
    let mut beat = tokio::time::interval(std::time::Duration::from_millis(500));
    loop {
        let item = tokio::select! {
            item = stream.recv() => item,
            _ = beat.tick() => {
                if tx.is_closed() || !goes_on() && stream.is_empty() {
                    return;
                }
                continue;
            }
        };
        let item = match item {
            Ok(item) if wanted(&item) => item,
            Ok(_) => continue,
            Err(broadcast::error::RecvError::Lagged(count)) => StreamItem::Missed { count },
            Err(broadcast::error::RecvError::Closed) => return,
        };
        let mut line = serde_json::to_value(item).unwrap_or_default();
        with_times(&mut line);
        if tx.send(line).await.is_err() {
            return;
        }
    }
}

pub async fn explain_node(
    State(shared): State<Arc<ManagerContext>>,
    Path(name): Path<String>,
) -> Result<TimedJson<WhyView>, ApiFailure> {
    let inventory = shared.inventory();
    let node = find_node(&inventory, &name)?;
    let view = node_view(&shared, &inventory, &node);
    let (not_done, next) = explain_inaction(&node, &view, ReportOnlyReason::for_node(&inventory, &node));
    let mut history: Vec<_> =
        inventory.history.iter().rev().filter(|i| i.node == Some(node.id)).take(50).cloned().collect();
    history.reverse();
    Ok(TimedJson(WhyView {
        version: 1,
        as_of: as_of(&shared),
        absence: node.absence.clone(),
        want: node.pending_resetup.clone(),
        job: node.job.and_then(|j| inventory.job(j)).cloned(),
        node: view,
        history,
        not_done,
        next,
    }))
}

/// The reason why drift of a node is only reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReportOnlyReason {
    /// All differences are in monitor-only services.
    Watched,
    /// The node was only adopted, and no policy is configured for its group.
    Adopted,
    ByPolicy,
}

impl ReportOnlyReason {
    fn for_node(inventory: &Inventory, node: &Node) -> Self {
        let Some(finding) = &node.examination.finding else { return ReportOnlyReason::ByPolicy };
        let spared = inventory.group(node).is_some_and(|(_, g)| g.is_spared(node, finding.trigger));
        match finding.verdict == Verdict::Drifted && inventory.drifts_only_monitored(&finding.reasons) {
            true => ReportOnlyReason::Watched,
            false if finding.verdict.is_drifted() && spared => ReportOnlyReason::Adopted,
            false => ReportOnlyReason::ByPolicy,
        }
    }
}

/// The reasons why remoor took no action on the node, and commands that an operator may use.
fn explain_inaction(node: &Node, view: &NodeView, reported: ReportOnlyReason) -> (Vec<String>, Vec<String>) {
    let name = node.name();
    let mut not_done: Vec<String> = Vec::new();
    let mut next: Vec<String> = Vec::new();
    if let Some(finding) = &node.examination.finding {
        match (&finding.planned_action, &finding.verdict) {
            (PlannedAction::Report, Verdict::Unknown(why)) => {
                not_done.push(format!("no re-setup: unknown is not drift ({why})"));
                next.push(format!("remoor check {name}"));
            }
            (PlannedAction::Report, _) if reported == ReportOnlyReason::Watched => {
                not_done.push("no re-setup: what differs is monitor-only, not provisioned".to_owned());
                next.push(format!("remoor diff {name}"));
                next.push(format!("remoor adopt {name}"));
            }
            (PlannedAction::Report, verdict) if reported == ReportOnlyReason::Adopted => {
                let why = "the node was adopted and never set up by remoor, and its group names no policy";
                not_done.push(format!("no re-setup: {why} for this occasion ({verdict})"));
                next.push(format!("remoor diff {name}"));
                next.push(format!("remoor resetup {name}"));
                next.push(format!("remoor commission {name} (from now on, drift on return is repaired)"));
            }
            (PlannedAction::Report, verdict) if *verdict != Verdict::Same => {
                not_done.push(format!("no re-setup: the policy for this occasion is report ({verdict})"));
                next.push(format!("remoor diff {name}"));
                // A rollout of the current generation has a canary.
                let order = if *verdict == Verdict::Outdated { "update" } else { "resetup" };
                next.push(format!("remoor {order} {name}"));
            }
            (PlannedAction::None, _) => not_done.push("nothing was run: nothing differed".to_owned()),
            (PlannedAction::Held(why) | PlannedAction::Blocked(why), _) => {
                not_done.push(format!("no re-setup: {why}"));
                next.push(format!("remoor resetup {name} --now"));
            }
            _ => {}
        }
    }
    if let Some(hold) = &node.hold.as_ref().filter(|_| view.conditions.iter().any(|c| c.is == "held")) {
        not_done.push(format!("nothing is set up automatically: held: {}", hold.why));
        next.push(format!("remoor resume {name}"));
    }
    if let Some(want) = &node.pending_resetup {
        let what = if want.spec.undo.is_some() { "undo" } else { "re-setup" };
        next.push(format!("remoor job cancel {name} cancels the queued {what}"));
    }
    not_done.extend(view.conditions.iter().filter(|c| c.is == "waiting").map(|c| format!("not yet: {}", c.why)));
    if view.conditions.iter().any(|c| c.is == "waiting" && c.why.contains("window opens at")) {
        next.push(format!("remoor resetup {name} --now (does not wait for the window)"));
    }
    if let Some(blocked) = view.conditions.iter().find(|c| c.is == "blocked") {
        not_done.push(format!("blocked: {}", blocked.why));
        next.push(format!(
            "look at the network from the managers to the SSH port of {name}; the job continues once one reaches it"
        ));
    }
    if view.presence == "away" {
        next.push(format!("look at the host's power and network; remoor watches for {name} and examines it on return"));
    }
    if view.presence == "agent-down" {
        next.push(format!("on {name}: systemctl restart remoor"));
    }
    if node.host_key.changed.is_some() {
        next.push(super::examination::compare_key(name.as_str()));
    }
    if node.setup.baseline.is_none() {
        next.push(format!("remoor commission {name}, or remoor adopt {name}"));
    }
    (not_done, next)
}

pub async fn prometheus(State(shared): State<Arc<ManagerContext>>) -> String {
    render_all(&metrics_registries(&shared))
}

/// Metrics of this manager and of the cluster's state.
pub fn metrics_registries(shared: &ManagerContext) -> [Registry; 2] {
    let leads = shared.raft.status().borrow().is_leader;
    let age_ms = if leads { Some(0) } else { shared.age_ms() };
    let clocks = shared.compare_clocks().seconds();
    let own = metrics::ManagerMetrics { leads, age_ms, clocks };
    metrics::registries(&shared.inventory(), &own, &shared.published.applied)
}

pub(super) fn names(inventory: &Inventory) -> BTreeMap<u64, String> {
    inventory.all_names().map(|(id, name)| (id.0, name.to_string())).collect()
}

pub fn node_view(shared: &ManagerContext, inventory: &Inventory, node: &Node) -> NodeView {
    let raft = shared.raft.status().borrow().clone();
    let shown = shared.published.engine.snapshot(shared.now(), wall(), inventory, node);
    let presence = match shown.as_ref().and_then(|s| s.presence) {
        Some(Presence::Alive) => "alive",
        Some(Presence::Suspect) => "suspect",
        Some(Presence::Away) => "away",
        Some(Presence::AgentDown) => "agent-down",
        Some(Presence::Left) => "left",
        Some(Presence::NeverSeen) => "never-seen",
        None if node.is_away() => "away",
        None => "unknown",
    };
    let raft = roles::seat(node, &raft, || shared.published.role_waits().remove(&node.id));
    let contradiction =
        addresses::contradiction(shared, node).map(|why| ConditionView { is: "ssh-address".to_owned(), why });
    let since = |at: Wall| Some(wire::rfc3339(at));
    let report = shared.observed.report_of(node.name()).and_then(|r| ReportView::from_report(&r));
    let missed = shown.as_ref().map(|s| s.unreachable_from.clone()).unwrap_or_default();
    let services = inventory.generation().map(|g| g.services_of(node.name())).unwrap_or_default();
    let said = report.as_ref().map(|r| r.version.clone()).filter(|v| !v.is_empty());
    NodeView {
        id: node.id.0,
        name: node.name().to_string(),
        group: inventory.group(node).map(|(name, _)| name.to_string()),
        role: node.role.as_str().to_owned(),
        manager: raft.manager.map(str::to_owned),
        presence: presence.to_owned(),
        presence_since: node.absence.as_ref().map_or_else(|| since(node.examination.seen), |a| since(a.last_seen)),
        operation: OperationView {
            lifecycle: node.removing.as_ref().map_or(node.lifecycle.as_str(), |_| "removing").to_owned(),
            failed: node.failed.clone(),
            availability: node.availability,
            maintenance: node.maintenance.clone().filter(|_| node.in_maintenance(wall())),
        },
        addresses: AddressesView {
            api: node.spec.api.clone(),
            gossip: node.spec.gossip.clone(),
            ssh: shared.ansible_host(node.name()).or_else(|| node.ip().map(|ip| ip.to_string())),
            ssh_fingerprints: node.spec.ssh_host_keys.iter().filter_map(|k| remoor_exec::ssh::fingerprint(k)).collect(),
        },
        config: ConfigView {
            finding: node.examination.finding.clone(),
            baseline: node.setup.baseline.clone(),
            outdated: inventory.is_outdated(node),
        },
        reachability: ReachabilityView {
            unreachable_from: missed.iter().map(|(by, _)| by.to_string()).collect(),
            unreachable_since: missed.iter().map(|(by, since)| (by.to_string(), wire::rfc3339(*since))).collect(),
            unanswered: shared.observed.unanswered_pings(node.name()),
        },
        conditions: shown.map(|s| s.conditions).unwrap_or_default().into_iter().chain(contradiction).collect(),
        job: node.job.map(|j| j.0),
        absences: node.absences.count.0,
        agent: ReportedAgentView {
            faults: node.absences.agent_faults,
            version: said.unwrap_or_else(|| node.spec.version.clone()),
            report,
        },
        membership: NodeMembershipView {
            state: raft.state.as_str().to_owned(),
            waits: raft.waits,
            silent: raft.silent,
            lag: raft.lag,
        },
        zone: node.spec.zone.clone(),
        services: services.iter().map(ToString::to_string).collect(),
        certificate_until: shared.observed.certificates.expiry_of(node.id).and_then(since),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agents_of_another_version_are_listed_once_per_version() {
        let own = env!("CARGO_PKG_VERSION");
        let agents = [("m1", own), ("w1", "0.0.9"), ("w2", ""), ("w3", "0.0.9"), ("w4", "9.0.0")];
        let told = other_versions(agents.into_iter());
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(told[0].starts_with("version differs: remoor 0.0.9 runs on w1, w3, this manager is "), "{told:?}");
        let many: Vec<String> = (0..9).map(|n| format!("w{n}")).collect();
        let told = other_versions(many.iter().map(|name| (name.as_str(), "0.0.9")));
        assert!(told[0].contains("w0, w1, w2, w3, w4 and 4 more"), "{told:?}");
    }
}
