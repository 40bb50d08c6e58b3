//! Managers under faults, as real processes in separate network namespaces. They are killed,
//! stopped, cut off or have a full disk, while clients write and read at all of them. After each
//! round, every manager has the same state, and no change of voters is half done. The answers that
//! the clients received are linearizable, and no acknowledged write is lost.
//!
//! These tests need root. By default there are eight rounds of eight faults (`fault::GATE`).
//! `REMOOR_FAULT_ROUNDS=n` runs n rounds of all faults. `REMOOR_FAULT_SEED` sets the order of the
//! faults; its default is 1, because `make test` must not depend on a clock. `make long-faults`
//! sets both. If `REMOOR_LAB_REQUIRED` is set, the tests fail instead of being skipped.

mod cases;
mod clients;
mod cluster;
mod fault;
mod joint;
mod linear;
mod rounds;

use crate::lab::tool;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// Reproducible random numbers: splitmix64.
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

    /// A number less than `many`, which must not be 0.
    pub fn up_to(&mut self, many: usize) -> usize {
        (self.next() % many as u64) as usize
    }

    pub fn shuffle<T>(&mut self, list: &mut [T]) {
        for at in (1..list.len()).rev() {
            list.swap(at, self.up_to(at + 1));
        }
    }
}

/// The lock of the test whose cluster is running. A small machine can't run two clusters of five
/// managers at the same time.
fn one_at_a_time() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether this machine can't create network namespaces. If they are required, this is a failure;
/// otherwise the reason is printed in capitals. The result is determined only once, because
/// parallel tests would use the same name for a namespace.
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
