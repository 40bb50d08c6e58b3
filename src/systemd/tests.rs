//! A fake systemd on its own socket: calls, answers, and an invalid peer.

use super::wire::peer::bytes;
use super::wire::{self, Message, Value};
use super::*;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// Listens as the systemd of the runtime directory `runtime`. `answers` is called with member,
/// arguments (also lists) as texts, and the serial number to answer to; it returns the bytes to
/// send.
pub fn stand_in(runtime: &Path, answers: impl Fn(&str, &[String], u32) -> Vec<u8> + Send + Sync + 'static) -> Sockets {
    let sockets = Sockets::below(runtime);
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
        let mut fixed = [0; wire::FIXED];
        stream.read_exact(&mut fixed)?;
        let mut whole = fixed.to_vec();
        whole.resize(wire::size(&fixed).unwrap(), 0);
        stream.read_exact(&mut whole[wire::FIXED..])?;
        let Message { member, body, path, serial, .. } = wire::message(&whole).unwrap();
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
    let pair =
        |(key, value): &(&str, &str)| Value::Struct(vec![Value::Text((*key).into()), Value::Text((*value).into())]);
    bytes(wire::REPLY, serial, &[], "a{sv}", &[Value::Array(of.iter().map(pair).collect())])
}

/// The end of job `path` and the answer to the call that started it, in the order of `end_first`.
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

fn patience(until: Option<Duration>) -> Patience<'static> {
    let until = until.map(|d| Instant::now() + d);
    Patience { until, answer: Duration::from_secs(20), stop: Box::new(|| false) }
}

#[test]
fn a_unit_is_shown_and_started() {
    let dir = tempfile::tempdir().unwrap();
    let log = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&log);
    let sockets = stand_in(dir.path(), move |member, args, serial| {
        seen.lock().unwrap().push(format!("{member} {}", args.join(" ")));
        match member {
            "GetAll" => properties(serial, &[("LoadState", "loaded"), ("StatusText", "")]),
            "StartUnit" => job(serial, "/job/7", "done", true),
            "StopUnit" => job(serial, "/job/8", "timeout", false),
            "ReloadUnit" => {
                let fields = [(4, b's', "org.freedesktop.systemd1.NoSuchUnit")];
                bytes(wire::ERROR, serial, &fields, "s", &[Value::Text("Unit a.service not loaded.".into())])
            }
            _ => empty(serial),
        }
    });
    let mut manager = Manager::open(&sockets, patience(None)).unwrap();
    let shown = manager.show("a.service").unwrap();
    assert_eq!(shown.into_iter().collect::<Vec<_>>(), [("LoadState".to_owned(), "loaded".to_owned())]);
    assert_eq!(manager.run(Job::Start, "a.service", true).unwrap().as_deref(), Some("done"));
    assert_eq!(manager.run(Job::Stop, "a.service", true).unwrap().as_deref(), Some("timeout"));
    assert_eq!(manager.run(Job::Stop, "a.service", false).unwrap(), None);
    let refused = manager.run(Job::Reload, "a.service", true).unwrap_err();
    assert_eq!(refused.to_string(), "Unit a.service not loaded.");
    manager.set_unit_files(UnitFiles::Enable { force: true }, "a.service").unwrap();
    assert_eq!(
        *log.lock().unwrap(),
        [
            "GetAll  /org/freedesktop/systemd1/unit/a_2eservice",
            "Subscribe ",
            "StartUnit a.service replace",
            "StopUnit a.service replace",
            "StopUnit a.service replace",
            "ReloadUnit a.service replace",
            "EnableUnitFiles a.service false true",
            "Reload "
        ]
    );
}

#[test]
fn nobody_who_listens_is_absent() {
    let dir = tempfile::tempdir().unwrap();
    let open = |sockets: &Sockets| Manager::open(sockets, patience(None)).err();
    assert!(matches!(open(&Sockets::below(dir.path())), Some(Fault::Absent)));
    let sockets = Sockets { private: dir.path().join("none"), bus: Some(dir.path().join("none")) };
    assert!(matches!(open(&sockets), Some(Fault::Absent)));
}

#[test]
fn the_bus_daemon_is_greeted_and_told_what_to_send() {
    let dir = tempfile::tempdir().unwrap();
    let log = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&log);
    let listening = stand_in(dir.path(), move |member, _, serial| {
        seen.lock().unwrap().push(member.to_owned());
        if member == "StartUnit" { job(serial, "/job/1", "done", false) } else { empty(serial) }
    });
    let sockets = Sockets { private: dir.path().join("none"), bus: Some(listening.private) };
    let mut manager = Manager::open(&sockets, patience(None)).unwrap();
    assert_eq!(manager.run(Job::Start, "a.service", true).unwrap().as_deref(), Some("done"));
    assert_eq!(*log.lock().unwrap(), ["Hello", "AddMatch", "Subscribe", "StartUnit"]);
}

#[test]
fn what_does_not_answer_is_not_waited_for_without_end() {
    let dir = tempfile::tempdir().unwrap();
    let sockets = stand_in(dir.path(), |member, _, serial| match member {
        "Subscribe" => empty(serial),
        "StartUnit" => bytes(wire::REPLY, serial, &[], "o", &[Value::Text("/job/1".into())]),
        "StopUnit" => b"HTTP/1.1 400 Bad Request".to_vec(),
        _ => Vec::new(),
    });
    let open = |until| Manager::open(&sockets, patience(until)).unwrap();
    let mut manager = open(Some(Duration::from_millis(100)));
    assert!(matches!(manager.show("a.service"), Err(Fault::TimedOut)));
    assert!(matches!(manager.show("a.service"), Err(Fault::Lost(_))));
    let mut manager = open(Some(Duration::from_millis(300)));
    assert!(matches!(manager.run(Job::Start, "a.service", true), Err(Fault::TimedOut)));
    assert!(matches!(open(None).run(Job::Stop, "a.service", true), Err(Fault::Garbled(_))));
    let asked = std::cell::Cell::new(0);
    let stop = Box::new(|| asked.replace(asked.get() + 1) > 2);
    let patience = Patience { stop, ..patience(None) };
    let mut manager = Manager::open(&sockets, patience).unwrap();
    assert!(matches!(manager.run(Job::Start, "a.service", true), Err(Fault::Cancelled)));
}
