//! The agent's routes on the machine's socket: read-only requests about the node itself. A worker
//! rejects all other requests and names the managers. On a manager, the socket serves these routes
//! in addition to the routes of the cluster.

use super::local_state::AgentState;
use super::metrics::Metrics;
use axum::extract::State;
use axum::http::{Method, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get, post};
use axum::{Json, Router};
use remoor_cluster::rpc::agent::{INSTANCE_PATH, InstanceReply, PeersReply};
use remoor_cluster::rpc::caller::Caller;
use remoor_cluster::rpc::join::{JOIN_PATH, JOIN_PROVED_PATH};
use remoor_cluster::rpc::view::AgentView;
use remoor_cluster::rpc::wire::{ApiFailure, Code};
use remoor_model::Wall;
use std::sync::Arc;

/// Maximum number of managers that a rejection names.
const NAMED_MAX: usize = 3;

type Clock = Arc<dyn Fn() -> Wall + Send + Sync>;

#[derive(Clone)]
struct AgentApiState {
    own: AgentState,
    metrics: Metrics,
    clock: Clock,
}

/// The read-only routes, for the socket of any daemon.
pub fn routes(own: AgentState, metrics: Metrics, clock: impl Fn() -> Wall + Send + Sync + 'static) -> Router {
    Router::new().route("/v1/agent", get(view)).route("/v1/agent/metrics", get(text)).with_state(AgentApiState {
        own,
        metrics,
        clock: Arc::new(clock),
    })
}

/// The routes for the socket of a worker: the agent's own routes, and a rejection of all requests
/// that only managers answer.
pub fn worker(own: AgentState, metrics: Metrics, clock: impl Fn() -> Wall + Send + Sync + 'static) -> Router {
    let refuse = {
        let own = own.clone();
        move |method: Method, uri: Uri| async move { refusal(&own, &method, uri.path()) }
    };
    routes(own, metrics, clock).fallback(refuse.clone()).method_not_allowed_fallback(refuse)
}

/// The route at the API address of a former manager. It returns the managers that this node knows
/// now. The caller may know only outdated ones, for example if all managers were replaced before
/// the caller's agent asked again.
pub fn former_manager(own: AgentState) -> Router {
    Router::new().route("/agent/v1/peers", get(peers)).with_state(own)
}

/// The route at the API address of every node: the instance of the agent. If a node finds its own
/// signature at another address, this route shows whether a second daemon answers there.
pub fn instance(own: AgentState) -> Router {
    Router::new().route(INSTANCE_PATH, get(own_instance)).with_state(own)
}

async fn own_instance(State(own): State<AgentState>, caller: Caller) -> Result<Json<InstanceReply>, ApiFailure> {
    check_node(&caller).map(|()| Json(InstanceReply { instance: own.instance() }))
}

async fn peers(State(own): State<AgentState>, caller: Caller) -> Result<Json<PeersReply>, ApiFailure> {
    check_node(&caller).map(|()| Json(own.peers_reply()))
}

/// Allows any node with a certificate of the cluster. A worker can't check more, because only
/// managers know removed nodes.
fn check_node(caller: &Caller) -> Result<(), ApiFailure> {
    match caller {
        Caller::Node { .. } => Ok(()),
        _ => Err(ApiFailure::new(Code::Unauthenticated, "only nodes of the cluster may ask this")),
    }
}

/// The routes for joining machines and operators at the API address of a node that is not a
/// manager. The answer names the managers to ask instead (docs/design/scenarios.md, E27).
pub fn worker_redirects(own: AgentState) -> Router {
    let asked = |State(own): State<AgentState>| async move {
        let text = format!(
            "{} is not a manager and answers only for itself, on its local socket; nothing was changed",
            own.id().name
        );
        ApiFailure::new(Code::NotLeader, text).next(format!("--manager {}", manager_option(&own)))
    };
    let joins = Router::new().route(JOIN_PATH, post(redirect_join)).route(JOIN_PROVED_PATH, post(redirect_join));
    joins.route("/v1/{*path}", any(asked)).with_state(own)
}

async fn redirect_join(State(own): State<AgentState>) -> ApiFailure {
    let (me, mut managers) = (own.id(), own.other_managers());
    managers.truncate(NAMED_MAX);
    let text = match managers.as_slice() {
        [] => format!("{} is not a manager and does not know any", me.name),
        some => format!("{} is not a manager: ask {}", me.name, some.join(", ")),
    };
    let failure = ApiFailure::new(Code::NotLeader, text).next("remoor join with the address of a manager");
    failure.details(serde_json::json!({ "managers": managers }))
}

async fn view(State(parts): State<AgentApiState>) -> Json<AgentView> {
    Json(parts.own.view((parts.clock)()))
}

async fn text(State(parts): State<AgentApiState>) -> Response {
    exposition(parts.metrics.render((parts.clock)(), &[]))
}

/// A response with metrics in the Prometheus text format.
pub fn exposition(text: String) -> Response {
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response()
}

fn refusal(own: &AgentState, method: &Method, path: &str) -> ApiFailure {
    let name = &own.id().name;
    let message = if *method == Method::GET || *method == Method::HEAD {
        format!("{name} is not a manager: its agent answers only for itself (remoor status, remoor nodes), not {path}")
    } else {
        format!("{name} is not a manager and accepts no orders; nothing was changed")
    };
    ApiFailure::new(Code::Unavailable, message).next(format!(
        "run the same command on a manager, or on this node with --manager {} --credentials FILE",
        manager_option(own)
    ))
}

/// The known managers, at most [`NAMED_MAX`], in the format of the option `--manager`.
fn manager_option(own: &AgentState) -> String {
    match own.other_managers().as_slice() {
        [] => "HOST:PORT".to_owned(),
        some => some.iter().take(NAMED_MAX).cloned().collect::<Vec<_>>().join(","),
    }
}

#[cfg(test)]
mod tests {
    use super::super::local_state::tests::sample_state;
    use super::*;
    use crate::telemetry::Registry;
    use remoor_cluster::rpc::client::{ApiError, Client};
    use remoor_cluster::rpc::server::ServerLimits;
    use remoor_cluster::rpc::unix::{LocalSocket, serve_unix};

    #[tokio::test]
    async fn a_workers_socket_tells_of_itself_and_refuses_the_rest_with_a_way_on() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("s");
        let own = sample_state();
        let metrics = Metrics::new(Registry::new(), own.clone());
        let router = worker(own, metrics, || Wall(70_000));
        let socket = LocalSocket::bind(&path).await.expect("a socket");
        let server = tokio::spawn(serve_unix(socket, router, ServerLimits::default(), std::future::pending()));
        let client = Client::unix(&path);

        let view: AgentView = client.get("/v1/agent").await.expect("a view");
        assert_eq!((view.kind.as_str(), view.node.name.as_str(), view.peers_alive), ("agent", "w1", 1));
        let text = client.get_bytes("/v1/agent/metrics").await.expect("metrics");
        assert!(String::from_utf8_lossy(&text).contains("\nremoor_agent_peers 1\n"), "{text:?}");

        let asked: Result<serde_json::Value, ApiError> = client.get("/v1/status").await;
        let ordered: Result<serde_json::Value, ApiError> = client.post("/v1/nodes/w2/resetup", &()).await;
        let posted: Result<serde_json::Value, ApiError> = client.post("/v1/agent", &()).await;
        for (answer, word) in [(asked, "answers only for itself"), (ordered, "no orders"), (posted, "no orders")] {
            let Err(ApiError::Status { code, message, next, .. }) = answer else { panic!("{answer:?}") };
            assert_eq!(code, "unavailable");
            assert!(message.contains(word), "{message}");
            assert!(next.is_some_and(|n| n.contains("--manager 10.0.0.1:7947")), "{message}");
        }
        server.abort();
    }
}
