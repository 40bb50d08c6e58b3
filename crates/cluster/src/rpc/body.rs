//! Reads bodies of requests and answers into one buffer. A body needs about as much memory as it
//! has bytes, even if it arrives in many small pieces.

use super::wire::{ApiFailure, Code};
use axum::body::HttpBody;
use bytes::Bytes;
use http_body_util::BodyExt;
use std::pin::pin;
use std::time::Duration;

/// Maximum size of a request body in bytes, unless a route sets another.
pub const BODY_MAX: usize = 2 << 20;
/// Maximum size of Raft messages and blobs, and of an answer that a client accepts, in bytes.
pub const LARGE_BODY_MAX: usize = 64 << 20;
/// Maximum size in bytes of a body from a stranger or from a node that is not a manager. The
/// longest such body is a join request with 16 SSH host keys.
pub const SMALL_BODY_MAX: usize = 64 << 10;
/// Memory reserved for a body before its bytes arrive, in bytes.
const ROOM: usize = 64 << 10;
/// Maximum time for a request body to arrive.
const BODY_WITHIN: Duration = Duration::from_secs(30);

/// The body limit of a route in bytes, as an extension of its requests.
#[derive(Debug, Clone, Copy)]
pub struct BodyLimit(pub usize);

/// The reason why a body was not received.
#[derive(Debug, thiserror::Error)]
pub(super) enum BodyError<E> {
    /// The body is longer than allowed. If its length was announced, no byte of it was read.
    #[error("the body is longer than allowed")]
    TooLong,
    #[error("the body ended early")]
    Broken(#[source] E),
}

/// Receives a body of at most `most` bytes.
pub(super) async fn receive<B: HttpBody<Data = Bytes>>(body: B, most: usize) -> Result<Bytes, BodyError<B::Error>> {
    let announced = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    if announced > most {
        return Err(BodyError::TooLong);
    }
    let mut body = pin!(body);
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(BodyError::Broken)?.into_data() else { continue };
        if data.len() > most - bytes.len() {
            return Err(BodyError::TooLong);
        }
        if bytes.is_empty() && body.is_end_stream() {
            return Ok(data);
        }
        if bytes.is_empty() {
            bytes.reserve(announced.min(ROOM));
        }
        bytes.extend_from_slice(&data);
    }
    Ok(bytes.into())
}

/// Reads the body of a request, of at most `most` bytes, within the usual time limit.
pub async fn read_bounded(body: axum::body::Body, most: usize) -> Result<Bytes, ApiFailure> {
    match tokio::time::timeout(BODY_WITHIN, receive(body, most)).await {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(BodyError::TooLong)) => {
            let text = format!("the request's body is larger than this endpoint accepts: at most {most} bytes");
            Err(ApiFailure::new(Code::TooLarge, text))
        }
        Ok(Err(BodyError::Broken(error))) => {
            Err(ApiFailure::new(Code::BadRequest, format!("the request's body is incomplete: {error}")))
        }
        Err(_) => {
            let text = format!("the request's body did not arrive within {} s", BODY_WITHIN.as_secs());
            Err(ApiFailure::new(Code::Timeout, text))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;

    #[tokio::test]
    async fn a_body_has_a_bound() {
        assert_eq!(read_bounded(Body::from("1234"), 4).await.unwrap(), "1234");
        assert_eq!(read_bounded(Body::from("12345"), 4).await.unwrap_err().code, Code::TooLarge);
    }

    #[tokio::test]
    async fn pieces_become_one_buffer_and_are_counted() {
        let pieces = |n: usize| {
            let one = |_| Ok::<_, std::convert::Infallible>(Bytes::from_static(b"x"));
            Body::from_stream(futures_util::stream::iter((0..n).map(one)))
        };
        assert_eq!(read_bounded(pieces(1000), 1000).await.unwrap(), vec![b'x'; 1000]);
        assert_eq!(read_bounded(pieces(1001), 1000).await.unwrap_err().code, Code::TooLarge);
        assert_eq!(read_bounded(pieces(0), 0).await.unwrap(), "");
    }
}
