//! Before a joining machine is accepted, the leader dials the address in its request. The machine
//! at that address must prove that it holds the key. Otherwise a node could be registered at an
//! address that is unreachable or belongs to another node (`docs/design/scenarios.md`, E14).
//!
//! ```text
//! leader  -> remoor-dial-back NONCE\n          32 bytes, hex
//! machine <- SIGNATURE\n                       ed25519 over context, nonce and address, hex
//! ```
//! `remoor join` answers on the API port, which no daemon uses yet. It answers only while it joins.

use super::join::JoinRequest;
use super::wire::{ApiFailure, Code};
use ed25519_dalek::{Signature, Signer, SigningKey, VerifyingKey};
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;

const HELLO: &str = "remoor-dial-back ";
const CONTEXT: &[u8] = b"remoor dial-back 1";
const NONCE: usize = 32;
/// Maximum length of a line in either direction, in bytes.
const LINE_MAX: u64 = 256;
const CONNECT: Duration = Duration::from_secs(5);
const ANSWER: Duration = Duration::from_secs(5);
/// Maximum callers that are answered at the same time. Further callers wait.
const CALLERS: usize = 4;

/// Answers dial-back requests. Dropping it ends the answering.
#[derive(Debug)]
pub struct DialBackResponder(AbortHandle);

impl Drop for DialBackResponder {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Listens at `bind` for callers that dial `advertise`, and proves to them that this machine holds
/// the key. An error means that the listening failed.
pub async fn start_answering(bind: SocketAddr, advertise: &str, key: &SigningKey) -> io::Result<DialBackResponder> {
    let listener = TcpListener::bind(bind).await?;
    let (key, advertise) = (key.clone(), advertise.to_owned());
    let serve = async move {
        let places = std::sync::Arc::new(tokio::sync::Semaphore::new(CALLERS));
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(place) = places.clone().acquire_owned().await else { return };
            let (key, advertise) = (key.clone(), advertise.clone());
            tokio::spawn(async move {
                let _ = tokio::time::timeout(ANSWER, prove(stream, &advertise, &key)).await;
                drop(place);
            });
        }
    };
    Ok(DialBackResponder(tokio::spawn(serve).abort_handle()))
}

async fn prove(stream: TcpStream, advertise: &str, key: &SigningKey) -> io::Result<()> {
    let (read, mut write) = stream.into_split();
    let mut line = String::new();
    BufReader::new(read.take(LINE_MAX)).read_line(&mut line).await?;
    let nonce = line.strip_prefix(HELLO).and_then(|hex| hex::decode(hex.trim_end()).ok());
    let Some(nonce) = nonce.filter(|nonce| nonce.len() == NONCE) else { return Ok(()) };
    let proof = hex::encode(key.sign(&signed_bytes(&nonce, advertise)).to_bytes());
    write.write_all(format!("{proof}\n").as_bytes()).await
}

fn signed_bytes(nonce: &[u8], advertise: &str) -> Vec<u8> {
    [CONTEXT, nonce, advertise.as_bytes()].concat()
}

/// Dials the machine of `request`, which must have been checked. The machine must not be accepted
/// unless this call succeeds. An error names the address and the fault. Nothing is changed.
pub async fn verify_address(request: &JoinRequest) -> Result<(), ApiFailure> {
    let addr = &request.advertise;
    let unreachable = |why: &str| {
        let text = format!("{} can't be dialled back at {addr}: {why}", request.name);
        ApiFailure::new(Code::Unreachable, text)
            .next("set --advertise to an IP that the managers can reach, and allow TCP to its port")
    };
    let another = || {
        let text =
            format!("the machine that answers at {addr} is not {}: it does not hold that node's key", request.name);
        ApiFailure::new(Code::WrongNode, text)
            .next("set --advertise and --api-port to the address and port of this machine, not of another")
    };
    let key = hex::decode(&request.node_public_key).ok().and_then(|raw| <[u8; 32]>::try_from(raw).ok());
    let key = key.and_then(|raw| VerifyingKey::from_bytes(&raw).ok()).ok_or_else(another)?;
    let mut nonce = [0; NONCE];
    getrandom::fill(&mut nonce)
        .map_err(|e| ApiFailure::new(Code::Internal, format!("the kernel returned no random numbers: {e}")))?;
    let stream = match tokio::time::timeout(CONNECT, TcpStream::connect(addr.as_str())).await {
        Ok(connected) => connected.map_err(|e| unreachable(&e.to_string()))?,
        Err(_) => return Err(unreachable(&format!("no answer within {} s", CONNECT.as_secs()))),
    };
    let answer = tokio::time::timeout(ANSWER, ask(stream, &nonce)).await;
    let answer = answer.map_err(|_| another())?.map_err(|_| another())?;
    let proof = hex::decode(answer.trim_end()).ok().and_then(|raw| Signature::from_slice(&raw).ok());
    let proven = proof.is_some_and(|proof| key.verify_strict(&signed_bytes(&nonce, addr), &proof).is_ok());
    if proven { Ok(()) } else { Err(another()) }
}

async fn ask(mut stream: TcpStream, nonce: &[u8]) -> io::Result<String> {
    stream.write_all(format!("{HELLO}{}\n", hex::encode(nonce)).as_bytes()).await?;
    let mut line = String::new();
    BufReader::new(stream.take(LINE_MAX)).read_line(&mut line).await?;
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::super::identity::NodeKey;
    use super::super::join::testing::request;
    use super::*;

    /// A machine that answers on its own port, and the join request of that machine.
    async fn machine() -> (NodeKey, DialBackResponder, JoinRequest) {
        let key = NodeKey::generate().unwrap();
        let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        let answering = start_answering(free, &free.to_string(), key.signing_key()).await.unwrap();
        let request = JoinRequest { advertise: free.to_string(), ..request(&key) };
        (key, answering, request)
    }

    async fn code(request: &JoinRequest) -> Option<Code> {
        verify_address(request).await.err().map(|failure| failure.code)
    }

    #[tokio::test]
    async fn who_answers_with_its_key_is_dialled_and_nobody_once_it_has_joined() {
        let (_key, answering, request) = machine().await;
        assert_eq!((code(&request).await, code(&request).await), (None, None));
        drop(answering);
        let ended = tokio::time::timeout(Duration::from_secs(60), async {
            while code(&request).await != Some(Code::Unreachable) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        });
        assert!(ended.await.is_ok(), "it continues to listen");
    }

    #[tokio::test]
    async fn another_machine_or_another_address_is_refused() {
        let ((_, _one, first), (_, _two, second)) = (machine().await, machine().await);
        let there = JoinRequest { advertise: second.advertise.clone(), ..first.clone() };
        assert_eq!(code(&there).await, Some(Code::WrongNode), "the address belongs to another machine");
        // The proof contains one address, so a proof for another address is not valid.
        let port = second.advertise.rsplit_once(':').unwrap().1;
        let alias = JoinRequest { advertise: format!("localhost:{port}"), ..second };
        assert_eq!(code(&alias).await, Some(Code::WrongNode));
    }

    #[tokio::test]
    async fn who_says_nothing_sensible_is_no_node() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let key = NodeKey::generate().unwrap();
        let advertise = listener.local_addr().unwrap().to_string();
        let request = JoinRequest { advertise, ..request(&key) };
        let talk = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.write_all(&[b'x'; 100_000]).await.ok();
        };
        let (refused, ()) = tokio::join!(code(&request), talk);
        assert_eq!(refused, Some(Code::WrongNode));
    }

    #[tokio::test]
    async fn only_the_question_is_answered() {
        let (_key, _answering, request) = machine().await;
        for line in ["GET / HTTP/1.1\r\n".to_owned(), format!("{HELLO}00\n"), format!("{HELLO}{}\n", "g".repeat(64))] {
            let mut stream = TcpStream::connect(&request.advertise).await.unwrap();
            stream.write_all(line.as_bytes()).await.unwrap();
            let mut answer = Vec::new();
            let read = tokio::time::timeout(Duration::from_secs(60), stream.read_to_end(&mut answer)).await;
            assert!(read.is_ok() && answer.is_empty(), "{line:?}: {answer:?}");
        }
    }
}
