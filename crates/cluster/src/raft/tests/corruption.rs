//! Damaged or foreign files are rejected with an error that names the file, and are left unchanged.

use super::*;
use crate::raft::{begin_log, writer};
use std::path::PathBuf;

/// Writes the files of a stopped founder: a snapshot, a log that was purged up to it, and some
/// later entries.
async fn write_files(dir: &Path) -> (PathBuf, PathBuf) {
    let mesh = Mesh::default();
    let mut cfg = config(dir, 1);
    cfg.timing.snapshot_every = 10;
    cfg.timing.keep = 2;
    let (log, snapshot) = (cfg.dir.join("log.redb"), cfg.dir.join("snapshot"));
    let (raft, _) = founder_with(cfg, &mesh).await;
    for n in 0..30 {
        raft.propose(format!("a word of some length, number {n:04}")).await.unwrap();
    }
    let seen = tokio::time::timeout(LONG, async {
        while !snapshot.exists() || raft.inner.log.last_purged().is_none() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    seen.await.unwrap();
    stop(&raft, &mesh).await;
    (log, snapshot)
}

async fn open_again(cfg: RaftConfig) -> Result<(), RaftError> {
    let mesh = Mesh::default();
    let wire = Arc::new(Wire { from: cfg.id, mesh: mesh.clone() });
    let (raft, _) = Raft::<Words>::start(cfg, wire).await?;
    raft.shutdown().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_snapshot_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (_, snapshot) = write_files(dir.path()).await;
    let good = std::fs::read(&snapshot).unwrap();
    for at in [0, 20, 60, good.len() / 2, good.len() - 1] {
        let mut bad = good.clone();
        bad[at] ^= 0x20;
        std::fs::write(&snapshot, &bad).unwrap();
        let error = open_again(config(dir.path(), 1)).await.unwrap_err();
        assert!(matches!(error, RaftError::Corrupt { .. }), "byte {at}: {error:?}");
        refused_naming(&error, &snapshot);
        assert_eq!(std::fs::read(&snapshot).unwrap(), bad);
    }
    let newer = [&b"remoor snapshot 2"[..], &good[17..]].concat();
    std::fs::write(&snapshot, &newer).unwrap();
    let error = open_again(config(dir.path(), 1)).await.unwrap_err().to_string();
    assert!(error.contains("install the newer program"), "{error}");
    std::fs::write(&snapshot, &good[..good.len() - 7]).unwrap();
    assert!(matches!(open_again(config(dir.path(), 1)).await, Err(RaftError::Corrupt { .. })));
    std::fs::write(&snapshot, &good).unwrap();
    open_again(config(dir.path(), 1)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_snapshot_or_log_is_refused_when_the_other_file_is_there() {
    let dir = tempfile::tempdir().unwrap();
    let (log, snapshot) = write_files(dir.path()).await;
    let aside = dir.path().join("aside");
    std::fs::rename(&snapshot, &aside).unwrap();
    let error = open_again(config(dir.path(), 1)).await.unwrap_err();
    assert!(error.to_string().contains(&snapshot.display().to_string()), "{error}");
    std::fs::rename(&aside, &snapshot).unwrap();
    std::fs::remove_file(&log).unwrap();
    let error = open_again(config(dir.path(), 1)).await.unwrap_err();
    assert!(error.to_string().contains(&log.display().to_string()), "{error}");
    assert!(!log.exists(), "no new log next to an old snapshot");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_log_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (log, _) = write_files(dir.path()).await;
    let good = std::fs::read(&log).unwrap();
    // The damaged bytes are in the middle of a stored entry. The database does not detect such
    // damage by itself.
    let word = b"a word of some length, number 0029";
    let places: Vec<_> = (0..good.len() - word.len()).filter(|at| good[*at..].starts_with(word)).collect();
    assert!(!places.is_empty());
    let mut flipped = good.clone();
    for at in &places {
        flipped[at + 3] ^= 1;
    }
    for (what, bad) in [("flipped", &flipped[..]), ("empty", &[]), ("not a database", b"hello"), ("cut", &good[..5000])]
    {
        std::fs::write(&log, bad).unwrap();
        let error = open_again(config(dir.path(), 1)).await.unwrap_err();
        assert!(matches!(error, RaftError::Corrupt { .. } | RaftError::Database { .. }), "{what}: {error:?}");
        refused_naming(&error, &log);
    }
    std::fs::write(&log, &good).unwrap();
    open_again(config(dir.path(), 1)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_of_another_member_cluster_or_epoch_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    write_files(dir.path()).await;
    let good = config(dir.path(), 1);
    for other in [
        RaftConfig { id: RaftId(2), ..good.clone() },
        RaftConfig { cluster: "c2".into(), ..good.clone() },
        RaftConfig { epoch: Epoch(2), ..good.clone() },
    ] {
        let error = open_again(other).await.unwrap_err();
        assert!(matches!(error, RaftError::Foreign { .. }), "{error:?}");
    }
    open_again(good).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_damaged_byte_anywhere_is_refused_or_does_no_harm() {
    let dir = tempfile::tempdir().unwrap();
    let (log, _) = write_files(dir.path()).await;
    let good = std::fs::read(&log).unwrap();
    let content = |log: &Path| writer::open(log).map(|(_, stored)| (stored.log, stored.meta));
    let wanted = content(&log).unwrap();
    let used = good.iter().rposition(|b| *b != 0).unwrap();
    let (mut refused, mut harmless) = (0, 0);
    // Damage the header in small steps, the rest in steps that reach every page.
    for at in (0..400).step_by(9).chain((400..used).step_by(2047)) {
        let mut bad = good.clone();
        bad[at] ^= 0x55;
        std::fs::write(&log, bad).unwrap();
        match content(&log) {
            Err(error) => {
                refused_naming(&error, &log);
                refused += 1;
            }
            Ok(found) => {
                let same = found.0.len() == wanted.0.len() && found.1.len() == wanted.1.len();
                assert!(same, "byte {at} lost data silently");
                harmless += 1;
            }
        }
    }
    assert!(refused > 0 && harmless > 0, "{refused} refused, {harmless} harmless");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_acknowledged_is_in_the_files_as_a_crash_would_leave_them() {
    let (dir, mesh) = (tempfile::tempdir().unwrap(), Mesh::default());
    let (raft, _) = founder(dir.path(), &mesh).await;
    for n in 0..10 {
        raft.propose(format!("w{n}")).await.unwrap();
    }
    let crashed = dir.path().join("crashed");
    std::fs::create_dir_all(crashed.join("raft-1")).unwrap();
    // No file is closed or flushed before the copy. So the copy contains only the data that an
    // acknowledgement guarantees.
    std::fs::copy(dir.path().join("raft-1/log.redb"), crashed.join("raft-1/log.redb")).unwrap();
    stop(&raft, &mesh).await;
    let (raft, _) = start(config(&crashed, 1), &mesh).await;
    for n in 0..10 {
        until_word(&raft, &format!("w{n}")).await;
    }
    stop(&raft, &mesh).await;
}

#[test]
fn a_log_is_begun_once() {
    let dir = tempfile::tempdir().unwrap();
    let cfg = config(dir.path(), 2);
    let file = cfg.dir.join("log.redb");
    begin_log(&cfg, false).unwrap();
    begin_log(&cfg, true).unwrap();
    std::fs::remove_file(&file).unwrap();
    let founder = RaftConfig { id: RaftId(1), ..cfg.clone() };
    for (cfg, begun) in [(&cfg, true), (&founder, false)] {
        let error = begin_log(cfg, begun).unwrap_err();
        assert!(matches!(&error, RaftError::Gone { file: gone, .. } if *gone == file), "{error}");
        assert!(!file.exists(), "rejected, and nothing created");
    }
    std::fs::write(cfg.dir.join("snapshot"), "of a log that was there").unwrap();
    assert!(matches!(begin_log(&cfg, false), Err(RaftError::Gone { .. })));
}
