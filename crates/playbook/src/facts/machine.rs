//! Facts about the running machine: kernel, names, clock, the user of this process, virtualization.

use super::FactsRoot;
use crate::os::accounts;
use crate::os::acting_user::acting_user;
use crate::run::event::CancelToken;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

pub fn gather_machine(root: &FactsRoot, cancel: &CancelToken, out: &mut Map<String, Value>) {
    if root.is_real() {
        uname(root, out);
        user(cancel, out);
        date_time(out);
        let env: Map<String, Value> = match acting_user() {
            Some(user) => user.env.iter().map(|(k, v)| (k.clone(), json!(v))).collect(),
            None => std::env::vars_os()
                .map(|(k, v)| (k.to_string_lossy().into_owned(), json!(v.to_string_lossy())))
                .collect(),
        };
        out.insert("env".into(), Value::Object(env));
        use std::os::unix::fs::MetadataExt as _;
        let inode = |p: &str| std::fs::metadata(p).ok().map(|m| (m.dev(), m.ino()));
        out.insert("is_chroot".into(), json!(inode("/proc/1/root/.").is_some_and(|first| inode("/") != Some(first))));
    }
    cmdline(root, out);
    virtualization(root, out);
    if let Some(seconds) = root.read("/proc/uptime").split('.').next().and_then(|s| s.parse::<u64>().ok()) {
        out.insert("uptime_seconds".into(), json!(seconds));
    }
    let load = root.read("/proc/loadavg");
    let loads: Vec<f64> = load.split_whitespace().take(3).filter_map(|w| w.parse().ok()).collect();
    if let [one, five, fifteen] = loads.as_slice() {
        out.insert("loadavg".into(), json!({"1m": one, "5m": five, "15m": fifteen}));
    }
}

fn uname(root: &FactsRoot, out: &mut Map<String, Value>) {
    let uname = rustix::system::uname();
    let text = |c: &std::ffi::CStr| c.to_string_lossy().into_owned();
    let nodename = text(uname.nodename());
    let short = nodename.split('.').next().unwrap_or_default().to_owned();
    let fqdn = full_name(&root.read("/etc/hosts"), &nodename, &short);
    let machine = text(uname.machine());
    // Ansible reports all 32-bit x86 generations as i386.
    let architecture = match machine.as_str() {
        "i486" | "i586" | "i686" => "i386".to_owned(),
        _ => machine.clone(),
    };
    let bits = usize::BITS;
    out.insert("hostname".into(), json!(short));
    out.insert("nodename".into(), json!(nodename));
    out.insert("domain".into(), json!(fqdn.split_once('.').map_or("", |(_, domain)| domain)));
    out.insert("fqdn".into(), json!(fqdn));
    out.insert("kernel".into(), json!(text(uname.release())));
    out.insert("kernel_version".into(), json!(text(uname.version())));
    out.insert("system".into(), json!(text(uname.sysname())));
    out.insert("userspace_bits".into(), json!(bits.to_string()));
    out.insert("userspace_architecture".into(), json!(if bits == 64 { architecture.clone() } else { "i386".into() }));
    out.insert("architecture".into(), json!(architecture));
    out.insert("machine".into(), json!(machine));
}

/// The fully qualified name of this host from `/etc/hosts`, or else its node name. DNS is not
/// queried, because a query may take long.
pub fn full_name(hosts: &str, nodename: &str, short: &str) -> String {
    if nodename.contains('.') {
        return nodename.to_owned();
    }
    let mut lines =
        hosts.lines().map(|l| l.split('#').next().unwrap_or_default().split_whitespace().skip(1).collect::<Vec<_>>());
    let long = lines.find_map(|names| {
        let own = names.contains(&short);
        names.into_iter().find(|n| own && n.strip_prefix(short).is_some_and(|rest| rest.starts_with('.')))
    });
    long.unwrap_or(nodename).to_owned()
}

fn user(cancel: &CancelToken, out: &mut Map<String, Value>) {
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    // A thread that acts as a user has no real ids of that user.
    let (real, real_gid) = match acting_user() {
        Some(user) => (user.uid, user.gid),
        None => (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw()),
    };
    out.insert("effective_user_id".into(), json!(uid));
    out.insert("real_user_id".into(), json!(real));
    out.insert("effective_group_id".into(), json!(gid));
    out.insert("real_group_id".into(), json!(real_gid));
    let fields = accounts::user(&real.to_string(), cancel).unwrap_or_default();
    let field = |i: usize| fields.get(i).cloned();
    out.insert("user_id".into(), json!(field(0).unwrap_or_else(|| real.to_string())));
    out.insert("user_uid".into(), json!(real));
    out.insert("user_gid".into(), json!(real_gid));
    for (name, i) in [("user_gecos", 4), ("user_dir", 5), ("user_shell", 6)] {
        out.extend(field(i).map(|text| (name.to_owned(), json!(text))));
    }
}

fn date_time(out: &mut Map<String, Value>) {
    let now = jiff::Zoned::now();
    let utc = now.timestamp();
    let at = |format: &str| json!(now.strftime(format).to_string());
    let in_utc = |format: &str| json!(utc.strftime(format).to_string());
    let micro = format!("{:06}", utc.subsec_microsecond());
    let mut facts = Map::new();
    for (name, format) in [
        ("date", "%Y-%m-%d"),
        ("time", "%H:%M:%S"),
        ("year", "%Y"),
        ("month", "%m"),
        ("day", "%d"),
        ("hour", "%H"),
        ("minute", "%M"),
        ("second", "%S"),
        ("weekday", "%A"),
        ("weekday_number", "%w"),
        ("weeknumber", "%W"),
        ("tz", "%Z"),
        ("tz_dst", "%Z"),
        ("tz_offset", "%z"),
        ("iso8601_basic_short", "%Y%m%dT%H%M%S"),
    ] {
        facts.insert(name.into(), at(format));
    }
    facts.insert("epoch".into(), json!(utc.as_second().to_string()));
    facts.insert("epoch_int".into(), json!(utc.as_second().to_string()));
    facts.insert("iso8601".into(), in_utc("%Y-%m-%dT%H:%M:%SZ"));
    facts.insert("iso8601_micro".into(), json!(format!("{}.{micro}Z", utc.strftime("%Y-%m-%dT%H:%M:%S"))));
    facts.insert("iso8601_basic".into(), json!(format!("{}{micro}", now.strftime("%Y%m%dT%H%M%S"))));
    out.insert("date_time".into(), Value::Object(facts));
}

/// The kernel command line. If a name occurs several times, `cmdline` keeps the last value and
/// `proc_cmdline` all values.
fn cmdline(root: &FactsRoot, out: &mut Map<String, Value>) {
    let text = root.read("/proc/cmdline");
    let (mut last, mut all): (Map<String, Value>, Map<String, Value>) = Default::default();
    for word in text.split_whitespace() {
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => (name, json!(value)),
            None => (word, json!(true)),
        };
        last.insert(name.into(), value.clone());
        match all.get_mut(name) {
            Some(Value::Array(values)) => values.push(value),
            Some(first) => *first = json!([first.clone(), value]),
            None => {
                all.insert(name.into(), value);
            }
        }
    }
    out.insert("cmdline".into(), Value::Object(last));
    out.insert("proc_cmdline".into(), Value::Object(all));
}

/// The kind of virtual machine or container that this machine is, and the kinds that it can run.
fn virtualization(root: &FactsRoot, out: &mut Map<String, Value>) {
    let (mut guest, mut host): (BTreeSet<String>, BTreeSet<String>) = Default::default();
    let mut found: Option<(String, &'static str)> = None;
    let mut is_guest = |name: &str, found: &mut Option<(String, &'static str)>| {
        guest.insert(name.to_owned());
        found.get_or_insert((name.to_owned(), "guest"));
    };
    for line in root.read("/proc/1/cgroup").lines() {
        if line.contains("/docker/") || line.contains("/docker-") {
            is_guest("docker", &mut found);
        }
        if line.contains("/lxc/") || line.contains("/machine.slice/machine-lxc") {
            is_guest("lxc", &mut found);
        }
        if line.contains("/system.slice/containerd.service") {
            is_guest("containerd", &mut found);
        }
    }
    for word in root.read("/proc/1/environ").split('\0') {
        match word.strip_prefix("container=") {
            Some(kind @ ("lxc" | "podman")) => is_guest(kind, &mut found),
            Some(kind) if !kind.is_empty() => is_guest("container", &mut found),
            _ => {}
        }
    }
    let manager = root.read_word("/run/systemd/container");
    if let Some(kind) = &manager {
        is_guest(kind, &mut found);
    }
    if root.exists("/.dockerenv") || root.exists("/.dockerinit") {
        is_guest("docker", &mut found);
    }
    if found.is_some() {
        guest.insert("container".into());
    }
    let mut is_guest = |name: &str, found: &mut Option<(String, &'static str)>| {
        guest.insert(name.to_owned());
        found.get_or_insert((name.to_owned(), "guest"));
    };
    let dmi = |name: &str| root.read_word(&format!("/sys/devices/virtual/dmi/id/{name}")).unwrap_or_default();
    let (product, vendor, bios) = (dmi("product_name"), dmi("sys_vendor"), dmi("bios_vendor"));
    let by_product = ["KVM", "KVM Server", "Bochs", "AHV", "CloudStack KVM Hypervisor"].contains(&product.as_str());
    let by_vendor = ["QEMU", "Amazon EC2", "DigitalOcean", "Google", "Scaleway", "Nutanix"].contains(&vendor.as_str());
    let by_bios = ["Amazon EC2", "DigitalOcean", "Hetzner", "Linode"].contains(&bios.as_str());
    if by_product || by_vendor || by_bios {
        is_guest("kvm", &mut found);
    }
    for (yes, name) in [
        (product.starts_with("VMware"), "VMware"),
        (
            product == "OpenStack Compute" || product == "OpenStack Nova" || vendor == "OpenStack Foundation",
            "openstack",
        ),
        (bios == "Xen", "xen"),
        (bios == "innotek GmbH", "virtualbox"),
        (vendor == "oVirt", "oVirt"),
        (vendor == "KubeVirt", "KubeVirt"),
        (vendor == "Microsoft Corporation", "VirtualPC"),
        (vendor == "Parallels Software International Inc.", "parallels"),
    ] {
        if yes {
            is_guest(name, &mut found);
        }
    }
    let cpuinfo = root.read("/proc/cpuinfo");
    if cpuinfo.lines().any(|l| l.starts_with("model name") && l.contains("QEMU Virtual CPU")) {
        is_guest("kvm", &mut found);
    }
    let modules = root.read("/proc/modules");
    let loaded = |name: &str| modules.lines().any(|l| l.split(' ').next() == Some(name));
    for (yes, name, role) in [
        (loaded("kvm"), "kvm", "host"),
        (loaded("vboxdrv"), "virtualbox", "host"),
        (loaded("virtio"), "kvm", "guest"),
        (root.exists("/dev/kvm"), "kvm", "host"),
    ] {
        if yes {
            host.insert(name.to_owned());
            found.get_or_insert((name.to_owned(), role));
        }
    }
    let (kind, role) = found.unwrap_or_else(|| ("NA".into(), "NA"));
    out.insert("virtualization_type".into(), json!(kind));
    out.insert("virtualization_role".into(), json!(role));
    out.insert("virtualization_tech_guest".into(), json!(guest));
    out.insert("virtualization_tech_host".into(), json!(host));
}
