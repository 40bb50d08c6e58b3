//! The fuzz targets: functions that take arbitrary bytes and panic if the program handles them
//! incorrectly. `tests/it/fuzzed.rs` calls them with the seeds. libFuzzer calls them through
//! `tests/fuzz/main.rs`.

mod backup;
mod check_file;
mod digest;
mod executor_reply;
mod go_template;
mod gossip_meta;
mod inventory;
mod join_request;
mod playbook;
mod raft_message;
mod raft_stream;
mod template;

/// A target by name. The function returns false for an input that libFuzzer should not keep.
pub type Target = (&'static str, fn(&[u8]) -> bool);

pub const ALL: [Target; 12] = [
    ("backup", backup::target),
    ("check_file", check_file::target),
    ("digest", digest::target),
    ("executor_reply", executor_reply::target),
    ("go_template", go_template::target),
    ("gossip_meta", gossip_meta::target),
    ("inventory", inventory::target),
    ("join_request", join_request::target),
    ("playbook", playbook::target),
    ("raft_message", raft_message::target),
    ("raft_stream", raft_stream::target),
    ("template", template::target),
];

/// The input as text, up to the first byte that is not UTF-8.
fn text(bytes: &[u8]) -> &str {
    match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => std::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default(),
    }
}
