//! `remoor token`, `key` and `accept` with a fake manager: the requests and the exact output.

use super::transport::{Daemon, verb};
use super::views;
use crate::cli::args::{KeyVerb, TokenVerb, Verb};
use crate::cli::command::{keys, nodes};
use crate::cli::error::CommandError;
use crate::cli::exit::Exit;
use crate::cli::format::Format;
use crate::cli::out::Out;
use axum::routing::{get, post};
use axum::{Json, Router};
use expect_test::expect;
use remoor_cluster::rpc::view::*;
use serde_json::{Value, json};

const PUBLIC: &str = "remoor-1-0123456789abcdef0123456789abcdef";

/// A fake manager. It answers an order with the order itself.
async fn manager() -> Daemon {
    let tokens = || async {
        let token = |role: &str, old: Option<&str>| json!({"role": role, "since": "2026-03-04T18:00:00.000Z", "by": "zoe", "old_until": old});
        let tokens = [token("worker", Some("2026-03-06T18:00:00.000Z")), token("manager", None)];
        Json(json!({"version": 1, "as_of": views::as_of(), "public": PUBLIC, "tokens": tokens}))
    };
    let rotate = |Json(body): Json<Value>| async move {
        let until = format!("{} ms after noon", body["keep_old_ms"].as_u64().unwrap_or_default());
        Json(json!({"version": 1, "role": body["role"], "token": format!("{PUBLIC}-ff"), "old_until": until}))
    };
    let key = || async {
        let next = json!({"step": "insert", "since": "2026-03-05T12:00:00.000Z", "by": "zoe", "waits_for": ["w1", "w2"],
            "away": ["w3"]});
        let on_its_way = json!({"step": "issue", "since": "2026-03-05T12:00:00.000Z", "by": "zoe", "waits_for": ["w1"],
            "away": ["w3", "w4"], "fingerprint": "cdef", "overdue": ["w1"]});
        let ca = json!({"serial": 40, "fingerprint": "0123", "until": "2036-03-05T12:00:00.000Z", "next": on_its_way});
        let waiting = json!([{"name": "w7", "why": "certificate", "state": "waiting", "role": "worker",
            "fingerprint": "SHA256:x", "address": "10.0.0.7:7947", "since": "2026-03-05T11:00:00.000Z"}]);
        let operators = json!([{"name": "zoe", "fingerprint": "SHA256:z", "since": "2026-03-05T11:00:00.000Z",
            "by": "root@m1", "until": "2027-03-05T11:00:00.000Z", "state": "counts"}]);
        Json(json!({"version": 1, "as_of": views::as_of(), "serial": 0, "gossip": next, "ca": ca, "waiting": waiting,
            "operators": operators}))
    };
    let made = |Json(body): Json<Value>| async move {
        let credentials = json!({"cluster": "c1", "ca_pem": "CA", "cert_pem": "CERT", "key_pem": "SECRET"});
        Json(
            json!({"version": 1, "name": body["name"], "fingerprint": "SHA256:z", "until": "2027", "credentials": credentials}),
        )
    };
    let revoked = |Json(body): Json<Value>| async move { Json(json!({"version": 1, "text": body.to_string()})) };
    let rotated = |Json(body): Json<Value>| async move { Json(json!({"version": 1, "text": body.to_string()})) };
    let accept = |Json(body): Json<Value>| async move { Json(json!({"version": 1, "text": body.to_string()})) };
    let router = Router::new()
        .route("/v1/tokens", get(tokens))
        .route("/v1/tokens/rotate", post(rotate))
        .route("/v1/keys", get(key))
        .route("/v1/keys/rotate", post(rotated))
        .route("/v1/operators", post(made))
        .route("/v1/operators/revoke", post(revoked))
        .route("/v1/accept", post(accept));
    Daemon::start(router).await
}

async fn run(line: &str, quiet: bool) -> (Exit, String, String) {
    let (daemon, out) = (manager().await, Out::memory(Format::Table, false).quietly(quiet));
    let api = daemon.api();
    let exit = match verb(line) {
        Verb::Token(TokenVerb::List(args)) => keys::list(&api, &out, &args).await,
        Verb::Token(TokenVerb::Rotate(args)) => keys::rotate(&api, &out, &args).await,
        Verb::Key(KeyVerb::Status(args)) => keys::key_status(&api, &out, &args).await,
        Verb::Key(KeyVerb::Operator(args)) => keys::operator(&api, &out, &args).await,
        Verb::Key(KeyVerb::Rotate(args)) => keys::rotate_key(&api, &out, &args).await,
        Verb::Accept(args) => keys::accept(&api, &out, &args).await,
        other => panic!("{other:?}"),
    };
    let (answer, talk) = out.captured_text();
    match exit {
        Ok(exit) => (exit, answer, talk),
        Err(error) => (error.downcast_ref::<CommandError>().map_or(Exit::Failed, |stop| stop.exit), answer, talk),
    }
}

#[tokio::test]
async fn a_rotation_names_its_key_and_finish_needs_confirmation() {
    let asked = |answer: &str| serde_json::from_str::<Value>(answer).expect("JSON");
    for (line, body) in [
        ("remoor key rotate gossip", json!({"key": "gossip"})),
        ("remoor key rotate ca", json!({"key": "ca"})),
        ("remoor key rotate ca --finish --yes", json!({"key": "ca", "finish": true})),
    ] {
        let (exit, answer, _) = run(line, false).await;
        assert_eq!((exit, asked(&answer)), (Exit::Done, body), "{line}");
    }
    let (exit, answer, talk) = run("remoor key rotate ca --finish", false).await;
    assert_eq!((exit, answer.as_str()), (Exit::Refused, ""), "nothing is ordered");
    assert!(talk.contains("does not wait for them: w3, w4") && talk.contains("remoor accept"), "{talk}");
    assert_eq!(run("remoor key rotate gossip --finish", false).await.0, Exit::Usage);
}

#[tokio::test]
async fn operator_credentials_are_only_written_to_the_file() {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("zoe.json");
    let line = format!("remoor key operator zoe --file {}", file.display());
    let (exit, answer, talk) = run(&line, false).await;
    assert!(exit == Exit::Done && answer.starts_with("credentials of zoe until 2027: "), "{answer}");
    assert!(!answer.contains("SECRET") && !talk.contains("SECRET"), "{answer} {talk}");
    let written = std::fs::read_to_string(&file).expect("written");
    assert!(written.contains("SECRET"));
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&file).expect("there").permissions());
    assert_eq!(mode & 0o777, 0o600);
    std::fs::write(&file, "mine").expect("written");
    assert_eq!(run(&line, false).await.0, Exit::Usage, "it is not overwritten");
    assert_eq!(std::fs::read_to_string(&file).expect("there"), "mine");
    let (exit, answer, _) = run("remoor key operator zoe --revoke", false).await;
    assert_eq!((exit, answer.trim()), (Exit::Done, r#"{"name":"zoe"}"#));
}

#[tokio::test]
async fn tokens_are_listed_without_their_secrets() {
    let (exit, answer, _) = run("remoor token list", false).await;
    assert_eq!(exit, Exit::Done);
    expect![[r#"
        TOKEN    SINCE                     BY   OLD ONE UNTIL
        worker   2026-03-04T18:00:00.000Z  zoe  2026-03-06T18:00:00.000Z
        manager  2026-03-04T18:00:00.000Z  zoe  -

        public token (machines that join with it wait for remoor accept): remoor-1-0123456789abcdef0123456789abcdef
    "#]]
    .assert_eq(&answer);
}

#[tokio::test]
async fn a_new_token_is_printed_alone_on_standard_output() {
    let token = format!("{PUBLIC}-ff\n");
    let (_, answer, talk) = run("remoor token rotate --role worker", false).await;
    assert_eq!(answer, token);
    assert_eq!(talk, "this is the new worker token; it can't be printed again; the old one is invalid\n");
    let (_, answer, talk) = run("remoor token rotate --role manager --keep-old 2s", false).await;
    assert!(answer == token && talk.contains("the old one is valid until 2000 ms after noon"), "{talk}");
    assert_eq!(run("remoor token rotate --role worker", true).await, (Exit::Done, token, String::new()));
}

#[tokio::test]
async fn key_status_shows_what_a_rotation_waits_for() {
    let (_, answer, talk) = run("remoor key status", false).await;
    assert!(
        talk.contains("w1: present, but did not confirm the key")
            && talk.contains("stop it, then remoor key rotate ca --finish"),
        "{talk}"
    );
    assert!(talk.contains("next: remoor accept NAME"), "{talk}");
    expect![[r#"
        gossip key: made by init
        new key: rotation since 2026-03-05T12:00:00.000Z, by zoe: all nodes accept it
        waits for: w1, w2
        away, get it when they return: w3
        CA: 0123, made by entry 40, until 2036-03-05T12:00:00.000Z
        new CA cdef: rotation since 2026-03-05T12:00:00.000Z, by zoe: all nodes get certificates from it, and trust both
        waits for: w1
        waits for (away): w3, w4

        OPERATOR  KEY       SINCE                     BY       UNTIL                     STATE
        zoe       SHA256:z  2026-03-05T11:00:00.000Z  root@m1  2027-03-05T11:00:00.000Z  counts

        WAITS  FOR          STATE    ROLE    KEY       ADDRESS        SINCE
        w7     certificate  waiting  worker  SHA256:x  10.0.0.7:7947  2026-03-05T11:00:00.000Z
    "#]]
    .assert_eq(&answer);
}

#[tokio::test]
async fn accept_sends_only_what_was_given() {
    for (line, body) in [
        ("remoor accept w7", json!({"name": "w7"})),
        ("remoor accept w7 --deny", json!({"name": "w7", "deny": true})),
        (
            "remoor accept w7 --role manager --fingerprint SHA256:x",
            json!({"name": "w7", "role": "manager", "fingerprint": "SHA256:x"}),
        ),
    ] {
        let (exit, answer, _) = run(line, false).await;
        assert_eq!(exit, Exit::Done);
        assert_eq!(serde_json::from_str::<Value>(&answer).expect("JSON"), body, "{line}");
    }
}

#[test]
fn waiting_machines_are_listed_below_the_nodes() {
    let waits = |name: &str, why: &str, state: &str| PendingView {
        name: name.into(),
        why: why.into(),
        state: state.into(),
        role: "worker".into(),
        fingerprint: "SHA256:abc".into(),
        address: "10.0.0.9:7947".into(),
        since: "2026-03-05T12:00:00.000Z".into(),
        expires: None,
    };
    let pending = vec![waits("w7", "join", "waiting"), waits("w1", "certificate", "accepted")];
    let view = StatusView { pending, ..views::clean_status() };
    let out = Out::memory(Format::Table, false);
    nodes::list(&out, &view).expect("listed");
    let (answer, _) = out.captured_text();
    let (_, below) = answer.split_once("\n\n").expect("two tables");
    expect![[r#"
        WAITS  FOR          STATE     ROLE    KEY         ADDRESS        SINCE
        w7     join         waiting   worker  SHA256:abc  10.0.0.9:7947  2026-03-05T12:00:00.000Z
        w1     certificate  accepted  worker  SHA256:abc  10.0.0.9:7947  2026-03-05T12:00:00.000Z
    "#]]
    .assert_eq(below);
}
