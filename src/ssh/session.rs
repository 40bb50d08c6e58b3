//! A session with one node's executor: an order, what comes on the way, the final reply.

use super::error::{SshError, of_openssh};
use crate::exec::frame;
use crate::exec::wire::{Hello, Order, PROTO, Reply};
use openssh::{Child, ChildStdin};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// Sent all the time; the executor ends without any frame for 30 s.
const HEARTBEAT: Duration = Duration::from_secs(10);
/// Without any reply for so long, while an order runs, the session counts as lost: `Alive` comes more often.
const SILENCE_MAX: Duration = Duration::from_secs(35);
const CLOSE_MAX: Duration = Duration::from_secs(3);
/// Of what the executor wrote to standard error, bytes.
const STDERR_MAX: u64 = 4 << 10;
/// Of what a login prints before the executor speaks, bytes.
const NOISE_MAX: usize = 64 << 10;
/// Replies that wait to be read by the one who ordered.
const REPLIES_MAX: usize = 256;

type Ssh = Arc<openssh::Session>;

/// Dropping it ends the executor after its current task; [`Session::close`] also ends the login.
pub struct Session {
    hello: Hello,
    replies: mpsc::Receiver<Result<Reply, String>>,
    orders: mpsc::Sender<Order>,
    tasks: Vec<JoinHandle<()>>,
    ssh: Ssh,
    child: Child<Ssh>,
}

impl Session {
    /// Takes over a started executor and waits for its first words. `Lost` before them: the program may be missing.
    pub(super) async fn greet(mut child: Child<Ssh>, ssh: Ssh, within: Duration) -> Result<Self, SshError> {
        let gone = || SshError::Lost("the executor has no standard input or output".to_owned());
        let (stdin, mut stdout) = (child.stdin().take().ok_or_else(gone)?, child.stdout().take().ok_or_else(gone)?);
        let mut stderr = child.stderr().take().ok_or_else(gone)?.take(STDERR_MAX);
        let (tx, mut replies) = mpsc::channel(REPLIES_MAX);
        let reader = tokio::spawn(async move {
            if let Err(text) = skip_to_preface(&mut stdout).await {
                let _ = tx.send(Err(text)).await;
                return;
            }
            loop {
                let reply = read(&mut stdout).await;
                let last = reply.is_err();
                if tx.send(reply).await.is_err() || last {
                    return;
                }
            }
        });
        let first = tokio::time::timeout(within, replies.recv()).await.map_err(|_| SshError::Timeout(within))?;
        let hello = match first {
            Some(Ok(Reply::Hello(hello))) => hello,
            Some(Ok(other)) => return Err(SshError::Protocol(format!("first words: {other:?}"))),
            Some(Err(_)) | None => {
                let mut text = String::new();
                let _ = tokio::time::timeout(CLOSE_MAX, stderr.read_to_string(&mut text)).await; // the text is a help only
                let status = tokio::time::timeout(CLOSE_MAX, child.wait()).await;
                return Err(match status {
                    Ok(Err(error)) if !matches!(error, openssh::Error::Remote(_)) => of_openssh(&error),
                    _ if text.contains("password is required") => SshError::Auth("sudo asks for a password".to_owned()),
                    _ => SshError::Lost(format!("the executor did not start: {}", text.trim())),
                });
            }
        };
        if hello.proto != PROTO {
            let text = format!("executor {} speaks version {}, this is {PROTO}", hello.version, hello.proto);
            return Err(SshError::Protocol(text));
        }
        let (orders, queue) = mpsc::channel(4);
        let writer = tokio::spawn(write(stdin, queue));
        let talk = tokio::spawn(async move {
            let mut text = String::new();
            let _ = stderr.read_to_string(&mut text).await;
            for line in text.lines() {
                tracing::debug!(line, "the executor says");
            }
        });
        Ok(Self { hello, replies, orders, tasks: vec![reader, writer, talk], ssh, child })
    }

    pub fn hello(&self) -> &Hello {
        &self.hello
    }

    /// Sends an order and waits for its final reply; what comes before goes to `on_event`.
    pub async fn order(
        &mut self,
        order: Order,
        on_event: &mut (dyn FnMut(Reply) + Send),
        within: Duration,
    ) -> Result<Reply, SshError> {
        let lost = || SshError::Lost("the connection ended".to_owned());
        let end = tokio::time::Instant::now() + within;
        self.orders.send(order).await.map_err(|_| lost())?;
        loop {
            let silence = tokio::time::Instant::now() + SILENCE_MAX;
            let reply = match tokio::time::timeout_at(end.min(silence), self.replies.recv()).await {
                Ok(Some(Ok(reply))) => reply,
                Ok(Some(Err(text))) => return Err(SshError::Lost(text)),
                Ok(None) => return Err(lost()),
                Err(_) if tokio::time::Instant::now() >= end => {
                    let _ = self.orders.try_send(Order::Cancel);
                    return Err(SshError::Timeout(within));
                }
                Err(_) => return Err(SshError::Lost(format!("silent for {} s", SILENCE_MAX.as_secs()))),
            };
            if reply.is_final() {
                return match reply {
                    Reply::Error { message } => Err(SshError::Protocol(message)),
                    reply => Ok(reply),
                };
            }
            on_event(reply);
        }
    }

    /// Returns when the session is lost, and why: for a time in which nothing is ordered while the fence must hold.
    pub async fn lost(&mut self) -> SshError {
        loop {
            match tokio::time::timeout(SILENCE_MAX, self.replies.recv()).await {
                Ok(Some(Ok(_sign_of_life))) => {}
                Ok(Some(Err(text))) => return SshError::Lost(text),
                Ok(None) => return SshError::Lost("the connection ended".to_owned()),
                Err(_) => return SshError::Lost(format!("silent for {} s", SILENCE_MAX.as_secs())),
            }
        }
    }

    /// Ends the executor and the login. Bounded, whatever the other end does.
    pub async fn close(self) {
        let Self { orders, tasks, ssh, child, .. } = self;
        drop(orders);
        let _ = tokio::time::timeout(CLOSE_MAX, child.wait()).await; // its standard input has ended, so it ends
        for task in tasks {
            task.abort();
        }
        if let Ok(ssh) = Arc::try_unwrap(ssh) {
            let _ = tokio::time::timeout(CLOSE_MAX, ssh.close()).await;
        }
    }
}

async fn write(mut stdin: ChildStdin, mut orders: mpsc::Receiver<Order>) {
    let mut beat = tokio::time::interval(HEARTBEAT);
    loop {
        let order = tokio::select! {
            order = orders.recv() => match order {
                Some(order) => order,
                None => return,
            },
            _ = beat.tick() => Order::Heartbeat,
        };
        let Ok(frame) = frame::encode(&order) else { return };
        if stdin.write_all(&frame).await.is_err() || stdin.flush().await.is_err() {
            return;
        }
    }
}

async fn read(stdout: &mut (impl AsyncReadExt + Unpin)) -> Result<Reply, String> {
    let mut head = [0; 4];
    stdout.read_exact(&mut head).await.map_err(|e| e.to_string())?;
    let mut body = vec![0; frame::parse_length(head).map_err(|e| e.to_string())?];
    stdout.read_exact(&mut body).await.map_err(|e| e.to_string())?;
    frame::decode(&body).map_err(|e| e.to_string())
}

/// Passes over what a login shell may print before the executor speaks.
async fn skip_to_preface(stdout: &mut (impl AsyncReadExt + Unpin)) -> Result<(), String> {
    let mut seen = Vec::new();
    while !seen.ends_with(frame::PREFACE) {
        if seen.len() > NOISE_MAX {
            return Err("the login prints without end instead of starting the executor".to_owned());
        }
        seen.push(stdout.read_u8().await.map_err(|e| e.to_string())?);
    }
    Ok(())
}
