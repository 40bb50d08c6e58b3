//! Tests the check files that remoor ships for services that it does not set up: their contents,
//! the reactions to failures, and the values that their matchers accept. If goss is on the PATH,
//! goss must accept the files.

use super::*;
use expect_test::expect;
use remoor_model::OnFail;
use serde_json::{Value, json};
use std::process::Command;

const SHIPPED: [(&str, &str); 3] = [
    ("base", include_str!("../../../../checks/base.yml")),
    ("chrony", include_str!("../../../../checks/chrony.yml")),
    ("sshd", include_str!("../../../../checks/sshd.yml")),
];

/// The shipped check file `name`, rendered for the node w1.example. `vars` overrides the variables
/// of the file.
fn render_shipped(name: &str, vars: Value) -> String {
    let text = SHIPPED.iter().find(|(file, _)| *file == name).expect(name).1;
    let (head, goss) = header(name, text).unwrap_or_else(|faults| panic!("{}", lines(&faults)));
    assert_eq!(head.service.as_str(), name);
    let mut all = head.vars.clone();
    all.extend(vars.as_object().expect("a map").clone());
    let context = json!({"node": {"name": "w1.example"}, "vars": all, "peers": [], "expected": {}});
    let context = context.as_object().expect("a map").clone();
    render(name, &head, &goss, &context).unwrap_or_else(|faults| panic!("{}", lines(&faults)))
}

/// Whether the assertion for a property of one check holds for a value.
fn holds(text: &str, label: &str, property: &str, value: &str) -> bool {
    let checks = checks(text);
    let check = checks.iter().find(|check| check.label() == label).expect(label);
    let assertion = check.assertions.iter().find(|one| one.property == property).expect(property);
    assertion.matcher.matches(&value.into()).expect("an answer")
}

#[test]
fn shipped_checks_never_trigger_a_resetup() {
    let mut told = String::new();
    for (name, _) in SHIPPED {
        for check in checks(&render_shipped(name, json!({"base_timezone": "Etc/UTC", "sshd_wanted": ["usedns no"]}))) {
            assert_ne!(check.meta.on_fail, OnFail::Resetup, "{name}: {}", check.label());
            told += &format!("{name} {} {:?} {:?}\n", check.label(), check.meta.severity, check.meta.on_fail);
        }
    }
    expect![[r#"
        base mount:/ Warning Alert
        base mount:var Info None
        base mount:var-on-root Info None
        base service:remoor.service Warning Alert
        base command:failed-units Warning Alert
        base kernel-param:kernel.hostname Warning Alert
        base file:/etc/resolv.conf Info None
        base file:/etc/nsswitch.conf Info None
        base file:/etc/machine-id Warning Alert
        base file:/etc/localtime Warning Alert
        base file:/etc/passwd Critical Alert
        base file:/etc/group Critical Alert
        base file:/etc/shadow Critical Alert
        base file:/tmp Warning Alert
        base any-of:names-resolve Warning Alert
        base any-of:room-on-var Warning Alert
        chrony service:chrony.service Warning Alert
        chrony service:systemd-timesyncd.service Warning Alert
        chrony command:synchronised Warning Alert
        chrony command:offset Warning Alert
        chrony file:/etc/chrony/chrony.conf Warning Alert
        sshd service:sshd Info None
        sshd service:sshd-socket Info None
        sshd port:sshd-ipv4 Info None
        sshd port:sshd-ipv6 Info None
        sshd command:config Critical Alert
        sshd command:settings Info None
        sshd command:settings-wanted Warning Alert
        sshd file:/etc/ssh/sshd_config Critical Alert
        sshd file:/etc/ssh/ssh_host_ed25519_key Critical Alert
        sshd any-of:started Critical Alert
        sshd any-of:listening Critical Alert
    "#]]
    .assert_eq(&told);
}

#[test]
fn sshd_must_admit_managers() {
    let (root, other) = (render_shipped("sshd", json!({})), render_shipped("sshd", json!({"ansible_user": "admin"})));
    for (line, lets_root, lets_other) in [
        ("permitrootlogin without-password", true, true),
        ("permitrootlogin yes", true, true),
        ("permitrootlogin no", false, true),
        ("permitrootlogin forced-commands-only", false, true),
        ("pubkeyauthentication yes", true, true),
        ("pubkeyauthentication no", false, false),
        ("authenticationmethods any", true, true),
        ("authenticationmethods publickey", true, true),
        ("authenticationmethods publickey password", true, true),
        ("authenticationmethods password,publickey publickey", true, true),
        ("authenticationmethods publickey,password", false, false),
        ("authenticationmethods password", false, false),
        ("authenticationmethods publickey,password keyboard-interactive,password", false, false),
        ("maxsessions 10", true, true),
        ("maxsessions 0", false, false),
    ] {
        // `sshd -T` prints a line for each setting, also for a setting with its default value.
        let methods = if line.starts_with("authenticationmethods") { "" } else { "authenticationmethods any\n" };
        let text = format!("port 22\n{line}\n{methods}usedns no\n");
        let lets = [&root, &other].map(|file| holds(file, "command:config", "stdout", &text));
        assert_eq!(lets, [lets_root, lets_other], "{line}");
    }
    let exec = |text: &str| checks(text).iter().find(|c| c.label() == "command:config").map(|c| c.name.clone());
    assert!(
        exec(&other)
            .is_some_and(|exec| exec.ends_with("-C user=admin,host=127.0.0.1,addr=127.0.0.1,laddr=127.0.0.1,lport=22"))
    );
    // If sshd cannot be queried, the output reports this and no check fails.
    let wanted = render_shipped("sshd", json!({"sshd_wanted": ["usedns yes"], "sshd_socket": "no-such.socket"}));
    let exec = |name: &str| checks(&wanted).iter().find(|c| c.label() == name).map(|c| c.name.clone()).expect(name);
    for name in ["command:config", "command:settings", "command:settings-wanted"] {
        // Simulates an active socket unit without the directory `/run/sshd`. The rest of the
        // command does not depend on this machine.
        let asked = exec(name).replace("[ ! -d /run/sshd ] && systemctl -q is-active no-such.socket", "true");
        let output = Command::new("sh").arg("-c").arg(asked).output().expect("a shell");
        let told = String::from_utf8(output.stdout).expect("a text");
        assert!(output.status.success() && told.starts_with("the settings were not read"), "{name}: {told}");
        assert!(holds(&wanted, name, "stdout", &told), "{name}: {told}");
        assert!(
            name == "command:config" || !holds(&wanted, name, "stdout", "permitrootlogin yes\nusedns no\n"),
            "{name}"
        );
    }
    // Quotes and special characters in a variable stay unchanged.
    let wanted = render_shipped("sshd", json!({"sshd_wanted": ["banner 'none'", "/^port \\d+$/"]}));
    let settings = "command:settings-wanted";
    assert!(
        holds(&wanted, settings, "stdout", "banner 'none'\nport 22\n")
            && !holds(&wanted, settings, "stdout", "port 22\n")
    );
}

#[test]
fn the_clock_is_synchronised() {
    let text = render_shipped("chrony", json!({}));
    for (leap, is) in [("Normal", true), ("Insert second", true), ("Not synchronised", false)] {
        let told = format!("Stratum         : 3\nLeap status     : {leap}\n");
        assert_eq!(holds(&text, "command:synchronised", "stdout", &told), is, "{leap}");
    }
    assert!(!holds(&text, "command:synchronised", "stdout", ""));
    // Only the part of the command line after the pipe is run, because chrony may be absent.
    let checks = checks(&text);
    let offset = checks.iter().find(|check| check.label() == "command:offset").expect("offset");
    let (_, awk) = offset.name.split_once(" | ").expect("a pipe");
    let right = |told: &str| {
        let status =
            Command::new("sh").arg("-c").arg(format!("printf '%s' \"$TOLD\" | {awk}")).env("TOLD", told).status();
        status.expect("a shell").success()
    };
    for (told, is) in [
        ("System time     : 0.000012345 seconds slow of NTP time\nLast offset : 9 seconds\n", true),
        ("System time     : 0.100000001 seconds fast of NTP time\n", false),
        ("506 Cannot talk to daemon\n", false),
        ("", false),
    ] {
        assert_eq!(right(told), is, "{told}");
    }
}

#[test]
fn file_modes_are_checked() {
    let (base, sshd) = (render_shipped("base", json!({})), render_shipped("sshd", json!({})));
    for (mode, shadow, config) in [
        ("0640", true, true),
        ("0600", true, true),
        ("0000", true, true),
        ("0644", false, true),
        ("0660", false, false),
        ("0646", false, false),
        ("4640", false, false),
    ] {
        let found =
            [holds(&base, "file:/etc/shadow", "mode", mode), holds(&sshd, "file:/etc/ssh/sshd_config", "mode", mode)];
        assert_eq!(found, [shadow, config], "{mode}");
    }
}

#[test]
fn name_resolution_is_configured() {
    let base = render_shipped("base", json!({}));
    for (text, is) in [
        ("# by hand\nnameserver 192.0.2.53\n", true),
        ("nameserver 127.0.0.53\noptions edns0 trust-ad\n", true),
        ("# nameserver 192.0.2.53\nsearch example.org\n", false),
        ("", false),
    ] {
        assert_eq!(holds(&base, "file:/etc/resolv.conf", "contents", text), is, "{text}");
    }
    for (hosts, is) in [
        ("files dns", false),
        ("files dns myhostname", false),
        ("files resolve [!UNAVAIL=return] dns", true),
        ("files", true),
    ] {
        let text = format!("passwd: files\nhosts:          {hosts}\nnetworks: files\n");
        assert_eq!(holds(&base, "file:/etc/nsswitch.conf", "contents", &text), is, "{hosts}");
    }
    assert!(!holds(&base, "file:/etc/nsswitch.conf", "contents", "passwd: files\n"));
}

#[test]
fn a_node_has_the_name_of_the_inventory_or_the_first_part_of_it() {
    let (own, named) = (render_shipped("base", json!({})), render_shipped("base", json!({"base_hostname": "other"})));
    for (hostname, is, is_named) in
        [("w1.example", true, false), ("w1", true, false), ("w1.exampl", false, false), ("other", false, true)]
    {
        let found = [&own, &named].map(|text| holds(text, "kernel-param:kernel.hostname", "value", hostname));
        assert_eq!(found, [is, is_named], "{hostname}");
    }
}

#[test]
fn goss_accepts_shipped_checks() {
    for (name, _) in SHIPPED {
        let text = render_shipped(name, json!({"base_timezone": "Etc/UTC", "sshd_wanted": ["usedns no"]}));
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("goss.yaml");
        std::fs::write(&file, text).unwrap();
        let Ok(output) = Command::new("goss").arg("-g").arg(&file).arg("validate").arg("-f").arg("json").output()
        else {
            eprintln!("SKIPPED: GOSS IS NOT ON THE PATH, SO IT WAS NOT CHECKED WHETHER IT ACCEPTS THE SHIPPED CHECKS");
            return;
        };
        // An exit code other than 0 and 1, such as 78, means that goss cannot read the file.
        let told = String::from_utf8_lossy(&output.stdout);
        assert!(matches!(output.status.code(), Some(0 | 1)) && told.contains("\"test-count\""), "{name}: {output:?}");
    }
}
