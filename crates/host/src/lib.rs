//! What a node's machine is asked: its files and their digests, its data directory, systemd over D-Bus, and where web
//! servers redirect to. This crate takes no decision.
#![doc = include_str!("../README.md")]

pub mod disk; // atomic files, identity of the data directory
pub mod files; // digests of declared files
pub mod systemd; // systemd over D-Bus
pub mod web; // redirections and trusted certificates, for checks and playbooks alike
