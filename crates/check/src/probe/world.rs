//! State of the machine that all checks of one run share. Each part is read once, when the first
//! check needs it.

use super::super::load::Check;
use super::super::spec::ResourceKind;
use super::interface::Interface;
use super::package::Packages;
use super::port::ListeningSocket;
use super::process::Process;
use super::service::ServiceState;
use super::{interface, package, port, process, service};
use remoor_host::files::{Mount, Names, Servers, mounts};
use remoor_host::systemd::{SystemdSockets, unit_name};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use ureq::tls::Certificate;

/// The state of the machine, read on demand. A part of it is Err if the part could not be read.
#[derive(Default)]
pub struct World {
    asked_units: BTreeSet<String>,
    /// Whether some check needs the user or the command line of processes.
    process_details: bool,
    limit: Duration,
    units: OnceLock<Result<BTreeMap<String, ServiceState>, String>>,
    sockets: OnceLock<Result<Vec<ListeningSocket>, String>>,
    processes: OnceLock<Result<Vec<Process>, String>>,
    names: OnceLock<Names>,
    mounts: OnceLock<Result<Vec<Mount>, String>>,
    interfaces: OnceLock<Result<BTreeMap<String, Interface>, String>>,
    packages: OnceLock<Result<Packages, String>>,
    roots: OnceLock<Result<Arc<Vec<Certificate<'static>>>, String>>,
    servers: OnceLock<Servers>,
    systemd: SystemdSockets,
}

impl World {
    /// Does not read anything yet. `checks` determines the units of the single call to systemd.
    /// `limit` is the timeout for systemd, the package manager and the kernel.
    pub fn new<'a>(checks: impl IntoIterator<Item = &'a Check>, limit: Duration) -> Self {
        let mut world = Self { limit, ..Self::default() };
        for check in checks.into_iter().filter(|check| !check.skip) {
            match check.kind {
                ResourceKind::Service if service::is_unit_name(&check.name) && service::asks_state(check) => {
                    world.asked_units.insert(unit_name(&check.name));
                }
                ResourceKind::Process => {
                    world.process_details |= ["user", "args"].iter().any(|name| check.arguments.contains_key(name));
                }
                _ => {}
            }
        }
        world
    }

    pub(super) fn units(&self) -> Result<&BTreeMap<String, ServiceState>, String> {
        self.units.get_or_init(|| service::show(&self.asked_units, self.limit)).as_ref().map_err(Clone::clone)
    }

    pub(super) fn sockets(&self) -> Result<&[ListeningSocket], String> {
        self.sockets.get_or_init(port::sockets).as_deref().map_err(Clone::clone)
    }

    pub(super) fn processes(&self) -> Result<&[Process], String> {
        self.processes.get_or_init(|| process::list(self.process_details)).as_deref().map_err(Clone::clone)
    }

    pub(super) fn names(&self) -> &Names {
        self.names.get_or_init(Names::load)
    }

    pub(super) fn mounts(&self) -> Result<&[Mount], String> {
        self.mounts.get_or_init(mounts).as_deref().map_err(Clone::clone)
    }

    pub(super) fn interfaces(&self) -> Result<&BTreeMap<String, Interface>, String> {
        self.interfaces.get_or_init(|| interface::list(self.limit)).as_ref().map_err(Clone::clone)
    }

    pub(super) fn packages(&self) -> Result<&Packages, String> {
        self.packages.get_or_init(|| package::list(self.limit)).as_ref().map_err(Clone::clone)
    }

    /// The sockets of systemd.
    pub(super) fn systemd(&self) -> &SystemdSockets {
        &self.systemd
    }

    /// The CA certificates that this machine trusts.
    pub(super) fn roots(&self) -> Result<Arc<Vec<Certificate<'static>>>, String> {
        self.roots.get_or_init(remoor_host::web::roots).clone()
    }

    /// Determines whether the servers of network filesystems respond; each server is probed once
    /// per run. If the mount table could not be read, no server is known, and `mounts` reports the
    /// error.
    pub(super) fn servers(&self) -> &Servers {
        self.servers.get_or_init(|| Servers::from_mounts(self.mounts().unwrap_or_default().to_vec()))
    }
}
