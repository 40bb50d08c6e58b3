//! A play over many hosts: its keywords for all hosts, the batches in which hosts run, and the
//! decision to continue after the end of each host. The code here is pure: it runs nothing and
//! knows no clock.
//!
//! ```text
//! outline(files, playbook) -> [PlayKeys]
//! PlayKeys, hosts of the inventory -> Schedule -> batches, host_ended(host) -> BatchVerdict
//! ```

use crate::lang::hosts::InventoryNames;
use crate::plan::SourcePlace;
use std::collections::{BTreeMap, BTreeSet};

/// The keywords of a play that concern all its hosts together.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PlayKeys {
    /// Index of the play among all plays of the playbook, including imported ones; the same as
    /// `Play::index` in a host's plan.
    pub index: u32,
    pub name: String,
    pub place: SourcePlace,
    /// The rendered patterns of the hosts that the play selects.
    pub hosts: Vec<String>,
    /// Sizes of the batches. If the list is empty, one batch has all hosts. The last size is used
    /// for all further batches.
    pub serial: Vec<Portion>,
    /// The play ends when more than this percentage of a batch have failed.
    pub max_fail_percentage: Option<f64>,
    /// Whether the first host that fails or is unreachable ends the play for all hosts.
    pub any_errors_fatal: bool,
    /// Whether the play counts as ended without a failure on an unreachable host.
    pub ignore_unreachable: bool,
    /// Whether the tasks run on the controller instead of the hosts (`connection: local`).
    pub local: bool,
    /// The login user of the play, as `remote_user` names it. None: the play has no such keyword.
    pub remote_user: Option<String>,
    pub order: HostOrder,
}

/// The size of a batch of hosts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Portion {
    /// Number of hosts; 0: all hosts of the play.
    Hosts(u32),
    /// Percentage of all hosts of the play; at least one host.
    Percent(f64),
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum HostOrder {
    #[default]
    Inventory,
    ReverseInventory,
    Sorted,
    ReverseSorted,
}

impl HostOrder {
    /// Parses the value of `order`.
    pub fn parse(word: &str) -> Option<Self> {
        Some(match word {
            "inventory" => Self::Inventory,
            "reverse_inventory" => Self::ReverseInventory,
            "sorted" => Self::Sorted,
            "reverse_sorted" => Self::ReverseSorted,
            _ => return None,
        })
    }
}

impl Portion {
    /// Parses `3` or `30%`.
    pub fn parse(text: &str) -> Option<Self> {
        match text.trim().strip_suffix('%') {
            Some(percent) => {
                percent.trim().parse().ok().filter(|p: &f64| p.is_finite() && *p >= 0.0).map(Self::Percent)
            }
            // For Ansible a negative number means all hosts.
            None => text.trim().parse::<i64>().ok().map(|n| Self::Hosts(u32::try_from(n.max(0)).unwrap_or(u32::MAX))),
        }
    }

    fn host_count(self, hosts: usize) -> usize {
        match self {
            Self::Hosts(0) => hosts,
            Self::Hosts(n) => n as usize,
            Self::Percent(percent) => ((percent / 100.0 * hosts as f64) as usize).max(1),
        }
    }
}

/// How a play ended on one host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostEnd {
    Done,
    /// `everyone`: the failed task has `any_errors_fatal` (`RunEnd::fatal`).
    Failed {
        everyone: bool,
    },
    Unreachable,
}

/// What follows when the play has ended on a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BatchVerdict {
    /// The play still runs on hosts of the batch, so the caller waits.
    Wait,
    /// The play has ended on all hosts of the batch. The caller starts the next batch or, after the
    /// last batch, the next play.
    Next,
    /// Nothing further is started, in this play or later ones. Hosts that are running must stop
    /// after their current task. The text is the reason.
    Stop(String),
}

/// The batches of hosts of one play, and how the play ended on each host so far.
#[derive(Debug, Clone)]
pub struct Schedule {
    keys: PlayKeys,
    batches: Vec<Vec<String>>,
    ends: BTreeMap<String, HostEnd>,
    /// Hosts that failed or were unreachable in earlier plays. They do not run, but count in the
    /// sizes of batches.
    lost: BTreeSet<String>,
    stopped: bool,
}

impl Schedule {
    /// `hosts` are the hosts that the play selects, in the order of the inventory. `lost` are the
    /// hosts that failed or were unreachable in earlier plays.
    pub fn new(keys: &PlayKeys, mut hosts: Vec<String>, lost: &BTreeSet<String>) -> Self {
        match keys.order {
            HostOrder::Inventory => {}
            HostOrder::ReverseInventory => hosts.reverse(),
            HostOrder::Sorted => hosts.sort(),
            HostOrder::ReverseSorted => hosts.sort_by(|a, b| b.cmp(a)),
        }
        let all = hosts.len();
        let mut batches = Vec::new();
        let mut rest = hosts.as_slice();
        let mut portions = keys.serial.iter().copied();
        let mut portion = portions.next().unwrap_or(Portion::Hosts(0));
        while !rest.is_empty() {
            let (batch, after) = rest.split_at(portion.host_count(all).min(rest.len()));
            batches.push(batch.to_vec());
            rest = after;
            portion = portions.next().unwrap_or(portion);
        }
        Self { keys: keys.clone(), batches, ends: BTreeMap::new(), lost: lost.clone(), stopped: false }
    }

    /// Selects the hosts of the play in `inventory` and makes their schedule.
    pub fn for_play(keys: &PlayKeys, inventory: &InventoryNames, lost: &BTreeSet<String>) -> Result<Self, String> {
        Ok(Self::new(keys, inventory.select(&keys.hosts)?.hosts, lost))
    }

    /// All batches in order, without hosts that failed or were unreachable in earlier plays.
    pub fn batches(&self) -> Vec<Vec<&str>> {
        let here = |host: &&String| !self.lost.contains(*host);
        self.batches.iter().map(|batch| batch.iter().filter(here).map(String::as_str).collect()).collect()
    }

    /// The host that runs `run_once` tasks for the batch of `host`. It is the first host of the
    /// batch that neither failed nor was unreachable in an earlier play.
    pub fn run_once_host(&self, host: &str) -> Option<&str> {
        let batch = self.batches.iter().find(|batch| batch.iter().any(|h| h == host))?;
        batch.iter().find(|h| !self.lost.contains(*h)).map(String::as_str)
    }

    /// Records how `host` ended, and returns the consequence. A host that is in no batch or has
    /// already ended changes nothing.
    pub fn host_ended(&mut self, host: &str, end: HostEnd) -> BatchVerdict {
        let Some(batch) = self.batches.iter().find(|batch| batch.iter().any(|h| h == host)) else {
            return BatchVerdict::Wait;
        };
        let end = match end {
            HostEnd::Unreachable if self.keys.ignore_unreachable => HostEnd::Done,
            end => end,
        };
        self.ends.entry(host.to_owned()).or_insert(end);
        let live: Vec<&String> = batch.iter().filter(|h| !self.lost.contains(*h)).collect();
        let known: Vec<HostEnd> = live.iter().filter_map(|h| self.ends.get(*h).copied()).collect();
        let failed = known.iter().filter(|e| matches!(e, HostEnd::Failed { .. })).count();
        let gone = failed + known.iter().filter(|e| **e == HostEnd::Unreachable).count();
        let percent = failed as f64 / batch.len() as f64 * 100.0;
        let fatal = known.contains(&HostEnd::Failed { everyone: true }) || self.keys.any_errors_fatal && gone > 0;
        let why = if fatal {
            Some(format!("{host} failed, and any_errors_fatal is set"))
        } else if let Some(most) = self.keys.max_fail_percentage.filter(|most| percent > *most) {
            Some(format!("{failed} of {} hosts failed, the maximum is {most} % (max_fail_percentage)", batch.len()))
        } else if gone == live.len() {
            Some("no host of the batch is left".to_owned())
        } else {
            None
        };
        if let Some(why) = why {
            self.stopped = true;
            return BatchVerdict::Stop(why);
        }
        if known.len() == live.len() { BatchVerdict::Next } else { BatchVerdict::Wait }
    }

    /// Whether nothing further may be started, in this play or later ones.
    pub fn is_stopped(&self) -> bool {
        self.stopped
    }

    /// Hosts that do not run in later plays, because they failed or were unreachable in this play
    /// or an earlier one.
    pub fn lost_hosts(&self) -> BTreeSet<String> {
        let now = self.ends.iter().filter(|(_, end)| **end != HostEnd::Done).map(|(host, _)| host.clone());
        self.lost.iter().cloned().chain(now).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn hosts(count: usize) -> Vec<String> {
        (1..=count).map(|i| format!("h{i}")).collect()
    }

    fn schedule(count: usize, serial: &[&str], change: impl Fn(&mut PlayKeys)) -> Schedule {
        let serial = serial.iter().map(|text| Portion::parse(text).unwrap()).collect();
        let mut keys = PlayKeys { serial, ..PlayKeys::default() };
        change(&mut keys);
        Schedule::new(&keys, hosts(count), &BTreeSet::new())
    }

    #[test]
    fn batches_are_ansibles() {
        let table: &[(usize, &[&str], &str)] = &[
            (5, &[], "5"),
            (5, &["0"], "5"),
            (5, &["-1"], "5"),
            (5, &["2"], "2 2 1"),
            (10, &["30%"], "3 3 3 1"),
            (3, &["10%"], "1 1 1"),
            (9, &["1", "3", "50%"], "1 3 4 1"),
            (4, &["1", "0"], "1 3"),
            (0, &["2"], ""),
            (3, &["9"], "3"),
        ];
        for (count, serial, want) in table {
            let got: Vec<String> =
                schedule(*count, serial, |_| {}).batches().iter().map(|b| b.len().to_string()).collect();
            assert_eq!(got.join(" "), *want, "{count} {serial:?}");
        }
        assert!(Portion::parse("x").is_none() && Portion::parse("a%").is_none());
        let reversed = schedule(3, &["2"], |k| k.order = HostOrder::ReverseInventory);
        assert_eq!(reversed.batches(), [vec!["h3", "h2"], vec!["h1"]]);
        assert_eq!((reversed.run_once_host("h2"), reversed.run_once_host("h1")), (Some("h3"), Some("h1")));
    }

    #[test]
    fn a_play_ends_where_too_many_have_failed() {
        use HostEnd::{Done, Failed, Unreachable};
        let bad = Failed { everyone: false };
        let mut plain = schedule(4, &["2"], |_| {});
        assert_eq!(plain.host_ended("h1", bad), BatchVerdict::Wait);
        assert_eq!(plain.host_ended("h2", Done), BatchVerdict::Next);
        assert_eq!(plain.host_ended("h3", Unreachable), BatchVerdict::Wait);
        assert_eq!(plain.host_ended("h4", bad), BatchVerdict::Stop("no host of the batch is left".into()));
        assert_eq!(plain.lost_hosts().into_iter().collect::<Vec<_>>(), ["h1", "h3", "h4"]);
        let mut percent = schedule(4, &[], |k| k.max_fail_percentage = Some(25.0));
        assert_eq!(percent.host_ended("h1", bad), BatchVerdict::Wait);
        assert_eq!(percent.host_ended("h2", Unreachable), BatchVerdict::Wait);
        assert!(
            matches!(percent.host_ended("h3", bad), BatchVerdict::Stop(why) if why.starts_with("2 of 4 hosts failed"))
        );
        let mut fatal = schedule(4, &[], |k| k.any_errors_fatal = true);
        assert_eq!(fatal.host_ended("h1", Done), BatchVerdict::Wait);
        assert!(matches!(fatal.host_ended("h2", Unreachable), BatchVerdict::Stop(_)));
        assert!(fatal.is_stopped());
        let mut task = schedule(2, &[], |_| {});
        assert!(matches!(task.host_ended("h1", Failed { everyone: true }), BatchVerdict::Stop(_)));
        let mut calm = schedule(1, &[], |k| k.ignore_unreachable = true);
        assert_eq!(calm.host_ended("h1", Unreachable), BatchVerdict::Next);
        // Hosts that failed in an earlier play are not waited for and do not run.
        let lost = BTreeSet::from(["h1".to_owned()]);
        let mut later = Schedule::new(&PlayKeys::default(), hosts(2), &lost);
        assert_eq!((later.batches(), later.run_once_host("h2")), (vec![vec!["h2"]], Some("h2")));
        assert_eq!(later.host_ended("h2", Done), BatchVerdict::Next);
    }

    proptest! {
        #[test]
        fn every_host_is_in_one_batch(count in 0usize..60, serial in proptest::collection::vec(0u32..9, 0..4), percent: bool) {
            let portion = |n: &u32| if percent { Portion::Percent(f64::from(*n) * 11.0) } else { Portion::Hosts(*n) };
            let keys = PlayKeys { serial: serial.iter().map(portion).collect(), ..PlayKeys::default() };
            let schedule = Schedule::new(&keys, hosts(count), &BTreeSet::new());
            let batches = schedule.batches();
            prop_assert!(batches.iter().all(|batch| !batch.is_empty()));
            let all: Vec<String> = batches.concat().into_iter().map(str::to_owned).collect();
            prop_assert_eq!(all, hosts(count));
        }
    }
}
