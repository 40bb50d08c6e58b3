//! Detects members that run from a copied or outdated data directory. Such a directory starts
//! normally, but its member would vote twice in a term or forget entries that it has acknowledged.
//!
//! Each start of a member is an incarnation. It has a number, one more than the previous
//! incarnation's, and a nonce; both are on disk before the first message. Every message and answer
//! carries them, together with two log marks: what the log held when it was opened, and what it
//! holds durably now (the term of its last vote, and its last entry that is committed and synced).
//! On an intact directory neither mark ever decreases. For each Raft id, the other members keep the
//! last incarnation that they met and the highest durable mark that it reported. They reject
//! - the same number with another nonce, or a successor of another nonce: one directory became two,
//! - a lower number: the directory is an older copy,
//! - a later incarnation that began with less than the previous one had reported: also an older
//!   copy, however often it was started meanwhile.
//!
//! A peer with outdated knowledge may accept a cloned directory as the successor. If the original
//! then proves that it holds more log than the clone started with, the peer accepts the original
//! again and rejects the clone.
//!
//! A member asks the others at its start, before it takes part. Answers are checked like requests,
//! so a leader does not count a rejected follower's acknowledgements.
//!
//! Not detected:
//! - No running member has met the later incarnation, because all managers, or all but absent ones,
//!   were restored together. Then everything decided since the copy is lost, and no node can
//!   notice.
//! - An entry that was acknowledged in the last moments and not yet reported as committed; and what
//!   the peers themselves recorded last, if they stop at once: marks are written every few seconds,
//!   incarnations at once.
//! - A machine whose memory is restored with its disk continues in the same incarnation.
//! - A copy of a member that has reported nothing new since holds as much as the original. Of the
//!   two, the one started last continues and the other is rejected. Gossip stops both if their
//!   addresses differ.

use super::error::RaftError;
use super::record;
use remoor_host::disk::{DiskError, atomic_write};
use remoor_host::wall_clock::now;
use remoor_model::{RaftId, Wall};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::Mutex;

/// Maximum members remembered, which is more than a cluster has. Beyond it, those with the lowest
/// ids are forgotten first.
const PEERS_MAX: usize = 64;
/// A message of the previous incarnation within this time after the first message of the next one
/// was probably in flight.
const LATE_MS: u64 = 1_000;

/// A position in a log that a disk holds durably: the term of the last vote, and a committed entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LogMark {
    pub term: u64,
    pub index: u64,
}

impl LogMark {
    fn is_behind(self, other: Self) -> bool {
        self.term < other.term || self.index < other.index
    }

    fn max_with(self, other: Self) -> Self {
        Self { term: self.term.max(other.term), index: self.index.max(other.index) }
    }
}

/// One start of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Incarnation {
    /// Starts at 1.
    pub number: u64,
    pub nonce: u64,
    /// Nonce of the previous incarnation; 0 if there was none.
    #[serde(rename = "after")]
    pub previous_nonce: u64,
    /// The term of the last vote and the last entry, committed or not, when the log was opened.
    #[serde(rename = "born")]
    pub log_at_start: LogMark,
}

/// What a member sends about itself with each message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct IncarnationClaim {
    #[serde(rename = "life")]
    pub incarnation: Incarnation,
    #[serde(rename = "kept")]
    pub durable_log: LogMark,
}

/// Why a member is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RejectedIncarnation {
    /// The number or the predecessor of this incarnation is that of another known incarnation.
    Cloned { number: u64 },
    /// A later incarnation is known.
    Older { number: u64, known: u64 },
    /// It began with less log than the previous incarnation had reported.
    RolledBack {
        number: u64,
        known: u64,
        /// The log at the start of incarnation `number`.
        log_at_start: LogMark,
        /// The log that incarnation `known` had reported.
        told: LogMark,
    },
}

impl std::fmt::Display for RejectedIncarnation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Cloned { number } => {
                write!(f, "its start {number} differs from the known one: there are two copies of its data directory")
            }
            Self::Older { number, known } => {
                write!(f, "it reports start {number}, but start {known} is known: its data directory is an older copy")
            }
            Self::RolledBack { number, known, log_at_start: born, told } => write!(
                f,
                "start {number} began with entry {} and term {}, but start {known} had reported entry {} and term {}: \
                 its data directory is an older copy",
                born.index, born.term, told.index, told.term
            ),
        }
    }
}

/// The rejection of a member, as known to the other members.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IncarnationRejection {
    pub reason: RejectedIncarnation,
    /// When the accepted incarnation was first met.
    pub since: Wall,
}

/// The log mark that the log itself knows to be durable. It never decreases.
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

/// The last accepted incarnation of another member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct KnownIncarnation {
    number: u64,
    nonce: u64,
    since: Wall,
    #[serde(rename = "told")]
    reported_log: LogMark,
    /// The log at its start. None if an earlier program recorded it, which did not store this.
    #[serde(default, rename = "born")]
    log_at_start: Option<LogMark>,
    /// Nonce of the incarnation before it; None for the same reason.
    #[serde(default, rename = "after")]
    previous_nonce: Option<u64>,
}

impl KnownIncarnation {
    fn judge(&self, claim: &IncarnationClaim) -> Result<(), RejectedIncarnation> {
        let Incarnation { number, nonce, previous_nonce: after, log_at_start: born } = claim.incarnation;
        let known = self.number;
        if number < known {
            return Err(RejectedIncarnation::Older { number, known });
        }
        if (number == known && nonce != self.nonce) || (number == known.saturating_add(1) && after != self.nonce) {
            return Err(RejectedIncarnation::Cloned { number });
        }
        if number > known && born.is_behind(self.reported_log) {
            return Err(RejectedIncarnation::RolledBack { number, known, log_at_start: born, told: self.reported_log });
        }
        Ok(())
    }

    /// Whether a claim of the direct predecessor refutes this incarnation: it began with less than
    /// the predecessor holds durably, although it would have started from the predecessor's disk.
    /// Claims of other earlier incarnations prove nothing: a restored directory receives new terms
    /// and entries from a leader before any member has judged it.
    fn is_refuted_by(&self, claim: &IncarnationClaim) -> bool {
        let parent = self.number == claim.incarnation.number.saturating_add(1)
            && self.previous_nonce == Some(claim.incarnation.nonce);
        parent && self.log_at_start.is_some_and(|born| born.is_behind(claim.durable_log))
    }
}

/// This member's own incarnation, and those of the other members.
pub struct IncarnationTable {
    path: PathBuf,
    incarnation: Incarnation,
    durable_log: Arc<DurableLogMark>,
    known: Mutex<BTreeMap<RaftId, KnownIncarnation>>,
    /// The part of `seen` that is on disk.
    saved: Mutex<BTreeMap<RaftId, KnownIncarnation>>,
    rejected: std::sync::Mutex<BTreeMap<RaftId, IncarnationRejection>>,
}

impl IncarnationTable {
    /// Begins an incarnation of the member whose log is in `dir`. `born` is what the log held when
    /// it was opened. The incarnation is on disk when this returns. Blocks.
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

    /// Checks the claim of `from`. If it is rejected, the error is `Stale`. When this returns for
    /// the first message of a new incarnation, that is on disk. A member with an earlier program
    /// sends no claim and is accepted.
    pub async fn check_claim(&self, from: RaftId, claim: Option<IncarnationClaim>) -> Result<(), RaftError> {
        let Some(claim) = claim else { return Ok(()) };
        let mut seen = self.known.lock().await;
        let known = seen.get(&from).copied();
        let belied = known.is_some_and(|known| known.is_refuted_by(&claim));
        if let Some(known) = known.filter(|_| !belied)
            && let Err(stale) = known.judge(&claim)
        {
            let refused = IncarnationRejection { reason: stale, since: known.since };
            // The last messages of the previous incarnation may arrive after the first one of the
            // next.
            let late = matches!(stale, RejectedIncarnation::Older { .. }) && now().ms_since(known.since) < LATE_MS;
            if !late && self.rejections_mut().insert(from, refused).map(|before| before.reason) != Some(stale) {
                tracing::error!(raft = %from, %stale, "manager rejected");
            }
            return Err(RaftError::StaleIncarnation { id: from, refused });
        }
        self.rejections_mut().remove(&from);
        let Incarnation { number, nonce, log_at_start: born, previous_nonce: after } = claim.incarnation;
        match seen.get_mut(&from).filter(|known| known.number == number) {
            Some(known) => known.reported_log = known.reported_log.max_with(claim.durable_log),
            None => {
                // A refuted copy's reports do not apply to the original.
                let before = known.filter(|_| !belied).map_or(LogMark::default(), |k| k.reported_log);
                let told = before.max_with(initial_mark(born, claim.durable_log));
                seen.insert(
                    from,
                    KnownIncarnation {
                        number,
                        nonce,
                        since: now(),
                        reported_log: told,
                        log_at_start: Some(born),
                        previous_nonce: Some(after),
                    },
                );
                while seen.len() > PEERS_MAX {
                    seen.pop_first();
                }
                drop(seen);
                self.save().await;
            }
        }
        Ok(())
    }

    /// Saves the reported log marks of the other members if they changed; occasional calls suffice.
    /// If the disk is full, this member forgets them at its next start, but rejects nobody for it.
    /// A message waits for the disk only if it is the first of an incarnation.
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

/// The mark of a new incarnation. Entries that were not committed when the log was opened may still
/// be truncated, so they do not count.
fn initial_mark(born: LogMark, kept: LogMark) -> LogMark {
    LogMark { term: born.term.max(kept.term), index: kept.index }
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
        // A copy of the first incarnation: as the second one, and as the third after a second one
        // that no member met.
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
        // Incarnations that ended before any member met them.
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
        // The original continues, but m1 had not received its report when the copy came.
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
        // Entries that were not committed at its start may have been truncated since.
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

    fn make_claim(number: u64, nonce: u64, after: u64, born: LogMark, kept: LogMark) -> IncarnationClaim {
        let incarnation = Incarnation { number, nonce, previous_nonce: after, log_at_start: born };
        IncarnationClaim { incarnation, durable_log: kept }
    }

    #[tokio::test]
    async fn each_claim_is_judged_by_the_last_start_that_is_known() {
        let (born, kept, more) = (mark(2, 20), mark(3, 30), mark(9, 99));
        let known = make_claim(5, 50, 40, born, kept);
        let behind = |number, born| {
            Some(RejectedIncarnation::RolledBack { number, known: 5, log_at_start: born, told: mark(3, 30) })
        };
        let cloned = |number| Some(RejectedIncarnation::Cloned { number });
        let older = |number| Some(RejectedIncarnation::Older { number, known: 5 });
        let rows = [
            ("the same start", make_claim(5, 50, 40, born, more), None),
            ("the same number of another start", make_claim(5, 51, 40, born, more), cloned(5)),
            ("the next start", make_claim(6, 60, 50, kept, kept), None),
            ("the next start of another one", make_claim(6, 60, 51, more, more), cloned(6)),
            ("the next start with an older term", make_claim(6, 60, 50, mark(2, 30), more), behind(6, mark(2, 30))),
            ("the next start with fewer entries", make_claim(6, 60, 50, mark(3, 29), more), behind(6, mark(3, 29))),
            ("a start after one that nobody met", make_claim(7, 70, 60, kept, kept), None),
            ("the same with fewer entries", make_claim(7, 70, 60, mark(3, 29), more), behind(7, mark(3, 29))),
            ("the start before, with no more log", make_claim(4, 40, 30, born, born), older(4)),
            ("the start before, which holds more entries", make_claim(4, 40, 30, born, mark(2, 21)), None),
            ("the start before, which holds a later vote", make_claim(4, 40, 30, born, mark(3, 0)), None),
            ("another start of that number", make_claim(4, 41, 30, born, more), older(4)),
            ("a start before that", make_claim(3, 30, 20, born, more), older(3)),
        ];
        for (what, claim, rejected) in rows {
            let home = tempfile::tempdir().expect("a folder");
            let m1 = begin(home.path(), mark(0, 0));
            m1.check_claim(M2, Some(known)).await.expect("new here");
            assert_eq!(stale(m1.check_claim(M2, Some(claim)).await), rejected, "{what}");
            // An older start may be a message that was in flight.
            let shown = rejected.filter(|why| !matches!(why, RejectedIncarnation::Older { .. }));
            assert_eq!(m1.rejections().get(&M2).map(|rejection| rejection.reason), shown, "{what}");
        }
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
