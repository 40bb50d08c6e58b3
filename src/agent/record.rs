//! The agent's persistent record: its boot id, its instance, and its number of isolations.
//!
//! The record is on disk before gossip sends it. So the managers can learn afterwards of an
//! isolation that no other node could observe.

use crate::telemetry::PANIC_EXIT;
use remoor_host::disk::{DiskError, StoredFile, atomic_write, read_or_rename_damaged};
use remoor_model::{AgentRecord, BootId, Instance, Isolation, Wall, error_with_causes};
use std::path::{Path, PathBuf};

/// Name of the file that says how the last process of the agent ended. It is in the directory of
/// the record. The content is `$SERVICE_RESULT $EXIT_CODE $EXIT_STATUS` of systemd.exec(5). The
/// unit's `ExecStopPost` writes the file only if it does not exist, because failed starts may
/// follow. The next instance reads and removes the file.
const ENDED: &str = "ended";
/// Name of the file with the message of a process that panicked. The next instance reads and
/// removes the file.
pub const LAST_WORDS: &str = "panic";
/// Maximum number of characters that are reported from systemd's record or from a panic message.
const WORDS_MAX: usize = 300;

pub struct RecordKeeper {
    path: PathBuf,
    record: AgentRecord,
    /// The reason why the present record is not on disk, for example a full disk.
    unsaved: Option<String>,
}

impl RecordKeeper {
    /// Starts a new instance. If the file of the record is damaged, it is renamed, and the new
    /// record shows this. It is then unknown how the previous instance ended and how many
    /// isolations there were.
    ///
    /// If the record can't be saved, the agent starts nevertheless, because a node with a full disk
    /// must still be watched. After the next start, the managers then do not learn how this
    /// instance ended.
    pub fn begin(path: PathBuf, boot: BootId, instance: Instance, now: Wall) -> Result<Self, DiskError> {
        let how = how_it_ended(&path);
        let record = match read_or_rename_damaged::<AgentRecord>(&path)? {
            StoredFile::Whole(before) => next(Some(before), how, boot, instance, now),
            StoredFile::Missing => next(None, None, boot, instance, now),
            StoredFile::Damaged(_) => AgentRecord {
                damaged: Some(now),
                previous_end: Some("left a damaged record".to_owned()),
                ..next(None, None, boot, instance, now)
            },
        };
        let mut keeper = Self { path, record, unsaved: None };
        if let Err(error) = keeper.save() {
            let error = &error as &dyn std::error::Error;
            tracing::error!(
                error,
                "the agent's record could not be saved, and the agent starts without it; next: make space on the disk \
                 of this machine"
            );
            return Ok(keeper);
        }
        for name in [ENDED, LAST_WORDS] {
            let _was_there = std::fs::remove_file(keeper.path.with_file_name(name));
        }
        Ok(keeper)
    }

    pub fn record(&self) -> &AgentRecord {
        &self.record
    }

    /// The reason why the last attempt to save the record failed. None if the record is on disk.
    pub fn save_error(&self) -> Option<&str> {
        self.unsaved.as_deref()
    }

    /// Saves the record if the last attempt failed. Returns true if this attempt succeeds.
    pub fn retry_save(&mut self) -> bool {
        self.unsaved.is_some() && self.save().is_ok()
    }

    /// Begins an isolation, because all peers are lost. The increased count of isolations is on
    /// disk before gossip sends it.
    pub fn begin_isolation(&mut self, peers_lost: u32, now: Wall) -> Result<(), DiskError> {
        self.record.isolation += 1;
        self.record.last_isolation = Some(Isolation { from: now, to: None, peers_lost });
        self.save()
    }

    /// Ends an isolation, because a peer is in gossip again.
    pub fn end_isolation(&mut self, now: Wall) -> Result<(), DiskError> {
        match &mut self.record.last_isolation {
            Some(episode) if episode.to.is_none() => episode.to = Some(now),
            _ => return Ok(()),
        }
        self.save()
    }

    /// Records a regular end of the agent. It must be called before gossip sends the goodbye.
    pub fn goodbye(&mut self) -> Result<(), DiskError> {
        self.record.previous_end = Some("leaving".to_owned());
        self.save()
    }

    fn save(&mut self) -> Result<(), DiskError> {
        let bytes = serde_json::to_vec_pretty(&self.record).unwrap_or_default();
        let saved = atomic_write(&self.path, &bytes, 0o600);
        self.unsaved = saved.as_ref().err().map(|error| error_with_causes(error));
        saved
    }
}

/// The reason for the end of the previous instance, from systemd's record or the panic message of
/// that instance. None if both are missing. A panic message may also come from a later start that
/// failed. So the message counts only if systemd recorded the exit code of a panic, or if systemd
/// recorded nothing.
fn how_it_ended(record: &Path) -> Option<String> {
    let read = |name| std::fs::read(record.with_file_name(name)).ok();
    let shown = |c: char| if c.is_control() { ' ' } else { c };
    let told =
        |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).trim().chars().take(WORDS_MAX).map(shown).collect::<String>();
    let panicked = read(LAST_WORDS).map(told).map(|words| format!("panicked {words}"));
    let Some(ended) = read(ENDED).map(told) else { return panicked };
    let mut words = ended.split(' ');
    match (words.next()?, words.next()?, words.next()?) {
        (_, "exited", code) if panicked.is_some() && code == PANIC_EXIT.to_string() => panicked,
        ("oom-kill", ..) => Some("killed by the kernel: out of memory".to_owned()),
        ("watchdog", ..) => Some("killed by systemd's watchdog".to_owned()),
        (_, "killed" | "dumped", signal) => Some(format!("ended by signal {signal}")),
        (_, "exited", code) => Some(format!("exited with {code}, without an announcement")),
        _ => None,
    }
}

fn next(before: Option<AgentRecord>, how: Option<String>, boot: BootId, instance: Instance, now: Wall) -> AgentRecord {
    let fresh = AgentRecord { boot: boot.clone(), instance, started: now, starts: 1, ..AgentRecord::default() };
    let Some(before) = before else { return fresh };
    let left = before.previous_end.as_deref() == Some("leaving");
    let same_boot = before.boot == boot;
    let end = match (left, same_boot) {
        (true, _) => "announced its end".to_owned(),
        (false, true) => how.unwrap_or_else(|| "ended without an announcement".to_owned()),
        (false, false) => "ended with its boot".to_owned(),
    };
    let last_isolation = before.last_isolation.map(|mut episode| {
        episode.to = episode.to.or(Some(now));
        episode
    });
    AgentRecord {
        isolation: before.isolation,
        last_isolation,
        previous_end: Some(end),
        left,
        crashes: before.crashes + u32::from(!left && same_boot),
        damaged: before.damaged,
        starts: before.starts.saturating_add(1),
        ..fresh
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begin(dir: &tempfile::TempDir, boot: &str, instance: &str, at: u64) -> RecordKeeper {
        RecordKeeper::begin(dir.path().join("agent.json"), boot.into(), instance.into(), Wall(at)).expect("a record")
    }

    #[test]
    fn an_agent_begins_on_a_full_disk_and_saves_its_record_later() {
        let dir = tempfile::tempdir().expect("a folder");
        // A missing folder simulates any reason why a file can't be written.
        let home = dir.path().join("home");
        let path = home.join("agent.json");
        let mut keeper = RecordKeeper::begin(path.clone(), "b".into(), "i1".into(), Wall(1)).expect("it begins");
        assert!(keeper.save_error().is_some_and(|why| why.contains("agent.json")), "{:?}", keeper.save_error());
        assert!(!keeper.retry_save());
        std::fs::create_dir(&home).expect("made");
        assert!(keeper.retry_save() && keeper.save_error().is_none() && path.exists());
        assert!(!keeper.retry_save(), "it is saved already");
    }

    #[test]
    fn a_restart_without_goodbye_is_a_crash_and_one_with_it_is_not() {
        let dir = tempfile::tempdir().expect("a folder");
        begin(&dir, "boot-1", "a", 1);
        let mut second = begin(&dir, "boot-1", "b", 2);
        assert_eq!((second.record().crashes, second.record().left), (1, false));
        second.goodbye().expect("saved");
        let third = begin(&dir, "boot-1", "c", 3);
        assert_eq!((third.record().crashes, third.record().left, third.record().starts), (1, true, 3));
        let rebooted = begin(&dir, "boot-2", "d", 4);
        assert_eq!((rebooted.record().crashes, rebooted.record().left), (1, false));
        assert_eq!(rebooted.record().previous_end.as_deref(), Some("ended with its boot"));
    }

    #[test]
    fn how_an_instance_ended_is_told_once_where_systemd_or_its_last_words_tell() {
        let dir = tempfile::tempdir().expect("a folder");
        let say = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).expect("written");
        let told = |of: &RecordKeeper| of.record().previous_end.clone().expect("an end");
        begin(&dir, "boot-1", "a", 1);
        say(ENDED, "signal killed KILL\n");
        assert_eq!(told(&begin(&dir, "boot-1", "b", 2)), "ended by signal KILL");
        assert_eq!(told(&begin(&dir, "boot-1", "c", 3)), "ended without an announcement", "`ended` was for instance a");
        say(ENDED, "oom-kill killed KILL\n");
        assert_eq!(told(&begin(&dir, "boot-1", "d", 4)), "killed by the kernel: out of memory");
        say(ENDED, "exit-code exited 70\n");
        say(LAST_WORDS, "at src/x.rs:1: no such thing\n");
        assert_eq!(told(&begin(&dir, "boot-1", "e", 5)), "panicked at src/x.rs:1: no such thing");
        say(ENDED, "oom-kill killed KILL\n");
        say(LAST_WORDS, "at src/y.rs:2: of a start that failed\n");
        let ended = told(&begin(&dir, "boot-1", "e", 5));
        assert_eq!(ended, "killed by the kernel: out of memory", "the first that ended is the one before");
        say(LAST_WORDS, "at src/z.rs:3: without systemd\n");
        assert_eq!(told(&begin(&dir, "boot-1", "e", 5)), "panicked at src/z.rs:3: without systemd");
        say(ENDED, "exit-code exited 5\n");
        let mut sixth = begin(&dir, "boot-1", "f", 6);
        assert_eq!(told(&sixth), "exited with 5, without an announcement");
        sixth.goodbye().expect("saved");
        say(ENDED, "success exited 0\n");
        assert_eq!(told(&begin(&dir, "boot-1", "g", 7)), "announced its end");
        say(ENDED, "nonsense\n");
        assert_eq!(told(&begin(&dir, "boot-1", "h", 8)), "ended without an announcement");
        say(ENDED, "signal killed KILL\n");
        assert_eq!(told(&begin(&dir, "boot-2", "i", 9)), "ended with its boot");
    }

    #[test]
    fn episodes_of_isolation_outlive_the_instance() {
        let dir = tempfile::tempdir().expect("a folder");
        let mut first = begin(&dir, "boot-1", "a", 1);
        first.begin_isolation(4, Wall(10)).expect("saved");
        let second = begin(&dir, "boot-1", "b", 50);
        assert_eq!(second.record().isolation, 1);
        let episode = second.record().last_isolation.clone().expect("an episode");
        assert_eq!((episode.peers_lost, episode.to), (4, Some(Wall(50))));
    }

    #[test]
    fn a_damaged_record_is_kept_aside_and_told_of_ever_after() {
        let dir = tempfile::tempdir().expect("a folder");
        std::fs::write(dir.path().join("agent.json"), b"{ half").expect("written");
        let mut first = begin(&dir, "boot-1", "a", 1);
        assert_eq!((first.record().crashes, first.record().damaged), (0, Some(Wall(1))));
        assert_eq!(std::fs::read(dir.path().join("agent.json.damaged")).expect("kept"), b"{ half");
        first.goodbye().expect("saved");
        assert_eq!(begin(&dir, "boot-1", "b", 2).record().damaged, Some(Wall(1)));
    }
}
