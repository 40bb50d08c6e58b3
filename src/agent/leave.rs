//! Handles `remoor leave` in the daemon of this machine. The handler informs the managers, and the
//! agent stops after their decision.
//!
//! Only root on this machine may request this. The node's certificate proves to the managers that
//! the request comes from this node.

use super::local_state::{AgentState, Departure};
use axum::extract::State;
use axum::routing::post;
use axum::{Json, Router};
use remoor_cluster::rpc::caller::Caller;
use remoor_cluster::rpc::client::{ApiError, Client};
use remoor_cluster::rpc::join::PeerInfo;
use remoor_cluster::rpc::leave::{LEAVE_HERE, LEAVE_PATH};
use remoor_cluster::rpc::tls::ClientTls;
use remoor_cluster::rpc::view::LeaveReply;
use remoor_cluster::rpc::wire::{ApiFailure, Code};
use serde_json::json;
use std::time::Duration;
use tokio::time::Instant;

/// Maximum time to find the managers' leader. An election of a new leader ends sooner.
const LEADER_WAIT_MAX: Duration = Duration::from_secs(20);
const WITHIN: Duration = Duration::from_secs(5);
const AGAIN: Duration = Duration::from_millis(500);

/// The handler of `remoor leave`.
#[derive(Clone)]
pub struct LeaveService {
    pub own: AgentState,
    pub tls: ClientTls,
}

impl LeaveService {
    /// The route of `remoor leave`, for the local socket of any daemon.
    pub fn routes(self) -> Router {
        Router::new().route(LEAVE_HERE, post(leave)).with_state(self)
    }
}

async fn leave(State(desk): State<LeaveService>, caller: Caller) -> Result<Json<LeaveReply>, ApiFailure> {
    if caller != (Caller::Local { uid: 0 }) && !caller.runs_this_daemon() {
        let text = "only root on this machine may make it leave the cluster";
        return Err(ApiFailure::new(Code::Forbidden, text).next("use sudo"));
    }
    // The decision of the managers is final, so the daemon does not ask them again.
    if let Some(parted) = desk.own.departure() {
        return match parted.left {
            true => Ok(Json(LeaveReply { text: parted.why, until: String::new() })),
            false => Err(ApiFailure::new(Code::NodeRemoved, parted.why)),
        };
    }
    let reply = request_leave(&desk).await?;
    desk.own.request_departure(Departure { why: reply.text.clone(), left: true });
    Ok(Json(reply))
}

/// Asks one manager after the other to let this node leave, until the leader has decided.
async fn request_leave(desk: &LeaveService) -> Result<LeaveReply, ApiFailure> {
    let ends = Instant::now() + LEADER_WAIT_MAX;
    loop {
        let managers = desk.own.follow_managers().borrow().clone();
        let mut silent = "this node does not know any manager".to_owned();
        for manager in &managers {
            match ask(desk, manager).await {
                Ok(reply) => return Ok(reply),
                // An earlier request to leave succeeded, but its answer was lost.
                Err(ApiError::Status { code, message, details, .. })
                    if code == Code::NodeRemoved.as_str() && details["left"] == true =>
                {
                    return Ok(LeaveReply { text: message, until: String::new() });
                }
                Err(error) if !passes(&error) => return Err(error.into_failure(|_| Code::Unavailable)),
                Err(error) => silent = error.to_string(),
            }
        }
        if Instant::now() >= ends {
            let text = format!("no leader answers ({silent}); it is unknown whether the request was received");
            let next = "run the same command again once a majority of the managers is up: repeating it is safe";
            return Err(ApiFailure::new(Code::NoQuorum, text).next(next));
        }
        tokio::time::sleep(AGAIN).await;
    }
}

async fn ask(desk: &LeaveService, manager: &PeerInfo) -> Result<LeaveReply, ApiError> {
    let client = Client::tls(manager.api_addr.clone(), &desk.tls, Some(manager.id)).with_timeout(WITHIN);
    client.post(LEAVE_PATH, &json!({})).await
}

/// Whether a retry of the request, at this or another manager, may get a different answer.
fn passes(error: &ApiError) -> bool {
    match error {
        ApiError::Status { code, http, .. } => {
            // The last two codes mean that the asked node is no longer a manager, so it does not
            // have this route.
            *http >= 500 || ["not-leader", "rate-limited", "not-found", "method-not-allowed"].contains(&code.as_str())
        }
        _ => true,
    }
}
