//! Frames: a length of four bytes, big-endian, then that many bytes of MessagePack. Both directions
//! use the same format.
//!
//! The executor writes [`PREFACE`] before its first frame. By the preface, the manager skips text
//! that a login shell prints earlier. The reader of this module blocks; the manager has its own
//! async reader.

use super::Reply;
use super::reply_limits::{check_json, limits_of};
use serde::{Serialize, de::DeserializeOwned};
use std::io::{self, Read};

/// The largest frame that either side accepts, in bytes.
pub const FRAME_MAX: usize = 32 * 1024 * 1024;

/// Maximum bytes of an error about the content of a frame.
const MESSAGE_MAX: usize = 500;

/// Written by the executor before its first frame. The NUL distinguishes it from any text.
pub const PREFACE: &[u8] = b"\0remoor-exec\n";

/// The reason why bytes are not a frame. After any of these errors the stream cannot be read
/// further.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// The length is larger than [`FRAME_MAX`], or larger than a reply of its kind may be.
    #[error("a frame of {0} bytes, more than allowed")]
    TooLong(usize),
    /// The frame has more values than a reply of its kind or length may have.
    #[error("a frame of more than {0} values, more than allowed")]
    TooManyValues(usize),
    /// The stream ended within a frame.
    #[error("the stream ended within a frame")]
    Cut,
    #[error("a frame could not be read")]
    Read(#[source] io::Error),
    #[error("a frame could not be encoded")]
    Encode(#[source] rmp_serde::encode::Error),
    /// A whole frame with unexpected content: another version, or garbage.
    #[error("a frame could not be understood")]
    Decode(#[source] rmp_serde::decode::Error),
}

/// Encodes `value` as one frame: its length and its content, ready to be written.
pub fn encode<T: Serialize>(value: &T) -> Result<Vec<u8>, FrameError> {
    let mut bytes = vec![0; 4];
    let mut writer = rmp_serde::Serializer::new(&mut bytes).with_struct_map();
    value.serialize(&mut writer).map_err(FrameError::Encode)?;
    let length = bytes.len() - 4;
    let prefix = length_prefix(length)?;
    bytes[..4].copy_from_slice(&prefix);
    Ok(bytes)
}

/// Like [`encode`], for a reply within the limits of its kind.
pub fn encode_reply(reply: &Reply) -> Result<Vec<u8>, FrameError> {
    let bytes = encode(reply)?;
    let limits = limits_of(&bytes[4..]);
    limits.check_length(bytes.len() - 4)?;
    limits.check_values(&bytes[4..])?;
    check_json(reply)?;
    Ok(bytes)
}

/// Decodes the content of one frame, which does not include its length.
pub fn decode<T: DeserializeOwned>(content: &[u8]) -> Result<T, FrameError> {
    rmp_serde::from_slice(content).map_err(|error| {
        FrameError::Decode(match error {
            // The message repeats a text of unexpected type, which may be as long as the frame.
            rmp_serde::decode::Error::Syntax(mut message) => {
                message.truncate(message.floor_char_boundary(MESSAGE_MAX));
                message.shrink_to_fit();
                rmp_serde::decode::Error::Syntax(message)
            }
            other => other,
        })
    })
}

/// The length in bytes of the frame after this prefix.
pub fn parse_length(prefix: [u8; 4]) -> Result<usize, FrameError> {
    let length = u32::from_be_bytes(prefix) as usize;
    if length > FRAME_MAX { Err(FrameError::TooLong(length)) } else { Ok(length) }
}

fn length_prefix(length: usize) -> Result<[u8; 4], FrameError> {
    match u32::try_from(length) {
        Ok(small) if length <= FRAME_MAX => Ok(small.to_be_bytes()),
        _ => Err(FrameError::TooLong(length)),
    }
}

/// The content of the next frame. None: the stream ended between two frames. Memory grows with the
/// bytes that arrive, not with the announced length.
pub fn read(input: &mut impl Read) -> Result<Option<Vec<u8>>, FrameError> {
    let mut prefix = [0; 4];
    let mut got = 0;
    while got < prefix.len() {
        match input.read(&mut prefix[got..]) {
            Ok(0) if got == 0 => return Ok(None),
            Ok(0) => return Err(FrameError::Cut),
            Ok(n) => got += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(FrameError::Read(e)),
        }
    }
    let length = parse_length(prefix)?;
    let mut content = Vec::new();
    input.take(length as u64).read_to_end(&mut content).map_err(FrameError::Read)?;
    if content.len() < length { Err(FrameError::Cut) } else { Ok(Some(content)) }
}

/// Serde form of a `Vec<u8>` as bytes. Without it MessagePack would write an array of numbers.
pub(super) mod blob {
    use serde::{Deserializer, Serializer, de};
    use std::fmt;

    pub fn serialize<S: Serializer>(bytes: &[u8], s: S) -> Result<S::Ok, S::Error> {
        s.serialize_bytes(bytes)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Vec<u8>, D::Error> {
        struct Bytes;
        impl de::Visitor<'_> for Bytes {
            type Value = Vec<u8>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("bytes")
            }
            fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Vec<u8>, E> {
                Ok(bytes.to_vec())
            }
            fn visit_byte_buf<E>(self, bytes: Vec<u8>) -> Result<Vec<u8>, E> {
                Ok(bytes)
            }
        }
        d.deserialize_byte_buf(Bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{ExecutorOrder, Reply};
    use proptest::prelude::*;

    #[test]
    fn a_frame_is_decoded_and_the_stream_ends_between_frames() {
        let mut bytes = encode(&ExecutorOrder::Heartbeat).unwrap();
        bytes.extend(encode(&ExecutorOrder::Fetch { paths: vec!["/etc/hosts".into()] }).unwrap());
        let mut input = bytes.as_slice();
        assert_eq!(decode::<ExecutorOrder>(&read(&mut input).unwrap().unwrap()).unwrap(), ExecutorOrder::Heartbeat);
        let second: ExecutorOrder = decode(&read(&mut input).unwrap().unwrap()).unwrap();
        assert_eq!(second, ExecutorOrder::Fetch { paths: vec!["/etc/hosts".into()] });
        assert!(read(&mut input).unwrap().is_none());
    }

    #[test]
    fn bytes_are_encoded_as_bytes() {
        let reply = Reply::Event { event: vec![0xff; 10_000] };
        let bytes = encode(&reply).unwrap();
        assert!(bytes.len() < 10_100, "{}", bytes.len());
        assert_eq!(decode::<Reply>(&bytes[4..]).unwrap(), reply);
    }

    #[test]
    fn too_long_and_cut_frames_are_errors() {
        let huge = ((FRAME_MAX + 1) as u32).to_be_bytes();
        assert!(matches!(read(&mut &huge[..]), Err(FrameError::TooLong(_))));
        assert!(matches!(read(&mut &b"\0\0\0\x09half"[..]), Err(FrameError::Cut)));
        assert!(matches!(read(&mut &b"\0\0"[..]), Err(FrameError::Cut)));
        let event = Reply::Event { event: vec![0; FRAME_MAX] };
        assert!(matches!(encode(&event), Err(FrameError::TooLong(_))));
    }

    proptest! {
        #[test]
        fn garbage_is_an_error_and_never_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let mut input = bytes.as_slice();
            while let Ok(Some(content)) = read(&mut input) {
                let _order = decode::<ExecutorOrder>(&content);
            }
            let _order = decode::<ExecutorOrder>(&bytes);
            let _reply = decode::<Reply>(&bytes);
        }

        #[test]
        fn a_damaged_frame_never_panics(at in 0usize..200, byte in any::<u8>()) {
            let order = ExecutorOrder::Cleaned {
                fence: crate::wire::sample_fence(3),
                units: vec!["nginx.service".into()],
                files: vec!["/etc/nginx/".into()],
                keep: vec![],
            };
            let mut bytes = encode(&order).unwrap();
            let at = at % bytes.len();
            let before = bytes[at];
            bytes[at] = byte;
            if let Ok(Some(content)) = read(&mut bytes.as_slice()) {
                let read_back = decode::<ExecutorOrder>(&content);
                prop_assert!(byte != before || read_back.ok() == Some(order));
            }
        }
    }
}
