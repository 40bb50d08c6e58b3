//! Polls the status until an order has taken effect. The leader executes the order even if no
//! command polls.

use crate::cli::api::Api;
use crate::cli::duration;
use crate::cli::exit::Exit;
use crate::cli::interrupt::Interrupt;
use crate::cli::out::Out;
use remoor_cluster::rpc::client::ApiError;
use remoor_cluster::rpc::view::StatusView;
use std::time::{Duration, Instant};

const EVERY: Duration = Duration::from_millis(500);

/// Whether an order has taken effect, according to one answer to the status query.
pub enum PollResult {
    /// The order has not taken effect yet. The text names the reason.
    Waits(String),
    Ended(Exit),
}

/// Polls the status and passes each answer to `look`, until `look` returns [`PollResult::Ended`].
/// Prints each reason for waiting once. Returns [`Exit::CouldNotAsk`] after `timeout`. Ctrl-C ends
/// the polling, not the order.
pub async fn poll_until(
    api: &Api,
    out: &Out,
    timeout: Duration,
    mut look: impl AsyncFnMut(Result<StatusView, ApiError>) -> anyhow::Result<PollResult>,
) -> anyhow::Result<Exit> {
    let (ends, mut interrupt, mut text) = (Instant::now() + timeout, Interrupt::new()?, String::new());
    let interrupted = || {
        out.talk("no longer waiting; the order continues: remoor nodes");
        Ok(Exit::Interrupted)
    };
    loop {
        let left = ends.saturating_duration_since(Instant::now());
        let ask = tokio::time::timeout(left.max(EVERY), api.get::<StatusView>("/v1/status"));
        let Some(answer) = interrupt.unless_interrupted(ask).await else { return interrupted() };
        let looked = match answer {
            Ok(answer) => look(answer).await?,
            Err(_) => PollResult::Waits("no manager answers".to_owned()),
        };
        let waits = match looked {
            PollResult::Ended(exit) => return Ok(exit),
            PollResult::Waits(waits) => waits,
        };
        if Instant::now() >= ends {
            let within = duration::age(timeout.as_millis() as u64);
            out.talk(&format!("not done within {within}: {waits}; the order continues: remoor nodes"));
            return Ok(Exit::CouldNotAsk);
        }
        // A reason that differs only in numbers is not printed again.
        let words: String = waits.chars().filter(|c| !c.is_ascii_digit()).collect();
        if words != text && !out.quiet && !out.format.is_machine() {
            out.talk(&format!("waiting: {waits}"));
        }
        text = words;
        let pause = EVERY.min(ends.saturating_duration_since(Instant::now()));
        if interrupt.unless_interrupted(tokio::time::sleep(pause)).await.is_none() {
            return interrupted();
        }
    }
}
