//! systemd, asked over D-Bus: no program is started for a question, and none on a host that has no bus daemon.
//!
//! ```text
//!   wire.rs     messages to bytes and back (pure)
//!   bus.rs      one connection: login, calls, answers, with a deadline and a stop
//!   manager.rs  what is asked of systemd and told to it, jobs waited for
//!   shown.rs    property values, written as `systemctl show` writes them (pure)
//! ```
//!
//! A connection lives as long as what it is needed for and no longer: systemd sends every change of every unit to
//! whoever is connected to its own socket, and keeps what is not read. What D-Bus does not do, `systemctl` does, which
//! is up to the caller, who learns by [`Fault::Absent`] that nothing answers here.

mod bus;
mod manager;
mod shown;
#[cfg(test)]
pub mod tests;
mod wire;

pub use bus::{Fault, Patience};
pub use manager::{Job, Manager, UnitFiles};

use std::path::{Path, PathBuf};

/// Kinds of units.
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

/// A unit's full name, as `systemctl` completes it.
pub fn unit_name(name: &str) -> String {
    if SUFFIXES.iter().any(|suffix| name.ends_with(suffix)) { name.to_owned() } else { format!("{name}.service") }
}

/// Where systemd listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sockets {
    /// systemd's own, for root alone: it needs no bus daemon.
    private: PathBuf,
    /// The bus daemon's, for everybody.
    bus: Option<PathBuf>,
}

impl Default for Sockets {
    /// Those of the system.
    fn default() -> Self {
        Self { private: "/run/systemd/private".into(), bus: Some("/run/dbus/system_bus_socket".into()) }
    }
}

impl Sockets {
    /// systemd's own socket below this runtime directory, `/run` or a user's, and no bus.
    pub fn below(runtime: &Path) -> Self {
        Self { private: runtime.join("systemd/private"), bus: None }
    }
}
