//! The table of all routes of a manager: the allowed callers, the manager that answers, and the
//! maximum length of a body.

use super::super::ManagerContext;
use super::super::backup::Keeper;
use super::authorization::{self, Audience};
use super::forward::{self, AnsweredBy};
use super::{
    JoinService, backup, checks, examination, fleet, invite, jobs, keys, leave, member, operators, order, peer_list,
    pending, plan, position, reachability, read, remove, renew, replay, roles, state, tokens, undo, vars,
};
use AnsweredBy::{Asked, Leader, LeaderStream, QuickLeader};
use Audience::{Anybody, LocalOperators, Managers, Nodes, Operators, RaftMembers, StayingManagers};
use axum::Router;
use axum::extract::FromRef;
use axum::handler::Handler;
use axum::http::Method;
use axum::middleware::from_fn_with_state;
use axum::routing::{MethodFilter, MethodRouter, on};
use remoor_cluster::rpc::agent::{CA_PATH, GOSSIP_KEYS_PATH};
use remoor_cluster::rpc::join::{JOIN_PATH, JOIN_PROVED_PATH};
use remoor_cluster::rpc::leave::LEAVE_PATH;
use remoor_cluster::rpc::position::POSITION_PATH;
use remoor_cluster::rpc::renew::RENEW_PATH;
use remoor_cluster::rpc::wire::{self, BODY_MAX, LARGE_BODY_MAX, SMALL_BODY_MAX};
use std::sync::Arc;

const GET: Method = Method::GET;
const POST: Method = Method::POST;
/// The body limit of requests without a body.
const NO_BODY: usize = 0;

/// The state that the handlers receive.
#[derive(Clone)]
struct ApiState {
    shared: Arc<ManagerContext>,
    desk: Arc<JoinService>,
    keeper: Arc<Keeper>,
}

impl FromRef<ApiState> for Arc<ManagerContext> {
    fn from_ref(state: &ApiState) -> Self {
        state.shared.clone()
    }
}

impl FromRef<ApiState> for Arc<JoinService> {
    fn from_ref(state: &ApiState) -> Self {
        state.desk.clone()
    }
}

impl FromRef<ApiState> for Arc<Keeper> {
    fn from_ref(state: &ApiState) -> Self {
        state.keeper.clone()
    }
}

/// One row of the table of routes.
pub struct Route {
    pub method: Method,
    pub path: &'static str,
    pub audience: Audience,
    answered_by: AnsweredBy,
    /// Maximum length of the body in bytes. [`RaftMembers`] that are not managers may send only
    /// short messages.
    body_max: usize,
    handler: MethodRouter<ApiState>,
}

fn row<H: Handler<T, ApiState>, T: 'static>(
    method: Method,
    path: &'static str,
    audience: Audience,
    answered_by: AnsweredBy,
    body_max: usize,
    handler: H,
) -> Route {
    let filter = if method == GET { MethodFilter::GET } else { MethodFilter::POST };
    Route { method, path, audience, answered_by, body_max, handler: on(filter, handler) }
}

/// The routes of a manager.
pub fn routes() -> Vec<Route> {
    vec![
        row(GET, "/v1/status", Operators, QuickLeader, NO_BODY, read::status),
        row(GET, "/v1/raft", Operators, QuickLeader, NO_BODY, roles::raft),
        row(GET, "/v1/raft/state", Operators, Asked, NO_BODY, state::state),
        row(GET, "/v1/removed", Operators, Leader, NO_BODY, remove::list_removed),
        row(GET, "/v1/history", Operators, QuickLeader, NO_BODY, read::history),
        row(GET, "/v1/watch", Operators, LeaderStream, NO_BODY, read::watch),
        row(GET, "/v1/metrics", Operators, Leader, NO_BODY, read::prometheus),
        row(GET, "/v1/inventory", Operators, Leader, NO_BODY, fleet::inventory),
        row(POST, "/v1/apply", Operators, Leader, LARGE_BODY_MAX, fleet::apply),
        row(POST, "/v1/resume", Operators, Leader, BODY_MAX, order::resume_fleet),
        row(POST, "/v1/orders", Operators, Leader, BODY_MAX, order::orders),
        row(GET, "/v1/jobs", Operators, QuickLeader, NO_BODY, jobs::jobs),
        row(GET, "/v1/jobs/{id}/log", Operators, LeaderStream, NO_BODY, read::job_log),
        row(POST, "/v1/jobs/{id}/cancel", Operators, Leader, BODY_MAX, order::cancel),
        row(POST, "/v1/attempts/{id}/undo", Operators, Leader, BODY_MAX, undo::undo),
        row(POST, "/v1/nodes", Operators, Leader, BODY_MAX, invite::invite),
        row(GET, "/v1/nodes/{name}/why", Operators, QuickLeader, NO_BODY, read::explain_node),
        row(GET, "/v1/nodes/{name}/replay", Operators, Leader, NO_BODY, replay::replay),
        row(GET, "/v1/nodes/{name}/vars", Operators, Leader, NO_BODY, vars::vars),
        row(GET, "/v1/nodes/{name}/checks", Operators, Leader, NO_BODY, checks::checks),
        row(POST, "/v1/nodes/{name}/check", Operators, Leader, BODY_MAX, examination::check),
        row(POST, "/v1/nodes/{name}/diff", Operators, Leader, BODY_MAX, examination::diff),
        row(POST, "/v1/nodes/{name}/adopt", Operators, Leader, BODY_MAX, examination::adopt),
        row(POST, "/v1/nodes/{name}/plan", Operators, Leader, BODY_MAX, plan::plan),
        row(POST, "/v1/nodes/{name}/{order}", Operators, Leader, BODY_MAX, order::order),
        row(POST, "/v1/accept", Operators, Leader, BODY_MAX, pending::accept),
        row(GET, "/v1/keys", Operators, Leader, NO_BODY, keys::status),
        row(POST, "/v1/keys/rotate", Operators, Leader, BODY_MAX, keys::rotate),
        row(POST, "/v1/operators", Operators, Leader, BODY_MAX, operators::make),
        row(POST, "/v1/operators/revoke", Operators, Leader, BODY_MAX, operators::revoke),
        row(GET, "/v1/tokens", Operators, Leader, NO_BODY, tokens::list),
        row(POST, "/v1/tokens/rotate", Operators, Leader, BODY_MAX, tokens::rotate),
        row(POST, "/v1/backup", LocalOperators, Asked, BODY_MAX, backup::take),
        row(POST, "/v1/backup/plan", LocalOperators, Asked, BODY_MAX, backup::plan),
        row(POST, "/raft/{kind}", RaftMembers, Asked, LARGE_BODY_MAX, member::raft),
        row(GET, "/blob/{sha}", Managers, Asked, NO_BODY, member::get_blob),
        row(POST, "/blob/{sha}", Managers, Asked, LARGE_BODY_MAX, member::put_blob),
        row(GET, "/manager/v1/reach/{node}", Managers, Asked, NO_BODY, reachability::ask),
        row(POST, "/manager/v1/reach/{node}", Managers, Asked, BODY_MAX, reachability::report),
        row(POST, "/manager/v1/report/{node}", Managers, Asked, SMALL_BODY_MAX, peer_list::report),
        row(GET, "/manager/v1/examine/{node}", Managers, Asked, NO_BODY, reachability::examine),
        row(GET, "/manager/v1/log/{attempt}", Managers, Asked, NO_BODY, jobs::own_log),
        row(GET, "/manager/v1/ca", StayingManagers, Asked, NO_BODY, member::ca),
        row(POST, "/manager/v1/ca", StayingManagers, Asked, BODY_MAX, member::keep_ca),
        row(GET, "/manager/v1/ssh-key", StayingManagers, Asked, NO_BODY, member::ssh_key),
        row(GET, POSITION_PATH, Nodes, Asked, NO_BODY, position::position),
        row(GET, "/agent/v1/manifest", Nodes, Asked, NO_BODY, member::manifest),
        row(GET, "/agent/v1/peers", Nodes, Asked, NO_BODY, peer_list::peers),
        row(POST, LEAVE_PATH, Nodes, Asked, SMALL_BODY_MAX, leave::leave),
        row(POST, CA_PATH, Nodes, Asked, SMALL_BODY_MAX, keys::trusted_cas),
        row(POST, GOSSIP_KEYS_PATH, Nodes, Asked, SMALL_BODY_MAX, keys::gossip_keys),
        row(POST, RENEW_PATH, Nodes, Asked, SMALL_BODY_MAX, renew::renew),
        row(POST, JOIN_PATH, Anybody, Asked, SMALL_BODY_MAX, member::join),
        row(POST, JOIN_PROVED_PATH, Anybody, Asked, SMALL_BODY_MAX, member::join),
    ]
}

/// The router of a manager. `desk` handles the joins of machines, `keeper` makes backups.
pub fn router(desk: Arc<JoinService>, keeper: Keeper) -> Router {
    let shared = desk.context().clone();
    let mut router = Router::new();
    for Route { path, audience, answered_by, body_max, handler, .. } in routes() {
        let forwarded = match answered_by {
            Asked => handler,
            _ => handler.route_layer(from_fn_with_state((shared.clone(), answered_by), forward::to_leader)),
        };
        let admit = from_fn_with_state((shared.clone(), audience, body_max), authorization::admit);
        router = router.route(path, forwarded.route_layer(admit));
    }
    wire::finish(router.with_state(ApiState { shared, desk, keeper: Arc::new(keeper) }))
}
