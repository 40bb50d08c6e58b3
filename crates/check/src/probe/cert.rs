//! `cert`: a certificate in a file, or the one that a server presents. Its trust chain is not
//! checked here.

use super::addr::is_host_and_port;
use super::read::content;
use super::resolve::resolve;
use super::{ProbeAnswers, ProbeContext, ProbeError, failed_error, unknown_error};
use remoor_host::tls::{PeerVerifier, ServerRule};
use remoor_model::Wall;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, Error};
use serde_json::Value;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer;

const DEFAULT_MS: u64 = 5000;
const DAY_MS: i64 = 86_400_000;

/// Err: the reason why the check's name (a path or `HOST:PORT`) or its `server-name` is not valid.
pub(super) fn validate(name: &str, server_name: Option<&str>) -> Result<(), String> {
    if !name.starts_with('/') && !is_host_and_port(name) {
        return Err(format!("`{name}` does not name a certificate; write a path, or HOST:PORT"));
    }
    match server_name {
        Some(server) if ServerName::try_from(server).is_err() => {
            Err(format!("`server-name: {server}` is not a valid name"))
        }
        _ => Ok(()),
    }
}

pub(super) fn ask(ask: &ProbeContext) -> ProbeAnswers {
    let name = ask.check.name.as_str();
    let found = if name.starts_with('/') {
        read_from_file(ask, Path::new(name))
    } else {
        presented_by_server(name, ask.argument("server-name"), ask.timeout(DEFAULT_MS))
    };
    match found.and_then(|der| answers(&der, ask.now)) {
        Ok(answers) => answers,
        Err(trouble) => {
            ask.check.assertions.iter().map(|assertion| (assertion.property, Err(trouble.clone()))).collect()
        }
    }
}

/// The first certificate of a PEM file, or the certificate of a DER file.
fn read_from_file(ask: &ProbeContext, path: &Path) -> Result<CertificateDer<'static>, ProbeError> {
    let bytes = content(ask, path)?;
    match CertificateDer::pem_slice_iter(&bytes).next() {
        Some(Ok(der)) => Ok(der),
        Some(Err(why)) => Err(failed_error(format!("not a certificate: {why}"))),
        None => Ok(bytes.into()),
    }
}

fn answers(der: &[u8], now: Wall) -> Result<ProbeAnswers, ProbeError> {
    let (_, cert) = X509Certificate::from_der(der).map_err(|why| failed_error(format!("not a certificate: {why}")))?;
    let names = cert.subject_alternative_name().map_err(|why| failed_error(format!("cannot read its names: {why}")))?;
    let names = names.into_iter().flat_map(|extension| &extension.value.general_names);
    let dns_names: Value = names
        .filter_map(|name| match name {
            GeneralName::DNSName(name) => Some(Value::from(*name)),
            _ => None,
        })
        .collect();
    Ok(ProbeAnswers::from([
        ("not-after", Ok(days_left(cert.validity().not_after.timestamp(), now).into())),
        ("subject", Ok(cert.subject().to_string().into())),
        ("issuer", Ok(cert.issuer().to_string().into())),
        ("dns-names", Ok(dns_names)),
    ]))
}

/// Days from `now` to `until_s` (Unix time in seconds), rounded down to two decimal places.
/// Negative if that time has passed.
fn days_left(until_s: i64, now: Wall) -> f64 {
    let left_ms = until_s.saturating_mul(1000).saturating_sub(i64::try_from(now.0).unwrap_or(i64::MAX));
    let hundredths = left_ms.div_euclid(DAY_MS / 100);
    // `i32` is enough: years in certificates have four digits.
    i32::try_from(hundredths).map_or(f64::from(i32::MAX), f64::from) / 100.0
}

fn presented_by_server(
    address: &str,
    server_name: Option<&str>,
    timeout: Duration,
) -> Result<CertificateDer<'static>, ProbeError> {
    let until = Instant::now() + timeout;
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host).trim_matches(['[', ']']);
    let name = ServerName::try_from(server_name.unwrap_or(host).to_owned()).map_err(unknown_error)?;
    let stream = connect(address, until)?;
    let (config, seen) = config()?;
    let mut tls = ClientConnection::new(Arc::new(config), name).map_err(unknown_error)?;
    let handshake = tls.complete_io(&mut DeadlineStream { stream, until });
    // A server that requires a client certificate presents its own certificate before the handshake
    // fails. That certificate is sufficient.
    let shown = seen.lock().unwrap_or_else(PoisonError::into_inner).take();
    match (shown, handshake) {
        (Some(der), _) => Ok(der),
        (None, Ok(_)) => Err(failed_error("the server presents no certificate")),
        (None, Err(e)) => match e.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
            Some(tls) => Err(failed_error(tls)),
            None => Err(unknown_error(e)),
        },
    }
}

fn connect(address: &str, until: Instant) -> Result<TcpStream, ProbeError> {
    let left = || until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
    let mut last = unknown_error("there is no such name");
    for address in resolve(address, left())? {
        match TcpStream::connect_timeout(&address, left()) {
            Ok(stream) => return Ok(stream),
            Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => last = failed_error(e),
            Err(e) => last = unknown_error(e),
        }
    }
    Err(last)
}

/// The TLS configuration, and the cell into which the verifier puts the server's certificate.
fn config() -> Result<(ClientConfig, PresentedCertificate), ProbeError> {
    let seen = PresentedCertificate::default();
    let verifier = Arc::new(PeerVerifier(AcceptAnyCertificate { presented: seen.clone() }));
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(unknown_error)?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    Ok((config, seen))
}

type PresentedCertificate = Arc<Mutex<Option<CertificateDer<'static>>>>;

/// Accepts any certificate, because a `cert` check also reads certificates that have expired. No
/// data is sent to the server.
#[derive(Debug)]
struct AcceptAnyCertificate {
    presented: PresentedCertificate,
}

impl ServerRule for AcceptAnyCertificate {
    fn accept(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: UnixTime,
    ) -> Result<(), Error> {
        *self.presented.lock().unwrap_or_else(PoisonError::into_inner) = Some(end_entity.clone().into_owned());
        Ok(())
    }
}

/// A connection with one deadline for all reads and writes, so that a slow server cannot delay the
/// check.
struct DeadlineStream {
    stream: TcpStream,
    until: Instant,
}

impl DeadlineStream {
    fn remaining_time(&self) -> io::Result<Duration> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(as_timeout(io::ErrorKind::WouldBlock.into())) } else { Ok(left) }
    }
}

/// Converts `WouldBlock`, which a socket reports after its timeout, to an error about the timeout.
fn as_timeout(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock => io::Error::new(io::ErrorKind::TimedOut, "the TLS handshake timed out"),
        _ => error,
    }
}

impl Read for DeadlineStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(Some(self.remaining_time()?))?;
        self.stream.read(buffer).map_err(as_timeout)
    }
}

impl Write for DeadlineStream {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(Some(self.remaining_time()?))?;
        self.stream.write(buffer).map_err(as_timeout)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_rounded_down() {
        let at = |until, now| days_left(until, Wall(now));
        assert_eq!(at(86_400 * 30, 0), 30.0);
        assert_eq!(at(86_400 * 30, 1), 29.99);
        assert_eq!(at(0, 86_400_000), -1.0);
        assert_eq!(at(0, 1), -0.01);
        assert_eq!(at(i64::MAX, 0), 21_474_836.47);
    }
}
