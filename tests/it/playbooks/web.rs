//! The web server that the playbooks use as `web`. It answers like `tests/playbooks/web.py`, which
//! the recorded runs used.

use base64::Engine;
use sha2::{Digest, Sha256};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::OnceLock;

const FILE: &str = "content of a file\n";

/// The address of the server, which runs as long as this program.
pub fn address() -> &'static str {
    static ADDRESS: OnceLock<String> = OnceLock::new();
    ADDRESS.get_or_init(|| {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = format!("http://{}", listener.local_addr().expect("its number"));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // Each connection has one request. An error of a connection is ignored.
                std::thread::spawn(move || drop(answer(stream)));
            }
        });
        address
    })
}

fn answer(stream: TcpStream) -> std::io::Result<()> {
    let mut from = BufReader::new(stream.try_clone()?);
    let mut first = String::new();
    from.read_line(&mut first)?;
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        if from.read_line(&mut line)? == 0 || line.trim().is_empty() {
            break;
        }
        headers.extend(line.split_once(':').map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned())));
    }
    let header = |name: &str| headers.iter().find(|(n, _)| n == name).map(|(_, value)| value.clone());
    let mut sent = vec![0; header("content-length").and_then(|n| n.parse().ok()).unwrap_or(0)];
    from.read_exact(&mut sent)?;
    let mut words = first.split(' ');
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let text =
        |status: &str, body: &str, more: &str| (status.to_owned(), "text/plain", body.to_owned(), more.to_owned());
    let json = |body: String, more: &str| ("200 OK".to_owned(), "application/json", body, more.to_owned());
    let (status, kind, body, more) = match path.split('?').next().unwrap_or_default() {
        "/file.txt" if header("if-modified-since").is_some() => text("304 Not Modified", "", ""),
        "/file.txt" => text("200 OK", FILE, "Last-Modified: Mon, 01 Jan 2024 00:00:00 GMT\r\n"),
        "/always.txt" => text("200 OK", FILE, ""),
        "/named" => text("200 OK", FILE, "Content-Disposition: attachment; filename=\"given.txt\"\r\n"),
        "/sums" => {
            let sum = hex::encode(Sha256::digest(FILE));
            text("200 OK", &format!("00  other.txt\n{sum}  file.txt\n"), "")
        }
        "/json" => json("{\"a\": [1, \"x\"]}".into(), "Set-Cookie: c=d; Path=/\r\n"),
        "/echo" => {
            let body = String::from_utf8_lossy(&sent);
            json(serde_json::json!({"method": method, "type": header("content-type"), "body": body}).to_string(), "")
        }
        "/login" => {
            let pair = base64::engine::general_purpose::STANDARD.encode("me:secret");
            match header("authorization") == Some(format!("Basic {pair}")) {
                true => text("200 OK", "welcome", ""),
                false => text("401 Unauthorized", "who?", "WWW-Authenticate: Basic realm=\"x\"\r\n"),
            }
        }
        "/moved" => text("302 Found", "", "Location: /always.txt\r\n"),
        "/created" => text("201 Created", "made", ""),
        _ => text("404 Not Found", "nothing here", ""),
    };
    let length = match status.starts_with("304") {
        true => String::new(),
        false => format!("Content-Length: {}\r\n", body.len()),
    };
    let body = if method == "HEAD" { "" } else { &body };
    let mut to = stream;
    write!(to, "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\n{more}{length}Connection: close\r\n\r\n{body}")
}
