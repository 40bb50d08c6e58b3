//! Certificates that run out, and new ones, on connections that are open.

use super::super::renew::RENEW_PATH;
use super::*;

#[tokio::test]
async fn a_certificate_that_runs_out_ends_open_connections() {
    let cluster = Cluster::new("c1");
    let server = Server::start(&cluster.node(1), router(), Limits::default()).await;
    let brief = ClientTls::member(&cluster.node_valid(7, seconds_around_now(100, 8))).unwrap();
    let client = Client::tls(&server.addr, &brief, None);
    who(&client).await.unwrap();
    let deadline = Instant::now() + SOON;
    let error = loop {
        match who(&client).await {
            Err(error) => break error,
            Ok(_) => assert!(Instant::now() < deadline, "still let in"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    assert_eq!(error.code(), Some("credential-expired"), "{error:?}");
    // Dialling anew changes nothing, and one path is open; with a renewed certificate it goes on.
    let error = who(&client).await.unwrap_err();
    assert_eq!(error.code(), Some("credential-expired"), "{error:?}");
    let error = client.post::<Value>(RENEW_PATH, &json!({})).await.unwrap_err();
    assert_eq!(error.code(), Some("not-found"), "the router is asked: {error:?}");
    brief.replace(&cluster.node(7)).unwrap();
    who(&client).await.unwrap();
}

#[tokio::test]
async fn a_renewed_certificate_is_shown_from_the_next_request_on() {
    let cluster = Cluster::new("c1");
    let server = Server::start(&cluster.node(1), router(), Limits::default()).await;
    let tls = cluster.client(7);
    let client = Client::tls(&server.addr, &tls, None);
    assert!(who(&client).await.unwrap().contains("NodeId(7)"));
    tls.replace(&cluster.node(8)).unwrap();
    assert!(who(&client).await.unwrap().contains("NodeId(8)"), "no connection of before is used");
}
