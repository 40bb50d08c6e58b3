//! The agent's request to the managers, for the list of peers and the manifest of this node.

use super::local_state::{AgentState, Departure};
use remoor_cluster::rpc::agent::{ManifestReply, PeersQuery, PeersReply};
use remoor_cluster::rpc::client::{ApiError, Client};
use remoor_cluster::rpc::join::PeerInfo;
use remoor_cluster::rpc::tls::ClientTls;
use remoor_cluster::rpc::wire::Code;
use remoor_model::{Epoch, GenerationSeq, NodeId, NodeName, Report};
use std::time::Duration;

const ASK_TIMEOUT: Duration = Duration::from_secs(10);

/// The values of a manager's last answer that the next request depends on.
#[derive(Debug, Clone, Default)]
pub struct HeardState {
    epoch: Epoch,
    /// Index of the last log entry that the manager had applied when it answered.
    applied: u64,
    /// Hash of the lists of nodes in the manager's answer.
    lists: String,
    /// The newest generation that a manager of this epoch reported.
    pub newest: GenerationSeq,
}

impl HeardState {
    /// Records a manager's answer. Returns true if the answer contains a generation that is newer
    /// than all earlier ones.
    pub fn learn(&mut self, reply: &PeersReply) -> bool {
        let before = self.newest;
        let same_epoch = reply.epoch == self.epoch;
        let newest = if same_epoch { before.max(reply.newest) } else { reply.newest };
        // A manager of the previous version does not report the index up to which it has applied
        // the log.
        let applied = if same_epoch && reply.applied == 0 { self.applied } else { reply.applied };
        *self = Self { epoch: reply.epoch, applied, lists: reply.lists.clone(), newest };
        self.newest > before
    }

    /// Whether, in the same epoch, the answering manager has applied fewer entries than the manager
    /// of the last recorded answer.
    fn is_ahead_of(&self, reply: &PeersReply) -> bool {
        reply.epoch == self.epoch && reply.applied != 0 && reply.applied < self.applied
    }
}

/// One request of the agent to the managers, with the managers that it asks in turn.
pub struct ManagersQuestion {
    managers: Vec<PeerInfo>,
    /// The number of entries at the beginning of `managers` that managers reported. The managers
    /// after them are known only by their certificates. Such a certificate proves little, because a
    /// demoted manager keeps it.
    named: usize,
    /// The epoch of this node. A manager of an older epoch is skipped.
    epoch: Epoch,
    heard: HeardState,
    /// The report of this node. The managers compare this report with the one in gossip.
    report: Report,
}

/// The result of a request to the managers.
#[derive(Default)]
pub struct ManagersAnswer {
    /// The name of the manager that answered, or the reason why no manager answered. None if no
    /// manager is known.
    pub by: Option<Result<NodeName, String>>,
    pub peers: Option<PeersReply>,
    pub manifest: Option<ManifestReply>,
    /// Set if a manager reports that this node was removed or left.
    pub removed: Option<Departure>,
}

impl ManagersQuestion {
    /// Prepares request number `turn` of the node `own`. Each node begins with a different manager,
    /// and each request begins with the next one. So the managers share the work, and no node
    /// depends on a manager that lags behind.
    pub fn new(
        own: NodeId,
        turn: u64,
        mut managers: Vec<PeerInfo>,
        named: usize,
        epoch: Epoch,
        heard: HeardState,
    ) -> Self {
        let named = named.min(managers.len());
        if let Some(first) = own.0.wrapping_add(turn).checked_rem(named as u64) {
            managers[..named].rotate_left(first as usize);
        }
        Self { managers, named, epoch, heard, report: Report::default() }
    }

    /// The same request with the report of this node.
    pub fn with_report(self, report: Report) -> Self {
        Self { report, ..self }
    }

    /// Asks one manager after the other until one answers that is still a manager. A manager with
    /// fewer applied entries than an earlier answer is used only if no other manager answers. It is
    /// used because after a restore, all managers have fewer applied entries.
    pub async fn ask(&self, own: &AgentState, tls: &ClientTls) -> ManagersAnswer {
        let (mut why, mut told, mut behind) = (None, None, None);
        for (at, manager) in self.managers.iter().enumerate() {
            let client = Client::tls(manager.api_addr.clone(), tls, Some(manager.id)).with_timeout(ASK_TIMEOUT);
            let query = PeersQuery::encode(&self.heard.lists, &self.report);
            match client.get::<PeersReply>(&format!("/agent/v1/peers?{query}")).await {
                Ok(peers) if peers.epoch != Epoch(0) && peers.epoch < self.epoch => {
                    let (name, theirs, epoch) = (&manager.name, peers.epoch, self.epoch);
                    why.get_or_insert(Err(format!("{name} has epoch {theirs}, this node has epoch {epoch}")));
                }
                Ok(peers) if self.heard.is_ahead_of(&peers) => {
                    behind.get_or_insert((manager, client, peers));
                }
                Ok(peers) => match with_manifest(manager, &client, peers).await {
                    Ok(answer) => return answer,
                    Err(peers) => {
                        // The lists of a former manager are used only if no manager answers.
                        told.get_or_insert(peers);
                        why.get_or_insert(Err(format!("{} is no longer a manager", manager.name)));
                    }
                },
                // Only the answer of a manager of this cluster counts. The TLS connection proves
                // the manager's identity.
                Err(ApiError::Status { code, message, details, .. })
                    if code == Code::NodeRemoved.as_str() && at < self.named =>
                {
                    let removed = Some(Departure { why: message, left: details["left"] == true });
                    return ManagersAnswer { removed, ..ManagersAnswer::default() };
                }
                Err(error) => {
                    if error.code() == Some(Code::CredentialExpired.as_str()) {
                        own.count_rejection();
                    }
                    tracing::debug!(manager = %manager.name, %error, "a manager does not answer");
                    why.get_or_insert(Err(format!("{}: {error}", manager.name)));
                }
            }
        }
        if let Some((manager, client, peers)) = behind
            && let Ok(answer) = with_manifest(manager, &client, peers).await
        {
            return answer;
        }
        ManagersAnswer { by: why, peers: told, manifest: None, removed: None }
    }
}

/// Adds this node's manifest to a manager's answer, by a second request. Err contains `peers` if
/// the asked node is no longer a manager.
async fn with_manifest(manager: &PeerInfo, client: &Client, peers: PeersReply) -> Result<ManagersAnswer, PeersReply> {
    let manifest = client.get::<ManifestReply>("/agent/v1/manifest").await;
    if matches!(&manifest, Err(error) if error.code() == Some(Code::NotFound.as_str())) {
        return Err(peers);
    }
    let manifest = manifest.map_err(|error| tracing::debug!(%error, "no manifest")).ok();
    Ok(ManagersAnswer { by: Some(Ok(manager.name.clone())), peers: Some(peers), manifest, removed: None })
}

#[cfg(test)]
mod tests {
    use super::super::local_state::tests::sample_state;
    use super::*;
    use axum::extract::{RawQuery, State};
    use axum::{Json, Router, routing::get};
    use remoor_cluster::rpc::ca::testing::node_identity;
    use remoor_cluster::rpc::ca::{ClusterCa, Validity};
    use remoor_cluster::rpc::server::{ServerLimits, serve_tls};
    use remoor_cluster::rpc::tls::ServerTls;
    use remoor_model::{ClusterId, NodeManifest};
    use std::sync::{Arc, Mutex};

    type Asked = Arc<Mutex<Vec<String>>>;

    /// Starts a manager that has applied `applied` entries and records each request in `asked`.
    async fn manager(ca: &ClusterCa, id: u64, applied: u64, asked: &Asked) -> PeerInfo {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let api_addr = listener.local_addr().unwrap().to_string();
        let peers = async move |State(asked): State<Asked>, RawQuery(query): RawQuery| {
            let query = query.unwrap_or_default();
            let lists = query.split_once('&').map_or(&*query, |(lists, _)| lists);
            asked.lock().unwrap().push(format!("m{id} {lists}"));
            Json(PeersReply { epoch: Epoch(1), applied, lists: "l1".to_owned(), ..PeersReply::default() })
        };
        let manifest = async || {
            let manifest = NodeManifest { group: "web".into(), ..NodeManifest::default() };
            Json(ManifestReply { manifest, digest_key: String::new(), check_interval_ms: 1, rejoin_ms: 1 })
        };
        let router = Router::new().route("/agent/v1/peers", get(peers)).route("/agent/v1/manifest", get(manifest));
        let (tls, router) = (
            ServerTls::new(&node_identity(ca, id, Validity::days_from_now(1))).unwrap(),
            router.with_state(asked.clone()),
        );
        tokio::spawn(serve_tls(listener, tls, router, ServerLimits::default(), std::future::pending()));
        let name = NodeName(format!("m{id}"));
        PeerInfo { name, id: NodeId(id), gossip_addr: String::new(), api_addr, public_key: String::new() }
    }

    #[tokio::test]
    async fn nodes_and_questions_take_turns_with_the_managers() {
        let ca = ClusterCa::create(&ClusterId::from("c1")).unwrap();
        let asked = Asked::default();
        let mut managers = Vec::new();
        for id in 1..=3 {
            managers.push(manager(&ca, id, 5, &asked).await);
        }
        let (own, tls) =
            (sample_state(), ClientTls::member(&node_identity(&ca, 9, Validity::days_from_now(1))).unwrap());
        for node in 0..3 {
            let mut by = Vec::new();
            for turn in 0..2 {
                let heard = HeardState::default();
                let question = ManagersQuestion::new(NodeId(node), turn, managers.clone(), 3, Epoch(1), heard);
                by.push(question.ask(&own, &tls).await.by);
            }
            assert!(by.iter().all(|by| matches!(by, Some(Ok(_)))) && by[0] != by[1], "node {node}: {by:?}");
        }
        let mut by_manager = asked.lock().unwrap().clone();
        by_manager.sort();
        assert_eq!(by_manager, ["m1 have=", "m1 have=", "m2 have=", "m2 have=", "m3 have=", "m3 have="]);
    }

    #[tokio::test]
    async fn a_manager_that_fell_behind_is_used_only_if_no_other_answers() {
        let ca = ClusterCa::create(&ClusterId::from("c1")).unwrap();
        let asked = Asked::default();
        let managers = vec![manager(&ca, 1, 5, &asked).await, manager(&ca, 2, 9, &asked).await];
        let (own, tls) =
            (sample_state(), ClientTls::member(&node_identity(&ca, 9, Validity::days_from_now(1))).unwrap());
        let mut heard = HeardState::default();
        let by = async |managers: &[PeerInfo], heard: &mut HeardState| {
            // Request number 0 begins with the first of the two managers.
            let question =
                ManagersQuestion::new(NodeId(2), 0, managers.to_vec(), managers.len(), Epoch(1), heard.clone());
            let answer = question.ask(&own, &tls).await;
            heard.learn(&answer.peers.unwrap());
            answer.by.unwrap().unwrap().to_string()
        };
        assert_eq!(by(&managers, &mut heard).await, "m1");
        assert_eq!(by(&managers[1..], &mut heard).await, "m2");
        assert_eq!(by(&managers, &mut heard).await, "m2", "m1 has applied less");
        assert_eq!(by(&managers[..1], &mut heard).await, "m1", "no other is left");
        assert_eq!(asked.lock().unwrap().last().unwrap(), "m1 have=l1", "the lists that the node has");
    }

    #[test]
    fn the_newest_generation_is_that_of_this_epoch() {
        let mut heard = HeardState::default();
        let mut learn = |epoch, newest| {
            let newer =
                heard.learn(&PeersReply { epoch: Epoch(epoch), newest: GenerationSeq(newest), ..Default::default() });
            (newer, heard.newest.0)
        };
        assert_eq!(learn(1, 5), (true, 5));
        assert_eq!(learn(1, 4), (false, 5), "a manager that is behind");
        assert_eq!(learn(2, 3), (false, 3), "the cluster was rebuilt from a backup");
    }
}
