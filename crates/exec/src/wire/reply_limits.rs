//! Limits the size of each kind of reply. The machine of an executor may be compromised. The limits
//! ensure that a reply costs the manager little more memory than a correct reply of its kind.
//!
//! The kind is in the first bytes of a frame, before the content is read. Before decoding, the
//! values are counted: a value of one byte, such as an empty text, becomes a value of up to 32
//! bytes.

use super::Reply;
use super::frame::{FRAME_MAX, FrameError};

/// The first bytes of a frame, which contain the name of any kind.
pub const HEAD: usize = 16;
/// Minimum bytes of a frame for each of its values. A file of a digest has 17 values in at least 73
/// bytes.
const BYTES_PER_VALUE: usize = 4;
/// Number of values that a frame may always have, even if the frame is short.
const VALUES_MIN: usize = 4096;

/// The limits of one kind of reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplyLimits {
    /// Maximum bytes of the frame.
    pub bytes: usize,
    /// Maximum number of values in the frame.
    pub values: usize,
}

/// The limits for a frame that begins with `head`. An unknown kind has the limits of a short
/// message.
pub fn limits_of(head: &[u8]) -> ReplyLimits {
    let (bytes, values) = match kind_of(head) {
        // A digest of 200,000 files exceeds the limits; the node then replies with an error.
        b"Exam" | b"Outlined" | b"Branches" => (16 << 20, 1_000_000),
        // A reply has at most 256 files of 64 KiB.
        b"Fetched" => (17 << 20, VALUES_MIN),
        // A message and a diff have at most 256 KiB each, in JSON up to six times as many.
        b"Event" => (4 << 20, VALUES_MIN),
        // A request contains the facts and the results that a delegated task reads.
        b"Ask" => (4 << 20, VALUES_MIN),
        // The end of a run contains the facts about the host that the run has gathered.
        b"RunEnd" => (4 << 20, 200_000),
        b"Cleaned" | b"Undone" | b"Backups" => (4 << 20, 100_000),
        _ => (256 << 10, VALUES_MIN),
    };
    ReplyLimits { bytes: bytes.min(FRAME_MAX), values }
}

/// The name of the kind: a text alone, or the only key of a map.
fn kind_of(head: &[u8]) -> &[u8] {
    let text = head.strip_prefix(&[0x81]).unwrap_or(head);
    match text {
        [marker @ 0xa0..=0xbf, rest @ ..] => rest.get(..usize::from(marker & 0x1f)).unwrap_or_default(),
        _ => &[],
    }
}

impl ReplyLimits {
    /// Refuses a length that is too large for the kind.
    pub fn check_length(self, length: usize) -> Result<(), FrameError> {
        if length > self.bytes { Err(FrameError::TooLong(length)) } else { Ok(()) }
    }

    /// Refuses content with too many values for its kind or its length.
    pub fn check_values(self, content: &[u8]) -> Result<(), FrameError> {
        let most = self.values.min(VALUES_MIN.max(content.len() / BYTES_PER_VALUE));
        if has_more_values(content, most) { Err(FrameError::TooManyValues(most)) } else { Ok(()) }
    }
}

/// Maximum number of JSON values of a request to the controller.
const REQUEST_VALUES_MAX: usize = 200_000;

/// Refuses an event or request with too many JSON values, because every reader decodes them.
pub fn check_json(reply: &Reply) -> Result<(), FrameError> {
    let (json, most) = match reply {
        Reply::Event { event } => (event, VALUES_MIN),
        Reply::Ask { request, .. } => (request, REQUEST_VALUES_MAX),
        _ => return Ok(()),
    };
    let (mut values, mut in_text, mut escaped) = (1, false, false);
    for byte in json {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_text => escaped = true,
            b'"' => in_text = !in_text,
            // Each of these characters begins another value.
            b',' | b':' | b'[' | b'{' if !in_text => values += 1,
            _ => {}
        }
    }
    if values > most { Err(FrameError::TooManyValues(most)) } else { Ok(()) }
}

/// Whether `content` has more than `most` MessagePack values. Neither recurses nor allocates.
/// Invalid content is left to the decoder.
fn has_more_values(mut content: &[u8], most: usize) -> bool {
    for _ in 0..=most {
        let Some((marker, rest)) = content.split_first() else { return false };
        let length = |bytes: usize| {
            let prefix = rest.get(..bytes)?;
            Some(bytes + prefix.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte)))
        };
        // The bytes of this value after its marker. The items of a map or array are values too.
        let size = match marker {
            0xa0..=0xbf => Some(usize::from(marker & 0x1f)),
            0xc4 | 0xd9 => length(1),
            0xc5 | 0xda => length(2),
            0xc6 | 0xdb => length(4),
            0xc7 => length(1).map(|n| n + 1),
            0xc8 => length(2).map(|n| n + 1),
            0xc9 => length(4).map(|n| n + 1),
            0xcc | 0xd0 => Some(1),
            0xcd | 0xd1 | 0xd4 | 0xdc | 0xde => Some(2),
            0xd5 => Some(3),
            0xca | 0xce | 0xd2 | 0xdd | 0xdf => Some(4),
            0xd6 => Some(5),
            0xcb | 0xcf | 0xd3 => Some(8),
            0xd7 => Some(9),
            0xd8 => Some(17),
            0x00..=0x9f | 0xc0..=0xc3 | 0xe0..=0xff => Some(0),
        };
        match size.and_then(|size| rest.get(size..)) {
            Some(rest) => content = rest,
            None => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Hello, Reply, frame};
    use serde_json::json;

    fn content(reply: &Reply) -> Vec<u8> {
        frame::encode(reply).unwrap().split_off(4)
    }

    #[test]
    fn the_kind_is_in_the_first_bytes() {
        for (reply, kind) in [
            (Reply::Closed, "Closed"),
            (Reply::Hello(Hello::default()), "Hello"),
            (Reply::RunEnd(json!(null)), "RunEnd"),
            (Reply::Outlined { exam: Default::default(), services: Default::default() }, "Outlined"),
            (Reply::Event { event: Vec::new() }, "Event"),
        ] {
            let content = content(&reply);
            assert_eq!(kind_of(&content[..content.len().min(HEAD)]), kind.as_bytes());
        }
        for garbage in [&b""[..], b"\x81", b"\xbf", b"\x82\xa4Exam", b"\xd9\x04Exam"] {
            assert_eq!(limits_of(garbage).bytes, 256 << 10, "{garbage:?}");
        }
    }

    #[test]
    fn values_of_every_form_are_counted() {
        let value = json!([null, true, 1, -1, 200, 70_000, 5_000_000_000_u64, -40_000, 1.5, "a", "b".repeat(40),
            "c".repeat(300), "d".repeat(70_000), {"e": [], "f": {}}, vec![7; 20], vec![7; 70_000]]);
        fn count(value: &serde_json::Value) -> usize {
            match value {
                serde_json::Value::Array(items) => 1 + items.iter().map(count).sum::<usize>(),
                serde_json::Value::Object(items) => 1 + items.values().map(|v| 1 + count(v)).sum::<usize>(),
                _ => 1,
            }
        }
        let content = content(&Reply::RunEnd(value.clone()));
        let values = 2 + count(&value);
        assert!(has_more_values(&content, values - 1) && !has_more_values(&content, values));
    }
}
