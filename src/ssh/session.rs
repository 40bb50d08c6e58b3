//! One session with its executor, over a login or on this machine.

use super::channel::{Canceller, Channel, Events};
use super::error::{SshError, clip};
use crate::exec::wire::{Hello, Order, Reply};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// For the executor's last words, and for the login's end.
const CLOSE_MAX: Duration = Duration::from_secs(5);
/// From the end of an executor's streams to its own.
const EXIT_MAX: Duration = Duration::from_secs(1);
const STDERR_END_MAX: Duration = Duration::from_secs(1);
const STDERR_KEPT: usize = 8 * 1024;

/// Orders go out one at a time, each only after its entry was committed. Dropping it, as losing it, makes the executor
/// stop after its current task; [`Session::close`] also waits for it.
pub struct Session {
    hello: Hello,
    // Declared in this order, so dropped in it: the streams close before the login does.
    channel: Channel,
    place: Place,
    stderr: Stderr,
}

/// Where the executor runs.
pub(super) enum Place {
    /// None: it was waited for already.
    There {
        child: Option<openssh::Child<Arc<openssh::Session>>>,
        login: Arc<openssh::Session>,
    },
    Here(tokio::process::Child),
}

/// What of a session has ended.
enum Over {
    /// The executor, and how.
    Executor(String),
    /// What carried its words.
    Connection,
    /// Neither that is known of.
    Nothing,
}

impl Place {
    /// Which of the two has ended, after the streams did. Takes at most a few seconds.
    async fn over(&mut self) -> Over {
        match self {
            Place::There { child, login } => {
                if !is_up(login).await {
                    return Over::Connection;
                }
                let Some(child) = child.take() else { return Over::Nothing };
                match timeout(EXIT_MAX, child.wait()).await {
                    Ok(Ok(status)) => Over::Executor(status.to_string()),
                    // 127, of which the library makes an error of its own.
                    Ok(Err(openssh::Error::Remote(e))) => Over::Executor(e.to_string()),
                    Ok(Err(_)) if is_up(login).await => Over::Executor("killed by a signal".to_owned()),
                    Ok(Err(_)) => Over::Connection,
                    Err(_) => Over::Nothing,
                }
            }
            Place::Here(child) => match timeout(EXIT_MAX, child.wait()).await {
                Ok(Ok(status)) => Over::Executor(status.to_string()),
                Ok(Err(_)) | Err(_) => Over::Nothing,
            },
        }
    }
}

impl Session {
    pub(super) fn new(hello: Hello, channel: Channel, place: Place, stderr: Stderr) -> Self {
        Self { hello, channel, place, stderr }
    }

    /// Who the executor said it is.
    pub fn hello(&self) -> &Hello {
        &self.hello
    }

    /// Stops a run from another task, while `order` waits for its end.
    pub fn canceller(&self) -> Canceller {
        self.channel.canceller()
    }

    /// Gives one order and waits for its final reply, at most `at_most`; events, and what a fence waits for, go to
    /// `on_event` as they come. After an error the session is spent: a run may still go on there, and a new session with
    /// a new attempt is the way to find out.
    pub async fn order(
        &mut self,
        order: Order,
        on_event: &mut (dyn FnMut(Reply) + Send),
        at_most: Duration,
    ) -> Result<Reply, SshError> {
        self.ask(&order, Events::Call(on_event), at_most).await
    }

    /// The same with the events into a queue; a full one makes the run wait.
    pub async fn order_into(
        &mut self,
        order: Order,
        events: &mpsc::Sender<Reply>,
        at_most: Duration,
    ) -> Result<Reply, SshError> {
        self.ask(&order, Events::Queue(events), at_most).await
    }

    async fn ask(&mut self, order: &Order, events: Events<'_>, at_most: Duration) -> Result<Reply, SshError> {
        match self.channel.order(order, events, at_most).await {
            Err(SshError::Lost(why)) => Err(self.ended(&why).await),
            other => other,
        }
    }

    /// Whether the executor ended or the connection did; `why` where neither is known of.
    async fn ended(&mut self, why: &str) -> SshError {
        // Both streams end together; what was said last may arrive a moment after the end.
        self.stderr.wait_for_end().await;
        match self.place.over().await {
            Over::Executor(how) => SshError::Ended(self.stderr.explain(&how)),
            Over::Connection => SshError::Lost(self.stderr.explain("the connection to the host ended")),
            Over::Nothing => SshError::Lost(self.stderr.explain(why)),
        }
    }

    /// Returns when the session is lost, and why: for a time in which nothing is ordered and the fence must hold. Dropping
    /// this future before leaves the session as it is; after it has returned the session is spent.
    pub async fn lost(&mut self) -> SshError {
        match self.channel.lost().await {
            SshError::Lost(why) => self.ended(&why).await,
            other => other,
        }
    }

    /// Closes the streams, waits for the executor (5 s), and ends the login. A run still under way there stops after its
    /// current task.
    pub async fn close(self) {
        let Self { channel, place, .. } = self;
        drop(channel);
        match place {
            Place::There { child, login } => {
                if let Some(child) = child {
                    let _ended_or_out_of_time = timeout(CLOSE_MAX, child.wait()).await;
                }
                end_login(login).await;
            }
            Place::Here(mut child) => {
                let _ended_or_out_of_time = timeout(CLOSE_MAX, child.wait()).await;
            }
        }
    }
}

/// Whether the connection stands, as far as ssh's master on this machine knows; the host is not asked.
pub(super) async fn is_up(login: &openssh::Session) -> bool {
    matches!(timeout(CLOSE_MAX, login.check()).await, Ok(Ok(())))
}

/// Tells the master to go, once nothing runs over it any longer.
pub(super) async fn end_login(login: Arc<openssh::Session>) {
    // Whoever else holds it ends it by dropping it.
    if let Some(login) = Arc::into_inner(login) {
        let _master_gone_already = timeout(CLOSE_MAX, login.close()).await;
    }
}

/// The end of what a remote program wrote to stderr, collected while it runs.
#[derive(Default)]
pub(super) struct Stderr {
    kept: Arc<Mutex<Vec<u8>>>,
    reader: Option<JoinHandle<()>>,
}

impl Stderr {
    /// Reads until the stream ends.
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

    /// At most a second.
    pub async fn wait_for_end(&mut self) {
        if let Some(reader) = &mut self.reader
            && timeout(STDERR_END_MAX, &mut *reader).await.is_ok()
        {
            self.reader = None;
        }
    }

    pub fn text(&self) -> String {
        clip(&String::from_utf8_lossy(&self.kept.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    /// `why`, and what the program itself said, if it did.
    pub fn explain(&self, why: &str) -> String {
        match self.text() {
            said if said.is_empty() => why.to_owned(),
            said => format!("{why}; it said: {said}"),
        }
    }
}
