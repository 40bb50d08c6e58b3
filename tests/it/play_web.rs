//! Requests of `uri` with a client certificate and with headers in one text, beside
//! ansible-playbook. The server is `openssl s_server`, which requires a certificate.

use crate::python_modules::{ansible_dir, site_command};
use crate::time_limit::{BoundedCommand, TimeLimit};
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

const SITE: &str = r#"
- hosts: all
  gather_facts: false
  module_defaults: {uri: {url: "{{ url }}", validate_certs: false, return_content: false}}
  tasks:
    - {uri: {client_cert: "{{ dir }}/both.pem"}, register: both}
    - {uri: {client_cert: "{{ dir }}/cert.pem", client_key: "{{ dir }}/key.pem"}, register: apart}
    - {uri: {client_cert: "{{ dir }}/link.pem"}, register: linked}
    - {uri: , register: without, ignore_errors: true}
    - {uri: {client_key: "{{ dir }}/key.pem"}, register: only_key, ignore_errors: true}
    - {uri: {client_cert: "{{ dir }}/cert.pem"}, register: no_key, ignore_errors: true}
    - {uri: {client_cert: "{{ dir }}/none.pem"}, register: missing, ignore_errors: true}
    - {uri: {client_cert: "{{ dir }}/both.pem", headers: 'X-One="1, 1",X-Two=2'}, register: pairs}
    - copy:
        dest: "{{ dir }}/results.json"
        content: "{{ {'both': both, 'apart': apart, 'linked': linked, 'without': without, 'only_key': only_key, 'no_key': no_key,
          'missing': missing, 'pairs': pairs} | to_json }}"
"#;

/// A server that ends with this value.
struct Server {
    process: Child,
    port: u16,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _it_may_have_ended = self.process.kill();
        let _ = self.process.wait();
    }
}

fn openssl(dir: &Path, args: &[&str]) -> Command {
    let mut command = Command::new("openssl");
    command.current_dir(dir).args(args);
    command
}

/// Makes a certificate that signs itself.
fn make_certificate(dir: &Path, name: &str) {
    let (key, cert) = (format!("{name}-key.pem"), format!("{name}-cert.pem"));
    let ec = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];
    let mut command =
        openssl(dir, &["req", "-x509", "-days", "30", "-subj", "/CN=localhost", "-keyout", &key, "-out", &cert]);
    let done = command.args(ec).args(["-addext", "basicConstraints=critical,CA:FALSE"]).bounded_output();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

impl Server {
    /// Starts the server and writes the client's files. None: openssl is not installed.
    fn start(dir: &Path) -> Option<Self> {
        if openssl(dir, &["version"]).output().is_err() {
            eprintln!("SKIPPED: openssl IS NOT INSTALLED: CLIENT CERTIFICATES ARE NOT COMPARED WITH ANSIBLE");
            return None;
        }
        make_certificate(dir, "server");
        make_certificate(dir, "client");
        let read = |name: &str| fs::read(dir.join(name)).expect(name);
        let (key, cert) = (read("client-key.pem"), read("client-cert.pem"));
        for (name, content) in
            [("key.pem", key.clone()), ("cert.pem", cert.clone()), ("both.pem", [key, cert].concat())]
        {
            fs::write(dir.join(name), content).expect(name);
        }
        std::os::unix::fs::symlink("both.pem", dir.join("link.pem")).expect("a link");
        let args = ["s_server", "-accept", "127.0.0.1:0", "-www", "-Verify", "1", "-verify_return_error"];
        let mut command = openssl(dir, &args);
        command.args(["-cert", "server-cert.pem", "-key", "server-key.pem", "-CAfile", "client-cert.pem"]);
        let mut process =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("openssl");
        let mut lines = BufReader::new(process.stdout.take().expect("its output")).lines();
        let _limit = TimeLimit::start(&process, crate::local::LONG);
        let port = lines
            .by_ref()
            .map_while(Result::ok)
            .find_map(|line| line.strip_prefix("ACCEPT ")?.rsplit(':').next()?.split_whitespace().next()?.parse().ok());
        // The server writes a line for each connection.
        std::thread::spawn(move || lines.for_each(drop));
        Some(Self { process, port: port.expect("a port") })
    }
}

#[test]
fn client_certificates_and_headers_are_those_of_ansible() {
    let Some(bin) = ansible_dir() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let Some(server) = Server::start(dir.path()) else { return };
    fs::write(dir.path().join("site.yml"), SITE).expect("a playbook");
    let mut answers = Vec::new();
    for is_remoor in [true, false] {
        let url = format!("https://127.0.0.1:{}/", server.port);
        let vars = json!({"dir": dir.path(), "remoor_state_dir": dir.path().join("state"), "url": url});
        let mut command = site_command(&bin, is_remoor, dir.path(), &vars);
        let done = command.env("no_proxy", "127.0.0.1").bounded_output();
        let text = String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "{text}");
        let results = fs::read_to_string(dir.path().join("results.json")).expect("results");
        let results: Value = serde_json::from_str(&results).expect("JSON");
        let of =
            |(name, result): (&String, &Value)| format!("{name}: {} {}", result["failed"] == true, result["status"]);
        answers.push(results.as_object().expect("a map").iter().map(of).collect::<Vec<_>>());
        assert!(is_remoor || text.contains("ok="), "{text}");
    }
    assert_eq!(answers[0], answers[1]);
    assert_eq!(answers[0].iter().filter(|line| line.contains("false 200")).count(), 4, "{answers:?}");
}
