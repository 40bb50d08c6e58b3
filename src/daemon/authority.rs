//! Keeps this node's set of trusted CAs equal to the set that the managers prescribe. The first CA
//! of the set issues the certificates. During a CA rotation this task reports its progress to the
//! leader, because the rotation waits for the reports of all nodes. The module
//! [`renewal`](super::renewal) renews the certificate itself.

use super::keyring::Keyring;
use super::manager_lifecycle::ManagerLifecycle;
use crate::agent::AgentState;
use crate::manager::{ManagerContext, authority};
use remoor_cluster::rpc::agent::{CA_PATH, CaRequest, TrustedCasReply};
use remoor_cluster::rpc::client::Client;
use remoor_cluster::rpc::identity;
use remoor_cluster::rpc::wire::Code;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

const ASK_WITHIN: Duration = Duration::from_secs(10);
/// Pause between requests to the leader while this node still has to act in the CA rotation, and
/// after a failed request.
const SOON: Duration = Duration::from_secs(2);
/// Pause between requests to the leader while the CA rotation waits only for other nodes. The
/// leader can ask this node to report sooner.
const SLOWLY: Duration = Duration::from_secs(30);

/// Runs until `stopped`. The managers are asked when the agent has heard of another set of CAs.
/// `operator` is the file with the operator's credentials; it exists on the manager where `init`
/// ran.
pub async fn follow(
    keyring: Keyring,
    own: AgentState,
    manage: ManagerLifecycle,
    operator: PathBuf,
    mut stopped: watch::Receiver<bool>,
) {
    let (mut told, mut refused) = (own.follow_ca(), own.follow_refused());
    let mut rotating = false;
    loop {
        // More than one CA means that a rotation is in progress and waits for this node's report.
        // This check is needed because the CAs may have arrived with a renewed certificate.
        rotating |= identity::certificate_count(&keyring.now().ca_pem) > 1;
        let pause = match rotating || *told.borrow_and_update() > keyring.ca() {
            true => {
                let pause = synchronize_once(&keyring, &own, &manage).await;
                rotating = pause.is_some();
                pause.unwrap_or(Duration::MAX)
            }
            false => Duration::MAX,
        };
        if let Some(shared) = manage.manager_context() {
            super::operator_file::maintain(&operator, &shared).await;
        }
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            changed = told.changed() => if changed.is_err() { return },
            Ok(()) = refused.changed() => keyring.mark_rejected(),
            _ = stopped.wait_for(|stop| *stop) => return,
        }
    }
}

/// Asks the leader which CAs to trust, and reports the progress of this node. Returns the pause
/// before the next request; None if no rotation is in progress.
async fn synchronize_once(keyring: &Keyring, own: &AgentState, manage: &ManagerLifecycle) -> Option<Duration> {
    let managers = own.follow_managers().borrow().clone();
    for manager in managers {
        let client =
            Client::tls(manager.api_addr.clone(), &keyring.client(), Some(manager.id)).with_timeout(ASK_WITHIN);
        let said = holds(keyring, manage);
        let reply = match ask(keyring, &client, said).await {
            Some(reply) if reply.leads && reply.changed >= keyring.ca() => reply,
            _ => continue,
        };
        let (ring, ca_pem, changed) = (keyring.clone(), reply.ca_pem, reply.changed);
        let trusted = tokio::task::spawn_blocking(move || ring.trust(&ca_pem, changed)).await;
        if let Ok(Err(error)) = trusted {
            tracing::warn!(%error, "the CAs sent by the managers can't be used; will retry");
            return Some(SOON);
        }
        let settled = holds(keyring, manage);
        if settled != said && settled > 0 {
            // The CA rotation proceeds when all nodes have sent this report.
            ask(keyring, &client, settled).await;
        }
        return match (reply.rotating, settled == changed) {
            (_, false) => Some(SOON),
            (true, true) => Some(SLOWLY),
            (false, true) => None,
        };
    }
    Some(SOON)
}

/// The log index of the last CA change, if this node has completed that change; otherwise 0.
fn holds(keyring: &Keyring, manage: &ManagerLifecycle) -> u64 {
    let changed = keyring.ca();
    let keys = |shared: Arc<ManagerContext>| {
        let inventory = shared.inventory();
        inventory.authority.changed >= changed && authority::complete(&shared, &inventory)
    };
    if keyring.is_settled(changed) && manage.manager_context().is_none_or(keys) { changed } else { 0 }
}

async fn ask(keyring: &Keyring, client: &Client, holds: u64) -> Option<TrustedCasReply> {
    let answer = client.post(CA_PATH, &CaRequest { holds }).await;
    let answer = answer.map_err(|error| {
        tracing::debug!(%error, "a manager did not answer which CAs are trusted");
        if error.code() == Some(Code::CredentialExpired.as_str()) {
            keyring.mark_rejected();
        }
    });
    answer.ok()
}

/// On a manager: accepts the replaced CAs of the applied inventory for certificate renewal only.
/// Other requests of a node with such a certificate get an error that names the reason.
pub async fn follow_former(manage: ManagerLifecycle, keyring: Keyring, mut stopped: watch::Receiver<bool>) {
    let mut parts = manage.follow();
    loop {
        let part = parts.borrow_and_update().clone();
        let follow = async {
            let Some(shared) = part else {
                remember(&keyring, String::new());
                return std::future::pending().await;
            };
            let mut state = shared.raft.state();
            loop {
                let former = state.borrow_and_update().authority.former.iter().map(|f| f.ca_pem.as_str()).collect();
                remember(&keyring, former);
                if state.changed().await.is_err() {
                    return std::future::pending().await;
                }
            }
        };
        tokio::select! {
            () = follow => {}
            changed = parts.changed() => if changed.is_err() { return },
            _ = stopped.wait_for(|stop| *stop) => return,
        }
    }
}

fn remember(keyring: &Keyring, former: String) {
    if let Err(error) = keyring.set_former(former) {
        tracing::warn!(%error, "nodes with certificates of a replaced CA can't be told to renew them");
    }
}
