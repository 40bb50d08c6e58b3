//! Ctrl-C, for commands that print something when it arrives.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Receives Ctrl-C. Every Ctrl-C after the creation of this value is received.
#[derive(Debug)]
pub struct Interrupt(Signal);

impl Interrupt {
    pub fn new() -> std::io::Result<Self> {
        signal(SignalKind::interrupt()).map(Self)
    }

    /// Waits for Ctrl-C. This future is cancel-safe.
    pub async fn wait(&mut self) {
        if self.0.recv().await.is_none() {
            std::future::pending::<()>().await;
        }
    }

    /// The result of `work`. None: Ctrl-C came first.
    pub async fn unless_interrupted<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            done = work => Some(done),
            () = self.wait() => None,
        }
    }
}
