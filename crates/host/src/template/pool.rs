//! The child processes that render templates for this process. They are started when needed, used
//! for many templates, and ended when nothing was rendered for a while.

use super::child::{FAILED, RENDERED, REQUEST_MAX, RenderRequest};
use super::engine::TemplateError;
use super::{CPU_MAX, MEMORY_MAX, RENDERED_MAX};
use remoor_model::Sha256;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Maximum number of child processes that render: more would not be faster on most managers.
const CHILDREN_MAX: usize = 4;
/// Time after which an unused child process is ended.
const IDLE_MAX: Duration = Duration::from_secs(10);
/// Maximum time for a request and its answer. A child that needs too much processor time is ended
/// much earlier. This time is for a child that does not run, for instance after SIGSTOP.
const ANSWER_MAX: Duration = Duration::from_secs(120);
/// Time for which a template that exceeded a limit is refused immediately. Without the refusal, the
/// template would use up its limit of processor time again for each of 1,000 hosts.
const REFUSED_FOR: Duration = Duration::from_secs(600);
/// Maximum number of refused templates that are remembered.
const REFUSED_MAX: usize = 256;
/// The signal of an exceeded limit of processor time.
const SIGXCPU: i32 = 24;
/// The signal of `abort`, which Rust calls when memory can't be allocated.
const SIGABRT: i32 = 6;

pub struct RenderPool {
    argument: &'static str,
    shared: Arc<SharedPool>,
}

#[derive(Default)]
struct SharedPool {
    state: Mutex<PoolState>,
    /// Notified when a child was given back, or has ended.
    freed: Condvar,
}

#[derive(Default)]
struct PoolState {
    /// Child processes that wait for a request, each with the time at which the wait began.
    idle: Vec<(Instant, RenderChild)>,
    /// Number of child processes, including those that are rendering.
    children: usize,
    /// Whether a thread that ends idle children is running.
    swept: bool,
    refused: BTreeMap<Sha256, (Instant, TemplateError)>,
}

impl SharedPool {
    fn lock(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A child process that renders templates. It is killed when this value is dropped.
struct RenderChild {
    process: Child,
    input: ChildStdin,
    output: ChildStdout,
}

impl Drop for RenderChild {
    fn drop(&mut self) {
        // The child may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The reason why a child process gave no answer.
enum ChildFailure {
    /// The template needed too much processor time. A used child has the same limit as a new one.
    Time(TemplateError),
    /// Too much memory was needed. In a used child, the memory of earlier templates counts too.
    Memory(TemplateError),
    /// The child gave no valid answer for another reason: another process may have ended or
    /// stopped it.
    Broken(TemplateError),
}

impl RenderPool {
    pub fn new(argument: &'static str) -> Self {
        Self { argument, shared: Arc::default() }
    }

    pub fn render(&self, text: &str, variables: &Map<String, Value>) -> Result<String, TemplateError> {
        let request = RenderRequest { text: Cow::Borrowed(text), variables: Cow::Borrowed(variables) };
        let request = serde_json::to_vec(&request).map_err(|e| TemplateError::Other { text: e.to_string() })?;
        if request.len() > REQUEST_MAX {
            let text = format!("the template and its variables have more than {} MiB", REQUEST_MAX >> 20);
            return Err(TemplateError::Limit { text });
        }
        let key = Sha256::digest(text.as_bytes());
        if let Some((since, error)) = self.shared.lock().refused.get(&key)
            && since.elapsed() < REFUSED_FOR
        {
            return Err(error.clone());
        }
        let (child, is_new) = self.take_child()?;
        match self.ask_child(child, &request) {
            Err(ChildFailure::Memory(_) | ChildFailure::Broken(_)) if !is_new => {}
            answer => return self.judge(key, answer),
        }
        let child = self.start_child().inspect_err(|_| self.release())?;
        let answer = self.ask_child(child, &request);
        self.judge(key, answer)
    }

    fn judge(
        &self,
        key: Sha256,
        answer: Result<Result<String, TemplateError>, ChildFailure>,
    ) -> Result<String, TemplateError> {
        match answer {
            Ok(answer) => answer,
            Err(ChildFailure::Broken(error)) => {
                self.release();
                Err(error)
            }
            Err(ChildFailure::Time(error) | ChildFailure::Memory(error)) => {
                self.release();
                let mut state = self.shared.lock();
                state.refused.retain(|_, (since, _)| since.elapsed() < REFUSED_FOR);
                if state.refused.len() < REFUSED_MAX {
                    state.refused.insert(key, (Instant::now(), error.clone()));
                }
                Err(error)
            }
        }
    }

    /// Takes an idle child process or starts one. Waits while the maximum number of them is
    /// rendering. True: the child process is new.
    fn take_child(&self) -> Result<(RenderChild, bool), TemplateError> {
        let mut state = self.shared.lock();
        loop {
            if let Some((_, child)) = state.idle.pop() {
                return Ok((child, false));
            }
            if state.children < CHILDREN_MAX {
                state.children += 1;
                drop(state);
                return Ok((self.start_child().inspect_err(|_| self.release())?, true));
            }
            state = self.shared.freed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Subtracts a child that has ended from the number of children.
    fn release(&self) {
        self.shared.lock().children -= 1;
        self.shared.freed.notify_one();
    }

    /// Starts the program of this process again, also if its file was replaced by a newer version.
    fn start_child(&self) -> Result<RenderChild, TemplateError> {
        let mut command = Command::new("/proc/self/exe");
        command.arg0("remoor").arg(self.argument).env_clear().current_dir("/");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let failed = |why: String| TemplateError::Other { text: format!("no process can be started to render: {why}") };
        let mut process = command.spawn().map_err(|e| failed(e.to_string()))?;
        match (process.stdin.take(), process.stdout.take()) {
            (Some(input), Some(output)) => {
                let flags = fcntl_getfl(&input).map_err(|e| failed(e.to_string()))?;
                fcntl_setfl(&input, flags | OFlags::NONBLOCK).map_err(|e| failed(e.to_string()))?;
                Ok(RenderChild { process, input, output })
            }
            _ => Err(failed("it has no pipes".to_owned())),
        }
    }

    /// Sends a request to a child, and gives the child back after its answer. A child without an
    /// answer has ended; the caller releases it.
    fn ask_child(&self, mut child: RenderChild, request: &[u8]) -> Result<Result<String, TemplateError>, ChildFailure> {
        match exchange(&mut child, request) {
            Ok(answer) => {
                self.give_back(child);
                Ok(answer)
            }
            Err(error) => {
                let _ended = child.process.kill();
                Err(explain_end(&error, child.process.wait().ok()))
            }
        }
    }

    fn give_back(&self, child: RenderChild) {
        let mut state = self.shared.lock();
        state.idle.push((Instant::now(), child));
        self.shared.freed.notify_one();
        if state.swept {
            return;
        }
        let shared = self.shared.clone();
        let sweeper = thread::Builder::new().name("render-idle".to_owned());
        // If the thread cannot be started, idle children exist until this process ends.
        state.swept = sweeper.spawn(move || end_idle_children(&shared)).is_ok();
    }
}

/// Ends children that were idle for a while; returns when none is idle.
fn end_idle_children(shared: &SharedPool) {
    loop {
        thread::sleep(IDLE_MAX);
        let mut state = shared.lock();
        let (old, young) = state.idle.drain(..).partition(|(since, _)| since.elapsed() >= IDLE_MAX);
        let old: Vec<(Instant, RenderChild)> = old;
        state.idle = young;
        state.children -= old.len();
        let done = state.idle.is_empty();
        state.swept = !done;
        drop(state);
        drop(old);
        if done {
            return;
        }
    }
}

fn exchange(child: &mut RenderChild, request: &[u8]) -> io::Result<Result<String, TemplateError>> {
    let len = u32::try_from(request.len()).map_err(io::Error::other)?;
    let deadline = Instant::now() + ANSWER_MAX;
    write_before(&mut child.input, &len.to_be_bytes(), deadline)?;
    write_before(&mut child.input, request, deadline)?;
    let mut head = [0; 5];
    read_before(&mut child.output, &mut head, deadline)?;
    let [kind, len @ ..] = head;
    let len = u32::from_be_bytes(len) as usize;
    if len > RENDERED_MAX {
        return Err(io::Error::new(ErrorKind::InvalidData, "its answer is too long"));
    }
    let mut answer = vec![0; len];
    read_before(&mut child.output, &mut answer, deadline)?;
    match kind {
        RENDERED => Ok(Ok(String::from_utf8(answer).map_err(io::Error::other)?)),
        FAILED => Ok(Err(serde_json::from_slice(&answer)?)),
        _ => Err(io::Error::new(ErrorKind::InvalidData, "its answer has an unknown kind")),
    }
}

/// Waits until the pipe is ready, at most until the deadline.
fn wait_before(pipe: impl AsFd, ready: PollFlags, deadline: Instant) -> io::Result<()> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).map_err(io::Error::other)?;
        match poll(&mut [PollFd::new(&pipe, ready)], Some(&left)) {
            Ok(0) => return Err(ErrorKind::TimedOut.into()),
            Ok(_) => return Ok(()),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Writes to a non-blocking pipe until the deadline. A child that is stopped reads nothing.
fn write_before(input: &mut ChildStdin, mut bytes: &[u8], deadline: Instant) -> io::Result<()> {
    while !bytes.is_empty() {
        match input.write(bytes) {
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == ErrorKind::WouldBlock => wait_before(&*input, PollFlags::OUT, deadline)?,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn read_before(output: &mut ChildStdout, buffer: &mut [u8], deadline: Instant) -> io::Result<()> {
    let mut filled = 0;
    while filled < buffer.len() {
        wait_before(&*output, PollFlags::IN, deadline)?;
        match output.read(&mut buffer[filled..])? {
            0 => return Err(ErrorKind::UnexpectedEof.into()),
            read => filled += read,
        }
    }
    Ok(())
}

/// The reason why a child ended before it answered.
fn explain_end(error: &io::Error, status: Option<ExitStatus>) -> ChildFailure {
    let limit = |text: String| TemplateError::Limit { text };
    if error.kind() == ErrorKind::TimedOut {
        let text = format!("the template was not rendered within {} s", ANSWER_MAX.as_secs());
        return ChildFailure::Broken(TemplateError::Other { text });
    }
    match status.and_then(|status| status.signal()) {
        Some(SIGXCPU) => {
            let text = format!("the template needs more than {} s of processor time", CPU_MAX.as_secs());
            ChildFailure::Time(limit(text))
        }
        Some(SIGABRT) => {
            ChildFailure::Memory(limit(format!("the template needs more than {} MiB of memory", MEMORY_MAX >> 20)))
        }
        _ => {
            let status = status.map_or_else(String::new, |status| format!(" ({status})"));
            let text = format!("the process that renders the template gave no answer: {error}{status}");
            ChildFailure::Broken(TemplateError::Other { text })
        }
    }
}
