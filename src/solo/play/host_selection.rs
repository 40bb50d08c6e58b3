//! Selects the hosts of a run: the hosts of the inventory that match `--limit`, and from these the
//! hosts of each play.

use super::PlayRequest;
use super::host_variables::groups;
use remoor_config::Sources;
use remoor_model::Fault;
use remoor_playbook::{InventoryNames, LOCAL, PlayKeys};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;

/// Maximum size of a file for `--limit @FILE`, in bytes.
const LIMIT_FILE_MAX: u64 = 1 << 20;

/// The message for a name in `hosts` that the inventory does not have.
pub(super) const UNKNOWN_NAME: &str = "no host or group is called";

/// The names of the inventory's hosts and groups, restricted by `--limit`.
pub(super) struct HostSelection {
    pub hosts: InventoryNames,
}

/// The plays, each with its hosts; and the warnings about patterns that match nothing.
type Plays = (Vec<(PlayKeys, Vec<String>)>, Vec<Fault>);

impl HostSelection {
    pub fn new(request: &PlayRequest, sources: &Sources) -> Result<Self, Vec<Fault>> {
        let mut hosts = InventoryNames { hosts: sources.order.clone(), groups: groups(sources), limit: None };
        hosts.groups.remove("all");
        if request.limit.is_empty() {
            return Ok(Self { hosts });
        }
        let one = |message: String| vec![Fault::error("--limit", 0, 0, message)];
        let mut patterns = Vec::new();
        for text in &request.limit {
            match text.strip_prefix('@') {
                Some(file) => patterns.extend(lines(file).map_err(|why| vec![Fault::error(file, 0, 0, why)])?),
                None => patterns.push(text.clone()),
            }
        }
        let left = hosts.select(&patterns).map_err(one)?;
        if let Some(unknown) = left.unknown.first() {
            let groups = hosts.groups.keys().cloned().collect::<Vec<_>>().join(", ");
            let fault = Fault::error("--limit", 0, 0, format!("no host or group is called `{unknown}`"));
            return Err(vec![fault.hint(format!("the inventory's groups: {groups}"))]);
        }
        if left.hosts.is_empty() {
            return Err(one("no host of the inventory is left".to_owned()));
        }
        hosts.limit = Some(left.hosts.into_iter().collect());
        Ok(Self { hosts })
    }

    /// Each play with its hosts. The list of hosts may be empty.
    pub fn plays(&self, keys: Vec<PlayKeys>) -> Result<Plays, Vec<Fault>> {
        let (mut plays, mut warnings, mut faults) = (Vec::new(), Vec::new(), Vec::new());
        for play in keys {
            let place = &play.place;
            match self.hosts.select(&play.hosts) {
                Err(why) => faults.push(Fault::error(&place.file, place.line, 1, format!("`hosts`: {why}"))),
                Ok(selected) => {
                    for pattern in selected.unknown {
                        let message = format!("`hosts`: {UNKNOWN_NAME} `{pattern}`");
                        warnings.push(Fault::warn(&place.file, place.line, 1, message));
                    }
                    plays.push((play, selected.hosts));
                }
            }
        }
        if faults.is_empty() { Ok((plays, warnings)) } else { Err(faults) }
    }

    /// All hosts of these plays, in the order of the inventory. If the inventory does not contain
    /// this machine, this machine comes last.
    pub fn hosts_of_plays(&self, plays: &[(PlayKeys, Vec<String>)]) -> Vec<String> {
        let mut left: BTreeSet<&String> = plays.iter().flat_map(|(_, hosts)| hosts).collect();
        let mut out: Vec<String> = self.hosts.hosts.iter().filter(|host| left.remove(host)).cloned().collect();
        out.extend(LOCAL.iter().filter(|name| left.iter().any(|host| host == *name)).map(|name| (*name).to_owned()));
        out
    }
}

/// The patterns of a file, one per line.
fn lines(file: &str) -> Result<Vec<String>, String> {
    let mut text = String::new();
    let read = File::open(file).and_then(|f| f.take(LIMIT_FILE_MAX + 1).read_to_string(&mut text));
    read.map_err(|e| format!("can't be read: {e}"))?;
    if text.len() as u64 > LIMIT_FILE_MAX {
        return Err("is larger than 1 MiB".to_owned());
    }
    Ok(text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect())
}
