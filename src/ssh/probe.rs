//! Does a host answer on its SSH port: the banner only, no login.

use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Probe {
    /// No connection, or no banner, in time.
    Unreachable,
    Answers {
        banner: String,
    },
}

impl Probe {
    pub fn answers(&self) -> bool {
        matches!(self, Probe::Answers { .. })
    }
}

pub async fn probe(host: &str, port: u16, within: Duration) -> Probe {
    let ask = async {
        let mut stream = TcpStream::connect((host, port)).await.ok()?;
        let mut banner = [0; 64];
        let n = stream.read(&mut banner).await.ok()?;
        let text = String::from_utf8_lossy(&banner[..n]).trim().to_owned();
        text.starts_with("SSH-").then_some(text)
    };
    match tokio::time::timeout(within, ask).await {
        Ok(Some(banner)) => Probe::Answers { banner },
        Ok(None) | Err(_) => Probe::Unreachable,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpListener;

    async fn server(says: &'static [u8]) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let _ = stream.write_all(says).await;
            }
        });
        port
    }

    #[tokio::test]
    async fn only_a_banner_is_an_answer() {
        let within = Duration::from_secs(10);
        let ssh = server(b"SSH-2.0-OpenSSH_9.2\r\n").await;
        assert_eq!(probe("127.0.0.1", ssh, within).await, Probe::Answers { banner: "SSH-2.0-OpenSSH_9.2".to_owned() });
        let web = server(b"HTTP/1.1 400\r\n").await;
        assert_eq!(probe("127.0.0.1", web, within).await, Probe::Unreachable);
        let silent = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = silent.local_addr().expect("an address").port();
        assert_eq!(probe("127.0.0.1", port, Duration::from_millis(100)).await, Probe::Unreachable);
        drop(silent);
        assert_eq!(probe("127.0.0.1", port, within).await, Probe::Unreachable);
    }
}
