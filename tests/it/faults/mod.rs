//! Managers under faults, as real processes in network namespaces of their own: killed, stopped, cut off and short of disk, while
//! clients write and read at all of them. After each round every manager has the same state, no change of voters is half
//! done, and what the clients saw can have happened one after the other, with nothing lost that was acknowledged.
//!
//! Root only. Without `REMOOR_FAULT_ROUNDS` there are eight rounds of eight faults (`fault::GATE`); with it as many as it says, of all
//! faults. `REMOOR_FAULT_SEED` sets their order, and is 1 without it: a gate depends on no clock. `make long-faults` sets both. A skip
//! is a failure where `REMOOR_LAB_REQUIRED` is set.

mod cases;
mod clients;
mod cluster;
mod fault;
mod joint;
mod linear;
mod rounds;

use crate::lab::tool;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// Chance that can be repeated: splitmix64.
#[derive(Debug, Clone)]
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Less than `many`, which is not 0.
    pub fn up_to(&mut self, many: usize) -> usize {
        (self.next() % many as u64) as usize
    }

    pub fn shuffle<T>(&mut self, list: &mut [T]) {
        for at in (1..list.len()).rev() {
            list.swap(at, self.up_to(at + 1));
        }
    }
}

/// Held by the test that has its cluster up: five managers and their clients are enough for a small machine.
fn one_at_a_time() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether there can be no network namespaces here, said so that nobody overlooks it; a failure where they are required. Tried
/// once, because tests that begin together would try it under one name.
fn namespaces_missing() -> bool {
    static LACKING: OnceLock<Option<String>> = OnceLock::new();
    let lacks = || -> Option<String> {
        if !rustix::process::geteuid().is_root() {
            return Some("network namespaces need root".to_owned());
        }
        let lacking =
            ["ip", "tc", "nft", "nsenter", "mount", "umount"].into_iter().find(|p| tool::find_program(p).is_none());
        if let Some(program) = lacking {
            return Some(format!("{program} is missing"));
        }
        cluster::probe().err().map(|e| format!("{e:#}"))
    };
    let Some(why) = LACKING.get_or_init(lacks) else { return false };
    assert!(std::env::var_os("REMOOR_LAB_REQUIRED").is_none(), "no network namespaces: {why}");
    eprintln!("SKIPPED: MANAGERS UNDER FAULTS: {why}");
    true
}
