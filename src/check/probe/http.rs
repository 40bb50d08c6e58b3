//! `http`: one request in the clear. Uses no proxy, whatever the environment says.

use super::super::spawn::MAX_OUTPUT;
use super::{Answer, Answers, Ask, Trouble, failed, unknown};
use base64::Engine;
use serde_json::Value;
use std::io::Read;
use ureq::Agent;
use ureq::http::{HeaderMap, Request};

const DEFAULT_MS: u64 = 5000;
/// As goss.
const REDIRECTS: u32 = 10;

pub(super) fn ask(ask: &Ask) -> Answers {
    match request(ask) {
        Ok((status, headers, body)) => {
            Answers::from([("status", Ok(status.into())), ("headers", Ok(headers.into())), ("body", body)])
        }
        Err(trouble) => Answers::from([("status", Err(trouble))]),
    }
}

fn request(ask: &Ask) -> Result<(u16, String, Answer), Trouble> {
    let stay = ask.check.arguments.get("no-follow-redirects").and_then(Value::as_bool).unwrap_or(false);
    let agent: Agent = Agent::config_builder()
        .timeout_global(Some(ask.timeout(DEFAULT_MS)))
        .http_status_as_error(false)
        .max_redirects(if stay { 0 } else { REDIRECTS })
        .max_redirects_will_error(false)
        .proxy(None)
        .user_agent("remoor")
        .build()
        .into();
    let mut request = Request::builder().method(ask.argument("method").unwrap_or("GET")).uri(&ask.check.name);
    let lines = ask.check.arguments.get("request-headers").and_then(Value::as_array);
    for line in lines.into_iter().flatten().filter_map(Value::as_str) {
        let (name, value) = line.split_once(':').ok_or_else(|| unknown(format!("`{line}` is no header")))?;
        request = request.header(name.trim(), value.trim());
    }
    if let Some(user) = ask.argument("username") {
        let pair = format!("{user}:{}", ask.argument("password").unwrap_or_default());
        request = request
            .header("Authorization", format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(pair)));
    }
    let body = ask.argument("request-body").unwrap_or_default().to_owned();
    let request = request.body(body).map_err(unknown)?;
    let response = agent.run(request).map_err(|e| trouble(&e))?;
    let status = response.status().as_u16();
    let headers = lines_of(response.headers());
    let mut bytes = Vec::new();
    let read = response.into_body().into_reader().take(MAX_OUTPUT as u64 + 1).read_to_end(&mut bytes);
    let body = match read {
        Err(e) => Err(unknown(e)),
        Ok(_) if bytes.len() > MAX_OUTPUT => Err(unknown(format!("more than {MAX_OUTPUT} bytes"))),
        Ok(_) => Ok(String::from_utf8_lossy(&bytes).into()),
    };
    Ok((status, headers, body))
}

/// Nobody listens: that is an answer. Anything else leaves it open.
fn trouble(error: &ureq::Error) -> Trouble {
    match error {
        ureq::Error::Io(e) if e.kind() == std::io::ErrorKind::ConnectionRefused => failed(e),
        ureq::Error::ConnectionFailed => failed(error),
        _ => unknown(error),
    }
}

/// In the spelling that checks use: `Content-Type: text/html`.
fn lines_of(headers: &HeaderMap) -> String {
    let line = |(name, value): (&ureq::http::HeaderName, &ureq::http::HeaderValue)| {
        let parts: Vec<String> = name.as_str().split('-').map(capital).collect();
        format!("{}: {}\n", parts.join("-"), String::from_utf8_lossy(value.as_bytes()))
    };
    headers.iter().map(line).collect()
}

fn capital(word: &str) -> String {
    let mut chars = word.chars();
    chars.next().map(|first| first.to_ascii_uppercase()).into_iter().chain(chars).collect()
}
