//! Facts about the machine itself: for `Hello`, and for the part of an examination that is neither
//! digest nor checks.

use super::program;
use super::wire::{Hello, PROTO};
use remoor_host::systemd::{BusDeadline, BusError, SystemdManager, SystemdSockets};
use remoor_model::{AgentRecord, BootId, Exam, Sha256};
use sha2::Digest;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

const RECORD: &str = "agent.json";
const SYSTEMCTL_MAX: Duration = Duration::from_secs(3);

/// Returns the parts of an examination that do not depend on the manifest: boot, uptime, system
/// state, the agent's record (`agent.json` in `state_dir`) and whether an agent runs. A value that
/// cannot be read keeps its default.
pub fn host_part(state_dir: &Path) -> Exam {
    Exam {
        boot: BootId(line_of("/proc/sys/kernel/random/boot_id")),
        machine_id: line_of("/etc/machine-id"),
        uptime_ms: uptime_ms(&line_of("/proc/uptime")),
        system_state: system_state(&SystemdSockets::default(), Path::new("systemctl")),
        agent: agent_record(state_dir).unwrap_or_default(),
        damaged: damaged_files(state_dir),
        agent_running: agent_running(state_dir),
        busy: super::lock::running_attempt(state_dir),
        ..Exam::default()
    }
}

/// The first message of the executor. Reads the executor's own binary once to compute its hash.
pub(super) fn hello() -> Hello {
    let uname = rustix::system::uname();
    Hello {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        proto: PROTO,
        exe_sha256: hash_file(Path::new("/proc/self/exe")).unwrap_or_default(),
        arch: uname.machine().to_string_lossy().into_owned(),
        uid: rustix::process::geteuid().as_raw(),
        boot_id: line_of("/proc/sys/kernel/random/boot_id"),
        machine_id: line_of("/etc/machine-id"),
        hostname: uname.nodename().to_string_lossy().into_owned(),
    }
}

fn hash_file(path: &Path) -> io::Result<Sha256> {
    let mut file = File::open(path)?;
    let mut hasher = sha2::Sha256::new();
    let mut buffer = vec![0; 256 * 1024];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(Sha256(hasher.finalize().into())),
            n => hasher.update(&buffer[..n]),
        }
    }
}

fn line_of(path: &str) -> String {
    fs::read_to_string(path).map(|text| text.trim().to_owned()).unwrap_or_default()
}

/// Converts the first field of `/proc/uptime`, seconds with two decimals, to milliseconds.
fn uptime_ms(text: &str) -> u64 {
    let seconds: f64 = text.split_ascii_whitespace().next().and_then(|s| s.parse().ok()).unwrap_or(0.0);
    (seconds * 1000.0) as u64
}

/// The system state that systemd reports, for instance `running` or `degraded`. `systemctl` exits
/// non-zero for most states, so its exit code is ignored. None if systemd does not run.
fn system_state(sockets: &SystemdSockets, systemctl: &Path) -> Option<String> {
    let until = Some(Instant::now() + SYSTEMCTL_MAX);
    let patience = BusDeadline { until, answer: SYSTEMCTL_MAX, stop: Box::new(|| false) };
    let state = match SystemdManager::open(sockets, patience).and_then(|mut manager| manager.system_state()) {
        Ok(word) => word,
        Err(BusError::Absent) => {
            program::capture_output(Command::new(systemctl).arg("is-system-running"), SYSTEMCTL_MAX).ok()?.stdout
        }
        Err(_) => return None,
    };
    match state.trim() {
        "" | "offline" | "unknown" => None,
        word => Some(word.to_owned()),
    }
}

/// Reads `agent.json`. Ok(None): the file does not exist. Err: it exists and cannot be read.
fn agent_record(state_dir: &Path) -> Result<Option<AgentRecord>, ()> {
    match fs::read(state_dir.join(RECORD)) {
        Ok(bytes) => serde_json::from_slice(&bytes).map(Some).map_err(drop),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(_) => Err(()),
    }
}

/// Names of damaged files: those that the daemon renamed to `.damaged`, and `agent.json` if it
/// cannot be read. A new `agent.json` is written when an agent starts.
fn damaged_files(state_dir: &Path) -> Vec<String> {
    let record = agent_record(state_dir).is_err().then(|| RECORD.to_owned());
    record.into_iter().chain(remoor_host::disk::damaged_files(state_dir)).collect()
}

/// Whether an agent runs. The daemon writes its pid to the file `lock` of the state directory when
/// it starts. If that file does not exist, the process list is searched. This function does not try
/// to take the lock on the file, because that could keep a starting daemon from taking it.
fn agent_running(state_dir: &Path) -> bool {
    match fs::read_to_string(state_dir.join("lock")) {
        Ok(text) => text
            .trim()
            .parse::<u32>()
            .is_ok_and(|pid| fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| is_agent(&line))),
        Err(_) => agent_in_process_list(),
    }
}

fn agent_in_process_list() -> bool {
    let Ok(entries) = fs::read_dir("/proc") else { return false };
    entries.flatten().any(|entry| {
        let is_pid = entry.file_name().to_str().is_some_and(|name| name.bytes().all(|b| b.is_ascii_digit()));
        is_pid && fs::read(entry.path().join("cmdline")).is_ok_and(|line| is_agent(&line))
    })
}

/// Matches `remoor agent ...`, with any path and any content-addressed file name.
fn is_agent(cmdline: &[u8]) -> bool {
    let mut arguments = cmdline.split(|b| *b == 0).map(String::from_utf8_lossy);
    let program = arguments.next().unwrap_or_default();
    let name = program.rsplit('/').next().unwrap_or_default();
    (name == "remoor" || name.starts_with("remoor-"))
        && arguments.find(|argument| !argument.starts_with('-')).is_some_and(|verb| verb == "agent")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::CommandExt;

    #[test]
    fn facts_of_the_machine_are_reported() {
        let dir = tempfile::tempdir().unwrap();
        let exam = host_part(dir.path());
        assert_eq!(exam.boot.as_str().len(), 36);
        assert!(exam.uptime_ms > 0);
        assert_eq!(exam.agent, None);
        let hello = hello();
        assert_eq!(hello.proto, PROTO);
        assert_eq!(hello.exe_sha256, Sha256::digest(&fs::read("/proc/self/exe").unwrap()));
    }

    #[test]
    fn the_agents_record_is_read_and_a_broken_one_is_reported() {
        let dir = tempfile::tempdir().unwrap();
        let record = AgentRecord { isolation: 3, left: true, ..AgentRecord::default() };
        fs::write(dir.path().join("agent.json"), serde_json::to_vec(&record).unwrap()).unwrap();
        assert_eq!(host_part(dir.path()).agent, Some(record));
        assert!(host_part(dir.path()).damaged.is_empty());
        fs::write(dir.path().join("agent.json"), b"{").unwrap();
        assert_eq!(host_part(dir.path()).agent, None);
        assert_eq!(host_part(dir.path()).damaged, ["agent.json"]);
        fs::rename(dir.path().join("agent.json"), dir.path().join("agent.json.damaged")).unwrap();
        assert_eq!(host_part(dir.path()).damaged, ["agent.json.damaged"]);
    }

    #[test]
    fn the_pid_in_the_lock_file_shows_whether_the_agent_runs() {
        let dir = tempfile::tempdir().unwrap();
        let lock = dir.path().join("lock");
        fs::write(&lock, "").unwrap();
        assert!(!agent_running(dir.path()));
        fs::write(&lock, format!("{}\n", std::process::id())).unwrap();
        assert!(!agent_running(dir.path()), "this is no agent");
        fs::write(dir.path().join("agent"), "read line").unwrap();
        let mut shell = Command::new("sh");
        shell.arg0("remoor").arg("agent").current_dir(dir.path()).stdin(std::process::Stdio::piped());
        let mut agent = shell.spawn().unwrap();
        fs::write(&lock, format!("{}\n", agent.id())).unwrap();
        // A process that has just started has no command line yet.
        let deadline = Instant::now() + Duration::from_secs(120);
        while !agent_running(dir.path()) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
        }
        let running = agent_running(dir.path());
        drop(agent.stdin.take());
        agent.wait().unwrap();
        assert!(running);
        assert!(!agent_running(dir.path()));
    }

    #[test]
    fn agents_are_recognised_by_their_command_line() {
        for (line, expected) in [
            (&b"/usr/bin/remoor\0agent\0"[..], true),
            (b"/var/lib/remoor/bin/remoor-00ff\0agent\0", true),
            (b"remoor\0-v\0agent\0", true),
            (b"/usr/bin/remoor\0status\0agent\0", false),
            (b"vim\0agent\0", false),
            (b"remoorish\0agent\0", false),
            (b"", false),
        ] {
            assert_eq!(is_agent(line), expected, "{}", String::from_utf8_lossy(line));
        }
    }

    #[test]
    fn the_system_state_is_reported_by_systemd() {
        let dir = tempfile::tempdir().unwrap();
        for (says, expected) in [("degraded", Some("degraded")), ("offline", None)] {
            let fake = program::script(dir.path(), "systemctl", &format!("#!/bin/sh\necho {says}\nexit 1\n"));
            assert_eq!(system_state(&SystemdSockets::in_runtime_dir(dir.path()), &fake).as_deref(), expected);
        }
        assert_eq!(
            system_state(&SystemdSockets::in_runtime_dir(dir.path()), Path::new("/nonexistent/systemctl")),
            None
        );
        assert_eq!(uptime_ms("12.34 50.1"), 12_340);
    }
}
