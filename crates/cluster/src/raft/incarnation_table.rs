//! Stores this member's own incarnation, and the last incarnations of the other members. It decides
//! nothing: [`crate::incarnation`] judges the incarnations.

use super::error::RaftError;
use super::record;
use crate::incarnation::{
    Incarnation, IncarnationClaim, IncarnationRejection, KnownIncarnation, LogMark, judge_incarnation,
};
use remoor_host::disk::{DiskError, atomic_write};
use remoor_host::wall_clock::now;
use remoor_model::RaftId;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::Mutex;

/// Maximum remembered members. A cluster has fewer. Beyond it, the members with the lowest ids are
/// forgotten first.
const PEERS_MAX: usize = 64;

/// The log mark that the log has confirmed as durable. It never decreases.
#[derive(Debug, Default)]
pub struct DurableLogMark {
    term: AtomicU64,
    index: AtomicU64,
}

impl DurableLogMark {
    /// Records that a vote of this term is on disk.
    pub fn record_term(&self, term: u64) {
        self.term.fetch_max(term, Ordering::AcqRel);
    }

    /// Records that everything up to this entry is committed and on disk.
    pub fn record_index(&self, index: u64) {
        self.index.fetch_max(index, Ordering::AcqRel);
    }

    fn mark(&self) -> LogMark {
        LogMark { term: self.term.load(Ordering::Acquire), index: self.index.load(Ordering::Acquire) }
    }
}

/// This member's own incarnation, and the incarnations of the other members.
pub struct IncarnationTable {
    path: PathBuf,
    incarnation: Incarnation,
    durable_log: Arc<DurableLogMark>,
    known: Mutex<BTreeMap<RaftId, KnownIncarnation>>,
    /// The part of `known` that is on disk.
    saved: Mutex<BTreeMap<RaftId, KnownIncarnation>>,
    rejected: std::sync::Mutex<BTreeMap<RaftId, IncarnationRejection>>,
}

impl IncarnationTable {
    /// Begins an incarnation of the member whose log is in `dir`. `born` is the mark of the log
    /// when it was opened. The incarnation is on disk when this returns. Blocks.
    pub fn begin(dir: &Path, born: LogMark, kept: Arc<DurableLogMark>) -> Result<Self, RaftError> {
        let (own, path) = (dir.join("life"), dir.join("lives"));
        let (last, after) = read::<(u64, u64)>(&own)?.unwrap_or((0, 0));
        let seen: BTreeMap<RaftId, KnownIncarnation> = read(&path)?.unwrap_or_default();
        let noted = Mutex::new(seen.clone());
        let mut random = [0; 8];
        getrandom::fill(&mut random)
            .map_err(|e| DiskError::io("drawing a nonce for", &own)(std::io::Error::other(e.to_string())))?;
        let life = Incarnation {
            number: last.saturating_add(1),
            nonce: u64::from_le_bytes(random).max(1),
            previous_nonce: after,
            log_at_start: born,
        };
        write(&own, &(life.number, life.nonce))?;
        Ok(Self {
            path,
            incarnation: life,
            durable_log: kept,
            known: Mutex::new(seen),
            saved: noted,
            rejected: std::sync::Mutex::default(),
        })
    }

    /// The current claim of this member.
    pub fn claim(&self) -> IncarnationClaim {
        IncarnationClaim { incarnation: self.incarnation, durable_log: self.durable_log.mark() }
    }

    /// Checks the claim of `from`. If the claim is rejected, the error is `StaleIncarnation`. If
    /// the message is the first of a new incarnation, the incarnation is on disk when this returns.
    /// A member with an earlier program sends no claim and is accepted.
    pub async fn check_claim(&self, from: RaftId, claim: Option<IncarnationClaim>) -> Result<(), RaftError> {
        let Some(claim) = claim else { return Ok(()) };
        let (mut seen, now) = (self.known.lock().await, now());
        let before = seen.get(&from).copied();
        match judge_incarnation(before, &claim, now) {
            Err(refused) => {
                let stale = refused.reason;
                if !refused.may_be_late(now)
                    && self.rejections_mut().insert(from, refused).map(|before| before.reason) != Some(stale)
                {
                    tracing::error!(raft = %from, %stale, "manager rejected");
                }
                Err(RaftError::StaleIncarnation { id: from, refused })
            }
            Ok(known) => {
                self.rejections_mut().remove(&from);
                seen.insert(from, known);
                if before.is_none_or(|before| before.number != known.number) {
                    while seen.len() > PEERS_MAX {
                        seen.pop_first();
                    }
                    drop(seen);
                    self.save().await;
                }
                Ok(())
            }
        }
    }

    /// Saves the reported log marks of the other members if they changed. Occasional calls suffice.
    /// If the disk is full, this member forgets the marks at its next start, but rejects no member
    /// because of that. A message waits for the disk only if it is the first of an incarnation.
    pub async fn save(&self) {
        let mut noted = self.saved.lock().await;
        let seen = self.known.lock().await.clone();
        if *noted == seen {
            return;
        }
        let (path, now) = (self.path.clone(), seen.clone());
        match tokio::task::spawn_blocking(move || write(&path, &now)).await {
            Ok(Ok(())) => *noted = seen,
            Ok(Err(error)) => tracing::warn!(%error, "incarnations of other managers could not be saved"),
            Err(_) => {}
        }
    }

    /// Members that were rejected and have not sent an acceptable claim since.
    pub fn rejections(&self) -> BTreeMap<RaftId, IncarnationRejection> {
        self.rejections_mut().clone()
    }

    fn rejections_mut(&self) -> std::sync::MutexGuard<'_, BTreeMap<RaftId, IncarnationRejection>> {
        self.rejected.lock().unwrap_or_else(|p| p.into_inner())
    }
}

fn read<T: serde::de::DeserializeOwned>(path: &Path) -> Result<Option<T>, RaftError> {
    match std::fs::read(path) {
        Ok(bytes) => record::decode(&bytes).map(Some).map_err(|why| record::record_error(path, why)),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(DiskError::io("reading", path)(e).into()),
    }
}

fn write<T: Serialize>(path: &Path, value: &T) -> Result<(), DiskError> {
    let bytes = record::encode(value).map_err(DiskError::io("encoding", path))?;
    atomic_write(path, &bytes, 0o600)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::incarnation::RejectedIncarnation;

    const M2: RaftId = RaftId(2);

    fn mark(term: u64, index: u64) -> LogMark {
        LogMark { term, index }
    }

    fn begin(dir: &Path, born: LogMark) -> IncarnationTable {
        IncarnationTable::begin(dir, born, Arc::default()).expect("a life")
    }

    fn stale(met: Result<(), RaftError>) -> Option<RejectedIncarnation> {
        met.err().map(|error| match error {
            RaftError::StaleIncarnation { refused, .. } => refused.reason,
            other => panic!("{other}"),
        })
    }

    fn copy(from: &Path, to: &Path) {
        std::fs::create_dir_all(to).expect("made");
        std::fs::copy(from.join("life"), to.join("life")).expect("copied");
    }

    #[tokio::test]
    async fn a_life_is_followed_by_the_next_and_by_no_other() {
        let top = tempfile::tempdir().expect("a folder");
        let at = |name: &str| {
            let path = top.path().join(name);
            std::fs::create_dir_all(&path).expect("made");
            path
        };
        let (own, other, m1) = (at("own"), at("copy"), begin(&at("m1"), mark(0, 0)));
        m1.check_claim(M2, None).await.expect("an earlier program");
        let first = begin(&own, mark(0, 0));
        m1.check_claim(M2, Some(first.claim())).await.expect("new here");
        copy(&own, &other);
        let second = begin(&own, mark(0, 0));
        m1.check_claim(M2, Some(second.claim())).await.expect("started again");
        assert_eq!(
            stale(m1.check_claim(M2, Some(first.claim())).await),
            Some(RejectedIncarnation::Older { number: 1, known: 2 })
        );
        // A copy of the first incarnation's directory starts twice. Its second and its third
        // incarnation are rejected, because their nonces do not follow the known second
        // incarnation.
        let copied = begin(&other, mark(0, 0));
        assert_eq!(
            stale(m1.check_claim(M2, Some(copied.claim())).await),
            Some(RejectedIncarnation::Cloned { number: 2 })
        );
        assert_eq!(m1.rejections().keys().copied().collect::<Vec<_>>(), [M2]);
        let again = begin(&other, mark(0, 0));
        assert_eq!(
            stale(m1.check_claim(M2, Some(again.claim())).await),
            Some(RejectedIncarnation::Cloned { number: 3 })
        );
        m1.check_claim(M2, Some(second.claim())).await.expect("the original continues");
        assert!(m1.rejections().is_empty());
        // Three incarnations end before any member meets them.
        for _ in 0..3 {
            begin(&own, mark(0, 0));
        }
        m1.check_claim(M2, Some(begin(&own, mark(0, 0)).claim())).await.expect("started again");
    }

    #[tokio::test]
    async fn an_older_copy_that_was_taken_for_the_next_life_does_not_shut_out_the_original() {
        let top = tempfile::tempdir().expect("a folder");
        let (own, other, home) = (top.path().join("own"), top.path().join("copy"), top.path().join("m1"));
        for path in [&own, &home] {
            std::fs::create_dir(path).expect("made");
        }
        let m1 = begin(&home, mark(0, 0));
        let kept = Arc::new(DurableLogMark::default());
        kept.record_term(2);
        kept.record_index(38);
        let original = IncarnationTable::begin(&own, mark(2, 38), kept.clone()).expect("a life");
        m1.check_claim(M2, Some(original.claim())).await.expect("new here");
        copy(&own, &other);
        // The original continues. But it had reported no newer log mark to m1 when the copy
        // started.
        let copied = begin(&other, mark(2, 38));
        m1.check_claim(M2, Some(copied.claim())).await.expect("as far as m1 knows it was started again");
        assert!(
            matches!(stale(m1.check_claim(M2, Some(original.claim())).await), Some(RejectedIncarnation::Older { .. })),
            "nothing distinguishes them"
        );
        kept.record_index(42);
        m1.check_claim(M2, Some(original.claim())).await.expect("it holds more than the copy began with");
        let refused = stale(m1.check_claim(M2, Some(copied.claim())).await);
        assert!(matches!(refused, Some(RejectedIncarnation::RolledBack { .. })), "{refused:?}");
        m1.check_claim(M2, Some(original.claim())).await.expect("the original continues");
        m1.check_claim(M2, Some(begin(&own, mark(2, 42)).claim())).await.expect("and is started again");
    }

    #[tokio::test]
    async fn an_older_directory_that_a_leader_has_filled_meanwhile_is_refused_all_the_same() {
        let top = tempfile::tempdir().expect("a folder");
        let (own, older, home) = (top.path().join("own"), top.path().join("older"), top.path().join("m1"));
        for path in [&own, &home] {
            std::fs::create_dir(path).expect("made");
        }
        let m1 = begin(&home, mark(0, 0));
        m1.check_claim(M2, Some(begin(&own, mark(3, 30)).claim())).await.expect("new here");
        copy(&own, &older);
        for _ in 0..2 {
            m1.check_claim(M2, Some(begin(&own, mark(4, 40)).claim())).await.expect("started again");
        }
        let kept = Arc::new(DurableLogMark::default());
        let back = IncarnationTable::begin(&older, mark(3, 30), kept.clone()).expect("a life");
        kept.record_term(6);
        kept.record_index(60);
        let refused = stale(m1.check_claim(M2, Some(back.claim())).await);
        assert_eq!(refused, Some(RejectedIncarnation::Older { number: 2, known: 3 }));
    }

    #[tokio::test]
    async fn who_comes_back_with_less_than_it_told_of_is_refused_however_often_it_started() {
        let top = tempfile::tempdir().expect("a folder");
        let (own, home) = (top.path().join("own"), top.path().join("m1"));
        for path in [&own, &home] {
            std::fs::create_dir(path).expect("made");
        }
        let m1 = begin(&home, mark(0, 0));
        let kept = Arc::new(DurableLogMark::default());
        let life = IncarnationTable::begin(&own, mark(3, 40), kept.clone()).expect("a life");
        kept.record_term(3);
        kept.record_index(38);
        m1.check_claim(M2, Some(life.claim())).await.expect("new here");
        // The log mark at the start counts entries that were not committed. They may have been
        // truncated since that start. So the next incarnation is accepted although its log is
        // shorter.
        m1.check_claim(M2, Some(begin(&own, mark(3, 38)).claim())).await.expect("nothing is missing");
        let life = IncarnationTable::begin(&own, mark(3, 38), kept.clone()).expect("a life");
        kept.record_term(5);
        kept.record_index(90);
        m1.check_claim(M2, Some(life.claim())).await.expect("it continues");
        m1.save().await;
        drop(m1);
        let m1 = begin(&home, mark(0, 0));
        for born in [mark(5, 89), mark(4, 90), mark(3, 38)] {
            let claim = begin(&own, born).claim();
            let (number, known, told) = (claim.incarnation.number, 3, mark(5, 90));
            let wanted = RejectedIncarnation::RolledBack { number, known, log_at_start: born, told };
            assert_eq!(
                stale(m1.check_claim(M2, Some(claim)).await),
                Some(wanted),
                "also after a restart of the judging member"
            );
        }
        m1.check_claim(M2, Some(begin(&own, mark(5, 90)).claim())).await.expect("all is there");
    }

    #[test]
    fn a_damaged_life_is_refused_and_left_alone() {
        let top = tempfile::tempdir().expect("a folder");
        begin(top.path(), mark(0, 0));
        for name in ["life", "lives"] {
            std::fs::write(top.path().join(name), "x").expect("written");
            let error = IncarnationTable::begin(top.path(), mark(0, 0), Arc::default()).err().expect("refused");
            assert!(matches!(&error, RaftError::Corrupt { path, .. } if path.ends_with(name)), "{error}");
            std::fs::remove_file(top.path().join(name)).expect("removed");
        }
    }
}
