//! `process`: whether a program with a given name runs, and how many times. The kernel keeps 15
//! characters of a program's name; the full name is read from its path.

use super::super::go_regex::{GoRegex, go_regex};
use super::{ProbeAnswers, ProbeContext, unknown_error};
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Maximum length of a name that the kernel keeps.
const COMM: usize = 15;
/// Maximum number of bytes read of a command line.
const MAX_ARGS: u64 = 1 << 16;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Process {
    comm: String,
    /// File names of the executable and of the first word of the command line; empty if `comm` is
    /// short enough to be the full name.
    full: Vec<String>,
    details: Option<Details>,
}

/// Details that are read only if a check needs them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Details {
    uid: u32,
    /// The arguments, separated by spaces.
    args: String,
}

/// Selects among the processes of one name, by the settings in `meta.remoor`.
struct ProcessFilter<'a> {
    /// A user name or uid.
    user: Option<&'a str>,
    args: Option<Args<'a>>,
}

/// A substring of the command line, or `/regular expression/` as in line patterns.
enum Args<'a> {
    Part(&'a str),
    Matching(GoRegex),
}

impl<'a> Args<'a> {
    fn parse(text: &'a str) -> Result<Self, String> {
        match text.strip_prefix('/').and_then(|rest| rest.strip_suffix('/')) {
            Some(regex) => go_regex(regex).map(Args::Matching),
            None => Ok(Args::Part(text)),
        }
    }
}

impl ProcessFilter<'_> {
    /// Whether the process is selected. `owner` maps a uid to a user name.
    fn takes(&self, process: &Process, owner: impl Fn(u32) -> String) -> bool {
        let Some(details) = &process.details else { return self.user.is_none() && self.args.is_none() };
        let by = |user: &str| owner(details.uid) == user || details.uid.to_string() == user;
        let with = |args: &Args| match args {
            Args::Part(part) => details.args.contains(part),
            Args::Matching(regex) => regex.is_match(&details.args),
        };
        self.user.is_none_or(by) && self.args.as_ref().is_none_or(with)
    }
}

impl Process {
    fn is_called(&self, name: &str) -> bool {
        // Kernel threads may have longer names, which are compared in full.
        if self.comm == name || name.len() <= COMM {
            return self.comm == name;
        }
        name.as_bytes().starts_with(self.comm.as_bytes())
            && self.comm.len() == COMM
            && self.full.iter().any(|full| full == name)
    }
}

/// Err: the reason why `args` is not valid.
pub(super) fn validate(args: Option<&str>) -> Result<(), String> {
    match args {
        Some("") => Err("`args` is empty".to_owned()),
        Some(args) => {
            Args::parse(args).map(drop).map_err(|why| format!("`args`: not a valid regular expression: {why}"))
        }
        None => Ok(()),
    }
}

pub(super) fn ask(ask: &ProbeContext) -> ProbeAnswers {
    let found = || {
        let choice =
            ProcessFilter { user: ask.argument("user"), args: ask.argument("args").map(Args::parse).transpose()? };
        let processes = ask.world.processes()?;
        let meant = processes.iter().filter(|process| {
            process.is_called(&ask.check.name) && choice.takes(process, |uid| ask.world.names().owner(uid))
        });
        Ok(meant.count())
    };
    match found() {
        Ok(count) => ProbeAnswers::from([("running", Ok((count > 0).into())), ("count", Ok(count.into()))]),
        Err(why) => ["running", "count"].map(|property| (property, Err(unknown_error(String::clone(&why))))).into(),
    }
}

/// All processes except zombies. With `details`, includes user and command line.
pub(super) fn list(details: bool) -> Result<Vec<Process>, String> {
    let entries = fs::read_dir("/proc").map_err(|e| format!("/proc: {e}"))?;
    let numbered =
        entries.flatten().filter(|entry| entry.file_name().to_string_lossy().bytes().all(|b| b.is_ascii_digit()));
    Ok(numbered.filter_map(|entry| read(&entry.path(), details)).collect())
}

/// Reads one process. None if it has ended.
fn read(dir: &Path, details: bool) -> Option<Process> {
    let stat = fs::read(dir.join("stat")).ok()?;
    let stat = String::from_utf8_lossy(&stat);
    // The name is in parentheses and may contain any character, including parentheses.
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
        let line = command_line(dir);
        let first = line.split(|byte| *byte == 0).next().unwrap_or_default();
        full.extend(base(Path::new(&*String::from_utf8_lossy(first))));
    }
    let details = if details {
        let args = String::from_utf8_lossy(&command_line(dir)).trim_end_matches('\0').replace('\0', " ");
        Some(Details { uid: fs::metadata(dir).ok()?.uid(), args })
    } else {
        None
    };
    Some(Process { comm, full, details })
}

/// The command line; empty if the process has none or has ended.
fn command_line(dir: &Path) -> Vec<u8> {
    let mut line = Vec::new();
    // Bytes that were read before an error are used.
    let _ = File::open(dir.join("cmdline")).and_then(|file| file.take(MAX_ARGS).read_to_end(&mut line));
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_are_compared_in_full() {
        let process = |comm: &str, full: &str| Process { comm: comm.into(), full: vec![full.into()], details: None };
        let long = process("node-exporter-v", "node-exporter-v2-linux");
        assert!(long.is_called("node-exporter-v2-linux"));
        assert!(!long.is_called("node-exporter-v3-linux"));
        assert!(long.is_called("node-exporter-v"), "as in goss");
        assert!(!process("node", "node-exporter-v2-linux").is_called("node-exporter-v2-linux"));
        assert!(process("sshd", "").is_called("sshd"));
        assert!(!process("sshd", "").is_called("ssh"));
        let kernels = process("kworker/0:0H-events_highpri", "");
        assert!(
            kernels.is_called("kworker/0:0H-events_highpri") && !kernels.is_called("kworker/0:0H-ev"),
            "as in goss"
        );
    }

    #[test]
    fn user_and_arguments_choose() {
        let details = Some(Details { uid: 33, args: "java -Xmx1g kafka.Kafka server.properties".into() });
        let process = Process { comm: "java".into(), full: Vec::new(), details };
        let takes = |user: Option<&'static str>, args: Option<&'static str>| {
            let choice = ProcessFilter { user, args: args.map(|args| Args::parse(args).unwrap()) };
            choice.takes(&process, |uid| if uid == 33 { "www-data".to_owned() } else { format!("#{uid}") })
        };
        assert!(takes(None, None) && takes(Some("www-data"), None) && takes(Some("33"), Some("kafka.Kafka")));
        assert!(takes(None, Some("/-Xmx[0-9]g .*properties$/")) && !takes(None, Some("/^kafka/")));
        assert!(!takes(Some("root"), Some("kafka.Kafka")) && !takes(Some("www-data"), Some("zookeeper")));
        assert!(validate(Some("")).is_err() && validate(Some("/(/")).is_err() && validate(Some("(")).is_ok());
    }
}
