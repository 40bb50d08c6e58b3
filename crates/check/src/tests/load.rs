//! Tests the messages and the positions of faults in check files.

use super::*;
use crate::spec::{AttributeUse, SPECS};
use expect_test::expect;

pub(super) fn faults(text: &str) -> String {
    match parse("f.yml", &"s".into(), text) {
        Ok(checks) => format!("accepted: {}\n", checks.len()),
        Err(faults) => lines(&faults),
    }
}

#[test]
fn a_file_of_a_fleet_may_not_include_others() {
    let told = |text: &str| lines(&parse("f.yml", &"s".into(), text).unwrap_err());
    assert!(
        told("gossfile:\n  x.yml: {}\n")
            .starts_with("f.yml:2:3: a check file of a fleet may not include other files\n")
    );
    assert!(told("gossfile: [x.yml]\n").contains("`gossfile` is a list, not a map of files"));
    assert!(parse("f.yml", &"s".into(), "gossfile: {x.yml: {skip: true}}\n").is_ok());
}

#[test]
fn unknown_words() {
    expect![[r#"
        f.yml:1:1: unknown resource type `fiile`
          hint: did you mean `file`?
        f.yml:3:1: unknown resource type `services`
          hint: did you mean `service`?
        f.yml:4:1: unknown resource type `zebra`
          hint: known: addr, command, dns, file, group, http, interface, kernel-param, mount, matching, package, port, process, service, user
    "#]]
    .assert_eq(&faults("fiile:\n  /etc/x: {exists: true}\nservices: {a: {running: true}}\nzebra: {}\n"));
    expect![[r#"
        f.yml:3:5: unknown attribute `exist` of file
          hint: did you mean `exists`?
        f.yml:4:5: unknown attribute `moed` of file
          hint: did you mean `mode`?
    "#]]
    .assert_eq(&faults("file:\n  /x:\n    exist: true\n    moed: \"0644\"\n    exists: true\n"));
    expect![[r#"
        f.yml:1:35: unknown matcher `have-prefx`
          hint: did you mean `have-prefix`?
        f.yml:1:58: a matcher is a map with one key
          hint: combine several with `and: [...]`
    "#]]
    .assert_eq(&faults("file: {/x: {exists: true, owner: {have-prefx: r}, group: {a: 1, b: 2}}}"));
    expect![[r#"
        f.yml:1:1: resource type `registry` exists only on Windows
          hint: remove it
    "#]]
    .assert_eq(&faults("registry: {a: {exists: true}}\n"));
}

#[test]
fn what_is_missing_or_empty() {
    expect![[r#"
        f.yml:1:8: `file:/x` lacks `exists`
        f.yml:2:8: `port:80` lacks `listening`
        f.yml:3:11: `service:a` asserts nothing
    "#]]
    .assert_eq(&faults("file: {/x: {mode: \"0644\"}}\nport: {80: {}}\nservice: {a: {}}\n"));
    expect![[r#"
        f.yml:1:37: an empty list for `contents` asserts nothing
          hint: remove it, or write `have-len: 0` or `consist-of: []` for an empty list
        f.yml:1:53: a value is missing
          hint: an empty text is written ""
        f.yml:1:68: faulty pattern ``: an empty pattern asserts nothing
    "#]]
    .assert_eq(&faults("file: {/x: {exists: true, contents: []}, /y: {exists: , contents: [\"\"]}}"));
    expect![[r#"
        f.yml:1:40: an empty list for `and` asserts nothing
    "#]]
    .assert_eq(&faults("user: {a: {exists: true, groups: {and: []}}, b: {exists: true, groups: {consist-of: []}}}"));
}

#[test]
fn ambiguous_yaml_values() {
    expect![[r#"
        f.yml:2:16: `yes` is a boolean for some YAML readers and a string for others
          hint: write `true`, or "yes" for the string
        f.yml:2:16: `exists` is a string, not true or false
        f.yml:2:27: `0644` is octal for some YAML readers and decimal for others
          hint: write "0644" in quotes
    "#]]
    .assert_eq(&faults("file:\n  /x: {exists: yes, mode: 0644}\n"));
    expect![[r#"
        f.yml:3:3: duplicate mapping key: a
          hint: put both under one key
    "#]]
    .assert_eq(&faults("service:\n  a: {running: true}\n  a: {running: false}\n"));
    expect![[r#"
        f.yml:1:40: while parsing a quoted scalar, found unknown escape character
          hint: write regular expressions in single quotes: '\.' keeps its backslash
    "#]]
    .assert_eq(&faults("command: {a: {exit-status: 0, stdout: [\"/1\\.2/\"]}}"));
}

#[test]
fn wrong_kinds() {
    expect![[r#"
        f.yml:1:21: `exists` is a string, not true or false
        f.yml:2:11: `a@` is not a valid unit name
        f.yml:2:25: `running` is a number, not true or false
    "#]]
    .assert_eq(&faults("file: {/x: {exists: \"true\"}}\nservice: {a@: {running: 1}}\n"));
    expect![[r#"
        f.yml:1:1: a check file is a map, this is a list
    "#]]
    .assert_eq(&faults("- a\n"));
    expect![[r#"
        f.yml:1:7: `file` is a list, not a map of ids
        f.yml:2:16: `port:tcp:80` is true or false, not a map of attributes
    "#]]
    .assert_eq(&faults("file: [a]\nport: {tcp:80: true}\n"));
    expect![[r#"
        f.yml:1:33: `gt` is a string, not a number
        f.yml:1:46: `timeout` is a string, not a number of milliseconds up to 600000
        f.yml:1:73: not a valid regular expression: error: unclosed group
        f.yml:1:88: faulty pattern `/(/`: error: unclosed group
    "#]]
    .assert_eq(&faults(
        "command: {a: {exit-status: {gt: x}, timeout: 1s, stdout: {match-regexp: '('}, stderr: ['/(/']}}",
    ));
    expect![[r#"
        f.yml:1:8: `tcp-80` is not a port; write tcp:80, tcp6:80, udp:53
        f.yml:2:8: `ftp://x` is not an HTTP URL; write http://HOST:PORT/PATH or https://HOST/PATH
        f.yml:3:8: the path `etc/x` is not absolute
    "#]]
    .assert_eq(&faults(
        "port: {tcp-80: {listening: true}}\nhttp: {'ftp://x': {status: 200}}\nfile: {etc/x: {exists: true}}\n",
    ));
}

#[test]
fn matchers() {
    expect![[r#"
        f.yml:2:39: `have-len` is a map, not a whole number
        f.yml:3:39: `have-len` is a number, not a whole number
        f.yml:4:46: `contain-element` is a list, not a string, a number or a matcher
        f.yml:5:44: an empty list for `have-patterns` asserts nothing
        f.yml:6:36: an empty map for `gjson` asserts nothing
        f.yml:7:37: gjson's `@tostr` is not supported, because it depends on the white space of the document
        f.yml:8:48: not a valid version range: `^` is not a comparison operator; known: = != > >= < <=
        f.yml:9:48: not a valid version range: `!=1.x`: write `<1.0.0 || >=2.0.0`
        f.yml:10:43: not a valid regular expression: error: look-around, including look-ahead and look-behind, is not supported
        f.yml:11:46: a line pattern is a string, this is a number
          hint: write it in quotes
        f.yml:12:28: an empty list for `matches` asserts nothing
          hint: remove it, or write `have-len: 0` or `consist-of: []` for an empty list
        f.yml:13:17: a line pattern is a string, this is a map
          hint: for matchers write `contain-elements: [...]`
        f.yml:14:3: `matching:m` lacks `matches`
        f.yml:15:31: unknown attribute `id` of matching
          hint: known: matches, content, as-reader, title, meta, skip
    "#]]
    .assert_eq(&faults(
        "matching:
  a: {content: 1, matches: {have-len: {gt: 1}}}
  b: {content: 1, matches: {have-len: 2.5}}
  c: {content: 1, matches: {contain-element: [a]}}
  d: {content: 1, matches: {have-patterns: []}}
  e: {content: 1, matches: {gjson: {}}}
  f: {content: 1, matches: {gjson: {'a.@tostr': 1}}}
  g: {content: 1, matches: {semver-constraint: '^1.0.0'}}
  h: {content: 1, matches: {semver-constraint: '!=1.x'}}
  i: {content: 1, matches: {match-regexp: '(?=a)'}}
  j: {content: 1, as-reader: true, matches: [5]}
  k: {content: 1, matches: [], as-reader: true}
  l: {matches: [{have-prefix: a}], as-reader: true}
  m: {content: 1}
  n: {content: 1, matches: 1, id: n}
",
    ));
    let nested =
        |depth: usize| format!("matching: {{a: {{matches: {}1{}}}}}", "{not: ".repeat(depth), "}".repeat(depth));
    assert_eq!(checks(&nested(25)).len(), 1);
    for depth in [40, 60, 5000] {
        assert!(faults(&nested(depth)).starts_with("f.yml:1:"), "an error and no overflow");
    }
}

/// goss 0.4.9 does not have `xml`.
#[test]
fn the_matcher_xml_is_unknown() {
    expect![[r#"
        f.yml:1:49: unknown matcher `xml`
          hint: known: have-prefix, have-suffix, match-regexp, contain-substring, have-len, have-patterns, have-key, contain-element, contain-elements, consist-of, not, and, or, gt, ge, lt, le, equal, gjson, semver-constraint
    "#]]
    .assert_eq(&faults("command: {a: {exec: x, exit-status: 0, stdout: {xml: {xpath: count(//b), result: '2'}}}}"));
}

#[test]
fn retry_may_be_set_only_once() {
    let told = |own: &str| {
        faults(&format!(
            "command: {{a: {{exec: x, exit-status: 0, retry_delay: 5, retry_count: 2, meta: {{remoor: {{retry: {own}}}}}}}}}"
        ))
    };
    let both = |key: &str| format!("`{key}` and `retry` of `meta.remoor` set the same value");
    let (delay, count) = (told("{delay: 1s}"), told("{count: 0}"));
    assert!(delay.contains(&both("retry_delay")) && !delay.contains(&both("retry_count")), "{delay}");
    assert!(count.contains(&both("retry_count")) && !count.contains(&both("retry_delay")), "{count}");
}

#[test]
fn the_password_of_a_url_is_in_no_result() {
    let url = |password: &str| format!("http://me:{password}@127.0.0.1:1/");
    let text = format!(
        "remoor: {{service: s, any-of: {{g: ['http:{0}']}}}}\nhttp: {{'{0}': {{status: 200}}}}\n",
        url("secret")
    );
    let found = results(&text);
    assert_eq!(found[0].check, "http:http://me:***@127.0.0.1:1/");
    assert_eq!((found.len(), found.iter().any(|result| format!("{result:?}").contains("secret"))), (2, false));
    let twice = format!("http: {{'{}': {{status: 200}}, '{}': {{}}}}", url("secret"), url("other"));
    let told = faults(&twice);
    assert!(told.contains("already exists with another password") && told.contains("lacks `status`"), "{told}");
    assert!(!told.contains("secret") && !told.contains("other@"), "{told}");
    // The order of the checks does not matter. If two ids differ only in their passwords, one check
    // must have a separate name.
    let shown = format!("http: {{'{}': {{status: 200}}, '{}': {{status: 200}}}}", url("secret"), url("***"));
    assert!(faults(&shown).contains("with another password"));
    for text in [
        format!("http: {{'{0}': {{status: 200}}, '{0}': {{status: 200}}}}", url("secret")),
        format!("remoor: {{service: s, any-of: {{g: ['http:{0}', 'http:{0}']}}}}", url("secret")),
    ] {
        let told = faults(&text);
        assert!(told.contains("http://me:***@") && !told.contains("secret"), "{told}");
    }
    // A port is not a password, so these ids are different.
    let ports = |port| format!("'curl -s http://localhost:{port} -u me@x': {{exit-status: 0}}");
    assert_eq!(checks(&format!("command: {{{}, {}}}", ports(80), ports(81))).len(), 2);
}

#[test]
fn the_extensions() {
    expect![[r#"
        f.yml:6:16: unknown key `severty`
          hint: did you mean `severity`?
        f.yml:6:41: unknown severity `bad`
          hint: known: info, warning, critical
        f.yml:6:51: `for` is not a duration
          hint: write it as 500ms, 10s, 5m or 1h
        f.yml:6:73: `count` is not a number up to 20
        f.yml:6:94: `soon` is not a date
          hint: write 2026-12-31, or a time as in RFC 3339
        f.yml:6:101: unknown key `user`
          hint: it is available only for `process`
    "#]].assert_eq(&faults(
        "service:\n  a:\n    running: true\n    meta:\n      mine: 1\n      remoor: {severty: info, severity: bad, for: 1 day, retry: {count: 99}, waiver: {until: soon}, user: x}\n"
    ));
    expect![[r#"
        f.yml:1:46: a waiver needs both `until` and `reason`
    "#]]
    .assert_eq(&faults("service: {a: {running: true, meta: {remoor: {waiver: {until: 2026-01-01}}}}}"));
    let checks = checks(
        "service: {a: {running: true, meta: {remoor: {severity: warning, for: 10s, retry: {count: 2, delay: 50ms}, waiver: {until: 2026-12-31, reason: known}}}}, b: {running: true}}",
    );
    expect![[r#"
        [
            Meta {
                severity: Warning,
                on_fail: Alert,
                fail_for: 10s,
                retries: 2,
                retry_delay: 50ms,
                secret: false,
                waiver: Some(
                    Waiver {
                        until: Wall(
                            1798761600000,
                        ),
                        reason: "known",
                    },
                ),
            },
            Meta {
                severity: Critical,
                on_fail: Resetup,
                fail_for: 0ns,
                retries: 0,
                retry_delay: 1s,
                secret: false,
                waiver: None,
            },
        ]
    "#]]
    .assert_debug_eq(&checks.iter().map(|check| &check.meta).collect::<Vec<_>>());
}

#[test]
fn the_header_may_stay_and_old_names_are_known() {
    let found = checks("remoor: {anything: goes}\nfile: {/x: {exists: true, contains: [a]}}\n");
    assert_eq!(found[0].assertions[1].property, "contents");
    assert_eq!(found[0].label(), "file:/x");
    expect![[r#"
        f.yml:1:42: `contents` is given twice, under its old and its new name
    "#]]
    .assert_eq(&faults("file: {/x: {exists: true, contains: [a], contents: [b]}}"));
}

#[test]
fn nothing_is_no_check() {
    assert!(checks("").is_empty());
    assert!(checks("file:\n").is_empty());
}

/// The table `| type | the id is | asserts (required in bold) | arguments |` of the documentation
/// matches `SPECS`.
#[test]
fn the_table_of_types_in_the_documents_is_this_one() {
    let (_, document) = include_str!("../../../../docs/reference/checks.md").split_once("## Resource types").unwrap();
    for spec in &SPECS {
        let row = document.lines().find(|line| line.starts_with(&format!("| `{}` |", spec.name)));
        let cells: Vec<&str> = row.unwrap_or_else(|| panic!("no row of {}", spec.name)).split('|').collect();
        // Text in parentheses explains a name in the table, and is not a name itself.
        let words = |cell: &str| -> Vec<String> {
            let plain: String = cell.split('(').enumerate().fold(String::new(), |out, (at, part)| {
                out + if at == 0 { part } else { part.split_once(')').unwrap().1 }
            });
            plain.split(',').map(|word| word.trim().to_owned()).filter(|word| !word.is_empty()).collect()
        };
        let is_asserted = |use_: AttributeUse| {
            matches!(use_, AttributeUse::Required | AttributeUse::Assert | AttributeUse::Stream | AttributeUse::Days)
        };
        let (asserted, arguments): (Vec<_>, Vec<_>) = spec.attributes.iter().partition(|(_, use_)| is_asserted(*use_));
        let bold = |(name, use_): &(&str, AttributeUse)| {
            if *use_ == AttributeUse::Required { format!("**{name}**") } else { (*name).into() }
        };
        assert_eq!(words(cells[3]), asserted.iter().map(bold).collect::<Vec<_>>(), "{}", spec.name);
        let sorted = |mut names: Vec<String>| {
            names.sort();
            names
        };
        let known = arguments.iter().map(|(name, _)| (*name).to_owned()).collect();
        assert_eq!(sorted(words(cells[4])), sorted(known), "{}", spec.name);
    }
}
