//! Nodes in their own network namespaces, connected by a switch in user space. The switch can delay
//! frames, lose frames at random, and lose the gossip of one node. The tests need root and a C
//! compiler. If `REMOOR_LAB_REQUIRED` is set, they fail instead of being skipped.

use crate::lab::net::Net;
use crate::lab::tool::{find_program, run_tool, run_tool_with};
use crate::local::{Daemon, PROGRAM, remoor, run_successfully, wait_until};
use remoor_cluster::rpc::client::Client;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

pub const NODES: usize = 4;

/// The properties of the links, which the switch simulates.
#[derive(Debug, Clone, Copy, Default)]
pub struct Links {
    pub delay_ms: usize,
    /// The number of lost frames in 10,000.
    pub loss: usize,
    /// The node whose gossip is lost; 0 for none.
    pub mute: usize,
}

/// Nodes m1 to m4 on one switch.
pub struct Far {
    net: Net,
    pub dir: tempfile::TempDir,
    pub runtime: tokio::runtime::Runtime,
    pub daemons: BTreeMap<usize, Daemon>,
    switch: Option<Child>,
}

impl Far {
    /// Starts m1, which leads alone. None if this machine cannot run the tests.
    pub fn start_first(name: &str) -> Option<Self> {
        if cannot_run() {
            return None;
        }
        let mut far = Self::create(name);
        far.init();
        Some(far)
    }

    fn create(name: &str) -> Self {
        let net = Net::new(&format!("{name}{}", std::process::id()));
        let dir = tempfile::tempdir().expect("a folder");
        let program = dir.path().join("far_switch");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/standins/far_switch.c");
        run_successfully(Command::new("cc").args(["-O1", "-o"]).arg(&program).arg(source));
        run_tool(&["ip", "netns", "add", &net.bridge()]).expect("a namespace");
        for at in 1..=NODES {
            let (bridge, place, last) = (net.bridge(), net.namespace(&node(at)), at as u8);
            let script = format!(
                "ip netns add {place}\nip -n {bridge} link add p{at} type veth peer name eth0 netns {place}\n\
                 ip -n {bridge} link set p{at} up\nip -n {place} link set lo up\nip -n {place} link set eth0 up\n\
                 ip -n {place} addr add {}/24 dev eth0\n",
                net.address(last)
            );
            run_tool_with(&["sh", "-e"], Some(script.as_bytes()), Duration::from_secs(30)).expect("a cable");
        }
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let mut far = Self { net, dir, runtime: runtime.expect("a runtime"), daemons: BTreeMap::new(), switch: None };
        far.set_links(Links::default());
        far
    }

    /// Replaces the switch. The links are cut for a moment.
    pub fn set_links(&mut self, links: Links) {
        self.remove_switch();
        let ready = self.dir.path().join("far_switch.ready");
        // The file does not exist before the first switch.
        let _ = fs::remove_file(&ready);
        let mut switch = Command::new("nice");
        switch
            .args(["-n", "-15", "nsenter"])
            .arg(format!("--net=/run/netns/{}", self.net.bridge()))
            .arg(self.dir.path().join("far_switch"));
        switch
            .args([links.delay_ms, links.loss, links.mute].map(|n| n.to_string()))
            .args((1..=NODES).map(|at| format!("p{at}")));
        self.switch = Some(switch.current_dir(self.dir.path()).stdin(Stdio::null()).spawn().expect("a switch"));
        wait_until("the switch is ready", || ready.exists().then_some(()));
    }

    fn remove_switch(&mut self) {
        if let Some(mut switch) = self.switch.take() {
            // An error means that the switch has ended already.
            let _ = switch.kill();
            let _ = switch.wait();
        }
    }

    /// A command on the node `at`. It has a higher priority than the other work of this machine,
    /// because stalls of the machine are not the subject of these tests.
    fn command(&self, at: usize) -> Command {
        let mut command = Command::new("nice");
        command
            .args(["-n", "-10", "nsenter"])
            .arg(format!("--net=/run/netns/{}", self.net.namespace(&node(at))))
            .arg(PROGRAM);
        for (name, _) in remoor().get_envs() {
            command.env_remove(name);
        }
        command
    }

    pub fn home(&self, at: usize) -> PathBuf {
        self.dir.path().join(node(at))
    }

    pub fn start(&mut self, at: usize) {
        self.daemons.remove(&at);
        let daemon = Daemon::start_command(self.command(at), &self.home(at));
        self.daemons.insert(at, daemon);
    }

    fn init(&mut self) {
        let mut init = self.command(1);
        init.args(["init", "--json", "--name", "m1", "--advertise", &self.net.address(1).to_string(), "--dir"]);
        let output: Value = serde_json::from_slice(&run_successfully(init.arg(self.home(1))).stdout).expect("JSON");
        for role in ["manager", "worker"] {
            let token = output[format!("{role}_token")].as_str().expect("a token");
            fs::write(self.dir.path().join(role), token).expect("written");
        }
        self.start(1);
        wait_until("m1 leads", || (self.daemons[&1].ask(&["status"]).status.code() == Some(0)).then_some(()));
    }

    /// Sets up the node `at` as a `manager` or a `worker`, and starts it.
    pub fn join(&mut self, at: usize, role: &str) {
        let (to, address) = (format!("{}:7947", self.net.address(1)), self.net.address(at as u8).to_string());
        let mut join = self.command(at);
        join.args(["join", &to, "--name", &node(at), "--advertise", &address, "--dir"]).arg(self.home(at));
        if role == "manager" {
            join.arg("--manager");
        }
        run_successfully(join.arg("--token-file").arg(self.dir.path().join(role)));
        self.start(at);
    }

    pub fn wait_for_voters(&self, voters: usize) {
        wait_until(&format!("{voters} voters"), || {
            let nodes = self.daemons[&1].json("status")["nodes"].clone();
            let votes = |n: &&Value| matches!(n["manager"].as_str(), Some("leader" | "voter"));
            (nodes.as_array()?.iter().filter(votes).count() == voters).then_some(())
        });
    }

    pub fn client(&self, at: usize) -> Client {
        Client::unix(self.home(at).join("s"))
    }
}

impl Drop for Far {
    fn drop(&mut self) {
        self.daemons.clear();
        self.remove_switch();
        self.net.remove();
    }
}

pub fn node(at: usize) -> String {
    format!("m{at}")
}

/// Whether this machine cannot run the tests. If they are required, this is a failure; otherwise
/// the reason is printed in capitals.
fn cannot_run() -> bool {
    let root = rustix::process::geteuid().is_root();
    let missing = ["ip", "nsenter", "cc"].into_iter().find(|p| find_program(p).is_none());
    if root && missing.is_none() {
        return false;
    }
    let why = missing.map_or("network namespaces need root".to_owned(), |p| format!("{p} is missing"));
    assert!(std::env::var_os("REMOOR_LAB_REQUIRED").is_none(), "no network namespaces: {why}");
    eprintln!("SKIPPED: NODES ON A SLOW SWITCH: {why}");
    true
}
