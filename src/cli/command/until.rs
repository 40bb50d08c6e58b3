//! Asks for the status again and again, until what was ordered is so. The order stands, and the leader goes on with it, whoever follows.

use crate::cli::api::Api;
use crate::cli::duration;
use crate::cli::exit::Exit;
use crate::cli::interrupt::Interrupt;
use crate::cli::out::Out;
use crate::rpc::client::ApiError;
use crate::rpc::view::StatusView;
use std::time::{Duration, Instant};

const EVERY: Duration = Duration::from_millis(500);

/// What one look came to.
pub enum Look {
    /// In words.
    Waits(String),
    Ended(Exit),
}

/// Until `look`, which gets each answer, says that it has ended: then how it did. What is waited for is told, each reason once.
/// After `timeout` 3; Ctrl-C ends the looking only.
pub async fn until(
    api: &Api,
    out: &Out,
    timeout: Duration,
    mut look: impl AsyncFnMut(Result<StatusView, ApiError>) -> anyhow::Result<Look>,
) -> anyhow::Result<Exit> {
    let (ends, mut interrupt, mut said) = (Instant::now() + timeout, Interrupt::new()?, String::new());
    let interrupted = || {
        out.talk("the order stands, and goes on without you: remoor nodes");
        Ok(Exit::Interrupted)
    };
    loop {
        let left = ends.saturating_duration_since(Instant::now());
        let ask = tokio::time::timeout(left.max(EVERY), api.get::<StatusView>("/v1/status"));
        let Some(answer) = interrupt.or(ask).await else { return interrupted() };
        let looked = match answer {
            Ok(answer) => look(answer).await?,
            Err(_) => Look::Waits("no manager answers".to_owned()),
        };
        let waits = match looked {
            Look::Ended(exit) => return Ok(exit),
            Look::Waits(waits) => waits,
        };
        if Instant::now() >= ends {
            let within = duration::age(timeout.as_millis() as u64);
            out.talk(&format!("not within {within}: {waits}; it goes on without you: remoor nodes"));
            return Ok(Exit::CouldNotAsk);
        }
        // Of numbers alone it is no other reason.
        let words: String = waits.chars().filter(|c| !c.is_ascii_digit()).collect();
        if words != said && !out.quiet && !out.format.is_machine() {
            out.talk(&format!("waiting: {waits}"));
        }
        said = words;
        let pause = EVERY.min(ends.saturating_duration_since(Instant::now()));
        if interrupt.or(tokio::time::sleep(pause)).await.is_none() {
            return interrupted();
        }
    }
}
