//! Runs the fuzz targets without libFuzzer: with their seeds, with suitable files of the
//! repository, and with random mutations of these inputs. The mutations are the same in each run.
//! `make fuzz` runs libFuzzer for minutes.

#[path = "../fuzz/targets/mod.rs"]
mod targets;

use std::fs;
use std::path::{Path, PathBuf};

/// Number of mutated inputs for each target. `REMOOR_LONG=1` takes ten times as many.
const MUTATIONS: usize = 300;
/// Maximum length of an input in bytes, as in `tests/fuzz/run.sh` (`-max_len`).
const LENGTH_MAX: usize = 8_192;

/// Tokens with a meaning for parsers, which random bytes rarely contain.
const TOKENS: [&[u8]; 16] = [
    b"{{ ", b" }}", b"{% ", b" %}", b"- ", b": ", b"\n", b"\n---\n", b"\t", b"\"", b"'", b"\0", b"\xff", b"&a", b"*a",
    b"\r",
];

fn files(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).expect("a directory of inputs").map(|entry| entry.expect("an entry").path()) {
        if entry.is_dir() {
            files(&entry, found);
        } else {
            found.push(entry);
        }
    }
}

/// The inputs of a target, in the order of their names. `tests/fuzz/inputs.txt` lists their
/// directories.
fn inputs(target: &str) -> Vec<Vec<u8>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let list = fs::read_to_string(root.join("tests/fuzz/inputs.txt")).expect("the list of inputs");
    let line = list.lines().find(|line| line.split(' ').next() == Some(target)).expect("a line for each target");
    let mut found = Vec::new();
    files(&root.join("tests/fuzz/seeds").join(target), &mut found);
    line.split(' ').skip(1).for_each(|dir| files(&root.join(dir), &mut found));
    found.sort();
    found.iter().map(|file| fs::read(file).expect("an input")).collect()
}

/// Reproducible random numbers: splitmix64.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number less than `many`. The result is 0 if `many` is 0.
    fn up_to(&mut self, many: usize) -> usize {
        (self.next() % many.max(1) as u64) as usize
    }

    /// A range of the input, of at most 32 bytes.
    fn part(&mut self, of: &[u8]) -> std::ops::Range<usize> {
        let from = self.up_to(of.len() + 1);
        from..of.len().min(from + 1 + self.up_to(32))
    }
}

/// One of the inputs, with one to four random changes.
fn mutate(rng: &mut Rng, inputs: &[Vec<u8>]) -> Vec<u8> {
    let mut input = inputs[rng.up_to(inputs.len())].clone();
    for _ in 0..=rng.up_to(4) {
        let at = rng.up_to(input.len() + 1);
        match rng.up_to(6) {
            0 if at < input.len() => input[at] ^= 1 << rng.up_to(8),
            1 if at < input.len() => input[at] = rng.up_to(256) as u8,
            2 => drop(input.drain(rng.part(&input))),
            3 => {
                let again = input[rng.part(&input)].to_vec();
                input.splice(at..at, again);
            }
            4 => {
                let other = &inputs[rng.up_to(inputs.len())];
                input.splice(at..at, other[rng.part(other)].to_vec());
            }
            _ => drop(input.splice(at..at, TOKENS[rng.up_to(TOKENS.len())].to_vec())),
        }
    }
    input.truncate(LENGTH_MAX);
    input
}

/// Stores an input when a target panics on it, and prints the path of the file.
struct Kept<'a>(&'a str, &'a [u8]);

impl Drop for Kept<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("fuzzed-{}", self.0));
            let kept = fs::write(&path, self.1);
            eprintln!("input that made {} fail: {} ({kept:?})", self.0, path.display());
        }
    }
}

fn replay(name: &str) {
    let (_, run) = targets::ALL.into_iter().find(|(target, _)| *target == name).expect("a target");
    let (inputs, mut rng) = (inputs(name), Rng(1));
    let many = if crate::lab::tool::has_production_durations() { 10 * MUTATIONS } else { MUTATIONS };
    for input in &inputs {
        let _kept = Kept(name, input);
        run(input);
    }
    for _ in 0..many {
        let input = mutate(&mut rng, &inputs);
        let _kept = Kept(name, &input);
        run(&input);
    }
}

#[test]
fn backup() {
    replay("backup");
}

#[test]
fn check_file() {
    replay("check_file");
}

#[test]
fn digest() {
    replay("digest");
}

#[test]
fn executor_reply() {
    replay("executor_reply");
}

#[test]
fn go_template() {
    replay("go_template");
}

#[test]
fn gossip_meta() {
    replay("gossip_meta");
}

#[test]
fn inventory() {
    replay("inventory");
}

#[test]
fn join_request() {
    replay("join_request");
}

#[test]
fn playbook() {
    replay("playbook");
}

#[test]
fn raft_message() {
    replay("raft_message");
}

#[test]
fn raft_stream() {
    replay("raft_stream");
}

#[test]
fn template() {
    replay("template");
}

#[test]
fn each_target_is_replayed_and_has_a_line_of_inputs() {
    let list = include_str!("../fuzz/inputs.txt");
    let listed: Vec<&str> =
        list.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(listed, targets::ALL.map(|(name, _)| name));
    let source = include_str!("fuzzed.rs");
    for name in listed {
        assert!(source.contains(&format!("replay(\"{name}\");")), "no test replays {name}");
    }
}
