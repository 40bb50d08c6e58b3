//! The part of the D-Bus wire format that systemd's interface needs: whole messages to bytes and
//! back, no file descriptors. Pure. Format: D-Bus specification, "Message Protocol".

/// Maximum size of a message. systemd's longest answer, all units of a large host, has a few
/// megabytes.
pub const MESSAGE_MAX: usize = 32 << 20;
/// Number of leading bytes from which the size of a message can be computed.
pub const HEADER_BYTES: usize = 16;
/// Maximum nesting of values; the specification allows 32 arrays and 32 structures.
const DEPTH_MAX: usize = 64;

/// Message types of the specification.
pub const CALL: u8 = 1;
pub const REPLY: u8 = 2;
pub const ERROR: u8 = 3;
pub const SIGNAL: u8 = 4;

/// A decoded value.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    Byte(u8),
    Bool(bool),
    /// A signed integer of 16, 32 or 64 bits.
    Int(i64),
    /// An unsigned integer of 16 or 32 bits.
    Uint(u32),
    Long(u64),
    Double(f64),
    /// A text, an object path or a signature.
    Text(String),
    Array(Vec<Value>),
    /// A structure, or a dictionary entry.
    Struct(Vec<Value>),
}

impl Value {
    /// The text. None for other values.
    pub fn text(&self) -> Option<&str> {
        match self {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The members of an array or structure; empty for other values.
    pub fn items(&self) -> &[Value] {
        match self {
            Value::Array(items) | Value::Struct(items) => items,
            _ => &[],
        }
    }
}

/// An argument of a call.
#[derive(Debug, Clone, PartialEq)]
pub enum CallArg<'a> {
    Text(&'a str),
    Bool(bool),
    List(Vec<&'a str>),
}

/// A method call on an object.
#[derive(Debug, Clone)]
pub struct MethodCall<'a> {
    pub destination: &'a str,
    pub path: &'a str,
    pub interface: &'a str,
    pub member: &'a str,
    pub args: Vec<CallArg<'a>>,
}

/// A decoded message. Fields that the message lacks are empty.
#[derive(Debug, Default, PartialEq)]
pub struct BusMessage {
    pub kind: u8,
    pub serial: u32,
    pub path: String,
    pub interface: String,
    pub member: String,
    /// The D-Bus error name; empty unless the message is an error.
    pub name: String,
    pub answers: Option<u32>,
    pub body: Vec<Value>,
}

/// The bytes are not a D-Bus message. The connection cannot be used any longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not D-Bus: {0}")]
pub struct InvalidMessage(&'static str);

/// Encodes a call, little endian.
pub fn encode_call(serial: u32, call: &MethodCall) -> Vec<u8> {
    let mut body = MessageWriter::default();
    let mut signature = String::new();
    for arg in &call.args {
        match arg {
            CallArg::Text(text) => {
                signature.push('s');
                body.text(text);
            }
            CallArg::Bool(on) => {
                signature.push('b');
                body.put_u32(u32::from(*on));
            }
            CallArg::List(items) => {
                signature.push_str("as");
                body.array(4, |out| items.iter().for_each(|item| out.text(item)));
            }
        }
    }
    let mut out = MessageWriter::default();
    out.0.extend([b'l', CALL, 0, 1]);
    out.put_u32(length(body.0.len()));
    out.put_u32(serial);
    out.array(8, |out| {
        for (code, kind, text) in [
            (1, b'o', call.path),
            (2, b's', call.interface),
            (3, b's', call.member),
            (6, b's', call.destination),
            (8, b'g', signature.as_str()),
        ] {
            if !text.is_empty() {
                out.pad(8);
                out.0.extend([code, 1, kind, 0]);
                if kind == b'g' { out.signature(text) } else { out.text(text) }
            }
        }
    });
    out.pad(8);
    out.0.extend(body.0);
    out.0
}

/// The length as `u32`. A longer value gets a wrong length, which the receiver refuses; no message
/// here is near this size.
fn length(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

#[derive(Default)]
struct MessageWriter(Vec<u8>);

impl MessageWriter {
    fn pad(&mut self, to: usize) {
        self.0.resize(self.0.len().next_multiple_of(to), 0);
    }
    fn put_u32(&mut self, word: u32) {
        self.pad(4);
        self.0.extend(word.to_le_bytes());
    }
    fn text(&mut self, text: &str) {
        self.put_u32(length(text.len()));
        self.0.extend(text.as_bytes());
        self.0.push(0);
    }
    fn signature(&mut self, text: &str) {
        self.0.push(text.len().try_into().unwrap_or(u8::MAX));
        self.0.extend(text.as_bytes());
        self.0.push(0);
    }
    /// Writes an array. Its length does not include the padding before the first item.
    fn array(&mut self, align: usize, items: impl FnOnce(&mut Self)) {
        self.put_u32(0);
        let at = self.0.len() - 4;
        self.pad(align);
        let start = self.0.len();
        items(self);
        let bytes = length(self.0.len() - start).to_le_bytes();
        self.0[at..at + 4].copy_from_slice(&bytes);
    }
}

/// The size of the message that begins with these bytes.
pub fn message_size(fixed: &[u8; HEADER_BYTES]) -> Result<usize, InvalidMessage> {
    let mut reader = MessageReader::new(fixed)?;
    reader.at = 4;
    let (body, _serial, fields) = (reader.read_u32()?, reader.read_u32()?, reader.read_u32()?);
    let whole = (HEADER_BYTES as u64 + u64::from(fields)).next_multiple_of(8) + u64::from(body);
    usize::try_from(whole).ok().filter(|n| *n <= MESSAGE_MAX).ok_or(InvalidMessage("a message is too long"))
}

/// Decodes a whole message.
pub fn decode_message(bytes: &[u8]) -> Result<BusMessage, InvalidMessage> {
    let mut reader = MessageReader::new(bytes)?;
    reader.at = 1;
    let mut out = BusMessage { kind: reader.byte()?, ..BusMessage::default() };
    reader.at = 8;
    out.serial = reader.read_u32()?;
    let mut signature = String::new();
    let fields = reader.value(b"a(yv)", 0)?.0;
    for field in fields.items() {
        match field.items() {
            [Value::Byte(5), Value::Uint(serial)] => out.answers = Some(*serial),
            [Value::Byte(code), Value::Text(text)] => match code {
                1 => out.path.clone_from(text),
                2 => out.interface.clone_from(text),
                3 => out.member.clone_from(text),
                4 => out.name.clone_from(text),
                8 => signature.clone_from(text),
                _ => {}
            },
            _ => {}
        }
    }
    reader.pad(8)?;
    let mut rest = signature.as_bytes();
    while !rest.is_empty() {
        let (value, after) = reader.value(rest, 0)?;
        out.body.push(value);
        rest = after;
    }
    Ok(out)
}

struct MessageReader<'a> {
    bytes: &'a [u8],
    at: usize,
    big: bool,
}

type Read<'s> = Result<(Value, &'s [u8]), InvalidMessage>;

const SHORT: InvalidMessage = InvalidMessage("a message ends too early");
const SIGNATURE: InvalidMessage = InvalidMessage("a signature is invalid");

impl<'a> MessageReader<'a> {
    fn new(bytes: &'a [u8]) -> Result<Self, InvalidMessage> {
        match bytes.first() {
            Some(b'l') => Ok(Self { bytes, at: 0, big: false }),
            Some(b'B') => Ok(Self { bytes, at: 0, big: true }),
            _ => Err(InvalidMessage("a message begins with an unknown byte order")),
        }
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], InvalidMessage> {
        let end = self.at.checked_add(count).ok_or(SHORT)?;
        let taken = self.bytes.get(self.at..end).ok_or(SHORT)?;
        self.at = end;
        Ok(taken)
    }
    fn pad(&mut self, to: usize) -> Result<(), InvalidMessage> {
        self.take(self.at.next_multiple_of(to) - self.at).map(drop)
    }
    fn byte(&mut self) -> Result<u8, InvalidMessage> {
        Ok(self.take(1)?[0])
    }
    /// A number of `N` bytes in little-endian order.
    fn number<const N: usize>(&mut self) -> Result<[u8; N], InvalidMessage> {
        self.pad(N)?;
        let mut out = [0; N];
        out.copy_from_slice(self.take(N)?);
        if self.big {
            out.reverse();
        }
        Ok(out)
    }
    fn read_u32(&mut self) -> Result<u32, InvalidMessage> {
        Ok(u32::from_le_bytes(self.number()?))
    }
    /// A text of `count` bytes and the terminating zero.
    fn text(&mut self, count: usize) -> Result<String, InvalidMessage> {
        let text = String::from_utf8_lossy(self.take(count)?).into_owned();
        if self.byte()? == 0 { Ok(text) } else { Err(InvalidMessage("a text has no terminating zero")) }
    }

    /// Reads a value of the first type of `signature`; also returns the rest of the signature. A
    /// variant yields its content.
    fn value<'s>(&mut self, signature: &'s [u8], depth: usize) -> Read<'s> {
        if depth > DEPTH_MAX {
            return Err(InvalidMessage("values are nested too deeply"));
        }
        let (kind, rest) = signature.split_first().ok_or(SIGNATURE)?;
        let value = match kind {
            b'y' => Value::Byte(self.byte()?),
            b'b' => Value::Bool(self.read_u32()? != 0),
            b'n' => Value::Int(i16::from_le_bytes(self.number()?).into()),
            b'q' => Value::Uint(u16::from_le_bytes(self.number()?).into()),
            b'i' => Value::Int(i32::from_le_bytes(self.number()?).into()),
            b'u' | b'h' => Value::Uint(self.read_u32()?),
            b'x' => Value::Int(i64::from_le_bytes(self.number()?)),
            b't' => Value::Long(u64::from_le_bytes(self.number()?)),
            b'd' => Value::Double(f64::from_le_bytes(self.number()?)),
            b's' | b'o' => {
                let count = self.read_u32()?;
                Value::Text(self.text(count as usize)?)
            }
            b'g' => {
                let count = self.byte()?;
                Value::Text(self.text(count.into())?)
            }
            b'v' => {
                let count = self.byte()?;
                let inner = self.text(count.into())?;
                let (value, left) = self.value(inner.as_bytes(), depth + 1)?;
                if !left.is_empty() {
                    return Err(SIGNATURE);
                }
                value
            }
            b'a' => return self.array(rest, depth + 1),
            b'(' | b'{' => return self.structure(rest, depth + 1),
            _ => return Err(SIGNATURE),
        };
        Ok((value, rest))
    }

    /// Reads an array. `item` is the signature after the `a`.
    fn array<'s>(&mut self, item: &'s [u8], depth: usize) -> Read<'s> {
        let rest = item.get(one_type(item, depth)?..).ok_or(SIGNATURE)?;
        let count = self.read_u32()? as usize;
        self.pad(match item.first() {
            Some(b'x' | b't' | b'd' | b'(' | b'{') => 8,
            _ => 1,
        })?;
        let end = self.at.checked_add(count).filter(|end| *end <= self.bytes.len()).ok_or(SHORT)?;
        let mut items = Vec::new();
        while self.at < end {
            items.push(self.value(item, depth)?.0);
        }
        if self.at == end { Ok((Value::Array(items), rest)) } else { Err(SHORT) }
    }

    fn structure<'s>(&mut self, mut rest: &'s [u8], depth: usize) -> Read<'s> {
        self.pad(8)?;
        let mut items = Vec::new();
        loop {
            match rest.first() {
                Some(b')' | b'}') if !items.is_empty() => return Ok((Value::Struct(items), &rest[1..])),
                _ => {
                    let (value, after) = self.value(rest, depth)?;
                    items.push(value);
                    rest = after;
                }
            }
        }
    }
}

/// The length of the first type of a signature.
fn one_type(signature: &[u8], depth: usize) -> Result<usize, InvalidMessage> {
    if depth > DEPTH_MAX {
        return Err(SIGNATURE);
    }
    match signature.first() {
        Some(b'a') => Ok(1 + one_type(&signature[1..], depth + 1)?),
        Some(b'(' | b'{') => {
            let mut at = 1;
            while !matches!(signature.get(at), Some(b')' | b'}')) {
                at += one_type(signature.get(at..).ok_or(SIGNATURE)?, depth + 1)?;
            }
            // An empty structure takes no bytes, so an array of it would never end.
            if at == 1 { Err(SIGNATURE) } else { Ok(at + 1) }
        }
        Some(_) => Ok(1),
        None => Err(SIGNATURE),
    }
}

/// Encodes messages that systemd sends, for tests with a fake systemd.
#[cfg(any(test, feature = "testing"))]
pub mod peer {
    use super::*;

    /// Encodes a message. `kind` is SIGNAL, or REPLY or ERROR to the call `answers`; fields are
    /// (code, type, text).
    pub fn bytes(kind: u8, answers: u32, fields: &[(u8, u8, &str)], signature: &str, body: &[Value]) -> Vec<u8> {
        let mut inner = MessageWriter::default();
        let mut rest = signature.as_bytes();
        for value in body {
            rest = put_value(&mut inner, rest, value);
        }
        let mut out = MessageWriter::default();
        out.0.extend([b'l', kind, 0, 1]);
        out.put_u32(length(inner.0.len()));
        out.put_u32(1);
        out.array(8, |out| {
            if kind != SIGNAL {
                out.pad(8);
                out.0.extend([5, 1, b'u', 0]);
                out.put_u32(answers);
            }
            for (code, kind, text) in fields.iter().copied().chain([(8, b'g', signature)]) {
                out.pad(8);
                out.0.extend([code, 1, kind, 0]);
                if kind == b'g' { out.signature(text) } else { out.text(text) }
            }
        });
        out.pad(8);
        out.0.extend(inner.0);
        out.0
    }

    fn put_value<'s>(out: &mut MessageWriter, signature: &'s [u8], value: &Value) -> &'s [u8] {
        match (signature[0], value) {
            (b'y', Value::Byte(b)) => out.0.push(*b),
            (b'b', Value::Bool(on)) => out.put_u32(u32::from(*on)),
            (b'i', Value::Int(n)) => out.put_u32(*n as i32 as u32),
            (b'u', Value::Uint(n)) => out.put_u32(*n),
            (b't', Value::Long(n)) => {
                out.pad(8);
                out.0.extend(n.to_le_bytes());
            }
            (b's' | b'o', Value::Text(text)) => out.text(text),
            (b'v', value) => {
                let kind = match value {
                    Value::Bool(_) => "b",
                    Value::Uint(_) => "u",
                    Value::Long(_) => "t",
                    Value::Int(_) => "i",
                    Value::Array(_) => "as",
                    _ => "s",
                };
                out.signature(kind);
                put_value(out, kind.as_bytes(), value);
            }
            (b'a', Value::Array(items)) => {
                let item = &signature[1..];
                let align = if matches!(item[0], b'(' | b'{' | b't') { 8 } else { 1 };
                out.array(align, |out| {
                    for value in items {
                        put_value(out, item, value);
                    }
                });
                return &item[one_type(item, 0).unwrap()..];
            }
            (b'(' | b'{', Value::Struct(items)) => {
                out.pad(8);
                let mut rest = &signature[1..];
                for value in items {
                    rest = put_value(out, rest, value);
                }
                return &rest[1..];
            }
            other => panic!("{other:?}"),
        }
        &signature[1..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn text(text: &str) -> Value {
        Value::Text(text.into())
    }

    #[test]
    fn a_call_is_encoded_as_specified() {
        let hello =
            MethodCall { destination: "d", path: "/", interface: "i", member: "M", args: vec![CallArg::Text("x")] };
        let bytes = encode_call(7, &hello);
        assert_eq!(&bytes[..16], b"l\x01\x00\x01\x06\x00\x00\x00\x07\x00\x00\x00\x47\x00\x00\x00");
        assert_eq!(message_size(bytes[..16].try_into().unwrap()), Ok(bytes.len()));
        let read = decode_message(&bytes).unwrap();
        assert_eq!((read.kind, read.serial, read.path.as_str(), read.member.as_str()), (CALL, 7, "/", "M"));
        assert_eq!(read.body, [text("x")]);
        let args = vec![CallArg::List(vec!["a.service", "b"]), CallArg::Bool(false), CallArg::Bool(true)];
        let read = decode_message(&encode_call(8, &MethodCall { args, ..hello })).unwrap();
        let list = Value::Array(vec![text("a.service"), text("b")]);
        assert_eq!(read.body, [list, Value::Bool(false), Value::Bool(true)]);
    }

    #[test]
    fn nested_values_are_decoded() {
        let pair = |key: &str, value| Value::Struct(vec![text(key), value]);
        let properties = Value::Array(vec![
            pair("Id", text("a.service")),
            pair("MainPID", Value::Uint(12)),
            pair("When", Value::Long(u64::MAX)),
            pair("Names", Value::Array(vec![text("a"), text("b")])),
        ]);
        let bytes = peer::bytes(REPLY, 3, &[], "a{sv}s", &[properties.clone(), text("end")]);
        let read = decode_message(&bytes).unwrap();
        assert_eq!((read.answers, read.body), (Some(3), vec![properties, text("end")]));
    }

    #[test]
    fn invalid_messages_are_errors() {
        let reply = peer::bytes(REPLY, 3, &[], "a(yi)s", &[Value::Array(vec![]), text("")]);
        assert!(decode_message(&reply).is_ok());
        for signature in ["a()", "a(yi", "z", "(", ")", "aaaaaa", "(y}}"] {
            let mut broken = reply.clone();
            let at = broken.windows(6).position(|w| w == b"a(yi)s").unwrap();
            broken[at..at + 6].fill(b'y');
            broken[at..at + signature.len()].copy_from_slice(signature.as_bytes());
            assert!(decode_message(&broken).is_err(), "{signature}");
        }
        assert_eq!(
            message_size(b"l\x02\x00\x01\xff\xff\xff\xff\x01\0\0\0\x08\0\0\0"),
            Err(InvalidMessage("a message is too long"))
        );
        assert!(message_size(b"HTTP/1.1 400 Bad").is_err());
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes: Vec<u8>, signature in "[ybnqiuxtdsogva(){}]{0,40}") {
            let mut reply = peer::bytes(REPLY, 3, &[], "s", &[text("")]);
            let _whatever = decode_message(&bytes);
            reply.extend(&bytes);
            let _whatever = decode_message(&reply);
            let mut rest = signature.as_bytes();
            let mut framed = vec![b'l'];
            framed.extend(&bytes);
            let mut reader = MessageReader { bytes: &framed, at: 1, big: false };
            while !rest.is_empty() {
                match reader.value(rest, 0) {
                    Ok((_, after)) => rest = after,
                    Err(_) => break,
                }
            }
        }
    }
}
