//! Tests of expiring and renewed certificates on open connections.

use super::super::renew::RENEW_PATH;
use super::*;

#[tokio::test]
async fn a_certificate_that_runs_out_ends_open_connections() {
    let cluster = Cluster::new("c1");
    let server = Server::start(&cluster.node(1), router(), ServerLimits::default()).await;
    let brief = ClientTls::member(&cluster.node_valid(7, seconds_around_now(100, 8))).unwrap();
    let client = Client::tls(&server.addr, &brief, None);
    ask_identity(&client).await.unwrap();
    let deadline = Instant::now() + SOON;
    let error = loop {
        match ask_identity(&client).await {
            Err(error) => break error,
            Ok(_) => assert!(Instant::now() < deadline, "still accepted"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    assert_eq!(error.code(), Some("credential-expired"), "{error:?}");
    // A new connection with the same certificate may also only request a renewal. With a renewed
    // certificate all requests are allowed.
    let error = ask_identity(&client).await.unwrap_err();
    assert_eq!(error.code(), Some("credential-expired"), "{error:?}");
    let error = client.post::<Value>(RENEW_PATH, &json!({})).await.unwrap_err();
    assert_eq!(error.code(), Some("not-found"), "the router is asked: {error:?}");
    brief.replace(&cluster.node(7)).unwrap();
    ask_identity(&client).await.unwrap();
}

#[tokio::test]
async fn a_renewed_certificate_is_shown_from_the_next_request_on() {
    let cluster = Cluster::new("c1");
    let server = Server::start(&cluster.node(1), router(), ServerLimits::default()).await;
    let tls = cluster.client(7);
    let client = Client::tls(&server.addr, &tls, None);
    assert!(ask_identity(&client).await.unwrap().contains("NodeId(7)"));
    tls.replace(&cluster.node(8)).unwrap();
    assert!(ask_identity(&client).await.unwrap().contains("NodeId(8)"), "no earlier connection is used");
}
