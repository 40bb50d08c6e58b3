//! Searches a file of any size in chunks, so that memory use is bounded.

use std::io::{self, Read};

/// Maximum number of bytes held in memory.
const CHUNK_BYTES: usize = 8 << 20;
/// Number of bytes of a chunk that are searched again with the next chunk. A match that is longer
/// than this and crosses the end of a chunk may be missed.
const OVERLAP_BYTES: usize = 1 << 20;

/// Calls `look` with each chunk until it returns a result, and returns that result. Chunks begin
/// and end at line boundaries, unless a line is longer than a chunk.
pub fn find_first<T>(from: &mut dyn Read, look: impl FnMut(&[u8]) -> Option<T>) -> io::Result<Option<T>> {
    find_first_with(from, look, CHUNK_BYTES, OVERLAP_BYTES)
}

fn find_first_with<T>(
    from: &mut dyn Read,
    mut look: impl FnMut(&[u8]) -> Option<T>,
    piece: usize,
    overlap: usize,
) -> io::Result<Option<T>> {
    let mut held: Vec<u8> = Vec::new();
    loop {
        let room = piece.saturating_sub(held.len());
        let read = Read::take(&mut *from, room as u64).read_to_end(&mut held)?;
        if read < room {
            return Ok(look(&held));
        }
        let lines = held.iter().rposition(|b| *b == b'\n').map_or(held.len(), |at| at + 1);
        if let Some(found) = look(&held[..lines]) {
            return Ok(Some(found));
        }
        let again = lines.saturating_sub(overlap);
        let begin = held[again..lines].iter().position(|b| *b == b'\n').map_or(again, |at| again + at + 1);
        held.drain(..begin);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use regex::bytes::Regex;

    #[test]
    fn lines_are_found_across_chunk_ends() {
        let text = (0..200).map(|n| format!("line {n} of it\n")).collect::<String>();
        let found = |pattern: &str, text: &str| {
            let pattern = Regex::new(pattern).unwrap();
            let mut most = 0;
            let found = find_first_with(
                &mut text.as_bytes(),
                |piece| {
                    most = most.max(piece.len());
                    pattern.find(piece).map(|m| String::from_utf8_lossy(m.as_bytes()).into_owned())
                },
                64,
                32,
            );
            assert!(most <= 64, "{most}");
            found.unwrap()
        };
        for n in 0..200 {
            assert_eq!(found(&format!("(?m)^line {n} of it$"), &text), Some(format!("line {n} of it")));
        }
        assert_eq!(found("77 of it\nline 78", &text).as_deref(), Some("77 of it\nline 78"), "over two lines");
        assert_eq!(found("(?m)^ine|lin$", &text), None, "no chunk begins or ends within a line");
        assert_eq!(found("x", ""), None);
        assert_eq!(
            found("bbb", &("a".repeat(90) + &"b".repeat(90))).as_deref(),
            Some("bbb"),
            "a text without newlines"
        );
        assert_eq!(found("end$", &("x\n".repeat(100) + "end")).as_deref(), Some("end"));
    }
}
