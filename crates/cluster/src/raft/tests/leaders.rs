//! Transfer of leadership, and the messages that an entry causes from the leader to its followers.

use super::*;
use crate::raft::network::coalesce_commits;
use crate::raft::types::{LogEntry, Types};
use futures_util::StreamExt;
use openraft::entry::RaftEntry;
use openraft::raft::AppendEntriesRequest;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// A configuration in which heartbeats and openraft's clock ticks are so far apart that no test can
/// pass by waiting for them.
fn slow(dir: &Path, id: u64) -> RaftConfig {
    let mut cfg = config(dir, id);
    (cfg.timing.heartbeat_ms, cfg.timing.answer_ms) = (200_000, 200_000);
    (cfg.timing.election_min_ms, cfg.timing.election_max_ms) = (400_000, 800_000);
    cfg.timing.quorum_probe_ms = 1_600_000;
    cfg
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_takes_over_leads_at_once_and_entries_on_their_way_stop_nobody() {
    let (dir, mesh) = (tempfile::tempdir().unwrap(), Mesh::default());
    let (first, _) = founder_with(slow(dir.path(), 1), &mesh).await;
    let mut members = vec![first.clone()];
    for id in [2, 3] {
        members.push(start(slow(dir.path(), id), &mesh).await.0);
        first.add_learner(RaftId(id), address(id)).await.unwrap();
    }
    change_voters(&first, &[1, 2, 3]).await;
    for raft in &members {
        until_status(raft, "three voters", |s| s.voters.len() == 3 && !s.joint).await;
    }
    let over = tokio::sync::watch::channel(false).0;
    let writers: Vec<_> = (0..16)
        .map(|writer| {
            let (members, over) = (members.clone(), over.subscribe());
            tokio::spawn(async move {
                let mut acknowledged = Vec::new();
                while !*over.borrow() {
                    let word = format!("{writer} {}", acknowledged.len());
                    propose_somewhere(&members, &word).await;
                    acknowledged.push(word);
                }
                acknowledged
            })
        })
        .collect();
    let begun = Instant::now();
    let mut leads = 0;
    for _ in 0..12 {
        tokio::time::sleep(Duration::from_millis(20)).await;
        let next = (leads + 1) % members.len();
        members[leads].transfer_leader(RaftId(next as u64 + 1)).await.unwrap();
        until_status(&members[next], "the next one to lead", |s| s.is_leader).await;
        leads = next;
    }
    let tick = Duration::from_millis(200_000 * 13 / 64);
    assert!(begun.elapsed() < tick, "one of them waited for a heartbeat");
    assert_eq!(mesh.count("pre-vote"), 0, "a transfer was ignored, and a member missed a leader");
    over.send_replace(true);
    for writer in writers {
        for word in writer.await.unwrap() {
            until_word(&members[leads], &word).await;
        }
    }
    for raft in &members {
        stop(raft, &mesh).await;
    }
}

/// A round trip takes 150 ms. So the former leader learns of its successor long after the successor
/// has begun to lead.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_members_never_claim_to_lead_at_one_time_during_a_transfer() {
    let (dir, mesh) = (tempfile::tempdir().unwrap(), Mesh::default());
    let members = three_voters(dir.path(), &mesh).await;
    *mesh.delay.lock().unwrap() = Duration::from_millis(75);
    let (over, watched) = (Arc::new(AtomicBool::new(false)), members.clone());
    let ended = over.clone();
    let watcher = std::thread::spawn(move || {
        let (mut both, mut since) = (Duration::ZERO, None::<Instant>);
        while !ended.load(Ordering::Acquire) {
            let leads = watched.iter().filter(|raft| raft.status().borrow().leads()).count();
            since = since.filter(|_| leads > 1).or_else(|| (leads > 1).then(Instant::now));
            both = both.max(since.map_or(Duration::ZERO, |since| since.elapsed()));
            std::thread::sleep(Duration::from_millis(1));
        }
        both
    });
    for (from, to) in [(0, 1), (1, 2), (2, 0)] {
        members[from].transfer_leader(RaftId(to as u64 + 1)).await.unwrap();
        until_status(&members[to], "the next one to lead", |s| s.is_leader).await;
        assert!(!members[from].status().borrow().handed_over, "it follows the next one");
    }
    over.store(true, Ordering::Release);
    assert_eq!(watcher.join().unwrap(), Duration::ZERO, "two lead at one time");
    for raft in &members {
        stop(raft, &mesh).await;
    }
}

#[tokio::test]
async fn that_entries_are_committed_is_told_with_the_next_ones_and_without_any_soon() {
    type Request = AppendEntriesRequest<Types<Words>>;
    let leader = openraft::impls::leader_id_adv::LeaderId { term: 1, node_id: 1 };
    let request = |index: u64, entries: u64| -> Request {
        let at = |index| openraft::LogId::new(leader, index);
        let entries = (index + 1..=index + entries).map(|i| LogEntry::<Words>::new_blank(at(i))).collect();
        let (prev_log_id, leader_commit) = (Some(at(index)), Some(at(index)));
        Request { vote: openraft::impls::Vote::new_committed(1, 1), prev_log_id, entries, leader_commit }
    };
    let (tx, mut rx) = mpsc::unbounded_channel();
    let input = futures_util::stream::poll_fn(move |cx| rx.poll_recv(cx));
    let mut sent = Box::pin(
        coalesce_commits::<Words>(input)
            .map(|r| (r.prev_log_id.map(|id| id.index), r.entries.len(), r.leader_commit.map(|id| id.index))),
    );
    let give = |index, entries| tx.send(request(index, entries)).expect("taken");
    give(4, 0);
    assert_eq!(sent.next().await, Some((Some(4), 0, Some(4))), "the first one probes the peer");
    give(4, 1);
    give(5, 0);
    give(5, 2);
    give(7, 0);
    assert_eq!(sent.next().await, Some((Some(4), 1, Some(4))));
    assert_eq!(sent.next().await, Some((Some(5), 2, Some(5))), "the commit of 5 is sent with the next entries");
    assert_eq!(sent.next().await, Some((Some(7), 0, Some(7))), "nothing follows, and it is sent anyway");
    give(7, 1);
    give(8, 0);
    drop(tx);
    assert_eq!(sent.next().await, Some((Some(7), 1, Some(7))));
    assert_eq!(sent.next().await, Some((Some(8), 0, Some(8))), "not lost at the end");
    assert_eq!(sent.next().await, None);
}
