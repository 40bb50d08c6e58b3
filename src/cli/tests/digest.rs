//! `remoor digest` on a temporary directory: the output and the exit codes.

use crate::cli::args::{self, Verb};
use crate::cli::command::digest;
use crate::cli::format::Format;
use crate::cli::out::Out;
use expect_test::{Expect, expect};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

/// Runs `remoor digest` and returns the answer, the exit code and the messages. `DIR` replaces the
/// directory, and words are separated by one space.
fn run_digest(dir: &Path, line: &str, format: Format) -> String {
    let place = dir.display().to_string();
    let line = format!("remoor digest {}", line.replace("DIR", &place));
    let Ok(Verb::Digest(args)) = args::parse(line.split_whitespace().map(Into::into)).map(|cli| cli.verb) else {
        panic!("{line}")
    };
    let out = Out::memory(format, false).quietly(args.output.quiet);
    let exit = digest::run(&out, args).expect("nothing fails").code();
    let (answer, talk) = out.captured_text();
    // The width of the columns depends on the name of the directory, so runs of spaces are reduced
    // to one.
    let text = format!("{answer}--- {exit}\n{talk}").replace(&place, "DIR");
    text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ") + "\n").collect()
}

fn table(dir: &Path, line: &str, expected: Expect) {
    expected.assert_eq(&run_digest(dir, line, Format::Table));
}

#[test]
fn a_digest_is_saved_and_compared() {
    let temporary = tempfile::tempdir().unwrap();
    let dir = temporary.path();
    fs::create_dir(dir.join("etc")).unwrap();
    let write = |name: &str, text: &str, mode: u32| {
        fs::write(dir.join("etc").join(name), text).unwrap();
        fs::set_permissions(dir.join("etc").join(name), fs::Permissions::from_mode(mode)).unwrap();
    };
    for (name, mode) in [("a", 0o644), ("gone", 0o644), ("key", 0o600)] {
        write(name, name, mode);
    }
    symlink("a", dir.join("etc/link")).unwrap();
    let holds =
        |line: &str| run_digest(dir, line, Format::Table).lines().skip(1).map(|l| format!("{l}\n")).collect::<String>();
    expect![[r#"
        of: DIR/etc
        holds: 3 files, 1 directory, 1 symlink
        --- 3
        1 file without a content hash, because only the owner may read the content; --key FILE hashes it with a key
    "#]]
    .assert_eq(&holds("DIR/etc"));
    expect![[r#"
        --- 1
        DIR/none: does not exist
    "#]]
    .assert_eq(&holds("DIR/etc/a DIR/none --quiet"));
    let json = run_digest(dir, "DIR/etc", Format::Json).replace("DIR", &dir.display().to_string());
    fs::write(dir.join("kept.json"), json.split("--- ").next().unwrap()).unwrap();
    table(
        dir,
        "--compare DIR/kept.json DIR/etc/a",
        expect![[r#"
        1 unchanged, 0 added, 0 missing, 0 changed
        --- 0
    "#]],
    );
    write("a", "edited", 0o640);
    write("new", "", 0o644);
    fs::remove_file(dir.join("etc/gone")).unwrap();
    table(
        dir,
        "--compare DIR/kept.json",
        expect![[r#"
            CHANGE PATH WHAT
            changed DIR/etc/a sha256 ca978112ca1b.. -> 1fb9f4097256.., mode 0644 -> 0640
            missing DIR/etc/gone -
            added DIR/etc/new -
            2 unchanged, 1 added, 1 missing, 1 changed
            --- 1
            DIR/etc/key: its content was not compared: only its owner may read it
        "#]],
    );
    table(
        dir,
        "--compare DIR/kept.json DIR/etc/new DIR/etc/gone --quiet",
        expect![[r#"
        DIR/etc/gone
        DIR/etc/new
        --- 1
    "#]],
    );
    fs::File::create(dir.join("etc/big")).unwrap().set_len((16 << 20) + 1).unwrap();
    expect![[r#"
        of: DIR/etc/big
        holds: 0 files, 0 directories
        --- 3
        DIR/etc/big: larger than 16 MiB
    "#]]
    .assert_eq(&holds("DIR/etc/big"));
}

#[test]
fn a_line_end_in_a_name_does_not_begin_a_row() {
    let temporary = tempfile::tempdir().unwrap();
    let dir = temporary.path();
    fs::create_dir(dir.join("etc")).unwrap();
    let json = run_digest(dir, "DIR/etc", Format::Json).replace("DIR", &dir.display().to_string());
    fs::write(dir.join("kept.json"), json.split("--- ").next().unwrap()).unwrap();
    fs::write(dir.join("etc/a\nmissing b"), "").unwrap();
    table(
        dir,
        "--compare DIR/kept.json",
        expect![[r#"
            CHANGE PATH WHAT
            added DIR/etc/a␊missing b -
            1 unchanged, 1 added, 0 missing, 0 changed
            --- 1
        "#]],
    );
    assert!(run_digest(dir, "--compare DIR/kept.json -q", Format::Table).starts_with("DIR/etc/a␊missing b\n--- 1"));
}

#[test]
fn an_unusable_digest_is_a_usage_error() {
    let dir = tempfile::tempdir().unwrap();
    let parse = |line: &str| args::parse(line.split_whitespace().map(Into::into)).is_ok();
    assert!(parse("remoor digest --compare f /etc") && parse("remoor digest --exclude *.log --normalize ^x /etc"));
    assert!(!parse("remoor digest --compare f --exclude x") && !parse("remoor digest --compare f --normalize x"));
    fs::write(dir.path().join("key"), "62e99\n").unwrap();
    let args = |line: String| match args::parse(line.split_whitespace().map(Into::into)).map(|cli| cli.verb) {
        Ok(Verb::Digest(args)) => args,
        _ => panic!("{line}"),
    };
    let out = Out::memory(Format::Table, false);
    let error = digest::run(&out, args(format!("remoor digest --compare {}/key", dir.path().display()))).unwrap_err();
    let stop = crate::cli::error::CommandError::from_error(&error);
    assert_eq!(stop.exit, crate::cli::exit::Exit::Usage);
    assert!(!stop.render().contains("62e99") && stop.render().contains("line 1"), "{}", stop.render());
}
