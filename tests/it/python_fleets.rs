//! Fleets whose playbooks use modules that are not native: `remoor apply` packs them with the
//! installed ansible-core, a manager without ansible-core compiles them, and a node runs them.
//! `tests/tools.sh` installs ansible-core.

use crate::local::{Daemon, PROGRAM, net, one_manager, program_command, remoor, wait_until};
use crate::python_modules::{ansible_dir, path_with};
use crate::time_limit::BoundedCommand;
use remoor::fleet::{ClusterContext, PhaseWork, PlanScope, work};
use remoor_config::Fleet;
use remoor_exec::{ExecutorWork, NodeWork, SessionCancel};
use remoor_model::{FileSet, Phase};
use remoor_playbook::{CancelToken, Plan, PlaybookRunOptions, run};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const CONFIG: &str = "version: 1
inventory: inventory.yml
groups:
  web: {services: [app], provision: site.yml, cleanup: cleanup.yml}
services:
  app: {files: [/etc/app-of-this-test.conf]}
";
const SITE: &str = r#"- hosts: all
  gather_facts: false
  tasks:
    - own_text: {path: "{{ out }}/text", text: "{{ 'a' ~ 1 }}"}
    - {subversion: {repo: x, dest: "{{ out }}/svn"}, when: not python | bool}
    - {acme.gone.module: , when: not python | bool}
    - {copy: {content: x, dest: "{{ out }}/native"}}
"#;
const OWN_TEXT: &str = r#"#!/usr/bin/python
from ansible.module_utils.basic import AnsibleModule

def main():
    spec = dict(path=dict(type="path", required=True), text=dict(required=True))
    module = AnsibleModule(argument_spec=spec, supports_check_mode=True)
    with open(module.params["path"], "w") as out:
        out.write(module.params["text"])
    module.exit_json(changed=True)

main()
"#;
const CLEANUP: &str = "- hosts: all\n  tasks: [{file: {path: /etc/app-of-this-test.conf, state: absent}}]\n";

fn write_fleet(dir: &Path, more_vars: &str) -> PathBuf {
    let fleet = dir.join("fleet");
    let inventory = format!(
        "web: {{hosts: {{w1: {{ansible_host: 127.0.0.9, out: {}, python: true{more_vars}}}}}}}\n",
        dir.display()
    );
    for (name, text) in [
        ("remoor.yml", CONFIG),
        ("inventory.yml", inventory.as_str()),
        ("site.yml", &SITE.replace("    - {acme.gone.module: , when: not python | bool}\n", "")),
        ("library/own_text.py", OWN_TEXT),
        ("cleanup.yml", CLEANUP),
        // Files of an earlier apply, or of a person, are not read.
        (".remoor/modules/index.json", "no index"),
    ] {
        let path = fleet.join(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect(name);
        fs::write(path, text).expect(name);
    }
    fleet
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// The fleets of all generations that a manager has stored. Each blob is in a directory with the
/// first characters of its hash.
fn generations(manager: &Path) -> Vec<FileSet> {
    let list = |dir: PathBuf| fs::read_dir(dir).into_iter().flatten().map(|entry| entry.expect("an entry").path());
    let read = |path: PathBuf| rmp_serde::from_slice::<FileSet>(&fs::read(path).ok()?).ok();
    let blobs = list(manager.join("blobs")).flat_map(list);
    blobs.filter_map(read).filter(|files| files.get("remoor.yml").is_some()).collect()
}

fn provision_plan(files: &FileSet) -> Plan {
    let fleet = Fleet::from_files(files).expect("a fleet");
    match work(&fleet, "w1", &ClusterContext::default(), Phase::Provision, &PlanScope::default()).expect("a plan") {
        PhaseWork::Plan { plan, .. } => plan,
        other => panic!("{other:?}"),
    }
}

/// A command of a machine with ansible-core.
fn with_ansible(bin: &Path) -> Command {
    let mut command = remoor();
    command.env("PATH", path_with(bin));
    command
}

#[test]
fn managers_compile_the_modules_that_apply_has_packed() {
    let Some(bin) = ansible_dir() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let fleet = write_fleet(dir.path(), "");
    let linted = with_ansible(&bin).arg("lint").arg(&fleet).bounded_output();
    let said = text(&linted);
    assert!(linted.status.success() && said.contains("module `ansible.legacy.own_text` is not native"), "{said}");
    let native = with_ansible(&bin).args(["lint", "--native-only"]).arg(&fleet).bounded_output();
    assert!(!native.status.success() && text(&native).contains("only native modules are allowed"), "{}", text(&native));

    // The manager has neither ansible-core nor any other program.
    drop(one_manager(dir.path(), net()(1)));
    let home = dir.path().join("m1");
    let mut command = program_command(Path::new(PROGRAM));
    command.env("PATH", "/nonexistent").env("REMOOR_ANSIBLE_PYTHON", "/bin/false");
    let manager = Daemon::start_command(command, &home);
    wait_until("the manager leads", || (manager.ask(&["status"]).status.code() == Some(0)).then_some(()));
    let apply = || {
        let mut command = with_ansible(&bin);
        command.args(["apply", "--json", "--socket"]).arg(home.join("s")).arg(&fleet);
        let output = command.bounded_output();
        assert!(output.status.success(), "{}", text(&output));
        serde_json::from_slice::<Value>(&output.stdout).expect("JSON")
    };
    let (first, second) = (apply(), apply());
    assert_eq!((&first["generation"], &first["unchanged"]), (&1.into(), &false.into()), "{first}");
    assert_eq!((&second["generation"], &second["unchanged"]), (&1.into(), &true.into()), "equal input, equal bytes");

    let all = generations(&home);
    assert_eq!(all.len(), 1);
    let index: Value =
        serde_json::from_slice(all[0].get(".remoor/modules/index.json").expect("an index")).expect("JSON");
    let origins: Vec<&str> = index["modules"]
        .as_object()
        .expect("modules")
        .values()
        .map(|module| module["origin"]["file"].as_str().expect("a file"))
        .collect();
    assert!(origins.contains(&"library/own_text.py") && origins.contains(&"ansible/modules/subversion.py"), "{index}");
    assert!(!index.to_string().contains(dir.path().to_str().expect("UTF-8")), "no path of the operator's machine");

    // The node runs the plan that the manager compiles from the generation.
    let plan = provision_plan(&all[0]);
    let options = PlaybookRunOptions { journal: dir.path().join("journal"), ..PlaybookRunOptions::default() };
    let end = run(&plan, &options, &CancelToken::new(), &mut |_| {});
    assert!(end.failure.is_none(), "{:?}", end.failure);
    assert_eq!(fs::read_to_string(dir.path().join("text")).expect("the file of the module"), "a1");
}

#[test]
fn a_node_without_python_says_so_before_anything_runs() {
    let Some(bin) = ansible_dir() else { return };
    let check = |more: &str| {
        let dir = tempfile::tempdir().expect("a directory");
        let fleet = write_fleet(dir.path(), more);
        drop(one_manager(dir.path(), net()(1)));
        let manager = Daemon::start(&dir.path().join("m1"));
        wait_until("the manager leads", || (manager.ask(&["status"]).status.code() == Some(0)).then_some(()));
        let mut command = with_ansible(&bin);
        let output = command.arg("apply").arg("--socket").arg(dir.path().join("m1/s")).arg(&fleet).bounded_output();
        assert!(output.status.success(), "{}", text(&output));
        let mut plan = provision_plan(&generations(&dir.path().join("m1"))[0]);
        // The order of a manager has no blobs.
        plan.blobs.clear();
        let refused =
            NodeWork::default().check_plan(&rmp_serde::to_vec_named(&plan).expect("a plan"), &SessionCancel::default());
        assert!(!dir.path().join("text").exists(), "nothing was run");
        refused
    };
    assert_eq!(check(""), None);
    let refused = check(", ansible_python_interpreter: /nonexistent/python").expect("a refusal");
    assert!(refused.starts_with("site.yml:4: the module ansible.legacy.own_text needs Python"), "{refused}");
}

#[test]
fn a_machine_without_ansible_core_applies_with_a_warning() {
    let dir = tempfile::tempdir().expect("a directory");
    let fleet = write_fleet(dir.path(), "");
    let lint = |file: &str, content: &str| {
        fs::write(fleet.join(file), content).expect(file);
        let mut command = remoor();
        let output = command.arg("lint").arg(&fleet).env("REMOOR_ANSIBLE_PYTHON", "/bin/false").bounded_output();
        (output.status.success(), text(&output))
    };
    let (good, said) = lint("site.yml", SITE);
    assert!(!good && said.contains("module `own_text` is not native and needs ansible-core"), "{said}");
    let late = SITE.replace("    - own_text:", "    - when: not python | bool\n      own_text:");
    let (good, said) = lint("site.yml", &late);
    assert!(good && said.contains("no run with this inventory reaches it: module `own_text`"), "{said}");
}

#[test]
fn an_imported_repository_with_python_modules_lints() {
    let Some(bin) = ansible_dir() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let site =
        "- hosts: web\n  tasks: [{copy: {content: x, dest: /etc/app.conf}}, {own_text: {path: /etc/own, text: x}}]\n";
    fs::create_dir(dir.path().join("library")).expect("made");
    for (name, content) in [("site.yml", site), ("hosts", "[web]\nw1\n"), ("library/own_text.py", OWN_TEXT)] {
        fs::write(dir.path().join(name), content).expect(name);
    }
    let mut command = with_ansible(&bin);
    let output = command.args(["import", "site.yml", "fleet", "-i", "hosts"]).current_dir(dir.path()).bounded_output();
    let said = text(&output);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("site.yml:2") && said.contains("ansible.legacy.own_text"), "the effect is not known: {said}");
    let mut command = with_ansible(&bin);
    let linted = command.arg("lint").arg(dir.path().join("fleet")).bounded_output();
    assert!(linted.status.success(), "{}", text(&linted));
}

/// A module whose packing hangs costs the time limit of one request, and only its own task.
#[test]
fn a_module_that_hangs_while_it_is_packed_is_refused() {
    let Some(bin) = ansible_dir() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let tools = "collections/ansible_collections/acme/tools";
    let site = "- hosts: all\n  tasks: [{acme.tools.hangs: , when: wanted | bool}, {own_text: {path: /x, text: x}}]\n  vars: {wanted: false}\n";
    for (name, content) in [
        ("site.yml", site),
        ("library/own_text.py", OWN_TEXT),
        (&format!("{tools}/galaxy.yml"), "namespace: acme\nname: tools\nversion: 1.0.0\n"),
        (&format!("{tools}/plugins/modules/hangs.py"), OWN_TEXT),
        // ansible-core imports this file when it looks for the module.
        (&format!("{tools}/plugins/modules/__init__.py"), "import time\ntime.sleep(600)\n"),
    ] {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect(name);
        fs::write(path, content).expect(name);
    }
    let mut command = with_ansible(&bin);
    let output = command.arg("lint").arg(dir.path()).env("REMOOR_PACKER_SECONDS", "10").bounded_output();
    let said = text(&output);
    assert!(output.status.success() && said.contains("took longer than 10 s"), "{said}");
    assert!(said.contains("module `ansible.legacy.own_text` is not native"), "{said}");
}
