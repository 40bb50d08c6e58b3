//! The command line as people and programs meet it: what is printed for given views, what the flags and documents say, and
//! what becomes of a daemon that is not there.

mod digest;
mod flags;
mod goldens;
mod keys;
mod leave;
mod own;
mod remove;
mod roles;
mod suite;
mod transport;
pub mod views;
