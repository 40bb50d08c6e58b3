//! The managers that a command asks: this machine's daemon, or those named with `--manager`, one after the other.

use super::args::Connection;
use super::error::Stop;
use super::exit::Exit;
use crate::rpc::client::{ApiError, Client, Lines};
use crate::rpc::identity::TlsIdentity;
use crate::rpc::tls::ClientTls;
use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::time::Duration;

/// For questions.
const ASK_WITHIN: Duration = Duration::from_secs(30);
/// For orders that examine a node over SSH first; more than a manager allows itself.
const EXAMINE_WITHIN: Duration = Duration::from_secs(90);

/// Asks one after the other. Only where nothing was sent is the next one asked; the first failure is the one that is told.
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
        let reason = "no manager was named".to_owned();
        Err(first.unwrap_or(ApiError::Unreachable { addr: String::new(), reason }))
    }};
}

/// Cheap to clone.
#[derive(Debug, Clone)]
pub struct Api {
    /// Never empty.
    clients: Vec<Client>,
}

impl Api {
    /// Reads the credentials if there are any to read; connects to nobody yet.
    pub fn open(connection: &Connection) -> anyhow::Result<Self> {
        if connection.manager.is_empty() {
            return Ok(Self { clients: vec![Client::unix(&connection.socket)] });
        }
        let wrong = |e: &dyn std::error::Error| {
            Stop::new(Exit::Usage, "the operator's credentials can't be used")
                .cause(e)
                .next("--credentials FILE, as remoor init wrote it")
        };
        let file =
            connection.credentials.as_deref().ok_or_else(|| Stop::usage("--manager needs --credentials FILE"))?;
        let identity = TlsIdentity::load(file).map_err(|e| wrong(&e))?;
        let tls = ClientTls::member(&identity).map_err(|e| wrong(&e))?;
        Ok(Self { clients: connection.manager.iter().map(|addr| Client::tls(addr, &tls, None)).collect() })
    }

    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ApiError> {
        ask!(self, client => client.within(ASK_WITHIN).get(path))
    }

    pub async fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, ApiError> {
        let body = lean(serde_json::to_value(body).unwrap_or_default());
        let post = async || ask!(self, client => client.within(EXAMINE_WITHIN).post(path, &body));
        post().await.map_err(not_begun)
    }

    pub async fn post_bytes(&self, path: &str, body: Bytes) -> Result<Bytes, ApiError> {
        let post = async || ask!(self, client => client.within(EXAMINE_WITHIN).post_bytes(path, body.clone()));
        post().await.map_err(not_begun)
    }

    pub async fn stream(&self, path: &str) -> Result<Lines, ApiError> {
        ask!(self, client => client.within(ASK_WITHIN).stream_lines(path))
    }
}

/// Without what asks for nothing: an older manager refuses keys that it does not know, and need not be told of those unused.
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

/// Of an order that nobody took, as in the middle of a fail-over: says so where the error does not.
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

/// Whether a manager that comes back, or another one, may answer.
pub fn temporary(error: &ApiError) -> bool {
    match error {
        ApiError::Identity { .. } => false,
        ApiError::Status { http, .. } => *http >= 500 || matches!(http, 421 | 429),
        _ => true,
    }
}

/// A name as one part of a path.
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
    fn names_can_not_leave_their_place_in_a_path() {
        assert_eq!(segment("w1.example-2"), "w1.example-2");
        assert_eq!(segment("../a?b c/ü"), "..%2Fa%3Fb%20c%2F%C3%BC");
    }

    #[test]
    fn what_nobody_took_is_said_to_have_changed_nothing_and_what_may_be_done_is_not() {
        let status = |code: &str, message: &str| ApiError::Status {
            code: code.to_owned(),
            message: message.to_owned(),
            next: None,
            details: Box::default(),
            http: 503,
        };
        let (addr, reason) = ("m1:7947".to_owned(), "refused".to_owned());
        let said = |error: ApiError| not_begun(error).to_string().matches("nothing was changed").count();
        assert_eq!(said(ApiError::Unreachable { addr: addr.clone(), reason: reason.clone() }), 1);
        assert_eq!(said(status("retry", "another manager leads now; ask again")), 1);
        assert_eq!(said(status("no-quorum", "no majority; nothing was changed")), 1, "once is enough");
        assert_eq!(said(status("outcome-unknown", "m1 did not answer")), 0);
        assert_eq!(said(ApiError::Protocol { addr: addr.clone(), reason }), 0);
        assert_eq!(said(ApiError::Timeout { addr, waited: ASK_WITHIN }), 0);
    }

    #[test]
    fn an_order_says_what_it_asks_for_and_no_more() {
        use crate::rpc::view::{OrderRequest, OrdersRequest};
        let request = OrderRequest { now: true, services: vec!["web".to_owned()], ..OrderRequest::default() };
        let batch = OrdersRequest { order: "resetup".to_owned(), nodes: vec!["w1".to_owned()], request };
        let lean = lean(serde_json::to_value(&batch).unwrap());
        assert_eq!(lean, serde_json::json!({"order": "resetup", "nodes": ["w1"], "services": ["web"], "now": true}));
        assert_eq!(serde_json::from_value::<OrdersRequest>(lean).unwrap(), batch);
    }
}
