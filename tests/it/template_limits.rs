//! Templates that would need endless time or memory. `lint` and `apply` report them, and the
//! manager keeps running and answers meanwhile.

use crate::local::{net, one_manager, remoor};
use crate::time_limit::BoundedCommand;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

/// A template that doubles a text 60 times.
const MEMORY: &str = "{% set x = 'xxxxxxxxxxxxxxxx' %}{% for i in range(end=60) %}{% set_global x = x ~ x %}{% endfor %}{{ x | length }}";
/// A template of 10^15 loop rounds that print nothing.
const TIME: &str = "{% for a in range(end=100000) %}{% for b in range(end=100000) %}{% for c in range(end=100000) %}{% endfor %}{% endfor %}{% endfor %}";

/// A fleet of 50 hosts. Each host renders the file `template` and the check file `check`.
fn fleet(dir: &Path, template: &str, check: &str) -> PathBuf {
    let fleet = dir.join("fleet");
    let hosts: String = (1..=50).map(|n| format!("w{n}\n")).collect();
    let config = "version: 1\ninventory: hosts\ngroups:\n  web: {services: [web], provision: web.yml, cleanup: gone.yml}\n\
                  services:\n  web: {files: [/etc/web.conf]}\n";
    let provision = "- hosts: web\n  tasks:\n    - template: {src: web.conf.tera, dest: /etc/web.conf}\n";
    let cleanup = "- hosts: web\n  tasks:\n    - file: {path: /etc/web.conf, state: absent}\n";
    let check =
        format!("remoor: {{service: web, template: tera}}\nfile:\n  /etc/web.conf: {{exists: true}}\n# {check}\n");
    for (name, text) in [
        ("remoor.yml", config),
        ("hosts", &format!("[web]\n{hosts}")),
        ("web.yml", provision),
        ("gone.yml", cleanup),
        ("templates/web.conf.tera", template),
        ("checks/web.yml", &check),
    ] {
        let path = fleet.join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        fs::write(path, text).expect("written");
    }
    fleet
}

fn stderr(out: &Output) -> String {
    String::from_utf8_lossy(&out.stderr).into_owned() + &String::from_utf8_lossy(&out.stdout)
}

#[test]
fn a_template_without_an_end_is_a_fault_and_the_manager_lives() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut manager = one_manager(dir.path(), net()(1));
    let cases = [
        (TIME, "", "templates/web.conf.tera", "processor time"),
        (MEMORY, "", "templates/web.conf.tera", "MiB of memory"),
        ("a\n", TIME, "checks/web.yml", "processor time"),
        ("a\n", MEMORY, "checks/web.yml", "MiB of memory"),
    ];
    for (template, check, file, limit) in cases {
        let fleet = fleet(dir.path(), template, check);
        let lint = remoor().arg("lint").arg(&fleet).bounded_output();
        let apply = std::thread::scope(|scope| {
            let apply = scope.spawn(|| manager.ask(&["apply", fleet.to_str().expect("UTF-8")]));
            loop {
                let answered = manager.ask(&["status"]).status.code() == Some(0);
                assert!(answered, "{file}: {limit}: the manager does not answer meanwhile");
                if apply.is_finished() {
                    return apply.join().expect("the thread");
                }
            }
        });
        for (what, out) in [("lint", lint), ("apply", apply)] {
            let text = stderr(&out);
            assert_eq!(out.status.code(), Some(2), "{what}: {text}");
            let line = text.lines().find(|line| line.contains(file) && line.contains(limit));
            assert!(line.is_some() && text.contains("loop over less"), "{what}: {text}");
        }
        assert!(manager.child.try_wait().expect("a child").is_none(), "{file}: {limit}: the manager ended");
    }
    let fleet = fleet(dir.path(), "{% for i in range(end=3) %}{{ node.name }}{% endfor %}\n", "{{ node.group }}");
    let out = manager.ask(&["apply", fleet.to_str().expect("UTF-8")]);
    assert!(out.status.success(), "{}", stderr(&out));
}
