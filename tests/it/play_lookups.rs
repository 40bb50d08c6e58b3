//! Lookups that `remoor play` answers, beside ansible-playbook: the same playbook runs with both,
//! and the results are compared. Other tests run over SSH to a separate sshd on loopback.

use crate::play_ssh::{Server, run_to_end};
use crate::python_modules::{ansible_dir, site_command, write_files};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

const SITE: &str = r#"
- hosts: all
  gather_facts: false
  roles: [own]
  vars:
    names: {files: ["{{ shown.stdout }}.conf", none.conf], paths: [files, other]}
  tasks:
    - {command: echo computed, register: shown, check_mode: false}
    - {command: 'echo {{ item }}', with_lines: [printf 'a\nb\n', echo c], register: lines, check_mode: false}
    - {command: 'echo {{ item }}', with_ini: ['user file=files/data.ini section=one', 'user file=files/data.ini section=two'], register: ini, check_mode: false}
    - {set_fact: {once: "{{ lookup('password', dir ~ '/secret length=9 chars=digits') }}"}}
    - {set_fact: {again: "{{ lookup('password', dir ~ '/secret length=9 chars=digits') }}"}}
    - {set_fact: {failed_pipe: "{{ lookup('pipe', 'exit 3', errors='ignore') | default('none', true) }}"}}
    - {set_fact: {never: "{{ lookup('pipe', 'touch ' ~ dir ~ '/never') }}"}, when: shown.stdout == 'x'}
    - {debug: {msg: "{{ lookup('pipe', 'echo no >&2; exit 4') }}"}, ignore_errors: true, register: broken}
    - template: {src: results.j2, dest: "{{ dir }}/templated"}
      check_mode: false
    - copy:
        dest: "{{ dir }}/results.json"
        content: "{{ {
          'lines': lines.results | map(attribute='stdout'), 'ini': ini.results | map(attribute='stdout'),
          'role': of_role, 'role_template': role_template,
          'same_password': once == again, 'length': once | length, 'digits': once is match('^[0-9]+$'),
          'seeded': lookup('password', '/dev/null', length=8, seed=inventory_hostname),
          'pipe': lookup('pipe', 'pwd; echo ' ~ names.files[1]), 'query': query('pipe', 'echo 1', 'echo 2'),
          'data': lookup('pipe', raw), 'failed_pipe': failed_pipe, 'broken': broken is failed, 'never': never is defined,
          'one': lookup('ini', 'user', section='one', file='files/data.ini'),
          'default': lookup('ini', 'gone', default='d', section='one', file='files/data.ini'),
          'csv': lookup('csvfile', 'Li file=files/data.csv delimiter=, col=2'),
          'choice': lookup('random_choice', ['only']), 'unvault': lookup('unvault', 'data.csv'),
          'hosts': query('inventory_hostnames', 'all'), 'own': lookup('own', 'a', 'b', suffix='!'),
          'file': lookup('file', shown.stdout ~ '.conf'), 'found': lookup('first_found', names) | basename,
          'skipped': query('first_found', ['none-' ~ shown.stdout], skip=true),
          'glob': query('fileglob', shown.stdout ~ '*') | map('basename') | sort, 'absolute': lookup('file', dir ~ '/given'),
          'env': lookup('env', 'OF_CONTROLLER'), 'no_env': lookup('env', 'OF_NOBODY', default='d')
          } | to_nice_json }}"
      vars: {raw: "{% raw %}echo '{{ 1 + 1 }}'{% endraw %}"}
      check_mode: false
"#;
const OWN: &str = "from ansible.plugins.lookup import LookupBase

class LookupModule(LookupBase):
    def run(self, terms, variables=None, **kwargs):
        return [term.upper() + kwargs['suffix'] + variables['inventory_hostname'] for term in terms]
";

fn write_project(dir: &Path) {
    let files = [
        ("site.yml", SITE),
        ("lookup_plugins/own.py", OWN),
        (
            "results.j2",
            "{% for name in ['computed'] %}{{ lookup('pipe', 'echo ' ~ name) }} {{ lookup('own', name, suffix='-') }}\n{% endfor %}\n",
        ),
        ("files/computed.conf", "from the playbook\n"),
        ("files/data.ini", "[one]\nuser=first\n[two]\nuser=second\n"),
        ("files/data.csv", "Li,3,6.94\nBe,4,9.01\n"),
        ("out/given", "given\n"),
        (
            "roles/own/tasks/main.yml",
            "- {command: echo computed, register: shown, check_mode: false}\n- {set_fact: {of_role: \"{{ lookup('file', shown.stdout ~ '.conf') }}\", role_template: \"{{ lookup('template', shown.stdout ~ '.j2') }}\"}}\n",
        ),
        ("roles/own/files/computed.conf", "from the role\n"),
        ("roles/own/templates/computed.j2", "{{ shown.stdout | upper }} {{ lookup('file', 'computed.conf') }}\n"),
    ];
    write_files(dir, &files);
}

#[test]
fn lookups_find_what_ansible_finds() {
    let Some(bin) = ansible_dir() else { return };
    let (native, other) = (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
    for round in ["--check", "", "again"] {
        for (dir, is_remoor) in [(native.path(), true), (other.path(), false)] {
            write_project(dir);
            let vars = json!({"dir": dir.join("out"), "remoor_state_dir": dir.join("state")});
            let mut command = site_command(&bin, is_remoor, dir, &vars);
            command.args(["--check"].iter().filter(|_| round == "--check"));
            command.env("OF_CONTROLLER", "mine");
            let (code, text) = run_to_end(&mut command);
            assert_eq!(code, Some(0), "{round}: {text}");
        }
        let read = |dir: &Path, name: &str| {
            let text = fs::read_to_string(dir.join("out").join(name)).expect(name);
            text.replace(&dir.display().to_string(), "DIR")
        };
        let results = |dir| serde_json::from_str::<Value>(&read(dir, "results.json")).expect("JSON");
        let (ours, theirs) = (results(native.path()), results(other.path()));
        for (name, result) in theirs.as_object().expect("an object") {
            assert_eq!(&ours[name], result, "{name} {round}");
        }
        assert_eq!(read(native.path(), "templated"), read(other.path(), "templated"), "{round}");
        assert_eq!(read(native.path(), "secret").len(), read(other.path(), "secret").len(), "{round}");
        assert!(!native.path().join("out/never").exists(), "{round}");
    }
}

/// `given` is a directory of the controller that is not the playbook's.
const SENT: &str = r#"
- hosts: all
  gather_facts: false
  tasks:
    - {file: {path: "{{ given }}/made", state: directory}, delegate_to: localhost}
    - {copy: {content: "made {{ item }}", dest: "{{ given }}/made/{{ item }}", mode: '0640'}, loop: [one, two], delegate_to: localhost}
    - {copy: {src: "{{ given }}/made/{{ item }}", dest: "{{ out }}/{{ item }}", mode: preserve}, loop: [one, two], register: copied}
    - {template: {src: "{{ given }}/given.j2", dest: "{{ out }}/templated"}, register: templated}
    - {unarchive: {src: "{{ given }}/given.tar", dest: "{{ out }}"}, register: unpacked}
    - {copy: {src: "{{ given }}/made/gone", dest: "{{ out }}/gone"}, ignore_errors: true, register: gone}
    - copy:
        dest: "{{ out }}/results.json"
        content: "{{ {
          'copied': copied.results | map(attribute='changed'), 'templated': templated is changed,
          'unpacked': unpacked is changed, 'gone': gone is failed
          } | to_nice_json }}"
      check_mode: false
"#;

#[test]
fn files_that_are_made_during_a_run_or_are_outside_of_the_playbook_are_sent() {
    let Some(bin) = ansible_dir() else { return };
    let (native, other) = (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
    for dir in [native.path(), other.path()] {
        for name in ["given", "out", "play"] {
            fs::create_dir(dir.join(name)).expect(name);
        }
        fs::write(dir.join("play/site.yml"), SENT).expect("written");
        fs::write(dir.join("given/given.j2"), "host {{ inventory_hostname }}\n").expect("written");
        fs::write(dir.join("given/member"), "packed\n").expect("written");
        let mut tar = Command::new("tar");
        let status =
            tar.args(["-C"]).arg(dir.join("given")).args(["-cf", "given.tar", "member"]).current_dir(dir.join("given"));
        assert!(status.status().expect("tar").success());
    }
    for round in ["", "again", "--check"] {
        for (dir, is_remoor) in [(native.path(), true), (other.path(), false)] {
            let vars =
                json!({"given": dir.join("given"), "out": dir.join("out"), "remoor_state_dir": dir.join("state")});
            let mut command = site_command(&bin, is_remoor, &dir.join("play"), &vars);
            command.args(["--check"].iter().filter(|_| round == "--check"));
            let (code, text) = run_to_end(&mut command);
            assert_eq!(code, Some(0), "{round}: {text}");
        }
        for name in ["results.json", "one", "two", "templated", "member"] {
            let read = |dir: &Path| fs::read_to_string(dir.join("out").join(name)).expect(name);
            assert_eq!(read(native.path()), read(other.path()), "{name} {round}");
        }
        let mode = |dir: &Path| fs::metadata(dir.join("out/one")).expect("one").permissions().mode() & 0o777;
        assert_eq!((mode(native.path()), mode(other.path())), (0o640, 0o640), "{round}");
        assert!(!native.path().join("out/gone").exists(), "{round}");
    }
}

#[test]
fn files_and_environment_are_those_of_the_controller() {
    let Some(server) = Server::start() else { return };
    server.write("later", "made by a task\n");
    let text = "- hosts: h1
  gather_facts: no
  tasks:
    - {command: echo later, register: r}
    - {copy: {dest: '{{ dir }}/out', content: \"{{ lookup('file', r.stdout) }} {{ lookup('env', 'OF_CONTROLLER') }} {{ lookup('file', dir ~ '/later') }}\"}}
    - {copy: {dest: '{{ dir }}/far', content: \"{{ lookup('file', r.stdout) }}\"}, delegate_to: h2}
    - {command: 'true', when: \"lookup('file', 'gone-' ~ r.stdout, errors='ignore') is not none\"}
    - {debug: {msg: \"{{ lookup('file', 'gone-' ~ r.stdout) }}\"}}
";
    let mut command = server.command_for(text, &[]);
    let (code, text) = run_to_end(command.env("OF_CONTROLLER", "mine"));
    assert!(code == Some(5) && text.contains("`gone-later` does not exist"), "{text}");
    let read = |name: &str| fs::read_to_string(server.path(name)).expect(name);
    assert_eq!(read("out"), "made by a task mine made by a task", "{text}");
    assert_eq!(read("far"), "made by a task", "{text}");

    let text = "- {hosts: h1, gather_facts: no, tasks: [{debug: {msg: \"{{ lookup('pipe', 'x') }}\"}}]}\n";
    let (code, text) = run_to_end(&mut server.command_for(text, &["--native-only"]));
    assert!(code == Some(5) && text.contains("which `--native-only` refuses"), "{text}");
}
