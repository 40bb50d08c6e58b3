//! Tests which links modules follow, replace, or leave unchanged, by their owner.

use super::*;
use std::os::unix::fs::{MetadataExt, chown, lchown};

/// A user id that no machine uses.
const APP: u32 = 54321;

fn text(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap()
}

fn mode(path: &Path) -> u32 {
    std::fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

/// Makes a file that must not change, and a directory with a link to that file.
fn ground(dir: &Path) -> (std::path::PathBuf, std::path::PathBuf) {
    let (victim, app) = (dir.join("victim"), dir.join("app"));
    std::fs::write(&victim, "precious\n").unwrap();
    std::fs::set_permissions(&victim, std::fs::Permissions::from_mode(0o600)).unwrap();
    std::fs::create_dir(&app).unwrap();
    symlink(&victim, app.join("link")).unwrap();
    (victim, app)
}

#[test]
fn a_link_of_roots_is_followed_where_what_is_in_a_file_changes_and_replaced_by_a_file() {
    let dir = TempDir::new().unwrap();
    let d = dir.path();
    let (victim, app) = ground(d);
    let all = "
    - {lineinfile: {path: '{{ dir }}/app/link', line: one}}
    - {blockinfile: {path: '{{ dir }}/app/link', block: two}}
    - {replace: {path: '{{ dir }}/app/link', regexp: precious, replace: three}}
    - {file: {path: '{{ dir }}/app/link', mode: '0640'}}
    - {copy: {content: four, dest: '{{ dir }}/app/link', force: false}}
";
    let checked = go(&tasks(d, all), &PlaybookRunOptions { check: true, ..options(d) }).assert_success();
    assert_eq!((checked.end.changed, text(&victim).as_str()), (4, "precious\n"));
    assert_eq!(go(&tasks(d, all), &options(d)).assert_success().end.changed, 4);
    assert!(text(&victim).starts_with("three\none\n# BEGIN"), "{}", text(&victim));
    assert_eq!(mode(&victim), 0o640);
    let before = text(&victim);
    let ran =
        go(&tasks(d, "    - {copy: {content: four, dest: '{{ dir }}/app/link'}}\n"), &options(d)).assert_success();
    assert_eq!((ran.end.changed, text(&victim)), (1, before));
    assert!(!app.join("link").is_symlink() && text(&app.join("link")) == "four" && mode(&app.join("link")) == 0o644);
}

#[test]
fn a_link_that_another_may_have_put_there_is_replaced_or_refused_never_followed() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: only root can make the link of another user");
        return;
    }
    let dir = TempDir::new().unwrap();
    let d = dir.path();
    let (victim, app) = ground(d);
    chown(&app, Some(APP), Some(APP)).unwrap();
    lchown(app.join("link"), Some(APP), Some(APP)).unwrap();
    let same = || {
        assert_eq!((text(&victim).as_str(), mode(&victim)), ("precious\n", 0o600));
        assert_eq!(std::fs::metadata(&victim).unwrap().uid(), 0);
    };
    for task in [
        "lineinfile: {path: '{{ dir }}/app/link', line: evil}",
        "replace: {path: '{{ dir }}/app/link', regexp: p, replace: evil}",
        "file: {path: '{{ dir }}/app/link', mode: '0777'}",
        "file: {path: '{{ dir }}/app/link', state: touch}",
        "copy: {content: evil, dest: '{{ dir }}/app/link', follow: true}",
        "template: {src: t.j2, dest: '{{ dir }}/app/link', follow: true}",
    ] {
        let site = format!("- hosts: all\n  tasks:\n    - {{{task}}}\n");
        let plan = plan(d, &[("site.yml", &site), ("templates/t.j2", "evil")]);
        for check in [true, false] {
            let ran = go(&plan, &PlaybookRunOptions { check, ..options(d) });
            let said = ran.end.failure.unwrap_or_else(|| panic!("{task}")).message;
            assert!(
                said.contains("`link` in it is a link in a directory that users other than root may change"),
                "{task}: {said}"
            );
        }
        same();
    }
    let recursive =
        format!("    - {{file: {{path: '{{{{ dir }}}}/app', state: directory, recurse: true, owner: '{APP}'}}}}\n");
    assert_eq!(go(&tasks(d, &recursive), &options(d)).assert_success().end.changed, 0);
    same();
    go(&tasks(d, "    - {copy: {content: four, dest: '{{ dir }}/app/link'}}\n"), &options(d)).assert_success();
    same();
    assert!(!app.join("link").is_symlink() && text(&app.join("link")) == "four");
}

#[test]
fn nothing_is_read_or_unpacked_over_a_link_that_another_may_have_put_there() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: only root can make the link of another user");
        return;
    }
    let dir = TempDir::new().unwrap();
    let d = &dir.path().canonicalize().unwrap();
    let (victim, app) = ground(d);
    std::fs::create_dir(d.join("etc")).unwrap();
    symlink(d.join("etc"), app.join("cur")).unwrap();
    let tar = std::process::Command::new("tar").arg("-cf").arg(d.join("a.tar")).arg("-C").arg(d).arg("victim").status();
    assert!(tar.unwrap().success());
    symlink(d.join("a.tar"), app.join("a.tar")).unwrap();
    chown(&app, Some(APP), Some(APP)).unwrap();
    for task in [
        "unarchive: {src: '{{ dir }}/a.tar', dest: '{{ dir }}/app/cur', remote_src: yes}",
        "unarchive: {src: '{{ dir }}/app/a.tar', dest: '{{ dir }}/etc', remote_src: yes}",
        "copy: {src: '{{ dir }}/app/link', dest: '{{ dir }}/etc/', remote_src: yes, mode: '0644'}",
        "copy: {src: '{{ dir }}/app/', dest: '{{ dir }}/etc/', remote_src: yes, mode: '0644'}",
        "git: {repo: '{{ dir }}/app/cur', dest: '{{ dir }}/etc/x'}",
        "git: {repo: 'https://localhost:1/x', dest: '{{ dir }}/app/cur'}",
        "git: {repo: 'https://localhost:1/x', dest: '{{ dir }}/app/cur/x'}",
    ] {
        let plan = tasks(d, &format!("    - {{{task}}}\n"));
        for check in [true, false] {
            let ran = go(&plan, &PlaybookRunOptions { check, ..options(d) });
            let said = ran.end.failure.unwrap_or_else(|| panic!("{task}")).message;
            assert!(
                said.contains("in it is a link in a directory that users other than root may change"),
                "{task}: {said}"
            );
            assert_eq!(std::fs::read_dir(d.join("etc")).unwrap().count(), 0, "{task}");
        }
    }
    assert_eq!((text(&victim).as_str(), mode(&victim)), ("precious\n", 0o600));
}

/// tar must not work in a directory that another user could exchange.
#[test]
fn archives_are_unpacked_where_nobody_else_can_rename_anything() {
    let dir = TempDir::new().unwrap();
    let d = &dir.path().canonicalize().unwrap();
    std::fs::create_dir_all(d.join("bin")).unwrap();
    std::fs::create_dir_all(d.join("app/to")).unwrap();
    std::fs::write(d.join("one"), "1").unwrap();
    let tar = std::process::Command::new("tar").arg("-cf").arg(d.join("a.tar")).arg("-C").arg(d).arg("one").status();
    assert!(tar.unwrap().success());
    std::fs::write(d.join("bin/tar"), "#!/bin/sh\necho \"$@\" >> ${0%/*}/argv\nPATH=/usr/bin:/bin exec tar \"$@\"\n")
        .unwrap();
    std::fs::set_permissions(d.join("bin/tar"), std::fs::Permissions::from_mode(0o755)).unwrap();
    let site = "
- hosts: all
  environment: {PATH: '{{ dir }}/bin:/usr/bin:/bin'}
  tasks:
    - unarchive: {src: '{{ dir }}/a.tar', dest: '{{ dir }}/app/to', remote_src: yes}
";
    assert_eq!(go(&plan(d, &[("site.yml", site)]), &options(d)).assert_success().end.changed, 1);
    let argv = text(&d.join("bin/argv"));
    let argv = argv.lines().find(|line| line.contains("--extract")).unwrap();
    assert!(!argv.contains("/app/") && argv.contains(&format!("-C {}/half-made/", d.display())), "{argv}");
    assert_eq!(text(&d.join("app/to/one")), "1");
    assert_eq!(std::fs::read_dir(d.join("half-made")).unwrap().count(), 0, "it is gone with the run");
}
