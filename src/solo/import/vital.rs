//! Paths and units that a cleanup must not touch, because managers need them to reach the node and
//! to set it up again, or because they protect the node.

/// Units by the beginning of their name.
const UNITS: [&str; 34] = [
    "NetworkManager",
    "apparmor",
    "cloud-",
    "connman",
    "cron",
    "dbus",
    "dhcpcd",
    "firewalld",
    "getty@",
    "ifup@",
    "iptables",
    "netfilter-persistent",
    "netplan",
    "network",
    "nftables",
    "open-vm-tools",
    "openvpn",
    "polkit",
    "qemu-guest-agent",
    "remoor",
    "resolvconf",
    "serial-getty@",
    "shorewall",
    "ssh",
    "strongswan",
    "systemd-",
    "tailscaled",
    "tinc",
    "udev",
    "ufw",
    "unbound",
    "wg-quick@",
    "wpa_supplicant",
    "zerotier",
];
/// Kinds of units that are no services.
const KINDS: [&str; 5] = [".mount", ".swap", ".target", ".slice", ".automount"];
/// Files, and directories with everything below them.
const PATHS: [&str; 46] = [
    "/boot",
    "/efi",
    "/etc/NetworkManager",
    "/etc/apparmor.d",
    "/etc/apt",
    "/etc/bash.bashrc",
    "/etc/ca-certificates",
    "/etc/cron.d/remoor",
    "/etc/crontab",
    "/etc/crypttab",
    "/etc/default/grub",
    "/etc/default/grub.d",
    "/etc/environment",
    "/etc/firewalld",
    "/etc/fstab",
    "/etc/group",
    "/etc/gshadow",
    "/etc/hostname",
    "/etc/hosts",
    "/etc/iptables",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/localtime",
    "/etc/login.defs",
    "/etc/modprobe.d",
    "/etc/modules",
    "/etc/netplan",
    "/etc/network",
    "/etc/nftables.conf",
    "/etc/nsswitch.conf",
    "/etc/openvpn",
    "/etc/pam.d",
    "/etc/passwd",
    "/etc/profile",
    "/etc/resolv.conf",
    "/etc/security",
    "/etc/shadow",
    "/etc/ssh",
    "/etc/ssl",
    "/etc/sudoers",
    "/etc/sudoers.d",
    "/etc/systemd/network",
    "/etc/systemd/resolved.conf",
    "/etc/udev",
    "/etc/ufw",
    "/etc/wireguard",
];

/// Whether a cleanup must not stop this unit.
pub(super) fn is_vital_unit(unit: &str) -> bool {
    UNITS.iter().any(|begin| unit.starts_with(begin)) || KINDS.iter().any(|kind| unit.ends_with(kind))
}

/// Whether a cleanup must not remove this file.
pub(super) fn is_vital_path(path: &str) -> bool {
    PATHS.iter().any(|vital| is_below(path, vital)) || path.contains("/.ssh/") || path.starts_with("/etc/yum")
}

/// Whether `path` is `dir` or below it.
pub(super) fn is_below(path: &str, dir: &str) -> bool {
    path.strip_prefix(dir).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}
