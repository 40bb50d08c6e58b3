//! Clients that send the next request as soon as the last one was answered. They are the same for
//! remoor and etcd: HTTP/1.1 on one connection each, over a Unix socket or TCP, without other
//! overhead.

use anyhow::{Context, Result, bail};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::{TcpStream, UnixStream};

/// Timeout of a request. A request that hangs counts as a failure.
const WITHIN: Duration = Duration::from_secs(5);

#[derive(Debug, Clone)]
pub enum Target {
    Unix(PathBuf),
    Tcp(u16),
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

pub struct Http {
    stream: BufReader<Box<dyn Stream>>,
}

impl Http {
    pub async fn connect(target: &Target) -> Result<Self> {
        let stream: Box<dyn Stream> = match target {
            Target::Unix(path) => Box::new(UnixStream::connect(path).await?),
            Target::Tcp(port) => {
                let stream = TcpStream::connect(("127.0.0.1", *port)).await?;
                stream.set_nodelay(true)?;
                Box::new(stream)
            }
        };
        Ok(Self { stream: BufReader::new(stream) })
    }

    /// Sends a request and returns the body of a successful answer.
    pub async fn ask(&mut self, what: &Request) -> Result<Vec<u8>> {
        tokio::time::timeout(WITHIN, self.exchange(what)).await.context("no answer in time")?
    }

    async fn exchange(&mut self, what: &Request) -> Result<Vec<u8>> {
        self.stream.get_mut().write_all(&what.0).await?;
        let mut line = String::new();
        let (mut status, mut length) = (None, 0);
        loop {
            line.clear();
            if self.stream.read_line(&mut line).await? == 0 {
                bail!("the connection has ended");
            }
            let text = line.trim_end().to_ascii_lowercase();
            if text.is_empty() {
                break;
            }
            match (status, text.split_once(": ")) {
                (None, _) => status = text.split(' ').nth(1).and_then(|code| code.parse::<u16>().ok()),
                (_, Some(("content-length", value))) => length = value.parse()?,
                (_, Some(("transfer-encoding", _))) => bail!("an answer in pieces is not taken"),
                _ => {}
            }
        }
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body).await?;
        match status {
            Some(200..=299) => Ok(body),
            other => bail!("{other:?}: {}", String::from_utf8_lossy(&body)),
        }
    }
}

/// The bytes of an HTTP request.
#[derive(Debug, Clone)]
pub struct Request(Vec<u8>);

impl Request {
    pub fn new(method: &str, path: &str, kind: &str, body: &str) -> Self {
        let head = format!("{method} {path} HTTP/1.1\r\nHost: remoor\r\nContent-Type: {kind}\r\n");
        Self(format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()).into_bytes())
    }

    pub fn json(method: &str, path: &str, body: &str) -> Self {
        Self::new(method, path, "application/json", body)
    }
}

/// The number of requests per second of all clients together, and percentiles of the times of
/// single requests.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    pub per_second: f64,
    pub p50: Duration,
    pub p99: Duration,
}

impl std::fmt::Display for Load {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ms = |d: Duration| d.as_secs_f64() * 1_000.0;
        write!(f, "{:.0}/s, p50 {:.2} ms, p99 {:.2} ms", self.per_second, ms(self.p50), ms(self.p99))
    }
}

/// Lets `clients` clients send the same request for the time `lasts`. A rejected request is an
/// error.
pub async fn run(target: &Target, request: &Request, clients: usize, lasts: Duration) -> Result<Load> {
    let begun = Instant::now();
    let tasks: Vec<_> = (0..clients)
        .map(|_| {
            let (target, request) = (target.clone(), request.clone());
            tokio::spawn(async move {
                let mut http = Http::connect(&target).await?;
                let mut took = Vec::new();
                while begun.elapsed() < lasts {
                    let asked = Instant::now();
                    http.ask(&request).await?;
                    took.push(asked.elapsed());
                }
                anyhow::Ok(took)
            })
        })
        .collect();
    let mut took = Vec::new();
    for task in tasks {
        took.extend(task.await??);
    }
    let lasted = begun.elapsed();
    took.sort_unstable();
    let at = |percent: usize| took[(took.len() - 1) * percent / 100];
    Ok(Load { per_second: took.len() as f64 / lasted.as_secs_f64(), p50: at(50), p99: at(99) })
}
