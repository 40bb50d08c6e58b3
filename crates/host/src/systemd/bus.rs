//! One connection to systemd's private socket, or to systemd over the bus daemon. Calls block, but
//! never longer than the deadline.

use super::SystemdSockets;
use super::wire::{self, BusMessage, CallArg, InvalidMessage, MethodCall, Value};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, send, socket_with};
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

/// Interval in which the `stop` callback is called.
const TICK: Duration = Duration::from_millis(50);
/// Pause between two attempts to connect while the socket's queue is full.
const BUSY: Duration = Duration::from_millis(5);
/// Maximum number of stored results of systemd jobs that no caller has requested yet; the oldest
/// are dropped.
const ENDED_MAX: usize = 10_000;
/// Maximum length of a line during authentication.
const LINE_MAX: usize = 4096;

/// The reason why systemd gave no answer, or answered with an error.
#[derive(Debug, thiserror::Error)]
pub enum BusError {
    /// No process listens on the socket, or the authentication was refused. Nothing was done.
    #[error("systemd does not answer here")]
    Absent,
    /// systemd may still execute the request.
    #[error("timed out")]
    TimedOut,
    /// systemd may still execute the request.
    #[error("was cancelled")]
    Cancelled,
    /// systemd may have executed the request.
    #[error("the connection to systemd was lost")]
    Lost(#[source] std::io::Error),
    #[error("systemd sent an invalid message: {0}")]
    Garbled(#[from] InvalidMessage),
    /// Nothing was done. `name` is the D-Bus error name.
    #[error("{message}")]
    Refused { name: String, message: String },
}

/// Time limits and stop callback of a connection.
pub struct BusDeadline<'a> {
    /// Deadline for all calls over the connection. None: no limit.
    pub until: Option<Instant>,
    /// Maximum time for each answer.
    pub answer: Duration,
    /// Called at short intervals. Returns whether the work must stop immediately.
    pub stop: Box<dyn Fn() -> bool + 'a>,
}

impl BusDeadline<'_> {
    /// Waits until the socket is ready. `until` is an additional deadline.
    fn wait(&self, socket: &OwnedFd, flags: PollFlags, until: Option<Instant>) -> Result<(), BusError> {
        loop {
            if (self.stop)() {
                return Err(BusError::Cancelled);
            }
            let now = Instant::now();
            let end = self.until.into_iter().chain(until).min();
            let left = end.map_or(TICK, |end| end.saturating_duration_since(now));
            if left.is_zero() {
                return Err(BusError::TimedOut);
            }
            let pause = Timespec::try_from(left.min(TICK)).map_err(|_| BusError::TimedOut)?;
            match poll(&mut [PollFd::new(socket, flags)], Some(&pause)) {
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => return Ok(()),
                Err(e) => return Err(BusError::Lost(e.into())),
            }
        }
    }
}

/// One authenticated D-Bus connection. Calls are made one at a time.
pub struct Bus<'a> {
    socket: OwnedFd,
    patience: BusDeadline<'a>,
    serial: u32,
    input: Vec<u8>,
    /// D-Bus path and result of each systemd job that has ended and was not waited for yet.
    ended_jobs: VecDeque<(String, String)>,
    by_daemon: bool,
    /// Set after an error of the connection. No further call is made then, because the late answer
    /// to an earlier call could be taken for its answer.
    broken: bool,
}

impl<'a> Bus<'a> {
    /// Connects to systemd's private socket, otherwise to the bus daemon.
    pub fn open(sockets: &SystemdSockets, patience: BusDeadline<'a>) -> Result<Self, BusError> {
        let socket = match (dial(&sockets.private, &patience)?, &sockets.bus) {
            (Some(socket), _) => (socket, false),
            (None, Some(path)) => (dial(path, &patience)?.ok_or(BusError::Absent)?, true),
            (None, None) => return Err(BusError::Absent),
        };
        let (socket, by_daemon) = socket;
        let (input, ended) = (Vec::new(), VecDeque::new());
        let mut bus = Self { socket, patience, serial: 0, input, ended_jobs: ended, by_daemon, broken: false };
        bus.authenticate()?;
        if by_daemon {
            bus.call_daemon("Hello", vec![])?;
        }
        Ok(bus)
    }

    /// Whether the connection goes through the bus daemon.
    pub fn by_daemon(&self) -> bool {
        self.by_daemon
    }

    /// Calls the bus daemon itself.
    pub fn call_daemon(&mut self, member: &str, args: Vec<CallArg>) -> Result<Vec<Value>, BusError> {
        let (destination, path) = ("org.freedesktop.DBus", "/org/freedesktop/DBus");
        self.call(&MethodCall { destination, path, interface: destination, member, args })
    }

    /// Sends a call and waits for its answer.
    pub fn call(&mut self, call: &MethodCall) -> Result<Vec<Value>, BusError> {
        if self.broken {
            return Err(BusError::Lost(std::io::ErrorKind::NotConnected.into()));
        }
        let until = Some(Instant::now() + self.patience.answer);
        let answer = self.exchange(call, until);
        self.broken = answer.is_err();
        let answer = answer?;
        if answer.kind != wire::ERROR {
            return Ok(answer.body);
        }
        let message = answer.body.first().and_then(Value::text).unwrap_or(&answer.name).to_owned();
        Err(BusError::Refused { name: answer.name, message })
    }

    fn exchange(&mut self, call: &MethodCall, until: Option<Instant>) -> Result<BusMessage, BusError> {
        self.serial += 1;
        let serial = self.serial;
        self.write(&wire::encode_call(serial, call), until)?;
        loop {
            let message = self.next(until)?;
            if message.answers == Some(serial) && matches!(message.kind, wire::REPLY | wire::ERROR) {
                return Ok(message);
            }
            self.record_job_end(message);
        }
    }

    /// Waits for the end of a systemd job and returns its result. The time is limited only by
    /// systemd itself and by the deadline `until` of the connection.
    pub fn wait_for_job(&mut self, job: &str) -> Result<String, BusError> {
        loop {
            if let Some(at) = self.ended_jobs.iter().position(|(path, _)| path == job) {
                return Ok(self.ended_jobs.remove(at).map(|(_, result)| result).unwrap_or_default());
            }
            match self.next(None) {
                Ok(message) => self.record_job_end(message),
                Err(fault) => {
                    self.broken = true;
                    return Err(fault);
                }
            }
        }
    }

    /// Stores the result of a systemd job from its `JobRemoved` signal (number, path, unit,
    /// result). Ignores all other messages.
    fn record_job_end(&mut self, message: BusMessage) {
        if message.kind != wire::SIGNAL || message.member != "JobRemoved" {
            return;
        }
        if let [_, Value::Text(path), _, Value::Text(result)] = &message.body[..] {
            self.ended_jobs.push_back((path.clone(), result.clone()));
            if self.ended_jobs.len() > ENDED_MAX {
                self.ended_jobs.pop_front();
            }
        }
    }

    /// Authenticates by the user id that the kernel reports to systemd or the bus daemon. Sends the
    /// authentication in one write, and no call before its answer. If a call arrives together with
    /// the end of the authentication, systemd leaves the call unread until more bytes arrive.
    fn authenticate(&mut self) -> Result<(), BusError> {
        let uid = hex::encode(rustix::process::geteuid().as_raw().to_string());
        let until = Some(Instant::now() + self.patience.answer);
        self.write(format!("\0AUTH EXTERNAL {uid}\r\nBEGIN\r\n").as_bytes(), until)?;
        let line = loop {
            if let Some(end) = self.input.windows(2).position(|two| two == b"\r\n") {
                break self.input.drain(..end + 2).collect::<Vec<u8>>();
            }
            if self.input.len() > LINE_MAX {
                return Err(BusError::Absent);
            }
            self.read(until)?;
        };
        if line.starts_with(b"OK ") { Ok(()) } else { Err(BusError::Absent) }
    }

    fn next(&mut self, until: Option<Instant>) -> Result<BusMessage, BusError> {
        loop {
            if let Some(fixed) = self.input.first_chunk() {
                let size = wire::message_size(fixed)?;
                if self.input.len() >= size {
                    let message = wire::decode_message(&self.input[..size]);
                    self.input.drain(..size);
                    return Ok(message?);
                }
            }
            self.read(until)?;
        }
    }

    fn read(&mut self, until: Option<Instant>) -> Result<(), BusError> {
        let mut buffer = [0; 16 << 10];
        loop {
            match rustix::io::read(&self.socket, &mut buffer) {
                Ok(0) => return Err(BusError::Lost(std::io::ErrorKind::UnexpectedEof.into())),
                Ok(n) => {
                    self.input.extend(&buffer[..n]);
                    return Ok(());
                }
                Err(Errno::AGAIN) => self.patience.wait(&self.socket, PollFlags::IN, until)?,
                Err(Errno::INTR) => {}
                Err(e) => return Err(BusError::Lost(e.into())),
            }
        }
    }

    fn write(&mut self, mut bytes: &[u8], until: Option<Instant>) -> Result<(), BusError> {
        while !bytes.is_empty() {
            match send(&self.socket, bytes, SendFlags::NOSIGNAL) {
                Ok(n) => bytes = &bytes[n..],
                Err(Errno::AGAIN) => self.patience.wait(&self.socket, PollFlags::OUT, until)?,
                Err(Errno::INTR) => {}
                Err(e) => return Err(BusError::Lost(e.into())),
            }
        }
        Ok(())
    }
}

/// Connects to the socket. None: no process listens there, or connecting is not permitted.
fn dial(path: &Path, patience: &BusDeadline) -> Result<Option<OwnedFd>, BusError> {
    let Ok(address) = SocketAddrUnix::new(path) else { return Ok(None) };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let until = Instant::now() + patience.answer;
    loop {
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None);
        let socket = socket.map_err(|e| BusError::Lost(e.into()))?;
        match connect(&socket, &address) {
            Ok(()) => return Ok(Some(socket)),
            // The queue of waiting connections is full.
            Err(Errno::AGAIN | Errno::INTR) => {
                let end = patience.until.map_or(until, |own| own.min(until));
                if (patience.stop)() {
                    return Err(BusError::Cancelled);
                }
                if Instant::now() >= end {
                    return Err(BusError::TimedOut);
                }
                std::thread::sleep(BUSY);
            }
            Err(_) => return Ok(None),
        }
    }
}
