//! `http`: one request. Only the proxy in the check is used; proxies in the environment are
//! ignored.

use super::super::goss_names::capital;
use super::super::redact::redact_passwords;
use super::super::spawn::MAX_OUTPUT;
use super::read::content;
use super::{ProbeAnswer, ProbeAnswers, ProbeContext, ProbeError, failed_error, measure, unknown_error};
use remoor_host::web::{self, REQUESTS_MAX, RedirectRequest, basic_authorization};
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use rustls::sign::CertifiedKey;
use serde_json::Value;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use ureq::http::{HeaderMap, Request, Response};
use ureq::tls::{Certificate, ClientCert, PrivateKey, RootCerts, TlsConfig};
use ureq::{Agent, Body, Proxy};

const DEFAULT_MS: u64 = 5000;

/// Err: the reason why the URL or the arguments are not valid.
pub(super) fn validate<'c>(name: &str, argument: impl Fn(&str) -> Option<&'c str>) -> Result<(), String> {
    let shown = redact_passwords(name);
    if !name.starts_with("http://") && !name.starts_with("https://") {
        return Err(format!("`{shown}` is not an HTTP URL; write http://HOST:PORT/PATH or https://HOST/PATH"));
    }
    if argument("cert-file").is_some() != argument("key-file").is_some() {
        return Err(format!("`{shown}`: `cert-file` and `key-file` must be given together"));
    }
    match argument("proxy") {
        Some(proxy) if !proxy.starts_with("http://") || Proxy::new(proxy).is_err() => {
            Err(format!("`proxy` of `{shown}` is not valid; write http://HOST:PORT"))
        }
        _ => Ok(()),
    }
}

pub(super) fn ask(ask: &ProbeContext) -> ProbeAnswers {
    match request(ask) {
        Ok((status, headers, body)) => {
            let mut answers = ProbeAnswers::default();
            measure::add(ask, &body, &mut answers);
            answers.insert("status", Ok(status.into()));
            answers.insert("headers", Ok(headers.into()));
            answers.insert("body", body);
            answers
        }
        // An error may quote the URL, which may contain a password.
        Err(ProbeError::Failed(why)) => ProbeAnswers::from([("status", Err(failed_error(redact_passwords(&why))))]),
        Err(ProbeError::Unknown(why)) => ProbeAnswers::from([("status", Err(unknown_error(redact_passwords(&why))))]),
    }
}

fn request(ask: &ProbeContext) -> Result<(u16, String, ProbeAnswer), ProbeError> {
    let until = Instant::now() + ask.timeout(DEFAULT_MS);
    let mut hop = first(ask)?;
    let mut with_tls = hop.uses_tls();
    let mut agent = agent_for(ask, with_tls)?;
    let mut requests = 1;
    let response = loop {
        if hop.uses_tls() && !with_tls {
            (agent, with_tls) = (agent_for(ask, true)?, true);
        }
        let response = send(&agent, &hop, ask, until)?;
        let location = response.headers().get("location").map(|place| String::from_utf8_lossy(place.as_bytes()));
        if ask.flag("no-follow-redirects") {
            break response;
        }
        let next = hop.next_request(&ask.check.name, response.status().as_u16(), location.as_deref());
        match next.map_err(|elsewhere| failed_error(format!("redirected to {elsewhere}")))? {
            None => break response,
            Some(_) if requests == REQUESTS_MAX => {
                return Err(unknown_error(format!("redirected {REQUESTS_MAX} times")));
            }
            Some(next) => hop = next,
        }
        requests += 1;
    };
    let status = response.status().as_u16();
    let headers = lines_of(response.headers());
    let packed = response.headers().get("content-encoding").is_some_and(|how| how != "identity");
    let mut bytes = Vec::new();
    let read = response.into_body().into_reader().take(MAX_OUTPUT as u64 + 1).read_to_end(&mut bytes);
    let body = match read {
        // The body is not decompressed. A pattern that must match no line would always hold for a
        // compressed body.
        _ if packed => Err(unknown_error("the server compressed the body, although no encoding was requested")),
        Err(e) => Err(unknown_error(e)),
        Ok(_) if bytes.len() > MAX_OUTPUT => Err(unknown_error(format!("more than {MAX_OUTPUT} bytes"))),
        Ok(_) => Ok(String::from_utf8_lossy(&bytes).into()),
    };
    Ok((status, headers, body))
}

/// The HTTP client. Without TLS, no CA certificate is read, because reading all that this machine
/// trusts takes longer than a request.
fn agent_for(ask: &ProbeContext, with_tls: bool) -> Result<Agent, ProbeError> {
    let config = Agent::config_builder()
        .http_status_as_error(false)
        // This module follows redirects itself, because ureq drops all credentials on a redirect
        // and keeps any `Host` header.
        .max_redirects(0)
        .max_redirects_will_error(false)
        .proxy(ask.argument("proxy").map(Proxy::new).transpose().map_err(unknown_error)?)
        .user_agent("remoor");
    Ok(if with_tls { config.tls_config(tls(ask)?) } else { config }.build().into())
}

/// The first request, as the check describes it.
fn first(ask: &ProbeContext) -> Result<RedirectRequest, ProbeError> {
    let mut headers: Vec<(String, String)> = Vec::new();
    let lines = ask.check.arguments.get("request-headers").and_then(Value::as_array);
    for line in lines.into_iter().flatten().filter_map(Value::as_str) {
        let (name, value) =
            line.split_once(':').ok_or_else(|| unknown_error("a line of `request-headers` has no colon"))?;
        headers.push((name.trim().to_owned(), value.trim().to_owned()));
    }
    let host = headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("host")).map(|(_, value)| value.clone());
    headers.retain(|(name, _)| !name.eq_ignore_ascii_case("host"));
    if let Some(user) = ask.argument("username") {
        let password = ask.argument("password").unwrap_or_default();
        headers.retain(|(name, _)| !name.eq_ignore_ascii_case("authorization"));
        headers.push(("Authorization".to_owned(), basic_authorization(user.as_bytes(), password.as_bytes())));
    }
    let method = ask.argument("method").unwrap_or("GET").to_owned();
    Ok(RedirectRequest { method, url: ask.check.name.clone(), headers, host, body: true })
}

fn send(
    agent: &Agent,
    hop: &RedirectRequest,
    ask: &ProbeContext,
    until: Instant,
) -> Result<Response<Body>, ProbeError> {
    let mut request = Request::builder().method(hop.method.as_str()).uri(hop.target());
    let own = [("Host", hop.host.clone()), ("Authorization", hop.authorization())];
    let own = own.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    for (name, value) in hop.headers.iter().cloned().chain(own) {
        request = request.header(name, value);
    }
    let body = ask.argument("request-body").filter(|_| hop.body).unwrap_or_default().to_owned();
    let request = request.body(body).map_err(unknown_error)?;
    // The first request and all redirects together have one timeout.
    let left = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
    let request = agent.configure_request(request).timeout_global(Some(left)).build();
    agent.run(request).map_err(|e| trouble(&e))
}

/// The TLS settings: the client certificate, and the trusted CAs, which are those of `ca-file` or
/// otherwise of this machine. With `allow-insecure`, any server certificate is accepted.
fn tls(ask: &ProbeContext) -> Result<TlsConfig, ProbeError> {
    let mut tls = TlsConfig::builder();
    if ask.flag("allow-insecure") {
        tls = tls.disable_verification(true);
    } else if let Some(path) = ask.argument("ca-file") {
        tls = tls.root_certs(RootCerts::Specific(Arc::new(certificates(ask, path)?)));
    } else {
        tls = tls.root_certs(RootCerts::Specific(ask.world.roots().map_err(unknown_error)?));
    }
    if let (Some(cert), Some(key)) = (ask.argument("cert-file"), ask.argument("key-file")) {
        tls = tls.client_cert(Some(client(ask, cert, key)?));
    }
    Ok(tls.build())
}

fn client(ask: &ProbeContext, cert: &str, key: &str) -> Result<ClientCert, ProbeError> {
    let certs = certificates(ask, cert)?;
    let pem = content(ask, Path::new(key))?;
    let private = PrivateKey::from_pem(&pem).map_err(|e| failed_error(format!("{key}: {e}")))?;
    // The key is compared with the certificate here, because ureq panics if they do not match.
    let chain = certs.iter().map(|cert| cert.der().to_vec().into()).collect();
    let der = PrivateKeyDer::from_pem_slice(&pem).map_err(|e| failed_error(format!("{key}: {e}")))?;
    CertifiedKey::from_der(chain, der, &rustls::crypto::ring::default_provider())
        .map_err(|e| failed_error(format!("{cert} and {key}: {e}")))?;
    Ok(ClientCert::new_with_certs(&certs, private))
}

/// Reads the certificates of a PEM file. A file without any certificate is an error.
fn certificates(ask: &ProbeContext, path: &str) -> Result<Vec<Certificate<'static>>, ProbeError> {
    web::certificates(&content(ask, Path::new(path))?).map_err(|e| failed_error(format!("{path}: {e}")))
}

/// A refused connection and a certificate that is not valid are failures of the check. After any
/// other error the result is unknown.
fn trouble(error: &ureq::Error) -> ProbeError {
    match error {
        ureq::Error::Io(e) if e.kind() == std::io::ErrorKind::ConnectionRefused => failed_error(e),
        ureq::Error::Io(e) => match e.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
            Some(tls) => failed_error(tls),
            None => unknown_error(e),
        },
        ureq::Error::Rustls(tls) => failed_error(tls),
        // The URL of the check starts with `http`, so the error is about the target of a redirect.
        ureq::Error::BadUri(_) => failed_error(error),
        ureq::Error::ConnectionFailed => failed_error(error),
        _ => unknown_error(error),
    }
}

/// The headers of the answer as lines in the spelling of checks: `Content-Type: text/html`.
fn lines_of(headers: &HeaderMap) -> String {
    let line = |(name, value): (&ureq::http::HeaderName, &ureq::http::HeaderValue)| {
        let parts: Vec<String> = name.as_str().split('-').map(capital).collect();
        format!("{}: {}\n", parts.join("-"), String::from_utf8_lossy(value.as_bytes()))
    };
    headers.iter().map(line).collect()
}
