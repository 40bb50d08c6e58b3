//! Tests of members in one process: agreement, failover, restart, partition, changes of the
//! membership, and rejected messages.

use super::*;
use crate::incarnation::{LogMark, RejectedIncarnation};
use crate::raft::incarnation_table::IncarnationTable;
use crate::raft::{MemberError, ReadError, last_state, seed, sender_of, wire};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_founder_applies_what_is_proposed_and_finds_it_after_a_restart() {
    let (dir, mesh) = (tempfile::tempdir().unwrap(), Mesh::default());
    let (raft, mut feed) = founder(dir.path(), &mesh).await;
    let (index, count) = raft.propose("one".to_owned()).await.unwrap();
    assert_eq!(count, 1);
    assert_eq!(raft.state().borrow().words.get(&index).map(String::as_str), Some("one"));
    let applied = next_applied(&mut feed).await;
    assert_eq!((applied.index, applied.entry.as_str(), applied.applied), (index, "one", 1));
    raft.linearizable().await.unwrap();
    let term = raft.status().borrow().term;
    stop(&raft, &mesh).await;
    assert!(!until_status(&raft, "the end", |s| !s.running).await.is_leader);

    let (raft, mut feed) = start(config(dir.path(), 1), &mesh).await;
    assert!(raft.state().borrow().contains("one"), "replayed before start returns");
    let again = until_status(&raft, "leading again", |s| s.is_leader).await;
    assert!(again.term > term, "entries sent before the stop may be only on other disks");
    raft.propose("two".to_owned()).await.unwrap();
    assert_eq!(next_applied(&mut feed).await.entry.as_str(), "two", "replayed entries are not announced");
    stop(&raft, &mesh).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_founder_on_an_empty_log_may_start_a_cluster() {
    let (dir, mesh) = (tempfile::tempdir().unwrap(), Mesh::default());
    let (second, _) = start(config(dir.path(), 2), &mesh).await;
    assert!(matches!(second.initialize(address(2)).await, Err(RaftError::InitializeRefused { .. })));
    let (first, _) = founder(dir.path(), &mesh).await;
    assert!(matches!(first.initialize(address(1)).await, Err(RaftError::InitializeRefused { .. })));
    stop(&first, &mesh).await;
    stop(&second, &mesh).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_leader_is_replaced_and_every_acknowledged_entry_is_there_after_all_restart() {
    let (dir, mesh) = (tempfile::tempdir().unwrap(), Mesh::default());
    let members = three_voters(dir.path(), &mesh).await;
    let mut acknowledged = BTreeMap::new();
    for n in 0..20 {
        let word = format!("before {n}");
        acknowledged.insert(members[0].propose(word.clone()).await.unwrap().0, word);
    }
    stop(&members[0], &mesh).await;
    let rest = &members[1..];
    for n in 0..20 {
        let word = format!("after {n}");
        acknowledged.insert(propose_somewhere(rest, &word).await, word);
    }
    // Wait for all members first, because only a live leader confirms a follower's last entry.
    for raft in rest {
        until_word(raft, "after 19").await;
    }
    for raft in rest {
        stop(raft, &mesh).await;
    }
    drop(members);
    let mut members = Vec::new();
    for id in 1..=3 {
        members.push(start(config(dir.path(), id), &mesh).await.0);
    }
    propose_somewhere(&members, "last").await;
    for raft in &members {
        until_word(raft, "last").await;
    }
    for raft in &members {
        let state = raft.state().borrow().clone();
        for (index, word) in &acknowledged {
            assert_eq!(state.words.get(index), Some(word), "lost by {}", raft.status().borrow().id);
        }
        stop(raft, &mesh).await;
    }
    assert!(mesh.count("pre-vote") > 0 && mesh.count("vote") > 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_cut_off_from_the_majority_loses_its_lease_and_refuses_reads_and_the_rest_goes_on() {
    let (dir, mesh) = (tempfile::tempdir().unwrap(), Mesh::default());
    let members = three_voters(dir.path(), &mesh).await;
    members[0].linearizable().await.unwrap();
    mesh.cut_off(1);
    until_status(&members[0], "the lease to end", |s| !s.is_leader).await;
    let error = members[0].linearizable().await.unwrap_err();
    assert!(matches!(error, ReadError::NoQuorum { .. }), "{error:?}");
    propose_somewhere(&members[1..], "without the first").await;
    assert!(!members[0].state().borrow().contains("without the first"));
    mesh.heal();
    until_word(&members[0], "without the first").await;
    for raft in &members {
        stop(raft, &mesh).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_names_the_leader_and_leadership_moves_when_asked() {
    let (dir, mesh) = (tempfile::tempdir().unwrap(), Mesh::default());
    let members = three_voters(dir.path(), &mesh).await;
    let leader = Some((RaftId(1), address(1)));
    assert_eq!(members[1].propose("no".to_owned()).await, Err(ProposeError::NotLeader { leader: leader.clone() }));
    assert_eq!(members[1].linearizable().await, Err(ReadError::NotLeader { leader: leader.clone().unwrap() }));
    assert_eq!(members[1].transfer_leader(RaftId(3)).await, Err(MemberError::NotLeader { leader }));
    assert!(matches!(members[0].transfer_leader(RaftId(9)).await, Err(MemberError::Refused { .. })));
    let term = members[0].status().borrow().term;
    members[0].transfer_leader(RaftId(3)).await.unwrap();
    assert!(mesh.count("transfer") > 0);
    let now = until_status(&members[2], "the third to lead", |s| s.is_leader).await;
    assert!(now.term > term);
    let stale = members[2].propose_in(term, "stale".to_owned()).await;
    assert!(matches!(stale, Err(ProposeError::NotLeader { .. })), "{stale:?}");
    members[2].propose_in(now.term, "current".to_owned()).await.unwrap();
    until_word(&members[0], "current").await;
    assert!(!members[0].state().borrow().contains("stale"));
    for raft in &members {
        stop(raft, &mesh).await;
    }
}

/// A directory in place of the snapshot file simulates any reason why a snapshot can't be written,
/// such as a full disk. The test first blocks a snapshot that a member makes, and then a snapshot
/// that a learner receives.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_that_cannot_be_written_ends_no_member_and_is_tried_again() {
    let (dir, mesh) = (tempfile::tempdir().unwrap(), Mesh::default());
    let mut cfg = config(dir.path(), 1);
    (cfg.timing.snapshot_every, cfg.timing.keep) = (20, 5);
    let (first, _) = founder_with(cfg, &mesh).await;
    let snapshot = |id: u64| dir.path().join(format!("raft-{id}/snapshot"));
    std::fs::create_dir(snapshot(1)).unwrap();
    for n in 0..60 {
        first.propose(format!("w{n}")).await.unwrap();
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    first.propose("it still works".to_owned()).await.unwrap();
    std::fs::remove_dir(snapshot(1)).unwrap();
    let written = async {
        while !snapshot(1).is_file() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(LONG, written).await.expect("a snapshot is written");
    for n in 60..100 {
        first.propose(format!("w{n}")).await.unwrap();
    }
    let (second, _) = start(config(dir.path(), 2), &mesh).await;
    std::fs::create_dir(snapshot(2)).unwrap();
    first.add_learner(RaftId(2), address(2)).await.unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(second.status().borrow().running, "{:?}", *second.status().borrow());
    std::fs::remove_dir(snapshot(2)).unwrap();
    until_word(&second, "w99").await;
    for raft in [&first, &second] {
        stop(raft, &mesh).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_learner_gets_a_snapshot_is_told_so_becomes_a_voter_and_leaves_again() {
    let (dir, mesh) = (tempfile::tempdir().unwrap(), Mesh::default());
    let mut cfg = config(dir.path(), 1);
    cfg.timing.snapshot_every = 20;
    cfg.timing.keep = 5;
    let (first, _) = founder_with(cfg, &mesh).await;
    for n in 0..60 {
        first.propose(format!("w{n}")).await.unwrap();
    }
    let (second, mut heard) = start(config(dir.path(), 2), &mesh).await;
    first.add_learner(RaftId(2), address(2)).await.unwrap();
    first.add_learner(RaftId(2), address(2)).await.unwrap();
    until_word(&second, "w59").await;
    // `Resync` announces the entries that the snapshot replaces. No other entry is skipped.
    let Some(News::Resync { index }) = heard.recv().await else { panic!("entries were skipped without a resync") };
    let from: Vec<u64> = second.state().borrow().words.keys().copied().filter(|at| *at > index).collect();
    for at in from {
        assert_eq!(next_applied(&mut heard).await.index, at);
    }
    assert!(mesh.count("snapshot") > 0);
    assert_eq!(second.state().borrow().words, first.state().borrow().words);
    until_status(&first, "the learner to catch up", |s| s.matched.get(&RaftId(2)).copied() == s.last_log).await;

    let unknown = first.set_voters([RaftId(1), RaftId(7)].into()).await;
    assert!(matches!(unknown, Err(MemberError::Refused { .. })), "{unknown:?}");
    assert!(matches!(first.set_voters(BTreeSet::new()).await, Err(MemberError::Refused { .. })));
    change_voters(&first, &[1, 2]).await;
    until_status(&second, "two voters", |s| s.voters.len() == 2 && s.learners.is_empty() && !s.joint).await;
    change_voters(&first, &[1]).await;
    until_status(&first, "one voter", |s| s.voters.len() == 1 && s.members_committed).await;
    stop(&second, &mesh).await;
    first.propose("alone".to_owned()).await.unwrap();
    stop(&first, &mesh).await;

    let (first, _) = start(config(dir.path(), 1), &mesh).await;
    assert!(first.state().borrow().contains("w0") && first.state().borrow().contains("alone"));
    stop(&first, &mesh).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_learner_that_never_came_is_removed_and_two_changes_at_once_are_refused() {
    let (dir, mesh) = (tempfile::tempdir().unwrap(), Mesh::default());
    let (first, _) = founder(dir.path(), &mesh).await;
    first.add_learner(RaftId(5), address(5)).await.unwrap();
    {
        let _held = first.inner.change.lock().await;
        assert_eq!(first.remove_learner(RaftId(5)).await, Err(MemberError::InFlight));
    }
    first.remove_learner(RaftId(5)).await.unwrap();
    until_status(&first, "no learner", |s| s.learners.is_empty()).await;
    stop(&first, &mesh).await;
}

/// A member with Raft id 1 in epoch 1. Its incarnations are stored in `dir`.
fn local_member(dir: &Path) -> wire::LocalMember {
    let lives = IncarnationTable::begin(dir, LogMark::default(), Arc::default()).unwrap();
    wire::LocalMember { cluster: "c1".into(), epoch: Epoch(1), id: RaftId(1), incarnations: Arc::new(lives) }
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for file in std::fs::read_dir(from).unwrap().flatten() {
        std::fs::copy(file.path(), to.join(file.file_name())).unwrap();
    }
}

/// A leader must not trust the log position that a member with an older directory reports. openraft
/// stops if a follower has less log than before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_answers_of_a_directory_that_was_put_back_count_for_nothing() {
    let (dir, mesh) = (tempfile::tempdir().unwrap(), Mesh::default());
    let members = three_voters(dir.path(), &mesh).await;
    let (home, older) = (dir.path().join("raft-3"), dir.path().join("older"));
    members[0].propose("in the copy".to_owned()).await.unwrap();
    until_word(&members[2], "in the copy").await;
    stop(&members[2], &mesh).await;
    copy(&home, &older);
    let (third, _) = start(config(dir.path(), 3), &mesh).await;
    members[0].propose("forgotten".to_owned()).await.unwrap();
    until_word(&third, "forgotten").await;
    assert!(members[0].refusals().is_empty(), "a restart alone is accepted");
    stop(&third, &mesh).await;
    std::fs::rename(&home, dir.path().join("newer")).unwrap();
    copy(&older, &home);

    let (third, _) = start(config(dir.path(), 3), &mesh).await;
    let refused = tokio::time::timeout(LONG, async {
        loop {
            match members[0].refusals().get(&RaftId(3)) {
                Some((why, _)) => return why.clone(),
                None => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    });
    assert_eq!(refused.await.unwrap(), RejectedIncarnation::Cloned { number: 2 }.to_string());
    // The layers above this folder judge the requests of a member with an older directory, because
    // they know the caller.
    let claim = members[1].sender(&third.claim(RaftId(0)).unwrap()).unwrap();
    assert!(members[1].admit(&claim).await.is_ok(), "it never spoke to the second one");
    let claim = members[0].sender(&third.claim(RaftId(0)).unwrap()).unwrap();
    assert!(matches!(members[0].admit(&claim).await, Err(RaftError::StaleIncarnation { id: RaftId(3), .. })));
    members[0].propose("by two".to_owned()).await.unwrap();
    let matched = members[0].status().borrow().matched.get(&RaftId(3)).copied();
    // Only the member with the older directory is still connected to the leader. Its answers do not
    // count, so there is no majority.
    mesh.cut_off(2);
    assert!(members[0].propose("by one".to_owned()).await.is_err());
    assert_eq!(members[0].status().borrow().matched.get(&RaftId(3)).copied(), matched);
    stop(&third, &mesh).await;
    std::fs::remove_dir_all(&home).unwrap();
    std::fs::rename(dir.path().join("newer"), &home).unwrap();
    let (third, _) = start(config(dir.path(), 3), &mesh).await;
    propose_somewhere(&[members[0].clone(), third.clone()], "with what it had").await;
    for raft in [&members[0], &members[1], &third] {
        stop(raft, &mesh).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_for_another_log_are_refused_before_they_are_looked_at() {
    let (dir, mesh) = (tempfile::tempdir().unwrap(), Mesh::default());
    let (raft, _) = start(config(dir.path(), 2), &mesh).await;
    let us = local_member(dir.path());
    let good = us.address(RaftId(2));
    let bodies = |address: &wire::MessageAddress| wire::request(address, &"not a vote request", &[]).unwrap();
    for kind in ["append", "vote", "pre-vote", "snapshot", "transfer"] {
        let refusal = |address: wire::MessageAddress| {
            let (raft, body) = (raft.clone(), bodies(&address));
            async move { raft.handle(kind, body).await.unwrap_err() }
        };
        let target = refusal(wire::MessageAddress { to: RaftId(3), ..good.clone() }).await;
        assert!(matches!(target, RaftError::WrongTarget { found: RaftId(3), ours: RaftId(2) }), "{target:?}");
        let cluster = refusal(wire::MessageAddress { cluster: "c2".into(), ..good.clone() }).await;
        assert!(matches!(cluster, RaftError::WrongCluster { .. }), "{cluster:?}");
        let epoch = refusal(wire::MessageAddress { epoch: Epoch(2), ..good.clone() }).await;
        assert!(matches!(epoch, RaftError::WrongEpoch { .. }), "{epoch:?}");
        let sender = refusal(wire::MessageAddress { from: RaftId(2), ..good.clone() }).await;
        assert!(matches!(sender, RaftError::WrongSender { .. }), "{sender:?}");
        let body = refusal(good.clone()).await;
        assert!(matches!(body, RaftError::BadMessage { .. }), "{body:?}");
    }
    assert_eq!(sender_of(&bodies(&good)).unwrap(), good);
    for bad in [vec![], vec![9, 1, 2], vec![1]] {
        assert!(matches!(raft.handle("vote", bad).await, Err(RaftError::BadMessage { .. })));
    }
    assert!(matches!(raft.handle("votes", bodies(&good)).await, Err(RaftError::BadMessage { .. })));
    stop(&raft, &mesh).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_disk_under_an_old_id_is_never_fed_the_old_log() {
    // A voter's disk is wiped, and its machine comes back as Raft id 4 at the same address.
    let (dir, mesh) = (tempfile::tempdir().unwrap(), Mesh::default());
    let members = three_voters(dir.path(), &mesh).await;
    stop(&members[2], &mesh).await;
    let (fresh, _) = start(config(dir.path(), 4), &mesh).await;
    mesh.members.lock().unwrap().insert(RaftId(3), fresh.clone());
    let before = mesh.count("append");
    members[0].propose("with two".to_owned()).await.unwrap();
    let reached = tokio::time::timeout(LONG, async {
        while mesh.count("append") < before + 20 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    reached.await.unwrap();
    assert_eq!(fresh.status().borrow().last_log, None);
    assert_eq!(fresh.state().borrow().words.len(), 0);
    for raft in [&members[0], &members[1], &fresh] {
        raft.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_survivor_founds_the_cluster_anew_with_all_it_has_and_the_former_members_are_refused() {
    let (dir, mesh) = (tempfile::tempdir().unwrap(), Mesh::default());
    let members = three_voters(dir.path(), &mesh).await;
    let mut index = 0;
    for n in 0..5 {
        index = members[0].propose(format!("w{n}")).await.unwrap().0;
    }
    // Two of three members are lost. The survivor possibly does not know that the last entry was
    // committed.
    until_status(&members[1], "the last entry", |s| s.last_log >= Some(index)).await;
    for raft in &members {
        stop(raft, &mesh).await;
    }
    let old = config(dir.path(), 2);
    let last = last_state::<Words>(&old).await.unwrap();
    assert!(last.state.contains("w4") && last.index >= index);
    let new = RaftConfig { dir: dir.path().join("anew"), epoch: Epoch(2), ..old.clone() };
    seed(&new, address(2), last.clone()).unwrap();
    assert!(matches!(seed(&new, address(2), last.clone()), Err(RaftError::InitializeRefused { .. })));

    let (raft, _) = start(new, &mesh).await;
    assert_eq!(*raft.state().borrow().clone(), last.state);
    let status = until_status(&raft, "leading alone", |s| s.is_leader).await;
    assert_eq!(status.voters.keys().copied().collect::<Vec<_>>(), [RaftId(2)]);
    let (next, _) = raft.propose("anew".to_owned()).await.unwrap();
    assert!(next > last.index);
    let stale = local_member(&dir.path().join("raft-1"));
    let body = wire::request(&stale.address(RaftId(2)), &"", &[]).unwrap();
    assert!(matches!(raft.handle("append", body).await, Err(RaftError::WrongEpoch { .. })));

    let (joiner, _) = start(RaftConfig { epoch: Epoch(2), ..config(dir.path(), 9) }, &mesh).await;
    raft.add_learner(RaftId(9), address(9)).await.unwrap();
    until_word(&joiner, "anew").await;
    assert!(joiner.state().borrow().contains("w0"));
    stop(&joiner, &mesh).await;
    stop(&raft, &mesh).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_that_cannot_be_written_stops_the_member_and_confirms_nothing() {
    let (dir, mesh) = (tempfile::tempdir().unwrap(), Mesh::default());
    let (raft, _) = founder(dir.path(), &mesh).await;
    raft.propose("kept".to_owned()).await.unwrap();
    raft.inner.log.close().await;
    let answer = raft.propose("lost".to_owned()).await;
    assert!(matches!(answer, Err(ProposeError::Unknown { .. })), "{answer:?}");
    let status = until_status(&raft, "the stop", |s| !s.running).await;
    assert!(!status.is_leader && status.stopped.is_some(), "{status:?}");
    assert!(matches!(raft.linearizable().await, Err(ReadError::Stopped { .. })));
    assert!(!raft.state().borrow().contains("lost"));
    stop(&raft, &mesh).await;
}

/// A removed member learns of its removal from the answers to its messages. A voter that does not
/// know of its removal continues to request votes, and any member can identify it by its claim.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_removed_voter_that_was_not_told_asks_for_votes_and_can_say_who_it_is() {
    let (dir, mesh) = (tempfile::tempdir().unwrap(), Mesh::default());
    let members = three_voters(dir.path(), &mesh).await;
    mesh.cut_off(3);
    change_voters(&members[0], &[1, 2]).await;
    members[0].propose("without the third".to_owned()).await.unwrap();
    mesh.heal();
    let before = mesh.count("pre-vote");
    tokio::time::timeout(LONG, async {
        while mesh.count("pre-vote") <= before || members[2].time_without_leader() <= members[1].time_without_leader() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await
    .expect("only the third asks for votes, and hears no leader");
    assert!(!members[2].state().borrow().contains("without the third"));
    let claim = members[2].claim(RaftId(0)).unwrap();
    assert_eq!(members[0].sender(&claim).unwrap().from, RaftId(3));
    // A claim that names a target is answered only by that target.
    let claim_to = |id| members[2].claim(RaftId(id)).unwrap();
    assert_eq!(members[0].sender(&claim_to(1)).unwrap().from, RaftId(3));
    assert!(matches!(members[0].sender(&claim_to(2)), Err(RaftError::WrongTarget { .. })));
    assert!(
        matches!(members[0].handle("claim", claim).await, Err(RaftError::BadMessage { .. })),
        "a claim is not a message for the log"
    );
    let (other, _) = start(RaftConfig { epoch: Epoch(2), ..config(dir.path(), 9) }, &mesh).await;
    assert!(matches!(members[0].sender(&other.claim(RaftId(0)).unwrap()), Err(RaftError::WrongEpoch { .. })));
    stop(&other, &mesh).await;
    for raft in &members {
        stop(raft, &mesh).await;
    }
}
