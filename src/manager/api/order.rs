//! Orders about nodes. A refused one changes nothing; one that needs evidence examines first, over SSH.

use super::super::{Shared, blobs, examine, wall};
use super::{as_of, named, operator, propose};
use crate::engine::{self, Evidence, ExamOutcome};
use crate::exec::wire::{Order, Reply};
use crate::model::{
    Availability, Baseline, Change, Command, Difference, JobId, Lifecycle, Node, Occasion, Reason, ServiceName, Sha256,
    Verdict, Want, differences,
};
use crate::rpc::caller::Caller;
use crate::rpc::view::{AdoptView, CheckView, DiffView, FileDiff, OrderRequest, OrderView};
use crate::rpc::wire::{Code, Failure, Json};
use axum::extract::{Path, State};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// Of a unified diff, per file.
const DIFF_MAX: usize = 64 << 10;
/// Files whose content one `diff` fetches.
const FETCH_MAX: usize = 64;
const SCAN_TIMEOUT: Duration = Duration::from_secs(10);
const FETCH_TIMEOUT: Duration = Duration::from_secs(20);

type Answer<T> = Result<axum::Json<T>, Failure>;

/// `resetup`, `commission`, `decommission`, `update`, `pause`, `resume`, `maintenance`, `trust-key`.
pub async fn order(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    Path((name, verb)): Path<(String, String)>,
    Json(request): Json<OrderRequest>,
) -> Answer<OrderView> {
    let by = operator(&shared, &caller)?;
    let node = named(&shared.inventory(), &name)?;
    let desk = Desk { shared: &shared, by: &by, node: &node, request: &request };
    let view = match verb.as_str() {
        "resetup" => desk.resetup().await?,
        "commission" => desk.commission().await?,
        "decommission" => desk.decommission().await?,
        "update" => desk.update().await?,
        "pause" => {
            desk.simple(
                Command::Availability { node: node.id, availability: Availability::Pause },
                "is paused: examined and reported only",
            )
            .await?
        }
        "resume" => desk.simple(Command::ResumeNode { node: node.id }, "is active again").await?,
        "maintenance" => desk.maintenance().await?,
        "trust-key" => desk.trust_key().await?,
        other => return Err(Failure::new(Code::NotFound, format!("there is no order {other}"))),
    };
    Ok(axum::Json(view))
}

pub async fn resume_fleet(State(shared): State<Arc<Shared>>, caller: Caller) -> Answer<OrderView> {
    let by = operator(&shared, &caller)?;
    propose(&shared, &by, Command::Resume).await?;
    Ok(axum::Json(said("the breaker is closed; waiting re-setups begin within the budgets")))
}

pub async fn cancel(State(shared): State<Arc<Shared>>, caller: Caller, Path(id): Path<u64>) -> Answer<OrderView> {
    let by = operator(&shared, &caller)?;
    propose(&shared, &by, Command::CancelJob { job: JobId(id), why: format!("cancelled by {by}") }).await?;
    Ok(axum::Json(said(&format!("job {id} is cancelled; its node is held until `remoor resume NODE`"))))
}

struct Desk<'a> {
    shared: &'a Arc<Shared>,
    by: &'a str,
    node: &'a Node,
    request: &'a OrderRequest,
}

impl Desk<'_> {
    async fn simple(&self, command: Command, text: &str) -> Result<OrderView, Failure> {
        propose(self.shared, self.by, command).await?;
        Ok(said(&format!("{} {text}", self.node.name())))
    }

    async fn want(
        &self,
        occasion: Occasion,
        services: Vec<ServiceName>,
        reasons: Vec<Reason>,
        decommission: bool,
    ) -> Result<OrderView, Failure> {
        let name = self.node.name();
        let insisted = self.request.force && !decommission && self.node.agent_down();
        let away = self.node.absence.as_ref().filter(|a| a.returned.is_none() && !insisted);
        if let Some(absence) = away
            && self.request.no_queue
        {
            let since = crate::rpc::wire::rfc3339(absence.last_seen);
            let text = format!("{name} is away since {since}; nothing was queued");
            return Err(Failure::new(Code::Refused, text).next(format!("remoor wait {name} --for=alive")));
        }
        let want = Want {
            occasion,
            reasons,
            services,
            since: wall(),
            examined: None,
            by: Some(self.by.to_owned()),
            now: self.request.now || insisted,
            decommission,
        };
        propose(self.shared, self.by, Command::Want { node: self.node.id, want: Box::new(want) }).await?;
        Ok(match away {
            Some(absence) => OrderView {
                version: 1,
                text: format!(
                    "queued: {name} is away since {}; it is done once on its return",
                    crate::rpc::wire::rfc3339(absence.last_seen)
                ),
                queued: true,
                nothing_to_do: false,
            },
            None => said(&format!("{name}: ordered")),
        })
    }

    /// Who was never set up, or is no more, is set up by `commission` only.
    fn in_service(&self) -> Result<(), Failure> {
        let name = self.node.name();
        let text = match self.node.lifecycle {
            Lifecycle::Commissioning | Lifecycle::Commissioned => return Ok(()),
            Lifecycle::Accepted => format!("{name} was never commissioned"),
            out @ (Lifecycle::Decommissioning | Lifecycle::Decommissioned) => {
                format!("{name} is {} and is not set up again", out.word())
            }
        };
        Err(Failure::new(Code::Refused, text).next(format!("remoor commission {name}")))
    }

    async fn resetup(&self) -> Result<OrderView, Failure> {
        let name = self.node.name();
        let inventory = self.shared.inventory();
        let services: Vec<ServiceName> = self.request.services.iter().map(|s| s.as_str().into()).collect();
        let known = inventory.group(self.node).map(|(_, g)| g.services.clone()).unwrap_or_default();
        if let Some(unknown) = services.iter().find(|s| !known.contains(s)) {
            let text = format!("{name} has no service {unknown}; it has: {}", list(&known));
            return Err(Failure::new(Code::NotFound, text).next(format!("remoor nodes {name}")));
        }
        let gone = self.node.absence.as_ref().filter(|a| a.returned.is_none()).map(|a| a.gone);
        if gone == Some(crate::model::Gone::AgentDown) && !self.request.force {
            let text = format!("the agent of {name} is silent while its host answers");
            return Err(Failure::new(Code::Refused, text).next(format!("remoor resetup {name} --force")));
        }
        self.in_service()?;
        if self.request.force || gone.is_some() {
            return self.want(Occasion::Live, services, Vec::new(), false).await;
        }
        let evidence = look(self.shared, self.node).await?;
        let (verdict, reasons) = engine::compare(&inventory, self.node, &evidence);
        if let Verdict::Unknown(why) = &verdict
            && evidence.expected.is_some()
        {
            let text = format!("{name} could not be judged: {why}");
            return Err(Failure::new(Code::Refused, text).next(format!("remoor resetup {name} --force")));
        }
        let named: BTreeSet<ServiceName> =
            reasons.iter().map(|r| r.service.clone()).filter(|s| known.contains(s)).collect();
        let chosen = match (services.is_empty(), &verdict, inventory.generation()) {
            (false, ..) => services,
            (true, Verdict::Same, _) => {
                return Ok(OrderView {
                    version: 1,
                    text: format!("{name} is as it should be: nothing to do"),
                    nothing_to_do: true,
                    queued: false,
                });
            }
            (true, Verdict::Drifted | Verdict::Conflict, Some(generation)) if !named.is_empty() => {
                engine::with_dependents(&generation.summary, &named)
            }
            _ => Vec::new(),
        };
        self.want(Occasion::Live, chosen, reasons, false).await
    }

    async fn commission(&self) -> Result<OrderView, Failure> {
        if self.node.watched {
            let text = "was adopted, and is entrusted to remoor now: the policies of its group hold; nothing was run";
            let view = self.simple(Command::Entrust { node: self.node.id }, text).await?;
            return Ok(OrderView { nothing_to_do: true, ..view });
        }
        if self.node.lifecycle == Lifecycle::Commissioned {
            let text = format!("{} is commissioned already", self.node.name());
            return Ok(OrderView { version: 1, text, nothing_to_do: true, queued: false });
        }
        self.want(Occasion::Apply, Vec::new(), Vec::new(), false).await
    }

    async fn decommission(&self) -> Result<OrderView, Failure> {
        let name = self.node.name();
        if self.node.lifecycle == Lifecycle::Decommissioned {
            return Ok(OrderView {
                version: 1,
                text: format!("{name} is decommissioned already"),
                nothing_to_do: true,
                queued: false,
            });
        }
        if let Some(absence) = self.node.absence.as_ref().filter(|a| a.returned.is_none())
            && !self.request.force
        {
            let text = format!("{name} is away since {}", crate::rpc::wire::rfc3339(absence.last_seen));
            return Err(Failure::new(Code::Refused, text)
                .next(format!("remoor decommission {name} --force cleans it up on its return")));
        }
        self.want(Occasion::Apply, Vec::new(), Vec::new(), true).await
    }

    /// Never sets up who was not set up before, or not any more: a roll-out is no commissioning.
    async fn update(&self) -> Result<OrderView, Failure> {
        let inventory = self.shared.inventory();
        self.in_service()?;
        let applied = self.node.baseline.as_ref().map(|b| b.desired);
        if applied.is_some() && applied == inventory.desired(self.node) {
            let text = format!("{} has generation {} already", self.node.name(), inventory.current);
            return Ok(OrderView { version: 1, text, nothing_to_do: true, queued: false });
        }
        self.want(Occasion::Apply, Vec::new(), Vec::new(), false).await
    }

    async fn maintenance(&self) -> Result<OrderView, Failure> {
        let until = (self.request.for_ms > 0).then(|| wall().after(self.request.for_ms));
        let text = match until {
            Some(until) => format!("is in maintenance until {}", crate::rpc::wire::rfc3339(until)),
            None => "is no longer in maintenance".to_owned(),
        };
        self.simple(Command::Maintenance { node: self.node.id, until }, &text).await
    }

    /// The key that is offered now must have the fingerprint that the operator names.
    async fn trust_key(&self) -> Result<OrderView, Failure> {
        let name = self.node.name();
        let target = examine::target(self.shared, self.node.id).await;
        let target = target.map_err(|e| Failure::new(Code::Refused, e.to_string()))?;
        let offered = crate::ssh::scan_host_keys(&target.host, target.port, SCAN_TIMEOUT).await;
        let offered = offered.map_err(|e| Failure::new(Code::Timeout, format!("{name} offers no host key: {e}")))?;
        let prints: Vec<String> = offered.iter().filter_map(|k| crate::ssh::fingerprint(k)).collect();
        if !prints.contains(&self.request.fingerprint) {
            let text = format!("{name} offers {}, not {}", prints.join(", "), self.request.fingerprint);
            return Err(Failure::new(Code::Refused, text).next("compare it with ssh-keygen -lf on the host's console"));
        }
        self.simple(Command::TrustKey { node: self.node.id, keys: offered }, "is trusted with its new host key").await
    }
}

pub async fn check(State(shared): State<Arc<Shared>>, caller: Caller, Path(name): Path<String>) -> Answer<CheckView> {
    operator(&shared, &caller)?;
    let inventory = shared.inventory();
    let node = named(&inventory, &name)?;
    let begun = std::time::Instant::now();
    let evidence = look(&shared, &node).await?;
    let (verdict, reasons) = engine::compare(&inventory, &node, &evidence);
    Ok(axum::Json(CheckView {
        version: 1,
        as_of: as_of(&shared),
        node: name,
        verdict: verdict.to_string(),
        reasons: reasons.into_iter().map(|r| r.text).collect(),
        differences: different(&evidence),
        checks: evidence.exam.checks,
        took_ms: begun.elapsed().as_millis() as u64,
    }))
}

/// Examines now. Not reached is an error that says so, never a verdict.
async fn look(shared: &Arc<Shared>, node: &Node) -> Result<Evidence, Failure> {
    let name = node.name();
    match examine::examine(shared, node.id).await {
        ExamOutcome::Found(evidence) => Ok(evidence),
        ExamOutcome::HostKey(fingerprint) => {
            let text = format!("{name} offers another SSH host key, {fingerprint}; nothing was sent to it");
            Err(Failure::new(Code::Refused, text).next(format!("remoor trust-key {name} {fingerprint}")))
        }
        ExamOutcome::Unreachable(why) => {
            let text = format!("{name} can't be reached over SSH: {why}");
            Err(Failure::new(Code::Timeout, text).next(format!("remoor why {name}")))
        }
        ExamOutcome::Failed(why) => {
            Err(Failure::new(Code::Unavailable, format!("{name} could not be examined: {why}"))
                .next(format!("remoor why {name}")))
        }
    }
}

fn different(evidence: &Evidence) -> Vec<Difference> {
    evidence.expected.as_ref().map(|e| differences(e, &evidence.exam.digest)).unwrap_or_default()
}

pub async fn diff(State(shared): State<Arc<Shared>>, caller: Caller, Path(name): Path<String>) -> Answer<DiffView> {
    operator(&shared, &caller)?;
    let node = named(&shared.inventory(), &name)?;
    let evidence = look(&shared, &node).await?;
    let mut files: BTreeMap<String, FileDiff> = BTreeMap::new();
    for difference in different(&evidence) {
        let what = match &difference.what {
            Change::Missing => "missing",
            Change::Extra => "extra",
            Change::Changed { .. } => "changed",
        };
        let file = files.entry(difference.path.clone()).or_insert_with(|| FileDiff {
            service: difference.service.to_string(),
            path: difference.path.clone(),
            what: what.to_owned(),
            attributes: Vec::new(),
            origin: origin(&evidence, &difference.path).to_owned(),
            unified: None,
            note: None,
        });
        if let Change::Changed { attribute, expected, found } = &difference.what {
            file.attributes.push(format!("{attribute}: {expected} -> {found}"));
        }
    }
    let secret: BTreeSet<&str> = evidence
        .exam
        .digest
        .services
        .values()
        .flat_map(|s| &s.entries)
        .filter(|e| e.secret)
        .map(|e| e.path.as_str())
        .collect();
    for file in files.values_mut().filter(|f| secret.contains(f.path.as_str())) {
        file.note = Some("secret: content is never shown".to_owned());
    }
    let paths: Vec<String> = files
        .values()
        .filter(|f| f.note.is_none() && f.what == "changed" && evidence.rendered.contains(&f.path))
        .map(|f| f.path.clone())
        .take(FETCH_MAX)
        .collect();
    if !paths.is_empty() {
        contents(&shared, &node, paths, &mut files).await?;
    }
    Ok(axum::Json(DiffView { version: 1, as_of: as_of(&shared), node: name, files: files.into_values().collect() }))
}

/// How it is known what a path is to be.
fn origin(evidence: &Evidence, path: &str) -> &'static str {
    let recorded = |e: &crate::model::NodeDigest| e.services.values().flat_map(|s| &s.entries).any(|e| e.path == path);
    match &evidence.expected {
        _ if evidence.rendered.contains(path) => "rendered",
        Some(expected) if recorded(expected) => "recorded",
        _ => "none",
    }
}

async fn contents(
    shared: &Arc<Shared>,
    node: &Node,
    paths: Vec<String>,
    files: &mut BTreeMap<String, FileDiff>,
) -> Result<(), Failure> {
    let failed = |e: String| Failure::new(Code::Unavailable, e);
    let prepared = examine::prepare(shared, node.id, None).await.map_err(|e| failed(e.to_string()))?;
    let mut session = shared.remote.open(&prepared.target).await.map_err(|e| failed(e.to_string()))?;
    // The executor shows only what a manifest of the same session does not call secret.
    let seen = examine::evidence(shared, &mut session, node.id, &prepared).await;
    let reply = match seen {
        Ok(_) => session.order(Order::Fetch { paths }, &mut |_| {}, FETCH_TIMEOUT).await,
        Err(error) => Err(error),
    };
    session.close().await;
    let Reply::Fetched { files: fetched } = reply.map_err(|e| failed(e.to_string()))? else { return Ok(()) };
    for got in fetched {
        let (Some(file), Some(rendered)) = (files.get_mut(&got.path), prepared.rendered.get(&got.path)) else {
            continue;
        };
        match (got.error, std::str::from_utf8(&rendered.content)) {
            (None, Ok(wanted)) => {
                let found = String::from_utf8_lossy(&got.content).into_owned();
                let text = similar::TextDiff::from_lines(wanted, &found);
                let mut unified = text.unified_diff().header("rendered", "found").to_string();
                if unified.len() > DIFF_MAX {
                    let cut = (0..=DIFF_MAX).rev().find(|i| unified.is_char_boundary(*i)).unwrap_or(0);
                    unified.truncate(cut);
                    file.note = Some("the diff is cut at 64 KiB".to_owned());
                }
                file.unified = Some(unified);
            }
            (error, _) => file.note = Some(error.unwrap_or_else(|| "content can't be shown as text".to_owned())),
        }
    }
    Ok(())
}

/// Takes what is there as the recorded baseline; runs nothing.
pub async fn adopt(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    Path(name): Path<String>,
    Json(request): Json<OrderRequest>,
) -> Answer<AdoptView> {
    let by = operator(&shared, &caller)?;
    let inventory = shared.inventory();
    let node = named(&inventory, &name)?;
    let evidence = look(&shared, &node).await?;
    let mut digest = evidence.exam.digest.clone();
    let unreadable: Vec<String> = digest.services.values().flat_map(|s| s.unreadable.keys().cloned()).collect();
    if !unreadable.is_empty() {
        return Err(Failure::new(
            Code::Refused,
            format!("can't be read and so not adopted: {}", unreadable.join(", ")),
        ));
    }
    if !request.paths.is_empty() {
        digest = only(&request.paths, evidence.expected.as_ref(), digest).map_err(|path| {
            Failure::new(Code::NotFound, format!("{path} is no declared file of {name}"))
                .next(format!("remoor check {name}"))
        })?;
    }
    let changes = evidence.expected.as_ref().map(|e| differences(e, &digest)).unwrap_or_default();
    let prepared = examine::prepare(&shared, node.id, None).await;
    let prepared = prepared.map_err(|e| Failure::new(Code::Unavailable, e.to_string()))?;
    let facts = prepared.record.map(|r| r.facts).unwrap_or_default();
    let record = examine::record(&prepared.rendered, &facts, &digest);
    let bytes = rmp_serde::to_vec_named(&record).map_err(|e| Failure::new(Code::Internal, e.to_string()))?;
    let blob: Sha256 = blobs::store(&shared, bytes).await.map_err(|e| Failure::new(Code::NoQuorum, e.to_string()))?;
    let before = node.baseline.as_ref();
    let baseline = Baseline {
        generation: before.map_or(inventory.current, |b| b.generation),
        desired: before.map(|b| b.desired).or_else(|| inventory.desired(&node)).unwrap_or_default(),
        root: digest.root,
        blob,
        adopted: true,
        at: wall(),
    };
    propose(&shared, &by, Command::Adopt { node: node.id, baseline }).await?;
    let after = shared.inventory();
    let spared = |n: &Node| after.group(n).is_some_and(|(_, g)| g.spares(n, Occasion::Network));
    let reported_only = after.node(node.id).is_some_and(spared);
    Ok(axum::Json(AdoptView { version: 1, node: name, digest, changes, reported_only }))
}

/// The baseline before, with `paths` as they are found now.
fn only(
    paths: &[String],
    before: Option<&crate::model::NodeDigest>,
    found: crate::model::NodeDigest,
) -> Result<crate::model::NodeDigest, String> {
    let mut digest = before.cloned().unwrap_or_default();
    for path in paths {
        let mut hit = false;
        for (name, service) in &found.services {
            for entry in service.entries.iter().filter(|e| e.path == *path) {
                hit = true;
                let into = digest.services.entry(name.clone()).or_default();
                into.entries.retain(|e| e.path != *path);
                into.entries.push(entry.clone());
                into.entries.sort();
                into.root = crate::model::ServiceDigest::root_of(&into.entries);
            }
        }
        if !hit {
            return Err(path.clone());
        }
    }
    digest.root = crate::model::NodeDigest::root_of(&digest.services);
    Ok(digest)
}

fn said(text: &str) -> OrderView {
    OrderView { version: 1, text: text.to_owned(), nothing_to_do: false, queued: false }
}

fn list(services: &[ServiceName]) -> String {
    services.iter().map(ServiceName::as_str).collect::<Vec<_>>().join(", ")
}
