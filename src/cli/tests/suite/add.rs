//! `remoor check --add`: checks for the present state of this machine, added to files.

use super::{check, place};
use crate::cli::exit::Exit;
use expect_test::expect;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

#[test]
fn an_added_check_passes() {
    let text = "# mine\nfile:\n  /etc: {exists: true} # stays\n\n# users\nuser:\n  daemon: {exists: true}\n";
    let dir = place(&[
        ("goss.yml", text),
        ("tera.yml", "remoor: {service: a}\nfile: {\"/{{ node.name }}\": {exists: false}}\n"),
    ]);
    let path = dir.path().join("goss.yml");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    symlink("f", dir.path().join("link")).unwrap();
    let check = |line: &str| check(dir.path(), line);
    for line in [
        "file DIR/f DIR/link DIR/none",
        "user nobody-at-all",
        "group root",
        "process no-such-process",
        "port tcp:1",
        "addr tcp://127.0.0.1:1",
        "command pwd",
        "command printf",
    ] {
        let (answer, talk, exit) = check(&format!("--add {line} --file DIR/goss.yml"));
        let want = if line == "command printf" { "command:printf" } else { "added to DIR/goss.yml: " };
        assert!(answer.is_empty() && talk.contains(want) && exit == Exit::Done, "{line}: {talk}");
    }
    let same = fs::read_to_string(&path).unwrap().replace(dir.path().to_str().unwrap(), "DIR");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o640);
    let mine = |line: &&str| !line.starts_with("    owner: ") && !line.starts_with("    group: ");
    let top: String =
        same.split("\ngroup:").next().unwrap().lines().filter(mine).map(|line| format!("{line}\n")).collect();
    expect![[r##"
        # mine
        file:
          /etc: {exists: true} # stays
          DIR/f:
            exists: true
            mode: "0644"
            filetype: file
          DIR/link:
            exists: true
            mode: "0777"
            linked-to: f
            filetype: symlink
          DIR/none:
            exists: false

        # users
        user:
          daemon: {exists: true}
          nobody-at-all:
            exists: false
    "##]]
    .assert_eq(&top);
    let (answer, talk, exit) = check("--file DIR/goss.yml");
    assert_eq!(exit, Exit::Done, "{answer}{talk}\n{same}");

    let before = fs::read_to_string(&path).unwrap();
    let output = [
        "file DIR/g DIR/f --file DIR/goss.yml",
        "file relative --file DIR/goss.yml",
        "fiel /x",
        "group root --file DIR/tera.yml",
        "group root --file DIR/none/goss.yml",
        "group root --file DIR",
        "http http://me:secret@127.0.0.1:1/",
    ]
    .map(|line| {
        let (answer, talk, exit) = check(&format!("--add {line}"));
        format!("{} {answer}{talk}", exit.code())
    });
    expect![[r#"
        4 error: nothing was added
        caused by: DIR/goss.yml:4:3: `file:DIR/f` already exists
        2 error: the path `relative` is not absolute
        2 error: unknown resource type `fiel`; did you mean `file`?
        4 error: nothing was added
        caused by: DIR/tera.yml: the file is a template, so its content is not known before rendering
          hint: run the command without --file to print the check, and insert it by hand
        5 error: the file can't be written
        caused by: opening directory DIR/none
        caused by: No such file or directory (os error 2)
        2 error: --add writes to one file, or without --file to standard output
        3 error: can't determine the value of http:http://me:***@127.0.0.1:1/: status: Connection refused (os error 111)
    "#]]
    .assert_eq(&output.concat());
    assert_eq!(fs::read_to_string(&path).unwrap(), before, "a refusal changes nothing");
    let (answer, ..) = check("--add group root");
    assert_eq!(answer, "group:\n  root:\n    exists: true\n    gid: 0\n");
}

#[test]
fn adding_a_check_changes_only_the_content_of_the_file() {
    let dir = place(&[("goss.yml", "user:\r\n  root: {exists: true}\r\n")]);
    let path = |name: &str| dir.path().join(name);
    let read = |name: &str| fs::read_to_string(path(name)).unwrap();
    let check = |line: &str| check(dir.path(), line);
    symlink("goss.yml", path("link.yml")).unwrap();
    symlink("gone.yml", path("dangling.yml")).unwrap();
    let (_, talk, exit) = check("--add group root --file DIR/link.yml");
    assert_eq!((exit, path("link.yml").is_symlink()), (Exit::Done, true), "{talk}");
    assert!(
        read("goss.yml").ends_with("group:\r\n  root:\r\n    exists: true\r\n    gid: 0\r\n"),
        "{}",
        read("goss.yml")
    );
    fs::hard_link(path("goss.yml"), path("other.yml")).unwrap();
    let before = read("goss.yml");
    let output = ["goss.yml", "dangling.yml"].map(|name| {
        let (_, talk, exit) = check(&format!("--add user daemon --file DIR/{name}"));
        format!("{} {talk}", exit.code())
    });
    expect![[r#"
        4 error: nothing was added
        caused by: DIR/goss.yml: it has 2 hard links, which would be broken
          hint: run the command without --file to print the check, and insert it by hand
        4 error: nothing was added
        caused by: DIR/dangling.yml: it is a symlink to a file that does not exist
          hint: run the command without --file to print the check, and insert it by hand
    "#]]
    .assert_eq(&output.concat());
    assert_eq!((read("goss.yml"), path("dangling.yml").is_symlink(), path("gone.yml").exists()), (before, true, false));
}

/// Four commands run at the same time on a file that does not exist yet. At the end, the file
/// contains all four checks.
#[test]
fn concurrent_additions_are_all_kept() {
    let dir = place(&[]);
    std::thread::scope(|scope| {
        for number in 0..4 {
            let dir = dir.path();
            scope.spawn(move || check(dir, &format!("--add file /no/such/{number} --file DIR/new.yml")));
        }
    });
    let text = fs::read_to_string(dir.path().join("new.yml")).unwrap();
    let missing: Vec<i32> = (0..4).filter(|number| !text.contains(&format!("/no/such/{number}:"))).collect();
    assert_eq!(missing, [0; 0], "{text}");
    let left =
        fs::read_dir(dir.path()).unwrap().flatten().filter(|e| e.file_name().to_string_lossy().ends_with(".tmp"));
    assert_eq!(left.count(), 0);
}
