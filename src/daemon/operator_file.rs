//! The operator's credentials that `init` wrote on this manager. This manager keeps them on the
//! list of operators, and renews them before they expire and during a CA rotation. Copies on other
//! machines are not renewed.

use crate::manager::{ManagerContext, authority, wall};
use remoor_cluster::rpc::client::ApiError;
use remoor_cluster::rpc::identity::{self, IdentityError, TlsIdentity};
use remoor_cluster::rpc::view::{OperatorMade, OperatorRequest};
use remoor_model::{INIT_OPERATOR, Inventory, Wall};
use std::path::Path;
use std::time::Duration;

/// Remaining validity below which the certificate is reissued, in ms.
const LEFT_MS_MIN: u64 = 60 * 24 * 3_600_000;
/// Timeout of a request to the leader.
const ASK_WITHIN: Duration = Duration::from_secs(10);

#[derive(Debug, thiserror::Error)]
enum OperatorFileError {
    #[error(transparent)]
    Identity(#[from] IdentityError),
    #[error(transparent)]
    Api(#[from] ApiError),
    #[error("no manager leads")]
    NoLeader,
}

/// The next step for the credentials in the file.
#[derive(Debug, PartialEq, Eq)]
enum Duty {
    Nothing,
    /// Put the certificate on the list. An earlier version, which had no list, made the cluster.
    Enrol,
    /// Replace only the CAs in the file.
    Trust,
    Reissue,
}

/// Does what is due for the credentials in `file`. A missing file is not an error.
pub async fn maintain(file: &Path, shared: &ManagerContext) {
    match maintain_once(file, shared).await {
        Ok(()) | Err(OperatorFileError::NoLeader) => {}
        Err(error) => {
            tracing::warn!(%error, "the operator's credentials on this manager can't be reissued; will retry")
        }
    }
}

async fn maintain_once(file: &Path, shared: &ManagerContext) -> Result<(), OperatorFileError> {
    // The file is small, so a blocking read delays this task only for a moment.
    let before = match TlsIdentity::load(file) {
        Err(IdentityError::File { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        read => read?,
    };
    let inventory = shared.inventory();
    let ca_pem = inventory.roots().concat();
    let name = identity::certificate_name(&before.cert_pem)?;
    let issued = match duty(&before, &inventory, wall())? {
        Duty::Nothing => return Ok(()),
        Duty::Trust => return Ok(TlsIdentity { ca_pem, ..before }.save(file)?),
        Duty::Enrol => {
            let made = ask_leader(shared, OperatorRequest { name, cert_pem: before.cert_pem }).await?;
            tracing::info!(name = made.name, file = %file.display(), "the operator's credentials are on the list now");
            return Ok(());
        }
        // Before the list begins, the leader may be an older manager, which refuses this name.
        Duty::Reissue if !inventory.only_listed_operators => authority::operator(shared, &inventory, &name)?,
        Duty::Reissue => ask_leader(shared, OperatorRequest { name, cert_pem: String::new() }).await?.credentials,
    };
    let Some(issued) = issued else { return Ok(()) };
    issued.save(file)?;
    tracing::info!(file = %file.display(), "the operator's credentials were reissued; copy them again to other machines");
    Ok(())
}

fn duty(before: &TlsIdentity, inventory: &Inventory, now: Wall) -> Result<Duty, IdentityError> {
    let listed = inventory.operators.get(&hex::encode(identity::certificate_key(&before.cert_pem)?));
    // Credentials that an operator ordered expire and are not renewed. Revoked ones stay revoked.
    if listed.is_some_and(|operator| operator.name != INIT_OPERATOR || operator.revoked.is_some()) {
        return Ok(Duty::Nothing);
    }
    let left = identity::certificate_not_after(&before.cert_pem)?.ms_since(now);
    let present = identity::names_issuer(&before.cert_pem, inventory.issuer())?;
    Ok(match listed.is_none() && inventory.only_listed_operators {
        true if present && left > 0 => Duty::Enrol,
        // An expired certificate, or one of another CA, does not prove that it was ever valid.
        true => Duty::Nothing,
        false if !present || left <= LEFT_MS_MIN => Duty::Reissue,
        false if before.ca_pem != inventory.roots().concat() => Duty::Trust,
        false => Duty::Nothing,
    })
}

/// Sends the order to the leader in the name of this manager, because only the leader can write
/// entries.
async fn ask_leader(shared: &ManagerContext, request: OperatorRequest) -> Result<OperatorMade, OperatorFileError> {
    let status = shared.raft.status().borrow().clone();
    let (_, leader) = status.leader_address().ok_or(OperatorFileError::NoLeader)?;
    let client = shared.peers.client(leader).with_timeout(ASK_WITHIN);
    Ok(client.on_behalf(shared.identity.name.as_str(), None).post("/v1/operators", &request).await?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use remoor_cluster::rpc::ca::{ClusterCa, Validity};
    use remoor_model::{Command, InventoryEntry, ca_id};
    use std::sync::Arc;

    #[test]
    fn the_credentials_of_init_are_listed_and_renewed_until_they_are_revoked() {
        let (ca, next) = (ClusterCa::create(&"c1".into()).unwrap(), ClusterCa::create_next(&"c1".into()).unwrap());
        let file = ca.issue_operator(INIT_OPERATOR, Validity::days_from_now(365)).unwrap();
        let mut inventory = Inventory { ca_pem: Arc::new(ca.cert_pem().to_owned()), ..Inventory::default() };
        let duty_at = |inventory: &Inventory, now| duty(&file, inventory, now).unwrap();
        let until = identity::certificate_not_after(&file.cert_pem).unwrap();
        let soon = Wall(until.0 - LEFT_MS_MIN);
        // In a cluster of an earlier version, the file is renewed, but it does not begin the list.
        assert_eq!([wall(), soon].map(|now| duty_at(&inventory, now)), [Duty::Nothing, Duty::Reissue]);
        inventory.only_listed_operators = true;
        assert_eq!([wall(), until].map(|now| duty_at(&inventory, now)), [Duty::Enrol, Duty::Nothing]);
        let apply = |inventory: &mut Inventory, command| {
            let entry = InventoryEntry { at: Wall(1), by: "test".to_owned(), command };
            assert_eq!(inventory.apply(inventory.applied + 1, &entry).refusal(), None);
        };
        let key = hex::encode(identity::certificate_key(&file.cert_pem).unwrap());
        let (name, issuer) = (INIT_OPERATOR.to_owned(), ca_id(ca.cert_pem()));
        apply(&mut inventory, Command::MakeOperator { name, key, ca: issuer, until, enforce: true });
        assert_eq!([wall(), soon].map(|now| duty_at(&inventory, now)), [Duty::Nothing, Duty::Reissue]);
        let rotated = Inventory { ca_pem: Arc::new(next.cert_pem().to_owned()), ..inventory.clone() };
        assert_eq!(duty_at(&rotated, wall()), Duty::Reissue);
        apply(&mut inventory, Command::RevokeOperator { name: INIT_OPERATOR.to_owned() });
        assert_eq!([wall(), soon].map(|now| duty_at(&inventory, now)), [Duty::Nothing, Duty::Nothing]);
    }
}
