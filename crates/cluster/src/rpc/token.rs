//! Secrets, and join tokens of the form `remoor-1-<CA digest>-<secret>`. If a machine's token has
//! no secret, an operator must accept the machine.
//!
//! A token admits a machine by its secret. By the digest of the CA's certificate, the machine knows
//! which cluster to trust. The cluster stores only the SHA-256 of a secret.

use super::identity::{self, IdentityError};
use remoor_model::{Sha256, count_noun};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Number of hex digits of the CA's digest in a token. They have 128 bits, so it is infeasible to
/// find a second certificate with the same digits.
const DIGEST_HEX: usize = 32;
/// Bytes of a generated secret.
const SECRET_BYTES: usize = 16;
/// Allowed number of hex digits of a secret.
const SECRET_HEX: std::ops::RangeInclusive<usize> = 32..=128;

/// Text that must not be logged: `Debug` hides it, and there is no `Display`.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// Generates a secret of 128 random bits, as hex.
    pub fn generate() -> Result<Self, IdentityError> {
        Ok(Self(hex::encode(random::<SECRET_BYTES>()?)))
    }

    /// The secret itself. Write it only to the wire and to files of mode 0600.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Whether there is no secret.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The hash that the cluster stores instead of the secret.
    pub fn hash(&self) -> Sha256 {
        Sha256::digest(self.0.as_bytes())
    }

    /// Whether this is the secret with the hash `stored`. Takes constant time.
    pub fn matches(&self, stored: &Sha256) -> bool {
        is_same_hash(&self.hash(), stored)
    }
}

/// Compares two hashes of secrets. Takes constant time.
pub fn is_same_hash(a: &Sha256, b: &Sha256) -> bool {
    let difference = a.0.iter().zip(&b.0).fold(0, |seen, (a, b)| seen | (a ^ b));
    std::hint::black_box(difference) == 0
}

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}

/// A join token, which an operator gives to a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    ca_digest: String,
    secret: Secret,
}

/// The reason why a text is not a token. Nothing was sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    #[error("not a remoor token: it must read remoor-1-<CA digest>-<secret>")]
    Prefix,
    #[error("token of version {0:?}, but this remoor knows version 1 only")]
    Version(String),
    #[error(
        "token with {} after its version instead of a CA digest and a secret: was it truncated while copying?",
        count_noun(*found, "part")
    )]
    Parts { found: usize },
    #[error("the token's {part} has {found} characters instead of {wanted}: was it truncated while copying?")]
    Length { part: &'static str, found: usize, wanted: String },
    #[error("the token's {part} holds {found:?}, which is not a hex digit")]
    NotHex { part: &'static str, found: char },
}

impl Token {
    /// The token with `secret` for the cluster of this CA.
    pub fn new(ca_pem: &str, secret: Secret) -> Result<Self, IdentityError> {
        Ok(Self { ca_digest: ca_digest(ca_pem)?, secret })
    }

    /// Reads a token as an operator typed it. Surrounding space and the case of letters do not
    /// matter.
    pub fn parse(text: &str) -> Result<Self, TokenError> {
        let text = text.trim().to_ascii_lowercase();
        let rest = text.strip_prefix("remoor-").ok_or(TokenError::Prefix)?;
        let (version, rest) = rest.split_once('-').ok_or(TokenError::Prefix)?;
        if version != "1" {
            return Err(TokenError::Version(version.chars().take(16).collect()));
        }
        let parts: Vec<&str> = rest.split('-').collect();
        let (digest, secret) = match parts[..] {
            [digest, secret] => (digest, secret),
            [digest] => (digest, ""),
            _ => return Err(TokenError::Parts { found: parts.len() }),
        };
        hex_digits("CA digest", digest, DIGEST_HEX..=DIGEST_HEX)?;
        if parts.len() > 1 {
            hex_digits("secret", secret, SECRET_HEX)?;
        }
        Ok(Self { ca_digest: digest.to_owned(), secret: Secret(secret.to_owned()) })
    }

    /// The digest that the server's CA must have.
    pub fn ca_digest(&self) -> &str {
        &self.ca_digest
    }

    /// The secret that proves that this machine may join. If it is empty, an operator must accept
    /// the machine.
    pub fn secret(&self) -> &Secret {
        &self.secret
    }

    /// The token without its secret. With this text, a machine can request to be accepted, and
    /// knows which cluster to trust.
    pub fn public(&self) -> String {
        format!("remoor-1-{}", self.ca_digest)
    }

    /// The token as text, secret included. Show it only to the operator.
    pub fn reveal(&self) -> String {
        match self.secret.is_empty() {
            true => self.public(),
            false => format!("{}-{}", self.public(), self.secret.reveal()),
        }
    }
}

/// The digest of a CA certificate, in the form of tokens.
pub fn ca_digest(ca_pem: &str) -> Result<String, IdentityError> {
    let certificates = identity::certificates("CA certificate", ca_pem)?;
    Ok(digest_of(&certificates[0]))
}

/// Whether one of the CAs has this digest. During a CA rotation there are two CAs.
pub fn has_ca_digest(ca_pem: &str, digest: &str) -> Result<bool, IdentityError> {
    Ok(identity::certificates("CA certificate", ca_pem)?.iter().any(|ca| digest_of(ca) == digest))
}

/// [`ca_digest`] of a certificate in DER.
pub(super) fn digest_of(der: &[u8]) -> String {
    let mut digest = Sha256::digest(der).to_string();
    digest.truncate(DIGEST_HEX);
    digest
}

/// Random bytes from the kernel.
pub(super) fn random<const N: usize>() -> Result<[u8; N], IdentityError> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|e| IdentityError::Random { reason: e.to_string() })?;
    Ok(bytes)
}

fn hex_digits(part: &'static str, text: &str, length: std::ops::RangeInclusive<usize>) -> Result<(), TokenError> {
    if let Some(found) = text.chars().find(|c| !c.is_ascii_hexdigit()) {
        return Err(TokenError::NotHex { part, found });
    }
    if !length.contains(&text.len()) {
        let wanted = match (length.start(), length.end()) {
            (least, most) if least == most => least.to_string(),
            (least, most) => format!("{least} to {most}"),
        };
        return Err(TokenError::Length { part, found: text.len(), wanted });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rpc::ca::ClusterCa;

    const DIGEST: &str = "0123456789abcdef0123456789abcdef";
    const SECRET: &str = "ffeeddccbbaa99887766554433221100";

    fn parse_error(text: &str) -> String {
        Token::parse(text).unwrap_err().to_string()
    }

    #[test]
    fn a_token_reads_back() {
        let ca = ClusterCa::create(&"c1".into()).unwrap();
        let token = Token::new(ca.cert_pem(), Secret::generate().unwrap()).unwrap();
        assert_eq!(Token::parse(&format!("  {}\n", token.reveal())).unwrap(), token);
        assert_eq!(Token::parse(&token.reveal().to_uppercase()).unwrap(), token);
        assert!(!format!("{token:?}").contains(token.secret().reveal()));
        let public = Token::parse(&token.public()).unwrap();
        assert!(public.secret().is_empty() && public.ca_digest() == token.ca_digest());
        assert_eq!(public.reveal(), token.public());
    }

    #[test]
    fn every_fault_is_named() {
        assert!(parse_error("").contains("not a remoor token"));
        assert!(parse_error("SWMTKN-1-aa-bb").contains("not a remoor token"));
        assert!(parse_error("remoor-1").contains("not a remoor token"));
        assert!(parse_error(&format!("remoor-2-{DIGEST}-{SECRET}")).contains("version \"2\""));
        assert!(parse_error("remoor-1-").contains("CA digest has 0 characters"));
        assert!(parse_error(&format!("remoor-1-{DIGEST}-")).contains("secret has 0 characters"));
        assert!(parse_error(&format!("remoor-1-{DIGEST}-{SECRET}-aa")).contains("3 parts "));
        assert!(parse_error(&format!("remoor-1-{}-{SECRET}", &DIGEST[1..])).contains("CA digest has 31 characters"));
        assert!(parse_error(&format!("remoor-1-{DIGEST}-{}", &SECRET[1..])).contains("31 characters instead of 32 to"));
        assert!(parse_error(&format!("remoor-1-{DIGEST}-{}x", &SECRET[1..])).contains("'x'"));
        assert!(parse_error(&format!("remoor-1-{DIGEST}-{}ü", &SECRET[1..])).contains("'ü'"));
    }

    #[test]
    fn only_the_right_secret_matches() {
        let secret = Secret::from(SECRET.to_owned());
        assert!(secret.matches(&secret.hash()));
        assert!(!Secret::from(SECRET.replace('f', "e")).matches(&secret.hash()));
        assert!(!Secret::default().matches(&secret.hash()));
    }
}
