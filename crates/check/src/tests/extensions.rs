//! Tests the checks of the `remoor:` block: their loading, their faults, and groups with the
//! results of their members.

use super::load::faults;
use super::*;
use expect_test::expect;
use remoor_model::{CheckState, OnFail, Severity};

const CHECKS: &str = "command:
  yes: {exec: 'true', exit-status: 0}
  no: {exec: 'false', exit-status: 0}
  hangs: {exec: 'sleep 86000', exit-status: 0, timeout: 1}
  idle: {exec: 'true', exit-status: 0, skip: true}
";

/// A line `label state message` for each group in `text`. The members are the commands of `CHECKS`.
fn groups(text: &str) -> Vec<String> {
    let text = format!("remoor:\n  service: s\n{text}{CHECKS}");
    let group = |r: &CheckResult| r.check.contains("-of:");
    let found = results(&text).into_iter().filter(group);
    found.map(|r| format!("{} {:?} {}", r.check, r.state, r.message).trim_end().to_owned()).collect()
}

#[test]
fn groups_are_as_their_members() {
    let found = groups(
        "  any-of:
    one: [command:no, command:yes]
    none: [command:no]
    open: [command:no, command:hangs]
    idle: [command:idle]
    far: [command:hangs, all-of:both]
  all-of:
    both: [command:yes, command:idle]
    not: [command:yes, command:no, command:hangs]
    open: [command:yes, command:hangs]
    off: {checks: [command:no], skip: true}
",
    );
    expect![[r#"
        any-of:one Pass
        any-of:none Fail no member passes: command:no
        any-of:open Unknown no answer: command:hangs
        any-of:idle Skip
        all-of:both Pass
        all-of:not Fail failing members: command:no
        all-of:open Unknown no answer: command:hangs
        all-of:off Skip
        any-of:far Pass
    "#]]
    .assert_eq(&lines(&found));
}

#[test]
fn members_are_reported_but_do_not_count() {
    let text = format!(
        "remoor:
  any-of:
    web: {{checks: [command:no], title: some answer, meta: {{remoor: {{severity: warning, on-fail: resetup}}}}}}
{CHECKS}"
    );
    let counts = |check: &str| {
        let found: Vec<_> = results(&text).into_iter().filter(|r| r.check == check).collect();
        found.iter().map(|r| (r.state, r.severity, r.on_fail)).collect::<Vec<_>>()
    };
    assert_eq!(counts("command:no"), [(CheckState::Fail, Severity::Info, OnFail::None)]);
    assert_eq!(counts("any-of:web"), [(CheckState::Fail, Severity::Warning, OnFail::Resetup)]);
    assert_eq!(counts("command:yes"), [(CheckState::Pass, Severity::Critical, OnFail::Resetup)]);
}

#[test]
fn a_waived_group_does_not_fail() {
    let waiver = "meta: {remoor: {waiver: {until: 1970-01-02, reason: known}}}";
    let found = groups(&format!(
        "  all-of:\n    a: {{checks: [command:no], {waiver}}}\n    b: [all-of:a]\n    c: [command:no]\n"
    ));
    assert_eq!(found, ["all-of:a Waived waived: known", "all-of:c Fail failing members: command:no", "all-of:b Pass"]);
}

#[test]
fn two_services_may_have_checks_of_one_name() {
    let of = |service: &str, exec: &str| {
        let text =
            format!("remoor: {{any-of: {{g: ['command:a']}}}}\ncommand: {{a: {{exec: '{exec}', exit-status: 0}}}}");
        parse("f.yml", &service.into(), &text).unwrap()
    };
    let both = [of("one", "false"), of("two", "true")].concat();
    let found = super::super::run(&both, &CheckRunOptions::with_defaults(Wall(0)));
    assert_eq!([found[1].state, found[3].state], [CheckState::Fail, CheckState::Pass]);
}

#[test]
fn invalid_blocks_are_rejected() {
    let refused = |block: &str| faults(&format!("remoor:\n{block}{CHECKS}"));
    expect![[r#"
        f.yml:3:9: there is no check `command:yess` in this file
          hint: did you mean `command:yes`?
        f.yml:3:23: there is no check `port:80` in this file
          hint: write `type:id`, as in results
    "#]]
    .assert_eq(&refused("  any-of:\n    a: [command:yess, port:80]\n"));
    expect![[r#"
        f.yml:3:1: `any-of:a` contains itself, or a group that contains itself
          hint: groups may contain groups, but not in a cycle
        f.yml:4:1: `any-of:b` contains itself, or a group that contains itself
          hint: groups may contain groups, but not in a cycle
    "#]]
    .assert_eq(&refused("  any-of:\n    a: ['any-of:b']\n    b: [command:yes, 'any-of:a']\n"));
    expect![[r#"
        f.yml:3:5: `any-of:a` does not name any checks
          hint: write a list: ["port:tcp:80", "process:nginx"]
        f.yml:4:22: `command:yes` is named twice
        f.yml:5:5: `any-of:c` does not name any checks
          hint: write a list: ["port:tcp:80", "process:nginx"]
        f.yml:5:9: unknown key `check` of a group
          hint: known: checks, title, meta, skip
        f.yml:6:5: `any-of:d` is a group and cannot be retried
          hint: set `retry` on its members
        f.yml:7:9: a member is `type:id`, this is a map
        f.yml:8:11: `all-of` is a list, not a map of groups
    "#]]
    .assert_eq(&refused(
        "  any-of:
    a: []
    b: [command:yes, command:yes]
    c: {check: []}
    d: {checks: [command:yes], meta: {remoor: {retry: {count: 2}}}}
    e: [command: other]
  all-of: [command:yes]
",
    ));
    expect![[r#"
        f.yml:2:31: `30` is not a number of days
          hint: write it as 30d, 12h or 2w
        f.yml:2:39: `a` does not name a certificate; write a path, or HOST:PORT
        f.yml:2:43: unknown attribute `not-aftr` of cert
          hint: did you mean `not-after`?
        f.yml:2:58: `cert:/b` asserts nothing
    "#]]
    .assert_eq(&faults(
        "remoor:\n  cert: {/a: {not-after: {gt: '30'}}, a: {not-aftr: 1d}, /b: {}}\ncommand: {yes: {exec: 'true', exit-status: 0}}\n",
    ));
    expect![[r#"
        f.yml:1:1: `any-of` is not a resource type of goss
          hint: put it in the `remoor:` block
    "#]]
    .assert_eq(&faults("any-of: {a: [port:tcp:80]}\ncert: {/a: {not-after: {gt: 1d}}}"));
}

#[test]
fn the_block_stays_where_it_holds_checks() {
    let text = "remoor:\n  service: s\n  when: node.name\n  any-of: {g: ['command:a']}\ncommand: {a: {exec: 'true', exit-status: 0}}\n";
    let (head, goss) = header("x.yml", text).unwrap();
    assert_eq!((head.has_checks, goss.as_str()), (true, text));
    assert_eq!(parse("x.yml", &"s".into(), &goss).unwrap().len(), 2);
    let (head, goss) = header("x.yml", &text.replace("any-of: {g: ['command:a']}", "roles: [web]")).unwrap();
    assert_eq!((head.has_checks, goss.trim_start().starts_with("command")), (false, true));
}

#[test]
fn the_example_in_the_documents_is_taken() {
    let document = include_str!("../../../../docs/reference/checks.md");
    let (_, section) = document.split_once("## Certificates and groups").unwrap();
    let block = section.split("```").nth(1).unwrap().trim_start_matches("yaml\n");
    let rest = "port: {tcp:80: {listening: true}, tcp:443: {listening: true}}\nprocess: {nginx: {running: true}}\n";
    let (head, goss) = header("x.yml", &format!("{block}{rest}")).unwrap();
    let labels: Vec<String> = parse("x.yml", &head.service, &goss).unwrap().iter().map(Check::label).collect();
    let wanted = [
        "cert:/etc/nginx/tls/site.pem",
        "cert:localhost:443",
        "port:tcp:80",
        "port:tcp:443",
        "process:nginx",
        "any-of:listens",
        "all-of:serves",
    ];
    assert_eq!(labels, wanted);
}
