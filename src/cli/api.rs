//! The managers that a command asks: the daemon of this machine, or the managers of `--manager`.
//! They are asked one after the other.

use super::args::ConnectionOptions;
use super::error::CommandError;
use super::exit::Exit;
use bytes::Bytes;
use remoor_cluster::rpc::client::{ApiError, Client, EventLines};
use remoor_cluster::rpc::identity::TlsIdentity;
use remoor_cluster::rpc::tls::ClientTls;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::time::Duration;

/// Timeout of read requests.
const ASK_WITHIN: Duration = Duration::from_secs(30);
/// Timeout of write requests. It is longer than the time within which a manager answers. A manager
/// may first examine a node over SSH.
const EXAMINE_WITHIN: Duration = Duration::from_secs(90);

/// Asks one manager after the other. The next manager is asked only if nothing was sent to the
/// manager before it. If all fail, the first failure is returned.
macro_rules! ask {
    ($api:expr, $client:ident => $ask:expr) => {{
        let mut first = None;
        for $client in &$api.clients {
            match $ask.await {
                Err(error @ ApiError::Unreachable { .. }) => {
                    first.get_or_insert(error);
                }
                other => return other,
            }
        }
        let reason = "no manager is given".to_owned();
        Err(first.unwrap_or(ApiError::Unreachable { addr: String::new(), reason }))
    }};
}

/// The API of the managers. A clone is cheap.
#[derive(Debug, Clone)]
pub struct Api {
    /// One client for each manager; at least one.
    clients: Vec<Client>,
}

impl Api {
    /// Reads the credentials if `--manager` is used. This function does not connect yet.
    pub fn open(connection: &ConnectionOptions) -> anyhow::Result<Self> {
        if connection.manager.is_empty() {
            return Ok(Self { clients: vec![Client::unix(&connection.socket)] });
        }
        let wrong = |e: &dyn std::error::Error| {
            CommandError::new(Exit::Usage, "the operator's credentials can't be used")
                .cause(e)
                .next("--credentials FILE, with the file that remoor init or remoor key operator wrote")
        };
        let file = connection
            .credentials
            .as_deref()
            .ok_or_else(|| CommandError::usage_error("--manager needs --credentials FILE"))?;
        let identity = TlsIdentity::load(file).map_err(|e| wrong(&e))?;
        let tls = ClientTls::member(&identity).map_err(|e| wrong(&e))?.for_managers_only("/v1/status");
        Ok(Self { clients: connection.manager.iter().map(|addr| Client::tls(addr, &tls, None)).collect() })
    }

    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ApiError> {
        ask!(self, client => client.with_timeout(ASK_WITHIN).get(path))
    }

    pub async fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, ApiError> {
        let body = lean(serde_json::to_value(body).unwrap_or_default());
        let post = async || ask!(self, client => client.with_timeout(EXAMINE_WITHIN).post(path, &body));
        post().await.map_err(not_begun)
    }

    pub async fn post_bytes(&self, path: &str, body: Bytes) -> Result<Bytes, ApiError> {
        let post = async || ask!(self, client => client.with_timeout(EXAMINE_WITHIN).post_bytes(path, body.clone()));
        post().await.map_err(not_begun)
    }

    pub async fn stream(&self, path: &str) -> Result<EventLines, ApiError> {
        ask!(self, client => client.with_timeout(ASK_WITHIN).stream_lines(path))
    }
}

/// Removes unset fields, because an older manager rejects keys that it does not know, even with an
/// empty value.
fn lean(mut body: Value) -> Value {
    if let Value::Object(fields) = &mut body {
        fields.retain(|_, value| match value {
            Value::Null => false,
            Value::Bool(set) => *set,
            Value::Number(number) => number.as_u64() != Some(0),
            Value::String(text) => !text.is_empty(),
            Value::Array(items) => !items.is_empty(),
            Value::Object(fields) => !fields.is_empty(),
        });
    }
    body
}

/// Adds "nothing was changed" to the error of an order that no manager accepted, for instance
/// during a failover.
pub fn not_begun(mut error: ApiError) -> ApiError {
    let text = match &mut error {
        ApiError::Unreachable { reason, .. } | ApiError::Identity { reason, .. } => reason,
        ApiError::Status { code, message, .. }
            if ["retry", "not-leader", "no-quorum", "rate-limited"].contains(&code.as_str()) =>
        {
            message
        }
        _ => return error,
    };
    if !text.contains("nothing was") {
        text.push_str("; nothing was changed");
    }
    error
}

/// Whether the request may succeed if it is sent again, to this manager or to another one.
pub fn temporary(error: &ApiError) -> bool {
    match error {
        ApiError::Identity { .. } => false,
        ApiError::Status { http, .. } => *http >= 500 || matches!(http, 421 | 429),
        _ => true,
    }
}

/// A name, percent-encoded as one segment of a URL path.
pub fn segment(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => out.push(char::from(byte)),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_escaped_in_paths() {
        assert_eq!(segment("w1.example-2"), "w1.example-2");
        assert_eq!(segment("../a?b c/ü"), "..%2Fa%3Fb%20c%2F%C3%BC");
    }

    #[test]
    fn only_orders_that_were_not_accepted_say_that_nothing_was_changed() {
        let status = |code: &str, message: &str| ApiError::Status {
            code: code.to_owned(),
            message: message.to_owned(),
            next: None,
            details: Box::default(),
            http: 503,
        };
        let (addr, reason) = ("m1:7947".to_owned(), "refused".to_owned());
        let count_notes = |error: ApiError| not_begun(error).to_string().matches("nothing was changed").count();
        assert_eq!(count_notes(ApiError::Unreachable { addr: addr.clone(), reason: reason.clone() }), 1);
        assert_eq!(count_notes(status("retry", "another manager leads now; ask again")), 1);
        assert_eq!(count_notes(status("no-quorum", "no majority; nothing was changed")), 1, "once is enough");
        assert_eq!(count_notes(status("outcome-unknown", "m1 did not answer")), 0);
        assert_eq!(count_notes(ApiError::Protocol { addr: addr.clone(), reason }), 0);
        assert_eq!(count_notes(ApiError::Timeout { addr, waited: ASK_WITHIN }), 0);
    }

    #[test]
    fn unset_fields_of_an_order_are_not_sent() {
        use remoor_cluster::rpc::view::{OrderRequest, OrdersRequest};
        let request = OrderRequest { now: true, services: vec!["web".to_owned()], ..OrderRequest::default() };
        let batch = OrdersRequest { order: "resetup".to_owned(), nodes: vec!["w1".to_owned()], request };
        let lean = lean(serde_json::to_value(&batch).unwrap());
        assert_eq!(lean, serde_json::json!({"order": "resetup", "nodes": ["w1"], "services": ["web"], "now": true}));
        assert_eq!(serde_json::from_value::<OrdersRequest>(lean).unwrap(), batch);
    }
}
