//! What all checks of one run share: each part is looked at once, when the first check asks for it.

use super::super::load::Check;
use super::super::spec::Kind;
use super::port::Socket;
use super::process::Process;
use super::service::{Unit, unit_name};
use super::{port, process, service};
use crate::files::Names;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;
use std::time::Duration;

/// One look at the machine. Err of a part: why it can't be had.
#[derive(Default)]
pub struct World {
    asked_units: BTreeSet<String>,
    limit: Duration,
    units: OnceLock<Result<BTreeMap<String, Unit>, String>>,
    sockets: OnceLock<Result<Vec<Socket>, String>>,
    processes: OnceLock<Result<Vec<Process>, String>>,
    names: OnceLock<Names>,
}

impl World {
    /// Looks at nothing yet. `checks`: whose units one call to systemd shall cover. `limit`: its longest wait.
    pub fn new<'a>(checks: impl IntoIterator<Item = &'a Check>, limit: Duration) -> Self {
        let services = checks.into_iter().filter(|check| check.kind == Kind::Service && !check.skip);
        Self { asked_units: services.map(|check| unit_name(&check.name)).collect(), limit, ..Self::default() }
    }

    pub(super) fn units(&self) -> Result<&BTreeMap<String, Unit>, String> {
        self.units.get_or_init(|| service::show(&self.asked_units, self.limit)).as_ref().map_err(Clone::clone)
    }

    pub(super) fn sockets(&self) -> Result<&[Socket], String> {
        self.sockets.get_or_init(port::sockets).as_deref().map_err(Clone::clone)
    }

    pub(super) fn processes(&self) -> Result<&[Process], String> {
        self.processes.get_or_init(process::list).as_deref().map_err(Clone::clone)
    }

    pub(super) fn names(&self) -> &Names {
        self.names.get_or_init(Names::load)
    }
}
