//! Tests the reply `Outlined`, which has the roots of a digest in place of its entries. The
//! sessions work on real files. Tests the size of the frames, and an executor of an older version,
//! which does not know this reply.

use super::wire::{ExecutorOrder, Reply, frame};
use super::{NodeWork, Tuning, serve_with};
use remoor_model::{BranchContent, DigestWalk, NodeDigest, NodeManifest, ServiceManifest, WalkStep, differences};
use std::io::{PipeReader, PipeWriter, Read, Write};
use std::path::Path;

const FILES: usize = 3_000;

/// The manager's end of a session. Counts round trips and bytes.
struct CountingSession {
    orders: PipeWriter,
    replies: PipeReader,
    round_trips: usize,
    bytes: usize,
}

impl CountingSession {
    fn open(state_dir: &Path) -> Self {
        let (input, orders) = std::io::pipe().unwrap();
        let (mut replies, output) = std::io::pipe().unwrap();
        let state_dir = state_dir.to_owned();
        std::thread::spawn(move || serve_with(input, output, &state_dir, &NodeWork::default(), &Tuning::default()));
        replies.read_exact(&mut vec![0; frame::PREFACE.len()]).unwrap();
        frame::read(&mut replies).unwrap().expect("a hello");
        Self { orders, replies, round_trips: 0, bytes: 0 }
    }

    fn ask(&mut self, order: &ExecutorOrder) -> Reply {
        let frame = frame::encode(order).unwrap();
        self.orders.write_all(&frame).unwrap();
        let reply = frame::read(&mut self.replies).unwrap().expect("a reply");
        self.round_trips += 1;
        self.bytes += frame.len() + reply.len() + 4;
        frame::decode(&reply).unwrap()
    }
}

fn examine(manifest: &NodeManifest, known: Option<&NodeDigest>) -> ExecutorOrder {
    ExecutorOrder::Examine { manifest: manifest.clone(), digest_key: [7; 32], known: known.map(DigestWalk::roots) }
}

#[test]
fn one_changed_file_is_found_by_a_few_small_frames() {
    let (dir, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for n in 0..FILES {
        std::fs::write(dir.path().join(n.to_string()), n.to_string()).unwrap();
    }
    let files = vec![format!("{}/", dir.path().display())];
    let services = vec![ServiceManifest { name: "app".into(), files, ..ServiceManifest::default() }];
    let manifest = NodeManifest { services, ..NodeManifest::default() };
    let mut session = CountingSession::open(state.path());
    let Reply::Exam(before) = session.ask(&examine(&manifest, None)) else { panic!("every entry") };
    assert_eq!(before.digest.services["app"].entries.len(), FILES + 1);
    let whole = session.bytes;

    (session.round_trips, session.bytes) = (0, 0);
    let Reply::Outlined { exam, services } = session.ask(&examine(&manifest, Some(&before.digest))) else { panic!() };
    assert!(exam.digest.services.is_empty() && services["app"].content.is_none(), "known entries are not sent");
    let same = session.bytes;

    std::fs::write(dir.path().join("1234"), "edited").unwrap();
    (session.round_trips, session.bytes) = (0, 0);
    let Reply::Outlined { services, .. } = session.ask(&examine(&manifest, Some(&before.digest))) else { panic!() };
    let (mut walk, mut next) = DigestWalk::begin(before.digest.clone(), services).unwrap();
    let found = loop {
        match next {
            WalkStep::Found(found) => break *found,
            WalkStep::Ask(questions) => {
                let Reply::Branches { below } = session.ask(&ExecutorOrder::Branches { questions }) else { panic!() };
                next = walk.answers(below).unwrap();
            }
        }
    };
    let paths: Vec<String> = differences(&before.digest, &found).into_iter().map(|d| d.path).collect();
    assert_eq!(paths, [dir.path().join("1234").display().to_string()]);
    assert!(session.round_trips <= 4 && session.bytes < same + 4_000, "{} bytes, {same}", session.bytes);
    assert!(whole > 100 * (session.bytes - same), "{whole} bytes of all entries");
    let Reply::Exam(after) = session.ask(&examine(&manifest, None)) else { panic!() };
    assert_eq!(after.digest, found, "as if every entry had been sent");
    assert!(
        matches!(session.ask(&ExecutorOrder::Branches { questions: Vec::new() }), Reply::Branches { below } if below.is_empty())
    );
}

#[test]
fn an_older_executor_reads_the_order_and_sends_every_entry() {
    #[derive(serde::Deserialize)]
    enum OlderOrder {
        Examine { manifest: NodeManifest, digest_key: [u8; 32] },
    }
    let manifest = NodeManifest { node: "w1".into(), ..NodeManifest::default() };
    let bytes = frame::encode(&examine(&manifest, Some(&NodeDigest::default()))).unwrap();
    let OlderOrder::Examine { manifest: read, digest_key } = frame::decode(&bytes[4..]).unwrap();
    assert_eq!((read, digest_key), (manifest.clone(), [7; 32]));
    // Without a known digest, the order does not contain the field `known`.
    let plain = frame::encode(&examine(&manifest, None)).unwrap();
    assert!(!plain.windows(5).any(|part| part == b"known"));
    let reply = frame::encode(&Reply::Branches { below: vec![BranchContent::Entries(Vec::new())] }).unwrap();
    assert!(frame::decode::<Reply>(&reply[4..]).is_ok());
}
