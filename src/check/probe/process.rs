//! `process`: whether a program of that name runs. The kernel keeps 15 characters of a name; the rest is found in the program's path.

use super::{Answers, Ask, unknown};
use std::fs;
use std::path::Path;

/// Longest name that the kernel keeps.
const COMM: usize = 15;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Process {
    comm: String,
    /// File names of the executable and of its first argument.
    full: Vec<String>,
}

impl Process {
    fn is_called(&self, name: &str) -> bool {
        if name.len() <= COMM {
            return self.comm == name;
        }
        name.as_bytes().starts_with(self.comm.as_bytes())
            && self.comm.len() == COMM
            && self.full.iter().any(|full| full == name)
    }
}

pub(super) fn ask(ask: &Ask) -> Answers {
    let running = match ask.world.processes() {
        Ok(processes) => Ok(processes.iter().any(|process| process.is_called(&ask.check.name)).into()),
        Err(why) => Err(unknown(why)),
    };
    Answers::from([("running", running)])
}

/// All processes but those that have ended and were not yet waited for.
pub(super) fn list() -> Result<Vec<Process>, String> {
    let entries = fs::read_dir("/proc").map_err(|e| format!("/proc: {e}"))?;
    let numbered =
        entries.flatten().filter(|entry| entry.file_name().to_string_lossy().bytes().all(|b| b.is_ascii_digit()));
    Ok(numbered.filter_map(|entry| read(&entry.path())).collect())
}

/// None: it is gone.
fn read(dir: &Path) -> Option<Process> {
    let stat = fs::read(dir.join("stat")).ok()?;
    let stat = String::from_utf8_lossy(&stat);
    // The name stands in parentheses and may hold any character, parentheses too.
    let (start, end) = (stat.find('(')?, stat.rfind(')')?);
    let comm = stat.get(start + 1..end)?.to_owned();
    let state = stat.get(end + 1..)?.trim_start().chars().next()?;
    if matches!(state, 'Z' | 'X') {
        return None;
    }
    let mut full = Vec::new();
    if comm.len() >= COMM {
        let base =
            |path: &Path| path.file_name().map(|name| name.to_string_lossy().trim_end_matches(" (deleted)").to_owned());
        full.extend(fs::read_link(dir.join("exe")).ok().and_then(|exe| base(&exe)));
        let line = fs::read(dir.join("cmdline")).unwrap_or_default();
        let first = line.split(|byte| *byte == 0).next().unwrap_or_default();
        full.extend(base(Path::new(&*String::from_utf8_lossy(first))));
    }
    Some(Process { comm, full })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_are_compared_in_full() {
        let process = |comm: &str, full: &str| Process { comm: comm.into(), full: vec![full.into()] };
        let long = process("node-exporter-v", "node-exporter-v2-linux");
        assert!(long.is_called("node-exporter-v2-linux"));
        assert!(!long.is_called("node-exporter-v3-linux"));
        assert!(long.is_called("node-exporter-v"), "as in goss");
        assert!(!process("node", "node-exporter-v2-linux").is_called("node-exporter-v2-linux"));
        assert!(process("sshd", "").is_called("sshd"));
        assert!(!process("sshd", "").is_called("ssh"));
    }
}
