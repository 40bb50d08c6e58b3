//! Plain goss files: what goss accepts is a warning or one failed check. The results are those of
//! goss 0.4.9.

use super::*;
use crate::{Strictness, load};
use expect_test::expect;

/// The results and the warnings of a plain goss file.
fn as_goss(text: &str) -> String {
    let loaded = match load("f.yml", &"s".into(), text, Strictness::AsGoss) {
        Ok(loaded) => loaded,
        Err(faults) => return format!("refused\n{}", lines(&faults)),
    };
    let results = crate::run(&loaded.checks, &CheckRunOptions::with_defaults(Wall(0)));
    let result = |r: CheckResult| format!("{} {}: {:?} {}\n", r.check, r.property, r.state, r.message);
    results.into_iter().map(result).collect::<String>() + &lines(&loaded.warnings)
}

#[test]
fn empty_values_assert_nothing_or_fail() {
    expect![[r#"
        matching:a matches: Pass 
        matching:b matches: Pass 
        matching:c matches: Fail 
        matching:d matches: Pass 
        matching:e matches: Pass 
        matching:f matches: Fail a value is missing
        matching:g matches: Fail `matching:g` lacks `matches`
        matching:h matches: Pass 
        file:/ exists: Pass 
        command:true exit-status: Pass 
        f.yml:10:71: warning: `no` is a boolean for some YAML readers and a string for others
          hint: write `false`, or "no" for the string
        f.yml:2:30: warning: an empty list for `matches` asserts nothing
          hint: remove it, or write `have-len: 0` or `consist-of: []` for an empty list
        f.yml:3:34: warning: an empty list for `and` asserts nothing
        f.yml:4:33: warning: an empty list for `or` asserts nothing
        f.yml:5:44: warning: an empty list for `have-patterns` asserts nothing
        f.yml:6:36: warning: an empty map for `gjson` asserts nothing
        f.yml:7:26: warning: a value is missing
          hint: an empty text is written ""
        f.yml:8:3: warning: `matching:g` lacks `matches`
        f.yml:10:48: warning: an empty list for `contents` asserts nothing
          hint: remove it, or write `have-len: 0` or `consist-of: []` for an empty list
        f.yml:11:44: warning: an empty list for `stdout` asserts nothing
          hint: remove it, or write `have-len: 0` or `consist-of: []` for an empty list
        f.yml:12:11: warning: `service:a` asserts nothing
    "#]]
    .assert_eq(&as_goss(
        "matching:
  a: {content: [x], matches: []}
  b: {content: x, matches: {and: []}}
  c: {content: x, matches: {or: []}}
  d: {content: x, matches: {have-patterns: []}}
  e: {content: x, matches: {gjson: {}}}
  f: {content: x, matches: }
  g: {content: x}
  h: {content: x, matches: {have-patterns: ['', x]}}
file: {/: {exists: true, mode: null, contents: [], title: null, skip: no}}
command: {'true': {exit-status: 0, stdout: [], stderr: null, timeout: 99999999}}
service: {a: {}}
",
    ));
}

#[test]
fn invalid_values_are_one_failed_check() {
    expect![[r#"
        matching:a matches: Fail not a valid regular expression: error: unclosed group
        matching:b matches: Fail a line pattern is a string, this is a map
        matching:c matches: Fail unknown matcher `have-prefx`
        matching:d matches: Fail a matcher is a map with one key
        matching:e matches: Pass 
        matching:f matches: Pass 
        matching:g matches: Pass 
        matching:h matches: Pass 
        matching:i matches: Pass 
        port:tcp-80 listening: Pass 
        addr:nowhere reachable: Pass 
        f.yml:7:30: warning: `0644` is octal for some YAML readers and decimal for others
          hint: write "0644" in quotes
        f.yml:8:32: warning: `yes` is a boolean for some YAML readers and a string for others
          hint: write `true`, or "yes" for the string
        f.yml:2:43: warning: not a valid regular expression: error: unclosed group
        f.yml:3:45: warning: a line pattern is a string, this is a map
          hint: for matchers write `contain-elements: [...]`
        f.yml:4:29: warning: unknown matcher `have-prefx`
          hint: did you mean `have-prefix`?
        f.yml:5:28: warning: a matcher is a map with one key
          hint: combine several with `and: [...]`
        f.yml:6:40: warning: `have-len` is not a whole number
        f.yml:11:8: warning: `tcp-80` is not a port; write tcp:80, tcp6:80, udp:53
        f.yml:12:8: warning: `nowhere` is not an address; write tcp://HOST:PORT or udp://HOST:PORT
        f.yml:13:1: warning: unknown resource type `unknown`
          hint: known: addr, command, dns, file, group, http, interface, kernel-param, mount, matching, package, port, process, service, user
        f.yml:14:1: warning: `cert` is not a resource type of goss
          hint: put it in the `remoor:` block
    "#]].assert_eq(&as_goss(
        "matching:
  a: {content: x, matches: {match-regexp: '('}}
  b: {content: x, matches: {have-patterns: [{contain-element: x}]}}
  c: {content: x, matches: {have-prefx: x}}
  d: {content: x, matches: {have-prefix: x, have-suffix: x}}
  e: {content: xx, matches: {have-len: 2.7}}
  f: {content: 420, matches: 0644}
  g: {content: 'yes', matches: yes}
  h: {content: true, matches: 'true'}
  i: {content: etc/x, matches: {have-patterns: ['/etc/x', '\\!x', '!\\/none']}}
port: {tcp-80: {listening: false}}
addr: {'nowhere': {reachable: false}}
unknown: {a: {b: 1}}
cert: {}
",
    ));
}

/// goss refuses these files too.
#[test]
fn what_goss_refuses_is_refused() {
    expect![[r#"
        refused
        f.yml:1:27: unknown attribute `moed` of file
          hint: did you mean `mode`?
        refused
        f.yml:1:7: `file` is a list, not a map of ids
        refused
        f.yml:1:10: `file:/x` is nothing, not a map of attributes
        refused
        f.yml:1:28: duplicate mapping key: /x
          hint: put both under one key
        refused
        f.yml:1:49: `timeout` is a string, not a number of milliseconds up to 600000
    "#]]
    .assert_eq(
        &[
            "file: {/x: {exists: true, moed: 1}}",
            "file: [a]",
            "file: {/x: }",
            "file: {/x: {exists: true}, /x: {exists: true}}",
            "command: {a: {exec: x, exit-status: 0, timeout: soon}}",
        ]
        .map(as_goss)
        .concat(),
    );
}

#[test]
fn names_and_documents_are_those_of_goss() {
    let of = |text: &str| as_goss(text);
    expect![[r#"
        file:/none exists: Fail 
        file:/none contains: Skip 
        file:/none contents: Skip 
        f.yml:8:1: warning: only the first YAML document is read, as in goss
    "#]].assert_eq(&of(
        "# first\n---\nfile:\n  /none:\n    exists: true\n    contains: [a]\n    contents: [b]\n---\nfile: {/other: {exists: true}}\n",
    ));
    assert!(of("%YAML 1.1\n---\nport: {1: {listening: false}}\n...\n").starts_with("port:1 listening: Pass \n"));
    let dir = std::env::current_dir().unwrap();
    assert!(dir.join("Cargo.toml").exists(), "{dir:?}");
    assert!(of("file: {Cargo.toml: {exists: true}}").starts_with("file:Cargo.toml exists: Pass"));
    let strict = load("f.yml", &"s".into(), "file: {Cargo.toml: {exists: true}}", Strictness::Strict);
    assert!(lines(&strict.unwrap_err()).contains("is not absolute"));
}
