//! What is true of this node, without Python: `ansible_hostname` and its like, each also in `ansible_facts`.

use serde_json::{Map, Value, json};
use std::net::UdpSocket;
use std::path::Path;

/// What a template finds on the node besides what the fleet says: every name that `facts` may give.
pub const NAMES: [&str; 31] = [
    "ansible_all_ipv4_addresses",
    "ansible_architecture",
    "ansible_date_time",
    "ansible_default_ipv4",
    "ansible_distribution",
    "ansible_distribution_major_version",
    "ansible_distribution_release",
    "ansible_distribution_version",
    "ansible_env",
    "ansible_facts",
    "ansible_fqdn",
    "ansible_hostname",
    "ansible_interfaces",
    "ansible_kernel",
    "ansible_machine",
    "ansible_memfree_mb",
    "ansible_memtotal_mb",
    "ansible_nodename",
    "ansible_os_family",
    "ansible_pkg_mgr",
    "ansible_processor_cores",
    "ansible_processor_count",
    "ansible_processor_vcpus",
    "ansible_service_mgr",
    "ansible_swaptotal_mb",
    "ansible_system",
    "ansible_user_dir",
    "ansible_user_id",
    "ansible_user_uid",
    // Of a run that failed, for `rescue`.
    "ansible_failed_result",
    "ansible_failed_task",
];

/// All facts, gathered anew. Never fails: what cannot be told is left out.
pub fn facts() -> Map<String, Value> {
    let mut out = Map::new();
    let uname = rustix::system::uname();
    let text = |c: &std::ffi::CStr| c.to_string_lossy().into_owned();
    let nodename = text(uname.nodename());
    let short = nodename.split('.').next().unwrap_or_default().to_owned();
    out.insert("hostname".into(), json!(short));
    out.insert("nodename".into(), json!(nodename));
    out.insert("fqdn".into(), json!(fqdn(&nodename, &short)));
    out.insert("kernel".into(), json!(text(uname.release())));
    out.insert("system".into(), json!(text(uname.sysname())));
    out.insert("architecture".into(), json!(text(uname.machine())));
    out.insert("machine".into(), json!(text(uname.machine())));
    distribution(&mut out);
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    out.insert("processor_vcpus".into(), json!(cpus));
    out.insert("processor_cores".into(), json!(cpus));
    out.insert("processor_count".into(), json!(cpus));
    let memory = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    for (key, name) in [("MemTotal:", "memtotal_mb"), ("MemFree:", "memfree_mb"), ("SwapTotal:", "swaptotal_mb")] {
        let kib = memory.lines().find_map(|l| l.strip_prefix(key)?.trim().split(' ').next()?.parse::<u64>().ok());
        out.extend(kib.map(|kib| (name.to_owned(), json!(kib / 1024))));
    }
    network(&mut out);
    let there = |p: &str| Path::new(p).exists();
    let manager = [
        ("/usr/bin/apt-get", "apt"),
        ("/usr/bin/dnf", "dnf"),
        ("/usr/bin/yum", "yum"),
        ("/sbin/apk", "apk"),
        ("/usr/bin/pacman", "pacman"),
        ("/usr/bin/zypper", "zypper"),
    ];
    out.insert("pkg_mgr".into(), json!(manager.iter().find(|(p, _)| there(p)).map_or("unknown", |(_, n)| n)));
    out.insert("service_mgr".into(), json!(if there("/run/systemd/system") { "systemd" } else { "service" }));
    let uid = rustix::process::geteuid().as_raw();
    let user = super::owner::user(&uid.to_string());
    out.insert("user_id".into(), json!(user.as_ref().map_or_else(|| uid.to_string(), |e| e[0].clone())));
    out.insert("user_uid".into(), json!(uid));
    out.extend(user.map(|e| ("user_dir".to_owned(), json!(e[5]))));
    out.insert(
        "env".into(),
        json!(
            std::env::vars_os()
                .map(|(k, v)| (k.to_string_lossy().into_owned(), v.to_string_lossy().into_owned()))
                .collect::<std::collections::BTreeMap<_, _>>()
        ),
    );
    date_time(&mut out);
    let mut all: Map<String, Value> = out.iter().map(|(k, v)| (format!("ansible_{k}"), v.clone())).collect();
    all.insert("ansible_facts".into(), Value::Object(out));
    all
}

fn fqdn(nodename: &str, short: &str) -> String {
    if nodename.contains('.') {
        return nodename.to_owned();
    }
    let hosts = std::fs::read_to_string("/etc/hosts").unwrap_or_default();
    let mut lines =
        hosts.lines().map(|l| l.split('#').next().unwrap_or_default().split_whitespace().skip(1).collect::<Vec<_>>());
    let long = lines.find_map(|names| {
        let own = names.contains(&short);
        names.into_iter().find(|n| own && n.starts_with(short) && n[short.len()..].starts_with('.'))
    });
    long.unwrap_or(nodename).to_owned()
}

fn distribution(out: &mut Map<String, Value>) {
    let text = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
    let field = |key: &str| {
        let line = text.lines().find_map(|l| l.strip_prefix(key)?.strip_prefix('='));
        line.map(|v| v.trim_matches(['"', '\'']).to_owned()).unwrap_or_default()
    };
    let id = field("ID");
    let name = match id.as_str() {
        "debian" => "Debian",
        "ubuntu" => "Ubuntu",
        "rhel" => "RedHat",
        "centos" => "CentOS",
        "fedora" => "Fedora",
        "rocky" => "Rocky",
        "almalinux" => "AlmaLinux",
        "alpine" => "Alpine",
        "arch" => "Archlinux",
        "opensuse-leap" | "opensuse-tumbleweed" | "sles" => "openSUSE",
        other => other,
    };
    let like = format!("{id} {}", field("ID_LIKE"));
    let family = [
        ("debian", "Debian"),
        ("rhel", "RedHat"),
        ("fedora", "RedHat"),
        ("alpine", "Alpine"),
        ("arch", "Archlinux"),
        ("suse", "Suse"),
    ];
    let family =
        family.iter().find(|(word, _)| like.split_whitespace().any(|w| w.contains(word))).map_or(name, |(_, f)| f);
    let mut version = field("VERSION_ID");
    if id == "debian"
        && let Ok(exact) = std::fs::read_to_string("/etc/debian_version")
        && exact.starts_with(|c: char| c.is_ascii_digit())
    {
        version = exact.trim().to_owned();
    }
    let major = version.split('.').next().unwrap_or_default().to_owned();
    out.insert("distribution".into(), json!(name));
    out.insert("os_family".into(), json!(family));
    out.insert("distribution_version".into(), json!(version));
    out.insert("distribution_major_version".into(), json!(major));
    out.insert("distribution_release".into(), json!(field("VERSION_CODENAME")));
}

/// The default route's interface by the kernel's table, its address by asking for a route; nothing is sent.
fn network(out: &mut Map<String, Value>) {
    let routes = std::fs::read_to_string("/proc/net/route").unwrap_or_default();
    let default = routes
        .lines()
        .skip(1)
        .map(|l| l.split_whitespace().collect::<Vec<_>>())
        .find(|f| f.len() > 7 && f[1] == "00000000" && f[7] == "00000000");
    let mut v4 = Map::new();
    if let Some(route) = default {
        v4.insert("interface".into(), json!(route[0]));
        v4.insert(
            "gateway".into(),
            json!(
                u32::from_str_radix(route[2], 16)
                    .map(|g| std::net::Ipv4Addr::from(g.swap_bytes()).to_string())
                    .unwrap_or_default()
            ),
        );
        let address =
            UdpSocket::bind("0.0.0.0:0").and_then(|s| s.connect("198.51.100.1:9").and_then(|()| s.local_addr()));
        v4.extend(address.ok().map(|a| ("address".to_owned(), json!(a.ip().to_string()))));
    }
    out.insert("default_ipv4".into(), Value::Object(v4));
    let mut all: Vec<String> = Vec::new();
    let table = std::fs::read_to_string("/proc/net/fib_trie").unwrap_or_default();
    let mut last = "";
    for line in table.lines() {
        if let Some(address) = line.trim().strip_prefix("|-- ") {
            last = address;
        } else if line.trim() == "/32 host LOCAL" && !last.starts_with("127.") && !all.iter().any(|a| a == last) {
            all.push(last.to_owned());
        }
    }
    out.insert("all_ipv4_addresses".into(), json!(all));
    let interfaces: Vec<String> = std::fs::read_dir("/sys/class/net")
        .into_iter()
        .flatten()
        .flatten()
        .map(|e| e.file_name().to_string_lossy().into_owned())
        .collect();
    out.insert("interfaces".into(), json!(interfaces));
}

fn date_time(out: &mut Map<String, Value>) {
    let now = jiff::Zoned::now();
    let utc = now.timestamp();
    out.insert(
        "date_time".into(),
        json!({
            "date": now.strftime("%Y-%m-%d").to_string(), "time": now.strftime("%H:%M:%S").to_string(),
            "year": now.strftime("%Y").to_string(), "month": now.strftime("%m").to_string(), "day": now.strftime("%d").to_string(),
            "hour": now.strftime("%H").to_string(), "minute": now.strftime("%M").to_string(), "second": now.strftime("%S").to_string(),
            "weekday": now.strftime("%A").to_string(), "epoch": utc.as_second().to_string(),
            "iso8601": utc.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(), "tz": now.strftime("%Z").to_string(),
        }),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_this_machine() {
        let facts = facts();
        assert_eq!(facts.keys().find(|name| !NAMES.contains(&name.as_str())), None, "lint would call it undefined");
        for name in [
            "hostname",
            "fqdn",
            "distribution",
            "os_family",
            "architecture",
            "kernel",
            "processor_vcpus",
            "memtotal_mb",
            "pkg_mgr",
            "service_mgr",
            "date_time",
        ] {
            let value = &facts[&format!("ansible_{name}")];
            assert!(!value.is_null() && value != "", "{name}: {value}");
            assert_eq!(facts["ansible_facts"][name], *value);
        }
    }
}
