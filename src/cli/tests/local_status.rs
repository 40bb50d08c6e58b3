//! The answers of a machine that is not a manager, and the output of `remoor why --replay`.

use super::views;
use crate::cli::api::Api;
use crate::cli::args::{self, ConnectionOptions, Verb};
use crate::cli::command::local_status::{self, AgentQuery};
use crate::cli::command::{nodes, replay, status, wait};
use crate::cli::error::CommandError;
use crate::cli::exit::Exit;
use crate::cli::format::Format;
use crate::cli::out::Out;
use axum::routing::get;
use axum::{Json, Router};
use expect_test::{Expect, expect};
use remoor_cluster::rpc::server::ServerLimits;
use remoor_cluster::rpc::unix::{LocalSocket, serve_unix};
use remoor_cluster::rpc::view::*;
use remoor_cluster::rpc::wire::{self, ApiFailure, Code};
use remoor_model::{CheckResult, CheckState, OnFail, Severity};

fn peer(id: u64, name: &str, presence: &str) -> PeerView {
    PeerView {
        name: name.into(),
        id: Some(id),
        manager: name.starts_with('m'),
        gossip: format!("10.0.0.{id}:7946"),
        api: format!("10.0.0.{id}:7947"),
        presence: presence.into(),
        since: (presence != "never-seen").then(|| "2026-03-05T12:01:00.000Z".into()),
        report: None,
    }
}

pub fn agent() -> AgentView {
    let check = CheckResult {
        service: "nginx".into(),
        check: "service:nginx".into(),
        property: "running".into(),
        state: CheckState::Fail,
        severity: Severity::Critical,
        on_fail: OnFail::Resetup,
        expected: "true".into(),
        found: "false".into(),
        message: String::new(),
        took_ms: 1,
    };
    let report = ReportView {
        boot: "aabbccdd".into(),
        instance: "00112233".into(),
        isolation: 0,
        digest: "1f2e3d4c5b6a".into(),
        generation: 3,
        checks: "pass".into(),
        version: "0.1.0".into(),
        signed_at: None,
    };
    AgentView {
        version: 1,
        kind: "agent".into(),
        as_of: AsOf { by: "w1".into(), leader: None, ..views::as_of() },
        node: AgentNode {
            id: 4,
            name: "w1".into(),
            cluster: "c0ffee00c0ffee00".into(),
            epoch: 1,
            manager: false,
            agent_version: "0.1.0".into(),
            boot: "6f1c2d3e-0000".into(),
            instance: "9988776655443322".into(),
            started: "2026-03-05T11:00:00.000Z".into(),
            crashes: 1,
            previous_end: Some("ended without an announcement".into()),
            damaged: Vec::new(),
            unsaved: None,
            archived_logs: 0,
            removed: None,
            left: false,
        },
        peers: vec![
            PeerView { report: Some(report), ..peer(1, "m1", "alive") },
            peer(2, "m2", "gone"),
            peer(5, "w2", "left"),
            peer(6, "w3", "never-seen"),
        ],
        peers_alive: 1,
        isolation: IsolationView {
            episodes: 2,
            alone: false,
            from: Some("2026-03-05T11:58:00.000Z".into()),
            to: Some("2026-03-05T11:59:30.000Z".into()),
            peers_lost: 4,
        },
        manager: ContactView {
            name: Some("m1".into()),
            at: Some("2026-03-05T12:04:30.000Z".into()),
            age_ms: Some(30_000),
            error: Some("m1: connection refused".into()),
            known: vec!["10.0.0.1:7947".into(), "10.0.0.2:7947".into()],
        },
        manifest: Some(ManifestView {
            group: "web".into(),
            generation: 3,
            services: vec!["base".into(), "nginx".into()],
            check_interval_ms: 60_000,
        }),
        look: Some(ExaminationView {
            at: "2026-03-05T12:04:50.000Z".into(),
            age_ms: 10_000,
            took_ms: 120,
            digest: "1f2e3d4c5b6a".into(),
            generation: 3,
            unreadable: Vec::new(),
            passed: 12,
            failed: 1,
            unknown: 0,
            checks: vec![check],
            checks_left_out: 0,
        }),
    }
}

fn assert_output(show: impl FnOnce(&Out) -> anyhow::Result<Exit>, expected: Expect) {
    let out = Out::memory(Format::Table, false);
    let exit = show(&out).unwrap().code();
    let (answer, talk) = out.captured_text();
    expected.assert_eq(&format!("{answer}--- {exit}\n{talk}"));
}

#[test]
fn the_view_of_an_agent_has_its_own_heading() {
    assert_output(
        |out| local_status::show(out, &agent(), AgentQuery::Status),
        expect![[r#"
            not the cluster's view: w1 is no manager, and this is what its agent knows itself

            node:       w1 (id 4), worker of cluster c0ffee00c0ff, epoch 1
            agent:      remoor 0.1.0, boot 6f1c2d3e, instance 99887766, since 11:00:00; the one before ended without an announcement
            crashes:    1 (starts of the agent within one boot after an end without an announcement)
            peers:      1 of 4 alive
            isolation:  2 episodes without peers; the last from 11:58:00 to 11:59:30
            managers:   m1 answered 30 s ago; the last failure: m1: connection refused
            manifest:   group web, generation 3: base, nginx
            digest:     1f2e3d4c5b6a, by generation 3, taken 10 s ago in 120 ms
            checks:     12 passed, 1 failed, 0 unknown
              FAIL nginx: service:nginx running: expected true, found false

            PEER  ID  ROLE     SEEN        SINCE     GENERATION  CHECKS  GOSSIP
            m1    1   manager  alive       12:01:00  3           pass    10.0.0.1:7946
            m2    2   manager  gone        12:01:00  -           -       10.0.0.2:7946
            w2    5   worker   left        12:01:00  -           -       10.0.0.5:7946
            w3    6   worker   never-seen  -         -           -       10.0.0.6:7946
            --- 3
            as known by the agent of w1 at 2026-03-05T12:05:00.000Z; no manager was asked
            next: remoor status on a manager, or here with --manager 10.0.0.1:7947,10.0.0.2:7947 --credentials FILE
        "#]],
    );
    assert_output(
        |out| local_status::show(out, &agent(), AgentQuery::Node("m1")),
        expect![[r#"
        not the cluster's view: w1 is no manager, and this is what its agent knows itself

        node:        m1 (id 1)
        role:        manager
        seen:        alive since 12:01:00, by gossip
        addresses:   api 10.0.0.1:7947, gossip 10.0.0.1:7946
        agent says:  boot aabbccdd, instance 00112233, isolations 0, digest 1f2e3d4c5b6a, generation 3, checks pass, remoor 0.1.0
        --- 3
        as known by the agent of w1 at 2026-03-05T12:05:00.000Z; no manager was asked
        next: remoor status on a manager, or here with --manager 10.0.0.1:7947,10.0.0.2:7947 --credentials FILE
    "#]],
    );
}

#[test]
fn quiet_prints_names_and_unknown_names_are_an_error() {
    let out = Out::memory(Format::Table, false).quietly(true);
    assert_eq!(local_status::show(&out, &agent(), AgentQuery::Nodes).unwrap(), Exit::CouldNotAsk);
    assert_eq!(out.captured_text().0, "w1\nm1\nm2\nw2\nw3\n");
    let stop = CommandError::from_error(&local_status::show(&out, &agent(), AgentQuery::Node("w9")).unwrap_err());
    assert_eq!(stop.exit, Exit::CouldNotAsk);
    assert!(stop.render().contains("does not know a node w9"), "{}", stop.render());
}

#[test]
fn json_shows_that_an_agent_answered() {
    let out = Out::memory(Format::Json, false);
    local_status::show(&out, &agent(), AgentQuery::Status).unwrap();
    let value: serde_json::Value = serde_json::from_str(&out.captured_text().0).unwrap();
    assert_eq!((&value["kind"], &value["version"]), (&"agent".into(), &1.into()));
    assert!(value.get("nodes").is_none(), "programs must not take it for the status of a fleet");
}

#[tokio::test]
async fn a_worker_answers_with_the_view_of_its_agent() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let refuse = || async { ApiFailure::new(Code::Unavailable, "w1 is no manager").next("ask one") };
    let router = Router::new().route("/v1/status", get(refuse)).route("/v1/agent", get(|| async { Json(agent()) }));
    let socket = LocalSocket::bind(&path).await.unwrap();
    let server =
        tokio::spawn(serve_unix(socket, wire::finish(router), ServerLimits::default(), std::future::pending()));
    let api = Api::open(&ConnectionOptions { socket: path, ..ConnectionOptions::default() }).unwrap();
    let parsed = |line: &str| args::parse(line.split_whitespace().map(Into::into)).unwrap().verb;

    let out = Out::memory(Format::Table, false);
    let Verb::Status(args) = parsed("remoor status --exit-code") else { panic!("status") };
    assert_eq!(status::run(&api, &out, &args).await.unwrap(), Exit::CouldNotAsk);
    let Verb::Nodes(args) = parsed("remoor nodes w2") else { panic!("nodes") };
    assert_eq!(nodes::run(&api, &out, &args).await.unwrap(), Exit::CouldNotAsk);
    let Verb::Wait(args) = parsed("remoor wait w2 --for=clean --timeout=1h") else { panic!("wait") };
    let stop = CommandError::from_error(&wait::run(&api, &out, &args).await.unwrap_err());
    assert_eq!(
        (stop.exit, stop.next.as_deref()),
        (Exit::CouldNotAsk, Some("ask one")),
        "it does not wait for the timeout"
    );
    let (answer, talk) = out.captured_text();
    assert!(answer.contains("not the cluster's view: w1 is no manager") && answer.contains("left since"), "{answer}");
    assert!(talk.contains("next: remoor status on a manager, or here with --manager 10.0.0.1:7947"), "{talk}");
    server.abort();
}

#[test]
fn a_replay_shows_events_actions_and_rules() {
    let rule = |decides: &str, rule: &str, gives: &str, concluded: &str| RuleView {
        decides: decides.into(),
        rule: rule.into(),
        gives: gives.into(),
        concluded: concluded.into(),
        agrees: gives == concluded,
    };
    let step = |at: &str, told: &str, asked: &[&str]| ReplayStep {
        at: format!("2026-03-05T{at}.000Z"),
        told: told.into(),
        asked: asked.iter().map(|a| (*a).to_owned()).collect(),
        event: serde_json::Value::Null,
        actions: Vec::new(),
    };
    let view = ReplayView {
        version: 1,
        as_of: views::as_of(),
        node: "w1".into(),
        since: Some("2026-03-05T11:00:00.000Z".into()),
        dropped: 7,
        left_out: 0,
        steps: vec![
            step("11:59:40", "lost from gossip", &["propose: absence 3 begins, away"]),
            step("11:59:41", "its entry was applied", &["probe its SSH port, without a login"]),
        ],
        verdict: Some(ReplayVerdict {
            at: "2026-03-05T12:01:09.000Z".into(),
            by: "m1".into(),
            from: "journal".into(),
            evidence: vec!["boot id was 6f1c2d3e, is 00aa11bb".into()],
            rules: vec![
                rule("cause", "the machine id is the same, the boot id differs", "reboot", "reboot"),
                rule("action", "the node is paused", "blocked: the node is paused", "resetup(nginx)"),
            ],
        }),
    };
    assert_output(
        |out| replay::show(out, &view),
        expect![[r#"
            w1: events and actions of m1 since 11:00:00, when it became the leader; 7 older steps of all nodes were dropped
            11:59:40  lost from gossip
                      -> propose: absence 3 begins, away
            11:59:41  its entry was applied
                      -> probe its SSH port, without a login

            The last verdict, of 12:01:09 by m1, rule by rule, from the journal (this leader does not have the examination):
              evidence  boot id was 6f1c2d3e, is 00aa11bb
              cause     the machine id is the same, the boot id differs -> reboot
              action    the node is paused -> blocked: the node is paused (by the present state; then it was resetup(nginx))
            --- 0
            as seen by m1 (leader) at 2026-03-05T12:05:00.000Z
        "#]],
    );
    let late = ReplayView { since: None, steps: Vec::new(), verdict: None, dropped: 0, ..view };
    assert_output(
        |out| replay::show(out, &late),
        expect![[r#"
            w1: m1 was not the leader since its start, so it has no events
            --- 0
            as seen by m1 (leader) at 2026-03-05T12:05:00.000Z
        "#]],
    );
}
