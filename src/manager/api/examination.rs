//! Examines a node over SSH on request: check, diff and adopt. An examination changes nothing on
//! the node.

use super::super::examine::Sent;
use super::super::{ManagerContext, blobs, examine, remote_examination, wall};
use super::{Actor, as_of, find_node, propose};
use axum::Extension;
use axum::extract::{Path, State};
use remoor_cluster::rpc::view::{AdoptView, CheckView, DiffView, FileDiff, Nothing, OrderRequest};
use remoor_cluster::rpc::wire::{ApiFailure, Code, Strict};
use remoor_engine::{self as engine, Evidence, ExamOutcome};
use remoor_exec::wire::{ExecutorOrder, Reply};
use remoor_model::{
    Baseline, Command, Difference, DigestChange, Node, Sha256, Trigger, Wall, Witness, differences, only_owner,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// Maximum size of a unified diff per file in bytes.
const DIFF_MAX: usize = 64 << 10;
/// Maximum number of files whose content one `diff` fetches.
const FETCH_MAX: usize = 64;
const NO_ROUTE: &str = "no-route";
const FETCH_TIMEOUT: Duration = Duration::from_secs(20);

type Answer<T> = Result<axum::Json<T>, ApiFailure>;

pub async fn check(
    State(shared): State<Arc<ManagerContext>>,
    Path(name): Path<String>,
    _: Strict<Nothing>,
) -> Answer<CheckView> {
    let inventory = shared.inventory();
    let node = find_node(&inventory, &name)?;
    let begun = std::time::Instant::now();
    let evidence = examine_node(&shared, &node).await?;
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

/// The advice to compare a changed host key of the node. Only a person at the machine's console can
/// decide whether the offered key belongs to the machine.
pub(super) fn compare_key(name: &str) -> String {
    format!(
        "on its console: ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub; if it is the same: remoor trust-key {name} FINGERPRINT"
    )
}

/// Examines the node now. An unreachable node is an error, never a verdict.
pub(super) async fn examine_node(shared: &Arc<ManagerContext>, node: &Node) -> Result<Evidence, ApiFailure> {
    let name = node.name();
    let outcome = remote_examination::examine_via_any_manager(shared, node.id)
        .await
        .map_err(|remote_examination::NoRoute(why)| no_route(node, &why))?;
    match outcome {
        ExamOutcome::Found(evidence) => Ok(evidence),
        ExamOutcome::HostKey(fingerprint) => {
            let text = format!("{name} offers another SSH host key, {fingerprint}; nothing was sent to it");
            Err(ApiFailure::new(Code::Refused, text).next(compare_key(name.as_str())))
        }
        ExamOutcome::Unreachable(why) => {
            let text = format!("{name} can't be reached over SSH: {why}");
            Err(ApiFailure::new(Code::Timeout, text).next(format!("remoor why {name}")))
        }
        ExamOutcome::Failed(why) => {
            Err(ApiFailure::new(Code::Unavailable, format!("{name} could not be examined: {why}"))
                .next(format!("remoor why {name}")))
        }
    }
}

/// The error if no manager reaches the node's SSH port.
fn no_route(node: &Node, why: &str) -> ApiFailure {
    let name = node.name();
    let text = format!("{name} can't be reached over SSH from any manager: {why}");
    ApiFailure::new(Code::Timeout, text)
        .details(serde_json::json!({"blocked": NO_ROUTE}))
        .next(format!("remoor why {name}"))
}

/// Whether the error means that no manager reaches the node.
pub(super) fn is_no_route(failure: &ApiFailure) -> bool {
    failure.details["blocked"] == NO_ROUTE
}

fn different(evidence: &Evidence) -> Vec<Difference> {
    evidence.expected.as_ref().map(|e| differences(e, &evidence.exam.digest)).unwrap_or_default()
}

pub async fn diff(
    State(shared): State<Arc<ManagerContext>>,
    Path(name): Path<String>,
    _: Strict<Nothing>,
) -> Answer<DiffView> {
    let node = find_node(&shared.inventory(), &name)?;
    let evidence = examine_node(&shared, &node).await?;
    let entries = evidence.expected.iter().flat_map(|e| e.services.values()).flat_map(|s| &s.entries);
    let recorded: BTreeSet<&str> = entries.map(|e| e.path.as_str()).collect();
    let mut files: BTreeMap<String, FileDiff> = BTreeMap::new();
    for difference in different(&evidence) {
        let what = match &difference.what {
            DigestChange::Missing => "missing",
            DigestChange::Extra => "extra",
            DigestChange::Changed { .. } => "changed",
        };
        let file = files.entry(difference.path.clone()).or_insert_with(|| FileDiff {
            service: difference.service.to_string(),
            path: difference.path.clone(),
            what: what.to_owned(),
            attributes: Vec::new(),
            origin: origin(&evidence, &recorded, &difference.path).to_owned(),
            since: known_since(&node, &difference),
            unified: None,
            note: None,
        });
        if let DigestChange::Changed { attribute, expected, found } = &difference.what {
            file.attributes.push(format!("{attribute}: {expected} -> {found}"));
        }
    }
    let hidden = hidden_paths(&evidence);
    for file in files.values_mut().filter(|f| hidden.contains(f.path.as_str())) {
        file.note = Some("secret: content is never shown".to_owned());
    }
    let content = |file: &&mut FileDiff| file.attributes.iter().any(|a| a.starts_with("sha256: "));
    for file in files.values_mut().filter(|f| f.note.is_none() && f.origin == "recorded").filter(content) {
        file.note = Some("only its hash is recorded: there is no content to compare with".to_owned());
    }
    let paths: Vec<String> = files
        .values()
        .filter(|f| f.note.is_none() && f.what == "changed" && evidence.rendered.contains(&f.path))
        .map(|f| f.path.clone())
        .take(FETCH_MAX)
        .collect();
    if shared.observed.reaches.unreachable_reason(node.id).is_some() {
        let text = "the content is not shown: the leader does not reach the node, another manager examined it";
        files.values_mut().filter(|f| paths.contains(&f.path)).for_each(|f| f.note = Some(text.to_owned()));
    } else if !paths.is_empty() {
        contents(&shared, &node, paths, &mut files).await?;
    }
    let unclear = unclear(&evidence);
    let files = files.into_values().collect();
    Ok(axum::Json(DiffView { version: 1, as_of: as_of(&shared), node: name, files, unclear }))
}

/// Files whose content must not be shown. The baseline or the current state marks them as hidden.
fn hidden_paths(evidence: &Evidence) -> BTreeSet<&str> {
    let both = evidence.expected.iter().chain([&evidence.exam.digest]);
    let entries = both.flat_map(|digest| digest.services.values()).flat_map(|s| &s.entries);
    entries.filter(|e| e.is_hidden()).map(|e| e.path.as_str()).collect()
}

/// The time since which the findings on the node contain this difference. None if the last finding
/// does not contain it.
fn known_since(node: &Node, difference: &Difference) -> Option<Wall> {
    let reasons = node.examination.finding.iter().flat_map(|f| &f.reasons).filter(|r| r.by == Witness::Digest);
    let same = reasons.filter(|r| r.service == difference.service && r.about == difference.path);
    same.filter_map(|r| r.since).min()
}

/// The reasons why the comparison is incomplete: unreadable files, or a missing baseline.
fn unclear(evidence: &Evidence) -> Vec<String> {
    let mut out: Vec<String> = evidence.exam.digest.services.values().flat_map(|s| s.describe_unreadable()).collect();
    if evidence.expected.is_none() {
        out.push("nothing is recorded to compare with: commission or adopt it".to_owned());
    }
    out
}

/// Where the expected state of a path comes from: the word for the output. `recorded` contains the
/// paths in the baseline.
fn origin(evidence: &Evidence, recorded: &BTreeSet<&str>, path: &str) -> &'static str {
    match (evidence.rendered.contains(path), recorded.contains(path)) {
        (true, _) => "rendered",
        (false, true) => "recorded",
        (false, false) => "none",
    }
}

async fn contents(
    shared: &Arc<ManagerContext>,
    node: &Node,
    paths: Vec<String>,
    files: &mut BTreeMap<String, FileDiff>,
) -> Result<(), ApiFailure> {
    let failed = |e: String| ApiFailure::new(Code::Unavailable, e);
    let prepared = examine::prepare(shared, node.id, None).await.map_err(|e| failed(e.to_string()))?;
    let mut session = shared.remote.open(&prepared.target).await.map_err(|e| failed(e.to_string()))?;
    // The executor sends a file only after a manifest in the same session, and only if the manifest
    // does not declare the file secret.
    let seen = examine::evidence(shared, &mut session, node.id, &prepared, Sent::Differences).await;
    let reply = match seen {
        Ok(_) => session.order(ExecutorOrder::Fetch { paths }, &mut |_| {}, FETCH_TIMEOUT).await,
        Err(error) => Err(error),
    };
    session.close().await;
    let Reply::Fetched { files: fetched } = reply.map_err(|e| failed(e.to_string()))? else { return Ok(()) };
    for got in fetched {
        let (Some(file), Some(rendered)) = (files.get_mut(&got.path), prepared.rendered.get(&got.path)) else {
            continue;
        };
        let mode = rendered.mode.as_deref().and_then(|mode| u32::from_str_radix(mode, 8).ok());
        if mode.is_some_and(only_owner) {
            file.note = Some("secret: content is never shown".to_owned());
            continue;
        }
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

/// Records the current state of the node as its baseline. Changes nothing on the node.
pub async fn adopt(
    State(shared): State<Arc<ManagerContext>>,
    Extension(by): Extension<Actor>,
    Path(name): Path<String>,
    Strict(request): Strict<OrderRequest>,
) -> Answer<AdoptView> {
    let inventory = shared.inventory();
    let node = find_node(&inventory, &name)?;
    let evidence = examine_node(&shared, &node).await?;
    if let Some(run) = &evidence.exam.busy {
        return Err(ApiFailure::new(
            Code::Refused,
            format!("{run} is still running on {name}; what is there is half done"),
        )
        .next("repeat the command when it has ended"));
    }
    let mut digest = evidence.exam.digest.clone();
    let unreadable: Vec<String> = digest.services.values().flat_map(|s| s.describe_unreadable()).collect();
    if !unreadable.is_empty() {
        return Err(ApiFailure::new(
            Code::Refused,
            format!("can't be read and so not adopted: {}", unreadable.join(", ")),
        ));
    }
    if !request.paths.is_empty() {
        digest = replace_paths(&request.paths, evidence.expected.as_ref(), digest).map_err(|path| {
            ApiFailure::new(Code::NotFound, format!("{path} is not a declared file of {name}"))
                .next(format!("remoor check {name}"))
        })?;
    }
    let changes = evidence.expected.as_ref().map(|e| differences(e, &digest)).unwrap_or_default();
    let prepared = examine::prepare(&shared, node.id, None).await;
    let prepared = prepared.map_err(|e| ApiFailure::new(Code::Unavailable, e.to_string()))?;
    // The new record is made on a blocking thread, because this compiles expressions and hashes
    // contents.
    let recorded = tokio::task::spawn_blocking(move || {
        let facts = prepared.record.as_ref().map(|r| r.facts.clone()).unwrap_or_default();
        let record = examine::record(&prepared.expected_content(), &facts, prepared.known.clone(), &digest);
        (rmp_serde::to_vec_named(&record), digest)
    });
    let internal = |e: String| ApiFailure::new(Code::Internal, e);
    let (bytes, digest) = recorded.await.map_err(|e| internal(e.to_string()))?;
    let bytes = bytes.map_err(|e| internal(e.to_string()))?;
    let blob: Sha256 = blobs::store(&shared, bytes).await.map_err(|e| e.failure())?;
    let before = node.setup.baseline.as_ref();
    let baseline = Baseline {
        generation: before.map_or(inventory.current, |b| b.generation),
        desired: before.map(|b| b.desired).or_else(|| inventory.desired_hash(&node)).unwrap_or_default(),
        root: digest.root,
        blob,
        adopted: true,
        at: wall(),
    };
    propose(&shared, &by, Command::Adopt { node: node.id, baseline, basis: inventory.applied }).await?;
    let after = shared.inventory();
    let spared = |n: &Node| after.group(n).is_some_and(|(_, g)| g.is_spared(n, Trigger::Network));
    let reported_only = after.node(node.id).is_some_and(spared);
    Ok(axum::Json(AdoptView { version: 1, node: name, digest, changes, reported_only }))
}

/// The previous baseline, in which the state of `paths` is replaced by the current state. Err
/// contains the first path that does not exist in the current state.
fn replace_paths(
    paths: &[String],
    before: Option<&remoor_model::NodeDigest>,
    found: remoor_model::NodeDigest,
) -> Result<remoor_model::NodeDigest, String> {
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
                into.root = remoor_model::ServiceDigest::root_of(&into.entries);
            }
        }
        if !hit {
            return Err(path.clone());
        }
    }
    digest.root = remoor_model::NodeDigest::root_of(&digest.services);
    Ok(digest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use remoor_model::{Exam, FileEntry, FileKind, NodeDigest, ServiceDigest};

    fn digest(entries: [(&str, u32, bool); 4]) -> NodeDigest {
        let entry = |(path, mode, secret): (&str, u32, bool)| FileEntry {
            path: path.to_owned(),
            kind: FileKind::File,
            mode,
            owner: "root".to_owned(),
            group: "root".to_owned(),
            sha256: None,
            target: None,
            secret,
        };
        let service = ServiceDigest::new(entries.map(entry).to_vec(), BTreeMap::new());
        NodeDigest { services: [("app".into(), service)].into(), ..NodeDigest::default() }
    }

    /// A private file that was made readable for all users is still not shown in a diff.
    #[test]
    fn the_content_of_secret_or_private_files_is_not_shown() {
        let expected = digest([("/a", 0o600, false), ("/b", 0o644, false), ("/c", 0o644, true), ("/d", 0o640, false)]);
        let found = digest([("/a", 0o644, false), ("/b", 0o400, false), ("/c", 0o644, false), ("/d", 0o644, false)]);
        let exam = Exam { digest: found, ..Exam::default() };
        let evidence = Evidence { exam, expected: Some(expected), rendered: BTreeSet::new() };
        assert_eq!(hidden_paths(&evidence), ["/a", "/b", "/c"].into());
    }
}
