//! Tests of the whole folder: a small state machine, and members that exchange bytes through
//! memory.

mod cluster;
mod corruption;
mod leaders;
mod storage;
mod versions;

use super::{
    AppliedEntry, BoxFuture, MemberError, News, ProposeError, Raft, RaftConfig, RaftError, RaftStatus, RaftTiming,
    StateMachine, Transport, TransportError,
};
use remoor_model::{ClusterId, Epoch, RaftId};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::mpsc;

/// A timeout longer than any step of these tests takes on a busy machine.
const LONG: Duration = Duration::from_secs(180);

/// A state machine that remembers every word and its log index.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Words {
    words: BTreeMap<u64, String>,
}

impl StateMachine for Words {
    type Entry = String;
    type Applied = usize;
    fn apply(&mut self, index: u64, entry: &String) -> usize {
        self.words.insert(index, entry.clone());
        self.words.len()
    }
}

impl Words {
    fn contains(&self, word: &str) -> bool {
        self.words.values().any(|w| w == word)
    }
}

fn config(dir: &Path, id: u64) -> RaftConfig {
    RaftConfig {
        dir: dir.join(format!("raft-{id}")),
        id: RaftId(id),
        cluster: ClusterId::from("c1"),
        epoch: Epoch(1),
        timing: RaftTiming::default(),
    }
}

/// The members by id, and the pairs that cannot communicate.
#[derive(Clone, Default)]
struct Mesh {
    members: Arc<Mutex<BTreeMap<RaftId, Raft<Words>>>>,
    cut: Arc<Mutex<BTreeSet<(RaftId, RaftId)>>>,
    counts: Arc<Mutex<BTreeMap<&'static str, usize>>>,
    /// The time that each message and each answer takes.
    delay: Arc<Mutex<Duration>>,
}

impl Mesh {
    fn cut_off(&self, id: u64) {
        let ids: Vec<_> = self.members.lock().unwrap().keys().copied().collect();
        let mut cut = self.cut.lock().unwrap();
        for other in ids.into_iter().filter(|other| *other != RaftId(id)) {
            cut.insert((RaftId(id), other));
            cut.insert((other, RaftId(id)));
        }
    }

    fn heal(&self) {
        self.cut.lock().unwrap().clear();
    }

    fn count(&self, kind: &str) -> usize {
        self.counts.lock().unwrap().get(kind).copied().unwrap_or(0)
    }
}

/// The transport of one member. It sends to the other members of the simulated network.
struct Wire {
    from: RaftId,
    mesh: Mesh,
}

impl Transport for Wire {
    fn send(
        &self,
        target: RaftId,
        addr: String,
        kind: &'static str,
        body: Vec<u8>,
    ) -> BoxFuture<'static, Result<Vec<u8>, TransportError>> {
        assert_eq!(addr, address(target.0));
        let (from, mesh) = (self.from, self.mesh.clone());
        Box::pin(async move {
            *mesh.counts.lock().unwrap().entry(kind).or_default() += 1;
            let delay = *mesh.delay.lock().unwrap();
            tokio::time::sleep(delay).await;
            if mesh.cut.lock().unwrap().contains(&(from, target)) {
                return Err(TransportError::Unreachable("cut".to_owned()));
            }
            let member = mesh.members.lock().unwrap().get(&target).cloned();
            let member = member.ok_or_else(|| TransportError::Unreachable("down".to_owned()))?;
            let answer = member.handle(kind, body).await.map_err(|e| TransportError::Refused(e.to_string()));
            tokio::time::sleep(delay).await;
            answer
        })
    }
}

fn address(id: u64) -> String {
    format!("m{id}:7000")
}

async fn start(cfg: RaftConfig, mesh: &Mesh) -> (Raft<Words>, mpsc::UnboundedReceiver<News<Words>>) {
    let id = cfg.id;
    let wire = Arc::new(Wire { from: id, mesh: mesh.clone() });
    let (raft, feed) = Raft::start(cfg, wire).await.unwrap();
    mesh.members.lock().unwrap().insert(id, raft.clone());
    (raft, feed)
}

/// The next entry of a feed.
async fn next_applied(feed: &mut mpsc::UnboundedReceiver<News<Words>>) -> AppliedEntry<Words> {
    match feed.recv().await {
        Some(News::Applied(entry)) => entry,
        Some(News::Resync { index }) => panic!("a snapshot up to {index} in the place of an entry"),
        None => panic!("the feed ended"),
    }
}

async fn stop(raft: &Raft<Words>, mesh: &Mesh) {
    let id = raft.status().borrow().id;
    mesh.members.lock().unwrap().remove(&id);
    raft.shutdown().await;
}

async fn until_status(raft: &Raft<Words>, what: &str, wanted: impl FnMut(&RaftStatus) -> bool) -> RaftStatus {
    let mut status = raft.status();
    match tokio::time::timeout(LONG, status.wait_for(wanted)).await {
        Ok(Ok(status)) => status.clone(),
        other => {
            let other = other.map(|r| r.map(|s| s.clone()));
            panic!("waiting for {what}: {other:?}, {:?}", *raft.status().borrow())
        }
    }
}

async fn until_word(raft: &Raft<Words>, word: &str) {
    let mut state = raft.state();
    let seen = tokio::time::timeout(LONG, state.wait_for(|s| s.contains(word))).await;
    assert!(matches!(seen, Ok(Ok(_))), "{word} never arrived");
}

/// A founder that leads as the only member.
async fn founder(dir: &Path, mesh: &Mesh) -> (Raft<Words>, mpsc::UnboundedReceiver<News<Words>>) {
    founder_with(config(dir, 1), mesh).await
}

async fn founder_with(cfg: RaftConfig, mesh: &Mesh) -> (Raft<Words>, mpsc::UnboundedReceiver<News<Words>>) {
    let (raft, feed) = start(cfg, mesh).await;
    raft.initialize(address(1)).await.unwrap();
    until_status(&raft, "the founder to lead", |s| s.is_leader).await;
    (raft, feed)
}

/// Changes the voters. Repeats the change while the previous one is still being committed.
async fn change_voters(leader: &Raft<Words>, voters: &[u64]) {
    let voters: BTreeSet<RaftId> = voters.iter().copied().map(RaftId).collect();
    let change = async {
        while let Err(error) = leader.set_voters(voters.clone()).await {
            assert!(matches!(error, MemberError::InFlight), "{error}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(LONG, change).await.expect("the voters to change");
}

/// Three voters, of which the first leads.
async fn three_voters(dir: &Path, mesh: &Mesh) -> Vec<Raft<Words>> {
    let (first, _) = founder(dir, mesh).await;
    let mut members = vec![first.clone()];
    for id in [2, 3] {
        members.push(start(config(dir, id), mesh).await.0);
        first.add_learner(RaftId(id), address(id)).await.unwrap();
    }
    change_voters(&first, &[1, 2, 3]).await;
    for raft in &members {
        until_status(raft, "three voters", |s| s.voters.len() == 3 && !s.joint && s.leader == Some(RaftId(1))).await;
    }
    members
}

/// Proposes at one member after the other until the leader accepts. If the outcome of a proposal is
/// unknown, it is proposed again.
async fn propose_somewhere(members: &[Raft<Words>], word: &str) -> u64 {
    let tried = tokio::time::timeout(LONG, async {
        loop {
            for raft in members {
                match raft.propose(word.to_owned()).await {
                    Ok((index, _)) => return index,
                    Err(ProposeError::NotLeader { .. } | ProposeError::Unknown { .. }) => {}
                }
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    tried.await.unwrap_or_else(|_| panic!("no member accepted {word}"))
}

fn refused_naming(error: &RaftError, file: &Path) {
    let text = error.to_string();
    assert!(text.contains(&file.display().to_string()), "{text}");
    assert!(file.exists(), "{} is gone", file.display());
}
