//! What runs on this machine without a cluster: nothing here asks a manager or an agent.

pub mod digest;
