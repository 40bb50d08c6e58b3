//! The tasks `synchronize` of which rsync runs on this machine, or on another host, and connects to
//! the host that has requested the task.

use super::connection::{ConnectionFinder, HostConnection};
use super::lookups::{MadeFiles, Search};
use super::sent_files;
use remoor_model::Fault;
use remoor_playbook::{DelegatedTask, RsyncRoute, RsyncTransfer};
use std::path::Path;

/// The two machines of a transfer.
pub(super) struct RsyncEnds<'s> {
    /// The host that has requested the task.
    pub host: &'s str,
    /// The control socket of its login.
    pub login: Option<&'s Path>,
    pub connections: &'s ConnectionFinder,
}

/// A route, and whether rsync runs on this machine.
#[derive(Debug)]
pub(super) struct FoundRoute {
    route: RsyncRoute,
    here: bool,
}

impl RsyncEnds<'_> {
    /// How rsync on the host `runner` reaches the host of the task.
    pub fn find_route(&self, runner: &str) -> Result<FoundRoute, String> {
        let first = |faults: Vec<Fault>| faults.first().map(|fault| fault.message.clone()).unwrap_or_default();
        let (of_host, _) = self.connections.connection_of_plays(self.host, false).map_err(first)?;
        let (of_runner, _) = self.connections.connection_to(runner, false).map_err(first)?;
        let here = matches!(of_runner, HostConnection::Local { .. });
        let route = match of_host {
            HostConnection::Local { .. } if here => RsyncRoute::Here,
            HostConnection::Local { .. } => {
                return Err("rsync there cannot log in to the machine that runs `remoor play`".to_owned());
            }
            HostConnection::Ssh(target) if here => {
                let socket = self.login.ok_or("the session with the host has no login")?.to_owned();
                RsyncRoute::Login { socket, host: target.host, user: target.user }
            }
            HostConnection::Ssh(target) => RsyncRoute::Ssh { host: target.host, port: target.port, user: target.user },
        };
        Ok(FoundRoute { route, here })
    }
}

/// Completes the plan of the task. `root` is the directory of all files and of the playbook.
/// The host may choose a path in a directory that `tempfile` has made.
pub(super) fn connect(
    mut transfer: RsyncTransfer,
    found: &FoundRoute,
    task: &mut DelegatedTask,
    (root, playbook): (&Path, &str),
    made: &MadeFiles,
) -> Result<(), String> {
    if found.route != RsyncRoute::Here {
        let is_made = |path: &Path| path.is_absolute() && path.canonicalize().is_ok_and(|path| made.contains(&path));
        transfer.check_origin(|path| !found.here || is_made(path))?;
    }
    if found.here {
        let path = find_local_path(transfer.local_path(), &transfer.file, (root, playbook));
        transfer.set_local_path(path);
    }
    transfer.connect(&mut task.plan, &found.route)
}

/// The absolute path that a task means: an existing file or directory near its file, or one below
/// the directory of the playbook.
fn find_local_path(name: &str, file: &str, (root, playbook): (&Path, &str)) -> String {
    if name.is_empty() || name.starts_with(['/', '~']) || name.contains(':') {
        return name.to_owned();
    }
    let dirs = sent_files::places(root, file, playbook);
    let search = Search { dirs: &dirs, root, by_host: false, made: &MadeFiles::default() };
    let base = root.join(playbook).parent().unwrap_or(root).to_owned();
    let path = search.find_any("files", name).unwrap_or_else(|| base.join(name)).display().to_string();
    if name.ends_with('/') && !path.ends_with('/') { format!("{path}/") } else { path }
}
