//! The output formats of `remoor check --file`, all for the same suite.

use super::{check, narrow, place};
use crate::cli::command::check_files;
use crate::cli::exit::Exit;
use crate::cli::format::Format;
use crate::cli::out::Out;
use expect_test::{expect, expect_file};
use serde_json::Value;

const MIXED: &str = r#"file:
  DIR/f:
    title: "<f> & \"co\""
    meta: {tags: [base], owner: "team \u001b[31mred"}
    exists: true
    mode: "0600"
    contents: [one, three, "!two"]
  DIR/none: {exists: true, mode: "0644"}
  DIR/secret:
    exists: true
    contents: [hunter3]
command:
  say:
    exec: "printf 'a\\033[2J\\nok 99 - forged'"
    exit-status: 0
    stdout: {have-prefix: b}
  idle: {exec: "true", exit-status: 0, skip: true}
  slow: {exec: "sleep 600", exit-status: 0, timeout: 50, meta: {tags: slow}}
user:
  root: {exists: true, uid: 0}
"#;

#[test]
fn the_table_format() {
    let dir = place(&[("goss.yml", MIXED)]);
    let (answer, talk, exit) = check(dir.path(), "--file DIR/goss.yml");
    expect![[r#"
        SERVICE  CHECK  PROPERTY  STATE  SEVERITY  EXPECTED  FOUND  MESSAGE  FILE
        goss  file:DIR/f  mode  fail  critical  0600  0644  -  DIR/goss.yml:2
        goss  file:DIR/f  contents  fail  critical  [one, three, !two]  2 lines  not met: three, !two  DIR/goss.yml:2
        goss  file:DIR/none  exists  fail  critical  true  false  -  DIR/goss.yml:8
        goss  file:DIR/secret  contents  fail  critical  (secret)  (secret)  -  DIR/goss.yml:9
        goss  command:say  stdout  fail  critical  have-prefix b  a␛[2J ok 99 - forged  -  DIR/goss.yml:13
        goss  command:slow  exit-status  unknown  critical  0  -  no answer within TIME  DIR/goss.yml:18
        hint: file:DIR/f: the attributes of the file differ; next: stat DIR/f
        hint: file:DIR/none: the file is missing; next: ls -ld DIR/none
        hint: command:say: the command gave another result
        5 assertions passed, 5 failed, 1 unknown, 2 skipped; took TIME
    "#]]
    .assert_eq(&format!("{}{talk}", narrow(&answer)));
    assert_eq!(exit, Exit::No);
    let (answer, _, exit) = check(dir.path(), "--file DIR/goss.yml -q");
    assert_eq!(
        (answer.as_str(), exit),
        ("file:DIR/f\nfile:DIR/none\nfile:DIR/secret\ncommand:say\ncommand:slow\n", Exit::No)
    );
    let (_, _, exit) = check(dir.path(), "--file DIR/goss.yml --only base --only slow --parallel 1");
    assert_eq!(exit, Exit::No);
}

#[test]
fn the_formats_of_goss() {
    let dir = place(&[("goss.yml", MIXED)]);
    let form = |name: &str| check(dir.path(), &format!("--file DIR/goss.yml -o {name}"));
    let mut all = String::new();
    for name in ["rspecish", "tap", "junit", "nagios", "prometheus", "silent"] {
        let (answer, _, exit) = form(name);
        all += &format!("== {name}: {}\n{answer}", exit.code());
    }
    expect_file!["formats_of_goss.txt"].assert_eq(&all);
    let (answer, ..) = form("documentation");
    assert!(answer.contains("User: root: uid: matches expectation: 0\n"), "{answer}");
    let (one_line, ..) = form("structured");
    assert_eq!(one_line.lines().count(), 1);
}

/// The same as in goss 0.4.9: a value that is read line by line is not shown. If no element of a
/// list matched, the list of found elements is present and empty.
#[test]
fn values_are_shown_as_goss_shows_them() {
    let text = "file: {DIR/f: {exists: true, contents: [one]}}\n\
                command: {echo hi: {exit-status: 0, stdout: [hi, nope]}, echo ho: {exit-status: 0, stdout: [ho]}}\n\
                matching: {list: {content: [2], matches: [3]}, text: {content: b, matches: {have-patterns: [c]}}}\n\
                kernel-param: {kernel.ostype: {value: x}}\n";
    let dir = place(&[("goss.yml", text)]);
    let (answer, ..) = check(dir.path(), "--file DIR/goss.yml -o json");
    let answer: serde_json::Value = serde_json::from_str(&answer).unwrap();
    let matcher_of = |id: &str, property: &str| {
        let all = answer["results"].as_array().unwrap();
        let one = all.iter().find(|one| one["resource-id"] == id && one["property"] == property).unwrap();
        let matcher = &one["matcher-result"];
        format!("{} {} {}", matcher["actual"], matcher["found-elements"], matcher["missing-elements"])
    };
    assert_eq!(matcher_of("DIR/f", "contents"), "{} null null");
    assert_eq!(matcher_of("echo ho", "stdout"), "{} null null");
    assert_eq!(matcher_of("echo hi", "stdout"), r#""object: *bytes.Reader" ["hi"] ["nope"]"#);
    assert_eq!(matcher_of("list", "matches"), r#"[2] [] [{"eq":3}]"#);
    assert_eq!(matcher_of("text", "matches"), r#""b" null ["c"]"#);
    let (metrics, ..) = check(dir.path(), "--file DIR/goss.yml -o prometheus");
    assert!(metrics.contains(r#"{outcome="fail",type="kernelparam"} 1"#), "{metrics}");
}

#[test]
fn no_format_shows_a_secret_or_controls_a_terminal() {
    let dir = place(&[("goss.yml", MIXED)]);
    let forms = "table wide json documentation rspecish structured tap junit nagios prometheus silent";
    for form in forms.split(' ') {
        let (answer, talk, _) = check(dir.path(), &format!("--file DIR/goss.yml -o {form}"));
        let all = answer + &talk;
        assert!(!all.contains("hunter"), "{form}: {all}");
        // Tables are sanitized when they are written. JSON escapes control characters itself.
        if !matches!(form, "table" | "wide") {
            assert!(!all.contains('\u{1b}') && !all.lines().any(|line| line.starts_with("ok 99")), "{form}: {all}");
        }
    }
}

/// Control characters are replaced in a pipe or a file too, because a terminal may show the text
/// later. In JSON they are escaped, so the value stays the same.
#[test]
fn neither_a_template_nor_json_controls_a_terminal() {
    let dir = place(&[(
        "goss.yml",
        "command: {say: {exec: \"printf 'a\\\\033[2J\\\\302\\\\2331m'\", exit-status: 0, stdout: {have-prefix: b}}}",
    )]);
    let args = super::parse_check(dir.path(), "--file DIR/goss.yml");
    let shown = |format: Format, tty: bool| {
        let out = Out::memory(format, tty);
        check_files::run(&out, &args).unwrap();
        out.captured_text().0
    };
    let template = || Format::Template("{{ results[1]['matcher-result'].actual }}".to_owned());
    for tty in [true, false] {
        assert_eq!(shown(template(), tty), "a␛[2J<U+009B>1m\n");
        let json = shown(Format::Json, tty);
        assert!(!json.contains(['\u{9b}', '\u{1b}']), "{json}");
        let value: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(value["results"][1]["matcher-result"]["actual"], "a\u{1b}[2J\u{9b}1m");
    }
}

/// The content of a file that only its owner may read is hidden, even if the check names a link to
/// the file. `secret: true` hides values of all types.
#[test]
fn links_to_private_files_and_secrets_of_all_types_are_hidden() {
    let suite = "file:\n  DIR/link: {exists: true, contents: {have-prefix: x}, sha256: y}\n\
                 matching:\n  m: {content: hunter2, matches: z, meta: {remoor: {secret: true}}}\n\
                 kernel-param:\n  kernel.ostype: {value: z, meta: {remoor: {secret: true}}}\n";
    let dir = place(&[("goss.yml", suite), ("private", "hunter3")]);
    let private = dir.path().join("private");
    std::fs::set_permissions(&private, std::os::unix::fs::PermissionsExt::from_mode(0o620)).unwrap();
    std::os::unix::fs::symlink("private", dir.path().join("link")).unwrap();
    let sum = hex::encode(<sha2::Sha256 as sha2::Digest>::digest("hunter3"));
    for form in ["table", "wide", "json", "documentation", "structured", "tap", "junit"] {
        let (answer, talk, exit) = check(dir.path(), &format!("--file DIR/goss.yml -o {form}"));
        let all = answer + &talk;
        assert_eq!(exit, Exit::No, "{all}");
        for secret in ["hunter", &sum[..], "Linux"] {
            assert!(!all.contains(secret), "{form} shows {secret}: {all}");
        }
    }
}

/// As in goss 0.4.9, a resource with a name of its own is shown with its id and this name. A
/// command, and a resource without a name, is shown with its id only.
#[test]
fn an_id_is_followed_by_its_name() {
    let suite = "file: {a: {path: DIR/f, exists: true}, DIR/f: {exists: true}}\ncommand: {a: {exec: 'true', exit-status: 0}}\n\
        http: {a: {url: 'http://me:hunter2@127.0.0.1:1/', status: 200}}\nuser: {a: {username: root, exists: true}}\n\
        matching: {a: {content: x, matches: x}}\nport: {a: {port: 'tcp:1', listening: false}}\n";
    let dir = place(&[("goss.yml", suite)]);
    let (answer, ..) = check(dir.path(), "--file DIR/goss.yml --json");
    let value: Value = serde_json::from_str(&answer).unwrap();
    let ids = |result: &Value| {
        format!("{}|{}", result["resource-type"].as_str().unwrap(), result["resource-id"].as_str().unwrap())
    };
    let mut ids: Vec<String> = value["results"].as_array().unwrap().iter().map(ids).collect();
    ids.sort();
    let goss = [
        "Command|a",
        "File|DIR/f",
        "File|a: DIR/f",
        "HTTP|a: http://me:***@127.0.0.1:1/",
        "Matching|a",
        "Port|a: tcp:1",
        "User|a: root",
    ];
    assert_eq!(ids, goss);
    let (answer, ..) = check(dir.path(), "--file DIR/goss.yml -o tap");
    assert!(answer.contains("User: a: root: exists: matches expectation: true"), "{answer}");
}

#[test]
fn the_json_matches_goss() {
    let dir = place(&[("goss.yml", MIXED)]);
    let (answer, ..) = check(dir.path(), "--file DIR/goss.yml --json");
    let value: Value = serde_json::from_str(&answer).unwrap();
    let results = value["results"].as_array().unwrap();
    let find = |id: &str, property: &str| {
        results.iter().find(|r| r["resource-id"] == id && r["property"] == property).unwrap().clone()
    };
    let mode = find("DIR/f", "mode");
    for time in ["start-time", "end-time"] {
        assert!(mode[time].as_str().unwrap().parse::<jiff::Timestamp>().is_ok());
    }
    // The answer is compared with the recorded answer of goss 0.4.9 to the same file: all keys, and
    // all values except times and the diff.
    let goss: Value = serde_json::from_str(include_str!("goss.json")).unwrap();
    let keys = |value: &Value| -> Vec<String> {
        let mut keys: Vec<String> = value.as_object().unwrap().keys().cloned().collect();
        keys.sort();
        keys
    };
    assert_eq!(keys(&value), keys(&goss));
    assert_eq!(keys(&value["summary"]), keys(&goss["summary"]));
    for theirs in goss["results"].as_array().unwrap() {
        let ours = find(theirs["resource-id"].as_str().unwrap(), theirs["property"].as_str().unwrap());
        let known = keys(&ours).into_iter().filter(|key| !["file", "hint", "line"].contains(&key.as_str()));
        assert_eq!(known.collect::<Vec<_>>(), keys(theirs));
        assert_eq!(keys(&ours["matcher-result"]), keys(&theirs["matcher-result"]));
        for key in ["resource-type", "title", "result", "successful", "skipped"] {
            assert_eq!(ours[key], theirs[key], "{key} of {theirs}");
        }
        assert_eq!(ours["err"].is_null(), theirs["err"].is_null(), "{ours}");
        if theirs["property"] != "contents" && theirs["err"].is_null() {
            for key in ["actual", "expected", "message"] {
                assert_eq!(ours["matcher-result"][key], theirs["matcher-result"][key], "{key} of {theirs}");
            }
            assert_eq!(ours["summary-line-compact"], theirs["summary-line-compact"]);
        }
    }
    assert_eq!(results.len(), goss["results"].as_array().unwrap().len());
}
