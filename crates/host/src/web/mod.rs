//! HTTP rules shared by checks and playbooks: redirects, and the CA certificates of this machine.
//! The callers send the requests and judge the answers.

mod redirect;

pub use redirect::{REQUESTS_MAX, RedirectRequest, basic_authorization, resolve_location, same_server};

use std::sync::Arc;
use ureq::tls::{Certificate, PemItem, parse_pem};

/// The CA certificates of this machine. They are found as by OpenSSL: in the file and directory
/// that environment variables name, otherwise in the usual places of Linux distributions.
pub fn roots() -> Result<Arc<Vec<Certificate<'static>>>, String> {
    let found = rustls_native_certs::load_native_certs();
    if let (true, Some(why)) = (found.certs.is_empty(), found.errors.first()) {
        return Err(format!("CA certificates of this machine: {why}"));
    }
    Ok(Arc::new(found.certs.iter().map(|der| Certificate::from_der(der).to_owned()).collect()))
}

/// The certificates in a PEM file, at least one. Err: the reason why the file is not valid.
pub fn certificates(pem: &[u8]) -> Result<Vec<Certificate<'static>>, String> {
    let items: Vec<PemItem> = parse_pem(pem).collect::<Result<_, _>>().map_err(|e| e.to_string())?;
    let certificate = |item| match item {
        PemItem::Certificate(certificate) => Some(certificate),
        _ => None,
    };
    let all: Vec<Certificate> = items.into_iter().filter_map(certificate).collect();
    if all.is_empty() { Err("it contains no certificate".into()) } else { Ok(all) }
}
