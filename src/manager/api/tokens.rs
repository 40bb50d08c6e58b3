//! Join tokens: lists the valid tokens, and creates new ones. The managers store only hashes of the
//! tokens' secrets. A secret is shown once, to the operator who created it.

use super::super::{ManagerContext, wall};
use super::{Actor, as_of, propose};
use axum::Extension;
use axum::extract::State;
use remoor_cluster::rpc::identity::IdentityError;
use remoor_cluster::rpc::join::JoinRequest;
use remoor_cluster::rpc::join_proof::ChannelBinding;
use remoor_cluster::rpc::token::{Secret, Token, is_same_hash};
use remoor_cluster::rpc::view::{RotateRequest, RotatedView, TokenView, TokensView};
use remoor_cluster::rpc::wire::{self, ApiFailure, Code, Strict};
use remoor_model::{ClusterRole, Command, Inventory, Sha256, Wall};
use std::sync::Arc;

/// Maximum time in milliseconds that a replaced token may stay valid.
const KEEP_MS_MAX: u64 = 7 * 24 * 3_600_000;

/// The hash of the secret that a joining machine knows. None if the request has neither a proof nor
/// the secret itself, which only earlier versions send. A proof is compared with all secrets of the
/// cluster, because the request does not name its token.
pub fn proved_secret(
    inventory: &Inventory,
    request: &JoinRequest,
    binding: Option<&ChannelBinding>,
) -> Result<Option<Sha256>, ApiFailure> {
    if !request.secret.is_empty() {
        return Ok(Some(request.secret.hash()));
    }
    if request.proof.is_empty() {
        return Ok(None);
    }
    let of_role = |role| {
        let (current, record) = inventory.token(role);
        std::iter::once(*current).chain(record.old.map(|old| old.secret))
    };
    let known = of_role(ClusterRole::Manager).chain(of_role(ClusterRole::Worker));
    let mut known = known.chain(inventory.admission.invites.keys().copied());
    let proves = |hash: &Sha256| binding.is_some_and(|b| b.verify(&request.proof, hash, &request.node_public_key));
    known.find(proves).map(Some).ok_or_else(wrong_secret)
}

/// The error for a secret that this cluster does not know.
pub fn wrong_secret() -> ApiFailure {
    ApiFailure::new(Code::BadToken, "this token's secret is not valid here").next(
        "for a new one, on a manager: remoor token rotate; or join with the public part and have the machine accepted",
    )
}

/// Whether the secret with this hash belongs to the role's current token, or to the replaced token
/// if that token is still valid. An expired replaced token causes an error of its own.
pub fn counts(inventory: &Inventory, role: ClusterRole, secret: &Sha256, now: Wall) -> Result<bool, ApiFailure> {
    let (current, record) = inventory.token(role);
    if is_same_hash(secret, current) {
        return Ok(true);
    }
    match record.old.filter(|old| is_same_hash(secret, &old.secret)) {
        Some(old) if now <= old.until => Ok(true),
        Some(old) => {
            let text = format!("this token was replaced; it was valid until {}", wire::rfc3339(old.until));
            let next = format!("for a new one, on a manager: remoor token rotate --role {}", role.as_str());
            Err(ApiFailure::new(Code::BadToken, text).next(next))
        }
        None => Ok(false),
    }
}

pub async fn list(State(shared): State<Arc<ManagerContext>>) -> Result<axum::Json<TokensView>, ApiFailure> {
    let inventory = shared.inventory();
    let public = Token::new(inventory.issuer(), Secret::default()).map_err(internal)?.public();
    let now = wall();
    let view = |role: ClusterRole| {
        let (_, record) = inventory.token(role);
        TokenView {
            role: role.as_str().to_owned(),
            since: (record.since > Wall(0)).then(|| wire::rfc3339(record.since)),
            by: record.by.clone(),
            old_until: record.old.filter(|old| old.until > now).map(|old| wire::rfc3339(old.until)),
        }
    };
    let tokens = [ClusterRole::Worker, ClusterRole::Manager].map(view).into();
    Ok(axum::Json(TokensView { version: 1, as_of: as_of(&shared), public, tokens }))
}

/// Commits the hash of a new secret and returns the secret to the operator. The secret can't be
/// shown again.
pub async fn rotate(
    State(shared): State<Arc<ManagerContext>>,
    Extension(by): Extension<Actor>,
    Strict(request): Strict<RotateRequest>,
) -> Result<axum::Json<RotatedView>, ApiFailure> {
    let role = super::pending::role(&request.role)?
        .ok_or_else(|| ApiFailure::new(Code::BadRequest, "role is missing: worker or manager"))?;
    if request.keep_old_ms > KEEP_MS_MAX {
        return Err(ApiFailure::new(Code::BadRequest, "a replaced token may stay valid for 7 days at most"));
    }
    let secret = Secret::generate().map_err(internal)?;
    let token = Token::new(shared.inventory().issuer(), secret.clone()).map_err(internal)?;
    let command = Command::RotateToken { role, secret: secret.hash(), keep_ms: request.keep_old_ms };
    propose(&shared, &by, command).await?;
    let inventory = shared.inventory();
    let old = inventory.token(role).1.old.map(|old| wire::rfc3339(old.until));
    let (role, token) = (role.as_str().to_owned(), token.reveal().into());
    Ok(axum::Json(RotatedView { version: 1, role, token, old_until: old.unwrap_or_default() }))
}

fn internal(error: IdentityError) -> ApiFailure {
    ApiFailure::new(Code::Internal, error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use remoor_model::Epoch;

    #[test]
    fn a_replaced_token_is_valid_for_a_time_and_then_refused_with_its_own_error() {
        let mut inventory = Inventory::default();
        let (first, second, manager) = (secret("a"), secret("b"), secret("c"));
        let init = Command::Init {
            cluster: "c1".into(),
            epoch: Epoch(1),
            ca_pem: String::new(),
            worker_secret: first.hash(),
            manager_secret: manager.hash(),
        };
        let rotated = Command::RotateToken { role: ClusterRole::Worker, secret: second.hash(), keep_ms: 100 };
        for (index, command) in [(1, init), (2, rotated)] {
            let entry = remoor_model::InventoryEntry { at: Wall(index * 10), by: "test".to_owned(), command };
            assert_eq!(inventory.apply(index, &entry).refusal(), None);
        }
        let counts = |secret: &Secret, at| counts(&inventory, ClusterRole::Worker, &secret.hash(), Wall(at));
        assert_eq!(counts(&second, 20), Ok(true));
        assert_eq!(counts(&first, 120), Ok(true), "the old one stays valid");
        let refused = counts(&first, 121).unwrap_err();
        assert_eq!(refused.code, Code::BadToken);
        assert!(refused.message.contains("was replaced") && refused.next.is_some(), "{refused:?}");
        assert_eq!(counts(&manager, 20), Ok(false), "another role's");
        assert_eq!(counts(&Secret::default(), 20), Ok(false));
        assert_ne!(Secret::default().hash(), Sha256::default(), "no cluster holds the hash of nothing");
    }

    fn secret(digit: &str) -> Secret {
        digit.repeat(32).into()
    }
}
