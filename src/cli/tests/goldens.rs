//! The exact output of commands. `UPDATE_EXPECT=1 cargo test` replaces the expected texts with the
//! present output.

use super::views;
use crate::cli::args::{Goal, NodeSelection};
use crate::cli::command::{examine, fleet, history, job, nodes, selection, status, wait, watch, why};
use crate::cli::error::CommandError;
use crate::cli::exit::Exit;
use crate::cli::format::Format;
use crate::cli::out::Out;
use expect_test::{Expect, expect};
use remoor_cluster::rpc::view::*;
use remoor_model::*;

/// The answer, the exit code and the messages of a command.
fn capture(format: Format, show: impl FnOnce(&Out) -> anyhow::Result<Exit>) -> String {
    let out = Out::memory(format, false);
    let exit = show(&out).expect("nothing fails");
    let (answer, talk) = out.captured_text();
    format!("{answer}--- {}\n{talk}", exit.code())
}

fn table(show: impl FnOnce(&Out) -> anyhow::Result<Exit>, expected: Expect) {
    expected.assert_eq(&capture(Format::Table, show));
}

#[test]
fn status_of_a_fleet_with_problems() {
    table(
        |out| status::show(out, &views::status(), true),
        expect![[r#"
        cluster c0ffee00c0ff   generation 3 (applied 2026-03-04T18:00:00Z)   managers up: 3 of 3
        warning: 2 of 3 managers answered late

        NODE  GROUP           ROLE     SEEN      LIFECYCLE     CONFIG    CHECKS        LAST VERDICT                     NOW
        m1*   service-master  leader   alive     commissioned  ok        -             -                                -
        m2    service-master  manager  alive     commissioned  ok        -             -                                -
        m3    service-master  manager  alive     commissioned  outdated  -             -                                -
        w1    service-worker  worker   alive     commissioned  drifted   1 of 13 fail  drifted after network, 12:01:09  resetup: job 17, attempt 1, cleanup
        w2    service-worker  worker   away 3 m  commissioned  ok        -             -                                -
        --- 1
        as seen by m1 (leader) at 2026-03-05T12:05:00.000Z
        not as desired: m3 is outdated
        not as desired: w1 is being set up by job 17
        not as desired: w2 is away
    "#]],
    );
}

#[test]
fn status_shows_why_a_role_change_waits() {
    let mut view = views::clean_status();
    view.nodes[1].role = "manager".into();
    view.nodes[1].membership.state = "promoting".into();
    view.nodes[1].membership.waits = Some("the last step failed and is tried again: nobody answers".into());
    view.nodes[1].conditions = vec![ConditionView { is: "moved".into(), why: "from 10.0.0.9".into() }];
    let text = capture(Format::Table, |out| status::show(out, &view, false));
    let now = "promoting: the last step failed and is tried again: nobody answers; moved: from 10.0.0.9\n";
    assert!(text.contains(now), "{text}");
}

#[test]
fn status_of_a_clean_fleet_has_exit_code_0() {
    table(
        |out| status::show(out, &views::clean_status(), true),
        expect![[r#"
        cluster c0ffee00c0ff   generation 3 (applied 2026-03-04T18:00:00Z)   managers up: 1 of 1

        NODE  GROUP           ROLE    SEEN   LIFECYCLE     CONFIG  CHECKS  LAST VERDICT  NOW
        m1*   service-master  leader  alive  commissioned  ok      -       -             -
        w1    service-worker  worker  alive  commissioned  ok      -       -             -
        --- 0
        as seen by m1 (leader) at 2026-03-05T12:05:00.000Z
    "#]],
    );
}

#[test]
fn quiet_status_names_what_is_wrong() {
    let out = Out::memory(Format::Table, false).quietly(true);
    assert_eq!(status::show(&out, &views::status(), true).unwrap(), Exit::No);
    assert_eq!(out.captured_text(), ("m3\nw1\nw2\n".to_owned(), String::new()));
}

#[test]
fn an_open_breaker_is_not_as_desired() {
    let breaker =
        Breaker { group: None, why: "3 of 5 nodes away within 10 minutes".into(), at: views::time_of_day("12:00:00") };
    let view = StatusView { breaker: Some(breaker), ..views::clean_status() };
    let text = capture(Format::Table, |out| status::show(out, &view, true));
    assert!(text.contains("CIRCUIT BREAKER of the fleet open since 12:00:00: 3 of 5"), "{text}");
    assert!(text.contains("--- 1\n"), "{text}");
}

#[test]
fn a_stale_view_is_marked_and_has_exit_code_3() {
    let mut view = views::clean_status();
    view.as_of = AsOf { by: "m2".into(), leader: None, stale: true, age_ms: 42_000, ..views::as_of() };
    for format in [Format::Table, Format::Json] {
        let text = capture(format, |out| status::show(out, &view, true));
        let (_, talk) = text.split_once("--- 3\n").expect("stale is 3");
        assert!(talk.contains("STALE: no quorum; this is what m2 last knew 42 s ago"), "{talk}");
        assert!(!talk.contains("recover"), "{talk}");
    }
    // `recover` can lose decisions, so it is suggested only after minutes.
    view.as_of.age_ms = 240_000;
    assert!(capture(Format::Table, |out| status::show(out, &view, true)).contains("remoor recover"));
    // A leader that does not answer does not mean a lost quorum, so `recover` is not suggested.
    view.as_of = AsOf { leader: Some("m1".into()), heard: true, ..view.as_of };
    let text = capture(Format::Table, |out| status::show(out, &view, false));
    let (shown, talk) = text.split_once("--- 3\n").expect("stale is 3");
    assert!(shown.contains("managers up: ? of 1"), "{shown}");
    assert!(talk.contains("STALE: m1 is the leader, but its API did not answer"), "{talk}");
    assert!(!talk.contains("recover"), "{talk}");
}

#[test]
fn each_variable_is_shown_with_the_place_that_defines_it() {
    let var = |name: &str, value: serde_json::Value, origin: &str| VarView {
        name: name.into(),
        value,
        origin: origin.into(),
    };
    let vars = vec![
        var("colour", "red".into(), "job 17"),
        var("workers", 4.into(), "group_vars/web.yml:3"),
        var("zone", true.into(), "remoor.yml: vars"),
    ];
    let view = VarsView { version: 1, as_of: views::as_of(), node: "w1".into(), vars };
    let out = Out::memory(Format::Wide, false);
    out.table(&nodes::vars_table(&view)).unwrap();
    let (text, _) = out.captured_text();
    let words: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(words[0], ["VARIABLE", "VALUE", "FROM"]);
    assert_eq!(words[1..3], [vec!["colour", "\"red\"", "job", "17"], vec!["workers", "4", "group_vars/web.yml:3"]]);
}

#[test]
fn nodes_are_listed_and_described() {
    table(
        |out| nodes::list(out, &views::status()),
        expect![[r#"
            NODE  ID  MEMBERSHIP  STATUS    AVAILABILITY  GROUP           API            CERTIFICATE  MANAGER
            m1*   1   accepted    alive     active        service-master  10.0.0.1:7947  2026-06-03   leader
            m2    2   accepted    alive     active        service-master  10.0.0.2:7947  2026-06-03   voter
            m3    3   accepted    alive     active        service-master  10.0.0.3:7947  2026-06-03   voter
            w1    4   accepted    alive     active        service-worker  10.0.0.4:7947  2026-06-03   -
            w2    5   accepted    away 3 m  active        service-worker  10.0.0.5:7947  2026-06-03   -
            --- 0
            as seen by m1 (leader) at 2026-03-05T12:05:00.000Z
        "#]],
    );
    let view = views::status();
    table(
        |out| nodes::describe(out, &view.nodes[3], &view.as_of),
        expect![[r#"
            node:           w1 (id 4)
            group:          service-worker
            role:           worker
            seen:           alive
            lifecycle:      commissioned
            availability:   active
            configuration:  drifted
            checks:         1 of 13 fail
            addresses:      api 10.0.0.4:7947, gossip 10.0.0.4:7946, ssh 10.0.0.4:22
            host keys:      SHA256:key-of-w1
            absences:       3, including 0 agent faults
            certificate:    until 2026-06-03
            baseline:       provisioned at 09:30:00, generation 3, digest 020202020202..
            last verdict:   drifted: contiv_network: /etc/default/netplugin: content changed (sha256 1f2e.. -> 99aa..) -> resetup(contiv_network) (at 12:01:09, by m1)
            now:            resetup: job 17, attempt 1, cleanup
            --- 0
            as seen by m1 (leader) at 2026-03-05T12:05:00.000Z
        "#]],
    );
}

#[test]
fn history_shows_each_reason_once() {
    table(
        |out| history::show(out, &views::history()),
        expect![[r#"
            TIME      NODE  WHAT
            11:59:40  w1    away, last seen 10 s before; missed by m1, m2
            12:01:02  w1    back after 92 s; examining
            12:01:09  w1    back after 92 s (network): drifted -> resetup(contiv_network)
                              contiv_network: /etc/default/netplugin: content changed (sha256 1f2e.. -> 99aa..)
                              evidence: boot id is the same, 6f1c2d3e; the agent lost 4 peers for 90 s
            12:01:10  w1    job 17 opened: re-setup of contiv_network with generation 3
            12:01:10  w1    job 17: attempt 1 by m1
            12:01:12  w1    job 17: phase cleanup begins
            12:01:52  w1    job 17: attempt 1 done
            12:01:52  w1    job 17 done
            --- 0
            as seen by m1 (leader) at 2026-03-05T12:05:00.000Z
        "#]],
    );
}

/// The counts of check results of a later examination must not be shown with an earlier verdict: a
/// failed check would seem to have passed.
#[test]
fn a_repaired_verdict_shows_no_check_counts() {
    let mut view = views::why_view();
    let finding = view.node.config.finding.as_mut().expect("a finding");
    let before = std::mem::replace(&mut finding.verdict, Verdict::Same);
    finding.overtaken = Some((before, finding.at));
    finding.checks = (13, 0, 0);
    let shown = capture(Format::Table, |out| why::show(out, &view));
    let verdict = shown.split("Last verdict\n").nth(1).and_then(|rest| rest.split("\n\n").next()).expect("a verdict");
    assert!(verdict.contains("drifted") && verdict.contains("repaired or adopted since then: "), "{shown}");
    assert!(!verdict.contains("checks:"), "{shown}");
    assert!(shown.contains("13 ok"), "{shown}");
}

#[test]
fn why_shows_everything_about_a_node() {
    table(
        |out| why::show(out, &views::why_view()),
        expect![[r#"
            node:           w1 (id 4)
            group:          service-worker
            role:           worker
            seen:           alive
            lifecycle:      commissioned
            availability:   active
            configuration:  drifted
            checks:         1 of 13 fail
            addresses:      api 10.0.0.4:7947, gossip 10.0.0.4:7946, ssh 10.0.0.4:22
            host keys:      SHA256:key-of-w1
            absences:       3, including 0 agent faults
            certificate:    until 2026-06-03
            baseline:       provisioned at 09:30:00, generation 3, digest 020202020202..

            Absence
              number 4: its agent is down, but its host answers on SSH
              last seen at 12:03:50; missed by m1, m2
              away for 70 s and not back yet

            Last verdict
              drifted (at 12:01:09 by m1, after 4 s)
              reason: contiv_network: /etc/default/netplugin: content changed (sha256 1f2e.. -> 99aa..)
              cause: network
              evidence: boot id is the same, 6f1c2d3e
              evidence: the agent lost 4 peers for 90 s
              checks: 12 passed, 1 failed, 0 unknown
              action: resetup(contiv_network)

            Requested
              re-setup of contiv_network, since 12:04:30, by alice

            Not done, and why
              not yet: waiting for the node to come back

            What happened
              11:59:40  away, last seen 10 s before; missed by m1, m2
              12:01:02  back after 92 s; examining
              12:01:09  back after 92 s (network): drifted -> resetup(contiv_network)
              12:01:10  job 17 opened: re-setup of contiv_network with generation 3
              12:01:10  job 17: attempt 1 by m1
              12:01:12  job 17: phase cleanup begins
              12:01:52  job 17: attempt 1 done
              12:01:52  job 17 done

            Next
              on w1: systemctl restart remoor
            --- 0
            as seen by m1 (leader) at 2026-03-05T12:05:00.000Z
        "#]],
    );
}

#[test]
fn jobs_are_listed_and_shown() {
    table(
        |out| job::list(out, &views::jobs()),
        expect![[r#"
            JOB  NODE  STATE    ATTEMPT  OPENED    TOOK  SERVICES         BECAUSE
            9    w2    done     -        12:01:10  50 s  the whole group  ordered by alice
            17   w1    cleanup  2        12:01:10  3 m   contiv_network   contiv_network: /etc/default/netplugin: content changed (sha256 1f2e.. -> 99aa..)
            --- 0
            as seen by m1 (leader) at 2026-03-05T12:05:00.000Z
        "#]],
    );
    table(
        |out| job::show(out, &views::jobs(), 17),
        expect![[r#"
            job:         17
            node:        w1
            state:       cleanup
            what:        re-setup
            services:    contiv_network
            generation:  3
            by:          remoor (automatic)
            opened:      12:01:10
            ended:       -
            because:     contiv_network: /etc/default/netplugin: content changed (sha256 1f2e.. -> 99aa..)

            Attempts
              1 (id 17) opened 12:01:10 by m1: after 42 s failed(step=provision rc=2): playbooks/provision.yml:12: start netplugin: unit failed
                | netplugin: no such device
              2 (id 25) opened 12:02:52 by m2, because retry after a failure: cleanup now
            --- 0
            as seen by m1 (leader) at 2026-03-05T12:05:00.000Z
        "#]],
    );
    let missing = job::show(&Out::memory(Format::Table, false), &views::jobs(), 99).unwrap_err();
    assert_eq!(CommandError::from_error(&missing).exit, Exit::Refused);
}

#[test]
fn a_check_shows_what_is_wrong() {
    let result = |check: &str, state| CheckResult {
        service: "contiv_network".into(),
        check: check.into(),
        property: "running".into(),
        state,
        severity: Severity::Critical,
        on_fail: OnFail::Resetup,
        expected: "true".into(),
        found: "false".into(),
        message: String::new(),
        took_ms: 3,
    };
    let view = CheckView {
        version: 1,
        as_of: views::as_of(),
        node: "w1".into(),
        verdict: "drifted".into(),
        reasons: vec!["netplugin is not running".into()],
        checks: vec![result("service:netplugin", CheckState::Fail), result("service:etcd", CheckState::Pass)],
        differences: vec![Difference {
            service: "etcd".into(),
            path: "/etc/etcd.conf".into(),
            what: DigestChange::Missing,
        }],
        took_ms: 1_300,
    };
    table(
        |out| examine::show_check(out, &view),
        expect![[r#"
        w1: drifted (1 check passed, 1 failed, 0 unknown; took 1 s)
          reason: netplugin is not running
          differs: etcd: /etc/etcd.conf missing
        SERVICE         CHECK              PROPERTY  STATE  SEVERITY  EXPECTED  FOUND  MESSAGE
        contiv_network  service:netplugin  running   fail   critical  true      false  -
        --- 0
        as seen by m1 (leader) at 2026-03-05T12:05:00.000Z
    "#]],
    );
}

#[test]
fn a_diff_without_data_does_not_claim_no_differences() {
    let unclear = vec!["/etc/big.db: larger than 16 MiB".to_owned()];
    let view = DiffView { version: 1, as_of: views::as_of(), node: "w1".into(), files: Vec::new(), unclear };
    table(
        |out| examine::show_diff(out, &view),
        expect![[r#"
            not compared: /etc/big.db: larger than 16 MiB
            --- 0
            as seen by m1 (leader) at 2026-03-05T12:05:00.000Z
        "#]],
    );
}

#[test]
fn a_diff_is_shown() {
    let changed = FileDiff {
        service: "etcd".into(),
        path: "/etc/etcd.conf".into(),
        what: "changed".into(),
        attributes: vec!["sha256: 1f2e.. -> 99aa..".into()],
        origin: "rendered".into(),
        since: Some(views::time_of_day("11:58:00")),
        unified: Some("--- rendered\n+++ found\n@@ -1 +1 @@\n-port=2379\n+port=2380\n".into()),
        note: None,
    };
    let other = |what: &str, path: &str| FileDiff {
        what: what.into(),
        path: path.into(),
        attributes: Vec::new(),
        unified: None,
        origin: if what == "extra" { "none" } else { "recorded" }.into(),
        since: None,
        ..changed.clone()
    };
    let files = vec![other("extra", "/etc/a"), other("missing", "/etc/b"), changed.clone(), other("missing", "/etc/c")];
    let view = DiffView { version: 1, as_of: views::as_of(), node: "w1".into(), files, unclear: Vec::new() };
    table(
        |out| examine::show_diff(out, &view),
        expect![[r#"
            changed /etc/etcd.conf (etcd, rendered, since 11:58:00)
              port=2379 -> port=2380
            --- rendered
            +++ found
            @@ -1 +1 @@
            -port=2379
            +port=2380
              sha256: 1f2e.. -> 99aa..
            missing:
              /etc/b (etcd, recorded)
              /etc/c (etcd, recorded)
            extra:
              /etc/a (etcd)
            --- 1
            as seen by m1 (leader) at 2026-03-05T12:05:00.000Z
        "#]],
    );
}

#[test]
fn faults_and_applied_generations_are_shown() {
    let faults = [
        Fault::error("remoor.yml", 3, 5, "unknown key").hint("groups"),
        Fault::warn("checks/a.yml", 1, 1, "no digest"),
    ];
    table(
        |out| fleet::show_faults(out, &faults),
        expect![[r#"
        remoor.yml:3:5: unknown key
          hint: groups
        checks/a.yml:1:1: warning: no digest
        --- 2
        1 fault, 1 warning
    "#]],
    );
    assert!(capture(Format::Table, |out| fleet::show_faults(out, &faults[1..])).contains("--- 0"));
    let view = AppliedView { version: 1, generation: 4, outdated: vec!["w1".into()], ..AppliedView::default() };
    table(
        |out| fleet::show_applied(out, &view),
        expect![[r#"
            generation 4 applied
            outdated nodes: w1
            --- 0
            next: remoor update w1
        "#]],
    );
}

#[test]
fn json_output_is_the_view() {
    let view = views::status();
    let json = capture(Format::Json, |out| status::show(out, &view, false));
    let (json, talk) = json.split_once("--- 0\n").unwrap();
    assert_eq!(serde_json::from_str::<StatusView>(json).unwrap(), view);
    assert_eq!(talk, "", "no messages with JSON");
    let template = "{% for n in nodes %}{{ n.name }}={{ n.presence }} {% endfor %}";
    let text = capture(Format::Template(template.into()), |out| status::show(out, &view, false));
    assert_eq!(text, "m1=alive m2=alive m3=alive w1=alive w2=away \n--- 0\n");
}

#[test]
fn an_invalid_template_is_a_usage_error() {
    for template in ["{{ n", "{{ nothing.there }}"] {
        let out = Out::memory(Format::Template(template.into()), false);
        let error = status::show(&out, &views::status(), false).unwrap_err();
        assert_eq!(CommandError::from_error(&error).exit, Exit::Usage, "{template}");
        assert!(CommandError::from_error(&error).render().contains("caused by: "), "{template}");
    }
}

#[test]
fn remote_text_can_not_control_a_terminal() {
    let mut view = views::status();
    view.nodes[3].operation.failed = Some("\u{1b}]0;owned\u{7}".into());
    let out = Out::memory(Format::Table, true);
    status::show(&out, &view, false).unwrap();
    let (answer, _) = out.captured_text();
    assert!(answer.contains("␛]0;owned␇") && !answer.contains('\u{1b}'), "{answer}");
}

#[test]
fn stream_items_are_formatted_as_lines() {
    let mut teller = watch::StreamPrinter::default();
    let mut line = |value: serde_json::Value| {
        let item: StreamItem = serde_json::from_value(value).unwrap();
        teller.line(&item, crate::cli::moment::Today::from_answer(views::AT))
    };
    let task = |event: serde_json::Value| serde_json::json!({"type": "task", "job": 17, "attempt": 17, "phase": "cleanup", "event": event});
    let done = serde_json::json!({"event": "task", "name": "stop netplugin", "status": "failed", "rc": 3, "took_ms": 40, "msg": "no unit"});
    assert_eq!(line(task(done)).unwrap(), "job 17  cleanup  failed   stop netplugin rc=3 (40 ms): no unit");
    assert_eq!(line(task(serde_json::json!({"event": "output", "line": "x"}))).unwrap(), "job 17  cleanup      x");
    assert_eq!(line(task(serde_json::json!({"event": "task-start", "name": "x"}))), None);
    let item = serde_json::to_value(StreamItem::History {
        item: Box::new(views::story()[0].clone()),
        node: Some("w1".into()),
    });
    assert_eq!(line(item.unwrap()).unwrap(), "11:59:40  w1  away, last seen 10 s before; missed by m1, m2");
    assert_eq!(line(serde_json::json!({"type": "missed", "count": 4})).unwrap(), "(4 lines were missed)");
    assert_eq!(line(serde_json::json!({"type": "missed", "count": 1})).unwrap(), "(1 line was missed)");
}

#[test]
fn goals_are_reached_or_explained() {
    let view = views::status();
    let (m1, w1, w2) = (&view.nodes[0], &view.nodes[3], &view.nodes[4]);
    assert_eq!(wait::why_not_reached(m1, Goal::Clean), None);
    assert_eq!(wait::why_not_reached(w1, Goal::Clean).unwrap(), "w1 is being set up by job 17");
    assert_eq!(wait::why_not_reached(w1, Goal::Commissioned), None);
    assert_eq!(wait::why_not_reached(w2, Goal::Alive).unwrap(), "w2 is away");
    let mut back = views::node(4, "w1");
    back.conditions = vec![ConditionView { is: "examining".into(), why: "absence 3".into() }];
    assert_eq!(
        wait::why_not_reached(&back, Goal::Clean).unwrap(),
        "w1 is examining: absence 3",
        "back is not yet clean"
    );
    let mut repaired = views::node(4, "w1");
    repaired.config.finding = Some(views::drifted_finding());
    assert!(wait::why_not_reached(&repaired, Goal::Clean).unwrap().contains("drifted"));
    repaired.config.baseline = Some(views::baseline("12:02:00"));
    assert_eq!(wait::why_not_reached(&repaired, Goal::Clean), None, "provisioned since");
}

#[test]
fn one_wrong_name_selects_nothing() {
    let names = |names: &[&str]| NodeSelection {
        nodes: names.iter().map(|n| (*n).to_owned()).collect(),
        ..NodeSelection::default()
    };
    let status = views::status();
    let chosen = selection::pick(&status, &names(&["w1", "m1", "w1"])).unwrap();
    assert_eq!(chosen.iter().map(|n| n.name.as_str()).collect::<Vec<_>>(), ["w1", "m1"]);
    let error = CommandError::from_error(&selection::pick(&status, &names(&["w1", "w8", "w9"])).unwrap_err());
    assert_eq!(
        (error.exit, error.message.as_str()),
        (Exit::Refused, "these nodes do not exist: w8, w9; nothing was ordered")
    );
    let group = |group: &str| NodeSelection { group: Some(group.to_owned()), ..NodeSelection::default() };
    assert_eq!(selection::pick(&status, &group("service-master")).unwrap().len(), 3);
    let error = CommandError::from_error(&selection::pick(&status, &group("db")).unwrap_err());
    assert!(error.message.contains("groups: service-master, service-worker"), "{}", error.message);
}
