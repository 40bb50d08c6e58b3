//! What a failed assertion means, and the command that shows more about it. Pure.

use super::load::{Assertion, Check};
use super::redact::redact_passwords;
use super::spec::ResourceKind;
use remoor_host::systemd::unit_name;
use serde_json::Value;

/// One row of the table of hints. In `command`, `NAME` stands for the name of the resource.
struct Hint {
    kind: ResourceKind,
    /// The properties to which the row applies. All, if the list is empty.
    properties: &'static [&'static str],
    /// The meaning of a failure if the found value is false or there is none, and otherwise.
    absent: &'static str,
    other: &'static str,
    /// Empty if no command shows more.
    command: &'static str,
}

const fn hint(
    kind: ResourceKind,
    properties: &'static [&'static str],
    [absent, other]: [&'static str; 2],
    command: &'static str,
) -> Hint {
    Hint { kind, properties, absent, other, command }
}

/// The hints. The first row that applies to an assertion is used.
const HINTS: [Hint; 33] = [
    hint(
        ResourceKind::Service,
        &["running"],
        ["the unit does not run", "the unit runs"],
        "systemctl status NAME; journalctl -u NAME -n 20",
    ),
    hint(
        ResourceKind::Service,
        &["enabled"],
        ["the unit does not start at boot", "the unit starts at boot"],
        "systemctl is-enabled NAME",
    ),
    hint(
        ResourceKind::Service,
        &["last-run-age", "next-run-in"],
        ["the timer did not run, or is not active", "the timer does not run as often as expected"],
        "systemctl list-timers --all NAME",
    ),
    hint(
        ResourceKind::Service,
        &["last-result"],
        ["", "the last run that the timer started failed"],
        "systemctl status NAME",
    ),
    hint(ResourceKind::Service, &[], ["", "systemd has another value"], "systemctl show NAME"),
    hint(
        ResourceKind::Port,
        &["listening"],
        ["no program listens on the port", "a program listens on the port"],
        "ss -lntup",
    ),
    hint(ResourceKind::Port, &[], ["", "the program listens on other addresses"], "ss -lntup"),
    hint(ResourceKind::Process, &["running"], ["no such process runs", "such a process runs"], "pgrep -a NAME"),
    hint(ResourceKind::Process, &[], ["", "another number of processes run"], "pgrep -a NAME"),
    hint(ResourceKind::File, &["exists"], ["the file is missing", "the file exists"], "ls -ld NAME"),
    hint(
        ResourceKind::File,
        &["mode", "owner", "group", "uid", "gid", "filetype", "size", "linked-to"],
        ["the attributes of the file differ", "the attributes of the file differ"],
        "stat NAME",
    ),
    hint(
        ResourceKind::File,
        &[],
        ["the content of the file does not have the value", "the content of the file differs"],
        "less NAME",
    ),
    hint(
        ResourceKind::Command,
        &[],
        ["the output of the command does not have the value", "the command gave another result"],
        "",
    ),
    hint(
        ResourceKind::Http,
        &["status"],
        ["the server gave no usable answer", "the server answered with another status"],
        "curl -v NAME",
    ),
    hint(
        ResourceKind::Http,
        &[],
        ["the answer of the server does not have the value", "the answer of the server differs"],
        "curl -v NAME",
    ),
    hint(ResourceKind::Dns, &["resolvable"], ["the name does not resolve", "the name resolves"], "getent ahosts NAME"),
    hint(ResourceKind::Dns, &[], ["", "the name resolves to other values"], "getent ahosts NAME"),
    hint(ResourceKind::Addr, &[], ["nothing answers at the address", "the address answers"], "ip route get"),
    hint(
        ResourceKind::Mount,
        &["exists"],
        ["nothing is mounted there", "a file system is mounted there"],
        "findmnt NAME",
    ),
    hint(
        ResourceKind::Mount,
        &["usage"],
        ["the file system has no size", "the file system is fuller than expected"],
        "df -h NAME; du -xhd1 NAME",
    ),
    hint(ResourceKind::Mount, &[], ["", "the file system is mounted in another way"], "findmnt NAME"),
    hint(
        ResourceKind::Filesystem,
        &["usage", "free-bytes"],
        ["the path does not exist, or its file system has no size", "the file system is fuller than expected"],
        "df -h NAME; du -xhd1 NAME",
    ),
    hint(
        ResourceKind::Filesystem,
        &["inode-usage"],
        ["the path does not exist", "the file system has too many files"],
        "df -i NAME; du -x --inodes -d1 NAME",
    ),
    hint(
        ResourceKind::Filesystem,
        &[],
        ["the path does not exist", "another file system holds the path"],
        "findmnt -T NAME",
    ),
    hint(ResourceKind::Journal, &[], ["", "the journal has other entries than expected"], "journalctl -u NAME -n 20"),
    hint(ResourceKind::Package, &["installed"], ["the package is not installed", "the package is installed"], ""),
    hint(ResourceKind::Package, &[], ["", "another version is installed"], ""),
    hint(ResourceKind::User, &["exists"], ["the user does not exist", "the user exists"], "getent passwd NAME"),
    hint(ResourceKind::User, &[], ["", "the attributes of the user differ"], "id NAME; getent passwd NAME"),
    hint(
        ResourceKind::Group,
        &[],
        ["the group does not exist", "the group exists, or has another number"],
        "getent group NAME",
    ),
    hint(
        ResourceKind::KernelParam,
        &[],
        ["the kernel has no such parameter", "the kernel has another value"],
        "sysctl NAME",
    ),
    hint(ResourceKind::Interface, &[], ["there is no such interface", "the interface differs"], "ip addr show NAME"),
    hint(ResourceKind::Cert, &[], ["the certificate cannot be used", "the certificate differs, or expires soon"], ""),
];

/// What the failure of an assertion means, and the next command. None for groups and for a
/// `matching` check. Shows neither a found value nor a password.
pub(super) fn failure_hint(check: &Check, assertion: &Assertion, found: Option<&Value>) -> Option<String> {
    let applies = |row: &&Hint| {
        row.kind == check.kind && (row.properties.is_empty() || row.properties.contains(&assertion.property))
    };
    let row = HINTS.iter().find(applies)?;
    let is_absent = matches!(found, None | Some(Value::Bool(false))) && !row.absent.is_empty();
    let meaning = if is_absent { row.absent } else { row.other };
    Some(match command(check, row.command) {
        Some(command) => format!("{meaning}; next: {command}"),
        None => meaning.to_owned(),
    })
}

/// The command with the name of the resource. None if no command is known.
fn command(check: &Check, command: &str) -> Option<String> {
    let name = check.name.as_str();
    let unit = |name: &str| quote(&unit_name(name));
    match check.kind {
        _ if command.is_empty() => None,
        ResourceKind::Service => Some(command.replace("NAME", &unit(name))),
        ResourceKind::Journal if name == "*" => Some(command.replace("-u NAME ", "")),
        ResourceKind::Journal => Some(command.replace("NAME", &unit(name))),
        // The address is a host and a port, and the command takes a host.
        ResourceKind::Addr => {
            let host = name.rsplit("://").next()?.rsplit_once(':')?.0.trim_matches(['[', ']']);
            Some(format!("{command} {}", quote(host)))
        }
        // The system's resolver knows only addresses.
        ResourceKind::Dns if name.contains(':') || check.arguments.contains_key("server") => None,
        _ => Some(command.replace("NAME", &quote(&redact_passwords(name)))),
    }
}

/// Quotes a text for a shell if necessary.
fn quote(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "@%+=:,./_-".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::super::spec::{EXTENSION_SPECS, SPECS};
    use super::*;

    /// The hint of the first assertion of the only check.
    fn hint_of(text: &str, found: Option<Value>) -> String {
        let checks = super::super::parse("f.yml", &"s".into(), text).unwrap();
        failure_hint(&checks[0], &checks[0].assertions[0], found.as_ref()).unwrap_or_default()
    }

    #[test]
    fn the_meaning_and_the_next_command() {
        for (text, found, wanted) in [
            (
                "service: {nginx: {running: true}}",
                Some(false.into()),
                "the unit does not run; next: systemctl status nginx.service; journalctl -u nginx.service -n 20",
            ),
            (
                "service: {web: {name: nginx, enabled: false}}",
                Some(true.into()),
                "the unit starts at boot; next: systemctl is-enabled nginx.service",
            ),
            (
                "port: {tcp:80: {listening: true}}",
                Some(false.into()),
                "no program listens on the port; next: ss -lntup",
            ),
            (
                "file: {\"/a b/it's\": {exists: true}}",
                Some(false.into()),
                "the file is missing; next: ls -ld '/a b/it'\\''s'",
            ),
            (
                "http: {'http://me:secret@127.0.0.1/x?a=1': {status: 200}}",
                None,
                "the server gave no usable answer; next: curl -v 'http://me:***@127.0.0.1/x?a=1'",
            ),
            ("command: {a: {exec: echo secret, exit-status: 0}}", Some(1.into()), "the command gave another result"),
            (
                "addr: {'tcp://192.0.2.1:80': {reachable: true}}",
                Some(false.into()),
                "nothing answers at the address; next: ip route get 192.0.2.1",
            ),
            (
                "dns: {MX:a.example: {resolvable: true, server: 192.0.2.1}}",
                Some(false.into()),
                "the name does not resolve",
            ),
            (
                "filesystem: {/var: {usage: {lt: 90}}}",
                Some(95.into()),
                "the file system is fuller than expected; next: df -h /var; du -xhd1 /var",
            ),
            (
                "journal: {a: {count: 0}}",
                Some(3.into()),
                "the journal has other entries than expected; next: journalctl -u a.service -n 20",
            ),
            (
                "journal: {all: {unit: '*', count: 0}}",
                Some(3.into()),
                "the journal has other entries than expected; next: journalctl -n 20",
            ),
            ("matching: {a: {content: 1, matches: 2}}", Some(1.into()), ""),
        ] {
            assert_eq!(hint_of(text, found), wanted, "{text}");
        }
    }

    #[test]
    fn each_property_of_a_type_with_hints_has_one() {
        for spec in SPECS.iter().chain(&EXTENSION_SPECS) {
            let rows: Vec<&Hint> = HINTS.iter().filter(|row| row.kind == spec.kind).collect();
            assert_eq!(rows.is_empty(), spec.kind.is_group() || spec.kind == ResourceKind::Matching, "{}", spec.name);
            for name in rows.iter().flat_map(|row| row.properties) {
                let known = spec.attributes.iter().chain(spec.extensions()).any(|(known, _)| known == name);
                assert!(known, "{} has no {name}", spec.name);
            }
        }
    }
}
