//! Tests whole fleets: the faults of `remoor.yml` as users see them, and lookups in a valid fleet.

use super::{Fleet, INVENTORY_FILE, Notify, NotifyOn, NotifyTo, Provisioner};
use expect_test::{Expect, expect, expect_file};
use remoor_model::{FileSet, Limits, Policy, ServiceName, Trigger};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt;

const GOOD: &str = r#"version: 1
inventory: inventory.yml
vars: {ntp: 10.0.0.1, who: global, "yes": no}
ssh: {user: admin, port: 2222, identity: /keys/id, connect-timeout: 2s, config: ssh_config, sudo: true}
groups:
  web:
    services: [nginx, etcd]
    provision: playbooks/provision.yml
    cleanup: ./playbooks/cleanup.yml
    provisioner: ansible
    policy: {network: resetup, live: check}
    quorum: true
    scope: group
    parallel: 2
    vars: {who: group, port: 80}
services:
  nginx:
    files: [/etc/nginx/nginx.conf, /etc/nginx/conf.d/, "/etc/nginx/*.d/*.conf"]
    exclude: [/etc/nginx/conf.d/local-*]
    secret: [/etc/nginx/key.pem]
    normalize: ['^# generated']
    keep: [/etc/nginx/mime.types]
    units: [nginx.service]
    state: [/var/lib/nginx]
    depends-on: [etcd]
    tags: [nginx, proxy]
    resetup-on-recorded: true
  etcd: {}
limits: {settle: 1s, retry: [500ms, 2h], flap-count: 4, fleet-percent: 50, leader-grace: 0s}
notify:
  - {command: [/usr/local/bin/page, now], on: [held, alert], text: "{{ node }} is held"}
  - webhook: "http://127.0.0.1:9/x"
"#;

const INVENTORY: &str = "web:\n  hosts:\n    w1: {ansible_host: 10.0.0.11, port: 8080}\n    w2: {ansible_port: '22', \
    ansible_user: root, ansible_become: false, ansible_ssh_private_key_file: /k,\n      ansible_ssh_common_args: \
    '-o ProxyJump=m1 -o StrictHostKeyChecking=no -oUserKnownHostsFile=/dev/null -4'}\n";

const FILES: &[&str] = &["playbooks/provision.yml", "playbooks/cleanup.yml", "keys/id", "ssh_config"];

fn directory(config: &str, inventory: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for name in FILES {
        fs::create_dir_all(dir.path().join(name).parent().unwrap()).unwrap();
        fs::write(dir.path().join(name), "").unwrap();
    }
    fs::write(dir.path().join("remoor.yml"), config).unwrap();
    fs::write(dir.path().join("inventory.yml"), inventory).unwrap();
    dir
}

fn load(config: &str, inventory: &str) -> Fleet {
    Fleet::load(directory(config, inventory).path()).unwrap_or_else(|faults| panic!("{faults:#?}"))
}

fn faults_of(config: &str, inventory: &str) -> String {
    let faults = Fleet::load(directory(config, inventory).path()).expect_err("faults were expected");
    faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

fn check_refused(config: &str, inventory: &str, want: Expect) {
    want.assert_eq(&faults_of(config, inventory));
}

fn check_validate(config: &str, inventory: &str, want: Expect) {
    let faults = load(config, inventory).validate();
    want.assert_eq(&faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"));
}

#[test]
fn a_valid_fleet_is_read_completely() {
    let fleet = load(GOOD, INVENTORY);
    let config = &fleet.config;
    let web = &config.groups["web"];
    assert_eq!(web.summary.policy(Trigger::Network), Policy::Resetup);
    assert_eq!(web.summary.policy(Trigger::Live), Policy::Check);
    assert_eq!(web.summary.policy(Trigger::Apply), Policy::Report);
    assert_eq!((web.summary.quorum, web.summary.whole, web.summary.parallel), (true, true, 2));
    assert_eq!((web.provisioner, web.cleanup.as_deref()), (Provisioner::Ansible, Some("playbooks/cleanup.yml")));
    let nginx = &config.services["nginx"];
    assert_eq!((nginx.files.len(), nginx.tags.len(), nginx.summary.resetup_on_recorded), (3, 2, true));
    assert_eq!(nginx.normalize, ["^# generated"]);
    assert_eq!(config.services["etcd"].tags, ["etcd"]);
    let watched = |text: &str| {
        load(&GOOD.replace("resetup-on-recorded: true", text), INVENTORY).config.services["nginx"].summary.monitor_only
    };
    assert_eq!(
        ["provisioned: false", "provisioned: true", "resetup-on-recorded: true"].map(watched),
        [true, false, false]
    );
    let want = Limits {
        settle_ms: 1000,
        retry_ms: vec![500, 7_200_000],
        flap_count: 4,
        fleet_percent: 50,
        leader_grace_ms: 0,
        ..Limits::default()
    };
    assert_eq!(config.limits, want);
    let page = NotifyTo::Command(vec!["/usr/local/bin/page".into(), "now".into()]);
    let text = Some("{{ node }} is held".to_owned());
    let hook = NotifyTo::Webhook("http://127.0.0.1:9/x".into());
    let all = vec![NotifyOn::Verdict, NotifyOn::Held, NotifyOn::Alert];
    let want = [
        Notify { to: page, on: vec![NotifyOn::Held, NotifyOn::Alert], text },
        Notify { to: hook, on: all, text: None },
    ];
    assert_eq!(config.notify, want);
    assert_eq!(fleet.hosts_of("web").len(), 2);
}

#[test]
fn login_targets_are_resolved() {
    let fleet = load(GOOD, INVENTORY);
    let w1 = fleet.ssh_target("w1").unwrap();
    assert_eq!((w1.host.as_str(), w1.port, w1.user.as_str(), w1.sudo), ("10.0.0.11", 2222, "admin", true));
    assert_eq!(
        (w1.identity.as_deref(), w1.config.as_deref(), w1.connect_timeout_ms),
        (Some("/keys/id"), Some("ssh_config"), 2000)
    );
    let w2 = fleet.ssh_target("w2").unwrap();
    assert_eq!((w2.host.as_str(), w2.port, w2.user.as_str(), w2.sudo), ("w2", 22, "root", false));
    assert_eq!(w2.identity.as_deref(), Some("/k"));
    let options: Vec<(&str, &str)> = w2.options.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(options, [("ProxyJump", "m1"), ("AddressFamily", "inet")]);
    let words = |words: &str| INVENTORY.replace("-o ProxyJump=m1", words);
    let fleet = load(GOOD, &words("-p 2022 -l other -i /other -J m1"));
    let w2 = fleet.ssh_target("w2").unwrap();
    assert_eq!((w2.port, w2.user.as_str(), w2.identity.as_deref()), (22, "root", Some("/k")), "variables win");
    let refused = load(GOOD, &words("-L 80:db:80")).ssh_target("w2").unwrap_err();
    expect![[r#"
        inventory.yml:5:7: `-L 80:db:80` in ansible_ssh_common_args of the host `w2` can't be used (host w2)
          hint: a manager's login does not support this option: remove it, or move it to ansible.cfg"#]]
    .assert_eq(&refused.to_string());
    expect![[r#"
        inventory.yml: there is no host `w3`
          hint: did you mean `w1`?"#]]
    .assert_eq(&fleet.ssh_target("w3").unwrap_err().to_string());
}

#[test]
fn variables_have_origins() {
    let fleet = load(GOOD, INVENTORY);
    let (vars, origins) = fleet.vars("w1").unwrap();
    let found: Vec<String> = vars.iter().map(|(name, value)| format!("{name} = {value}   {}", origins[name])).collect();
    expect![[r#"
        ansible_host = "10.0.0.11"   inventory.yml: host w1
        ntp = "10.0.0.1"   remoor.yml: vars
        port = 8080   inventory.yml: host w1
        who = "group"   remoor.yml: groups.web.vars
        yes = false   remoor.yml: vars"#]]
    .assert_eq(&found.join("\n"));
    assert!(fleet.vars("nobody").is_err());
}

#[test]
fn all_faults_are_reported_in_one_pass() {
    let faults = faults_of(include_str!("tests/all_faults.yml"), "web: {hosts: {w1: }}\ndb: {hosts: {d1: }}\n");
    expect_file!["tests/all_faults.txt"].assert_eq(&(faults + "\n"));
}

#[test]
fn an_incomplete_or_invalid_file_is_refused() {
    check_refused(
        "",
        INVENTORY,
        expect![[r#"
        remoor.yml: is empty
          hint: begin with `version: 1` and `inventory: inventory.yml`"#]],
    );
    check_refused("- 1\n", INVENTORY, expect!["remoor.yml:1:1: the file takes a mapping, not a list"]);
    check_refused(
        "version: 1\ninventory: inventry.yml\n",
        INVENTORY,
        expect![[r#"
            remoor.yml:2:1: there is no `inventry.yml`
              hint: did you mean `inventory.yml`?"#]],
    );
    check_refused(
        "version: 1\nversion: 1\ninventory: [\n",
        INVENTORY,
        expect![[r#"
        remoor.yml:2:1: `version` appears here a second time
          hint: the first is on line 1
        remoor.yml:3:12: unclosed bracket '['"#]],
    );
    check_refused(
        "version: 2\ninventory: inventory.yml\n",
        "web: {hosts: {w1: }}\nweb: {host: }\n",
        expect![[r#"
            inventory.yml:2:1: `web` appears here a second time
              hint: the first is on line 1
            remoor.yml:1:10: version 2 is not known to this program
              hint: it reads version 1"#]],
    );
}

#[test]
fn inconsistent_settings_are_reported() {
    check_validate(
        GOOD,
        INVENTORY,
        expect![[r#"
        inventory.yml: warning: `StrictHostKeyChecking=no` in ansible_ssh_common_args is ignored: host keys are always checked (host w2)
        inventory.yml: warning: `UserKnownHostsFile=/dev/null` in ansible_ssh_common_args is ignored: host keys are always checked (host w2)"#]],
    );
    let config = r#"version: 1
inventory: inventory.yml
groups:
  web: {services: [nginx], provision: playbooks/provision.yml, policy: {reboot: report}}
  prod: {}
  empty: {policy: {network: report, reboot: report, agent: report, left: report}}
  dbs: {}
services: {nginx: {}, unused: {}}
"#;
    let inventory = "prod: {children: {web: {hosts: {w1: , w2: {ansible_port: ssh}}}}}\ndb: {hosts: {d1: {ansible_host: '{{ ip }}', \
        ansible_password: x, bad-name: 1}}}\nempty: {}\n";
    check_validate(
        config,
        inventory,
        expect![[r#"
        inventory.yml: warning: `bad-name` is not a variable name, so nothing can refer to it (host d1)
        inventory.yml: ansible_host of the host `d1` is a template, and is needed before templates are rendered (host d1)
          hint: write the value out
        inventory.yml: warning: ansible_password is not used: managers log in by key, and sudo asks for no password (host d1)
        inventory.yml: ansible_port of the host `w2` is not a port (host w2)
        remoor.yml:3:1: the host `d1` is in no group of `groups:`
          hint: its groups in the inventory: db
        remoor.yml:4:3: warning: the group `web` has no `cleanup` playbook, and remoor provisions nothing without one
          hint: name a playbook that removes everything that `provision` sets up
        remoor.yml:4:3: the host `w1` is in 2 groups: prod, web
          hint: a host belongs to one group of `groups:`; remove the others, or list only the inner ones
        remoor.yml:4:3: the host `w2` is in 2 groups: prod, web
          hint: a host belongs to one group of `groups:`; remove the others, or list only the inner ones
        remoor.yml:5:3: warning: the group `prod` has no `provision` playbook, so it can be examined but not repaired
          hint: name a playbook, or set every policy to report
        remoor.yml:6:3: warning: the group `empty` has no hosts
        remoor.yml:7:3: warning: the group `dbs` has no `provision` playbook, so it can be examined but not repaired
          hint: name a playbook, or set every policy to report
        remoor.yml:7:3: warning: the inventory has no group `dbs`
          hint: did you mean `db`?
        remoor.yml:8:23: warning: no group has the service `unused`"#]],
    );
    let fleet = load(config, inventory);
    assert!(fleet.host_group("w1").is_err() && fleet.host_group("d1").is_err());
}

#[test]
fn dependents_come_after_what_they_depend_on() {
    let config = "version: 1\ninventory: inventory.yml\nservices:\n  a: {depends-on: [net]}\n  net: {depends-on: [etcd]}\n  \
        etcd: {}\n  b: {depends-on: [etcd, a]}\n  other: {}\n";
    let fleet = load(config, INVENTORY);
    let of = |names: &[&str]| {
        let names: Vec<ServiceName> = names.iter().map(|name| ServiceName::from(*name)).collect();
        fleet.dependents(&names).iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(of(&["etcd"]), "etcd net a b");
    assert_eq!(of(&["net"]), "net a b");
    assert_eq!(of(&["b", "other", "gone"]), "b other");
    assert_eq!(of(&[]), "");
}

#[test]
fn a_generation_needs_neither_disk_nor_executable() {
    let dir = directory(GOOD, "");
    let script = dir.path().join("inventory.yml");
    fs::write(&script, "#!/bin/sh\ntouch ran.$$\necho '{\"web\": [\"w1\", \"w2\"], \"_meta\": {\"hostvars\": {\"w1\": {\"x\": [1, null]}}}}'\n").unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let fleet = Fleet::load(dir.path()).unwrap();
    let ran = || {
        fs::read_dir(dir.path())
            .unwrap()
            .filter(|e| e.as_ref().unwrap().file_name().to_str().unwrap().starts_with("ran"))
            .count()
    };
    assert_eq!(ran(), 1);
    let wire = rmp_serde::to_vec(&fleet.files).unwrap();
    let files: FileSet = rmp_serde::from_slice(&wire).unwrap();
    let again = Fleet::from_files(&files).unwrap();
    assert_eq!((&again.config, &again.inventory, &again.files), (&fleet.config, &fleet.inventory, &fleet.files));
    assert_eq!(again.inventory.hosts["w1"].vars["x"], json!([1, null]));
    assert_eq!(ran(), 1);

    let mut broken = files.clone();
    broken.0.insert(INVENTORY_FILE.into(), b"{".to_vec());
    assert_eq!(Fleet::from_files(&broken).unwrap_err()[0].file, INVENTORY_FILE);
    broken.0.remove(INVENTORY_FILE);
    assert_eq!(
        Fleet::from_files(&broken).unwrap_err()[0].to_string(),
        ".remoor/inventory.json: is missing in these files"
    );
    assert!(Fleet::from_files(&FileSet::default()).is_err());
}

#[test]
fn a_private_key_in_the_fleet_directory_is_reported() {
    let relative = GOOD.replace("identity: /keys/id", "identity: keys/id");
    check_refused(
        &relative,
        INVENTORY,
        expect![[r#"
            remoor.yml:4:42: `ssh.identity` is a file of this directory, so each generation would carry the private key
              hint: write the absolute path that it has on the managers, or leave it out for the cluster's key"#]],
    );
    let dir = directory(GOOD, INVENTORY);
    fs::write(dir.path().join("keys/id"), "about\n-----BEGIN OPENSSH PRIVATE KEY-----\nabc\n").unwrap();
    let faults = Fleet::load(dir.path()).unwrap().validate();
    let reported: Vec<String> = faults.iter().filter(|f| f.file == "keys/id").map(ToString::to_string).collect();
    expect![[r#"
        keys/id:2:1: warning: looks like a private key, and every manager keeps every generation
          hint: keep it out of the fleet directory; playbooks can create it on the node, or read it there"#]]
    .assert_eq(&reported.join("\n"));
}

#[test]
fn ansible_connection_is_accepted_for_the_ansible_provisioner() {
    let inventory = INVENTORY.replace("ansible_port", "ansible_connection: local, ansible_port");
    assert_ne!(inventory, INVENTORY);
    let warned = |config: &str| {
        let faults = load(config, &inventory).validate();
        faults.iter().filter(|f| f.message.contains("ansible_connection is not used")).count()
    };
    assert_eq!(warned(GOOD), 0);
    assert_eq!(warned(&GOOD.replace("provisioner: ansible", "provisioner: remoor")), 1);
}

#[test]
fn a_group_inherits_the_windows_of_the_fleet_and_adds_its_own() {
    let config = format!("{GOOD}windows: {{allow: [\"Mon 01:00-02:00\"], deny: [Sun]}}\n");
    let group = |config: &str| load(config, INVENTORY).config.groups["web"].summary.windows.clone();
    let whole = group(&config);
    assert_eq!((whole.allow.len(), whole.allow[0].from, whole.deny.len()), (1, 60, 1));
    let own = config.replace("    quorum: true", "    quorum: true\n    windows: {allow: [Tue], deny: [Mon]}");
    let own = group(&own);
    assert_eq!((own.allow.len(), own.allow[0].from, own.deny.len()), (1, 1440, 2));
    let never = config.replace("deny: [Sun]", "deny: [Mon]");
    let faults = load(&never, INVENTORY).validate();
    assert!(faults.iter().any(|f| f.warning && f.message.contains("never open")), "{faults:#?}");
}

/// `docs/reference/config.md` must describe each field of `remoor.yml`; otherwise users cannot find
/// it.
#[test]
fn the_manual_names_every_field_and_default() {
    use super::typed::{
        FIELDS, GROUP_FIELDS, LIMIT_FIELDS, NOTIFY_FIELDS, NOTIFY_ON, OCCASIONS, POLICIES, PROVISIONERS, SCOPES,
        SERVICE_FIELDS, SSH_FIELDS,
    };
    let manual = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/config.md")).unwrap();
    let sections: std::collections::BTreeMap<&str, &str> =
        manual.split("\n## ").filter_map(|section| section.split_once('\n')).collect();
    let occasions: Vec<&str> = OCCASIONS.iter().map(|(word, _)| *word).collect();
    let tables = [
        ("Top level", FIELDS),
        ("ssh", SSH_FIELDS),
        ("groups", GROUP_FIELDS),
        ("groups", &occasions),
        ("services", SERVICE_FIELDS),
        ("limits", LIMIT_FIELDS),
        ("notify", NOTIFY_FIELDS),
    ];
    for (section, fields) in tables {
        let rows =
            |field: &str| sections[section].lines().filter(|line| line.starts_with(&format!("| `{field}` |"))).count();
        for field in fields {
            assert_eq!(rows(field), 1, "`{field}` in the section {section}");
        }
    }
    let words = POLICIES.iter().map(|(word, _)| word).chain(NOTIFY_ON.iter().map(|(word, _)| word));
    for word in words.chain(SCOPES.iter().map(|(word, _)| word)).chain(PROVISIONERS.iter().map(|(word, _)| word)) {
        assert!(manual.contains(&format!("`{word}`")), "`{word}`");
    }
    // The defaults in `docs/reference/config.md` must be those of the program.
    let limits: Vec<String> = sections["limits"]
        .lines()
        .filter_map(|line| {
            let mut cells = line.strip_prefix("| `")?.split(" | ");
            Some(format!("  {}: {}", cells.next()?.trim_end_matches('`'), cells.next()?.trim_matches('`')))
        })
        .collect();
    let spelled = load(&format!("version: 1\ninventory: inventory.yml\nlimits:\n{}\n", limits.join("\n")), INVENTORY);
    assert_eq!((limits.len(), &spelled.config.limits), (LIMIT_FIELDS.len(), &Limits::default()));
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig { cases: 300, failure_persistence: None, ..Default::default() })]

    /// Every input gives a fleet or faults, and never a panic.
    #[test]
    fn garbage_gives_faults(text in GARBAGE, ending in "(yml|ini|json)", cut in 0..2000_usize) {
        let name = format!("i.{ending}");
        // The line `inventory:` is never changed, because remoor would read a random path there and
        // run programs in it.
        let safe = GOOD.find("vars:").unwrap();
        let cut = (safe..=cut.clamp(safe, GOOD.len())).rev().find(|at| GOOD.is_char_boundary(*at)).unwrap_or(safe);
        let dir = directory(&format!("{}{text}", &GOOD[..cut]), INVENTORY);
        fs::write(dir.path().join(&name), &text).unwrap();
        let _ = Fleet::load(dir.path()).map(|fleet| fleet.validate());
        let _ = super::load_inventory(&dir.path().join(&name));
    }
}

/// Fragments of text; many of them have a meaning for one of the parsers.
const GARBAGE: &str = r#"(\PC{0,8}|[\[\]{}(),:=#'"\\&*!<>|%@~?. \t\n-]{0,6}|all|web|hosts|children|vars|w\[0?1:\d{1,9}\]|\\x\d|r'|'''|<<: \*a|&a |!!int |0x|1_0|:\d){0,40}"#;

#[test]
fn inventories_of_a_list_and_variables_beside_the_playbooks_are_read_as_ansible_reads_them() {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in [
        (
            "remoor.yml",
            "version: 1\ninventory: [inv/hosts, more.yml]\ngroups: {web: {provision: plays/site.yml, cleanup: plays/clean.yml}}\n",
        ),
        ("inv/hosts", "[web]\nw1 a=1 b=1\n"),
        ("inv/group_vars/web.yml", "c: 1\nd: 1\n"),
        ("more.yml", "web: {hosts: {w1: {b: 2}, w2: {}}}\n"),
        ("plays/group_vars/web.yml", "d: 2\n"),
        ("plays/site.yml", "- hosts: web\n"),
        ("plays/clean.yml", "- hosts: web\n"),
    ] {
        std::fs::create_dir_all(dir.path().join(name).parent().unwrap()).unwrap();
        std::fs::write(dir.path().join(name), text).unwrap();
    }
    let fleet = Fleet::load(dir.path()).unwrap();
    let vars = |host: &str| Value::Object(fleet.vars(host).unwrap().0);
    assert_eq!(vars("w1"), json!({"a": 1, "b": 2, "c": 1, "d": 2}));
    assert_eq!(vars("w2"), json!({"c": 1, "d": 2}));
}
