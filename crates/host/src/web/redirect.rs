//! Target and headers after a redirect, as in Go's `net/http`, which goss uses. Pure.

use base64::Engine;
use std::fmt::Write;

/// Maximum number of requests, including the first.
pub const REQUESTS_MAX: usize = 10;
/// Headers that are sent only to the first host and its subdomains.
const SENSITIVE: [&str; 5] = ["authorization", "www-authenticate", "cookie", "cookie2", "proxy-authorization"];

/// A request to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedirectRequest {
    pub method: String,
    /// The unmodified URL, including user and password if any.
    pub url: String,
    /// All headers except `Host`.
    pub headers: Vec<(String, String)>,
    /// A `Host` header set by the caller.
    pub host: Option<String>,
    /// Whether this request has the body of the first request.
    pub body: bool,
}

impl RedirectRequest {
    /// The request after an answer with `status` and `location`. None: the answer is final. Err:
    /// the target, which is not HTTP.
    pub fn next_request(
        &self,
        first: &str,
        status: u16,
        location: Option<&str>,
    ) -> Result<Option<RedirectRequest>, String> {
        let keeps = match status {
            301..=303 => false,
            307 | 308 => true,
            _ => return Ok(None),
        };
        let Some(location) = location.filter(|location| !location.is_empty()) else { return Ok(None) };
        let url = resolve_location(&self.url, location).ok_or_else(|| location.to_owned())?;
        let mut next = RedirectRequest { url, ..self.clone() };
        if !keeps {
            next.body = false;
            if !["GET", "HEAD"].contains(&self.method.as_str()) {
                next.method = "GET".to_owned();
            }
        }
        // A location with a host is another target, even if the host is the same.
        if scheme(location).is_some() || location.starts_with("//") {
            next.host = None;
        }
        let (from, to) = (host(first), host(&next.url));
        // An IPv6 address has no subdomains.
        let below = !to.contains(':') && to.strip_suffix(&from).is_some_and(|front| front.ends_with('.'));
        if to != from && !below {
            next.headers.retain(|(name, _)| !SENSITIVE.contains(&name.to_ascii_lowercase().as_str()));
        }
        Ok(Some(next))
    }

    /// The URL for the request line: without credentials, which are sent in a header, and without
    /// fragment.
    pub fn target(&self) -> String {
        let (scheme, authority, rest) = split(&self.url);
        let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
        format!("{scheme}://{host}{}", percent_encode(rest.split('#').next().unwrap_or_default()))
    }

    /// Whether the request needs TLS.
    pub fn uses_tls(&self) -> bool {
        split(&self.url).0.eq_ignore_ascii_case("https")
    }

    /// The `Authorization` among the headers.
    pub fn authorization_given(&self) -> Option<&str> {
        let own = self.headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("authorization"));
        own.map(|(_, value)| value.as_str())
    }

    /// `Authorization` from user and password of the URL. None if a header already sets it.
    pub fn authorization(&self) -> Option<String> {
        if self.authorization_given().is_some() {
            return None;
        }
        let (pair, _) = split(&self.url).1.rsplit_once('@')?;
        let (user, password) = pair.split_once(':').unwrap_or((pair, ""));
        Some(basic_authorization(&percent_decode(user), &percent_decode(password)))
    }
}

/// `Authorization` for a user and password.
pub fn basic_authorization(user: &[u8], password: &[u8]) -> String {
    format!("Basic {}", base64::engine::general_purpose::STANDARD.encode([user, b":", password].concat()))
}

/// The host in lower case, without port and brackets.
fn host(url: &str) -> String {
    let authority = split(url).1;
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let host = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next(),
        None => host.split(':').next(),
    };
    host.unwrap_or_default().to_ascii_lowercase()
}

/// Whether two URLs have the same scheme, host and port.
pub fn same_server(one: &str, other: &str) -> bool {
    let server = |url: &str| {
        let (scheme, authority, _) = split(url);
        let scheme = scheme.to_ascii_lowercase();
        let usual = if scheme == "https" { "443" } else { "80" };
        let port = authority.rsplit_once(':').map(|(_, port)| port);
        let port = port.filter(|port| !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()));
        (host(url), port.unwrap_or(usual).to_owned(), scheme)
    };
    server(one) == server(other)
}

/// Splits a URL into scheme, authority and the remaining part.
fn split(url: &str) -> (&str, &str, &str) {
    let (scheme, rest) = url.split_once("://").unwrap_or(("http", url));
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    (scheme, &rest[..end], &rest[end..])
}

/// The text before the first colon, if it is a valid scheme.
fn scheme(location: &str) -> Option<&str> {
    let (scheme, _) = location.split_once(':')?;
    let known = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
    (scheme.starts_with(|c: char| c.is_ascii_alphabetic()) && scheme.chars().all(known)).then_some(scheme)
}

/// Resolves `location` relative to `base`. None: the target is not HTTP.
pub fn resolve_location(base: &str, location: &str) -> Option<String> {
    let (of_base, authority, rest) = split(base);
    if let Some(scheme) = scheme(location) {
        let http = ["http", "https"].contains(&scheme.to_ascii_lowercase().as_str());
        return (http && location[scheme.len()..].starts_with("://")).then(|| location.to_owned());
    }
    if location.starts_with("//") {
        return Some(format!("{of_base}:{location}"));
    }
    let path_of = |text: &str| text.find(['?', '#']).unwrap_or(text.len());
    let (path, more) = location.split_at(path_of(location));
    let (old, old_more) = rest.split_at(path_of(rest));
    let (path, more) = match path {
        // Go rejects a first path segment with a colon, unless the colon ends a scheme.
        _ if path.split('/').next().is_some_and(|first| first.contains(':')) => return None,
        "" if more.starts_with('?') => (old.to_owned(), more),
        "" => (old.to_owned(), old_more),
        _ if path.starts_with('/') => (path.to_owned(), more),
        _ => (format!("{}/{path}", old.rsplit_once('/').map_or("", |(folder, _)| folder)), more),
    };
    Some(format!("{of_base}://{authority}{}{more}", without_dots(&path)))
}

fn without_dots(path: &str) -> String {
    let mut out: Vec<&str> = Vec::new();
    let parts: Vec<&str> = path.split('/').skip(1).collect();
    for (n, part) in parts.iter().enumerate() {
        let last = n + 1 == parts.len();
        match *part {
            "." | ".." => {
                if *part == ".." {
                    out.pop();
                }
                if last {
                    out.push("");
                }
            }
            other => out.push(other),
        }
    }
    format!("/{}", out.join("/"))
}

/// Percent-encodes characters that are not allowed in a request.
fn percent_encode(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_graphic() && !br#""<>\^`{|}"#.contains(&byte) {
            out.push(char::from(byte));
        } else {
            // Writing to a String does not fail.
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

/// Decodes percent escapes; an invalid escape stays unchanged.
fn percent_decode(text: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        let digits = tail.get(..2).filter(|digits| *first == b'%' && digits.iter().all(u8::is_ascii_hexdigit));
        match digits.and_then(|digits| hex::decode(digits).ok()) {
            Some(byte) => {
                out.extend(byte);
                rest = &tail[2..];
            }
            None => {
                out.push(*first);
                rest = tail;
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hop(url: &str) -> RedirectRequest {
        let headers = ["Authorization", "cookie", "X-Mine"].map(|name| (name.to_owned(), "v".to_owned()));
        RedirectRequest {
            method: "POST".into(),
            url: url.into(),
            headers: headers.into(),
            host: Some("own".into()),
            body: true,
        }
    }

    #[test]
    fn redirect_targets_are_resolved() {
        let base = "http://me:p@h:80/a/b/c?q";
        for (location, url) in [
            ("https://x/y", Some("https://x/y")),
            ("HTTP://x", Some("HTTP://x")),
            ("//x/y", Some("http://x/y")),
            ("/y?z", Some("http://me:p@h:80/y?z")),
            ("y", Some("http://me:p@h:80/a/b/y")),
            ("../y/./", Some("http://me:p@h:80/a/y/")),
            ("../../../..", Some("http://me:p@h:80/")),
            ("?z", Some("http://me:p@h:80/a/b/c?z")),
            ("#z", Some("http://me:p@h:80/a/b/c?q")),
            ("/wiki/Special:Main", Some("http://me:p@h:80/wiki/Special:Main")),
            ("/a?u=http://x/y", Some("http://me:p@h:80/a?u=http://x/y")),
            ("mailto:me@h", None),
            ("file:///etc/passwd", None),
            ("http:/x", None),
            ("1a:b", None),
        ] {
            assert_eq!(resolve_location(base, location).as_deref(), url, "{location}");
        }
        assert_eq!(resolve_location("http://h", "y").as_deref(), Some("http://h/y"));
        assert_eq!(hop("http://me:p@h/po st/é?a b#c d").target(), "http://h/po%20st/%C3%A9?a%20b");
    }

    #[test]
    fn one_server_has_one_scheme_host_and_port() {
        for other in ["https://h", "https://me:443@H:443/x?y", "HTTPS://h:/"] {
            assert!(same_server("https://h/a", other), "{other}");
        }
        for other in ["http://h", "http://h:443", "https://h:8443", "https://x.h", "https://h@x/", "https://[::1]"] {
            assert!(!same_server("https://h/a", other), "{other}");
        }
        assert!(same_server("http://[::1]/", "http://[::1]:80/") && !same_server("http://[::1]", "http://[::2]"));
    }

    #[test]
    fn sensitive_headers_are_sent_only_to_the_same_host() {
        let next = |from: &str, status, to: &str| hop(from).next_request(from, status, Some(to)).unwrap();
        for (status, method, body) in
            [(301, "GET", false), (302, "GET", false), (303, "GET", false), (307, "POST", true), (308, "POST", true)]
        {
            let next = next("http://h/", status, "/x").unwrap();
            assert_eq!((next.method.as_str(), next.body), (method, body), "{status}");
        }
        let head = RedirectRequest { method: "HEAD".into(), ..hop("http://h/") };
        assert_eq!(head.next_request("http://h/", 302, Some("/x")).unwrap().unwrap().method, "HEAD");
        for (from, to, headers, host) in [
            ("http://h/", "/x", 3, true),
            ("http://h:1/", "http://h:2/", 3, false),
            ("http://h/", "https://H/", 3, false),
            ("http://h/", "http://sub.h/", 3, false),
            ("http://h/", "http://subh/", 1, false),
            ("http://sub.h/", "http://h/", 1, false),
            ("http://[::1]/", "http://[a::1]/", 1, false),
            ("http://h/a b", "http://x/a b", 1, false),
            ("http://h/", "http://h@x/", 1, false),
        ] {
            let next = next(from, 302, to).unwrap();
            assert_eq!((next.headers.len(), next.host.is_some()), (headers, host), "{from} {to}");
        }
        // A header that was removed for another host is not sent after a redirect back to the first
        // host either.
        let there = next("http://h/", 302, "http://x/").unwrap();
        assert_eq!(there.next_request("http://h/", 302, Some("http://h/")).unwrap().unwrap().headers.len(), 1);
        for (status, location) in
            [(300, Some("/x")), (304, Some("/x")), (200, Some("/x")), (302, None), (302, Some(""))]
        {
            assert_eq!(hop("http://h/").next_request("http://h/", status, location), Ok(None), "{status}");
        }
        assert_eq!(hop("http://h/").next_request("http://h/", 302, Some("ftp://h/")), Err("ftp://h/".to_owned()));
    }

    #[test]
    fn credentials_of_the_url_are_decoded() {
        let asks = |url: &str| RedirectRequest { headers: Vec::new(), ..hop(url) }.authorization();
        assert_eq!(asks("http://me:p%40ss%@h/"), Some(basic_authorization(b"me", b"p@ss%")));
        assert_eq!(asks("http://me@h/"), Some(basic_authorization(b"me", b"")));
        assert_eq!((asks("http://h/@"), hop("http://me:p@h/").authorization()), (None, None));
    }
}
