//! Renews this node's certificate before its expiry. An expired certificate is renewed as soon as
//! the managers allow it. Any manager can issue the certificate; a manager uses its own CA.

use super::admin::machine_id;
use super::keyring::Keyring;
use super::manager_lifecycle::ManagerLifecycle;
use crate::agent::{AgentState, Departure};
use crate::manager::wall;
use remoor_cluster::rpc::caller::certified_epoch;
use remoor_cluster::rpc::client::{ApiError, Client};
use remoor_cluster::rpc::renew::{RENEW_PATH, RenewReply, RenewRequest};
use remoor_cluster::rpc::token::Secret;
use remoor_cluster::rpc::wire::Code;
use remoor_model::{NodeName, Wall};
use std::time::Duration;
use tokio::sync::watch;

/// Timeout of a renewal request to one manager.
const ASK_WITHIN: Duration = Duration::from_secs(10);
/// Maximum sleep before the due time is computed again, because the clock may change and the
/// machine may be suspended. The sleep is short, because a certificate from a manager with a wrong
/// clock is useless and must be renewed soon.
const LOOK_EVERY: Duration = Duration::from_secs(15);
/// Simultaneous renewals of all nodes are spread over this time, multiplied by the number of known
/// nodes. The whole time is at most `SPREAD_MAX`.
const SPREAD_EACH: Duration = Duration::from_millis(20);
const SPREAD_MAX: Duration = Duration::from_secs(60);
/// Pause after a failed renewal. It doubles with each failure, up to `PAUSE_MAX`. A node without a
/// valid certificate may wait for an operator, so its pause is at most `LAPSED_PAUSE_MAX`.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(300);
const LAPSED_PAUSE_MAX: Duration = Duration::from_secs(20);

/// Renews the certificate whenever it is due, until `stopped`.
pub async fn run(
    name: NodeName,
    keyring: Keyring,
    own: AgentState,
    manage: ManagerLifecycle,
    mut stopped: watch::Receiver<bool>,
) {
    let mut failures = 0;
    let mut said = String::new();
    let (mut turn, mut managers, mut epoch) = (keyring.follow(), own.follow_managers(), own.follow_epoch());
    let mut service = manage.follow();
    loop {
        turn.mark_unchanged();
        managers.mark_unchanged();
        epoch.mark_unchanged();
        service.mark_unchanged();
        let now = wall();
        let due = keyring.due(own.epoch(), own.manages(), now);
        let pause = if now < due {
            LOOK_EVERY.min(Duration::from_millis(due.ms_since(now)))
        } else {
            // After a change of the issuing CA, all nodes renew their certificates, each after a
            // delay of its own. Managers renew without a delay, because the other nodes ask them
            // for certificates.
            if due == Wall::default() && failures == 0 && !own.manages() {
                let spread = spread(&keyring.now().key_pem, own.known_peers());
                if tokio::time::timeout(spread, stopped.wait_for(|stop| *stop)).await.is_ok() {
                    return;
                }
            }
            match renew_once(&keyring, &own, &manage).await {
                Ok(by) => {
                    (failures, said) = (0, String::new());
                    let until = remoor_cluster::rpc::wire::rfc3339(keyring.ends());
                    tracing::info!(%by, %until, "the certificate of {name} was renewed");
                    continue;
                }
                Err(why) => {
                    // Each reason for a failed renewal is logged once, not for each attempt.
                    if why != said {
                        tracing::warn!("the certificate of {name} could not be renewed: {why}; will retry");
                        said = why;
                    }
                    failures += 1;
                    pause(failures, keyring.may_only_renew(now))
                }
            }
        };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            _ = stopped.wait_for(|stop| *stop) => return,
            () = own.until_removed() => return,
            Ok(()) = turn.changed() => failures = 0,
            Ok(()) = epoch.changed() => failures = 0,
            // The certificate of a new manager must show that it is one.
            Ok(()) = service.changed() => failures = 0,
            // If the list of managers changes, the pause ends, because a new manager may be the
            // first one that can renew the certificate.
            Ok(()) = managers.changed() => failures = 0,
        }
    }
}

/// The delay of this node before a simultaneous renewal of `nodes` nodes. It is derived from the
/// node's key.
fn spread(key: &Secret, nodes: usize) -> Duration {
    let digest = key.hash().0;
    let share = u32::from(u16::from_be_bytes([digest[0], digest[1]]));
    SPREAD_EACH.saturating_mul(u32::try_from(nodes).unwrap_or(u32::MAX)).min(SPREAD_MAX) * share / u32::from(u16::MAX)
}

fn pause(failures: u32, lapsed: bool) -> Duration {
    let most = if lapsed { LAPSED_PAUSE_MAX } else { PAUSE_MAX };
    PAUSE.saturating_mul(1 << failures.saturating_sub(1).min(16)).min(most)
}

/// Renews the certificate once. Returns the name of the manager that issued it.
async fn renew_once(keyring: &Keyring, own: &AgentState, manage: &ManagerLifecycle) -> Result<NodeName, String> {
    let key = keyring.now().key().map_err(|e| e.to_string())?;
    let csr = key.csr_pem().map_err(|e| e.to_string())?;
    let lapsed = keyring.is_expired(wall());
    // A manager whose certificate was rejected may have an outdated log, so it asks the other
    // managers.
    let own_word = match keyring.is_rejected() {
        true => None,
        false => manage.issue(&csr).await,
    };
    let (by, reply) = match own_word {
        Some(issued) => (own.id().name.clone(), issued?),
        None => ask(keyring, own, csr.clone()).await?,
    };
    let ring = keyring.clone();
    let kept = tokio::task::spawn_blocking(move || ring.renew(&reply, wall())).await;
    kept.map_err(|e| e.to_string())?.map_err(|e| format!("the answer of {by} can't be used: {e}"))?;
    own.set_certified(keyring.certificate_epoch());
    if let Some(shared) = manage.manager_context() {
        shared.observed.certificates.record_expiry(own.id().id, keyring.ends());
    }
    if lapsed {
        // This second renewal request uses the new certificate. It shows the managers that the node
        // does not wait for an operator any more. The answer is not needed.
        let _ = ask(keyring, own, csr).await;
    }
    let now = wall();
    if keyring.due(own.epoch(), false, now) <= now {
        return Err(format!("the certificate issued by {by} is already due for renewal: is one of the clocks wrong?"));
    }
    // The next request shows the new certificate to the managers.
    own.ask_soon();
    Ok(by)
}

/// Asks one manager after the other until one issues a certificate. If all fail, returns the error
/// of the first manager that refused. If no manager refused, returns the first other error.
async fn ask(keyring: &Keyring, own: &AgentState, tls_csr_pem: String) -> Result<(NodeName, RenewReply), String> {
    let request = RenewRequest { tls_csr_pem, machine_id: machine_id() };
    let mut why: Option<(bool, String)> = None;
    let managers = own.follow_managers().borrow().clone();
    let others = managers.into_iter().chain(own.met_managers());
    for manager in others.filter(|m| m.id != own.id().id) {
        let client =
            Client::tls(manager.api_addr.clone(), &keyring.client(), Some(manager.id)).with_timeout(ASK_WITHIN);
        match client.post::<RenewReply>(RENEW_PATH, &request).await {
            // The answer of a manager that does not know the issuing CA or the newer epoch yet is
            // not used.
            Ok(reply) if reply.ca < keyring.ca() => {
                why.get_or_insert((false, format!("{} does not know the current issuing CA yet", manager.name)));
            }
            Ok(reply) if certified_epoch(&reply.cert_pem, &own.id().cluster).is_ok_and(|e| e < own.epoch()) => {
                why.get_or_insert((false, format!("{} does not know the newer epoch yet", manager.name)));
            }
            Ok(reply) => return Ok((manager.name, reply)),
            // A manager also sends this answer to a removed node whose certificate has expired or
            // whose CA was replaced. Such a node has no other way to learn of its removal.
            Err(ApiError::Status { code, message, details, .. }) if code == Code::NodeRemoved.as_str() => {
                own.request_departure(Departure { why: message.clone(), left: details["left"] == true });
                return Err(format!("{}: {message}", manager.name));
            }
            Err(error) => {
                let decided = error.code().is_some_and(|code| code != Code::Retry.as_str());
                let text = format!("{}: {error}", manager.name);
                if why.as_ref().is_none_or(|(before, _)| decided && !before) {
                    why = Some((decided, text));
                }
            }
        }
    }
    Err(why.map_or_else(|| "no manager is known".to_owned(), |(_, text)| text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_that_are_all_to_renew_come_one_after_the_other() {
        let of = |n: u64, nodes| spread(&n.to_string().into(), nodes);
        assert!((0..100).all(|n| of(n, 3) <= Duration::from_millis(60)));
        assert!((0..100).all(|n| of(n, 1_000_000) <= SPREAD_MAX));
        let (least, most) = ((0..100).map(|n| of(n, 1_000)).min(), (0..100).map(|n| of(n, 1_000)).max());
        assert!(most.unwrap() - least.unwrap() > Duration::from_secs(15), "over 20 s: {least:?} to {most:?}");
    }

    #[test]
    fn pauses_grow_and_are_bounded() {
        let seconds = |lapsed| -> Vec<u64> { [1, 2, 3, 9, 400].map(|n| pause(n, lapsed).as_secs()).into() };
        assert_eq!(seconds(false), [1, 2, 4, 256, 300]);
        assert_eq!(seconds(true), [1, 2, 4, 20, 20]);
    }
}
