//! Runs the fuzz target that `REMOOR_FUZZ_TARGET` names, with libFuzzer (`tests/fuzz/run.sh`). All
//! targets are in one program, because each program would be linked with the whole of remoor.
#![no_main]

mod targets;

use libfuzzer_sys::{Corpus, fuzz_target};
use std::sync::LazyLock;

static TARGET: LazyLock<targets::Target> = LazyLock::new(|| {
    let name = std::env::var("REMOOR_FUZZ_TARGET").expect("REMOOR_FUZZ_TARGET is set");
    targets::ALL.into_iter().find(|(target, _)| *target == name).unwrap_or_else(|| panic!("there is no target {name}"))
});

fuzz_target!(|bytes: &[u8]| -> Corpus { if TARGET.1(bytes) { Corpus::Keep } else { Corpus::Reject } });
