//! Runs real Ansible against a real sshd on loopback with its own host key: which keys are
//! accepted, and how an unreachable host is reported.

use super::tests::{a_play, ansible, fleet};
use super::*;
use std::fs;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

const SSHD: &str = "/usr/sbin/sshd";

struct Server {
    dir: TempDir,
    port: u16,
    sshd: Child,
}

impl Server {
    /// None if no sshd can run; the reason is printed on stderr.
    fn start() -> Option<Self> {
        if !Path::new(SSHD).exists() {
            eprintln!("SKIPPED: {SSHD} is missing, so Ansible was not tried over SSH (Debian: openssh-server)");
            return None;
        }
        if rustix::process::geteuid().is_root() && fs::create_dir_all("/run/sshd").is_err() {
            eprintln!("SKIPPED: /run/sshd can't be made, which sshd needs as root");
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        for key in ["host", "user", "stranger"] {
            let mut keygen = Command::new("ssh-keygen");
            let made = keygen.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(dir.path().join(key)).status();
            assert!(made.unwrap().success());
        }
        fs::copy(dir.path().join("user.pub"), dir.path().join("authorized")).unwrap();
        // Another process may take the port before sshd does. Then sshd ends and the next port is
        // tried.
        for _ in 0..5 {
            let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            let mut sshd = spawn(dir.path(), port);
            let deadline = Instant::now() + Duration::from_secs(60);
            while Instant::now() < deadline && sshd.try_wait().unwrap().is_none() {
                if std::net::TcpStream::connect(("127.0.0.1", port)).is_ok() {
                    return Some(Self { dir, port, sshd });
                }
                std::thread::yield_now();
            }
            let _ended = sshd.kill();
            let _reaped = sshd.wait();
        }
        panic!("sshd does not start: {}", fs::read_to_string(dir.path().join("log")).unwrap_or_default());
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.dir.path().join(name)).unwrap()
    }
}

fn spawn(dir: &Path, port: u16) -> Child {
    let path = dir.display();
    let config = format!(
        "Port {port}\nListenAddress 127.0.0.1\nHostKey {path}/host\nAuthorizedKeysFile {path}/authorized\nUsePAM no\n\
         StrictModes no\nPidFile none\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n\
         PermitRootLogin prohibit-password\nLogLevel VERBOSE\n"
    );
    fs::write(dir.join("config"), config).unwrap();
    let log = fs::File::create(dir.join("log")).unwrap();
    let mut command = Command::new(SSHD);
    command.args(["-D", "-e", "-f"]).arg(dir.join("config"));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().unwrap()
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ended = self.sshd.kill();
        let _reaped = self.sshd.wait();
    }
}

#[test]
fn real_ansible_enters_a_host_by_its_recorded_key_and_no_other() {
    let Some(program) = ansible() else { return };
    let Some(server) = Server::start() else { return };
    let user = Command::new("id").arg("-un").output().unwrap();
    let user = String::from_utf8(user.stdout).unwrap();
    let note = server.dir.path().join("note");
    let site = format!(
        "- hosts: web\n  gather_facts: false\n  tasks:\n    - name: note\n      copy: {{content: x, dest: '{}'}}\n",
        note.display()
    );
    let inventory = format!(
        "web: {{hosts: {{w1: {{ansible_host: 127.0.0.1, ansible_port: {}, ansible_user: {}, ansible_ssh_common_args: \
         '-o StrictHostKeyChecking=no'}}}}}}\n",
        server.port,
        user.trim()
    );
    let run = |host_key: &str, identity: &str| {
        let mut play = a_play(fleet(&inventory, &[("site.yml", &site)]));
        play.extra.insert("ansible_python_interpreter".to_owned(), json!("{{ ansible_playbook_python }}"));
        let identity = server.dir.path().join(identity);
        play.extra.insert("ansible_ssh_private_key_file".to_owned(), json!(identity));
        let host_keys = vec![server.read(host_key).trim().to_owned()];
        play.known.insert("w1".to_owned(), AnsibleNode { host_keys, ..AnsibleNode::default() });
        let (runs, mut events) = (tempfile::tempdir().unwrap(), Vec::new());
        let ended =
            play_with(&program, &play, runs.path(), &CancelToken::new(), &mut |event| events.push(event.to_string()));
        (ended, events.join("\n"))
    };
    for (host_key, identity, said) in
        [("stranger.pub", "user", "Host key verification failed"), ("host.pub", "stranger", "Permission denied")]
    {
        let (ended, events) = run(host_key, identity);
        let Err(PlayError::Failed { why, .. }) = ended else { panic!("{ended:?}\n{events}") };
        assert!(why.starts_with("site.yml:4: note: Ansible can't reach w1: ") && why.contains(said), "{why}\n{events}");
        assert!(events.contains("0 failed, 0 ignored, 1 unreachable"), "{events}");
        assert!(!note.exists(), "somebody was let in");
    }
    let (ended, events) = run("host.pub", "user");
    assert!(ended.is_ok(), "{ended:?}\n{events}\n{}", server.read("log"));
    assert_eq!(fs::read_to_string(&note).unwrap(), "x");
}
