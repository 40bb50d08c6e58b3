//! Tests whole inventories: the same result for every format, the precedence of variables, and
//! faults that are all reported at once.

use super::{AnsibleInventory, load_inventory};
use expect_test::{Expect, expect};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// A directory with these files; content that begins with `#!` is made executable.
fn directory(files: &[(&str, &str)]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (name, content) in files {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        if content.starts_with("#!") {
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
    }
    dir
}

fn load(files: &[(&str, &str)], path: &str) -> AnsibleInventory {
    let dir = directory(files);
    load_inventory(&dir.path().join(path)).unwrap_or_else(|faults| panic!("{faults:#?}"))
}

fn check_faults(files: &[(&str, &str)], path: &str, want: Expect) {
    let dir = directory(files);
    let faults = load_inventory(&dir.path().join(path)).expect_err("faults were expected");
    want.assert_eq(&faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"));
}

const YAML: &str = r#"
all:
  vars: {ntp: 10.0.0.1}
  hosts: {lone: }
  children:
    prod:
      children:
        web: {hosts: {"w[01:03]": {weight: 5}, "w01": {ansible_host: 10.0.0.11, motd: "a b"}}, vars: {port: 80, tls: true}}
        db:
          hosts: {"d1:2222": {}}
"#;

const INI: &str = r#"
lone
[web]
w[01:03] weight=5     # all three
w01 ansible_host=10.0.0.11 motd='a b'
[db]
d1:2222
[web:vars]
port = 80
tls=True
; prod is declared after it is used
[prod:children]
web
db
[all:vars]
ntp=10.0.0.1
"#;

const JSON: &str = r#"{"all": {"vars": {"ntp": "10.0.0.1"}, "hosts": {"lone": {}}, "children": {"prod": {"children": {
  "web": {"hosts": {"w01": {"weight": 5, "ansible_host": "10.0.0.11", "motd": "a b"}, "w02": {"weight": 5}, "w03": {"weight": 5}},
          "vars": {"port": 80, "tls": true}},
  "db": {"hosts": {"d1": {"ansible_port": 2222}}}}}}}}"#;

const SCRIPT: &str = r#"#!/bin/sh
[ "$1" = --list ] || exit 9
cat <<'END'
{"_meta": {"hostvars": {"w01": {"weight": 5, "ansible_host": "10.0.0.11", "motd": "a b"}, "w02": {"weight": 5},
           "w03": {"weight": 5}, "d1": {"ansible_port": 2222}}},
 "all": {"hosts": ["lone"], "vars": {"ntp": "10.0.0.1"}},
 "prod": {"children": ["web", "db"]}, "web": {"hosts": ["w01", "w02", "w03"], "vars": {"port": 80, "tls": true}}, "db": ["d1"]}
END
"#;

/// A program whose list has no `_meta`, so that the variables of each host are requested
/// separately.
const OLD_SCRIPT: &str = r#"#!/bin/sh
case "$1 $2" in
"--list ") echo '{"all": {"hosts": ["lone"], "vars": {"ntp": "10.0.0.1"}}, "prod": {"children": ["web", "db"]},
  "web": {"hosts": ["w01", "w02", "w03"], "vars": {"port": 80, "tls": true}}, "db": ["d1"]}' ;;
"--host w01") echo '{"weight": 5, "ansible_host": "10.0.0.11", "motd": "a b"}' ;;
"--host w"*) echo '{"weight": 5}' ;;
"--host d1") echo '{"ansible_port": 2222}' ;;
"--host lone") ;;
*) exit 9 ;;
esac
"#;

/// Output of `ansible-inventory --list` (core 2.19 and 2.17) for `YAML`, `INI` and `SCRIPT`; it is
/// the same for all.
const ANSIBLE_SAYS: &str = r#"{"_meta": {"hostvars": {
  "d1": {"ansible_port": 2222, "ntp": "10.0.0.1"},
  "lone": {"ntp": "10.0.0.1"},
  "w01": {"ansible_host": "10.0.0.11", "motd": "a b", "ntp": "10.0.0.1", "port": 80, "tls": true, "weight": 5},
  "w02": {"ntp": "10.0.0.1", "port": 80, "tls": true, "weight": 5},
  "w03": {"ntp": "10.0.0.1", "port": 80, "tls": true, "weight": 5}},
  "profile": "inventory_legacy"},
 "all": {"children": ["ungrouped", "prod"]},
 "db": {"hosts": ["d1"]},
 "prod": {"children": ["web", "db"]},
 "ungrouped": {"hosts": ["lone"]},
 "web": {"hosts": ["w01", "w02", "w03"]}}"#;

/// The part of `--list` in which two programs must agree.
fn comparable(list: &Value) -> Value {
    let mut hostvars: BTreeMap<String, Value> = BTreeMap::new();
    for (name, vars) in list["_meta"]["hostvars"].as_object().into_iter().flatten() {
        if vars.as_object().is_some_and(|vars| !vars.is_empty()) {
            hostvars.insert(name.clone(), vars.clone());
        }
    }
    let mut groups: BTreeMap<&String, Value> = BTreeMap::new();
    for (name, group) in list.as_object().unwrap().iter().filter(|(name, _)| *name != "_meta") {
        let names = |key: &str| {
            let mut names: Vec<&str> = group[key].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
            names.sort_unstable();
            json!(names)
        };
        let (hosts, children) = (names("hosts"), names("children"));
        if hosts != json!([]) || children != json!([]) {
            groups.insert(name, json!({ "hosts": hosts, "children": children }));
        }
    }
    json!({ "hostvars": hostvars, "groups": groups })
}

fn list(inventory: &AnsibleInventory) -> Value {
    inventory.to_list_json(&BTreeMap::new())
}

#[test]
fn every_format_gives_the_result_of_ansible() {
    let want = comparable(&serde_json::from_str(ANSIBLE_SAYS).unwrap());
    let files: &[(&str, &str)] = &[
        ("i.yml", YAML),
        ("i.ini", INI),
        ("i.json", JSON),
        ("i.sh", SCRIPT),
        ("old", OLD_SCRIPT),
        ("hosts", INI),
        ("plain", YAML),
    ];
    for (name, _) in files {
        assert_eq!(comparable(&list(&load(files, name))), want, "{name}");
    }
}

/// An inventory with two sources, in which variables of several layers have the same names, and
/// values have several types.
const LAYERS: &[(&str, &str)] = &[
    (
        "inv/01_hosts",
        "[web]\nw1 from_host=inline both_host=inline ansible_become=yes\n[web:vars]\nin_all_too=web\nchild=web\nfiles=web\nmode=0644\nflag=yes\nnumber=0x10\n\
         [prod:children]\nweb\n[prod:vars]\nchild=prod\nparent=prod\nd={'a': 1, 'b': 2}\n\
         [all:vars]\nin_all_too=all\nparent=all\nbase=all\n[zeta]\nw1\n[zeta:vars]\nsame_depth=zeta\n[yota]\nw1\n[yota:vars]\nsame_depth=yota\nansible_group_priority=10\n",
    ),
    ("inv/02.yml", "web: {vars: {child: second source, d: {c: 3}, flag2: yes, mode2: 0644, when: 2024-01-31}}\n"),
    ("inv/group_vars/all.yml", "files: all\nin_all_too: group_vars/all\n"),
    ("inv/group_vars/prod/10.yml", "files: prod 10\nd: {z: 1}\n"),
    ("inv/group_vars/prod/20.yaml", "files: prod 20\n"),
    ("inv/group_vars/prod/.hidden", "files: hidden\n"),
    ("inv/group_vars/prod/note.txt", "- not read\n"),
    ("inv/group_vars/web.yml", "---\nin_files: web\n"),
    ("inv/host_vars/w1", "both_host: host_vars\n"),
    ("inv/README.md", "not a source"),
    ("inv/.hidden", "not a source: ["),
];

/// Ansible's output for `LAYERS`.
const ANSIBLE_SAYS_LAYERS: &str = r#"{"_meta": {"hostvars": {
  "w1": {"ansible_become": "yes", "base": "all", "both_host": "host_vars", "child": "second source", "d": {"z": 1},
     "files": "prod 20", "flag": "yes", "flag2": true, "from_host": "inline", "in_all_too": "group_vars/all",
     "in_files": "web", "mode": "0644", "mode2": 420, "number": 16, "parent": "prod", "same_depth": "yota", "when":
     "2024-01-31"}},
  "profile": "inventory_legacy"},
 "all": {"children": ["ungrouped", "prod", "zeta", "yota"]},
 "prod": {"children": ["web"]},
 "web": {"hosts": ["w1"]},
 "yota": {"hosts": ["w1"]},
 "zeta": {"hosts": ["w1"]}}"#;

#[test]
fn layers_have_the_order_of_ansible() {
    let inventory = load(LAYERS, "inv");
    assert_eq!(comparable(&list(&inventory)), comparable(&serde_json::from_str(ANSIBLE_SAYS_LAYERS).unwrap()));
    let host = &inventory.hosts["w1"];
    let found: Vec<String> =
        host.vars.iter().map(|(name, value)| format!("{name} = {value}   {}", host.origins[name])).collect();
    expect![[r#"
        ansible_become = "yes"   inv/01_hosts: host w1
        base = "all"   inv/01_hosts: group all
        both_host = "host_vars"   inv/host_vars/w1
        child = "second source"   inv/02.yml: group web
        d = {"z":1}   inv/group_vars/prod/10.yml
        files = "prod 20"   inv/group_vars/prod/20.yaml
        flag = "yes"   inv/01_hosts: group web
        flag2 = true   inv/02.yml: group web
        from_host = "inline"   inv/01_hosts: host w1
        in_all_too = "group_vars/all"   inv/group_vars/all.yml
        in_files = "web"   inv/group_vars/web.yml
        mode = "0644"   inv/01_hosts: group web
        mode2 = 420   inv/02.yml: group web
        number = 16   inv/01_hosts: group web
        parent = "prod"   inv/01_hosts: group prod
        same_depth = "yota"   inv/01_hosts: group yota
        when = "2024-01-31"   inv/02.yml: group web"#]]
    .assert_eq(&found.join("\n"));
    assert_eq!(host.groups, ["prod", "web", "yota", "zeta"]);
    assert_eq!(inventory.groups["prod"].vars["files"], "prod 20");
}

#[test]
fn emitted_lists_are_read_back() {
    let inventory = load(LAYERS, "inv");
    let extra = BTreeMap::from([("w1".to_owned(), Map::from_iter([("remoor_presence".to_owned(), json!("alive"))]))]);
    let text = inventory.to_list_json(&extra).to_string();
    let again = load(&[("i", &format!("#!/bin/sh\ncat <<'END'\n{text}\nEND\n"))], "i");
    assert_eq!(again.hosts["w1"].groups, inventory.hosts["w1"].groups);
    let mut want = inventory.hosts["w1"].vars.clone();
    want.insert("remoor_presence".into(), json!("alive"));
    assert_eq!(again.hosts["w1"].vars, want);
    assert_eq!(inventory.host_json("w1", extra.get("w1")), Some(Value::Object(want)));
    assert_eq!(inventory.host_json("w2", None), None);
}

#[test]
fn all_faults_are_reported_at_once() {
    let yaml = "web:\n  host: {w1: }\n  hosts: [w2]\n  children: {a: {hosts: {'w[3:1]': }}}\n  vars: 5\n  web2: {}\ndb: text\n";
    check_faults(
        &[("i.yml", yaml)],
        "i.yml",
        expect![[r#"
        i.yml:2:3: unknown field `host` in the group `web`
          hint: did you mean `hosts`?
        i.yml:3:10: `hosts` takes a mapping, not a list
          hint: write each name with a colon and no dash: `w1:`
        i.yml:4:26: the range [3:1] ends before it begins
        i.yml:5:9: vars takes a mapping, not a number
        i.yml:6:3: unknown field `web2` in the group `web`
          hint: a group has hosts, children and vars; groups inside a group go below `children:`
        i.yml:7:5: the group `db` takes a mapping, not text"#]],
    );
    let ini = "[web\n[web:wars]\nx\n[web]\nw1 port\nw2 a='b\nw[1:2\n[web:vars]\nnothing\n[nowhere:vars]\na=1\n[web:children]\nmissing\ntwo words\n[a b]\n";
    check_faults(
        &[("i.ini", ini)],
        "i.ini",
        expect![[r#"
        i.ini:1:1: `[web` has a `[` without its `]`
        i.ini:2:1: [web:wars] has an unknown kind of section
          hint: hosts, vars or children
        i.ini:5:1: `port` after the host `w1` is not name=value
          hint: one host a line; no blanks around `=`
        i.ini:6:1: a `'` without its end
        i.ini:7:1: `w[1:2` has a `[` without its `]`
        i.ini:9:1: `nothing` is not name=value
        i.ini:10:1: [nowhere:vars] is for a group that is not declared
          hint: declare it, if only by an empty section: [nowhere]
        i.ini:13:1: [web:children] names the group `missing`, which is not declared
          hint: declare it, if only by an empty section: [missing]
        i.ini:14:1: `two words` is not a group name
        i.ini:15:1: `[a b]` is not a section
          hint: write [group], [group:vars] or [group:children]"#]],
    );
    check_faults(
        &[("i.yml", "a: {children: {b: {children: {c: {children: {a: }}}}}}\n")],
        "i.yml",
        expect!["i.yml:1:46: groups that contain themselves: a > b > c > a"],
    );
    check_faults(
        &[("i.yml", "all: {hosts: {w1: {pw: !vault [x], x: 1, x: 2}}}\n")],
        "i.yml",
        expect![[r#"
        i.yml:1:24: the tag `!vault` is not known here
          hint: only a text can be encrypted
        i.yml:1:42: `x` appears here a second time
          hint: the first is on line 1"#]],
    );
}

#[test]
fn invalid_inventories_are_rejected() {
    check_faults(
        &[("i.yml", "plugin: aws_ec2\n")],
        "i.yml",
        expect![[r#"
        i.yml:1:1: this is the configuration of an inventory plugin, not an inventory
          hint: name an executable instead that runs `ansible-inventory -i FILE --list`"#]],
    );
    check_faults(&[("i.yml", "")], "i.yml", expect!["i.yml: the inventory is empty"]);
    check_faults(
        &[("i.yml", "- w1\n")],
        "i.yml",
        expect![[r#"
        i.yml:1:1: an inventory is a mapping of groups, not a list
          hint: begin with `all:` and below it `hosts:`"#]],
    );
    check_faults(
        &[("i.toml", "[web]\n")],
        "i.toml",
        expect![[r#"
        i.toml: inventories in TOML are not read
          hint: ansible-inventory -i FILE --list --yaml --export"#]],
    );
    check_faults(
        &[("i", "$ANSIBLE_VAULT;1.1;AES256\n00\n")],
        "i",
        expect![[r#"
        i:1:1: is an inventory that is encrypted as a whole
          hint: encrypt single values with `ansible-vault encrypt_string`, or files of group_vars and host_vars"#]],
    );
    check_faults(&[("i", "all:\n  hosts: [\n")], "i", expect!["i:2:10: unclosed bracket '['"]);
    check_faults(&[("inv/README.md", "")], "inv", expect!["inv: there is no inventory in this directory"]);
    check_faults(
        &[],
        "gone.yml",
        expect!["gone.yml: the inventory could not be read: No such file or directory (os error 2)"],
    );
    let dir = directory(&[("i.py", "#!/usr/bin/python3\n")]);
    let path = dir.path().join("i.py");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    let faults = load_inventory(&path).unwrap_err();
    assert_eq!(faults[0].to_string(), "i.py: looks like a program but is not executable\n  hint: chmod +x i.py");
}

#[test]
fn unused_variables_and_hidden_files_are_warnings() {
    let files = [
        ("i.yml", "web: {hosts: {w1: }}\n"),
        ("group_vars/wbe.yml", "a: 1\n"),
        ("group_vars/all.yml.sample", "a: 3\n"),
        ("group_vars/web.yml", "a: 1\n"),
        ("group_vars/web/x.yml", "a: 1\na: 2\n"),
        ("host_vars/w1.yml", "[1]\n"),
    ];
    check_faults(&files, "i.yml", expect!["host_vars/w1.yml:1:1: takes a mapping of variables, not a list"]);
    let inventory = load(&files[..5], "i.yml");
    let warnings: Vec<String> = inventory.warnings.iter().map(ToString::to_string).collect();
    expect![[r#"
        group_vars/wbe.yml: warning: there is no group `wbe`
          hint: did you mean `web`?
        group_vars/web.yml: warning: is not read, because `web` comes first
          hint: put both into one directory of that name
        group_vars/web/x.yml:2:1: warning: `a` appears again; the last value counts
          hint: remove the entry on line 1"#]]
    .assert_eq(&warnings.join("\n"));
    assert_eq!(inventory.hosts["w1"].vars["a"], 2);
}

#[test]
fn invalid_host_names_of_programs_are_rejected() {
    let script = "#!/bin/sh\necho '{\"web\": [\"-oProxyCommand=x\", \"a b\", \"../x\", \"\", \"w1\"]}'\n";
    check_faults(
        &[("i", script)],
        "i",
        expect![[r#"
        i: `-oProxyCommand=x` is not a host name
        i: `../x` is not a host name
        i: `` is not a host name
        i: `a b` is not a host name"#]],
    );
}

#[test]
fn recursive_and_huge_inputs_are_limited() {
    let dir = directory(&[("inv/a", "w1\n")]);
    for name in ["b", "c"] {
        std::os::unix::fs::symlink(".", dir.path().join("inv").join(name)).unwrap();
    }
    let faults = load_inventory(&dir.path().join("inv")).unwrap_err();
    assert!(
        faults.iter().any(|fault| fault.message == "with this one the inventory has more than 500 sources"),
        "{faults:?}"
    );
    let many = "w[0:5000]\nx[0:5000]\n";
    check_faults(&[("i.ini", many)], "i.ini", expect!["i.ini:2:1: more than 10000 hosts"]);
    // Each turn adds two groups: one with a host, and one with a child group. Both kinds count for
    // the limit.
    let groups: String = (0..6_000).map(|at| format!("[a{at}]\nh\n[b{at}:children]\na{at}\n")).collect();
    check_faults(&[("i.ini", &groups)], "i.ini", expect!["i.ini:20001:1: more than 10000 groups"]);
    let mut bomb = "a: &a {hosts: {h: {x: [1,1,1,1,1,1,1,1,1]}}}\n".to_owned();
    for (this, last) in ["b", "c", "d", "e", "f", "g", "h"].iter().zip(["a", "b", "c", "d", "e", "f", "g"]) {
        bomb += &format!("{this}: &{this} [{}]\n", vec![format!("*{last}"); 9].join(","));
    }
    check_faults(
        &[("i.yml", &bomb)],
        "i.yml",
        expect![[r#"
        i.yml:6:8: grows beyond 200000 values or 16 MiB
          hint: aliases that repeat aliases grow quickly; write the values out, or split the file"#]],
    );
}

#[test]
fn a_script_can_be_run_by_a_relative_path() {
    let dir = directory(&[("inv/hosts", "#!/bin/sh\necho '{\"web\": [\"w1\"]}'\n")]);
    let up: PathBuf = std::env::current_dir().unwrap().components().skip(1).map(|_| "..").collect();
    let path = up.join(dir.path().strip_prefix("/").unwrap()).join("inv/hosts");
    assert!(path.is_relative());
    let inventory = load_inventory(&path).unwrap_or_else(|faults| panic!("{faults:#?}"));
    assert!(inventory.hosts.contains_key("w1"));
}

/// Compares the recorded outputs, and the output of this crate, with a real Ansible.
/// `REMOOR_TEST_ANSIBLE` is the path of `ansible-inventory`. Without this variable the test prints
/// that it was skipped.
#[test]
fn recorded_output_is_current() {
    let Some(program) = std::env::var_os("REMOOR_TEST_ANSIBLE").map(PathBuf::from) else {
        println!("skipped: REMOOR_TEST_ANSIBLE names no ansible-inventory");
        return;
    };
    let says = |path: &Path| -> Value {
        let output = std::process::Command::new(&program).arg("-i").arg(path).arg("--list").output().unwrap();
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let ours = list(&load(LAYERS, "inv"));
    let emitted = directory(&[("emitted", &format!("#!/bin/sh\ncat <<'END'\n{ours}\nEND\n"))]);
    assert_eq!(comparable(&says(&emitted.path().join("emitted"))), comparable(&ours), "what we emit");
    let dir = directory(LAYERS);
    let layers = says(&dir.path().join("inv"));
    assert_eq!(
        comparable(&layers),
        comparable(&serde_json::from_str(ANSIBLE_SAYS_LAYERS).unwrap()),
        "layers: {layers}"
    );
    let dir = directory(&[("i.yml", YAML), ("i.ini", INI), ("i.sh", SCRIPT)]);
    for name in ["i.yml", "i.ini", "i.sh"] {
        let list = says(&dir.path().join(name));
        assert_eq!(comparable(&list), comparable(&serde_json::from_str(ANSIBLE_SAYS).unwrap()), "{name}: {list}");
    }
}

/// Written by ansible-vault; the password is `hunter2 pass`, and it sets `db` and `greeting`.
const ENCRYPTED_VARS: &str = include_str!("../../../vault/fixtures/vars.yml");

#[test]
fn encrypted_files_have_their_precedence_and_stay_encrypted() {
    let site = include_str!("../../../vault/fixtures/token.txt").trim().replace('\n', "\n      ");
    let hosts =
        format!("all:\n  hosts:\n    w1:\n    w2:\n      greeting: own\n  vars:\n    token: !vault |\n      {site}\n");
    let dir = directory(&[
        ("hosts.yml", &hosts),
        ("group_vars/all/10.yml", "db: plain\nkept: 1\n"),
        ("group_vars/all/50.yml", ENCRYPTED_VARS),
        ("group_vars/all/90.yml", "kept: 2\n"),
    ]);
    let mut inventory = load_inventory(&dir.path().join("hosts.yml")).unwrap_or_else(|faults| panic!("{faults:#?}"));
    let stored = serde_json::to_string(&inventory).unwrap();
    let mut again: AnsibleInventory = serde_json::from_str(&stored).unwrap();
    assert_eq!(again, inventory, "a generation needs no password");
    assert_eq!(
        (&inventory.hosts["w1"].vars["db"], inventory.hosts["w1"].vars.contains_key("greeting")),
        (&json!("plain"), false)
    );

    let none = remoor_vault::Vault::new(Vec::new(), "use --vault-id");
    again.open_files(&none);
    assert_eq!(again.hosts, inventory.hosts);
    let fault = again.unopened_of("w1").pop().unwrap().to_string();
    assert!(
        fault.starts_with("group_vars/all/50.yml:1:1: is encrypted") && fault.contains("use --vault-id"),
        "{fault}"
    );

    let password = remoor_vault::VaultPassword::new("default", b"hunter2 pass".to_vec());
    let vault = remoor_vault::Vault::new(vec![password], "");
    inventory.open_files(&vault);
    let value = |host: &str, name: &str| {
        let value = &inventory.hosts[host].vars[name];
        vault.open_value(value).map_or_else(|| value.clone(), |opened| opened.unwrap())
    };
    assert_eq!(value("w1", "db"), json!({"user": "app", "password": "filesecret1"}));
    assert_eq!(value("w1", "greeting"), "hello {{ inventory_hostname }}");
    assert_eq!(value("w2", "greeting"), "own", "variables of a host win");
    assert_eq!((value("w1", "token"), value("w1", "kept")), (json!("s3cr{{ 1+1 }}et"), json!(2)));
    assert_eq!(inventory.hosts["w1"].origins["db"], "group_vars/all/50.yml");
    assert!(!serde_json::to_string(&inventory).unwrap().contains("filesecret1"));
}
