//! The lab's network: a bridge in its own namespace, a virtual cable to each host and to the
//! operator, and the faults.
//!
//! All faults are in one nftables table of the bridge, which is rewritten as a whole at each
//! change. Frames are dropped silently, as by a broken cable or a firewall; the sender gets no
//! error. Delay is not supported, because some kernels lack netem.

use super::COMMAND_LIMIT;
use super::tool::{attempt, run_tool, run_tool_with};
use anyhow::Result;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::Ipv4Addr;

/// The name of the operator's machine in faults.
pub const OPERATOR: &str = "op";

/// Names and addresses of one lab's network: `10.77.N.0/24`, where N depends on the lab's name.
#[derive(Debug, Clone)]
pub struct Net {
    lab: String,
    number: u8,
}

impl Net {
    pub fn new(lab: &str) -> Net {
        Net { lab: lab.to_owned(), number: (super::hash(lab) % 254) as u8 + 1 }
    }

    /// The network namespace of the bridge, of the operator or of a host. The name of a lab has no
    /// dot, so the prefix of one lab never matches another lab.
    pub fn namespace(&self, end: &str) -> String {
        format!("remoor-lab.{}.{end}", self.lab)
    }

    pub fn bridge(&self) -> String {
        self.namespace("bridge")
    }

    /// Address `last` of the lab's network.
    pub fn address(&self, last: u8) -> Ipv4Addr {
        Ipv4Addr::new(10, 77, self.number, last)
    }

    /// Creates the bridge and connects the operator to it.
    pub fn create(&self) -> Result<()> {
        let (bridge, operator) = (self.bridge(), self.namespace(OPERATOR));
        run_tool(&["ip", "netns", "add", &bridge])?;
        run_tool(&["ip", "netns", "add", &operator])?;
        let up =
            "link set lo up\nlink add br0 type bridge stp_state 0 forward_delay 0 mcast_snooping 0\nlink set br0 up\n";
        run_tool_with(&["ip", "-n", &bridge, "-batch", "-"], Some(up.as_bytes()), COMMAND_LIMIT)?;
        run_tool_with(
            &["sh", "-e"],
            Some(self.plug(OPERATOR, 1, &self.address(1).to_string()).as_bytes()),
            COMMAND_LIMIT,
        )?;
        self.apply(&Faults::default())
    }

    /// A shell script that connects the bridge with `end` and gives `end` an address. The namespace
    /// of `end` must exist.
    pub fn plug(&self, end: &str, last: u8, address: &str) -> String {
        let (bridge, namespace) = (self.bridge(), self.namespace(end));
        format!(
            "ip -n {bridge} link del p-{end} 2>/dev/null || :\n\
             ip -n {bridge} link add p-{end} type veth peer name eth0 address 02:77:00:00:{:02x}:{last:02x} netns {namespace}\n\
             ip -n {bridge} link set p-{end} master br0 up\n\
             ip -n {namespace} addr add {address}/24 dev eth0\n\
             ip -n {namespace} link set lo up\n\
             ip -n {namespace} link set eth0 up\n",
            self.number
        )
    }

    /// Removes the cable. The host's sockets are not notified.
    pub fn unplug(&self, end: &str) {
        attempt(&["ip", "-n", &self.bridge(), "link", "del", &format!("p-{end}")]);
    }

    /// Replaces the current faults by `faults`.
    pub fn apply(&self, faults: &Faults) -> Result<()> {
        let place = format!("--net=/run/netns/{}", self.bridge());
        run_tool_with(&["nsenter", &place, "nft", "-f", "-"], Some(faults.rules().as_bytes()), COMMAND_LIMIT)?;
        Ok(())
    }

    /// Every existing namespace of this lab.
    pub fn namespaces(&self) -> Vec<String> {
        let prefix = self.namespace("");
        let entries = fs::read_dir("/run/netns").into_iter().flatten().flatten();
        entries.map(|e| e.file_name().to_string_lossy().into_owned()).filter(|name| name.starts_with(&prefix)).collect()
    }

    pub fn remove(&self) {
        for name in self.namespaces() {
            attempt(&["ip", "netns", "del", &name]);
        }
    }
}

/// The direction in which a host's traffic is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// The host receives nothing.
    In,
    /// No other host receives from this host.
    Out,
}

/// The current faults. The names are those of hosts, or [`OPERATOR`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Faults {
    pub deaf: BTreeSet<String>,
    pub mute: BTreeSet<String>,
    /// Pairs of hosts. Frames from the first host to the second host are lost.
    pub blocked: BTreeSet<(String, String)>,
    /// Percentage of a host's frames that are lost, in each direction.
    pub loss: BTreeMap<String, u8>,
}

impl Faults {
    /// Ends the faults that name `host`.
    pub fn heal(&mut self, host: &str) {
        self.deaf.remove(host);
        self.mute.remove(host);
        self.loss.remove(host);
        self.blocked.retain(|(from, to)| from != host && to != host);
    }

    pub fn block(&mut self, from: &str, to: &str) {
        self.blocked.insert((from.to_owned(), to.to_owned()));
    }

    fn rules(&self) -> String {
        let mut rules = String::new();
        let mut rule = |text: String| rules += &format!("  {text} drop\n");
        self.mute.iter().for_each(|h| rule(format!("iifname \"p-{h}\"")));
        self.deaf.iter().for_each(|h| rule(format!("oifname \"p-{h}\"")));
        self.blocked.iter().for_each(|(from, to)| rule(format!("iifname \"p-{from}\" oifname \"p-{to}\"")));
        for (host, percent) in &self.loss {
            // nftables rejects "< 100", because that condition is always true.
            let some = if *percent < 100 { format!(" numgen random mod 100 < {percent}") } else { String::new() };
            rule(format!("iifname \"p-{host}\"{some}"));
            rule(format!("oifname \"p-{host}\"{some}"));
        }
        format!(
            "add table bridge lab\ndelete table bridge lab\ntable bridge lab {{\n chain forward {{\n  \
             type filter hook forward priority 0; policy accept;\n{rules} }}\n}}\n"
        )
    }
}

#[test]
fn healing_one_host_leaves_the_others_cut() {
    let mut faults = Faults::default();
    for host in ["w1", "w2"] {
        faults.deaf.insert(host.into());
        faults.mute.insert(host.into());
    }
    faults.block("m1", "w1");
    faults.block("m1", "m2");
    faults.heal("w1");
    let rules = faults.rules();
    assert!(!rules.contains("p-w1"), "{rules}");
    for left in ["iifname \"p-w2\" drop", "oifname \"p-w2\" drop", "iifname \"p-m1\" oifname \"p-m2\" drop"] {
        assert!(rules.contains(left), "{left} is missing in {rules}");
    }
}
