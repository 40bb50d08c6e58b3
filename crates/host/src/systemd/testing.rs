//! A fake systemd on its own socket, for the tests of this crate and of other crates.

use super::wire::peer::bytes;
use super::wire::{self, BusMessage, Value};
use super::*;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::thread;

/// Listens as the systemd of the runtime directory `runtime`. `answers` is called with member,
/// arguments (also lists) as texts, and the serial number to answer to; it returns the bytes to
/// send.
pub fn stand_in(
    runtime: &Path,
    answers: impl Fn(&str, &[String], u32) -> Vec<u8> + Send + Sync + 'static,
) -> SystemdSockets {
    let sockets = SystemdSockets::in_runtime_dir(runtime);
    std::fs::create_dir_all(runtime.join("systemd")).unwrap();
    let listener = UnixListener::bind(&sockets.private).unwrap();
    let answers = Arc::new(answers);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let answers = Arc::clone(&answers);
            // The thread ends when the client disconnects.
            thread::spawn(move || serve(stream.unwrap(), &*answers));
        }
    });
    sockets
}

type Answers = dyn Fn(&str, &[String], u32) -> Vec<u8>;

fn serve(mut stream: UnixStream, answers: &Answers) -> std::io::Result<()> {
    let mut line = Vec::new();
    let mut byte = [0];
    while !line.ends_with(b"BEGIN\r\n") {
        stream.read_exact(&mut byte)?;
        line.push(byte[0]);
        if line.ends_with(b"\r\n") && line.starts_with(b"\0AUTH EXTERNAL ") && !line.ends_with(b"BEGIN\r\n") {
            stream.write_all(b"OK 0123456789abcdef0123456789abcdef\r\n")?;
        }
    }
    loop {
        let mut fixed = [0; wire::HEADER_BYTES];
        stream.read_exact(&mut fixed)?;
        let mut whole = fixed.to_vec();
        whole.resize(wire::message_size(&fixed).unwrap(), 0);
        stream.read_exact(&mut whole[wire::HEADER_BYTES..])?;
        let BusMessage { member, body, path, serial, .. } = wire::decode_message(&whole).unwrap();
        let args = body.iter().flat_map(|value| match value {
            Value::Array(items) => items.iter().filter_map(Value::text).map(str::to_owned).collect(),
            Value::Bool(on) => vec![on.to_string()],
            other => vec![other.text().unwrap_or_default().to_owned()],
        });
        let args: Vec<String> = args.chain(member.starts_with("Get").then_some(path)).collect();
        stream.write_all(&answers(&member, &args, serial))?;
    }
}

/// The answer to `GetAll`.
pub fn properties(serial: u32, of: &[(&str, &str)]) -> Vec<u8> {
    unit_properties(serial, of, &[])
}

/// The answer to `GetAll` with texts and with numbers of 64 bits.
pub fn unit_properties(serial: u32, texts: &[(&str, &str)], numbers: &[(&str, u64)]) -> Vec<u8> {
    let pair = |key: &str, value: Value| Value::Struct(vec![Value::Text(key.into()), value]);
    let texts = texts.iter().map(|(key, value)| pair(key, Value::Text((*value).into())));
    let numbers = numbers.iter().map(|(key, value)| pair(key, Value::Long(*value)));
    bytes(wire::REPLY, serial, &[], "a{sv}", &[Value::Array(texts.chain(numbers).collect())])
}

/// The signal that the systemd job `path` has ended, and the answer to the call that started this
/// job. With `end_first` the signal comes first.
pub fn job(serial: u32, path: &str, result: &str, end_first: bool) -> Vec<u8> {
    let text = |text: &str| Value::Text(text.into());
    let fields = [(3, b's', "JobRemoved")];
    let end = bytes(wire::SIGNAL, 0, &fields, "uoss", &[Value::Uint(7), text(path), text("a.service"), text(result)]);
    let begun = bytes(wire::REPLY, serial, &[], "o", &[text(path)]);
    if end_first { [end, begun].concat() } else { [begun, end].concat() }
}

pub fn empty(serial: u32) -> Vec<u8> {
    bytes(wire::REPLY, serial, &[], "", &[])
}
