//! The agent's own persistent record: which boot and instance it is, and how often it was alone.
//!
//! Written before it is gossiped, so that what happened while nobody looked can be told afterwards.

use crate::disk::{DiskError, atomic_write};
use crate::model::{AgentRecord, BootId, Instance, Isolation, Wall};
use std::path::PathBuf;

pub struct RecordKeeper {
    path: PathBuf,
    record: AgentRecord,
}

impl RecordKeeper {
    /// Begins a new instance. `previous`: what the file held; a file that can't be read counts as none and is replaced.
    pub fn begin(path: PathBuf, boot: BootId, instance: Instance, now: Wall) -> Result<Self, DiskError> {
        let before = std::fs::read(&path).ok().and_then(|b| serde_json::from_slice::<AgentRecord>(&b).ok());
        let record = next(before, boot, instance, now);
        let keeper = Self { path, record };
        keeper.save()?;
        Ok(keeper)
    }

    pub fn record(&self) -> &AgentRecord {
        &self.record
    }

    /// All peers are lost: an episode begins. The counter is on disk before anybody is told.
    pub fn alone(&mut self, peers_lost: u32, now: Wall) -> Result<(), DiskError> {
        self.record.isolation += 1;
        self.record.last_isolation = Some(Isolation { from: now, to: None, peers_lost });
        self.save()
    }

    /// A peer is back.
    pub fn together(&mut self, now: Wall) -> Result<(), DiskError> {
        match &mut self.record.last_isolation {
            Some(episode) if episode.to.is_none() => episode.to = Some(now),
            _ => return Ok(()),
        }
        self.save()
    }

    /// Said before the goodbye is gossiped.
    pub fn goodbye(&mut self) -> Result<(), DiskError> {
        self.record.previous_end = Some("leaving".to_owned());
        self.save()
    }

    fn save(&self) -> Result<(), DiskError> {
        let bytes = serde_json::to_vec_pretty(&self.record).unwrap_or_default();
        atomic_write(&self.path, &bytes, 0o600)
    }
}

fn next(before: Option<AgentRecord>, boot: BootId, instance: Instance, now: Wall) -> AgentRecord {
    let fresh = AgentRecord { boot: boot.clone(), instance, started: now, ..AgentRecord::default() };
    let Some(before) = before else { return fresh };
    let left = before.previous_end.as_deref() == Some("leaving");
    let same_boot = before.boot == boot;
    let end = match (left, same_boot) {
        (true, _) => "said goodbye",
        (false, true) => "ended without a goodbye",
        (false, false) => "ended with its boot",
    };
    let last_isolation = before.last_isolation.map(|mut episode| {
        episode.to = episode.to.or(Some(now));
        episode
    });
    AgentRecord {
        isolation: before.isolation,
        last_isolation,
        previous_end: Some(end.to_owned()),
        left,
        crashes: before.crashes + u32::from(!left && same_boot),
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
    fn a_restart_without_goodbye_is_a_crash_and_one_with_it_is_not() {
        let dir = tempfile::tempdir().expect("a folder");
        begin(&dir, "boot-1", "a", 1);
        let mut second = begin(&dir, "boot-1", "b", 2);
        assert_eq!((second.record().crashes, second.record().left), (1, false));
        second.goodbye().expect("saved");
        let third = begin(&dir, "boot-1", "c", 3);
        assert_eq!((third.record().crashes, third.record().left), (1, true));
        let rebooted = begin(&dir, "boot-2", "d", 4);
        assert_eq!((rebooted.record().crashes, rebooted.record().left), (1, false));
        assert_eq!(rebooted.record().previous_end.as_deref(), Some("ended with its boot"));
    }

    #[test]
    fn episodes_of_isolation_outlive_the_instance() {
        let dir = tempfile::tempdir().expect("a folder");
        let mut first = begin(&dir, "boot-1", "a", 1);
        first.alone(4, Wall(10)).expect("saved");
        let second = begin(&dir, "boot-1", "b", 50);
        assert_eq!(second.record().isolation, 1);
        let episode = second.record().last_isolation.clone().expect("an episode");
        assert_eq!((episode.peers_lost, episode.to), (4, Some(Wall(50))));
    }

    #[test]
    fn a_record_that_can_not_be_read_counts_as_none() {
        let dir = tempfile::tempdir().expect("a folder");
        std::fs::write(dir.path().join("agent.json"), b"{ half").expect("written");
        assert_eq!(begin(&dir, "boot-1", "a", 1).record().crashes, 0);
    }
}
