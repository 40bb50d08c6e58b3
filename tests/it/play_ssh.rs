//! `remoor play` over SSH, to a separate sshd on loopback: logins and round trips, upload, sudo,
//! host keys, and the end of a run whose connection or caller has ended.

use crate::local::{LONG, remoor};
use crate::time_limit::{BoundedChild, BoundedCommand};
use remoor_exec::ssh::testing::TestSshd;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// An sshd with the hosts `h1` to `h3`. All are this machine, each with separate state.
pub struct Server {
    sshd: TestSshd,
}

impl Server {
    /// Starts the sshd. None: no sshd can run, and the reason was printed on stderr.
    pub fn start() -> Option<Self> {
        let own_programs = |dir: &Path| format!("SetEnv PATH={}/bin:/usr/sbin:/usr/bin:/sbin:/bin\n", dir.display());
        let server = Self { sshd: TestSshd::start_with(own_programs)? };
        fs::create_dir(server.path("bin")).expect("a directory");
        server.configure();
        Some(server)
    }

    fn configure(&self) {
        let (dir, port, me) = (self.dir(), self.sshd.port(), self.sshd.user());
        let dir = dir.display();
        let text = format!(
            "Host *\n  HostName 127.0.0.1\n  Port {port}\n  User {me}\n  IdentityFile {dir}/user\n  IdentitiesOnly yes\n  \
             UserKnownHostsFile {dir}/known\n"
        );
        self.write("ssh_config", &text);
        let key = self.sshd.read("host.pub");
        self.write("known", &format!("[127.0.0.1]:{port} {key}"));
        let hosts: String = (1..=3).map(|i| format!("h{i} remoor_state_dir={dir}/s{i}\n")).collect();
        self.write("hosts", &hosts);
    }

    pub fn dir(&self) -> &Path {
        self.sshd.dir()
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.sshd.path(name)
    }

    pub fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).expect(name);
    }

    /// Writes a program that the hosts find before the system's program of the same name.
    pub fn program(&self, name: &str, text: &str) {
        let path = self.path("bin").join(name);
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).expect(name);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect(name);
    }

    fn command(&self, tasks: &str, args: &[&str]) -> Command {
        self.command_for(&format!("- hosts: all\n  tasks: [{tasks}]\n"), args)
    }

    pub fn command_for(&self, playbook: &str, args: &[&str]) -> Command {
        self.write("site.yml", playbook);
        let mut command = remoor();
        command.current_dir(self.dir()).args(["play", "site.yml", "-i", "hosts", "--ssh-config", "ssh_config"]);
        command.args(["-e", &format!("dir={}", self.dir().display())]).args(args);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn play(&self, tasks: &str, args: &[&str]) -> (Option<i32>, String) {
        run_to_end(&mut self.command(tasks, args))
    }

    /// Runs two plays while the host `lost` can't be reached. The first play has the keys `keys`
    /// and the task `task`. Returns the hosts that ran a task in each play, in order of their
    /// names.
    fn plays(&self, keys: &str, task: &str, lost: &str) -> (Option<i32>, String, [String; 2]) {
        // Nothing listens at this port, because it was free and is not bound again. So the host
        // `lost` can't be reached there.
        let free = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address").port();
        let hosts = fs::read_to_string(self.path("hosts")).expect("hosts");
        self.write("hosts", &hosts.replace(&format!("{lost} "), &format!("{lost} ansible_port={free} ")));
        let did = |play: u8| format!("{{shell: 'echo {{{{ inventory_hostname }}}} >> {{{{ dir }}}}/did{play}'}}");
        let (first, second) = (did(1), did(2));
        let playbook = format!("- hosts: all\n  {keys}\n  tasks: [{task}{first}]\n- hosts: all\n  tasks: [{second}]\n");
        let (code, text) = run_to_end(&mut self.command_for(&playbook, &[]));
        self.write("hosts", &hosts);
        let done = [1, 2].map(|play| {
            let path = self.path(&format!("did{play}"));
            let text = fs::read_to_string(&path).unwrap_or_default();
            let _there_or_not = fs::remove_file(path);
            let mut hosts: Vec<&str> = text.lines().collect();
            hosts.sort_unstable();
            hosts.join(" ")
        });
        (code, text, done)
    }

    /// The numbers of logins and of commands so far.
    pub fn counts(&self) -> (usize, usize) {
        (self.sshd.logins(), self.sshd.commands())
    }

    /// The process id of the sshd that accepts connections.
    pub fn pid(&self) -> u32 {
        self.sshd.pid()
    }

    fn wait_until(&self, what: &str, holds: impl Fn() -> bool) {
        let deadline = Instant::now() + LONG;
        while !holds() {
            let log = fs::read_to_string(self.path("log")).unwrap_or_default();
            assert!(Instant::now() < deadline, "timeout while waiting for {what}: {log}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn count_lines(&self) -> usize {
        fs::read_to_string(self.path("many")).unwrap_or_default().lines().count()
    }

    pub fn audit(&self, state: &str) -> String {
        fs::read_to_string(self.path(state).join("runs.log")).unwrap_or_default()
    }
}

pub fn run_to_end(command: &mut Command) -> (Option<i32>, String) {
    let Output { status, stdout, stderr } = command.bounded_output();
    (status.code(), String::from_utf8_lossy(&stdout).into_owned() + &String::from_utf8_lossy(&stderr))
}

/// The running processes that `pid` started.
fn children(pid: u32) -> Vec<i32> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    text.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

const TOUCH: &str = "{shell: 'echo {{ inventory_hostname }} >> {{ dir }}/ran'}";

#[test]
fn one_login_and_one_command_per_host_once_the_program_is_uploaded() {
    let Some(server) = Server::start() else { return };
    let (code, text) = server.play(TOUCH, &["-l", "h1"]);
    assert_eq!(code, Some(0), "{text}");
    // The four commands over SSH are the failed start of the program, the query for the system's
    // name, the upload of the program, and the run.
    assert_eq!(server.counts(), (1, 4), "{text}");
    let (code, text) = server.play(&format!("{TOUCH}, {TOUCH}, {TOUCH}"), &["-l", "h1"]);
    assert_eq!((code, server.counts()), (Some(0), (2, 5)), "{text}");
    let bin = server.path("s1/bin");
    let uploaded = fs::read_dir(&bin).expect("bin").next().expect("one").expect("an entry").path();
    assert_eq!(fs::metadata(&bin).expect("bin").permissions().mode() & 0o777, 0o755);

    // A file with the program's name is replaced if it is another file, damaged, or of another
    // version.
    fs::remove_file(&uploaded).expect("removed");
    fs::write(&uploaded, "#!/bin/sh\nexit 0\n").expect("written");
    fs::set_permissions(&uploaded, fs::Permissions::from_mode(0o755)).expect("a mode");
    let (code, text) = server.play(TOUCH, &["-l", "h1"]);
    assert_eq!(code, Some(0), "{text}");
    assert!(fs::metadata(&uploaded).expect("a file").len() > 1 << 20);
    assert_eq!(fs::read_to_string(server.path("ran")).expect("ran"), "h1\n".repeat(5));
}

#[test]
fn an_unreachable_host_is_3_and_the_others_continue() {
    let Some(server) = Server::start() else { return };
    server.write("known", "");
    let (code, text) = server.play(TOUCH, &["-l", "h1"]);
    assert!(code == Some(3) && text.contains("h1  UNREACHABLE: its host key is not in known_hosts"), "{text}");
    assert!(text.contains("unreachable=1"), "{text}");
    assert_eq!(server.counts().0, 0, "no login");
    let (port, stranger) = (server.sshd.port(), server.sshd.read("user.pub"));
    server.write("known", &format!("[127.0.0.1]:{port} {stranger}"));
    let (code, text) = server.play(TOUCH, &["-l", "h1"]);
    assert!(code == Some(3) && text.contains(") differs from the one in known_hosts"), "{text}");
    let key = server.sshd.read("host.pub");
    server.write("known", &format!("[127.0.0.1]:{port} {key}"));
    let free = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address").port();
    let hosts = fs::read_to_string(server.path("hosts")).expect("hosts");
    server.write("hosts", &hosts.replace("h2 ", &format!("h2 ansible_port={free} ")));
    let (code, text) = server.play(TOUCH, &["-l", "h1,h2"]);
    assert!(
        code == Some(3) && text.contains("h2  UNREACHABLE: ") && text.contains("h1                         : ok=1"),
        "{text}"
    );
    assert_eq!(fs::read_to_string(server.path("ran")).expect("ran"), "h1\n");
}

#[test]
fn with_any_errors_fatal_an_unreachable_host_ends_the_play_for_all() {
    let Some(server) = Server::start() else { return };
    let (code, text, done) = server.plays("any_errors_fatal: true\n  serial: 1", "", "h1");
    assert_eq!((code, done.each_ref().map(String::as_str)), (Some(3), ["", ""]), "{text}");
    assert!(text.contains("any_errors_fatal"), "{text}");
    // h2 can't be reached. h1, in an earlier batch, has completed the first play, but no host
    // begins the second play.
    let (code, text, done) = server.plays("any_errors_fatal: true\n  serial: 1", "", "h2");
    assert_eq!((code, done.each_ref().map(String::as_str)), (Some(3), ["h1", ""]), "{text}");
}

#[test]
fn max_fail_percentage_counts_failed_hosts_and_not_unreachable_ones() {
    let Some(server) = Server::start() else { return };
    let fails = "{command: 'false', when: inventory_hostname == 'h1'}, ";
    let (code, text, done) = server.plays("max_fail_percentage: 40", fails, "h2");
    assert_eq!((code, done.each_ref().map(String::as_str)), (Some(5), ["h3", "h3"]), "{text}");
    let (code, text, done) = server.plays("max_fail_percentage: 30", fails, "h2");
    assert_eq!((code, done[1].as_str()), (Some(5), ""), "{text}");
    assert!(text.contains("1 of 3 hosts failed, the maximum is 30 % (max_fail_percentage)"), "{text}");
}

#[test]
fn with_ignore_unreachable_an_unreachable_host_is_not_an_error() {
    let Some(server) = Server::start() else { return };
    let (code, text, done) = server.plays("ignore_unreachable: true\n  any_errors_fatal: true", "", "h2");
    assert_eq!((code, done.each_ref().map(String::as_str)), (Some(0), ["h1 h3", "h1 h3"]), "{text}");
}

#[test]
fn sudo_is_tried_once_and_a_password_prompt_is_reported() {
    let Some(server) = Server::start() else { return };
    server.program("id", "echo 1000");
    server.program("sudo", &format!("echo \"$1 $2\" >> {}/asked; shift 2; exec \"$@\"", server.dir().display()));
    let (code, text) = server.play(TOUCH, &["-l", "h1", "--become"]);
    assert_eq!(code, Some(0), "{text}");
    fs::remove_file(server.path("asked")).expect("sudo was asked");
    let (code, text) = server.play(&format!("{TOUCH}, {TOUCH}"), &["-l", "h1", "--become"]);
    assert_eq!(code, Some(0), "{text}");
    assert_eq!(fs::read_to_string(server.path("asked")).expect("asked"), "-n --\n");
    server.program("sudo", "echo 'sudo: a password is required' >&2; exit 1");
    let (code, text) = server.play(TOUCH, &["-l", "h1", "--become"]);
    assert!(code == Some(3) && text.contains("a password is required") && text.contains("NOPASSWD"), "{text}");
    // A task that does not need root runs as the login user.
    assert_eq!(server.play(TOUCH, &["-l", "h1"]).0, Some(0));
    let mixed = "{command: 'true', become: true}, {copy: {content: x, dest: '{{ dir }}/of-login'}}";
    // The login user must be able to write to the directory.
    fs::set_permissions(server.dir(), fs::Permissions::from_mode(0o1777)).expect("a mode");
    server.program("sudo", "shift 2; SUDO_UID=65534 exec \"$@\"");
    let (code, text) = server.play(mixed, &["-l", "h1"]);
    assert_eq!(code, Some(0), "{text}");
    let owner = fs::metadata(server.path("of-login")).expect("a file").uid();
    let own = rustix::process::geteuid().as_raw();
    assert_eq!(owner, if own == 0 { 65534 } else { own }, "a task without `become` acts as the login user");
}

/// One task that runs until the file `go` exists, then many tasks. A few of these tasks can start
/// before the loss of the connection is noticed.
const LONG_TASK: &str = "{shell: 'echo x > {{ dir }}/begun; while [ ! -e {{ dir }}/go ]; do sleep 0.05; done; \
                         echo x > {{ dir }}/done'}, {shell: 'echo y >> {{ dir }}/many', loop: '{{ range(2000) | list }}'}";

#[test]
fn a_host_lost_during_a_task_is_unknown_and_finishes_only_that_task() {
    let Some(server) = Server::start() else { return };
    let child = server.command(LONG_TASK, &["-l", "h1"]).spawn().expect("remoor runs");
    server.wait_until("the task", || server.path("begun").exists());
    for pid in children(server.sshd.pid()) {
        kill_process(Pid::from_raw(pid).expect("a process"), Signal::KILL).expect("the connection");
    }
    let Output { status, stdout, .. } = child.bounded_output();
    let text = String::from_utf8_lossy(&stdout);
    assert!(status.code() == Some(5) && text.contains("h1  UNKNOWN: "), "{text}");
    assert!(text.contains("the connection to the host ended; the run there ends after its task"), "{text}");
    server.write("go", "");
    server.wait_until("the run ends on the host", || server.audit("s1").ends_with(" stopped\n"));
    assert!(server.path("done").exists() && server.count_lines() < 2000);
}

#[test]
fn a_killed_executor_is_distinguished_from_a_lost_connection() {
    let Some(server) = Server::start() else { return };
    // The shell of the task is a child of the executor.
    let (code, text) = server.play("{shell: 'kill -9 $PPID; sleep 5'}", &["-l", "h1"]);
    assert!(code == Some(5) && text.contains("h1  UNKNOWN: the executor ended: killed by a signal"), "{text}");
    assert!(text.contains("kernel log") && !text.contains("the connection"), "{text}");
}

#[test]
fn a_run_ends_on_the_host_when_its_caller_is_gone_and_the_next_run_removes_its_sockets() {
    let Some(server) = Server::start() else { return };
    fs::create_dir(server.path("run")).expect("a directory");
    let sockets = || fs::read_dir(server.path("run")).expect("a directory").count();
    let play = |tasks: &str| {
        let mut command = server.command(tasks, &["-l", "h1"]);
        command.env("XDG_RUNTIME_DIR", server.path("run"));
        command
    };
    let mut child = play(LONG_TASK).spawn().expect("remoor runs");
    server.wait_until("the task", || server.path("begun").exists());
    child.kill().expect("it runs");
    child.wait().expect("an exit");
    server.write("go", "");
    server.wait_until("the run ends on the host", || server.audit("s1").ends_with(" stopped\n"));
    assert!(server.path("done").exists() && server.count_lines() < 2000);
    assert_eq!(sockets(), 1, "no process was left to remove it");
    let (code, text) = run_to_end(&mut play(TOUCH));
    assert_eq!((code, sockets()), (Some(0), 0), "{text}");
}
