//! `remoor check --changed-only`: the output of a second run in each format, and the stored
//! results.

use super::{narrow, parse_check, place, run_and_capture};
use crate::cli::command::check_files;
use crate::cli::error::CommandError;
use crate::cli::exit::Exit;
use crate::cli::format::Format;
use crate::cli::out::Out;
use expect_test::expect;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// Runs `remoor check --changed-only ...` and stores the results below `dir`.
fn check(dir: &Path, line: &str) -> (String, String, Exit) {
    let args = parse_check(dir, &format!("{line} --changed-only"));
    run_and_capture(dir, &args, |out, args| check_files::run_with(out, args, Some(&dir.join("state"))))
}

fn stored_runs(dir: &Path) -> Vec<PathBuf> {
    fs::read_dir(dir.join("state/remoor/checks")).unwrap().map(|entry| entry.unwrap().path()).collect()
}

const SUITE: &str = "file:\n  DIR/f: {exists: true, size: {gt: 1}}\n  DIR/other: {exists: false}\n  DIR/secret: {exists: true, contents: [hunter3]}\nuser:\n  root: {exists: true}\n";

#[test]
fn only_changes_are_printed_and_everything_counts() {
    let dir = place(&[("goss.yml", SUITE)]);
    let dir = dir.path();
    let run = |line: &str| {
        let (answer, talk, exit) = check(dir, line);
        format!("{}--- {}\n{talk}", narrow(&answer), exit.code())
    };
    let first = run("--file DIR/goss.yml");
    let same = run("--file DIR/goss.yml");
    // A changed value is no change of the result if the check still passes. A file that appears or
    // disappears is a change.
    fs::write(dir.join("f"), "longer than it was").unwrap();
    fs::write(dir.join("other"), "").unwrap();
    let failed = run("--file DIR/goss.yml");
    fs::remove_file(dir.join("other")).unwrap();
    let recovered = run("--file DIR/goss.yml -q");
    let text = fs::read_to_string(dir.join("goss.yml")).unwrap();
    fs::write(dir.join("goss.yml"), text.replace("user:\n  root", "group:\n  root")).unwrap();
    let edited = run("--file DIR/goss.yml");
    expect![[r#"
        SERVICE  CHECK  PROPERTY  STATE  SEVERITY  EXPECTED  FOUND  MESSAGE  FILE
        goss  file:DIR/secret  contents  fail  critical  (secret)  (secret)  -  DIR/goss.yml:4
        5 assertions passed, 1 failed, 0 unknown, 0 skipped; took TIME
        --- 1
        no results of an earlier run are stored, so all results are printed
        5 assertions passed, 1 failed, 0 unknown, 0 skipped; took TIME; 0 of 6 changed
        --- 1
        SERVICE  CHECK  PROPERTY  STATE  SEVERITY  EXPECTED  FOUND  MESSAGE  FILE
        goss  file:DIR/other  exists  fail  critical  false  true  -  DIR/goss.yml:3
        hint: file:DIR/other: the file exists; next: ls -ld DIR/other
        4 assertions passed, 2 failed, 0 unknown, 0 skipped; took TIME; 1 of 6 changed
        --- 1
        file:DIR/other
        --- 1
        SERVICE  CHECK  PROPERTY  STATE  SEVERITY  EXPECTED  FOUND  MESSAGE  FILE
        goss  group:root  exists  pass  critical  true  true  -  DIR/goss.yml:6
        5 assertions passed, 1 failed, 0 unknown, 0 skipped; took TIME; 1 of 6 changed
        --- 1
        removed since the last run: 1 assertion
    "#]]
    .assert_eq(&[first, same, failed, recovered, edited].concat());
    // Results are stored separately for each set of variables. So a run with other variables finds
    // no earlier results.
    assert_eq!(stored_runs(dir).len(), 1);
    let (_, talk, _) = check(dir, "--file DIR/goss.yml --vars-inline {\"a\":1}");
    assert!(talk.contains("no results of an earlier run") && stored_runs(dir).len() == 2, "{talk}");
    for path in stored_runs(dir) {
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o600);
        let text = fs::read_to_string(&path).unwrap();
        assert!(!["hunter", "secret", "root", "true"].iter().any(|word| text.contains(word)), "{text}");
    }
    let parent = dir.join("state/remoor");
    assert_eq!(fs::metadata(parent).unwrap().permissions().mode() & 0o7777, 0o700);
}

/// A result may show only a part of a value, and only the number of lines of a file's content. A
/// change that the result does not show is found too.
#[test]
fn a_failure_with_another_value_counts_as_a_change() {
    let suite = "file: {DIR/f: {exists: true, contents: [x]}}\ncommand: {cat DIR/g: {exit-status: 0, stdout: short}}\n";
    let dir = place(&[("goss.yml", suite), ("f", "a\n"), ("g", "")]);
    let dir = dir.path();
    let write = |file: &str, end: &str| fs::write(dir.join(file), format!("{}{end}\n", "y".repeat(1000))).unwrap();
    let changed = || check(dir, "--file DIR/goss.yml").0.split("; ").last().unwrap().to_owned();
    write("f", "a");
    write("g", "a");
    changed();
    assert_eq!(changed(), "0 of 4 changed\n");
    write("f", "b");
    assert_eq!(changed(), "1 of 4 changed\n");
    write("g", "b");
    assert_eq!(changed(), "1 of 4 changed\n");
}

#[test]
fn each_format_prints_the_changes_and_the_totals() {
    let dir = place(&[("goss.yml", SUITE)]);
    let dir = dir.path();
    let mut all = String::new();
    for form in ["rspecish", "tap", "junit", "nagios", "silent"] {
        let _ = fs::remove_file(dir.join("other"));
        check(dir, "--file DIR/goss.yml -o silent");
        fs::write(dir.join("other"), "").unwrap();
        let (answer, _, exit) = check(dir, &format!("--file DIR/goss.yml -o {form}"));
        all += &format!("== {form}: {}\n{answer}", exit.code());
    }
    expect![[r#"
        == rspecish: 1
        F

        Failures/Skipped:

        File: DIR/other: exists:
        Expected
            true
        to equal
            false

        Total Duration: TIME
        Count: 6, Failed: 2, Skipped: 0
        == tap: 1
        1..1
        not ok 1 - File: DIR/other: exists: Expected true to equal false
        == junit: 1
        <?xml version="1.0" encoding="UTF-8"?>
        <testsuite name="remoor" errors="0" tests="1" failures="1" skipped="0" time="TIME" TIME>
        <testcase classname="goss" name="File DIR/other exists" time="TIME">
        <failure message="File: DIR/other: exists: Expected true to equal false">File: DIR/other: exists:&#10;Expected&#10;    true&#10;to equal&#10;    false</failure>
        <system-err>File: DIR/other: exists: Expected true to equal false</system-err>
        </testcase>
        </testsuite>
        == nagios: 2
        REMOOR CRITICAL - Count: 6, Failed: 2, Skipped: 0, Duration: TIME
        == silent: 1
    "#]]
    .assert_eq(&all);
    check(dir, "--file DIR/goss.yml");
    let (answer, _, exit) = check(dir, "--file DIR/goss.yml --json");
    let value: serde_json::Value = serde_json::from_str(&answer).unwrap();
    let count = value["results"].as_array().unwrap().len();
    assert_eq!((count, &value["summary"]["failed-count"], exit), (0, &2.into(), Exit::No), "{answer}");
    let (answer, ..) = check(dir, "--file DIR/goss.yml -o prometheus");
    assert!(answer.contains("{outcome=\"fail\",type=\"file\"} 2"), "{answer}");
}

#[test]
fn unusable_stored_results_print_everything() {
    let dir = place(&[("goss.yml", SUITE)]);
    let dir = dir.path();
    check(dir, "--file DIR/goss.yml");
    let path = stored_runs(dir).remove(0);
    let whole = fs::read_to_string(&path).unwrap();
    let later = whole.replace("\"version\":1", "\"version\":2");
    let more = whole.replace("{\"version\"", "{\"more\":1,\"version\"");
    for (text, why) in [
        (&whole[..whole.len() / 2], "it is damaged (line 1"),
        ("", "it is damaged"),
        (&later, "it has version 2, this program knows 1"),
        (&more, "it is damaged (line 1, column 7)"),
        (&"[".repeat(1 << 20), "it is damaged"),
        (&" ".repeat((16 << 20) + 1), "longer than 16 MiB"),
    ] {
        fs::write(&path, text).unwrap();
        let (answer, talk, exit) = check(dir, "--file DIR/goss.yml");
        assert!(
            talk.contains("warning: the results of the last run can't be used") && talk.contains(why),
            "{why}: {talk}"
        );
        assert!(answer.contains("file:DIR/secret") && exit == Exit::No, "{answer}");
        assert_eq!(fs::read_to_string(&path).unwrap(), whole, "it is stored again");
    }
    // A symbolic link in place of the stored results is not followed. It is replaced, and its
    // target stays unchanged.
    fs::remove_file(&path).unwrap();
    symlink(dir.join("f"), &path).unwrap();
    let (_, talk, _) = check(dir, "--file DIR/goss.yml");
    assert!(talk.contains("can't be used") && fs::read_to_string(dir.join("f")).unwrap() == "one\ntwo\n", "{talk}");
    assert_eq!(fs::read_to_string(&path).unwrap(), whole);
    // If nothing can be stored, the answer is the same, with a warning.
    fs::remove_dir_all(dir.join("state")).unwrap();
    fs::write(dir.join("state"), "no directory").unwrap();
    let (answer, talk, exit) = check(dir, "--file DIR/goss.yml");
    assert!(talk.contains("warning: the results can't be stored") && exit == Exit::No, "{answer}{talk}");
}

#[test]
fn old_suites_are_dropped_and_standard_input_is_refused() {
    let dir = place(&[("goss.yml", SUITE)]);
    let dir = dir.path();
    fs::create_dir_all(dir.join("state/remoor/checks")).unwrap();
    for number in 0..300 {
        fs::write(dir.join(format!("state/remoor/checks/{number}.json")), "").unwrap();
    }
    check(dir, "--file DIR/goss.yml");
    assert_eq!(stored_runs(dir).len(), 256);
    let (_, talk, _) = check(dir, "--file DIR/goss.yml");
    assert!(!talk.contains("no results of an earlier run"), "its own are kept: {talk}");
    let (_, talk, exit) = check(dir, "--file -");
    assert!(talk.contains("standard input has none") && exit == Exit::Usage, "{talk}");
    let args = parse_check(dir, "--file DIR/goss.yml --changed-only");
    let stop =
        CommandError::from_error(&check_files::run_with(&Out::memory(Format::Table, false), &args, None).unwrap_err());
    assert!(stop.exit == Exit::Usage && stop.render().contains("next: XDG_STATE_HOME="), "{}", stop.render());
}
