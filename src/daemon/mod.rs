//! The daemon, one process on every node. It contains the agent and, on managers, Raft, the API and
//! the engine's loop.

mod add;
mod add_many;
mod address;
mod admin;
mod applied_watermark;
mod archive;
mod authority;
mod copied_identity;
mod epochs;
mod expiry;
mod gossip_key;
mod incomplete_init;
mod keyring;
mod layout;
mod manager_lifecycle;
mod manager_service;
mod new_addresses;
mod node_keys;
mod operator_file;
mod position;
mod rebuild;
mod recover;
mod renewal;
mod restore;
mod run;
mod runtime;
mod scrape;
mod ssh_key;
mod swappable_router;
mod transport;
mod trim_memory;
mod unit;

pub use crate::manager::backup::{BackupError, Head as BackupHead, parse_recipient};
pub use add::{AddError, AddOptions, Added, add};
pub use add_many::{ToAdd, add_many, to_add};
pub use admin::{AdminError, InitOptions, InitOutcome, JoinOptions, init, join};
pub use archive::old_archives;
pub use incomplete_init::{archive_data_dir, mark_tokens_printed};
pub use layout::{Layout, NodeConfig};
pub use new_addresses::record_addresses;
pub use rebuild::RebuildResult;
pub use recover::{
    NodePlacement, Objection, OtherManager, PositionAnswer, RecoverError, RecoverOptions, Recovery, RecoveryState,
    prepare_recovery, recover,
};
pub use remoor_cluster::raft::OPENING_THREAD;
pub use remoor_host::disk::ArchivedLog;
pub use restore::{RestoreError, RestoreOptions, Restored, restore, verify};
pub use run::{DaemonError, DaemonOptions, panic_file, run};
pub use runtime::runtime;
