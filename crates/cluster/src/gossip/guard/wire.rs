//! The framing of memberlist's messages. The whole framing is checked here, because memberlist
//! waits without end for the rest of a truncated length. Nothing here uses the network.
//!
//! ```text
//!   message:   tag 1 | length 1..=5 | body
//!   compound:  1 | number of messages 1 | length of the messages 4 | messages
//! ```

use memberlist::proto::{Data, DataRef, DecodeError, Message, MessageRef};
use smol_str::SmolStr;
use std::net::SocketAddr;

/// A decoded message that borrows from the received bytes.
pub type MessageView<'a> = MessageRef<'a, &'a str, SocketAddr>;
/// A message that is encoded again.
pub type OwnedMessage = Message<SmolStr, SocketAddr>;

const COMPOUND: u8 = 1;
const COMPOUND_HEAD: usize = 1 + 1 + 4;
/// Maximum number of bytes that encode the length of a message.
const LENGTH_MAX: usize = 5;

/// Splits a decrypted text into its encoded messages. None if a length is not exactly the number of
/// bytes that follow.
pub fn split(text: &[u8]) -> Option<Vec<&[u8]>> {
    if text.first() != Some(&COMPOUND) {
        return (message_len(text)? == text.len()).then(|| vec![text]);
    }
    let (&[_, count, a, b, c, d], mut rest) = text.split_first_chunk::<COMPOUND_HEAD>()?;
    if u32::from_be_bytes([a, b, c, d]) as usize != rest.len() {
        return None;
    }
    let mut messages = vec![];
    for _ in 0..count {
        let (message, more) = rest.split_at_checked(message_len(rest)?)?;
        messages.push(message);
        rest = more;
    }
    rest.is_empty().then_some(messages)
}

/// The length of the encoded message at the start of `text`, in bytes.
fn message_len(text: &[u8]) -> Option<usize> {
    let (mut length, mut head) = (0_u64, 1);
    for byte in text.iter().skip(1).take(LENGTH_MAX) {
        length |= u64::from(byte & 0x7f) << (7 * (head - 1));
        head += 1;
        if byte & 0x80 == 0 {
            return usize::try_from(length).ok()?.checked_add(head);
        }
    }
    None
}

/// Decodes one message.
pub fn decode(message: &[u8]) -> Result<MessageView<'_>, DecodeError> {
    <MessageView<'_> as DataRef<OwnedMessage>>::decode(message).map(|(_, message)| message)
}

/// Encodes one message. None if it cannot be encoded.
pub fn encode(message: &OwnedMessage) -> Option<Vec<u8>> {
    message.encode_to_vec().ok()
}

/// Joins encoded messages into a text. None if there is no message, or if there are too many.
pub fn join(messages: &[Vec<u8>]) -> Option<Vec<u8>> {
    if let [message] = messages {
        return Some(message.clone());
    }
    let count = u8::try_from(messages.len()).ok().filter(|count| *count > 0)?;
    let length = u32::try_from(messages.iter().map(Vec::len).sum::<usize>()).ok()?;
    Some([&[COMPOUND, count], &length.to_be_bytes()[..], &messages.concat()].concat())
}

#[cfg(test)]
mod tests {
    use super::*;
    use memberlist::proto::{Ack, Nack, ProtoEncoder};
    use proptest::prelude::*;

    fn messages() -> Vec<OwnedMessage> {
        vec![Ack::new(7).into(), Nack::new(u32::MAX).into(), Ack::new(300).with_payload(vec![1; 300].into()).into()]
    }

    #[test]
    fn the_framing_is_memberlists_own() {
        for count in 1..=3 {
            let sent = &messages()[..count];
            let encoder = ProtoEncoder::new(1472).with_messages(sent);
            let text = encoder.encode().next().expect("one").expect("encoded").into_bytes();
            let parts = split(&text).expect("whole messages");
            let encoded: Vec<Vec<u8>> = sent.iter().map(|message| encode(message).expect("encoded")).collect();
            assert_eq!(parts, encoded);
            assert_eq!(join(&encoded).expect("a text"), text[..]);
            assert!(parts.iter().all(|part| decode(part).is_ok()));
            for end in 0..text.len() {
                assert_eq!(split(&text[..end]), None, "cut after {end} bytes");
            }
            assert_eq!(split(&[&text[..], &[0]].concat()), None, "one byte too many");
        }
        assert_eq!(join(&[]), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_split_without_a_panic(text in proptest::collection::vec(any::<u8>(), 0..64)) {
            if let Some(parts) = split(&text) {
                prop_assert!(parts.iter().map(|part| part.len()).sum::<usize>() <= text.len());
            }
        }
    }
}
