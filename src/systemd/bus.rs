//! One connection to systemd's own socket, or to it by the bus daemon. Blocks, but never longer than it may.

use super::Sockets;
use super::wire::{self, Arg, Call, Garbled, Message, Value};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, send, socket_with};
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

/// How often somebody who may stop it is asked.
const TICK: Duration = Duration::from_millis(50);
/// Between two tries where too many wait to be let in.
const BUSY: Duration = Duration::from_millis(5);
/// Ends of jobs that are kept until they are asked for; the oldest go.
const ENDED_MAX: usize = 10_000;
/// Longest line of the login.
const LINE_MAX: usize = 4096;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// Nobody listens, or lets us in. Nothing was done.
    #[error("systemd does not answer here")]
    Absent,
    /// What was asked may yet be done.
    #[error("ran out of time")]
    TimedOut,
    /// What was asked may yet be done.
    #[error("was cancelled")]
    Cancelled,
    /// What was asked may be done.
    #[error("the connection to systemd was lost")]
    Lost(#[source] std::io::Error),
    #[error("systemd sent what can't be read: {0}")]
    Garbled(#[from] Garbled),
    /// Nothing was done. `name` is D-Bus's for the error.
    #[error("{message}")]
    Refused { name: String, message: String },
}

/// How long somebody waits.
pub struct Patience<'a> {
    /// For everything.
    pub until: Option<Instant>,
    /// For each answer.
    pub answer: Duration,
    /// Whether to stop at once.
    pub stop: Box<dyn Fn() -> bool + 'a>,
}

impl Patience<'_> {
    /// Ready to read or write, or why not. `until`: beside its own.
    fn wait(&self, socket: &OwnedFd, flags: PollFlags, until: Option<Instant>) -> Result<(), Fault> {
        loop {
            if (self.stop)() {
                return Err(Fault::Cancelled);
            }
            let now = Instant::now();
            let end = self.until.into_iter().chain(until).min();
            let left = end.map_or(TICK, |end| end.saturating_duration_since(now));
            if left.is_zero() {
                return Err(Fault::TimedOut);
            }
            let pause = Timespec::try_from(left.min(TICK)).map_err(|_| Fault::TimedOut)?;
            match poll(&mut [PollFd::new(socket, flags)], Some(&pause)) {
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => return Ok(()),
                Err(e) => return Err(Fault::Lost(e.into())),
            }
        }
    }
}

pub struct Bus<'a> {
    socket: OwnedFd,
    patience: Patience<'a>,
    serial: u32,
    input: Vec<u8>,
    /// Path and result.
    ended: VecDeque<(String, String)>,
    by_daemon: bool,
    /// After a fault of the connection nothing can be told apart on it any longer.
    broken: bool,
}

impl<'a> Bus<'a> {
    /// To systemd itself, else by the bus daemon.
    pub fn open(sockets: &Sockets, patience: Patience<'a>) -> Result<Self, Fault> {
        let socket = match (dial(&sockets.private, &patience)?, &sockets.bus) {
            (Some(socket), _) => (socket, false),
            (None, Some(path)) => (dial(path, &patience)?.ok_or(Fault::Absent)?, true),
            (None, None) => return Err(Fault::Absent),
        };
        let (socket, by_daemon) = socket;
        let (input, ended) = (Vec::new(), VecDeque::new());
        let mut bus = Self { socket, patience, serial: 0, input, ended, by_daemon, broken: false };
        bus.log_in()?;
        if by_daemon {
            bus.daemon("Hello", vec![])?;
        }
        Ok(bus)
    }

    pub fn by_daemon(&self) -> bool {
        self.by_daemon
    }

    /// A call to the bus daemon itself.
    pub fn daemon(&mut self, member: &str, args: Vec<Arg>) -> Result<Vec<Value>, Fault> {
        let (destination, path) = ("org.freedesktop.DBus", "/org/freedesktop/DBus");
        self.call(&Call { destination, path, interface: destination, member, args })
    }

    /// Sends a call and waits for its answer.
    pub fn call(&mut self, call: &Call) -> Result<Vec<Value>, Fault> {
        if self.broken {
            return Err(Fault::Lost(std::io::ErrorKind::NotConnected.into()));
        }
        let until = Some(Instant::now() + self.patience.answer);
        let answer = self.exchange(call, until);
        self.broken = answer.is_err();
        let answer = answer?;
        if answer.kind != wire::ERROR {
            return Ok(answer.body);
        }
        let message = answer.body.first().and_then(Value::text).unwrap_or(&answer.name).to_owned();
        Err(Fault::Refused { name: answer.name, message })
    }

    fn exchange(&mut self, call: &Call, until: Option<Instant>) -> Result<Message, Fault> {
        self.serial += 1;
        let serial = self.serial;
        self.write(&wire::call(serial, call), until)?;
        loop {
            let message = self.next(until)?;
            if message.answers == Some(serial) && matches!(message.kind, wire::REPLY | wire::ERROR) {
                return Ok(message);
            }
            self.note(message);
        }
    }

    /// Waits until this job has ended: its result. As long as systemd lets the job run.
    pub fn job_end(&mut self, job: &str) -> Result<String, Fault> {
        loop {
            if let Some(at) = self.ended.iter().position(|(path, _)| path == job) {
                return Ok(self.ended.remove(at).map(|(_, result)| result).unwrap_or_default());
            }
            match self.next(None) {
                Ok(message) => self.note(message),
                Err(fault) => {
                    self.broken = true;
                    return Err(fault);
                }
            }
        }
    }

    /// Of what nobody asked for, the ends of jobs are of interest: number, path, unit, result.
    fn note(&mut self, message: Message) {
        if message.kind != wire::SIGNAL || message.member != "JobRemoved" {
            return;
        }
        if let [_, Value::Text(path), _, Value::Text(result)] = &message.body[..] {
            self.ended.push_back((path.clone(), result.clone()));
            if self.ended.len() > ENDED_MAX {
                self.ended.pop_front();
            }
        }
    }

    /// By the user id that the kernel tells the other side. All in one piece, and no call before the answer: what comes
    /// together with the end of a login lies unread with systemd until more comes.
    fn log_in(&mut self) -> Result<(), Fault> {
        let uid = hex::encode(rustix::process::geteuid().as_raw().to_string());
        let until = Some(Instant::now() + self.patience.answer);
        self.write(format!("\0AUTH EXTERNAL {uid}\r\nBEGIN\r\n").as_bytes(), until)?;
        let line = loop {
            if let Some(end) = self.input.windows(2).position(|two| two == b"\r\n") {
                break self.input.drain(..end + 2).collect::<Vec<u8>>();
            }
            if self.input.len() > LINE_MAX {
                return Err(Fault::Absent);
            }
            self.read(until)?;
        };
        if line.starts_with(b"OK ") { Ok(()) } else { Err(Fault::Absent) }
    }

    fn next(&mut self, until: Option<Instant>) -> Result<Message, Fault> {
        loop {
            if let Some(fixed) = self.input.first_chunk() {
                let size = wire::size(fixed)?;
                if self.input.len() >= size {
                    let message = wire::message(&self.input[..size]);
                    self.input.drain(..size);
                    return Ok(message?);
                }
            }
            self.read(until)?;
        }
    }

    fn read(&mut self, until: Option<Instant>) -> Result<(), Fault> {
        let mut buffer = [0; 16 << 10];
        loop {
            match rustix::io::read(&self.socket, &mut buffer) {
                Ok(0) => return Err(Fault::Lost(std::io::ErrorKind::UnexpectedEof.into())),
                Ok(n) => {
                    self.input.extend(&buffer[..n]);
                    return Ok(());
                }
                Err(Errno::AGAIN) => self.patience.wait(&self.socket, PollFlags::IN, until)?,
                Err(Errno::INTR) => {}
                Err(e) => return Err(Fault::Lost(e.into())),
            }
        }
    }

    fn write(&mut self, mut bytes: &[u8], until: Option<Instant>) -> Result<(), Fault> {
        while !bytes.is_empty() {
            match send(&self.socket, bytes, SendFlags::NOSIGNAL) {
                Ok(n) => bytes = &bytes[n..],
                Err(Errno::AGAIN) => self.patience.wait(&self.socket, PollFlags::OUT, until)?,
                Err(Errno::INTR) => {}
                Err(e) => return Err(Fault::Lost(e.into())),
            }
        }
        Ok(())
    }
}

/// None: nobody listens there, or not to us.
fn dial(path: &Path, patience: &Patience) -> Result<Option<OwnedFd>, Fault> {
    let Ok(address) = SocketAddrUnix::new(path) else { return Ok(None) };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let until = Instant::now() + patience.answer;
    loop {
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None);
        let socket = socket.map_err(|e| Fault::Lost(e.into()))?;
        match connect(&socket, &address) {
            Ok(()) => return Ok(Some(socket)),
            // Others wait before us.
            Err(Errno::AGAIN | Errno::INTR) => {
                let end = patience.until.map_or(until, |own| own.min(until));
                if (patience.stop)() {
                    return Err(Fault::Cancelled);
                }
                if Instant::now() >= end {
                    return Err(Fault::TimedOut);
                }
                std::thread::sleep(BUSY);
            }
            Err(_) => return Ok(None),
        }
    }
}
