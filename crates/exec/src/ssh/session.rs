//! A session with one executor. The executor runs on a node, over an SSH login, or on this machine.

use super::channel::{Canceller, Channel, EventSink};
use super::error::{SshError, clip};
use crate::wire::{ExecutorOrder, Hello, Reply};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Maximum wait for the executor's exit, and for the end of the login.
const CLOSE_MAX: Duration = Duration::from_secs(5);
/// Maximum time from the end of an executor's streams to its exit.
const EXIT_MAX: Duration = Duration::from_secs(1);
const STDERR_END_MAX: Duration = Duration::from_secs(1);
const STDERR_KEPT: usize = 8 * 1024;

/// Sends one order at a time. The caller gives each order only after its log entry was committed.
/// If the session is dropped or lost, the executor stops after its current task.
/// [`Session::close`] also waits for the exit of the executor.
pub struct Session {
    hello: Hello,
    // Fields are dropped in the order of declaration, so the streams close before the login does.
    channel: Channel,
    place: ExecutorLocation,
    stderr: StderrTail,
}

/// The location of the executor: a node, or this machine.
pub(super) enum ExecutorLocation {
    /// The executor runs on a node. `child` is None after its exit status was requested.
    Remote {
        child: Option<openssh::Child<Arc<openssh::Session>>>,
        login: Arc<openssh::Session>,
    },
    Local(tokio::process::Child),
}

/// The part of a session that has ended.
enum SessionEnd {
    /// The executor, with its exit status.
    Executor(String),
    /// The connection to the host.
    Connection,
    /// Neither the executor nor the connection is known to have ended.
    Nothing,
}

impl ExecutorLocation {
    /// Determines the part that has ended, after the end of the streams. Takes at most 11 s.
    async fn find_ended(&mut self) -> SessionEnd {
        match self {
            ExecutorLocation::Remote { child, login } => {
                if !is_up(login).await {
                    return SessionEnd::Connection;
                }
                let Some(child) = child.take() else { return SessionEnd::Nothing };
                match timeout(EXIT_MAX, child.wait()).await {
                    Ok(Ok(status)) => SessionEnd::Executor(status.to_string()),
                    // The crate `openssh` reports exit code 127 as this error.
                    Ok(Err(openssh::Error::Remote(e))) => SessionEnd::Executor(e.to_string()),
                    Ok(Err(_)) if is_up(login).await => SessionEnd::Executor("killed by a signal".to_owned()),
                    Ok(Err(_)) => SessionEnd::Connection,
                    Err(_) => SessionEnd::Nothing,
                }
            }
            ExecutorLocation::Local(child) => match timeout(EXIT_MAX, child.wait()).await {
                Ok(Ok(status)) => SessionEnd::Executor(status.to_string()),
                Ok(Err(_)) | Err(_) => SessionEnd::Nothing,
            },
        }
    }
}

impl Session {
    pub(super) fn new(hello: Hello, channel: Channel, place: ExecutorLocation, stderr: StderrTail) -> Self {
        Self { hello, channel, place, stderr }
    }

    /// The greeting of the executor.
    pub fn hello(&self) -> &Hello {
        &self.hello
    }

    /// The control socket of the login, over which other programs can reach the host while the
    /// session is open. None: the executor runs on this machine.
    pub fn control_socket(&self) -> Option<&Path> {
        match &self.place {
            ExecutorLocation::Remote { login, .. } => Some(login.control_socket()),
            ExecutorLocation::Local(_) => None,
        }
    }

    /// A handle to stop a run from another task while `order` waits for its end.
    pub fn canceller(&self) -> Canceller {
        self.channel.canceller()
    }

    /// Sends one order and waits for its final reply, at most `at_most`. Events, and replies that
    /// name the run for which a fence waits, go to `on_event` as they arrive. After an error this
    /// session is unusable. A run may still continue on the node; only a new session with a new
    /// attempt can determine this.
    pub async fn order(
        &mut self,
        order: ExecutorOrder,
        on_event: &mut (dyn FnMut(Reply) + Send),
        at_most: Duration,
    ) -> Result<Reply, SshError> {
        self.ask(&order, EventSink::Call(on_event), at_most).await
    }

    /// Like [`Self::order`], with a queue for the events. If the queue is full, the run waits.
    pub async fn order_into(
        &mut self,
        order: ExecutorOrder,
        events: &mpsc::Sender<Reply>,
        at_most: Duration,
    ) -> Result<Reply, SshError> {
        self.ask(&order, EventSink::Queue(events), at_most).await
    }

    async fn ask(
        &mut self,
        order: &ExecutorOrder,
        events: EventSink<'_>,
        at_most: Duration,
    ) -> Result<Reply, SshError> {
        match self.channel.order(order, events, at_most).await {
            Err(SshError::Lost(why)) => Err(self.explain_loss(&why).await),
            other => other,
        }
    }

    /// The error for a lost session. It distinguishes the end of the executor from the end of the
    /// connection. It contains `why` if neither end is known.
    async fn explain_loss(&mut self, why: &str) -> SshError {
        // Both streams end together, but the last text on stderr may arrive a moment later.
        self.stderr.wait_for_end().await;
        match self.place.find_ended().await {
            SessionEnd::Executor(how) => SshError::Ended(self.stderr.explain(&how)),
            SessionEnd::Connection => SshError::Lost(self.stderr.explain("the connection to the host ended")),
            SessionEnd::Nothing => SshError::Lost(self.stderr.explain(why)),
        }
    }

    /// Waits until the session is lost and returns the reason. Used while the session holds its
    /// fence and no order runs. If this future is dropped before it returns, the session stays
    /// usable. After the return, the session is unusable.
    pub async fn wait_for_loss(&mut self) -> SshError {
        match self.channel.wait_for_loss().await {
            SshError::Lost(why) => self.explain_loss(&why).await,
            other => other,
        }
    }

    /// Closes the streams, waits for the executor (5 s), and ends the login. A run that continues
    /// on the node stops after its current task.
    pub async fn close(self) {
        let Self { channel, place, .. } = self;
        drop(channel);
        match place {
            ExecutorLocation::Remote { child, login } => {
                if let Some(child) = child {
                    let _ended_or_out_of_time = timeout(CLOSE_MAX, child.wait()).await;
                }
                end_login(login).await;
            }
            ExecutorLocation::Local(mut child) => {
                let _ended_or_out_of_time = timeout(CLOSE_MAX, child.wait()).await;
            }
        }
    }
}

/// Whether the connection works, according to the ssh master on this machine. Sends nothing to the
/// host.
pub(super) async fn is_up(login: &openssh::Session) -> bool {
    matches!(timeout(CLOSE_MAX, login.check()).await, Ok(Ok(())))
}

/// Closes the ssh master if nothing else uses it.
pub(super) async fn end_login(login: Arc<openssh::Session>) {
    // The owner that drops the last reference closes the master.
    if let Some(login) = Arc::into_inner(login) {
        let _master_gone_already = timeout(CLOSE_MAX, login.close()).await;
    }
}

/// The last part of a remote program's stderr, collected while it runs.
#[derive(Default)]
pub(super) struct StderrTail {
    kept: Arc<Mutex<Vec<u8>>>,
    reader: Option<JoinHandle<()>>,
}

impl StderrTail {
    /// Starts to collect the text of `stream`, up to the end of the stream.
    pub fn collect(mut stream: impl AsyncRead + Unpin + Send + 'static) -> Self {
        let kept = Arc::new(Mutex::new(Vec::new()));
        let end = Arc::clone(&kept);
        let reader = tokio::spawn(async move {
            let mut buffer = [0; 1024];
            while let Ok(n @ 1..) = stream.read(&mut buffer).await {
                let mut kept = end.lock().unwrap_or_else(PoisonError::into_inner);
                kept.extend_from_slice(&buffer[..n]);
                let excess = kept.len().saturating_sub(STDERR_KEPT);
                kept.drain(..excess);
            }
        });
        Self { kept, reader: Some(reader) }
    }

    /// Waits until the stream has ended, for at most one second.
    pub async fn wait_for_end(&mut self) {
        if let Some(reader) = &mut self.reader
            && timeout(STDERR_END_MAX, &mut *reader).await.is_ok()
        {
            self.reader = None;
        }
    }

    /// The collected text, on one line.
    pub fn text(&self) -> String {
        clip(&String::from_utf8_lossy(&self.kept.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    /// `why`, followed by the program's own output, if any.
    pub fn explain(&self, why: &str) -> String {
        match self.text() {
            output if output.is_empty() => why.to_owned(),
            output => format!("{why}; its output: {output}"),
        }
    }
}
