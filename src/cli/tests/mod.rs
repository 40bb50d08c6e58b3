//! Tests of the command line: the output for given views, flags and documentation, and the
//! behaviour with fake daemons.

mod digest;
mod flags;
mod goldens;
mod keys;
mod leave;
mod local_status;
mod remove;
mod roles;
mod suite;
mod transport;
pub mod views;
