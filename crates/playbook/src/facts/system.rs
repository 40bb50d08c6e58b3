//! Facts about the installed system: distribution, package manager, service manager, security
//! modules.

use super::FactsRoot;
use serde_json::{Map, Value, json};

pub fn gather_system(root: &FactsRoot, out: &mut Map<String, Value>) {
    distribution(root, out);
    lsb(root, out);
    out.insert("pkg_mgr".into(), json!(package_manager(root, out)));
    out.insert("service_mgr".into(), json!(service_manager(root)));
    out.insert("selinux".into(), selinux(root));
    let apparmor = if root.exists("/sys/kernel/security/apparmor") { "enabled" } else { "disabled" };
    out.insert("apparmor".into(), json!({ "status": apparmor }));
    out.insert("fips".into(), json!(root.read_word("/proc/sys/crypto/fips_enabled").as_deref() == Some("1")));
    out.insert(
        "machine_id".into(),
        json!(root.read_word("/var/lib/dbus/machine-id").or(root.read_word("/etc/machine-id"))),
    );
    for kind in ["rsa", "ecdsa", "ed25519"] {
        let text = root.read(&format!("/etc/ssh/ssh_host_{kind}_key.pub"));
        let mut words = text.split_whitespace();
        if let (Some(of), Some(key)) = (words.next(), words.next()) {
            out.insert(format!("ssh_host_key_{kind}_public"), json!(key));
            out.insert(format!("ssh_host_key_{kind}_public_keytype"), json!(of));
        }
    }
}

/// Returns a lookup in `KEY=value` lines. It gives the value without quotes, or an empty text if
/// the key does not exist.
fn fields(text: &str) -> impl Fn(&str) -> String + '_ {
    move |key: &str| {
        let line = text.lines().find_map(|l| l.trim().strip_prefix(key)?.strip_prefix('='));
        line.map(|v| v.trim().trim_matches(['"', '\'']).to_owned()).unwrap_or_default()
    }
}

/// `ID` in os-release, and Ansible's names of the distribution and its family.
const DISTRIBUTIONS: &[(&str, &str, &str)] = &[
    ("debian", "Debian", "Debian"),
    ("raspbian", "Debian", "Debian"),
    ("ubuntu", "Ubuntu", "Debian"),
    ("linuxmint", "Linux Mint", "Debian"),
    ("kali", "Kali", "Debian"),
    ("devuan", "Devuan", "Debian"),
    ("pop", "Pop!_OS", "Debian"),
    ("rhel", "RedHat", "RedHat"),
    ("centos", "CentOS", "RedHat"),
    ("fedora", "Fedora", "RedHat"),
    ("rocky", "Rocky", "RedHat"),
    ("almalinux", "AlmaLinux", "RedHat"),
    ("ol", "OracleLinux", "RedHat"),
    ("amzn", "Amazon", "RedHat"),
    ("openEuler", "openEuler", "RedHat"),
    ("alpine", "Alpine", "Alpine"),
    ("arch", "Archlinux", "Archlinux"),
    ("manjaro", "Manjaro", "Archlinux"),
    ("opensuse-leap", "openSUSE Leap", "Suse"),
    ("opensuse-tumbleweed", "openSUSE Tumbleweed", "Suse"),
    ("sles", "SLES", "Suse"),
    ("sled", "SLED", "Suse"),
    ("gentoo", "Gentoo", "Gentoo"),
    ("flatcar", "Flatcar", "Flatcar"),
    ("openwrt", "OpenWrt", "OpenWrt"),
];

fn distribution(root: &FactsRoot, out: &mut Map<String, Value>) {
    let text = root.read("/etc/os-release");
    let text = if text.is_empty() { root.read("/usr/lib/os-release") } else { text };
    let field = fields(&text);
    let id = field("ID");
    let like = field("ID_LIKE");
    let known = DISTRIBUTIONS.iter().find(|(own, _, _)| *own == id);
    let name = known.map_or_else(|| field("NAME"), |(_, name, _)| (*name).to_owned());
    // An unknown distribution has the family of the first known one in `ID_LIKE`.
    let parent = || DISTRIBUTIONS.iter().find(|(own, _, _)| like.split_whitespace().any(|l| l == *own));
    let family = known.or_else(parent).map_or_else(|| name.clone(), |(_, _, family)| (*family).to_owned());
    let mut version = field("VERSION_ID");
    let release = match family.as_str() {
        // SUSE releases have no code name; Ansible reports the minor version.
        "Suse" => version.split_once('.').map_or_else(|| "0".to_owned(), |(_, minor)| minor.to_owned()),
        _ => {
            let files = ["/etc/centos-release", "/etc/redhat-release"].map(|path| root.read(path));
            let named = [field("VERSION_CODENAME"), field("UBUNTU_CODENAME")].into_iter().find(|name| !name.is_empty());
            // The code name of the release is in parentheses, as in `9.4 (Blue Onyx)`.
            let inside = |text: &str| Some(text.split_once('(')?.1.split_once(')')?.0.to_owned());
            named
                .or_else(|| inside(&field("VERSION")))
                .or_else(|| files.iter().find_map(|f| inside(f)))
                .unwrap_or_default()
        }
    };
    let mut minor = None;
    let exact = root.read_word("/etc/debian_version").unwrap_or_default();
    if matches!(id.as_str(), "debian" | "raspbian") && exact.starts_with(|c: char| c.is_ascii_digit()) {
        minor = exact.split_once('.').map(|(_, minor)| minor.to_owned());
        version = exact;
    } else if matches!(id.as_str(), "rhel" | "centos" | "rocky" | "almalinux" | "fedora" | "ol") {
        // These files are more exact than os-release. For CentOS 9.4, os-release contains only `9`.
        let own = root.read_word("/etc/centos-release").or(root.read_word("/etc/redhat-release")).unwrap_or_default();
        let long = own.split_whitespace().find(|w| w.starts_with(|c: char| c.is_ascii_digit())).unwrap_or_default();
        let long: Vec<&str> = long.split('.').take(2).collect();
        if long.first().is_some_and(|major| version.split('.').next() == Some(major)) {
            version = long.join(".");
        }
    } else if id == "amzn" {
        minor = Some(version.split_once('.').map_or_else(|| "NA".to_owned(), |(_, minor)| minor.to_owned()));
    }
    let or = |text: String| if text.is_empty() { "NA".to_owned() } else { text };
    let version = or(version);
    let variety = match family.as_str() {
        "Suse" => "SUSE",
        "Debian" | "Alpine" | "Archlinux" => family.as_str(),
        _ if name == "CentOS" => "CentOS",
        _ => family.as_str(),
    };
    let path = match variety {
        "RedHat" => "/etc/redhat-release",
        "CentOS" => "/etc/centos-release",
        "Alpine" => "/etc/alpine-release",
        "Archlinux" => "/etc/arch-release",
        _ => "/etc/os-release",
    };
    out.insert("distribution".into(), json!(or(name)));
    out.insert("os_family".into(), json!(or(family.clone())));
    out.insert("distribution_major_version".into(), json!(version.split('.').next()));
    out.extend(minor.map(|m| ("distribution_minor_version".to_owned(), json!(m))));
    out.insert("distribution_version".into(), json!(version));
    out.insert("distribution_release".into(), json!(or(release)));
    out.insert("distribution_file_parsed".into(), json!(true));
    out.insert("distribution_file_path".into(), json!(path));
    out.insert("distribution_file_variety".into(), json!(variety));
}

/// The LSB facts from `/etc/lsb-release`. If the file does not exist but the tool `lsb_release` is
/// installed, they come from os-release, which the tool reads too.
fn lsb(root: &FactsRoot, out: &mut Map<String, Value>) {
    let (own, release) = (root.read("/etc/lsb-release"), root.read("/etc/os-release"));
    let mut found = Map::new();
    if own.contains("DISTRIB_ID") {
        let field = fields(&own);
        for (name, key) in [
            ("id", "DISTRIB_ID"),
            ("release", "DISTRIB_RELEASE"),
            ("description", "DISTRIB_DESCRIPTION"),
            ("codename", "DISTRIB_CODENAME"),
        ] {
            found.insert(name.into(), json!(field(key)));
        }
    } else if root.exists("/usr/bin/lsb_release") {
        let field = fields(&release);
        let id = field("ID");
        found.insert("id".into(), json!(crate::filters::capitalize(&id)));
        found.insert("release".into(), json!(field("VERSION_ID")));
        found.insert("description".into(), json!(field("PRETTY_NAME")));
        found.insert("codename".into(), json!(field("VERSION_CODENAME")));
    }
    if let Some(release) = found.get("release").and_then(Value::as_str) {
        found.insert("major_release".into(), json!(release.split('.').next()));
    }
    out.insert("lsb".into(), Value::Object(found));
}

fn package_manager(root: &FactsRoot, out: &Map<String, Value>) -> &'static str {
    let family = out.get("os_family").and_then(Value::as_str).unwrap_or_default();
    let managers = [
        ("/usr/bin/rpm-ostree", "atomic_container"),
        ("/usr/bin/dnf5", "dnf5"),
        ("/usr/bin/dnf", "dnf"),
        ("/usr/bin/yum", "yum"),
        ("/usr/bin/apt-get", "apt"),
        ("/usr/bin/zypper", "zypper"),
        ("/usr/bin/pacman", "pacman"),
        ("/bin/opkg", "opkg"),
        ("/sbin/apk", "apk"),
        ("/usr/bin/emerge", "portage"),
        ("/usr/bin/xbps-install", "xbps"),
        ("/usr/bin/swupd", "swupd"),
    ];
    // The package manager of another distribution may be installed in addition to the system's own.
    if family == "Debian" && root.exists("/usr/bin/apt-get") {
        return "apt";
    }
    managers.iter().find(|(path, _)| root.exists(path)).map_or("unknown", |(_, name)| name)
}

fn service_manager(root: &FactsRoot) -> String {
    let first = root.read_word("/proc/1/comm").unwrap_or_default();
    let known = match first.as_str() {
        "procd" => Some("openwrt_init"),
        "runit-init" => Some("runit"),
        "svscan" => Some("svc"),
        "openrc-init" => Some("openrc"),
        // Several init systems have the name `init`, and in a container process 1 is often a shell.
        "" | "init" => None,
        name if name.ends_with("sh") => None,
        name => Some(name),
    };
    if let Some(known) = known {
        return known.to_owned();
    }
    let found = [
        ("/run/systemd/system", "systemd"),
        ("/etc/init", "upstart"),
        ("/sbin/openrc", "openrc"),
        ("/etc/init.d", "sysvinit"),
        ("/etc/dinit.d", "dinit"),
    ];
    found.iter().find(|(path, _)| root.exists(path)).map_or("service", |(_, name)| name).to_owned()
}

fn selinux(root: &FactsRoot) -> Value {
    if !root.exists("/sys/fs/selinux/enforce") {
        return json!({"status": "disabled"});
    }
    let text = root.read("/etc/selinux/config");
    let field = fields(&text);
    let mode =
        if root.read_word("/sys/fs/selinux/enforce").as_deref() == Some("1") { "enforcing" } else { "permissive" };
    let version = root.read_word("/sys/fs/selinux/policyvers").and_then(|v| v.parse::<u32>().ok());
    json!({
        "status": "enabled", "mode": mode, "config_mode": field("SELINUX"), "type": field("SELINUXTYPE"), "policyvers": version,
    })
}
