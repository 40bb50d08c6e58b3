//! One file per family of verbs: ask, then show.

pub mod add;
pub mod digest;
pub mod examine;
pub mod fleet;
pub mod follow;
pub mod history;
pub mod job;
pub mod listed;
pub mod local;
pub mod nodes;
pub mod order;
pub mod own;
pub mod plan;
pub mod play;
pub mod replay;
pub mod status;
pub mod suite;
pub mod wait;
pub mod watch;
pub mod which;
pub mod why;
