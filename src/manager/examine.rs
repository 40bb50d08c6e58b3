//! One examination: an SSH login, then digest and checks by the node's executor, then a comparison
//! with the state that this manager expects.

use super::context::known_of;
use super::{ManagerContext, digest_summary};
use crate::fleet::{self, Expected, RenderedContent};
use remoor_engine::{Evidence, ExamOutcome};
use remoor_exec::ssh::{LoginTarget, Session, SshError};
use remoor_model::{
    CheckFile, Generation, GenerationSeq, Lifecycle, Node, NodeDigest, NodeId, NodeManifest, Record, Sha256,
};
use std::sync::Arc;
use std::time::Duration;

/// The facts that were gathered on a node, by the name of the fact.
pub type Facts = serde_json::Map<String, serde_json::Value>;

/// The reason why an examination could not be prepared. Nothing was sent to the node.
#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    #[error("node {0} is not in the inventory")]
    UnknownNode(NodeId),
    #[error("no fleet was applied yet; next: remoor apply DIR")]
    NoGeneration,
    #[error("{0}")]
    Book(#[source] fleet::FleetCacheError),
    #[error("the fleet can't be rendered for this node: {0}")]
    Faults(String),
    #[error("no manager that answers has blob {0} with the recorded digest")]
    NoBaseline(Sha256),
    #[error("blob {blob} with the recorded digest can't be decoded: {error}")]
    Damaged { blob: Sha256, error: String },
    #[error("a task of this manager ended early")]
    Task,
}

/// The complete input of an examination of one node.
pub struct PreparedExam {
    pub target: LoginTarget,
    pub manifest: NodeManifest,
    pub rendered: Expected,
    /// The input for rendering that led to `rendered`.
    pub known: fleet::ClusterContext,
    /// The record of the node's baseline.
    pub record: Option<Record>,
    pub timeout: Duration,
}

impl PreparedExam {
    pub fn expected_content(&self) -> RenderedContent<'_> {
        RenderedContent::new(&self.rendered, &self.manifest)
    }
}

/// Examines the node against the generation that was last applied to it. The current generation is
/// used if none was applied, or if the node has been reinstalled since. A decommissioned node gets
/// an empty manifest (docs/design/scenarios.md, A21).
pub async fn examine(shared: &Arc<ManagerContext>, id: NodeId) -> ExamOutcome {
    let mut prepared = match prepare(shared, id, None).await {
        Ok(prepared) => prepared,
        Err(error) => return ExamOutcome::Failed(error.to_string()),
    };
    if lifecycle(shared, id) == Some(Lifecycle::Decommissioned) {
        prepared.manifest.services.clear();
    }
    // Login and examination share one time limit. With a separate limit for the login, a slow node
    // would be reported as unreachable instead of slow.
    let end = tokio::time::Instant::now() + prepared.timeout;
    let opened = tokio::time::timeout_at(end, shared.remote.open(&prepared.target)).await;
    let mut session = match opened {
        Ok(Ok(session)) => session,
        Ok(Err(error)) => return outcome_of(error),
        Err(_) => return ExamOutcome::Unreachable("the SSH login took too long".to_owned()),
    };
    let outcome =
        match tokio::time::timeout_at(end, evidence(shared, &mut session, id, &prepared, Sent::Differences)).await {
            Ok(Ok(evidence)) => ExamOutcome::Found(evidence),
            Ok(Err(error)) => outcome_of(error),
            Err(_) => ExamOutcome::Unreachable("login and examination took too long".to_owned()),
        };
    session.close().await;
    outcome
}

/// Which entries of its digest a node sends. With each variant, the manager gets the same complete
/// digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sent {
    /// Every entry. A new record of the node's baseline needs all entries, because its manifest may
    /// differ from that of the earlier record.
    Whole,
    /// Only entries that differ from the record of the node's baseline.
    Differences,
}

/// Examines the node in an open session. The result also contains the manager's data with which the
/// examination is compared.
pub async fn evidence(
    shared: &Arc<ManagerContext>,
    session: &mut Session,
    id: NodeId,
    prepared: &PreparedExam,
    sent: Sent,
) -> Result<Evidence, SshError> {
    let known = prepared.record.as_ref().filter(|_| sent == Sent::Differences).map(Record::digest);
    let look = digest_summary::ExamRequest { manifest: &prepared.manifest, key: shared.keys.digest_key(id) };
    let exam = look.ask(&mut digest_summary::TimedSession { session, at_most: prepared.timeout }, known).await?;
    let recorded = prepared.record.as_ref().and_then(|r| r.rendered.clone());
    let rendered = recorded.unwrap_or_else(|| prepared.rendered.keys().cloned().collect());
    Ok(Evidence { exam, expected: prepared.record.as_ref().map(Record::digest), rendered })
}

/// The new record of a node's baseline. A path counts as rendered only if the rendered content
/// equals the content on the node.
pub fn record(
    wanted: &RenderedContent<'_>,
    facts: &Facts,
    known: fleet::ClusterContext,
    digest: &NodeDigest,
) -> Record {
    let entries = digest.services.iter().flat_map(|(name, s)| s.entries.iter().map(move |entry| (name, entry)));
    // The hash of a secret file is keyed, so its content can't be compared. The file counts as
    // rendered.
    let agree = entries.filter(|(name, e)| wanted.agrees(name, e).is_some_and(|same| e.secret || same));
    Record {
        root: digest.root,
        services: digest.services.clone(),
        facts: facts.clone(),
        rendered: Some(agree.map(|(_, e)| e.path.clone()).collect()),
        known: Some(known),
    }
}

/// Prepares an examination against `generation`; None means the generation that was last applied to
/// the node. Blobs that this manager lacks are fetched from the other managers.
pub async fn prepare(
    shared: &Arc<ManagerContext>,
    id: NodeId,
    generation: Option<Arc<Generation>>,
) -> Result<PreparedExam, PrepareError> {
    prepare_with(shared, id, generation, None).await
}

/// Does the same as [`prepare`]. If `seen` is set, it contains the facts and the other input for
/// rendering. None means the facts, addresses and roles of the last provisioning.
pub async fn prepare_with(
    shared: &Arc<ManagerContext>,
    id: NodeId,
    generation: Option<Arc<Generation>>,
    seen: Option<(Facts, fleet::ClusterContext)>,
) -> Result<PreparedExam, PrepareError> {
    let inventory = shared.inventory();
    let node = inventory.nodes.get(&id).cloned().ok_or(PrepareError::UnknownNode(id))?;
    let applied = node.setup.baseline.as_ref().and_then(|b| inventory.generations.get(&b.generation)).cloned();
    let current = inventory.generations.get(&inventory.current).cloned();
    let generation = generation.or(applied).or(current.clone()).ok_or(PrepareError::NoGeneration)?;
    let current = current.unwrap_or_else(|| generation.clone());
    super::blobs::ensure(shared, &generation.blob).await;
    super::blobs::ensure(shared, &current.blob).await;
    let record = load_record(shared, &node).await?;
    let (shared, timeout) = (shared.clone(), inventory.limits().exam_timeout_ms);
    let work = move || {
        let target = target_of(&shared, &node, &current)?;
        let recorded = || {
            let record = record.as_ref();
            let facts = record.map(|r| r.facts.clone()).unwrap_or_default();
            (facts, record.and_then(|r| r.known.clone()).unwrap_or_else(|| known_of(&inventory)))
        };
        let (facts, known) = seen.unwrap_or_else(recorded);
        let (manifest, rendered) = build_manifest(&shared, &node, &generation, &known, &facts)?;
        Ok(PreparedExam { target, manifest, rendered, known, record, timeout: Duration::from_millis(timeout) })
    };
    tokio::task::spawn_blocking(work).await.map_err(|_| PrepareError::Task)?
}

fn build_manifest(
    shared: &ManagerContext,
    node: &Node,
    generation: &Generation,
    known: &fleet::ClusterContext,
    facts: &Facts,
) -> Result<(NodeManifest, Expected), PrepareError> {
    let host = node.name().as_str();
    let fleet = shared.fleets.fleet(generation).map_err(PrepareError::Book)?;
    let variables = shared.fleets.variables(generation.blob, &fleet, known);
    let context = variables.of_host(host, variables.role_of(host)).map_err(|f| faults(vec![f]))?;
    let rendered = fleet::expected_files(&fleet, host, &context, facts, &known.vars).unwrap_or_default();
    let manifest = fleet::manifest(&fleet, host, generation.seq, &context, &rendered).map_err(faults)?;
    Ok((manifest, rendered))
}

/// The manifest for a node's agent, of the generation that was last applied to it. The manifest is
/// empty during and after decommissioning, so that the node receives no part of the configuration
/// (docs/design/scenarios.md, A21).
pub async fn manifest_for(shared: &Arc<ManagerContext>, id: NodeId) -> Result<NodeManifest, PrepareError> {
    let mut manifest = prepare(shared, id, None).await?.manifest;
    if matches!(lifecycle(shared, id), Some(Lifecycle::Decommissioning | Lifecycle::Decommissioned)) {
        manifest.services.clear();
    }
    Ok(manifest)
}

/// The check files of the generation that was last applied to the node. If none was applied, the
/// check files of the current generation. The result says for each file whether it applies to the
/// node. Contacts no node.
pub async fn check_files(
    shared: &Arc<ManagerContext>,
    id: NodeId,
) -> Result<(GenerationSeq, Vec<CheckFile>), PrepareError> {
    let inventory = shared.inventory();
    let node = inventory.nodes.get(&id).cloned().ok_or(PrepareError::UnknownNode(id))?;
    let applied = node.setup.baseline.as_ref().and_then(|b| inventory.generations.get(&b.generation));
    let generation = applied.or(inventory.generations.get(&inventory.current)).cloned();
    let generation = generation.ok_or(PrepareError::NoGeneration)?;
    super::blobs::ensure(shared, &generation.blob).await;
    let record = load_record(shared, &node).await.ok().flatten();
    let shared = shared.clone();
    let work = move || {
        let fleet = shared.fleets.fleet(&generation).map_err(PrepareError::Book)?;
        let known = record.as_ref().and_then(|r| r.known.clone()).unwrap_or_else(|| known_of(&inventory));
        let facts = record.map(|r| r.facts).unwrap_or_default();
        let files = fleet::list_check_files(&fleet, node.name().as_str(), &known, &facts).map_err(faults)?;
        Ok((generation.seq, files))
    };
    tokio::task::spawn_blocking(work).await.map_err(|_| PrepareError::Task)?
}

fn faults(faults: Vec<remoor_model::Fault>) -> PrepareError {
    PrepareError::Faults(faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))
}

fn lifecycle(shared: &ManagerContext, id: NodeId) -> Option<Lifecycle> {
    shared.inventory().node(id).map(|n| n.lifecycle)
}

pub async fn target(shared: &Arc<ManagerContext>, id: NodeId) -> Result<LoginTarget, PrepareError> {
    let inventory = shared.inventory();
    let node = inventory.nodes.get(&id).cloned().ok_or(PrepareError::UnknownNode(id))?;
    let current = inventory.generations.get(&inventory.current).cloned().ok_or(PrepareError::NoGeneration)?;
    super::blobs::ensure(shared, &current.blob).await;
    let shared = shared.clone();
    let work = move || target_of(&shared, &node, &current);
    tokio::task::spawn_blocking(work).await.map_err(|_| PrepareError::Task)?
}

/// The SSH target: the inventory's `ansible_*` and `ssh:` settings, and only the recorded host
/// keys. Without an `ansible_host`, the recorded address of the node is used.
fn target_of(shared: &ManagerContext, node: &Node, generation: &Generation) -> Result<LoginTarget, PrepareError> {
    let fleet = shared.fleets.fleet(generation).map_err(PrepareError::Book)?;
    let ssh = fleet.ssh_target(node.name().as_str()).map_err(|f| PrepareError::Faults(f.to_string()))?;
    let entered = node.ip().map(|ip| ip.to_string()).filter(|_| fleet.ansible_host(node.name().as_str()).is_none());
    Ok(LoginTarget {
        last_keys: shared.keys.last_keys(ssh.identity.is_some()),
        node: node.name().clone(),
        host: entered.unwrap_or(ssh.host),
        port: ssh.port,
        user: ssh.user,
        identity: ssh.identity.map(Into::into),
        sudo: ssh.sudo,
        options: ssh.options,
        user_config: ssh.config.map(Into::into),
        host_keys: node.spec.ssh_host_keys.clone(),
        connect_timeout: Duration::from_millis(ssh.connect_timeout_ms),
        state_dir: ssh.state_dir.map(Into::into),
    })
}

/// The record of a node's baseline; None if the node has no baseline yet. A record that can't be
/// read is an error. Without the record, any state found on the node would count as the desired
/// state.
pub async fn load_record(shared: &Arc<ManagerContext>, node: &Node) -> Result<Option<Record>, PrepareError> {
    let Some(baseline) = &node.setup.baseline else { return Ok(None) };
    super::blobs::ensure(shared, &baseline.blob).await;
    read(baseline.blob, shared.blobs.get(&baseline.blob).ok().flatten()).map(Some)
}

fn read(blob: Sha256, bytes: Option<Vec<u8>>) -> Result<Record, PrepareError> {
    let bytes = bytes.ok_or(PrepareError::NoBaseline(blob))?;
    rmp_serde::from_slice(&bytes).map_err(|error| PrepareError::Damaged { blob, error: error.to_string() })
}

fn outcome_of(error: SshError) -> ExamOutcome {
    match error {
        SshError::HostKeyChanged { offered, .. } => {
            ExamOutcome::HostKey(offered.unwrap_or_else(|| "an unknown key".to_owned()))
        }
        SshError::Protocol(_) | SshError::Unsupported(_) | SshError::Upload(_) => {
            ExamOutcome::Failed(error.to_string())
        }
        other => ExamOutcome::Unreachable(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unreadable_record_is_not_treated_as_missing() {
        let record = Record::default();
        let stored = rmp_serde::to_vec_named(&record).expect("stored");
        assert_eq!(read(Sha256::default(), Some(stored.clone())).expect("read"), record);
        for bytes in [None, Some(Vec::new()), Some(stored[..stored.len() / 2].to_vec())] {
            assert!(read(Sha256::default(), bytes).is_err());
        }
    }
}
