//! `GET /v1/jobs`: jobs and queued requests. The server filters them, because clients that follow a
//! job repeat the request often.

use super::super::blobs::AttemptLog;
use super::super::{ManagerContext, reach, wall};
use super::read::names;
use super::{as_of, find_node};
use axum::extract::{Path, Query, State};
use remoor_cluster::rpc::view::{JobsView, QueuedView, StreamItem};
use remoor_cluster::rpc::wire::{ApiFailure, Code, TimedJson};
use remoor_model::{Attempt, AttemptId, Inventory, Job, JobState, Node, NodeId};
use serde::Deserialize;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// Time limit to fetch the output of an attempt from another manager.
const LOG_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug, Default, Deserialize)]
pub struct JobsQuery {
    /// Node names, separated by commas.
    node: Option<String>,
    /// Select only open and held jobs.
    #[serde(default)]
    open: bool,
    /// Job numbers, separated by commas.
    job: Option<String>,
    /// Select only jobs whose number is higher than this number.
    after: Option<u64>,
    /// Select only this number of jobs, those with the highest numbers.
    limit: Option<usize>,
}

pub async fn jobs(
    State(shared): State<Arc<ManagerContext>>,
    Query(query): Query<JobsQuery>,
) -> Result<TimedJson<JobsView>, ApiFailure> {
    let inventory = shared.inventory();
    let wanted = JobFilter::from_query(&inventory, &query)?;
    let mut jobs: Vec<Job> = inventory
        .jobs
        .values()
        .rev()
        .filter(|j| wanted.includes_job(j))
        .take(wanted.limit)
        .map(|j| j.as_ref().clone())
        .collect();
    jobs.reverse();
    let waits = |node: &Node| {
        let shown = shared.published.engine.snapshot(shared.now(), wall(), &inventory, node);
        let conditions = shown.map(|s| s.conditions).unwrap_or_default();
        let told = conditions.into_iter().filter_map(|c| match c.is.as_str() {
            "waiting" => Some(c.why),
            "blocked" => Some(format!("blocked: {}", c.why)),
            _ => None,
        });
        told.collect()
    };
    let queued = inventory.nodes.values().filter(|n| wanted.includes_queued(n.id)).filter_map(|n| {
        let want = n.pending_resetup.clone()?;
        Some(QueuedView { node: n.id.0, want, waits: waits(n) })
    });
    let queued = queued.collect();
    Ok(TimedJson(JobsView { version: 1, as_of: as_of(&shared), names: names(&inventory), jobs, queued }))
}

/// The output of an attempt as stored on this manager, for another manager.
pub async fn own_log(
    State(shared): State<Arc<ManagerContext>>,
    Path(attempt): Path<u64>,
) -> Result<Vec<u8>, ApiFailure> {
    let path = AttemptLog::path(&shared, AttemptId(attempt));
    tokio::fs::read(&path)
        .await
        .map_err(|e| ApiFailure::new(Code::NotFound, format!("output of attempt {attempt}: {e}")))
}

/// The output of an attempt as JSON lines. The manager that ran the attempt has it. If it can't be
/// fetched, the answer is one line with the reason.
pub async fn log_of(shared: &Arc<ManagerContext>, attempt: &Attempt) -> String {
    let own = tokio::fs::read_to_string(AttemptLog::path(shared, attempt.id)).await;
    let runner =
        shared.inventory().by_name(attempt.runner.as_str()).map(|n| n.id).filter(|id| *id != shared.identity.node);
    if own.is_ok() || attempt.runner == shared.identity.name {
        return own.unwrap_or_default();
    }
    let path = format!("/manager/v1/log/{}", attempt.id);
    let why = match runner.and_then(|id| reach::address(shared, id)) {
        None => "is not a manager any more".to_owned(),
        Some(addr) => match shared.peers.get_bytes(&addr, &path, LOG_TIMEOUT).await {
            Ok(bytes) => return String::from_utf8_lossy(&bytes).into_owned(),
            Err(error) => format!("can't be asked: {error}"),
        },
    };
    let text = format!("attempt {} was run by {}, which holds its output but {why}", attempt.no, attempt.runner);
    serde_json::to_string(&StreamItem::End { text }).unwrap_or_default() + "\n"
}

/// The selection of jobs that a query makes, with node ids instead of names.
struct JobFilter {
    nodes: Option<BTreeSet<NodeId>>,
    jobs: Option<BTreeSet<u64>>,
    open: bool,
    after: u64,
    limit: usize,
}

impl JobFilter {
    fn from_query(inventory: &Inventory, query: &JobsQuery) -> Result<Self, ApiFailure> {
        let nodes = query
            .node
            .as_deref()
            .map(|names| names.split(',').map(|n| find_node(inventory, n).map(|n| n.id)).collect());
        let number = |text: &str| {
            text.parse().map_err(|_| ApiFailure::new(Code::BadRequest, format!("{text} is not a job number")))
        };
        let jobs = query.job.as_deref().map(|jobs| jobs.split(',').map(number).collect());
        Ok(Self {
            nodes: nodes.transpose()?,
            jobs: jobs.transpose()?,
            open: query.open,
            after: query.after.unwrap_or(0),
            limit: query.limit.unwrap_or(usize::MAX),
        })
    }

    fn includes_job(&self, job: &Job) -> bool {
        self.nodes.as_ref().is_none_or(|nodes| nodes.contains(&job.node))
            && self.jobs.as_ref().is_none_or(|jobs| jobs.contains(&job.id.0))
            && (!self.open || matches!(job.state, JobState::Open | JobState::Held))
            && job.id.0 > self.after
    }

    /// Whether the queued request of the node is selected. A queued request has no number, so it is
    /// not selected if the query contains job numbers.
    fn includes_queued(&self, node: NodeId) -> bool {
        self.jobs.is_none() && self.nodes.as_ref().is_none_or(|nodes| nodes.contains(&node))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use remoor_model::{Inventory, JobId};

    fn job(id: u64, node: u64, state: &str) -> Job {
        serde_json::from_value(serde_json::json!({
            "id": id, "node": node, "opened": 1, "occasion": "live", "reasons": [], "services": [], "generation": 1,
            "by": null, "now": false, "decommission": false, "state": state, "attempts": [], "failures": 0,
            "retry_at": null, "closed": null, "result": null, "attempts_dropped": 0,
        }))
        .expect("a job as older managers wrote it")
    }

    #[test]
    fn jobs_are_filtered_by_every_parameter_of_the_query() {
        let jobs = [job(5, 1, "done"), job(7, 2, "open"), job(9, 1, "held")];
        let matching = |query: JobsQuery| -> Vec<u64> {
            let wanted = JobFilter::from_query(&Inventory::default(), &query).expect("a good query");
            jobs.iter().filter(|j| wanted.includes_job(j)).map(|j| j.id.0).collect()
        };
        assert_eq!(matching(JobsQuery::default()), [5, 7, 9]);
        assert_eq!(matching(JobsQuery { open: true, ..JobsQuery::default() }), [7, 9]);
        assert_eq!(matching(JobsQuery { job: Some("9,5".to_owned()), ..JobsQuery::default() }), [5, 9]);
        assert_eq!(matching(JobsQuery { after: Some(5), ..JobsQuery::default() }), [7, 9]);
        assert_eq!(jobs[0].id, JobId(5));
        let bad = JobsQuery { job: Some("x".to_owned()), ..JobsQuery::default() };
        assert!(JobFilter::from_query(&Inventory::default(), &bad).is_err());
        let nobody = JobsQuery { node: Some("w9".to_owned()), ..JobsQuery::default() };
        assert!(JobFilter::from_query(&Inventory::default(), &nobody).is_err());
    }
}
