//! `remoor check --file` on real files: arguments, output and exit codes.

mod add;
mod changed;
mod files;
mod forms;

use crate::cli::args::{self, CheckArgs, CheckFormat, Verb};
use crate::cli::command::check_files;
use crate::cli::drivers::Form;
use crate::cli::error::CommandError;
use crate::cli::exit::Exit;
use crate::cli::format::Format;
use crate::cli::out::Out;
use expect_test::expect;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Makes a directory with the files `f` and `secret`, and the check files of a test. In the check
/// files, the path of the directory replaces `DIR`.
fn place(files: &[(&str, &str)]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("f"), "one\ntwo\n").unwrap();
    fs::set_permissions(dir.path().join("f"), fs::Permissions::from_mode(0o644)).unwrap();
    fs::write(dir.path().join("secret"), "hunter2\n").unwrap();
    fs::set_permissions(dir.path().join("secret"), fs::Permissions::from_mode(0o600)).unwrap();
    for (name, text) in files {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text.replace("DIR", dir.path().to_str().unwrap())).unwrap();
    }
    dir
}

fn parse_check(dir: &Path, line: &str) -> CheckArgs {
    let line = format!("remoor check {}", line.replace("DIR", dir.to_str().unwrap()));
    let args = args::parse(line.split_whitespace().map(Into::into)).unwrap_or_else(|e| panic!("{e}"));
    let Verb::Check(args) = args.verb else { panic!("check") };
    args
}

/// The answer, messages and exit code of `remoor check ...`. `DIR` replaces the directory, and
/// `TIME` replaces times and random names.
fn check(dir: &Path, line: &str) -> (String, String, Exit) {
    run_and_capture(dir, &parse_check(dir, line), check_files::run)
}

fn run_and_capture(
    dir: &Path,
    args: &CheckArgs,
    run: impl FnOnce(&Out, &CheckArgs) -> anyhow::Result<Exit>,
) -> (String, String, Exit) {
    let format = match &args.output {
        _ if args.json => Format::Json,
        Some(CheckFormat::Common(format)) => format.clone(),
        Some(CheckFormat::Goss(_)) | None => Format::Table,
    };
    let out = Out::memory(format, false).quietly(args.quiet);
    let (exit, fault) = match run(&out, args) {
        Ok(exit) => (exit, String::new()),
        // `cli::run` reports the error in the same way.
        Err(error) if args.output == Some(CheckFormat::Goss(Form::Nagios)) => {
            (check_files::report_unknown(&out, &CommandError::from_error(&error)), String::new())
        }
        Err(error) => (CommandError::from_error(&error).exit, CommandError::from_error(&error).render()),
    };
    let (answer, talk) = out.captured_text();
    let same = |text: String| {
        let text = text.replace(dir.to_str().unwrap(), "DIR");
        let passing = r#"\b[0-9a-f]{16}\b|\d+ ms|\d+\.\d{3}s?\b|timestamp="[^"]*"|_milliseconds\{[^}]*\} (\d+)"#;
        regex::Regex::new(passing).unwrap().replace_all(&text, "TIME").into_owned()
    };
    (same(answer), same(talk + &fault), exit)
}

/// The table with two blanks between columns, so that it does not depend on the length of the
/// directory's name.
fn narrow(table: &str) -> String {
    regex::Regex::new(" {2,}").unwrap().replace_all(table, "  ").into_owned()
}

#[test]
fn passing_checks_have_exit_code_0_and_invalid_files_2() {
    let good = "file: {DIR/f: {exists: true, meta: {tags: [a, b]}}}\n";
    let dir = place(&[
        ("good/a.yml", good),
        ("good/b.json", "{\n\t\"user\": {\n\t\t\"root\": {\"exists\": true, \"meta\": {\"tags\": \"b\"}}}\n}"),
        ("good/c.txt", "no check file"),
        ("bad.yml", "fiile: {}\nfile: {x: {exists: true}}\n"),
        ("none.yml", "file: {}\n"),
        ("list.yml", "- a\n"),
    ]);
    let (answer, talk, exit) = check(dir.path(), "--file DIR/good DIR/good/a.yml");
    assert_eq!(
        (answer.as_str(), talk.as_str(), exit),
        ("3 assertions passed, 0 failed, 0 unknown, 0 skipped; took TIME\n", "", Exit::Done)
    );
    let (answer, ..) = check(dir.path(), "--file DIR/good --only a");
    assert!(answer.starts_with("1 assertion passed"), "{answer}");
    let output_of = |line: &str| {
        let (answer, talk, exit) = check(dir.path(), line);
        format!("{}{answer}{talk}", exit.code())
    };
    let all = [
        "bad.yml",
        "none.yml",
        "list.yml",
        "gone.yml",
        "good --only c",
        "good --vars DIR/list.yml",
        "bad.yml -o nagios",
    ]
    .map(|line| output_of(&format!("--file DIR/{line}")));
    expect![[r#"
        1SERVICE  CHECK   PROPERTY  STATE  SEVERITY  EXPECTED  FOUND  MESSAGE  FILE
        bad      file:x  exists    fail   critical  true      false  -        DIR/bad.yml:2
        hint: file:x: the file is missing; next: ls -ld x
        0 assertions passed, 1 failed, 0 unknown, 0 skipped; took TIME
        DIR/bad.yml:1:1: warning: unknown resource type `fiile`
          hint: did you mean `file`?
        DIR/bad.yml:2:8: warning: the path `x` is not absolute
        2error: the check files have 1 fault; nothing was run
        caused by: DIR/none.yml: there is no check in it
        2error: the check files have 1 fault; nothing was run
        caused by: DIR/list.yml:1:1: a check file is a map, this is a list
        2error: the check files have 1 fault; nothing was run
        caused by: DIR/gone.yml: No such file or directory (os error 2)
        2error: the check files have 1 fault; nothing was run
        caused by: --only: no check has the tag `c` in `meta.tags`
          hint: known: a, b
        2error: the check files have 1 fault; nothing was run
        caused by: DIR/list.yml:1:1: variables are a map, this is a list
        2REMOOR CRITICAL - Count: 1, Failed: 1, Skipped: 0, Duration: TIME
        DIR/bad.yml:1:1: warning: unknown resource type `fiile`
          hint: did you mean `file`?
        DIR/bad.yml:2:8: warning: the path `x` is not absolute
    "#]]
    .assert_eq(&all.concat());
}

#[test]
fn checks_are_repeated_until_all_pass() {
    let text = r#"command: {count: {exec: "echo x >> DIR/n; test $(wc -l < DIR/n) -ge 3", exit-status: 0}}"#;
    let dir = place(&[("goss.yml", text)]);
    let (answer, talk, exit) = check(dir.path(), "--file DIR/goss.yml --retry-timeout 10m --sleep 1ms");
    assert_eq!(
        (answer.as_str(), exit),
        ("1 assertion passed, 0 failed, 0 unknown, 0 skipped; took TIME; try 3\n", Exit::Done)
    );
    assert_eq!(talk.matches("1 failed, 0 unknown; next attempt in").count(), 2, "{talk}");
    let never = "command: {never: {exec: \"false\", exit-status: 0}}";
    let dir = place(&[("goss.yml", never)]);
    assert_eq!(check(dir.path(), "--file DIR/goss.yml --retry-timeout 5ms --sleep 1ms").2, Exit::No);
}
