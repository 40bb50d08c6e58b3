//! Checks whether a host answers on its SSH port: connection and banner, no login. Distinguishes an
//! unreachable host from a host where only the agent is down.

use std::io::ErrorKind;
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};

/// Maximum bytes to read, because a server may send other lines before its banner.
const READ_MAX: usize = 4096;

/// The answer of a host's SSH port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Probe {
    /// The host does not answer, or has no address or route.
    Unreachable { why: String },
    /// The host refuses the connection: the host is up, but its sshd is not.
    Refused,
    /// The connection is accepted, but no line begins with `SSH-`. A frozen host also does this.
    Silent,
    /// An SSH server answers.
    Answers { banner: String },
}

/// Probes an SSH port, within `at_most` in total. `host` is a name or an address.
pub async fn probe(host: &str, port: u16, at_most: Duration) -> Probe {
    let deadline = Instant::now() + at_most;
    let mut stream = match timeout_at(deadline, TcpStream::connect((host, port))).await {
        Err(_) => return Probe::Unreachable { why: "timed out".to_owned() },
        Ok(Err(e)) if e.kind() == ErrorKind::ConnectionRefused => return Probe::Refused,
        Ok(Err(e)) => return Probe::Unreachable { why: e.to_string() },
        Ok(Ok(stream)) => stream,
    };
    let mut bytes = Vec::new();
    let mut buffer = [0; 512];
    while bytes.len() < READ_MAX {
        match timeout_at(deadline, stream.read(&mut buffer)).await {
            Ok(Ok(n)) if n > 0 => bytes.extend_from_slice(&buffer[..n]),
            _ => break,
        }
        if let Some(banner) = banner_in(&bytes) {
            return Probe::Answers { banner };
        }
    }
    Probe::Silent
}

/// The first complete line that begins with `SSH-`, without control characters.
fn banner_in(bytes: &[u8]) -> Option<String> {
    let whole = bytes.iter().rposition(|b| *b == b'\n')?;
    let line = bytes[..whole].split(|b| *b == b'\n').find(|line| line.starts_with(b"SSH-"))?;
    let text: String = String::from_utf8_lossy(line).chars().filter(|c| !c.is_control()).collect();
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpListener;

    const LONG: Duration = Duration::from_secs(20);

    /// Probes a server that sends `text` and then waits.
    async fn probe_server_with(text: &'static [u8], at_most: Duration) -> Probe {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.write_all(text).await.unwrap();
            // Waits until the client closes the connection.
            let _closed_or_reset = stream.read(&mut [0; 1]).await;
        });
        let found = probe("127.0.0.1", port, at_most).await;
        server.await.unwrap();
        found
    }

    #[tokio::test]
    async fn a_server_is_recognised_by_its_banner() {
        let expected = Probe::Answers { banner: "SSH-2.0-OpenSSH_9.2p1".to_owned() };
        assert_eq!(probe_server_with(b"SSH-2.0-OpenSSH_9.2p1\r\nmore", LONG).await, expected);
        assert_eq!(probe_server_with(b"hello\r\nSSH-2.0-OpenSSH_9.2p1\r\n", LONG).await, expected);
    }

    #[tokio::test]
    async fn silence_and_other_servers_are_silent() {
        assert_eq!(probe_server_with(b"", Duration::from_millis(100)).await, Probe::Silent);
        assert_eq!(probe_server_with(b"220 ftp\r\n", Duration::from_millis(100)).await, Probe::Silent);
        assert_eq!(probe_server_with(&[b'x'; READ_MAX], LONG).await, Probe::Silent);
    }

    #[tokio::test]
    async fn a_closed_port_is_refused() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        assert_eq!(probe("127.0.0.1", port, LONG).await, Probe::Refused);
    }
}
