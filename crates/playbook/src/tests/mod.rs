//! Tests that run plans on this machine, in temporary directories.

use super::*;
use remoor_model::FileSet;
use serde_json::{Map, json};
use std::collections::BTreeMap;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use tempfile::TempDir;

mod bounds;
mod check;
mod data_loss;
mod delegation;
mod fetch;
mod fetch_modules;
mod hostvars;
mod inventory_change;
mod language;
mod links;
mod lookups;
mod other_users;
mod pending_handlers;
mod properties;
mod python_modules;
mod python_plugins;
mod reboot;
mod refusals;
mod run_once;
mod set_a;
mod set_b;
mod synchronize;
mod unevaluable;
mod values;
mod vault;

pub(super) struct Ran {
    pub end: RunEnd,
    events: Vec<RunEvent>,
}

impl Ran {
    pub fn statuses(&self) -> Vec<(String, Status)> {
        let done = |e: &RunEvent| match e {
            RunEvent::Task(d) | RunEvent::Handler(d) => Some((d.name.clone(), d.status)),
            _ => None,
        };
        self.events.iter().filter_map(done).collect()
    }
    fn text(&self) -> String {
        serde_json::to_string(&self.events).unwrap() + &serde_json::to_string(&self.end).unwrap()
    }
    pub fn assert_success(self) -> Self {
        assert!(self.end.failure.is_none(), "{:#?}", self.end);
        self
    }
}

pub(super) fn plan(dir: &Path, files: &[(&str, &str)]) -> Plan {
    let vars = json!({"dir": dir.display().to_string(), "inventory_hostname": "w1", "group_names": []});
    let host = delegation::make_host("w1", &vars);
    let set: BTreeMap<String, Vec<u8>> = files.iter().map(|(p, t)| ((*p).to_owned(), t.as_bytes().to_vec())).collect();
    let compiled = compile(&FileSet(set), "site.yml", &host, &CompileOptions::default());
    compiled.unwrap_or_else(|f| panic!("{}", f.iter().map(|f| format!("{f}\n")).collect::<String>())).plan
}

pub(super) fn options(dir: &Path) -> PlaybookRunOptions {
    PlaybookRunOptions {
        run_id: "r1".into(),
        journal: dir.join("journal"),
        park_dir: dir.join("parked"),
        task_timeout_ms: 120_000,
        systemd: remoor_host::systemd::SystemdSockets::in_runtime_dir(dir),
        ..PlaybookRunOptions::default()
    }
}

pub(super) fn go(plan: &Plan, options: &PlaybookRunOptions) -> Ran {
    let mut events = Vec::new();
    let end = run(plan, options, &CancelToken::new(), &mut |e| events.push(e));
    Ran { end, events }
}

fn tasks(dir: &Path, text: &str) -> Plan {
    plan(dir, &[("site.yml", &format!("- hosts: all\n  tasks:\n{text}"))])
}

#[test]
fn file_modules_change_once() {
    let dir = TempDir::new().unwrap();
    let d = dir.path();
    std::fs::write(d.join("conf"), "a=1\nb=2\na=3").unwrap();
    let text = "
- hosts: all
  vars: {who: world}
  tasks:
    - {name: dir, file: {path: '{{ dir }}/x/y', state: directory, mode: '0750'}}
    - {name: template, template: {src: t.j2, dest: '{{ dir }}/x/t', mode: '0640'}}
    - {name: tera, template: {src: t.tera, dest: '{{ dir }}/x/tera'}}
    - {name: copy, copy: {content: 'hi', dest: '{{ dir }}/x/c', mode: u=rw}}
    - {name: source, copy: {src: data, dest: '{{ dir }}/x/'}}
    - {name: link, file: {src: c, dest: '{{ dir }}/x/l', state: link}}
    - {name: line, lineinfile: {path: '{{ dir }}/conf', regexp: '^a=', line: a=9}}
    - {name: refs, lineinfile: {path: '{{ dir }}/conf', regexp: '^(b)=(\\d+)', line: '\\1 = \\2', backrefs: yes}}
    - {name: new, lineinfile: {path: '{{ dir }}/conf', line: c=1, insertafter: '^b'}}
    - {name: gone, lineinfile: {path: '{{ dir }}/conf', regexp: ^a=1, state: absent}}
    - {name: made, lineinfile: {path: '{{ dir }}/new', line: x, create: yes}}
    - {name: mode, file: {path: '{{ dir }}/new', mode: '0600'}}
    - {name: hard, file: {src: '{{ dir }}/new', path: '{{ dir }}/hard', state: hard}}
    - {name: absent, file: {path: '{{ dir }}/nothing', state: absent}}
    - {name: command, command: 'touch {{ dir }}/once creates={{ dir }}/once'}
";
    let files = [
        ("site.yml", text),
        ("templates/t.j2", "{% for i in [1, 2] %}\n{{ who }} {{ i }}\n{% endfor %}\n"),
        ("templates/t.tera", "<{{ who }}>\n"),
        ("files/data", "data"),
    ];
    let plan = plan(d, &files);
    let first = go(&plan, &options(d)).assert_success();
    let unchanged: Vec<String> =
        first.statuses().into_iter().filter(|(_, s)| *s != Status::Changed).map(|(n, _)| n).collect();
    assert_eq!(unchanged, ["absent"]);
    let read = |name: &str| std::fs::read_to_string(d.join(name)).unwrap();
    assert_eq!(read("x/t"), "world 1\nworld 2\n");
    assert_eq!(read("x/tera"), "<world>\n");
    assert_eq!(read("x/data"), "data");
    assert_eq!(read("conf"), "b = 2\nc=1\na=9\n");
    let mode = |name: &str| std::fs::metadata(d.join(name)).unwrap().permissions().mode() & 0o7777;
    assert_eq!((mode("x/t"), mode("x/y"), mode("x/c"), mode("new")), (0o640, 0o750, 0o644, 0o600));
    let second = go(&plan, &options(d)).assert_success();
    assert_eq!((second.end.changed, second.end.failed), (0, 0), "{:#?}", second.statuses());
    assert!(
        std::fs::read_dir(d.join("x")).unwrap().all(|e| !e.unwrap().file_name().to_string_lossy().contains("remoor"))
    );
}

#[test]
fn handlers_run_once_in_the_order_of_their_definition() {
    let dir = TempDir::new().unwrap();
    let text = "
- hosts: all
  tasks:
    - {name: t1, command: 'true', notify: [third, everyone]}
    - {name: t2, command: 'true', notify: first}
    - {name: t3, command: 'true', notify: second, changed_when: false}
    - meta: flush_handlers
    - {name: t4, command: 'true', notify: second}
  handlers:
    - {name: first, command: 'true', listen: everyone}
    - {name: second, command: 'true'}
    - {name: third, command: 'true'}
";
    let ran = go(&plan(dir.path(), &[("site.yml", text)]), &options(dir.path())).assert_success();
    let order: Vec<String> = ran.statuses().into_iter().map(|(n, _)| n).collect();
    assert_eq!(order, ["t1", "t2", "t3", "first", "third", "t4", "second"]);
    assert!(!dir.path().join("journal").exists());
}

#[test]
fn handlers_owed_after_a_failure_are_kept_and_run_by_the_next_run() {
    let dir = TempDir::new().unwrap();
    let text = |fail: &str| {
        format!(
            "- hosts: all\n  tasks:\n    - {{name: t1, command: echo hi, notify: restart, changed_when: {fail}}}\n    - {{name: t2, fail: {{msg: no}}, when: {fail}}}\n  handlers:\n    - {{name: restart, command: echo again}}\n"
        )
    };
    let failed = go(&plan(dir.path(), &[("site.yml", &text("true"))]), &options(dir.path()));
    assert_eq!(failed.end.pending_handlers, ["restart"]);
    assert_eq!(failed.end.failure.as_ref().map(|f| (f.task.as_str(), f.line)), Some(("t2", 4)));
    assert_eq!(std::fs::read_to_string(dir.path().join("journal")).unwrap(), "[\"restart\"]");
    let next = go(&plan(dir.path(), &[("site.yml", &text("false"))]), &options(dir.path())).assert_success();
    // The pending handler runs at the end of the play. Until then, this run may correct what failed
    // in the previous run.
    assert_eq!(next.statuses().last(), Some(&("restart".into(), Status::Changed)), "{:?}", next.statuses());
    assert!(next.end.pending_handlers.is_empty() && !dir.path().join("journal").exists());
}

#[test]
fn undo_restores_what_was() {
    let dir = TempDir::new().unwrap();
    let d = dir.path();
    std::fs::write(d.join("a"), "old").unwrap();
    std::fs::set_permissions(d.join("a"), std::fs::Permissions::from_mode(0o604)).unwrap();
    std::fs::create_dir_all(d.join("tree/sub")).unwrap();
    std::fs::write(d.join("tree/sub/f"), "deep").unwrap();
    symlink("f", d.join("tree/sub/l")).unwrap();
    let text = "
    - {copy: {content: new, dest: '{{ dir }}/a', mode: '0644'}}
    - {copy: {content: newer, dest: '{{ dir }}/a'}}
    - {file: {path: '{{ dir }}/tree', state: absent}}
    - {file: {path: '{{ dir }}/made/by/us', state: directory}}
    - {copy: {content: x, dest: '{{ dir }}/made/by/us/f'}}
";
    let options = PlaybookRunOptions { backup: Some(d.join("backup")), ..options(d) };
    go(&tasks(d, text), &options).assert_success();
    assert!(!d.join("tree").exists() && d.join("made/by/us/f").exists());
    let restored = undo(&d.join("backup")).unwrap();
    assert!(restored.len() >= 6, "{restored:?}");
    assert_eq!(std::fs::read_to_string(d.join("a")).unwrap(), "old");
    assert_eq!(std::fs::metadata(d.join("a")).unwrap().permissions().mode() & 0o777, 0o604);
    assert_eq!(std::fs::read_to_string(d.join("tree/sub/l")).unwrap(), "deep");
    assert!(!d.join("made").exists());
    assert_eq!(undo(&d.join("backup")).unwrap(), Vec::<String>::new());
}

/// Cleanup removes a directory with a file whose name is Latin-1. Provisioning uses the same backup
/// directory as the cleanup.
#[test]
fn names_that_are_no_text_are_cleaned_up_and_put_back() {
    use std::os::unix::ffi::OsStrExt;
    let dir = TempDir::new().unwrap();
    let d = dir.path();
    let name = |bytes| d.join("tree").join(std::ffi::OsStr::from_bytes(bytes));
    let (file, link) = (name(b"pr\xe9cieux.conf"), name(b"\xff"));
    std::fs::create_dir(d.join("tree")).unwrap();
    std::fs::write(&file, "precious").unwrap();
    symlink(&file, &link).unwrap();
    let options = PlaybookRunOptions { backup: Some(d.join("backup")), ..options(d) };
    let cleanup = PlaybookRunOptions { phase: ResetupPhase::Cleanup, ..options.clone() };
    go(&tasks(d, "    - {file: {path: '{{ dir }}/tree', state: absent}}\n"), &cleanup).assert_success();
    assert!(!d.join("tree").exists());
    go(&tasks(d, "    - {copy: {content: new, dest: '{{ dir }}/new'}}\n"), &options).assert_success();
    assert_eq!(undo(&d.join("backup")).unwrap().len(), 4);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "precious");
    assert_eq!(std::fs::read_link(&link).unwrap(), file);
    assert_eq!(undo(&d.join("backup")).unwrap(), Vec::<String>::new());
}

#[test]
fn protected_paths_are_parked() {
    let dir = TempDir::new().unwrap();
    let d = dir.path();
    std::fs::create_dir_all(d.join("lib/etcd/member")).unwrap();
    std::fs::write(d.join("lib/etcd/member/wal"), "data").unwrap();
    std::fs::write(d.join("state"), "data").unwrap();
    let protect = vec![format!("{}/lib/etcd", d.display()), format!("{}/state", d.display())];
    let options = PlaybookRunOptions { protect, backup: Some(d.join("backup")), ..options(d) };
    let text =
        "    - {file: {path: '{{ dir }}/lib', state: absent}}\n    - {copy: {content: '', dest: '{{ dir }}/state'}}\n";
    go(&tasks(d, text), &options).assert_success();
    assert!(!d.join("lib").exists());
    let mut parked: Vec<_> = std::fs::read_dir(d.join("parked/r1")).unwrap().map(|e| e.unwrap().path()).collect();
    parked.sort();
    assert_eq!(parked.len(), 2);
    assert_eq!(std::fs::read_to_string(parked[0].join("etcd/member/wal")).unwrap(), "data");
    assert_eq!(std::fs::read_to_string(&parked[1]).unwrap(), "data");
    undo(&d.join("backup")).unwrap();
    assert!(d.join("lib/etcd/member/wal").exists());
    assert_eq!(std::fs::read_to_string(d.join("state")).unwrap(), "data");
    let vital = go(&tasks(d, "    - {file: {path: /usr/, state: absent}}\n"), &options);
    assert!(vital.end.failure.unwrap().message.contains("never removed"));
}

#[test]
fn a_value_with_blanks_stays_one_argument() {
    let dir = TempDir::new().unwrap();
    let text = r#"
    - command: printf [%s] {{ evil }} "{{ evil }}" {{ nothing }} $(id)
      register: r
      vars: {evil: '; rm -rf / $(x) -o', nothing: ''}
    - assert: {that: "r.stdout == '[; rm -rf / $(x) -o][; rm -rf / $(x) -o][$(id)]'"}
    - command: printf {{ open }}
      vars: {open: "{{ '{' ~ '{ 1 + 1 }' ~ '}' }}"}
      register: r
    - set_fact: {copied: '{{ r.stdout }}'}
    - assert: {that: ["copied == r.stdout", "copied | length == 11", "'1 + 1' in copied"]}
    - shell: echo {{ "a b;c" | quote }}
      register: r
    - assert: {that: r.stdout == 'a b;c'}
"#;
    go(&tasks(dir.path(), text), &options(dir.path())).assert_success();
}

#[test]
fn loops_registers_retries_blocks_and_includes() {
    let dir = TempDir::new().unwrap();
    let d = dir.path();
    let site = "
- hosts: all
  vars:
    table: {a: 1, b: 2}
    list: ['{{ table.a }}', x]
  tasks:
    - {command: 'echo {{ item }}', loop: '{{ list }}', register: r, loop_control: {label: 'L{{ item }}', index_var: n}}
    - assert: {that: [\"r.results | map(attribute='stdout') | list == ['1', 'x']\", r is changed, r.results | length == 2]}
    - {set_fact: {sum: '{{ sum | default(0) + item.value }}'}, with_dict: '{{ table }}'}
    - assert: {that: sum == 3}
    - {shell: 'echo x >> {{ dir }}/tries; grep -c x {{ dir }}/tries', register: t, until: t.stdout | int >= 3, retries: 5, delay: 0}
    - assert: {that: t.attempts == 3}
    - {command: 'false', register: f, ignore_errors: yes}
    - assert: {that: [f is failed, f.rc == 1]}
    - {command: exit, when: false, register: s}
    - assert: {that: [s is skipped, not s is changed, \"(s.stat.exists | default('none')) == 'none'\"]}
    - {command: 'sh -c \"exit 3\"', register: c, failed_when: c.rc == 0, changed_when: c.rc == 3}
    - block:
        - {fail: {msg: planned}}
        - {set_fact: {never: 1}}
      rescue:
        - {set_fact: {rescued: '{{ ansible_failed_result.msg }}'}}
      always:
        - {set_fact: {ended: true}}
    - assert: {that: [\"rescued == 'planned'\", ended, never is undefined]}
    - {include_tasks: 'sub-{{ item }}.yml', loop: [a, b]}
    - assert: {that: [\"from_a == 'a'\", \"from_b == 'b'\"]}
    - {import_tasks: sub-a.yml, when: false}
    - {stat: {path: '{{ dir }}/tries'}, register: st}
    - assert: {that: [st.stat.exists, st.stat.isreg, st.stat.size == 6]}
    - {shell: 'echo $A-$B', environment: {B: '2'}, register: e}
    - assert: {that: \"e.stdout == '1-2'\"}
    - {debug: {msg: '{{ missing | default(omit) }}'}}
  environment: {A: 1}
";
    let files = [
        ("site.yml", site),
        ("sub-a.yml", "- {set_fact: {from_a: '{{ item }}'}}\n"),
        ("sub-b.yml", "- {set_fact: {from_b: '{{ item }}'}}\n"),
    ];
    let ran = go(&plan(d, &files), &options(d)).assert_success();
    assert!(ran.text().contains("\"L1\""));
}

#[test]
fn an_undefined_variable_is_named_with_its_place() {
    let dir = TempDir::new().unwrap();
    let files = [
        (
            "site.yml",
            "- hosts: all\n  vars: {outer: '{{ inner.x }}'}\n  tasks:\n    - template: {src: t.j2, dest: '{{ dir }}/t'}\n",
        ),
        ("templates/t.j2", "ok\n\n{{ outer }}\n"),
    ];
    let failure = go(&plan(dir.path(), &files), &options(dir.path())).end.failure.unwrap();
    assert!(failure.message.starts_with("templates/t.j2:3:"), "{}", failure.message);
    assert!(failure.message.contains("`inner") && failure.message.contains("variable `outer`"), "{}", failure.message);
    let failure = go(&tasks(dir.path(), "    - debug: msg=x\n      when: nowhere == 1\n"), &options(dir.path()))
        .end
        .failure
        .unwrap();
    assert_eq!((failure.line, failure.message.as_str()), (4, "when: `nowhere` is undefined"));
    let failure = go(
        &tasks(dir.path(), "    - {debug: {msg: '{{ a }}'}, vars: {a: '{{ b }}', b: '{{ a }}'}}\n"),
        &options(dir.path()),
    )
    .end
    .failure
    .unwrap();
    assert_eq!(failure.message, "site.yml:3: `msg`: variables refer to each other endlessly: a -> b -> a");
    let own = "    - {debug: {msg: 'x {{ a.c }}'}, vars: {a: {c: '{{ a.c ~ 1 }}'}}}\n";
    let failure = go(&tasks(dir.path(), own), &options(dir.path())).end.failure.unwrap();
    assert!(failure.message.ends_with("endlessly: c -> c"), "{}", failure.message);
    let files = [
        ("site.yml", "- hosts: all\n  tasks:\n    - template: {src: a.j2, dest: '{{ dir }}/t'}\n"),
        ("templates/a.j2", "a\n{% include 'b.j2' %}\n"),
        ("templates/b.j2", "\n\n{% include 'a.j2' %}\n"),
    ];
    let failure = go(&plan(dir.path(), &files), &options(dir.path())).end.failure.unwrap();
    let want = "templates/a.j2:2: templates include each other endlessly: b.j2:3 -> a.j2:2 -> b.j2:3";
    assert_eq!(failure.message, want);
}

#[test]
fn secrets_are_not_said() {
    let dir = TempDir::new().unwrap();
    let text = "
    - {name: a, shell: 'echo hunter2; echo hunter2 >&2; exit 1', no_log: true, ignore_errors: yes}
    - {name: b, copy: {content: hunter2, dest: '{{ dir }}/s', mode: '0600'}}
    - {name: c, copy: {content: hunter2, dest: '{{ dir }}/n'}, no_log: true}
    - {shell: 'true hunter2', no_log: true}
    - {shell: 'exit 1; hunter2', no_log: '{{ dir is defined }}', ignore_errors: yes}
    - {name: d, fail: {msg: hunter2}, no_log: true}
";
    let ran = go(&tasks(dir.path(), text), &options(dir.path()));
    assert!(ran.end.failure.is_some());
    assert!(!ran.text().contains("hunter2"), "{}", ran.text());
}

#[test]
fn output_events_are_bounded() {
    let dir = TempDir::new().unwrap();
    let ran = go(
        &tasks(dir.path(), "    - shell: seq 1 200000; head -c 1000000 /dev/zero | tr '\\0' x\n"),
        &options(dir.path()),
    )
    .assert_success();
    let lines: Vec<&String> = ran
        .events
        .iter()
        .filter_map(|e| if let RunEvent::Output { line, .. } = e { Some(line) } else { None })
        .collect();
    assert!(lines.len() <= 5_001, "{}", lines.len());
    assert!(lines.iter().all(|l| l.len() < 17 << 10));
    assert_eq!(lines.iter().filter(|l| l.starts_with("[truncated")).count(), 1);
}

#[test]
fn cancel_stops_the_run() {
    let dir = TempDir::new().unwrap();
    let plan = tasks(
        dir.path(),
        "    - {shell: echo started; sleep 600}\n    - {file: {path: '{{ dir }}/after', state: touch}}\n",
    );
    let cancel = CancelToken::new();
    let stop = cancel.clone();
    let end = run(&plan, &options(dir.path()), &cancel, &mut |e| {
        if matches!(e, RunEvent::Output { .. }) {
            stop.cancel();
        }
    });
    assert!(end.cancelled && end.failure.is_some() && !dir.path().join("after").exists());
}

#[test]
fn a_stop_lets_the_task_finish_and_begins_nothing_further() {
    let dir = TempDir::new().unwrap();
    let d = dir.path();
    let plan = tasks(
        d,
        "    - {shell: 'echo started; while [ ! -e {{ dir }}/go ]; do sleep 0.05; done; touch {{ dir }}/finished'}
    - {file: {path: '{{ dir }}/after', state: touch}}\n",
    );
    let (cancel, seen) = (CancelToken::new(), std::cell::Cell::new(0));
    let end = run(&plan, &options(d), &cancel, &mut |e| {
        if matches!(e, RunEvent::Output { .. }) {
            cancel.stop();
            std::fs::write(d.join("go"), "").unwrap();
        }
        seen.set(seen.get() + usize::from(matches!(e, RunEvent::Task(_))));
    });
    assert!(end.cancelled && end.failure.is_none(), "{end:?}");
    assert!(d.join("finished").exists() && !d.join("after").exists() && seen.get() == 1);
}

#[test]
fn a_loop_that_is_stopped_owes_the_handlers_of_its_first_items() {
    let dir = TempDir::new().unwrap();
    let text = "- hosts: all
  tasks:
    - {file: {path: '{{ dir }}/{{ item }}', state: touch}, loop: [a, b, c], notify: told}
  handlers:
    - {name: told, file: {path: '{{ dir }}/told', state: touch}}
";
    let plan = plan(dir.path(), &[("site.yml", text)]);
    let cancel = CancelToken::new();
    let end = run(&plan, &options(dir.path()), &cancel, &mut |e| {
        if matches!(e, RunEvent::Task(_)) {
            cancel.stop();
        }
    });
    assert!(end.cancelled && dir.path().join("a").exists() && !dir.path().join("b").exists());
    assert_eq!(end.pending_handlers, ["told"]);
}

#[test]
fn commands_are_told_of_while_they_run() {
    let dir = TempDir::new().unwrap();
    let told = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let log = told.clone();
    let cancel = CancelToken::with_watcher(move |pid, began| log.lock().unwrap().push((pid, began)));
    let plan = tasks(dir.path(), "    - {shell: 'echo $$ > {{ dir }}/pid'}\n");
    let end = run(&plan, &options(dir.path()), &cancel, &mut |_| {});
    assert!(end.failure.is_none(), "{end:?}");
    let pid: u32 = std::fs::read_to_string(dir.path().join("pid")).unwrap().trim().parse().unwrap();
    assert_eq!(*told.lock().unwrap(), [(pid, true), (pid, false)]);
}

#[test]
fn services_are_asked_once_and_only_then_changed() {
    let dir = TempDir::new().unwrap();
    let d = dir.path();
    let fake = "#!/bin/sh\necho \"$@\" >> DIR/log\ncase \"$1 $5$4\" in\n  *gone*) [ $1 = show ] && echo LoadState=not-found && exit 0; exit 5;;\nesac\n[ $1 = show ] && printf 'LoadState=loaded\\nActiveState=%s\\nUnitFileState=disabled\\n' $(cat DIR/active)\n[ $1 = start ] && echo active > DIR/active\nexit 0\n";
    std::fs::write(d.join("systemctl"), fake.replace("DIR", &d.display().to_string())).unwrap();
    std::fs::set_permissions(d.join("systemctl"), std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::write(d.join("active"), "inactive").unwrap();
    let text =
        |task: &str| format!("    - service: {{{task}}}\n      environment: {{PATH: '{{{{ dir }}}}:/usr/bin:/bin'}}\n");
    let start = tasks(d, &text("name: nginx, state: started"));
    assert_eq!(go(&start, &options(d)).assert_success().end.changed, 1);
    assert_eq!(go(&start, &options(d)).assert_success().end.changed, 0);
    let log = std::fs::read_to_string(d.join("log")).unwrap();
    assert_eq!(log.lines().filter(|l| l.starts_with("show")).count(), 2, "{log}");
    assert_eq!(log.lines().filter(|l| *l == "start -- nginx").count(), 1, "{log}");
    let stop = tasks(d, &text("name: gone, state: stopped, enabled: no"));
    assert!(go(&stop, &options(d)).end.failure.unwrap().message.contains("Could not find the requested service"));
    let cleanup = PlaybookRunOptions { phase: ResetupPhase::Cleanup, ..options(d) };
    assert_eq!(go(&stop, &cleanup).assert_success().end.changed, 0);
}

#[test]
fn a_plan_of_another_version_is_refused() {
    let dir = TempDir::new().unwrap();
    let mut plan = tasks(dir.path(), "    - debug:\n");
    plan.version = crate::PYTHON_PLAN_VERSION + 1;
    assert!(go(&plan, &options(dir.path())).end.failure.is_some());
    assert!(predict_files(&plan, &Map::new()).is_empty());
}

/// Makes a sparse file of 65 MiB.
fn make_large_file(path: &Path, end: &str) {
    use std::io::{Seek, SeekFrom, Write};
    let mut file = std::fs::File::create(path).unwrap();
    file.seek(SeekFrom::Start(65 << 20)).unwrap();
    file.write_all(end.as_bytes()).unwrap();
}

fn end_of(path: &Path) -> String {
    use std::io::{Read, Seek, SeekFrom};
    let mut file = std::fs::File::open(path).unwrap();
    file.seek(SeekFrom::Start(65 << 20)).unwrap();
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn large_files_are_cleaned_up_and_put_back() {
    let dir = TempDir::new().unwrap();
    let d = dir.path();
    std::fs::create_dir(d.join("tree")).unwrap();
    for (name, end) in [("gone", "one"), ("tree/in", "two"), ("mode", "three")] {
        make_large_file(&d.join(name), end);
    }
    let text = "
    - {file: {path: '{{ dir }}/gone', state: absent}}
    - {file: {path: '{{ dir }}/tree', state: absent}}
    - {file: {path: '{{ dir }}/mode', mode: '0600'}}
";
    let options = PlaybookRunOptions { backup: Some(d.join("backup")), phase: ResetupPhase::Cleanup, ..options(d) };
    std::fs::set_permissions(d.join("mode"), std::fs::Permissions::from_mode(0o644)).unwrap();
    go(&tasks(d, text), &options).assert_success();
    assert!(!d.join("gone").exists() && !d.join("tree").exists());
    assert_eq!(std::fs::read_dir(d.join("backup/files")).unwrap().count(), 2, "another mode copies no content");
    assert_eq!(undo(&d.join("backup")).unwrap().len(), 4);
    for (name, end) in [("gone", "one"), ("tree/in", "two"), ("mode", "three")] {
        assert_eq!(end_of(&d.join(name)), end, "{name}");
        assert_eq!(std::fs::metadata(d.join(name)).unwrap().permissions().mode() & 0o777, 0o644, "{name}");
    }
    assert_eq!(undo(&d.join("backup")).unwrap(), Vec::<String>::new());
}

#[test]
fn diffs_of_secret_files_are_never_made() {
    let dir = TempDir::new().unwrap();
    let d = dir.path();
    std::fs::create_dir(d.join("keys")).unwrap();
    symlink(d.join("keys"), d.join("link")).unwrap();
    std::fs::write(d.join("token"), "swordfish\n").unwrap();
    let text = "
    - {name: open, copy: {content: plain, dest: '{{ dir }}/open'}}
    - {name: template, template: {src: t.j2, dest: '{{ dir }}/keys/a', mode: '0644'}}
    - {name: copy, copy: {content: swordfish, dest: '{{ dir }}/link/b', mode: '0644'}}
    - {name: line, lineinfile: {path: '{{ dir }}/token', line: more}}
    - {name: later, lineinfile: {path: '{{ dir }}/quiet', line: more}}
    - {name: quiet, copy: {content: swordfish, dest: '{{ dir }}/quiet', mode: '0644'}, no_log: true}
";
    std::fs::write(d.join("quiet"), "swordfish\n").unwrap();
    let site = format!("- hosts: all\n  tasks:\n{text}");
    let plan = plan(d, &[("site.yml", &site), ("templates/t.j2", "swordfish")]);
    let secret = vec![format!("{}/keys/", d.display()), "token".to_owned()];
    let ran = go(&plan, &PlaybookRunOptions { secret, ..options(d) }).assert_success();
    assert!(!ran.text().contains("swordfish"), "{}", ran.text());
    assert!(ran.text().contains("+plain"), "{}", ran.text());
    assert_eq!(ran.end.changed, 6);
}

#[test]
fn commands_have_the_umask_of_a_login() {
    // The umask belongs to the whole process, so this test runs in its own process, with the umask
    // of an executor.
    const INNER: &str = "REMOOR_TEST_UMASK";
    if std::env::var_os(INNER).is_none() {
        let name = "tests::commands_have_the_umask_of_a_login";
        let out = std::process::Command::new("sh")
            .args(["-c", "umask 077; exec \"$0\" --exact \"$1\""])
            .arg(std::env::current_exe().unwrap())
            .arg(name)
            .env(INNER, "1")
            .output()
            .unwrap();
        let told = String::from_utf8_lossy(&out.stdout);
        assert!(out.status.success() && told.contains("1 passed"), "{told}");
        return;
    }
    let dir = TempDir::new().unwrap();
    let text = "
    - shell: umask
      register: one
    - command: sh -c umask
      register: two
    - assert: {that: [\"one.stdout == '0022'\", \"two.stdout == '0022'\"]}
";
    go(&tasks(dir.path(), text), &options(dir.path())).assert_success();
    std::fs::write(dir.path().join("own"), "").unwrap();
    let mode = std::fs::metadata(dir.path().join("own")).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o600, "what the executor makes itself stays private");
}
