//! The module `fetch`, with a controller in this process.

use super::delegation::{make_host, view};
use super::*;
use crate::{
    ControllerLink, ControllerRequest, FetchAnswer, FetchRequest, FetchTarget, IncomingFile, RequestLimits,
    TaskOccurrence, plan_fetch, read_request,
};
use serde_json::Value;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;
use std::sync::Mutex;

/// The controller of these tests knows no host.
fn find_no_host(_: &str) -> Option<Map<String, Value>> {
    None
}

fn fetching_plan(dir: &Path, text: &str) -> Plan {
    let vars = json!({"dir": dir, "inventory_hostname": "w1", "group_names": [], "below": "sub"});
    let host = make_host("w1", &vars);
    let options = CompileOptions { delegates: true, ..CompileOptions::default() };
    let text = format!("- hosts: all\n  tasks:\n{text}");
    let files = FileSet([("site.yml".to_owned(), text.into_bytes())].into());
    compile(&files, "site.yml", &host, &options).unwrap_or_else(|faults| panic!("{faults:?}")).plan
}

/// The request of a run of `plan` for its last task.
fn request(plan: &Plan, facts: &Value) -> FetchRequest {
    let mut last = 0;
    plan.each_task(&mut |task| last = task.id);
    let state = json!({"facts": facts, "registers": {"r": {"stdout": facts["ansible_hostname"]}}});
    let text = json!({"fetch": {"task": last, "item": null, "state": state, "size": 3, "sha1": ""}}).to_string();
    match read_request(plan, false, text.as_bytes()).unwrap() {
        ControllerRequest::Fetch(request) => request,
        other => panic!("{other:?}"),
    }
}

/// The path that the controller computes for a task with these options, or the error.
fn path_for(options: &str, hostname: &str) -> Result<String, String> {
    let plan = fetching_plan(Path::new("/d"), &format!("    - {{command: id, register: r}}\n    - fetch: {options}\n"));
    let facts = json!({"ansible_hostname": hostname});
    let planned = plan_fetch(
        &plan,
        request(&plan, &facts),
        &view(false, &find_no_host),
        Path::new("/play"),
        Some(Path::new("/users/u")),
    );
    planned.map(|target| format!("{} {}", target.base.display(), target.file.display())).map_err(|e| e.to_string())
}

#[test]
fn the_controller_computes_the_path() {
    for (options, expected) in [
        ("{src: /etc/a, dest: /d/out}", "/d/out w1/etc/a"),
        ("{src: //etc/./a, dest: out/}", "/play/out/ w1/etc/a"),
        ("{src: /etc/a, dest: ~/out, flat: yes}", "/users/u out"),
        ("{src: /etc/a, dest: '{{ dir }}/{{ below }}/', flat: yes}", "/d/sub/ a"),
        ("{src: '/etc/{{ ansible_hostname }}', dest: /d/out}", "/d/out w1/etc/x"),
        ("{src: /etc/a, dest: '/d/{{ ansible_hostname }}', flat: yes}", "/d/ x"),
        ("{src: /etc/a, dest: '{{ dir }}/{{ below }}/{{ r.stdout }}/b/'}", "/d/sub/ x/b/w1/etc/a"),
        ("{src: /etc/a, dest: '{{ dir }}/a-{{ ansible_hostname }}/', flat: yes}", "/d/ a-x/a"),
        ("{src: /etc/a, dest: '{{ dir }}/{% if r.stdout %}y{% endif %}'}", "/d/ y/w1/etc/a"),
    ] {
        assert_eq!(path_for(options, "x").as_deref(), Ok(expected), "{options}");
    }
    // A value that is the same without those of the host is not the host's choice.
    assert_eq!(path_for("{src: /etc/a, dest: \"{{ 'out' }}\"}", "x").as_deref(), Ok("/play/out w1/etc/a"));
}

#[test]
fn a_host_cannot_choose_a_path_outside_of_the_destination() {
    for (options, hostname, why) in [
        ("{src: /etc/a, dest: '{{ ansible_hostname }}', flat: yes}", "/root/.profile", "only the playbook"),
        ("{src: /etc/a, dest: '/{{ ansible_hostname }}', flat: yes}", "root/.profile", "only the playbook"),
        ("{src: /etc/a, dest: 'out{{ ansible_hostname }}', flat: yes}", "/../x", "only the playbook"),
        ("{src: /etc/a, dest: '/d/out/{{ ansible_hostname }}', flat: yes}", "../../x", "would be outside"),
        ("{src: /etc/a, dest: '/d/out/{{ ansible_hostname }}'}", "a/../../x", "would be outside"),
        ("{src: /etc/a, dest: '/d/out/{{ ansible_hostname }}', flat: yes}", "/etc/passwd", "would be outside"),
        ("{src: '/etc/{{ ansible_hostname }}', dest: /d/out}", "../../x", "without `..`"),
        ("{src: '{{ ansible_hostname }}', dest: /d/out/, flat: yes}", "x", "not an absolute path"),
        ("{src: '{{ ansible_hostname }}', dest: /d/out/, flat: yes}", "/", "not an absolute path"),
        ("{src: /etc/a, dest: '/d/{{ r.stdout if r.stdout != \"y\" else dir }}', flat: yes}", "/x", "would be outside"),
    ] {
        let error = path_for(options, hostname).unwrap_err();
        assert!(error.contains(why), "{options}: {error}");
    }
    let plan = fetching_plan(Path::new("/d"), "    - {command: id}\n");
    let refused = plan_fetch(&plan, request(&plan, &json!({})), &view(false, &find_no_host), Path::new("/play"), None)
        .unwrap_err();
    assert!(refused.to_string().contains("fetches no file"), "{refused}");
    let plan = fetching_plan(Path::new("/d"), "    - {fetch: {src: /etc/a, dest: /d/out}, when: below == 'x'}\n");
    let refused = plan_fetch(
        &plan,
        request(&plan, &json!({"below": "x"})),
        &view(false, &find_no_host),
        Path::new("/play"),
        None,
    )
    .unwrap_err();
    assert!(refused.to_string().contains("does not hold"), "{refused}");
}

fn target(dir: &Path, file: &str) -> FetchTarget {
    let (base, file) = (dir.to_owned(), PathBuf::from(file));
    let occurrence = TaskOccurrence { task: 1, item: None, include_items: Vec::new() };
    let limits = RequestLimits { occurrence, times_max: 1, once: false, throttled: false };
    FetchTarget { limits, base, file, validate: true }
}

fn sha1_of(text: &str) -> String {
    use sha2::Digest;
    hex::encode(sha1::Sha1::digest(text))
}

#[test]
fn a_link_does_not_lead_a_file_to_another_place() {
    let dir = TempDir::new().unwrap();
    let out = dir.path().join("out");
    std::fs::create_dir_all(dir.path().join("elsewhere")).unwrap();
    std::fs::create_dir_all(out.join("w1")).unwrap();
    symlink(dir.path().join("elsewhere"), out.join("w1/etc")).unwrap();
    symlink(dir.path().join("elsewhere/a"), out.join("a")).unwrap();
    std::fs::create_dir(out.join("d")).unwrap();
    for (file, why) in [("w1/etc/a", "is a link"), ("a", "is a link"), ("d", "is no regular file")] {
        let error = IncomingFile::open(target(&out, file), 1, sha1_of("x")).unwrap_err();
        assert!(error.contains(why), "{error}");
    }
    // The directory that the task names may be a link.
    symlink("out", dir.path().join("link")).unwrap();
    let (file, answer) = IncomingFile::open(target(&dir.path().join("link"), "w1/b"), 3, sha1_of("abc")).unwrap();
    assert_eq!(answer, FetchAnswer::More);
    let mut file = file.unwrap();
    assert!(file.write(b"").is_err() && file.write(b"abcd").is_err());
    assert_eq!(file.write(b"ab").unwrap(), FetchAnswer::More);
    // A link that is made meanwhile is no target either.
    symlink(dir.path().join("elsewhere/b"), out.join("w1/b")).unwrap();
    assert!(file.write(b"c").unwrap_err().contains("is no regular file"));
    drop(file);
    assert_eq!(std::fs::read_dir(dir.path().join("elsewhere")).unwrap().count(), 0);
    assert_eq!(std::fs::read_dir(out.join("w1")).unwrap().count(), 2, "the temporary file is removed");
}

#[test]
fn a_file_with_another_content_than_announced_is_not_stored() {
    let dir = TempDir::new().unwrap();
    let open = |validate: bool| {
        let target = FetchTarget { validate, ..target(dir.path(), "a/b") };
        IncomingFile::open(target, 3, sha1_of("abc")).unwrap().0.unwrap()
    };
    assert!(matches!(open(true).write(b"abd").unwrap(), FetchAnswer::Failed(why) if why.contains("checksum mismatch")));
    assert_eq!(std::fs::read_dir(dir.path().join("a")).unwrap().count(), 0);
    assert!(matches!(open(false).write(b"abd").unwrap(), FetchAnswer::Stored { changed: true, .. }));
    std::fs::set_permissions(dir.path().join("a/b"), std::fs::Permissions::from_mode(0o600)).unwrap();
    assert!(matches!(open(true).write(b"abc").unwrap(), FetchAnswer::Stored { changed: true, .. }));
    let mode = std::fs::metadata(dir.path().join("a/b")).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode, std::fs::read_to_string(dir.path().join("a/b")).unwrap().as_str()), (0o600, "abc"));
    let (open, answer) = IncomingFile::open(target(dir.path(), "a/b"), 3, sha1_of("abc")).unwrap();
    assert!(open.is_none() && matches!(answer, FetchAnswer::Stored { changed: false, .. }), "{answer:?}");
    let (open, answer) = IncomingFile::open(target(dir.path(), "empty"), 0, sha1_of("")).unwrap();
    assert!(open.is_none() && matches!(answer, FetchAnswer::Stored { changed: true, .. }), "{answer:?}");
}

/// Runs the tasks with a controller that stores the files.
fn run_tasks(dir: &Path, text: &str, check: bool) -> Ran {
    let plan = fetching_plan(dir, text);
    let (copy, open, base) = (plan.clone(), Mutex::new(None::<IncomingFile>), dir.to_owned());
    let controller = ControllerLink::new(move |request| {
        let mut open = open.lock().unwrap();
        let answer = match read_request(&copy, false, request).unwrap() {
            ControllerRequest::Fetch(request) => {
                let (size, sha1) = (request.size, request.sha1.clone());
                match plan_fetch(&copy, request, &view(false, &find_no_host), &base, None) {
                    Ok(target) => IncomingFile::open(target, size, sha1).map(|(file, answer)| {
                        *open = file;
                        answer
                    }),
                    Err(e) => Err(e.to_string()),
                }
            }
            ControllerRequest::Part(part) => open.as_mut().unwrap().write(&part),
            other => panic!("{other:?}"),
        };
        Ok(answer.unwrap_or_else(FetchAnswer::Failed).encode())
    });
    go(&plan, &PlaybookRunOptions { check, controller: Some(controller), ..options(dir) })
}

#[test]
fn a_file_of_the_host_is_stored_with_the_result_of_ansible() {
    let dir = TempDir::new().unwrap();
    let large = "0123456789abcdef".repeat(300_000);
    std::fs::write(dir.path().join("large"), &large).unwrap();
    std::fs::write(dir.path().join("small"), "x\n").unwrap();
    let text = "    - {fetch: {src: '{{ dir }}/large', dest: '{{ dir }}/out', flat: no}, register: first}
    - {fetch: {src: '{{ dir }}/large', dest: '{{ dir }}/out'}, register: again}
    - {fetch: {src: '{{ dir }}/{{ item }}', dest: flat/, flat: yes}, loop: [small, large], register: flat}
    - {fetch: {src: '{{ dir }}/none', dest: out}, register: absent, ignore_errors: true}
    - {fetch: {src: '{{ dir }}/none', dest: out, fail_on_missing: no}, register: missing}
    - {fetch: {src: '{{ dir }}', dest: out}, register: directory, ignore_errors: true}
    - {fetch: {src: '{{ dir }}/small', dest: '{{ dir }}/out', flat: yes}, register: named, ignore_errors: true}
    - assert:
        that:
          - first is changed and first.checksum == first.remote_checksum and first.remote_md5sum is none
          - first.dest == dir ~ '/out/w1' ~ dir ~ '/large'
          - again is not changed and again.file == dir ~ '/large' and again.md5sum == first.md5sum
          - flat.results[0] is changed and flat.results[0].dest == dir ~ '/flat/small'
          - absent is failed and absent.msg == 'the remote file does not exist'
          - missing is not failed and missing.msg == 'the remote file does not exist, not transferring, ignored'
          - directory.msg == 'remote file is a directory, fetch cannot work on directories'
          - named is failed and 'trailing slash' in named.msg
";
    let checked = run_tasks(dir.path(), &text.replace("    - assert:", "    - debug:\n      vars:"), true);
    assert!(checked.end.failure.is_none() && !dir.path().join("out").exists(), "{}", checked.text());
    run_tasks(dir.path(), text, false).assert_success();
    let stored = dir.path().join("out/w1").join(dir.path().strip_prefix("/").unwrap()).join("large");
    assert!(std::fs::read_to_string(stored).unwrap() == large);
    assert_eq!(std::fs::read_to_string(dir.path().join("flat/small")).unwrap(), "x\n");
}

#[test]
fn a_fleet_refuses_to_fetch() {
    let text = "- hosts: all\n  tasks:\n    - {fetch: {src: /a, dest: b}}\n";
    let files = FileSet([("site.yml".to_owned(), text.as_bytes().to_vec())].into());
    let error = compile(&files, "site.yml", &HostContext::default(), &CompileOptions::default()).unwrap_err();
    assert!(error[0].message.contains("only during `remoor play`"), "{}", error[0]);
}
