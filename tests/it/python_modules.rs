//! Modules that are not native, beside ansible-playbook: the same playbook runs with both, and the
//! registered results are compared. `tests/tools.sh` installs ansible-core.

use crate::local::remoor;
use crate::time_limit::BoundedCommand;
use serde_json::{Value, json};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const SITE: &str = r#"
- hosts: all
  gather_facts: false
  collections: [acme.tools]
  roles: [noted]
  tasks:
    - {own_text: {path: "{{ dir }}/text", text: "{{ 'a' ~ 1 }}", mode: "0640"}, register: own}
    - {own_text: {path: "{{ dir }}/text", text: a1, mode: "0640"}, register: own_again}
    - yum_repository:
        reposdir: "{{ dir }}"
        name: extra
        description: Extra packages
        baseurl: http://repo.example/extra
      register: repository
    - {yum_repository: {reposdir: "{{ dir }}", name: never, state: absent}, register: no_repository}
    - {old_shout: {text: hello, password: s3cret}, register: shout}
    - {acme.tools.shout: {text: 5}, register: number}
    - {acme.tools.shout: , register: no_text, ignore_errors: true}
    - {acme.tools.shout: {text: x, extra: 1}, register: bad_option, ignore_errors: true}
    - {said: {text: a b}, register: said, when: not ansible_check_mode}
    - {checked: , register: checked}
    - {acme.tools.silent: , register: silent, ignore_errors: true, when: not ansible_check_mode}
    - {ansible.builtin.sysvinit: {name: acme, state: turned}, register: service, ignore_errors: true}
    - copy:
        dest: "{{ dir }}/results.json"
        content: "{{ {'role': role_note, 'own': own, 'again': own_again, 'repository': repository, 'no_repository': no_repository,
          'shout': shout, 'number': number, 'no_text': no_text, 'bad': bad_option, 'silent': silent,
          'service': service, 'fact': role_fact | default('none'), 'said': said, 'checked': checked, 'said_fact': said_fact | default('none')} | to_nice_json }}"
      check_mode: false
"#;
const OWN_TEXT: &str = r#"#!/usr/bin/python
import os
from ansible.module_utils.basic import AnsibleModule

def main():
    spec = dict(path=dict(type="path", required=True), text=dict(required=True))
    module = AnsibleModule(argument_spec=spec, supports_check_mode=True, add_file_common_args=True)
    path, text = module.params["path"], module.params["text"]
    old = open(path).read() if os.path.exists(path) else ""
    changed = old != text
    if changed and not module.check_mode:
        with open(path, "w") as out:
            out.write(text)
    if os.path.exists(path):
        changed = module.set_fs_attributes_if_different(module.load_file_common_arguments(module.params), changed)
    module.exit_json(changed=changed, path=path, stdout="one\ntwo\n")

main()
"#;
const NOTE: &str = r#"#!/usr/bin/python
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.note_text import decorate

def main():
    module = AnsibleModule(argument_spec=dict(text=dict(required=True)), supports_check_mode=True)
    module.warn("only a note")
    module.exit_json(note=decorate(module.params["text"]), ansible_facts=dict(role_fact=[1, 2]))

main()
"#;
const SHOUT: &str = r#"#!/usr/bin/python
from ansible.module_utils.basic import AnsibleModule
from ansible_collections.acme.tools.plugins.module_utils.louder import louder

def main():
    module = AnsibleModule(argument_spec=dict(text=dict(required=True), password=dict(no_log=True)))
    module.exit_json(changed=True, said=louder(module.params["text"]))

main()
"#;
/// Programs that read their arguments from a file.
const SAID: &str = r#"#!/bin/sh
# WANT_JSON
text=$(sed 's/.*"text": "\([^"]*\)".*/\1/' "$1")
printf '{"changed": true, "said": "%s",\n "ansible_facts": {"said_fact": 1}}\n' "$text"
"#;
const CHECKED: &str = r#"#!/bin/sh
# WANT_JSON
if grep -q '"_ansible_check_mode": true' "$1"; then checks=true; else checks=false; fi
echo "{\"changed\": false, \"checks\": $checks}"
"#;
const SILENT: &str =
    "#!/usr/bin/python\nfrom ansible.module_utils.basic import AnsibleModule\nprint('nothing useful')\n";
const RUNTIME: &str = "plugin_routing:\n  modules:\n    old_shout: {redirect: acme.tools.shout}\n";

/// The directory with ansible-playbook. None: it is not installed.
pub fn ansible_dir() -> Option<PathBuf> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from);
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join(target).join("tools/ansible/bin");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found =
        [own].into_iter().chain(std::env::split_paths(&path)).find(|dir| dir.join("ansible-playbook").is_file());
    if found.is_none() {
        eprintln!("SKIPPED: ansible-core IS NOT INSTALLED: MODULES THAT RUN AS PYTHON ARE NOT COMPARED WITH ANSIBLE");
    }
    found
}

fn write_project(dir: &Path) {
    let tools = "collections/ansible_collections/acme/tools";
    let files = [
        ("site.yml", SITE),
        ("library/own_text.py", OWN_TEXT),
        ("library/said.sh", SAID),
        ("library/checked.sh", CHECKED),
        ("roles/noted/library/note.py", NOTE),
        ("roles/noted/module_utils/note_text.py", "def decorate(text):\n    return '<' + text + '>'\n"),
        ("roles/noted/tasks/main.yml", "- {note: {text: n}, register: role_note}\n"),
        (&format!("{tools}/plugins/modules/shout.py"), SHOUT),
        (&format!("{tools}/plugins/modules/silent.py"), SILENT),
        (&format!("{tools}/plugins/module_utils/louder.py"), "def louder(text):\n    return text.upper()\n"),
        (&format!("{tools}/meta/runtime.yml"), RUNTIME),
        (&format!("{tools}/galaxy.yml"), "namespace: acme\nname: tools\nversion: 1.0.0\n"),
    ];
    write_files(dir, &files);
}

/// Writes files below `dir`, with their directories.
pub fn write_files(dir: &Path, files: &[(&str, &str)]) {
    for (name, text) in files {
        let path = dir.join(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect(name);
        fs::write(path, text).expect(name);
    }
}

/// The command that runs `site.yml` in `dir` on this machine: with remoor, or with
/// ansible-playbook in `bin`. All output is piped.
pub fn site_command(bin: &Path, is_remoor: bool, dir: &Path, vars: &Value) -> Command {
    let mut command = if is_remoor { remoor() } else { Command::new(bin.join("ansible-playbook")) };
    match is_remoor {
        true => command.args(["play", "site.yml", "--connection", "local"]),
        false => command.args(["site.yml", "-i", "localhost,", "-c", "local"]),
    };
    command.args(["-e", &vars.to_string()]).current_dir(dir).env("PATH", path_with(bin));
    command.env("ANSIBLE_PYTHON_INTERPRETER", "/usr/bin/python3");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

pub fn path_with(dir: &Path) -> OsString {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::join_paths([dir.to_owned()].into_iter().chain(std::env::split_paths(&path))).expect("PATH")
}

/// The results without what differs between two runs or between the programs by design.
fn comparable(mut value: Value) -> Value {
    fn strip(value: &mut Value) {
        match value {
            Value::Object(map) => {
                // Remoor words its own failures, and has no tracebacks; Ansible keeps the output.
                for key in ["exception", "deprecations", "module_stdout", "module_stderr", "ignored", "false_condition"]
                {
                    map.remove(key);
                }
                if map.contains_key("skipped") {
                    map.remove("failed");
                }
                map.values_mut().for_each(strip);
            }
            Value::Array(items) => items.iter_mut().for_each(strip),
            _ => {}
        }
    }
    strip(&mut value);
    // ansible-core words this failure differently in each version.
    for key in ["msg", "rc"] {
        value["silent"].as_object_mut().expect("a result").remove(key);
    }
    value
}

#[test]
fn results_equal_those_of_ansible() {
    let Some(bin) = ansible_dir() else { return };
    let (native, other) = (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
    let (native, other) = (native.path(), other.path());
    write_project(native);
    write_project(other);
    let vars = |dir: &Path| json!({"dir": "/dev/null/never", "remoor_state_dir": dir.join("state")});
    for round in ["--check", "", "again"] {
        for (dir, is_remoor) in [(native, true), (other, false)] {
            let mut vars = vars(dir);
            vars["dir"] = json!(dir.join("out"));
            fs::create_dir_all(dir.join("out")).expect("out");
            let mut command = site_command(&bin, is_remoor, dir, &vars);
            let done = command.args(["--check"].iter().filter(|_| round == "--check")).bounded_output();
            let text = String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr);
            assert!(done.status.success(), "{round}: {text}");
        }
        let read = |dir: &Path| {
            let text = fs::read_to_string(dir.join("out/results.json")).expect("results");
            // Ansible passes the name of the playbook to the module, and remoor the full name.
            let text = text.replace(&dir.display().to_string(), "DIR").replace("(old_shout)", "(acme.tools.shout)");
            comparable(serde_json::from_str(&text).expect("JSON"))
        };
        let (ours, theirs) = (read(native), read(other));
        for (name, result) in theirs.as_object().expect("an object") {
            assert_eq!(&ours[name], result, "{name} {round}");
        }
        let files = |dir: &Path| -> Vec<(String, Vec<u8>)> {
            let read = |name: &str| (name.to_owned(), fs::read(dir.join("out").join(name)).unwrap_or_default());
            ["text", "extra.repo"].map(read).into()
        };
        assert_eq!(files(native), files(other), "{round}");
    }
}
