//! Tasks in the background (`async` with `poll: 0`) and `async_status`, beside ansible-playbook.
//! The registered results are compared.

use crate::local::{remoor, wait_until};
use crate::python_modules::{ansible_dir, site_command, write_files};
use crate::time_limit::BoundedCommand;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};

const SITE: &str = r#"
- hosts: all
  gather_facts: false
  vars: {limit: 60, jobs: []}
  tasks:
    - {shell: "cat {{ dir }}/go; echo out; echo err >&2; exit 3", async: "{{ limit }}", poll: 0, register: started}
    - {async_status: {jid: "{{ started.ansible_job_id }}"}, register: runs}
    - {shell: "echo x > {{ dir }}/go"}
    - async_status: {jid: "{{ started.ansible_job_id }}"}
      register: failed
      until: failed is finished
      retries: 600
      delay: 0.1
      ignore_errors: true
    - {command: "echo {{ item }} {{ ansible_loop.index }}", async: 60, poll: "{{ 0 }}", loop: [a, "{{ '{' }}{b}}"], loop_control: {extended: true, extended_allitems: false}, register: looped}
    - async_status: {jid: "{{ item.ansible_job_id }}"}
      loop: "{{ looped.results }}"
      register: each
      until: each.finished
      retries: 600
      delay: 0.1
    - {file: {path: "{{ dir }}/made", state: directory, mode: "0750"}, async: 60, poll: 0, register: native}
    - {async_status: {jid: "{{ native.ansible_job_id }}"}, register: made, until: made is finished, retries: 600, delay: 0.1}
    - {acme: {text: "{{ dir }}"}, async: 60, poll: 0, register: python}
    - {async_status: {jid: "{{ python.ansible_job_id }}"}, register: said, until: said is finished, retries: 600, delay: 0.1}
    - {command: sleep 300, async: 20, poll: 0, register: slow}
    - async_status: {jid: "{{ slow.ansible_job_id }}"}
      register: over
      until: over is finished
      retries: 600
      delay: 0.1
      ignore_errors: true
    - {async_status: {jid: "{{ slow.ansible_job_id }}", mode: cleanup}, register: erased}
    - {async_status: {jid: "{{ slow.ansible_job_id }}"}, register: gone, ignore_errors: true}
    - {command: echo 5, async: "{{ 0 }}", poll: 0, register: foreground}
    - {command: "true", async: 60, poll: 0, changed_when: false, register: unchanged}
    - copy:
        dest: "{{ dir }}/results.json"
        content: "{{ {'started': started, 'runs': runs, 'failed': failed, 'looped': looped, 'each': each, 'native': native,
          'made': made, 'said': said, 'over': over, 'erased': erased, 'gone': gone, 'foreground': foreground, 'unchanged': unchanged,
          'tests': [runs is finished, runs is started, foreground is finished, started is changed]} | to_nice_json }}"
    # The files of the jobs are in the home directory of the user.
    - {async_status: {jid: "{{ unchanged.ansible_job_id }}"}, register: last, until: last is finished, retries: 600, delay: 0.1}
    - async_status: {jid: "{{ item }}", mode: cleanup}
      loop: "{{ [started, native, python, unchanged] | map(attribute='ansible_job_id') | list + looped.results | map(attribute='ansible_job_id') | list }}"
"#;
const ACME: &str = "#!/usr/bin/python
from ansible.module_utils.basic import AnsibleModule

def main():
    module = AnsibleModule(argument_spec=dict(text=dict(required=True)))
    module.exit_json(changed=True, said=module.params['text'])

main()
";

/// The results without what differs in each run, or by design.
fn comparable(mut value: Value, dir: &Path) -> Value {
    fn strip(value: &mut Value) {
        match value {
            Value::Object(map) => {
                for key in ["ansible_job_id", "results_file", "erased"] {
                    if let Some(Value::String(text)) = map.get_mut(key) {
                        text.retain(|c| !c.is_ascii_digit());
                    }
                }
                // Remoor words its own failures and lists, and its `file` returns `dest` too.
                for key in [
                    "exception",
                    "attempts",
                    "start",
                    "end",
                    "delta",
                    "child_pid",
                    "ignored",
                    "msg",
                    "invocation",
                    "ansible_loop",
                    "dest",
                ] {
                    map.remove(key);
                }
                if map.contains_key("results") {
                    map.remove("failed");
                }
                map.values_mut().for_each(strip);
            }
            Value::Array(items) => items.iter_mut().for_each(strip),
            _ => {}
        }
    }
    strip(&mut value);
    serde_json::from_str(&value.to_string().replace(&dir.display().to_string(), "DIR")).expect("JSON")
}

#[test]
fn results_of_jobs_equal_those_of_ansible() {
    let Some(bin) = ansible_dir() else { return };
    let mut results = Vec::new();
    for is_remoor in [true, false] {
        let dir = tempfile::tempdir().expect("a directory");
        let dir = dir.path();
        write_files(dir, &[("site.yml", SITE), ("library/acme.py", ACME)]);
        let made = std::process::Command::new("mkfifo").arg(dir.join("go")).status();
        assert!(made.expect("mkfifo").success());
        let vars = json!({"dir": dir, "remoor_state_dir": dir.join("state")});
        let done = site_command(&bin, is_remoor, dir, &vars).bounded_output();
        let text = String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "{text}");
        let found = fs::read_to_string(dir.join("results.json")).expect("results");
        results.push(comparable(serde_json::from_str(&found).expect("JSON"), dir));
    }
    for (name, theirs) in results[1].as_object().expect("an object") {
        assert_eq!(&results[0][name], theirs, "{name}");
    }
}

/// Runs tasks with remoor on this machine, and returns the exit code and all output.
fn play(dir: &Path, tasks: &str, arguments: &[&str]) -> (Option<i32>, String) {
    let text = format!("- hosts: all\n  gather_facts: false\n  tasks:\n{tasks}");
    write_files(dir, &[("site.yml", &text)]);
    let vars = json!({"dir": dir, "remoor_state_dir": dir.join("state")});
    let mut command = remoor();
    command.args(["play", "site.yml", "--connection", "local", "-e", &vars.to_string()]).args(arguments);
    let done = command.current_dir(dir).env("HOME", dir).bounded_output();
    let text = String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr);
    (done.status.code(), text)
}

fn job_files(dir: &Path) -> Vec<PathBuf> {
    let found = fs::read_dir(dir.join(".ansible_async")).into_iter().flatten();
    found.map(|entry| entry.expect("an entry").path()).collect()
}

#[test]
fn a_job_outlives_the_play_and_stores_its_result() {
    let dir = tempfile::tempdir().expect("a directory");
    let dir = dir.path();
    let wait = "    - {shell: 'while ! [ -e {{ dir }}/go ]; do sleep 0.1; done; echo done', async: 600, poll: 0}\n";
    let (code, text) = play(dir, wait, &[]);
    assert_eq!(code, Some(0), "{text}");
    let [file] = &job_files(dir)[..] else { panic!("one job: {text}") };
    let read = || serde_json::from_slice::<Value>(&fs::read(file).expect("the file of the job")).expect("JSON");
    assert_eq!(read()["finished"], false);
    fs::write(dir.join("go"), "").expect("written");
    let result = wait_until("the job ends", || Some(read()).filter(|result| result.get("started").is_none()));
    assert_eq!((&result["rc"], &result["stdout"]), (&json!(0), &json!("done")), "{result}");
}

#[test]
fn a_job_ends_with_its_time_limit_and_all_its_processes() {
    let dir = tempfile::tempdir().expect("a directory");
    let dir = dir.path();
    let hang =
        "    - {shell: 'trap \"\" TERM; echo $$ > {{ dir }}/pid; while :; do sleep 300; done', async: 20, poll: 0}\n";
    let (code, text) = play(dir, hang, &[]);
    assert_eq!(code, Some(0), "{text}");
    let [file] = &job_files(dir)[..] else { panic!("one job: {text}") };
    let result = wait_until("the job ends", || {
        let result: Value = serde_json::from_slice(&fs::read(file).expect("the file of the job")).expect("JSON");
        Some(result).filter(|result| result.get("started").is_none())
    });
    assert_eq!((&result["msg"], &result["failed"]), (&json!("Timeout exceeded"), &json!(true)));
    let pid = fs::read_to_string(dir.join("pid")).expect("the process of the job");
    let pid = pid.trim();
    wait_until("its process ends", || (!Path::new("/proc").join(pid).exists()).then_some(()));
}

#[test]
fn check_mode_starts_no_job_and_does_not_wait_for_one() {
    let dir = tempfile::tempdir().expect("a directory");
    let dir = dir.path();
    let tasks = "    - {command: touch x, async: 600, poll: 0, register: job}\n    \
                 - {async_status: {jid: '{{ job.ansible_job_id }}'}, register: result, until: result is finished, retries: 100, delay: 60}\n";
    let (code, text) = play(dir, tasks, &["--check"]);
    assert_eq!(code, Some(0), "{text}");
    assert_eq!(job_files(dir), Vec::<PathBuf>::new());
}

#[test]
fn the_file_of_a_job_that_is_no_result_is_bounded() {
    let dir = tempfile::tempdir().expect("a directory");
    let dir = dir.path();
    let jobs = dir.join(".ansible_async");
    fs::create_dir(&jobs).expect("a directory");
    let large = fs::File::create(jobs.join("j1.1")).expect("a file");
    large.set_len(1 << 40).expect("a sparse file");
    assert!(std::process::Command::new("mkfifo").arg(jobs.join("j2.1")).status().expect("mkfifo").success());
    std::os::unix::fs::symlink("/etc/passwd", jobs.join("j3.1")).expect("a link");
    fs::write(jobs.join("j4.1"), "{\"cut").expect("a file");
    for (id, message) in [
        ("j1.1", "has more than 16 MiB"),
        ("j2.1", "could not find job"),
        ("j3.1", "could not be read"),
        ("../.ansible_async/j4.1", "could not find job"),
    ] {
        let (code, text) = play(dir, &format!("    - {{async_status: {{jid: {id}}}}}\n"), &[]);
        assert!(code != Some(0) && text.contains(message), "{id}: {text}");
    }
    let cut =
        "    - {async_status: {jid: j4.1}, register: cut}\n    - {assert: {that: [not cut.finished, cut.started]}}\n";
    let (code, text) = play(dir, cut, &[]);
    assert_eq!(code, Some(0), "{text}");
}
