//! The memory that the worst replies of a compromised node cost the manager's end of a session.

use super::*;
use remoor_model::{FileEntry, FileKind};
use std::fs;
use std::process::Command;

/// Environment variable of the child process. In that process, nothing else uses memory.
const ALONE: &str = "REMOOR_MEMORY_TEST";
/// Maximum cost of one frame, in MB.
const COST_MAX: u64 = 80;

/// A value of `/proc/self/status`, in MB.
fn memory(name: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() / 1024
}

/// The peak of the memory that `work` needs, in MB.
fn cost(work: impl FnOnce()) -> u64 {
    fs::write("/proc/self/clear_refs", "5").unwrap();
    let before = memory("VmRSS:");
    work();
    memory("VmHWM:") - before
}

fn text(text: &str) -> Vec<u8> {
    rmp_serde::to_vec(text).unwrap()
}

/// A map with one key.
fn wrap_in_map(key: &str, value: Vec<u8>) -> Vec<u8> {
    [vec![0x81], text(key), value].concat()
}

/// An array of `count` times `item`, after `first`.
fn array(first: &[u8], item: &[u8], count: usize) -> Vec<u8> {
    let all = count as u32 + u32::from(!first.is_empty());
    [&[0xdd][..], &all.to_be_bytes(), first, &item.repeat(count)].concat()
}

/// Makes a reply of one kind from a list.
type Wrapped = fn(Vec<u8>) -> Vec<u8>;
/// Makes a list item that contains a text.
type ItemWithText = fn(&str) -> Vec<u8>;

/// The entry of a file in a digest, encoded as an array.
fn entry(path: &str) -> Vec<u8> {
    let (path, owner, group) = (path.to_owned(), String::new(), String::new());
    let (kind, sha256, target) = (FileKind::File, None, None);
    rmp_serde::to_vec(&FileEntry { path, kind, mode: 0, owner, group, sha256, target, secret: false }).unwrap()
}

fn fetched_file(path: &str) -> Vec<u8> {
    [&[0x94][..], &text(path), &[0xc4, 0, 0, 0xc0]].concat()
}

/// The kinds of replies with lists. For each kind: a function that wraps a list, the number of
/// values of an item, the shortest item, and a function that makes an item with a text.
fn kinds() -> Vec<(Wrapped, usize, Vec<u8>, ItemWithText)> {
    vec![
        (|list| wrap_in_map("RunEnd", list), 1, vec![0xc0], text),
        (|list| wrap_in_map("RunEnd", list), 1, vec![0x80], text),
        (|list| wrap_in_map("Backups", wrap_in_map("attempts", list)), 1, vec![1], text),
        (|list| wrap_in_map("Cleaned", wrap_in_map("leftovers", list)), 1, text(""), text),
        (|list| wrap_in_map("Undone", wrap_in_map("restored", list)), 1, text(""), text),
        (|list| wrap_in_map("Exam", wrap_in_map("damaged", list)), 1, text(""), text),
        (|list| wrap_in_map("Outlined", wrap_in_map("exam", wrap_in_map("damaged", list))), 1, text(""), text),
        (
            |list| wrap_in_map("Branches", wrap_in_map("below", array(&[], &wrap_in_map("Entries", list), 1))),
            9,
            entry(""),
            entry,
        ),
        (|list| wrap_in_map("Fetched", wrap_in_map("files", list)), 5, fetched_file(""), fetched_file),
    ]
}

/// Runs alone in a child process, because other tests use memory too.
#[test]
fn the_worst_frame_of_each_kind_costs_little_memory() {
    if std::env::var_os(ALONE).is_none() {
        let name = std::thread::current().name().unwrap().to_owned();
        let mut child = Command::new(std::env::current_exe().unwrap());
        let output = child.args(["--exact", &name, "--nocapture"]).env(ALONE, "1").output().unwrap();
        let shown = [output.stdout, output.stderr].concat();
        return assert!(output.status.success(), "{}", String::from_utf8_lossy(&shown));
    }
    // Without the limits, a value of one byte costs more than 30 bytes of memory.
    let values = wrap_in_map("RunEnd", array(&[], &[0xc0], 4 << 20));
    let unlimited = cost(|| drop(frame::decode::<Reply>(&values).unwrap()));
    assert!(unlimited > 100, "{unlimited} MB");

    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    for (wrapped, values, item, with_text) in kinds() {
        // The first frame is as long as any frame may be. The second is within the limits of its
        // kind: it has the maximum number of values, and a text in the first item fills the rest.
        let limits = limits_of(&wrapped(Vec::new()));
        let count = limits.values.min(limits.bytes / 4) / values - 100;
        let length = limits.bytes.saturating_sub(count * item.len() + 1024);
        let within = wrapped(array(&with_text(&"x".repeat(length)), &item, count));
        let longest = wrapped(array(&[], &item, (frame::FRAME_MAX - 1024) / item.len()));
        for (content, is_within) in [(longest, false), (within, true)] {
            let frame = [&(content.len() as u32).to_be_bytes()[..], &content].concat();
            drop(content);
            let mut result = None;
            let cost = cost(|| result = Some(runtime.block_on(read_reply(&mut &frame[..], &room())).map(drop)));
            let name = String::from_utf8_lossy(&frame[6..14]).into_owned();
            println!("{name}: a frame of {} MB costs {cost} MB, {result:?}", frame.len() >> 20);
            assert!(cost < COST_MAX, "{name}: {cost} MB");
            let refused = matches!(&result, Some(Err(SshError::Protocol(why))) if why.contains("more than"));
            assert_eq!(refused, !is_within, "{name}: {result:?}");
        }
    }
}

#[tokio::test]
async fn replies_that_are_too_large_for_their_kind_end_the_session() {
    let read = async |content: Vec<u8>| {
        let frame = [&(content.len() as u32).to_be_bytes()[..], &content].concat();
        read_reply(&mut &frame[..], &room()).await.map(|reply| reply.map(|(reply, _)| reply))
    };
    let long = "x".repeat(1 << 20);
    let refused = read(wrap_in_map("Error", wrap_in_map("message", text(&long)))).await.unwrap_err();
    assert!(matches!(&refused, SshError::Protocol(why) if why.contains("bytes")), "{refused:?}");
    let refused = read(wrap_in_map("RunEnd", array(&[], &[0xc0], 300_000))).await.unwrap_err();
    assert!(matches!(&refused, SshError::Protocol(why) if why.contains("values")), "{refused:?}");
    let event = |event: String| frame::encode(&Reply::Event { event: event.into_bytes() }).unwrap().split_off(4);
    let refused = read(event(format!("[{}0]", "0,".repeat(100_000)))).await.unwrap_err();
    assert!(matches!(&refused, SshError::Protocol(why) if why.contains("values")), "{refused:?}");
    let accepted = read(event(format!("{{\"line\":\"{}\"}}", ",[\\\"{:".repeat(50_000)))).await;
    assert!(matches!(accepted, Ok(Some(Reply::Event { .. }))), "{accepted:?}");
    let ask = |values: usize| {
        let request = format!("[{}0]", "0,".repeat(values)).into_bytes();
        frame::encode(&Reply::Ask { id: 1, request }).unwrap().split_off(4)
    };
    let accepted = read(ask(100_000)).await;
    assert!(matches!(accepted, Ok(Some(Reply::Ask { .. }))), "{accepted:?}");
    let refused = read(ask(300_000)).await.unwrap_err();
    assert!(matches!(&refused, SshError::Protocol(why) if why.contains("values")), "{refused:?}");
}
