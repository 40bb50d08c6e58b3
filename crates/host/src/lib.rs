//! Access to the machine of a node: its files and their digests, its data directory, systemd over
//! D-Bus, and HTTP redirects. This crate makes no decisions.
#![doc = include_str!("../README.md")]

pub mod disk; // atomic files, identity of the data directory
pub mod files; // digests of declared files
pub mod process; // protection of the memory of this process
pub mod systemd; // systemd over D-Bus
pub mod template; // Tera templates, rendered in limited children
pub mod tls; // the rustls verifier, by a rule of the caller
pub mod wall_clock; // the wall clock
pub mod web; // HTTP redirects and trusted certificates, for checks and playbooks
