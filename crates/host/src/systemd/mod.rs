//! Access to systemd over D-Bus. No program is started for a query, and a host without bus daemon
//! is supported.
//!
//! ```text
//!   wire.rs           messages to bytes and back (pure)
//!   bus.rs            one connection: authentication, calls, answers; deadline and stop callback
//!   manager.rs        queries and orders to systemd, waiting for systemd jobs
//!   property_text.rs  property values, formatted as by `systemctl show` (pure)
//! ```
//!
//! Keep a connection only as long as it is needed: systemd sends every change of every unit to each
//! client of its private socket and buffers unread messages. Operations without a D-Bus method need
//! `systemctl`; the caller decides when to use it. [`BusError::Absent`] means that systemd is not
//! reachable here.

mod bus;
mod manager;
mod property_text;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
mod wire;

pub use bus::{BusDeadline, BusError};
pub use manager::{SystemdManager, UnitFileChange, UnitJob, UnitProperties};

use std::path::{Path, PathBuf};

/// Suffixes of the unit types.
const SUFFIXES: [&str; 11] = [
    ".service",
    ".socket",
    ".target",
    ".timer",
    ".mount",
    ".automount",
    ".swap",
    ".path",
    ".slice",
    ".scope",
    ".device",
];

/// The full name of a unit, as `systemctl` completes it.
pub fn unit_name(name: &str) -> String {
    if SUFFIXES.iter().any(|suffix| name.ends_with(suffix)) { name.to_owned() } else { format!("{name}.service") }
}

/// Socket paths of systemd.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SystemdSockets {
    /// systemd's private socket, for root only. It needs no bus daemon.
    private: PathBuf,
    /// The socket of the bus daemon, for all users.
    bus: Option<PathBuf>,
}

impl Default for SystemdSockets {
    /// The usual paths of the sockets.
    fn default() -> Self {
        Self { private: "/run/systemd/private".into(), bus: Some("/run/dbus/system_bus_socket".into()) }
    }
}

impl SystemdSockets {
    /// systemd's private socket below this runtime directory (`/run` or that of a user), without a
    /// bus.
    pub fn in_runtime_dir(runtime: &Path) -> Self {
        Self { private: runtime.join("systemd/private"), bus: None }
    }
}
