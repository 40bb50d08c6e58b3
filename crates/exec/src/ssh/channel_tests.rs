//! Tests the manager's end of a session. The test itself sends the replies of the executor.

use super::*;
use crate::wire::{PROTO, sample_fence};
use tokio::io::{DuplexStream, duplex, split};

struct ChannelPeer(DuplexStream);

impl ChannelPeer {
    async fn send(&mut self, reply: &Reply) {
        self.0.write_all(&frame::encode(reply).unwrap()).await.unwrap();
    }

    async fn receive(&mut self) -> Option<ExecutorOrder> {
        let mut prefix = [0; 4];
        self.0.read_exact(&mut prefix).await.ok()?;
        let mut content = vec![0; frame::parse_length(prefix).unwrap()];
        self.0.read_exact(&mut content).await.ok()?;
        Some(frame::decode(&content).unwrap())
    }
}

fn pair(pace: HeartbeatTiming) -> (Channel, ChannelPeer) {
    let (here, there) = duplex(64 * 1024);
    let (input, output) = split(here);
    (Channel::start(input, output, pace), ChannelPeer(there))
}

const QUIET: HeartbeatTiming = HeartbeatTiming { heartbeat: LONG, silence: LONG };

fn fence() -> ExecutorOrder {
    ExecutorOrder::Fence { fence: sample_fence(3), node: "w1".into(), job: remoor_model::JobId(1), timeout_ms: 1000 }
}

const LONG: Duration = Duration::from_secs(180);

#[tokio::test]
async fn the_greeting_is_found_after_output_of_a_shell() {
    let hello = Hello { proto: PROTO, version: "1".into(), ..Hello::default() };
    let mut bytes = b"Welcome\0 to web-1\n".to_vec();
    bytes.extend_from_slice(PREFACE);
    bytes.extend(frame::encode(&Reply::Hello(hello.clone())).unwrap());
    bytes.extend(frame::encode(&Reply::Closed).unwrap());
    let (found, mut rest) = Channel::greet(bytes.as_slice()).await.unwrap();
    assert_eq!(found, hello);
    let (next, _) = read_reply(&mut rest, &room()).await.unwrap().unwrap();
    assert_eq!(next, Reply::Closed);

    let error = Channel::greet(&b"sh: not found\n"[..]).await.err().unwrap();
    assert!(matches!(error, SshError::Lost(_)));
    let endless = vec![b'x'; NOISE_MAX * 2];
    assert!(matches!(Channel::greet(endless.as_slice()).await.err().unwrap(), SshError::Protocol(_)));
}

#[tokio::test]
async fn an_order_is_answered_after_its_events() {
    let (mut channel, mut peer) = pair(QUIET);
    let server = tokio::spawn(async move {
        assert_eq!(peer.receive().await, Some(fence()));
        peer.send(&Reply::Alive { waiting_for: Some("remoor play".into()) }).await;
        peer.send(&Reply::Alive { waiting_for: None }).await;
        peer.send(&Reply::Event { event: b"{}".to_vec() }).await;
        peer.send(&Reply::Fenced { ended: None }).await;
        peer
    });
    let mut events = Vec::new();
    let reply = channel.order(&fence(), EventSink::Call(&mut |event| events.push(event)), LONG).await.unwrap();
    assert_eq!(reply, Reply::Fenced { ended: None });
    assert_eq!(events.len(), 2, "{events:?}");
    drop(server.await.unwrap());
    let lost = channel.order(&fence(), EventSink::Call(&mut |_| {}), LONG).await;
    assert!(matches!(lost, Err(SshError::Lost(_))), "{lost:?}");
}

#[tokio::test]
async fn heartbeats_go_out_while_idle_and_while_a_run_is_long() {
    let (mut channel, mut peer) = pair(HeartbeatTiming { heartbeat: Duration::from_millis(20), silence: LONG });
    // The session is idle until the log entry of the next order is committed.
    assert_eq!(peer.receive().await, Some(ExecutorOrder::Heartbeat));
    let server = tokio::spawn(async move {
        while peer.receive().await != Some(fence()) {}
        for _ in 0..20 {
            assert_eq!(peer.receive().await, Some(ExecutorOrder::Heartbeat));
            peer.send(&Reply::Alive { waiting_for: None }).await;
        }
        peer.send(&Reply::Closed).await;
    });
    assert_eq!(channel.order(&fence(), EventSink::Call(&mut |_| {}), LONG).await, Ok(Reply::Closed));
    server.await.unwrap();
}

#[tokio::test]
async fn silence_is_a_loss() {
    let (mut channel, _peer) = pair(HeartbeatTiming { heartbeat: LONG, silence: Duration::from_millis(100) });
    let lost = channel.order(&fence(), EventSink::Call(&mut |_| {}), LONG).await;
    assert!(matches!(&lost, Err(SshError::Lost(why)) if why.contains("nothing was received")), "{lost:?}");
}

#[tokio::test]
async fn a_loss_is_noticed_between_orders() {
    let (mut channel, mut peer) = pair(QUIET);
    peer.send(&Reply::Alive { waiting_for: None }).await;
    peer.send(&Reply::Event { event: b"{}".to_vec() }).await;
    // Heartbeat replies do not end the wait. After a dropped wait, the session accepts orders.
    let early = tokio::time::timeout(Duration::from_millis(100), channel.wait_for_loss()).await;
    assert!(early.is_err(), "{early:?}");
    peer.send(&Reply::Alive { waiting_for: None }).await;
    let server = tokio::spawn(async move {
        assert_eq!(peer.receive().await, Some(fence()));
        peer.send(&Reply::Fenced { ended: None }).await;
        peer
    });
    assert_eq!(channel.order(&fence(), EventSink::Call(&mut |_| {}), LONG).await, Ok(Reply::Fenced { ended: None }));
    drop(server.await.unwrap());
    let lost = tokio::time::timeout(LONG, channel.wait_for_loss()).await.unwrap();
    assert!(matches!(lost, SshError::Lost(_)), "{lost:?}");

    let (mut channel, _silent) = pair(HeartbeatTiming { heartbeat: LONG, silence: Duration::from_millis(100) });
    let lost = tokio::time::timeout(LONG, channel.wait_for_loss()).await.unwrap();
    assert!(matches!(&lost, SshError::Lost(why) if why.contains("nothing was received")), "{lost:?}");

    // An unexpected reply must not be taken for the reply to the next order.
    let (mut channel, mut peer) = pair(QUIET);
    peer.send(&Reply::Fenced { ended: None }).await;
    let error = tokio::time::timeout(LONG, channel.wait_for_loss()).await.unwrap();
    assert!(matches!(error, SshError::Protocol(_)), "{error:?}");
    assert!(matches!(channel.order(&fence(), EventSink::Call(&mut |_| {}), LONG).await, Err(SshError::Lost(_))));
}

#[tokio::test]
async fn a_timeout_cancels_and_ends_the_session() {
    let (mut channel, mut peer) = pair(QUIET);
    let result = channel.order(&fence(), EventSink::Call(&mut |_| {}), Duration::from_millis(50)).await;
    assert!(matches!(result, Err(SshError::Timeout(_))));
    assert_eq!(peer.receive().await, Some(fence()));
    assert_eq!(peer.receive().await, Some(ExecutorOrder::Cancel { now: true }));
    // The late reply must not be taken for the reply to the next order.
    peer.send(&Reply::Fenced { ended: None }).await;
    let cleaned = ExecutorOrder::Fetch { paths: vec![] };
    assert!(matches!(channel.order(&cleaned, EventSink::Call(&mut |_| {}), LONG).await, Err(SshError::Lost(_))));
}

#[tokio::test]
async fn a_run_can_be_cancelled_from_another_task() {
    let (mut channel, mut peer) = pair(QUIET);
    let canceller = channel.canceller();
    let server = tokio::spawn(async move {
        peer.receive().await;
        canceller.cancel(false).await;
        assert_eq!(peer.receive().await, Some(ExecutorOrder::Cancel { now: false }));
        peer.send(&Reply::RunEnd(serde_json::Value::Null)).await;
    });
    assert!(matches!(channel.order(&fence(), EventSink::Call(&mut |_| {}), LONG).await, Ok(Reply::RunEnd(_))));
    server.await.unwrap();
}

#[tokio::test]
async fn garbage_and_oversize_are_errors() {
    for (bytes, is_protocol) in
        [(&[0xff, 0xff, 0xff, 0xff][..], true), (&[0, 0, 0, 2, 0xc1, 0xc1][..], true), (&[0, 0, 9][..], false)]
    {
        let (mut channel, mut peer) = pair(QUIET);
        peer.0.write_all(bytes).await.unwrap();
        peer.0.shutdown().await.unwrap();
        let error = channel.order(&fence(), EventSink::Call(&mut |_| {}), LONG).await.unwrap_err();
        assert_eq!(matches!(error, SshError::Protocol(_)), is_protocol, "{error:?}");
    }
}

#[tokio::test]
async fn dropping_the_channel_closes_the_stream() {
    let (channel, mut peer) = pair(QUIET);
    drop(channel);
    assert_eq!(peer.receive().await, None);
}
