//! Tests that check mode predicts what a run does, and writes nothing.

use super::*;
use std::os::unix::fs::MetadataExt;

fn check_options(dir: &Path) -> PlaybookRunOptions {
    PlaybookRunOptions { check: true, backup: Some(dir.join("backup")), ..options(dir) }
}

/// Everything below a directory, by path: mode, owner, and content or target.
pub fn tree(dir: &Path) -> BTreeMap<String, String> {
    let mut out = BTreeMap::new();
    let mut open = vec![dir.to_owned()];
    while let Some(at) = open.pop() {
        for entry in std::fs::read_dir(&at).unwrap() {
            let path = entry.unwrap().path();
            let meta = path.symlink_metadata().unwrap();
            let what = if meta.is_symlink() {
                format!("-> {}", std::fs::read_link(&path).unwrap().display())
            } else if meta.is_dir() {
                open.push(path.clone());
                "/".to_owned()
            } else {
                String::from_utf8_lossy(&std::fs::read(&path).unwrap()).into_owned()
            };
            let name = path.strip_prefix(dir).unwrap().display().to_string();
            out.insert(name, format!("{:o} {}:{} {what}", meta.mode() & 0o7777, meta.uid(), meta.gid()));
        }
    }
    out
}

fn statuses_of(ran: &Ran, name: &str) -> Vec<Status> {
    ran.statuses().into_iter().filter(|(n, _)| n == name).map(|(_, s)| s).collect()
}

/// Names of changed tasks, including handlers that would run. Check mode and run must agree on
/// them.
pub fn changed_tasks(ran: &Ran) -> Vec<String> {
    let hit = |s: &Status| matches!(s, Status::Changed | Status::WouldRun);
    ran.statuses().into_iter().filter(|(_, s)| hit(s)).map(|(n, _)| n).collect()
}

#[test]
fn keys_of_a_user_that_the_run_would_create_are_predicted() {
    let dir = TempDir::new().unwrap();
    let d = &dir.path().canonicalize().unwrap();
    let text = "
    - {name: user, user: {name: remoor-test-new, home: '{{ dir }}/h'}}
    - {name: key, authorized_key: {user: remoor-test-new, key: ssh-ed25519 AAAA}, register: r}
    - {name: command, command: useradd remoor-test-other}
    - {name: named file, authorized_key: {user: remoor-test-other, key: ssh-ed25519 AAAA, path: '{{ dir }}/keys'}}
    - {name: place, assert: {that: \"r.keyfile == dir ~ '/h/.ssh/authorized_keys'\"}}
";
    let before = tree(d);
    let ran = go(&tasks(d, text), &check_options(d)).assert_success();
    assert_eq!(changed_tasks(&ran), ["user", "key", "command", "named file"]);
    assert_eq!(tree(d), before);
}

#[test]
fn the_group_and_the_home_of_a_user_that_the_run_would_create_are_predicted() {
    let dir = TempDir::new().unwrap();
    let d = &dir.path().canonicalize().unwrap();
    let text = "
    - {name: user, user: {name: remoor-test-new, system: true, home: '{{ dir }}/a/b/h'}}
    - {name: owned, file: {path: '{{ dir }}/x', state: directory, owner: remoor-test-new, group: remoor-test-new}}
    - {name: key, authorized_key: {user: remoor-test-new, key: ssh-ed25519 AAAA, path: '{{ dir }}/a/b/h/.ssh/authorized_keys'}}
";
    let before = tree(d);
    let ran = go(&tasks(d, text), &check_options(d)).assert_success();
    assert_eq!(changed_tasks(&ran), ["user", "owned", "key"]);
    assert_eq!(tree(d), before);
}

#[test]
fn ids_of_accounts_that_the_run_would_create_are_unknown() {
    let dir = TempDir::new().unwrap();
    let text = "
    - {name: group, group: {name: remoor-test-new}, register: g}
    - {name: user, user: {name: remoor-test-new, group: remoor-test-new, create_home: false, comment: Me}, register: u}
    - {name: gid, debug: {msg: '{{ g.gid }}'}}
    - {name: uid, copy: {dest: '{{ dir }}/f', content: '{{ u.uid }} {{ u.group }}'}}
    - {name: owned, file: {path: '{{ dir }}/d', state: directory, owner: remoor-test-new}, register: d}
    - {name: owner, debug: {msg: '{{ d.uid }}'}}
    - {name: given, user: {name: remoor-test-two, uid: 4711, group: root}, register: v}
    - {name: known, assert: {that: [v.uid == 4711, v.group == 0, u.comment == 'Me', d.owner == u.name]}}
";
    let ran = go(&tasks(dir.path(), text), &check_options(dir.path())).assert_success();
    for name in ["gid", "uid", "owner"] {
        assert_eq!(statuses_of(&ran, name), [Status::Unknown], "{name}: {:#?}", ran.statuses());
    }
    assert!(!ran.text().contains("4200000000") && !ran.text().contains("4199"), "{}", ran.text());
}

#[test]
fn a_result_that_is_decided_anyway_is_not_unknown() {
    let dir = TempDir::new().unwrap();
    let text = "
    - {name: c, command: 'true', register: r}
    - {name: gone, file: {path: '{{ dir }}/gone', mode: a-s}, failed_when: false}
    - {name: missing, file: {path: '{{ dir }}/gone', mode: a-s}}
    - {name: may, debug: {msg: x}, changed_when: r.rc == 0, notify: [never, perhaps]}
";
    let text = format!(
        "- hosts: all\n  tasks:{text}  handlers:\n    - {{name: never, command: 'true', when: ansible_system == 'AIX'}}\n    - {{name: perhaps, command: 'true', when: ansible_system == 'Linux'}}\n"
    );
    let ran = go(&plan(dir.path(), &[("site.yml", &text)]), &check_options(dir.path())).assert_success();
    for (name, want) in [
        ("gone", Status::Ok),
        ("missing", Status::Unknown),
        ("may", Status::Unknown),
        ("never", Status::Skipped),
        ("perhaps", Status::Unknown),
    ] {
        assert_eq!(statuses_of(&ran, name), [want], "{name}: {:#?}", ran.statuses());
    }
}

#[test]
fn later_tasks_see_what_earlier_ones_would_make_and_nothing_is_written() {
    let dir = TempDir::new().unwrap();
    let d = &dir.path().canonicalize().unwrap();
    std::fs::create_dir_all(d.join("old/sub")).unwrap();
    std::fs::write(d.join("old/sub/f"), "x").unwrap();
    std::fs::write(d.join("conf"), "a=1\n").unwrap();
    let text = "
- hosts: all
  tasks:
    - {name: dir, file: {path: '{{ dir }}/x/y', state: directory, mode: '0750'}}
    - {name: file, copy: {content: \"a=1\\n\", dest: '{{ dir }}/x/y/conf', mode: '0640'}, notify: h1}
    - {name: line, lineinfile: {path: '{{ dir }}/x/y/conf', regexp: '^a=', line: a=2}}
    - {name: again, lineinfile: {path: '{{ dir }}/x/y/conf', regexp: '^a=', line: a=2}}
    - {name: mode, file: {path: '{{ dir }}/x/y/conf', mode: '0640'}, notify: h2}
    - {name: link, file: {src: x/y, dest: '{{ dir }}/l', state: link}}
    - {name: through, lineinfile: {path: '{{ dir }}/l/conf', line: b=1}}
    - {name: target, lineinfile: {path: '{{ dir }}/x/y/conf', line: b=1}}
    - {name: hard, file: {src: '{{ dir }}/x/y/conf', path: '{{ dir }}/hard', state: hard}}
    - {name: hard again, file: {src: '{{ dir }}/x/y/conf', path: '{{ dir }}/hard', state: hard}}
    - {name: gone, file: {path: '{{ dir }}/old', state: absent}}
    - {name: anew, file: {path: '{{ dir }}/old', state: directory}}
    - {stat: {path: '{{ dir }}/old/sub'}, register: sub}
    - {stat: {path: '{{ dir }}/l/conf'}, register: st}
    - {name: asserts, assert: {that: [not sub.stat.exists, st.stat.mode == '0640', st.stat.size == 8, st.stat.isreg]}}
    - {name: real, lineinfile: {path: '{{ dir }}/conf', line: b=2}}
    - {name: recurse, file: {path: '{{ dir }}/x', mode: 'g-r', recurse: yes, state: directory}}
  handlers:
    - {name: h1, copy: {content: told, dest: '{{ dir }}/told'}}
    - {name: h2, fail: {msg: never}}
";
    let plan = plan(d, &[("site.yml", text)]);
    let before = tree(d);
    let check = go(&plan, &check_options(d)).assert_success();
    assert_eq!(tree(d), before);
    assert_eq!(statuses_of(&check, "h1"), [Status::WouldRun]);
    let run = go(&plan, &options(d)).assert_success();
    assert_eq!(changed_tasks(&check), changed_tasks(&run), "{:#?}", check.statuses());
    assert_eq!(
        changed_tasks(&run),
        ["dir", "file", "line", "link", "through", "hard", "gone", "anew", "real", "recurse", "h1"]
    );
    assert_eq!((check.end.changed, check.end.ok, check.end.would_run), (run.end.changed, run.end.ok, 1));
    assert_eq!(check.end.unknown, 0);
}

#[test]
fn what_depends_on_a_command_that_was_not_run_is_unknown() {
    let dir = TempDir::new().unwrap();
    let d = dir.path();
    let text = "
- hosts: all
  tasks:
    - {name: c, command: echo hi, register: r, notify: told}
    - {name: skipped?, debug: {msg: x}, when: [r is not skipped, r is changed, r is succeeded]}
    - {name: when, copy: {content: x, dest: '{{ dir }}/a'}, when: r.stdout == 'hi', register: w, notify: perhaps}
    - {name: default, debug: {msg: x}, when: r.stdout | default('hi') == 'hi'}
    - {name: short, debug: {msg: x}, when: [r.rc == 0, false]}
    - {name: option, copy: {content: '{{ r.stdout }}', dest: '{{ dir }}/b'}}
    - {name: nested, debug: {msg: x}, when: w is changed or w.dest == ''}
    - {name: loop, debug: {msg: '{{ item }}'}, loop: '{{ r.stdout_lines }}'}
    - {name: fact, set_fact: {f: '{{ r.stdout }}', g: 1}}
    - {name: fact read, debug: {msg: x}, when: f == 'hi'}
    - {name: fact known, debug: {msg: x}, when: g == 1}
    - {name: print, debug: {var: r}}
    - {name: assert, assert: {that: r.rc == 0}}
    - {name: include, include_tasks: sub.yml, when: r.rc == 0}
    - {name: included, debug: {msg: x}, when: from_sub == 1}
    - {name: items, command: 'echo {{ item }}', loop: [1, 2], register: l}
    - {name: item, debug: {msg: x}, when: \"l.results[0].stdout == '1' or l.results | length == 2\"}
    - {name: no change, command: 'true', changed_when: false, register: n}
    - {name: n, debug: {msg: x}, when: n is not changed}
    - {name: by result, command: 'true', changed_when: m.rc == 0, register: m}
    - {name: may fail, command: 'true', ignore_errors: yes, register: i}
    - {name: failed?, debug: {msg: x}, when: i is failed}
    - {name: until, command: 'true', until: u.rc == 0, register: u, retries: 100, delay: 100}
    - {name: once, shell: 'touch {{ dir }}/once', args: {creates: '{{ dir }}/once'}}
    - {name: twice, shell: 'touch {{ dir }}/once', args: {creates: '{{ dir }}/once'}}
    - {name: on it, file: {path: '{{ dir }}/once', mode: '0600'}}
    - {name: made by it, lineinfile: {path: '{{ dir }}/elsewhere', line: x}}
    - {name: in it, copy: {content: x, dest: '{{ dir }}/nodir/x'}}
    - {name: there, command: 'false creates={{ dir }}'}
    - {name: mine, debug: {msg: '{{ ansible_check_mode }}'}, failed_when: not ansible_check_mode}
    - {name: certain, fail: {msg: so}, ignore_errors: yes}
  handlers:
    - {name: told, command: 'true'}
    - {name: perhaps, command: 'true'}
";
    let plan = plan(d, &[("site.yml", text), ("sub.yml", "- {set_fact: {from_sub: 1}}\n")]);
    let check = go(&plan, &check_options(d)).assert_success();
    use Status::*;
    for (name, want) in [
        ("c", vec![WouldRun]),
        ("skipped?", vec![Ok]),
        ("when", vec![Unknown]),
        ("default", vec![Unknown]),
        ("short", vec![Skipped]),
        ("option", vec![Unknown]),
        ("nested", vec![Unknown]),
        ("loop", vec![Unknown]),
        ("fact", vec![Unknown]),
        ("fact read", vec![Unknown]),
        ("fact known", vec![Ok]),
        ("print", vec![Unknown]),
        ("assert", vec![Unknown]),
        ("include", vec![Unknown]),
        ("included", vec![Unknown]),
        ("items", vec![WouldRun, WouldRun]),
        ("item", vec![Ok]),
        ("no change", vec![WouldRun]),
        ("n", vec![Ok]),
        ("by result", vec![WouldRun]),
        ("failed?", vec![Unknown]),
        ("until", vec![WouldRun]),
        ("once", vec![WouldRun]),
        ("twice", vec![Unknown]),
        ("on it", vec![Unknown]),
        ("made by it", vec![Unknown]),
        ("in it", vec![Unknown]),
        ("there", vec![Ok]),
        ("mine", vec![Ok]),
        ("certain", vec![Ignored]),
        ("told", vec![WouldRun]),
        ("perhaps", vec![Unknown]),
    ] {
        assert_eq!(statuses_of(&check, name), want, "{name}: {:#?}", check.statuses());
    }
    assert!(tree(d).is_empty(), "{:?}", tree(d));
    assert!(!check.text().contains('\u{1}') && !check.text().contains("\\u0001"), "{}", check.text());
}

#[test]
fn a_task_may_differ_from_its_run() {
    let dir = TempDir::new().unwrap();
    let d = dir.path();
    let text = "    - {command: 'echo hi', register: r}
    - {name: seen, copy: {content: '{{ r.stdout }}', dest: '{{ dir }}/a'}}
    - {copy: {content: 'b', dest: '{{ dir }}/b'}}\n";
    let set = |plan: &mut Plan, at: usize, value: bool| match plan.plays[0].sections.iter_mut().flatten().nth(at) {
        Some(PlanStep::Task(task)) => task.modes.check_mode = Some(json!(value)),
        other => panic!("{other:?}"),
    };
    let mut plan = tasks(d, text);
    set(&mut plan, 0, false);
    let check = go(&plan, &check_options(d)).assert_success();
    assert_eq!(changed_tasks(&check).len(), 3, "{:#?}", check.statuses());
    assert!(tree(d).is_empty());
    set(&mut plan, 2, true);
    let run = go(&plan, &options(d)).assert_success();
    assert_eq!(changed_tasks(&run).len(), 3);
    assert_eq!(tree(d).into_keys().collect::<Vec<_>>(), ["a", "half-made"]);
}

#[test]
fn a_check_leaves_the_journal_as_it_is_and_lists_the_handlers_that_are_owed() {
    let dir = TempDir::new().unwrap();
    let d = dir.path();
    std::fs::write(d.join("journal"), "[\"told\"]").unwrap();
    let text = "- hosts: all\n  tasks: [{debug: {msg: x}}]\n  handlers:\n    - {name: told, command: 'true'}\n";
    let check = go(&plan(d, &[("site.yml", text)]), &check_options(d)).assert_success();
    assert_eq!(statuses_of(&check, "told"), [Status::WouldRun]);
    assert_eq!(check.end.pending_handlers, ["told"]);
    assert_eq!(std::fs::read_to_string(d.join("journal")).unwrap(), "[\"told\"]");
}

#[test]
fn units_are_predicted_too() {
    let dir = TempDir::new().unwrap();
    let d = dir.path();
    let fake = "#!/bin/sh\n[ $1 = show ] || { echo \"$@\" >> DIR/log; exit 1; }\ncase \"$*\" in *web*) printf 'LoadState=loaded\\nActiveState=inactive\\nUnitFileState=disabled\\n';; *) echo LoadState=not-found;; esac\n";
    std::fs::write(d.join("systemctl"), fake.replace("DIR", &d.display().to_string())).unwrap();
    std::fs::set_permissions(d.join("systemctl"), std::fs::Permissions::from_mode(0o755)).unwrap();
    let text = "
- hosts: all
  environment: {PATH: '{{ dir }}:/usr/bin:/bin'}
  tasks:
    - {name: start, service: {name: web, state: started, enabled: yes}}
    - {name: started, systemd: {name: web.service, state: started, enabled: yes}}
    - {name: stop, service: {name: web, state: stopped}}
    - {name: start again, service: {name: web, state: started}}
    - {name: mask, systemd: {name: web, masked: yes, state: stopped}}
    - {name: none, service: {name: nothing, state: started}, ignore_errors: yes}
    - {command: make install}
    - {name: perhaps, service: {name: nothing, state: started}}
";
    let check = go(&plan(d, &[("site.yml", text)]), &check_options(d)).assert_success();
    assert_eq!(changed_tasks(&check), ["start", "stop", "start again", "mask", "command"], "{:#?}", check.events);
    assert_eq!(
        (statuses_of(&check, "none"), statuses_of(&check, "perhaps")),
        (vec![Status::Ignored], vec![Status::Unknown])
    );
    assert!(!d.join("log").exists());
}
