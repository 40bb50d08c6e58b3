//! Runs one fuzz target by libFuzzer: the target that `REMOOR_FUZZ_TARGET` names (`tests/fuzz/run.sh`). One program for all
//! targets, because each program is linked with the whole of remoor.
#![no_main]

mod targets;

use libfuzzer_sys::{Corpus, fuzz_target};
use std::sync::LazyLock;

static TARGET: LazyLock<targets::Target> = LazyLock::new(|| {
    let name = std::env::var("REMOOR_FUZZ_TARGET").expect("REMOOR_FUZZ_TARGET names a target");
    targets::ALL.into_iter().find(|(target, _)| *target == name).unwrap_or_else(|| panic!("there is no target {name}"))
});

fuzz_target!(|bytes: &[u8]| -> Corpus { if TARGET.1(bytes) { Corpus::Keep } else { Corpus::Reject } });
