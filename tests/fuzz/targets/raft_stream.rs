//! The bytes of a connection with Raft messages, before a router sees them. Any node may send them.

use remoor_cluster::rpc::raft_stream::count_requests;
use std::sync::LazyLock;
use tokio::runtime::{Builder, Runtime};

static RUNTIME: LazyLock<Runtime> =
    LazyLock::new(|| Builder::new_current_thread().enable_time().build().expect("a runtime"));

pub fn target(bytes: &[u8]) -> bool {
    // Each request has at least its length and the length of its kind.
    assert!(RUNTIME.block_on(count_requests(bytes)) <= bytes.len() / 5);
    true
}
