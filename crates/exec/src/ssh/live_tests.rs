//! Tests against a real sshd on loopback with its own host key and without PAM. A shell script with
//! prepared frames replaces the executor: these tests cover login, upload, streams and errors.

use super::testing::TestSshd;
use super::*;
use crate::wire::frame::{PREFACE, encode};
use crate::wire::{ExecutorOrder, Hello, PROTO, Reply, sample_fence};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(180);

impl TestSshd {
    fn target(&self) -> LoginTarget {
        LoginTarget {
            port: self.port(),
            user: self.user(),
            identity: Some(self.path("user")),
            host_keys: vec![self.read("host.pub")],
            ..super::target::sample("127.0.0.1")
        }
    }

    /// A `Remote` that starts `build` on the test server, with `state` as its state directory
    /// there.
    fn remote(&self, build: Build) -> Remote {
        Remote::new(RemoteConfig {
            control_dir: self.path("c"),
            builds: vec![build],
            launch: Launch::Upload,
            state_dir: self.path("state").display().to_string(),
            arguments: vec!["exec".to_owned(), "-".to_owned()],
        })
        .unwrap()
    }

    /// A script that records its start, greets, reads one fence order into `order`, answers the
    /// order, and reads its input to the end.
    fn script(&self) -> Build {
        let order = encode(&fence()).unwrap();
        let text = format!(
            "#!/bin/sh\ncd '{}'\necho \"$*\" >>ran\ncat hello\nhead -c {} >order\ncat answer\ncat >rest\necho end >>ran\n",
            self.dir().display(),
            order.len()
        );
        fs::write(self.path("script"), text).unwrap();
        let build = Build::from_file(std::env::consts::ARCH, &self.path("script")).unwrap();
        let hello = Hello { proto: PROTO, exe_sha256: build.sha256, ..Hello::default() };
        let mut bytes = PREFACE.to_vec();
        bytes.extend(encode(&Reply::Hello(hello)).unwrap());
        fs::write(self.path("hello"), bytes).unwrap();
        fs::write(self.path("answer"), encode(&Reply::Fenced { ended: Some("x".into()) }).unwrap()).unwrap();
        build
    }

    fn log_of_runs(&self) -> String {
        fs::read_to_string(self.path("ran")).unwrap_or_default()
    }
}

fn fence() -> ExecutorOrder {
    ExecutorOrder::Fence { fence: sample_fence(3), node: "w1".into(), job: remoor_model::JobId(1), timeout_ms: 1000 }
}

async fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + LONG;
    while !done() {
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn one_login_uploads_runs_and_closes() {
    let Some(server) = TestSshd::start() else { return };
    let build = server.script();
    let remote = server.remote(build.clone());
    let target = server.target();

    let mut session = remote.open(&target).await.unwrap();
    assert_eq!(session.hello().exe_sha256, build.sha256);
    let reply = session.order(fence(), &mut |_| {}, LONG).await.unwrap();
    assert_eq!(reply, Reply::Fenced { ended: Some("x".into()) });
    session.close().await;
    assert_eq!(fs::read(server.path("order")).unwrap(), encode(&fence()).unwrap());
    wait_for("the end of the stream", || server.log_of_runs() == "exec -\nend\n").await;
    assert_eq!(server.logins(), 1, "upload and run, one login");
    wait_for("the master's end", || fs::read_dir(server.path("c")).unwrap().next().is_none()).await;

    let bin = server.path("state/bin");
    let uploaded = bin.join(format!("remoor-{}", build.sha256));
    assert_eq!(fs::read(&uploaded).unwrap(), fs::read(&build.path).unwrap());
    assert_eq!(fs::metadata(&uploaded).unwrap().permissions().mode() & 0o777, 0o755);
    assert_eq!(fs::metadata(&bin).unwrap().permissions().mode() & 0o777, 0o755);
    assert_eq!(fs::metadata(server.path("state")).unwrap().permissions().mode() & 0o777, 0o700);

    // The node has the build now. Nothing is uploaded, so the local file is not needed.
    fs::remove_file(&build.path).unwrap();
    remote.open(&target).await.unwrap().close().await;

    // The damaged build exits at once, without a greeting, and is replaced.
    server.script();
    fs::write(&uploaded, b"#!/bin/sh\nexit 0\n").unwrap();
    remote.open(&target).await.unwrap().close().await;
    assert_eq!(fs::read(&uploaded).unwrap(), fs::read(&build.path).unwrap());
    assert_eq!(server.logins(), 3);
}

#[tokio::test]
async fn a_damaged_build_on_the_node_is_uploaded_again() {
    let Some(server) = TestSshd::start() else { return };
    let build = server.script();
    let uploaded = server.path("state/bin").join(format!("remoor-{}", build.sha256));
    fs::create_dir_all(server.path("state/bin")).unwrap();
    let mut cut_off = fs::read("/proc/self/exe").unwrap();
    cut_off.truncate(64 * 1024);
    let damaged: [(&str, &[u8], u32); 6] = [
        ("cut off", &cut_off, 0o755),
        ("killed by a signal", b"#!/bin/sh\nkill -9 $$\n", 0o755),
        ("says something else", b"#!/bin/sh\nyes\n", 0o755),
        ("of another format", b"\x7fELF and no more", 0o755),
        ("empty", b"", 0o755),
        ("not to be run", b"#!/bin/sh\n", 0o644),
    ];
    for (what, content, mode) in damaged {
        fs::write(&uploaded, content).unwrap();
        fs::set_permissions(&uploaded, fs::Permissions::from_mode(mode)).unwrap();
        let opened = server.remote(build.clone()).open(&server.target()).await;
        opened.unwrap_or_else(|e| panic!("{what}: {e:?}")).close().await;
        assert_eq!(fs::read(&uploaded).unwrap(), fs::read(&build.path).unwrap(), "{what}");
    }
    // A build that has the right hash but is always killed is not uploaded in a loop.
    fs::write(&build.path, b"#!/bin/sh\nkill -9 $$\n").unwrap();
    let build = Build::from_file(std::env::consts::ARCH, &build.path).unwrap();
    let before = server.commands();
    let error = server.remote(build).open(&server.target()).await.err().unwrap();
    assert!(matches!(&error, SshError::Protocol(why) if why.contains("killed by a signal")), "{error:?}");
    assert_eq!(server.commands() - before, 4, "failed start, uname, upload, failed start");
}

#[tokio::test]
async fn the_two_newest_builds_stay() {
    let Some(server) = TestSshd::start() else { return };
    let bin = server.path("state/bin");
    fs::create_dir_all(&bin).unwrap();
    for (name, age) in [("remoor-0a", 300), ("remoor-0b", 200), ("remoor-0c", 100), ("other", 400)] {
        let file = fs::File::create(bin.join(name)).unwrap();
        file.set_modified(std::time::SystemTime::now() - Duration::from_secs(age)).unwrap();
    }
    let build = server.script();
    server.remote(build.clone()).open(&server.target()).await.unwrap().close().await;
    let mut left: Vec<String> =
        fs::read_dir(&bin).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    left.sort();
    let mut expected = vec!["other".to_owned(), "remoor-0c".to_owned(), format!("remoor-{}", build.sha256)];
    expected.sort();
    assert_eq!(left, expected);
}

#[tokio::test]
async fn an_upload_with_another_hash_is_not_installed() {
    let Some(server) = TestSshd::start() else { return };
    let build = server.script();
    fs::write(&build.path, b"#!/bin/sh\necho changed meanwhile\n").unwrap();
    let error = server.remote(build).open(&server.target()).await.err().unwrap();
    assert!(matches!(error, SshError::Upload(_)), "{error:?}");
    assert_eq!(fs::read_dir(server.path("state/bin")).unwrap().count(), 0);
}

#[tokio::test]
async fn another_architecture_is_unsupported() {
    let Some(server) = TestSshd::start() else { return };
    let build = Build { arch: "pdp11".to_owned(), ..server.script() };
    let error = server.remote(build).open(&server.target()).await.err().unwrap();
    assert!(matches!(&error, SshError::Unsupported(system) if system.starts_with("Linux ")), "{error:?}");
}

#[tokio::test]
async fn a_changed_host_key_stops_everything() {
    let Some(server) = TestSshd::start() else { return };
    let recorded = server.read("stranger.pub");
    let target = LoginTarget { host_keys: vec![recorded.clone()], ..server.target() };
    let error = server.remote(server.script()).open(&target).await.err().unwrap();
    let offered = fingerprint(&server.read("host.pub"));
    let expected = vec![fingerprint(&recorded).unwrap()];
    assert_eq!(error, SshError::HostKeyChanged { expected, offered });
    assert_eq!(server.log_of_runs(), "");
    assert_eq!(server.logins(), 0);
    assert!(!server.path("state").exists());
}

#[tokio::test]
async fn an_unknown_key_is_refused() {
    let Some(server) = TestSshd::start() else { return };
    let target = LoginTarget { identity: Some(server.path("stranger")), ..server.target() };
    let error = server.remote(server.script()).open(&target).await.err().unwrap();
    assert!(matches!(error, SshError::Auth(_)), "{error:?}");
    assert_eq!(server.log_of_runs(), "");
}

#[tokio::test]
async fn the_cluster_key_works_once_authorized_and_does_not_disturb_other_keys() {
    let Some(server) = TestSshd::start() else { return };
    let remote = server.remote(server.script());
    let key = ClusterKey::create(&"c1".into()).unwrap();
    key.save(&server.path("ssh.key")).unwrap();
    let last_keys = vec![server.path("ssh.key")];
    let by_cluster = LoginTarget { identity: None, last_keys: last_keys.clone(), ..server.target() };
    let error = remote.open(&by_cluster).await.err().unwrap();
    assert!(matches!(error, SshError::Auth(_)), "{error:?}");

    // Logs in by the operator's key, with the cluster key in addition, as `node add` does. Then
    // authorizes the cluster key twice.
    let shell = remote.shell(&LoginTarget { last_keys: last_keys.clone(), ..server.target() }).await.unwrap();
    let home = server.path("home");
    for added in [true, false] {
        let answer = super::authorize::authorize_in(&shell, &key.line(), home.to_str().unwrap()).await;
        assert_eq!(answer, Ok(added));
    }
    shell.close().await;
    let lines = fs::read_to_string(home.join("authorized_keys")).unwrap();
    assert_eq!(lines, key.line() + "\n");

    fs::write(server.path("authorized"), &lines).unwrap();
    remote.open(&by_cluster).await.unwrap().close().await;
    // The cluster key permits only a session without terminal and forwarding.
    let login = ["-p", &server.port().to_string(), "-l", &by_cluster.user, "-oBatchMode=yes"].map(str::to_owned);
    let known = format!("-oUserKnownHostsFile={}", server.path("known").display());
    fs::write(server.path("known"), format!("[127.0.0.1]:{} {}", server.port(), by_cluster.host_keys[0])).unwrap();
    let mut ssh = Command::new("ssh");
    ssh.args(["-F", "/dev/null", "-tt", &known]).args(login).arg("-i").arg(server.path("ssh.key"));
    let tty = ssh.args(["127.0.0.1", "tty"]).stdin(Stdio::null()).output().unwrap();
    let tty = String::from_utf8_lossy(&tty.stdout).into_owned() + &String::from_utf8_lossy(&tty.stderr);
    assert!(tty.contains("PTY allocation request failed"), "{tty}");

    // If the identity is refused, ssh uses the cluster key. If the cluster key is refused, ssh uses
    // the identity.
    let stranger =
        LoginTarget { identity: Some(server.path("stranger")), last_keys: last_keys.clone(), ..server.target() };
    remote.open(&stranger).await.unwrap().close().await;
    fs::copy(server.path("user.pub"), server.path("authorized")).unwrap();
    remote.open(&LoginTarget { last_keys, ..server.target() }).await.unwrap().close().await;
    // An identity in the operator's own configuration works too.
    fs::write(server.path("own"), format!("IdentityFile {}\n", server.path("user").display())).unwrap();
    let configured = LoginTarget { user_config: Some(server.path("own")), ..by_cluster };
    remote.open(&configured).await.unwrap().close().await;
}

#[tokio::test]
async fn a_refused_port_is_unreachable() {
    let Some(mut server) = TestSshd::start() else { return };
    let (remote, target) = (server.remote(server.script()), server.target());
    server.stop();
    let error = remote.open(&target).await.err().unwrap();
    assert!(matches!(error, SshError::Unreachable(_)), "{error:?}");
}

#[tokio::test]
async fn the_end_of_an_executor_and_of_a_connection_are_distinguished() {
    let Some(server) = TestSshd::start() else { return };
    let mut errors = Vec::new();
    // The last script kills the whole connection: the sshd process that started its shell.
    for then in ["echo no room left >&2\nexit 3", "kill -9 $$", "kill -9 $PPID\nsleep 5"] {
        server.script();
        let hello = server.path("hello");
        let text = format!("#!/bin/sh\ncat '{}'\nhead -c 4 >/dev/null\n{then}\n", hello.display());
        fs::write(server.path("script"), text).unwrap();
        let build = Build::from_file(std::env::consts::ARCH, &server.path("script")).unwrap();
        let bytes = Hello { proto: PROTO, exe_sha256: build.sha256, ..Hello::default() };
        let bytes = [PREFACE.to_vec(), encode(&Reply::Hello(bytes)).unwrap()].concat();
        fs::write(hello, bytes).unwrap();
        let mut session = server.remote(build).open(&server.target()).await.unwrap();
        errors.push(session.order(fence(), &mut |_| {}, LONG).await.unwrap_err());
        session.close().await;
    }
    let [died, killed, cut] = &errors[..] else { panic!("{errors:?}") };
    assert!(matches!(died, SshError::Ended(how) if how.contains("3; its output: no room left")), "{died:?}");
    assert!(matches!(killed, SshError::Ended(how) if how == "killed by a signal"), "{killed:?}");
    assert!(matches!(cut, SshError::Lost(why) if why.contains("the connection to the host ended")), "{cut:?}");
}

#[tokio::test]
async fn a_shell_runs_single_commands_over_one_login() {
    let Some(server) = TestSshd::start() else { return };
    let shell = server.remote(server.script()).shell(&server.target()).await.unwrap();
    let input = vec![b'x'; 1 << 20];
    let said = shell.run("cat | wc -c; echo \"$1\"; echo oh >&2", &["a b; $(id)"], &input, LONG).await.unwrap();
    assert_eq!(said, ShellOutput { ok: true, stdout: "1048576\na b; $(id)".into(), stderr: "oh".into() });
    // This command fails without reading its input.
    let said = shell.run("echo no >&2; exit 3", &[], &input, LONG).await.unwrap();
    assert_eq!(said, ShellOutput { ok: false, stdout: String::new(), stderr: "no".into() });
    assert!(!shell.run("exit 127", &[], b"", LONG).await.unwrap().ok);
    let much = shell.run("yes | head -c 1000000; echo end >&2", &[], b"", LONG).await.unwrap();
    assert!(much.stdout.len() <= 256 * 1024, "{}", much.stdout.len());
    let late = shell.run("cat >/dev/null; sleep 60", &[], b"", Duration::from_millis(200)).await;
    assert!(matches!(late, Err(SshError::Timeout(_))), "{late:?}");
    shell.close().await;
    assert_eq!(server.log_of_runs(), "", "no executor was started");
    assert_eq!(server.logins(), 1);
}

#[tokio::test]
async fn host_keys_can_be_scanned() {
    let Some(server) = TestSshd::start() else { return };
    let keys = scan_host_keys("127.0.0.1", server.port(), LONG).await.unwrap();
    let own = server.read("host.pub");
    assert_eq!(keys.iter().map(|k| fingerprint(k)).collect::<Vec<_>>(), [fingerprint(&own)]);
}

#[tokio::test]
async fn host_keys_are_scanned_by_the_route_of_a_login() {
    let Some(server) = TestSshd::start() else { return };
    let remote = server.remote(server.script());
    let own = server.read("host.pub");
    let there = LoginTarget { host: "behind.invalid".to_owned(), port: 22, ..server.target() };
    let straight = remote.host_keys(&there, Duration::from_secs(10)).await;
    assert!(matches!(straight, Err(SshError::Unreachable(_) | SshError::Timeout(_))), "{straight:?}");

    let way = format!("bash -c 'exec 3<>/dev/tcp/127.0.0.1/{}; cat <&3 & cat >&3'", server.port());
    let behind =
        LoginTarget { options: vec![("ProxyCommand".to_owned(), way)], host_keys: Vec::new(), ..there.clone() };
    let begun = Instant::now();
    let keys = remote.host_keys(&behind, LONG).await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(100), "it waited for a process that the proxy command left running");
    assert_eq!(keys.iter().map(|k| fingerprint(k)).collect::<Vec<_>>(), [fingerprint(&own)]);
    assert_eq!((server.logins(), server.log_of_runs().as_str()), (0, ""), "no login succeeded");
    let left: Vec<_> = fs::read_dir(server.path("c")).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert!(left.is_empty(), "{left:?}");

    let nowhere = LoginTarget { options: vec![("ProxyCommand".to_owned(), "false".to_owned())], ..there };
    let answer = remote.host_keys(&nowhere, LONG).await;
    assert!(matches!(&answer, Err(SshError::Unreachable(why)) if why.contains("no host key received")), "{answer:?}");
}
