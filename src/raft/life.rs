//! Whether a member is who it was. A data directory that is copied, or put back as a whole from an older copy, starts as if
//! nothing had happened, and would vote twice in a term or forget entries that it has acknowledged.
//!
//! Each start of a member is a life: it has a number, one more than the life before, and a nonce, on disk before the first
//! message. Every message and every answer carries them, with what the log held when it was opened and what it holds for
//! ever by now: the term of its last vote, and its last entry that is committed and synced. Neither ever gets less on a
//! directory that is whole. The others keep, per Raft id, the last life that they met and the most that it told of, and refuse
//! - the same number with another nonce, or a next life that follows another nonce: two directories that were one,
//! - a lower number: the directory is an older copy,
//! - a later life that began with less than the life before had told of: the same, however often it was started meanwhile.
//!
//! Where one of them took a copy's life for the next one, since it had been told less, the life before goes on as soon as it shows
//! that it holds more than the copy began with; then the copy is the one that is refused.
//!
//! A member asks the others at its start, before it takes part. An answer counts as little as a message, so a leader does not
//! take a refused follower's word for what that one has.
//!
//! What is not noticed:
//! - Where nobody who is up has met the later life: after all managers, or all but those that were away, were put back together.
//!   Then what was decided since is lost as if it had never been, and nothing in the cluster can tell.
//! - An entry that was acknowledged in the last moments and not yet told as committed; and what the others themselves noted
//!   last, if they end at once: marks are written every few seconds, lives at once.
//! - A machine whose memory is put back with its disk goes on in the same life.
//! - A copy of a member that has told nothing new since holds as much as the original: of the two, the one that was started
//!   last goes on, and the other is refused. Gossip ends both where their addresses differ.

use super::error::RaftError;
use super::record;
use crate::disk::{DiskError, atomic_write};
use crate::model::{RaftId, Wall};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;
use tokio::sync::Mutex;

/// More members than a cluster has; of former ones those with the lowest ids are forgotten first.
const PEERS_MAX: usize = 64;
/// A message of an earlier life that comes so soon after the first one of the next was on its way then.
const LATE_MS: u64 = 1_000;

/// What a disk holds for ever: a term of a vote, and a committed entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Mark {
    pub term: u64,
    pub index: u64,
}

impl Mark {
    fn lacks_of(self, other: Self) -> bool {
        self.term < other.term || self.index < other.index
    }

    fn or(self, other: Self) -> Self {
        Self { term: self.term.max(other.term), index: self.index.max(other.index) }
    }
}

/// One start of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Life {
    /// From 1.
    pub number: u64,
    pub nonce: u64,
    /// Nonce of the life before; 0: there was none.
    pub after: u64,
    /// The term of the last vote and the last entry, committed or not, when the log was opened.
    pub born: Mark,
}

/// What a member says of itself with each message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    pub life: Life,
    pub kept: Mark,
}

/// Why a member is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stale {
    /// Another life of the same number, or after the same one, was met.
    Copy { number: u64 },
    /// A later life was met.
    Older { number: u64, known: u64 },
    /// It began with less than the life before it had told of.
    Behind { number: u64, known: u64, born: Mark, told: Mark },
}

impl std::fmt::Display for Stale {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Copy { number } => {
                write!(f, "its start {number} is another one than is known: there are two copies of its data directory")
            }
            Self::Older { number, known } => {
                write!(
                    f,
                    "it comes with start {number}, and start {known} is known: its data directory is an older copy"
                )
            }
            Self::Behind { number, known, born, told } => write!(
                f,
                "start {number} began with entry {} and term {}, and start {known} had told of entry {} and term {}: \
                 its data directory is an older copy",
                born.index, born.term, told.index, told.term
            ),
        }
    }
}

/// One that was refused, as it is known to the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refused {
    pub stale: Stale,
    /// When the life that counts was first met.
    pub since: Wall,
}

/// What a log holds for ever, as the log itself knows; it never gets less.
#[derive(Debug, Default)]
pub struct Kept {
    term: AtomicU64,
    index: AtomicU64,
}

impl Kept {
    /// A vote of this term is on disk.
    pub fn term(&self, term: u64) {
        self.term.fetch_max(term, Ordering::AcqRel);
    }

    /// Everything up to this entry is committed and on disk.
    pub fn index(&self, index: u64) {
        self.index.fetch_max(index, Ordering::AcqRel);
    }

    fn mark(&self) -> Mark {
        Mark { term: self.term.load(Ordering::Acquire), index: self.index.load(Ordering::Acquire) }
    }
}

/// The last life of another member that was met.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Seen {
    number: u64,
    nonce: u64,
    since: Wall,
    told: Mark,
    /// What it began with; None: it was noted by an earlier program, which did not keep that.
    #[serde(default)]
    born: Option<Mark>,
    /// Nonce of the life before it; None likewise.
    #[serde(default)]
    after: Option<u64>,
}

impl Seen {
    fn judge(&self, claim: &Claim) -> Result<(), Stale> {
        let Life { number, nonce, after, born } = claim.life;
        let known = self.number;
        if number < known {
            return Err(Stale::Older { number, known });
        }
        if (number == known && nonce != self.nonce) || (number == known.saturating_add(1) && after != self.nonce) {
            return Err(Stale::Copy { number });
        }
        if number > known && born.lacks_of(self.told) {
            return Err(Stale::Behind { number, known, born, told: self.told });
        }
        Ok(())
    }

    /// Whether the very life that this one followed shows that it is of an older copy: it began with less than that one holds for
    /// ever, whose disk it would have begun with. Of any other earlier life that would say nothing: a directory that was put
    /// back takes new terms and entries from a leader before anybody has judged it.
    fn is_belied_by(&self, claim: &Claim) -> bool {
        let parent = self.number == claim.life.number.saturating_add(1) && self.after == Some(claim.life.nonce);
        parent && self.born.is_some_and(|born| born.lacks_of(claim.kept))
    }
}

/// This member's own life, and those of the others.
pub struct Lives {
    path: PathBuf,
    life: Life,
    kept: Arc<Kept>,
    seen: Mutex<BTreeMap<RaftId, Seen>>,
    /// What of it is on disk.
    noted: Mutex<BTreeMap<RaftId, Seen>>,
    refused: std::sync::Mutex<BTreeMap<RaftId, Refused>>,
}

impl Lives {
    /// Begins a life of the member whose log is in `dir` and held `born` when it was opened; on disk when this returns.
    /// Blocks.
    pub fn begin(dir: &Path, born: Mark, kept: Arc<Kept>) -> Result<Self, RaftError> {
        let (own, path) = (dir.join("life"), dir.join("lives"));
        let (last, after) = read::<(u64, u64)>(&own)?.unwrap_or((0, 0));
        let seen: BTreeMap<RaftId, Seen> = read(&path)?.unwrap_or_default();
        let noted = Mutex::new(seen.clone());
        let mut random = [0; 8];
        getrandom::fill(&mut random)
            .map_err(|e| DiskError::io("drawing a nonce for", &own)(std::io::Error::other(e.to_string())))?;
        let life = Life { number: last.saturating_add(1), nonce: u64::from_le_bytes(random).max(1), after, born };
        write(&own, &(life.number, life.nonce))?;
        Ok(Self { path, life, kept, seen: Mutex::new(seen), noted, refused: std::sync::Mutex::default() })
    }

    /// What this member says of itself now.
    pub fn claim(&self) -> Claim {
        Claim { life: self.life, kept: self.kept.mark() }
    }

    /// Whether `from` is who it was by what it says of itself; a new life is on disk when this returns for its first message. A
    /// member of an earlier program says nothing of itself, and is believed.
    pub async fn meet(&self, from: RaftId, claim: Option<Claim>) -> Result<(), RaftError> {
        let Some(claim) = claim else { return Ok(()) };
        let mut seen = self.seen.lock().await;
        let known = seen.get(&from).copied();
        let belied = known.is_some_and(|known| known.is_belied_by(&claim));
        if let Some(known) = known.filter(|_| !belied)
            && let Err(stale) = known.judge(&claim)
        {
            let refused = Refused { stale, since: known.since };
            // What the life before sent last may come after the next one's first message.
            let late = matches!(stale, Stale::Older { .. }) && now().since(known.since) < LATE_MS;
            if !late && self.refusals_mut().insert(from, refused).map(|before| before.stale) != Some(stale) {
                tracing::error!(raft = %from, %stale, "a manager is refused");
            }
            return Err(RaftError::Stale { id: from, refused });
        }
        self.refusals_mut().remove(&from);
        let Life { number, nonce, born, after } = claim.life;
        match seen.get_mut(&from).filter(|known| known.number == number) {
            Some(known) => known.told = known.told.or(claim.kept),
            None => {
                // What a copy told of is nothing to who was there before.
                let before = known.filter(|_| !belied).map_or(Mark::default(), |k| k.told);
                let told = before.or(born_of(born, claim.kept));
                seen.insert(from, Seen { number, nonce, since: now(), told, born: Some(born), after: Some(after) });
                while seen.len() > PEERS_MAX {
                    seen.pop_first();
                }
                drop(seen);
                self.note().await;
            }
        }
        Ok(())
    }

    /// Writes down how far the others have come, where that is more than is written; now and then is often enough. A full disk makes
    /// this member forgetful, and shuts nobody out. No message waits for the disk but the first of a life.
    pub async fn note(&self) {
        let mut noted = self.noted.lock().await;
        let seen = self.seen.lock().await.clone();
        if *noted == seen {
            return;
        }
        let (path, now) = (self.path.clone(), seen.clone());
        match tokio::task::spawn_blocking(move || write(&path, &now)).await {
            Ok(Ok(())) => *noted = seen,
            Ok(Err(error)) => tracing::warn!(%error, "the lives of other managers could not be noted"),
            Err(_) => {}
        }
    }

    /// Who was refused and has not come as who it was since.
    pub fn refusals(&self) -> BTreeMap<RaftId, Refused> {
        self.refusals_mut().clone()
    }

    fn refusals_mut(&self) -> std::sync::MutexGuard<'_, BTreeMap<RaftId, Refused>> {
        self.refused.lock().unwrap_or_else(|p| p.into_inner())
    }
}

/// Of a life that just began: what was not committed when the log was opened may still be taken back.
fn born_of(born: Mark, kept: Mark) -> Mark {
    Mark { term: born.term.max(kept.term), index: kept.index }
}

fn read<T: serde::de::DeserializeOwned>(path: &Path) -> Result<Option<T>, RaftError> {
    match std::fs::read(path) {
        Ok(bytes) => record::decode(&bytes).map(Some).map_err(|why| record::refused(path, why)),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(DiskError::io("reading", path)(e).into()),
    }
}

fn write<T: Serialize>(path: &Path, value: &T) -> Result<(), DiskError> {
    let bytes = record::encode(value).map_err(DiskError::io("encoding", path))?;
    atomic_write(path, &bytes, 0o600)
}

fn now() -> Wall {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Wall(since.as_millis() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const M2: RaftId = RaftId(2);

    fn mark(term: u64, index: u64) -> Mark {
        Mark { term, index }
    }

    fn begin(dir: &Path, born: Mark) -> Lives {
        Lives::begin(dir, born, Arc::default()).expect("a life")
    }

    fn stale(met: Result<(), RaftError>) -> Option<Stale> {
        met.err().map(|error| match error {
            RaftError::Stale { refused, .. } => refused.stale,
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
        m1.meet(M2, None).await.expect("an earlier program");
        let first = begin(&own, mark(0, 0));
        m1.meet(M2, Some(first.claim())).await.expect("new here");
        copy(&own, &other);
        let second = begin(&own, mark(0, 0));
        m1.meet(M2, Some(second.claim())).await.expect("started again");
        assert_eq!(stale(m1.meet(M2, Some(first.claim())).await), Some(Stale::Older { number: 1, known: 2 }));
        // A copy of the first life: as the second one, and as the third after a second one that nobody met.
        let copied = begin(&other, mark(0, 0));
        assert_eq!(stale(m1.meet(M2, Some(copied.claim())).await), Some(Stale::Copy { number: 2 }));
        assert_eq!(m1.refusals().keys().copied().collect::<Vec<_>>(), [M2]);
        let again = begin(&other, mark(0, 0));
        assert_eq!(stale(m1.meet(M2, Some(again.claim())).await), Some(Stale::Copy { number: 3 }));
        m1.meet(M2, Some(second.claim())).await.expect("the original goes on");
        assert!(m1.refusals().is_empty());
        // Lives that ended before anybody met them.
        for _ in 0..3 {
            begin(&own, mark(0, 0));
        }
        m1.meet(M2, Some(begin(&own, mark(0, 0)).claim())).await.expect("started again");
    }

    #[tokio::test]
    async fn an_older_copy_that_was_taken_for_the_next_life_does_not_shut_out_the_original() {
        let top = tempfile::tempdir().expect("a folder");
        let (own, other, home) = (top.path().join("own"), top.path().join("copy"), top.path().join("m1"));
        for path in [&own, &home] {
            std::fs::create_dir(path).expect("made");
        }
        let m1 = begin(&home, mark(0, 0));
        let kept = Arc::new(Kept::default());
        kept.term(2);
        kept.index(38);
        let original = Lives::begin(&own, mark(2, 38), kept.clone()).expect("a life");
        m1.meet(M2, Some(original.claim())).await.expect("new here");
        copy(&own, &other);
        // It goes on, and m1 was not told so before the copy came.
        let copied = begin(&other, mark(2, 38));
        m1.meet(M2, Some(copied.claim())).await.expect("as far as m1 knows it was started again");
        assert!(
            matches!(stale(m1.meet(M2, Some(original.claim())).await), Some(Stale::Older { .. })),
            "nothing tells them apart"
        );
        kept.index(42);
        m1.meet(M2, Some(original.claim())).await.expect("it holds what the copy did not begin with");
        let refused = stale(m1.meet(M2, Some(copied.claim())).await);
        assert!(matches!(refused, Some(Stale::Behind { .. })), "{refused:?}");
        m1.meet(M2, Some(original.claim())).await.expect("the original goes on");
        m1.meet(M2, Some(begin(&own, mark(2, 42)).claim())).await.expect("and is started again");
    }

    #[tokio::test]
    async fn an_older_directory_that_a_leader_has_filled_meanwhile_is_refused_all_the_same() {
        let top = tempfile::tempdir().expect("a folder");
        let (own, older, home) = (top.path().join("own"), top.path().join("older"), top.path().join("m1"));
        for path in [&own, &home] {
            std::fs::create_dir(path).expect("made");
        }
        let m1 = begin(&home, mark(0, 0));
        m1.meet(M2, Some(begin(&own, mark(3, 30)).claim())).await.expect("new here");
        copy(&own, &older);
        for _ in 0..2 {
            m1.meet(M2, Some(begin(&own, mark(4, 40)).claim())).await.expect("started again");
        }
        let kept = Arc::new(Kept::default());
        let back = Lives::begin(&older, mark(3, 30), kept.clone()).expect("a life");
        kept.term(6);
        kept.index(60);
        let refused = stale(m1.meet(M2, Some(back.claim())).await);
        assert_eq!(refused, Some(Stale::Older { number: 2, known: 3 }));
    }

    #[tokio::test]
    async fn who_comes_back_with_less_than_it_told_of_is_refused_however_often_it_started() {
        let top = tempfile::tempdir().expect("a folder");
        let (own, home) = (top.path().join("own"), top.path().join("m1"));
        for path in [&own, &home] {
            std::fs::create_dir(path).expect("made");
        }
        let m1 = begin(&home, mark(0, 0));
        let kept = Arc::new(Kept::default());
        let life = Lives::begin(&own, mark(3, 40), kept.clone()).expect("a life");
        kept.term(3);
        kept.index(38);
        m1.meet(M2, Some(life.claim())).await.expect("new here");
        // What was not committed when it began may have been taken back since.
        m1.meet(M2, Some(begin(&own, mark(3, 38)).claim())).await.expect("nothing is missing");
        let life = Lives::begin(&own, mark(3, 38), kept.clone()).expect("a life");
        kept.term(5);
        kept.index(90);
        m1.meet(M2, Some(life.claim())).await.expect("it goes on");
        m1.note().await;
        drop(m1);
        let m1 = begin(&home, mark(0, 0));
        for born in [mark(5, 89), mark(4, 90), mark(3, 38)] {
            let claim = begin(&own, born).claim();
            let (number, known, told) = (claim.life.number, 3, mark(5, 90));
            let wanted = Stale::Behind { number, known, born, told };
            assert_eq!(
                stale(m1.meet(M2, Some(claim)).await),
                Some(wanted),
                "also after a start of the one that judges"
            );
        }
        m1.meet(M2, Some(begin(&own, mark(5, 90)).claim())).await.expect("all is there");
    }

    #[test]
    fn a_damaged_life_is_refused_and_left_alone() {
        let top = tempfile::tempdir().expect("a folder");
        begin(top.path(), mark(0, 0));
        for name in ["life", "lives"] {
            std::fs::write(top.path().join(name), "x").expect("written");
            let error = Lives::begin(top.path(), mark(0, 0), Arc::default()).err().expect("refused");
            assert!(matches!(&error, RaftError::Corrupt { path, .. } if path.ends_with(name)), "{error}");
            std::fs::remove_file(top.path().join(name)).expect("removed");
        }
    }
}
