//! Compares the answers of goss 0.4.9 and remoor about the same machine state, which the test
//! creates. The checks and goss's recorded answers are in `tests/goss/types`.
//!
//! State that differs between machines is left out: services (systemd may be absent), installed
//! packages, and names that only a DNS server knows. To record again: `UPDATE_EXPECT=1 cargo test
//! --lib what_was_recorded`, with goss on the PATH.

use super::*;
use expect_test::expect_file;
use remoor_model::CheckState;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::{self, JoinHandle};

const SUITE: &str = include_str!("../../../../tests/goss/types/suite.yaml");
const ANSWERS: &str = include_str!("../../../../tests/goss/types/answers.txt");
/// The first line of the recorded answers: the version of the goss package and the command. The
/// version is that of the package, because Debian's goss does not print its version.
const HEADING: &str = "# goss 0.4.9-2: goss -g FILE validate -f json\n";

/// Assertions that remoor answers differently from goss, with remoor's result and the reason.
/// `docs/reference/checks.md` has the same list for users.
const DEPARTURES: &[(&str, CheckState, &str)] = &[
    ("command:slow exit-status", CheckState::Unknown, "a command that times out has no answer"),
    (
        "file:below-a-file exists",
        CheckState::Pass,
        "a path that cannot exist is an error in goss, but absent in remoor",
    ),
    ("file:circle contents", CheckState::Unknown, "a cycle of links cannot be read"),
    ("mount:gone-wanted exists", CheckState::Pass, "goss fails if nothing is mounted, whatever is expected"),
    ("mount:proc-usage usage", CheckState::Fail, "a filesystem without a size is not empty"),
    ("process:long running", CheckState::Pass, "goss knows the first 15 characters only"),
];

/// The machine state that the checks in `tests/goss/types` read. The state exists as long as this
/// value.
struct Machine {
    dir: tempfile::TempDir,
    tcp: TcpListener,
    all: TcpListener,
    udp: UdpSocket,
    _socket: UnixListener,
    _processes: [Ended; 2],
    server: Server,
}

impl Machine {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let mode = |name: &str, mode| fs::set_permissions(at(name), fs::Permissions::from_mode(mode)).unwrap();
        for (name, text, bits) in [
            ("plain", "listen 80;\nuser root\nversion 1.9\n", 0o640),
            ("json", r#"{"members": [{"name": "m1"}, {"name": "m2", "up": true}]}"#, 0o644),
            ("abc", "abc", 0o644),
            ("empty", "", 0o644),
            ("set-user", "#!/bin/sh\n", 0o4755),
        ] {
            fs::write(at(name), text).unwrap();
            mode(name, bits);
        }
        fs::create_dir(at("sticky")).unwrap();
        mode("sticky", 0o1777);
        symlink("plain", at("link")).unwrap();
        symlink("gone", at("dangling")).unwrap();
        symlink("circle", at("circle")).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, at("pipe"), rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        let socket = UnixListener::bind(at("socket")).unwrap();
        let sleeping = |name: String| {
            fs::copy("/bin/sleep", at(&name)).unwrap();
            Ended(Command::new(at(&name)).arg("86000").stdout(Stdio::null()).spawn().unwrap())
        };
        Self {
            tcp: TcpListener::bind("127.0.0.1:0").unwrap(),
            all: TcpListener::bind("0.0.0.0:0").unwrap(),
            udp: UdpSocket::bind("127.0.0.1:0").unwrap(),
            _socket: socket,
            _processes: [sleeping(short_name()), sleeping(long_name())],
            server: Server::new(),
            dir,
        }
    }

    /// The text of the checks in `tests/goss/types`, with the values of this machine filled in.
    fn suite(&self) -> String {
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let names = remoor_host::files::Names::load();
        let port = |address: std::io::Result<SocketAddr>| address.unwrap().port().to_string();
        let http = self.server.address.port();
        let words = [
            ("dir", self.dir.path().display().to_string()),
            ("user-len", names.owner(uid).len().to_string()),
            ("user", names.owner(uid).to_string()),
            ("uid", uid.to_string()),
            ("group", names.group(gid).to_string()),
            ("gid", gid.to_string()),
            ("tcp", port(self.tcp.local_addr())),
            ("all", port(self.all.local_addr())),
            ("udp", port(self.udp.local_addr())),
            ("process", short_name()),
            ("long-process", long_name()),
            ("http", format!("http://127.0.0.1:{http}")),
            ("http-coded", format!("http://me:s%65cret@127.0.0.1:{http}")),
            ("http-user", format!("http://me:secret@127.0.0.1:{http}")),
            ("http-name", format!("http://localhost:{http}")),
        ];
        words.iter().fold(SUITE.to_owned(), |text, (word, value)| text.replace(&format!("@{word}@"), value))
    }
}

/// A name of at most 15 characters, which is all that the kernel keeps.
fn short_name() -> String {
    format!("rt{}", std::process::id())
}

fn long_name() -> String {
    format!("a-long-name-of-a-program-{}", std::process::id())
}

/// A web server on the loopback interface. It stops when this value is dropped.
struct Server {
    address: SocketAddr,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let thread = thread::spawn(move || while answer(&listener) {});
        Self { address, thread: Some(thread) }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = TcpStream::connect(self.address).and_then(|mut stream| stream.write_all(b"END / HTTP/1.1\r\n\r\n"));
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Answers one request. Returns false if the server must end after this request.
fn answer(listener: &TcpListener) -> bool {
    let (stream, _) = listener.accept().unwrap();
    let mut reader = BufReader::new(&stream);
    let (mut head, mut line) = (String::new(), String::new());
    while reader.read_line(&mut line).is_ok_and(|read| read > 2) {
        head += &std::mem::take(&mut line);
    }
    let header = |name: &str| {
        head.lines().find_map(|line| line.split_once(": ").filter(|(key, _)| key.eq_ignore_ascii_case(name)))
    };
    let length = header("Content-Length").map_or(0, |(_, length)| length.trim().parse().unwrap());
    let mut sent = vec![0; length];
    reader.read_exact(&mut sent).unwrap();
    let (method, rest) = head.split_once(' ').unwrap_or_default();
    let known = header("Authorization").is_some_and(|(_, who)| who.trim() == "Basic bWU6c2VjcmV0");
    let mine = header("X-Mine").map_or("", |(_, value)| value).trim();
    let elsewhere = format!("Location: http://{}/auth", listener.local_addr().unwrap());
    let (status, more, body) = match rest.split(' ').next().unwrap_or_default() {
        "/text" => ("200 OK", "Content-Type: text/plain\r\nX-Two: one\r\nX-Two: two", "hello\nworld\n".to_owned()),
        "/json" => ("200 OK", "", r#"{"members": [{"name": "m1"}, {"name": "m2"}]}"#.to_owned()),
        "/moved" => ("302 Found", "Location: /text", String::new()),
        "/away/mail" => ("302 Found", "Location: mailto:me@localhost", String::new()),
        "/away/file" => ("302 Found", "Location: file:///etc/passwd", String::new()),
        "/away/ftp" => ("302 Found", "Location: ftp://127.0.0.1:1/x", String::new()),
        "/moved/colon" => ("302 Found", "Location: /moved/Special:Main", String::new()),
        "/moved/Special:Main" => ("200 OK", "", "main\n".to_owned()),
        "/moved/to-auth" => ("302 Found", "Location: /auth", String::new()),
        "/moved/elsewhere" => ("302 Found", elsewhere.as_str(), String::new()),
        "/moved/kept" => ("307 Temporary Redirect", "Location: /echo", String::new()),
        "/moved/blank" => ("302 Found", "Location: /te xt/../text", String::new()),
        "/moved/nowhere" => ("302 Found", "", "here\n".to_owned()),
        "/choices" => ("300 Multiple Choices", "Location: /text", String::new()),
        "/moved/below" => ("302 Found", "Location: ../text", String::new()),
        "/echo" => ("200 OK", "", format!("{method} /echo\nX-Mine: {mine}\n{}\n", String::from_utf8_lossy(&sent))),
        "/auth" if known => ("200 OK", "", String::new()),
        "/auth" => ("401 Unauthorized", "", String::new()),
        _ => ("404 Not Found", "Content-Type: text/html", "it is gone\n".to_owned()),
    };
    let more = if more.is_empty() { String::new() } else { format!("{more}\r\n") };
    let body_sent = if method == "HEAD" { "" } else { body.as_str() };
    let text = format!("HTTP/1.1 {status}\r\n{more}Content-Length: {}\r\nConnection: close\r\n\r\n", body.len());
    // The client may have closed the connection: a name that first resolves to another address
    // causes two connections for one request.
    let _ = (&stream).write_all(format!("{text}{body_sent}").as_bytes());
    method != "END"
}

fn format_states(states: &BTreeMap<String, CheckState>) -> String {
    states.iter().map(|(what, state)| format!("{what} {state:?}\n")).collect()
}

#[test]
fn both_find_the_same() {
    let machine = Machine::new();
    let line = |r: CheckResult| {
        let kind = r.check.split(':').next().unwrap_or_default();
        (format!("{} {}", r.check, goss_property(kind, &r.property)), r.state)
    };
    let mut ours: BTreeMap<String, CheckState> = results(&machine.suite()).into_iter().map(line).collect();
    for (assertion, state, _) in DEPARTURES {
        let found = ours.insert((*assertion).to_owned(), CheckState::Skip);
        assert_eq!(found, Some(*state), "{assertion}");
        let recorded = ANSWERS.lines().find_map(|line| line.strip_prefix(assertion)).unwrap().trim();
        assert_ne!(recorded, format!("{state:?}"), "{assertion} is no departure");
        let theirs = if recorded == "Pass" { CheckState::Pass } else { CheckState::Fail };
        ours.insert((*assertion).to_owned(), theirs);
    }
    let differ = |(ours, theirs): &(&str, &str)| ours != theirs;
    let (ours, pairs) = (format_states(&ours), ANSWERS.strip_prefix(HEADING).expect("the heading"));
    assert_eq!(ours.lines().count(), pairs.lines().count(), "record the answers again");
    let differences: Vec<(&str, &str)> = ours.lines().zip(pairs.lines()).filter(differ).collect();
    assert!(differences.is_empty(), "ours, goss's: {differences:#?}");
}

#[test]
fn what_was_recorded_is_what_goss_says() {
    let machine = Machine::new();
    let file = machine.dir.path().join("goss.yaml");
    fs::write(&file, machine.suite()).unwrap();
    let Ok(output) = Command::new("goss").arg("-g").arg(&file).args(["validate", "-f", "json"]).output() else {
        eprintln!("SKIPPED: GOSS IS NOT ON THE PATH, SO THE RECORDED ANSWERS WERE NOT COMPARED WITH IT");
        return;
    };
    let told: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&output.stderr)));
    let state = |n: &Value| match n.as_u64() {
        Some(0) => CheckState::Pass,
        Some(1) => CheckState::Fail,
        _ => CheckState::Skip,
    };
    let line = |r: &Value| {
        let kind = r["resource-type"].as_str().unwrap().to_lowercase().replace("kernelparam", "kernel-param");
        // For a check with a separate name, goss prints the id and the name.
        let id = r["resource-id"].as_str().unwrap().split(": ").next().unwrap();
        let property = r["property"].as_str().unwrap();
        (format!("{kind}:{id} {property}"), state(&r["result"]))
    };
    let theirs: BTreeMap<String, CheckState> = told["results"].as_array().unwrap().iter().map(line).collect();
    let answers = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/goss/types/answers.txt");
    expect_file![answers].assert_eq(&(HEADING.to_owned() + &format_states(&theirs)));
}
