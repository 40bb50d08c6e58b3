//! Ctrl-C, for commands that have something to say when it comes. From its making on no Ctrl-C is lost.

use tokio::signal::unix::{Signal, SignalKind, signal};

#[derive(Debug)]
pub struct Interrupt(Signal);

impl Interrupt {
    pub fn new() -> std::io::Result<Self> {
        signal(SignalKind::interrupt()).map(Self)
    }

    /// Until Ctrl-C. Cancelling loses nothing.
    pub async fn wait(&mut self) {
        if self.0.recv().await.is_none() {
            std::future::pending::<()>().await;
        }
    }

    /// The result of `work`; None if Ctrl-C comes first.
    pub async fn or<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            done = work => Some(done),
            () = self.wait() => None,
        }
    }
}
