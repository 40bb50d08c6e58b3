//! HTTP requests for the modules that need them: options, proxy, TLS trust, redirects and
//! credentials.
//!
//! A URL may contain a secret. So no URL is passed to another program or shown in a message, and
//! messages name only the host.

use super::argument_types::map_of_text;
use super::{ModuleCall, TaskOutcome};
use crate::os::acting_user::env_var;
use remoor_host::web::{self, REQUESTS_MAX, RedirectRequest, basic_authorization};
use serde_json::{Map, Value, json};
use std::io::{Read, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};
use ureq::http::{Request, Response};
use ureq::tls::{ClientCert, PrivateKey, RootCerts, TlsConfig};
use ureq::{Agent, Body, Proxy};

/// Timeout of a request for a task without its own timeout.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(3600);
/// Number of bytes of a response body that are read between two checks for cancellation.
const CHUNK_BYTES: usize = 64 << 10;

/// Which redirects an HTTP request follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RedirectPolicy {
    All,
    None,
    /// Only the redirects of GET and HEAD requests.
    Safe,
    /// The redirects that Python's urllib follows: those of GET and HEAD, and of a POST that
    /// becomes a GET.
    Urllib,
}

impl RedirectPolicy {
    fn follows(self, method: &str, status: u16) -> bool {
        let looks = method == "GET" || method == "HEAD";
        match self {
            Self::All => true,
            Self::None => false,
            Self::Safe => looks,
            Self::Urllib => looks || method == "POST" && (301..=303).contains(&status),
        }
    }
}

/// Whether a request carries credentials.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestCredentials {
    /// Credentials from the task's options: login and headers.
    Task,
    Anonymous,
}

/// An HTTP request. The options of the task may add headers, a login and a timeout to it.
#[derive(Debug)]
pub struct WebRequest<'a> {
    pub url: &'a str,
    pub method: &'a str,
    /// Headers in addition to those of the task.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    pub follow: RedirectPolicy,
    /// The default of the task's `timeout`: the maximum time in seconds without data from the
    /// server.
    pub timeout: f64,
    /// Sends If-Modified-Since with this time, in seconds since 1970.
    pub newer_than: Option<i64>,
    pub credentials: RequestCredentials,
}

impl<'a> WebRequest<'a> {
    pub fn get(url: &'a str) -> Self {
        let (headers, body) = (Vec::new(), Vec::new());
        let (follow, credentials) = (RedirectPolicy::Urllib, RequestCredentials::Task);
        Self { url, method: "GET", headers, body, follow, timeout: 10.0, newer_than: None, credentials }
    }
}

/// The HTTP response after all redirects. Its body is not read yet.
#[derive(Debug)]
pub struct WebResponse {
    pub status: u16,
    /// The URL that gave this response, after all redirects.
    pub url: String,
    /// The response headers in their order, with names in lower case.
    pub headers: Vec<(String, String)>,
    host: String,
    response: Response<Body>,
}

/// Sends the request with the task's options and follows redirects. Fails only if there is no
/// response.
pub fn send_request(call: &ModuleCall, wish: &WebRequest) -> Result<WebResponse, String> {
    let url = wish.url;
    if !url.starts_with("http://") && !url.starts_with("https://") {
        return Err(format!("`{}` is not an http or https URL", mask_password(url)));
    }
    let until = call.until.unwrap_or_else(|| Instant::now() + REQUEST_TIMEOUT);
    let quiet = call.seconds("timeout", wish.timeout)?.max(Duration::from_millis(100));
    let user = call.text(&["url_username", "username", "user"]).filter(|u| !u.is_empty());
    let login = user.filter(|_| wish.credentials == RequestCredentials::Task).map(|user| {
        basic_authorization(user.as_bytes(), call.text(&["url_password", "password"]).unwrap_or_default().as_bytes())
    });
    let stays = call.list(&["unredirected_headers"]);
    let mut hop = initial_hop(call, wish)?;
    if let Some(login) = login.as_ref().filter(|_| call.flag("force_basic_auth", false)) {
        hop.headers.push(("Authorization".into(), login.clone()));
    }
    let mut requests = 0;
    loop {
        requests += 1;
        let agent = agent(call, &hop.url, quiet)?;
        let response = send_hop(&agent, &hop, wish, until)?;
        let status = response.status().as_u16();
        let header = |name: &str| {
            response.headers().get(name).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
        };
        if let (401, Some(login), None) = (status, &login, hop.authorization_given())
            && header("www-authenticate").is_some_and(|how| how.to_ascii_lowercase().contains("basic"))
            && requests < REQUESTS_MAX
            // Credentials are only sent to the server of the original URL.
            && host_of(&hop.url) == host_of(url)
        {
            hop.headers.push(("Authorization".into(), login.clone()));
            continue;
        }
        let location = header("location").filter(|_| wish.follow.follows(&hop.method, status));
        let next = hop.next_request(url, status, location.as_deref());
        match next.map_err(|_| format!("{} redirects to a URL that is not http or https", host_of(&hop.url)))? {
            Some(_) if requests >= REQUESTS_MAX => {
                return Err(format!("{} redirects more than {} times", host_of(url), REQUESTS_MAX - 1));
            }
            Some(mut next) => {
                next.headers.retain(|(name, _)| !stays.iter().any(|s| s.eq_ignore_ascii_case(name)));
                if !next.body {
                    next.headers.retain(|(name, _)| !name.eq_ignore_ascii_case("content-type"));
                }
                hop = next;
            }
            None => {
                let line = |(name, value): (&ureq::http::HeaderName, &ureq::http::HeaderValue)| {
                    (name.as_str().to_owned(), String::from_utf8_lossy(value.as_bytes()).into_owned())
                };
                let headers = response.headers().iter().map(line).collect();
                return Ok(WebResponse { status, host: host_of(&hop.url).to_owned(), url: hop.url, headers, response });
            }
        }
    }
}

fn initial_hop(call: &ModuleCall, wish: &WebRequest) -> Result<RedirectRequest, String> {
    let mut headers = wish.headers.clone();
    let given = match call.args.get("headers").filter(|_| wish.credentials == RequestCredentials::Task) {
        None | Some(Value::Null) => Map::new(),
        Some(Value::Object(given)) => given.clone(),
        Some(Value::String(text)) => map_of_text(text).map_err(|why| format!("`headers` is not a map: {why}"))?,
        Some(_) => return Err("`headers` must be a map".into()),
    };
    for (name, value) in given {
        headers.retain(|(other, _)| !other.eq_ignore_ascii_case(&name));
        headers.push((name, value.as_str().map_or_else(|| value.to_string(), str::to_owned)));
    }
    let host = headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("host")).map(|(_, value)| value.clone());
    headers.retain(|(name, _)| !name.eq_ignore_ascii_case("host"));
    if call.flag("force", false) {
        headers.push(("Cache-Control".into(), "no-cache".into()));
    } else if let Some(time) = wish.newer_than.and_then(|at| jiff::Timestamp::from_second(at).ok()) {
        headers.push(("If-Modified-Since".into(), time.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string()));
    }
    Ok(RedirectRequest { method: wish.method.to_owned(), url: wish.url.to_owned(), headers, host, body: true })
}

fn agent(call: &ModuleCall, url: &str, quiet: Duration) -> Result<Agent, String> {
    let mut tls = TlsConfig::builder();
    if !call.flag("validate_certs", true) {
        tls = tls.disable_verification(true);
    } else if url.starts_with("https://") {
        let certificates = match call.args.contains_key("ca_path") {
            true => {
                let path = call.path(&["ca_path"])?;
                let all = web::certificates(&call.ground.node.read(&path)?);
                Arc::new(all.map_err(|e| format!("{}: {e}", path.display()))?)
            }
            false => web::roots()?,
        };
        tls = tls.root_certs(RootCerts::Specific(certificates));
    }
    if url.starts_with("https://") {
        tls = tls.client_cert(client_certificate(call)?);
    }
    let proxy = proxy_of(call, url).map(|proxy| Proxy::new(&proxy)).transpose();
    let builder = Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .allow_non_standard_methods(true)
        .proxy(proxy.map_err(|_| "the proxy URL in the environment is not valid")?)
        .timeout_connect(Some(quiet))
        .timeout_per_read(Some(quiet))
        .timeout_per_write(Some(quiet))
        .user_agent(call.text(&["http_agent"]).unwrap_or_else(|| "ansible-httpget".into()))
        .accept_encoding("identity")
        .tls_config(tls.build());
    Ok(builder.build().into())
}

/// The certificate with which the task identifies itself to the server, and its key. The file of
/// the certificate may contain the key. As in Ansible, `client_key` alone has no effect.
fn client_certificate(call: &ModuleCall) -> Result<Option<ClientCert>, String> {
    let given = |name: &'static str| call.text(&[name]).filter(|text| !text.is_empty()).map(|_| name);
    let Some(certificate) = given("client_cert") else { return Ok(None) };
    let read = |name: &'static str| -> Result<Vec<u8>, String> {
        let path = call.ground.node.follow_trusted(&call.path(&[name])?)?.0;
        Ok(call.ground.node.read(&path)?)
    };
    let invalid = |name: &str, why: String| format!("`{name}`: {why}");
    let pem = read(certificate)?;
    let chain = web::certificates(&pem).map_err(|why| invalid(certificate, why))?;
    let option = given("client_key").unwrap_or(certificate);
    let key = if option == certificate { pem } else { read(option)? };
    let key = PrivateKey::from_pem(&key).map_err(|_| invalid(option, "it contains no private key".into()))?;
    Ok(Some(ClientCert::new_with_certs(&chain, key)))
}

/// The proxy for a URL, from the task's environment or else from that of this process.
fn proxy_of(call: &ModuleCall, url: &str) -> Option<String> {
    if !call.flag("use_proxy", true) {
        return None;
    }
    let set = |name: &str| {
        let own = call.env.iter().rev().find(|(n, _)| n == name).map(|(_, v)| v.clone());
        own.or_else(|| env_var(name)).filter(|v| !v.is_empty())
    };
    let either = |name: &str| set(name).or_else(|| set(&name.to_ascii_uppercase()));
    let proxy = either(if url.starts_with("https://") { "https_proxy" } else { "http_proxy" })?;
    let host = host_of(url);
    let plain = host.rsplit_once(':').filter(|(_, port)| port.bytes().all(|b| b.is_ascii_digit()));
    let plain = plain.map_or(host, |(name, _)| name);
    let beside = either("no_proxy").unwrap_or_default();
    let direct = beside.split(',').map(|entry| entry.trim().trim_start_matches('.')).any(|entry| {
        let below = |host: &str| host.strip_suffix(entry).is_some_and(|front| front.is_empty() || front.ends_with('.'));
        entry == "*" || !entry.is_empty() && (below(host) || below(plain))
    });
    (!direct).then_some(proxy)
}

fn send_hop(agent: &Agent, hop: &RedirectRequest, wish: &WebRequest, until: Instant) -> Result<Response<Body>, String> {
    let mut request = Request::builder().method(hop.method.as_str()).uri(hop.target());
    let own = [("Host", hop.host.clone()), ("Authorization", hop.authorization())];
    let own = own.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    for (name, value) in hop.headers.iter().cloned().chain(own) {
        request = request.header(name, value);
    }
    let body = if hop.body { wish.body.clone() } else { Vec::new() };
    let bad = |_| format!("{}: the method, the URL or a header is not valid", host_of(&hop.url));
    let request = request.body(body).map_err(bad)?;
    let left = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
    let request = agent.configure_request(request).timeout_global(Some(left)).build();
    agent.run(request).map_err(|e| request_failure(&hop.url, &e))
}

/// The reason why there is no response, without the URL, which may contain a secret.
fn request_failure(url: &str, error: &ureq::Error) -> String {
    match error {
        ureq::Error::BadUri(_) | ureq::Error::Http(_) => format!("{}: the URL is not valid", host_of(url)),
        other => format!("Request failed: {}: {other}", host_of(url)),
    }
}

impl WebResponse {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    /// The response status as in Ansible's results.
    pub fn status_text(&self) -> String {
        match self.status {
            200..=299 => format!("OK ({} bytes)", self.header("content-length").unwrap_or("unknown")),
            status => format!("HTTP Error {status}: {}", self.response.status().canonical_reason().unwrap_or_default()),
        }
    }

    /// Writes the body to `to` and returns its size in bytes. Fails if it is larger than `most`.
    pub fn write_body(self, call: &ModuleCall, to: &mut dyn Write, most: u64) -> Result<u64, String> {
        let host = self.host.clone();
        let packed = self.header("content-encoding").is_some_and(|how| how.eq_ignore_ascii_case("gzip"));
        if packed && call.flag("decompress", true) {
            return Err(format!("{host}: the body is compressed with gzip; `decompress: false` stores it unchanged"));
        }
        let mut from = self.response.into_body().into_reader();
        let (mut piece, mut all) = (vec![0; CHUNK_BYTES], 0);
        loop {
            if call.cancel.is_cancelled() {
                return Err("cancelled".into());
            }
            let n = match from.read(&mut piece) {
                Ok(0) => return Ok(all),
                Ok(n) => n,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(format!("{host}: {e}")),
            };
            all += n as u64;
            if all > most {
                return Err(format!("{host}: more than {} MiB", most >> 20));
            }
            to.write_all(&piece[..n]).map_err(|e| format!("cannot store the response of {host}: {e}"))?;
        }
    }

    pub fn read_body(self, call: &ModuleCall, most: u64) -> Result<Vec<u8>, String> {
        let mut out = Vec::new();
        self.write_body(call, &mut out, most)?;
        Ok(out)
    }

    /// The failed outcome for a response with an unwanted status.
    pub fn failed_outcome(&self) -> TaskOutcome {
        let mut out = TaskOutcome {
            failed: true,
            msg: format!("Request failed: {}", self.status_text()),
            ..TaskOutcome::default()
        };
        for (key, value) in [
            ("status_code", json!(self.status)),
            ("response", json!(self.status_text())),
            ("url", json!(mask_password(&self.url))),
        ] {
            out.extra_keys.insert(key.into(), value);
        }
        out
    }
}

/// The file name from Content-Disposition, or else from the URL.
pub fn file_name(got: &WebResponse) -> String {
    let given = got.header("content-disposition").and_then(|text| {
        let (_, rest) = text.split_once("filename=")?;
        let name = match rest.strip_prefix('"') {
            Some(quoted) => quoted.split('"').next(),
            None => rest.split(';').next(),
        };
        last_component(name?.trim())
    });
    given.or_else(|| last_component(path_of(&got.url))).unwrap_or_else(|| "index.html".into())
}

/// The file name from the URL.
pub fn file_name_in_url(url: &str) -> String {
    last_component(path_of(url)).unwrap_or_else(|| "index.html".into())
}

fn path_of(url: &str) -> &str {
    let plain = url.split(['?', '#']).next().unwrap_or(url);
    plain.split_once("://").and_then(|(_, rest)| rest.split_once('/')).map_or("", |(_, path)| path)
}

fn last_component(path: &str) -> Option<String> {
    let name = path.rsplit('/').next().filter(|name| !matches!(*name, "" | "." | ".."))?;
    (!name.contains('\0')).then(|| name.to_owned())
}

/// The host and port of a URL, without parts that may be secret.
pub fn host_of(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    authority.rsplit_once('@').map_or(authority, |(_, host)| host)
}

/// A URL for results, with the password masked.
pub fn mask_password(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    match rest[..end].rsplit_once('@') {
        Some((user, host)) => {
            let user = if user.contains(':') {
                format!("{}:********", user.split(':').next().unwrap_or_default())
            } else {
                user.to_owned()
            };
            format!("{scheme}://{user}@{host}{}", &rest[end..])
        }
        None => url.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_shown_without_secrets() {
        for (url, host, told) in [
            ("http://me:secret@h:80/x?t=1", "h:80", "http://me:********@h:80/x?t=1"),
            ("https://me@h", "h", "https://me@h"),
            ("https://h/a@b", "h", "https://h/a@b"),
            ("http://h?x=@y", "h", "http://h?x=@y"),
        ] {
            assert_eq!((host_of(url), mask_password(url).as_str()), (host, told));
        }
    }

    #[test]
    fn file_names_have_no_path() {
        for (url, name) in [
            ("http://h/a/b.tgz?x=/y", "b.tgz"),
            ("http://h/a/", "index.html"),
            ("http://h", "index.html"),
            ("http://h/a/..", "index.html"),
        ] {
            assert_eq!(file_name_in_url(url), name, "{url}");
        }
    }

    #[test]
    fn redirect_policies() {
        for (follow, method, status, want) in [
            (RedirectPolicy::All, "PUT", 307, true),
            (RedirectPolicy::None, "GET", 301, false),
            (RedirectPolicy::Safe, "HEAD", 308, true),
            (RedirectPolicy::Safe, "POST", 302, false),
            (RedirectPolicy::Urllib, "POST", 302, true),
            (RedirectPolicy::Urllib, "POST", 307, false),
            (RedirectPolicy::Urllib, "PUT", 301, false),
        ] {
            assert_eq!(follow.follows(method, status), want, "{follow:?} {method} {status}");
        }
    }
}
