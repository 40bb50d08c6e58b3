//! One value on disk: a version byte, eight bytes of SHA-256 over version and content, MessagePack
//! with field names.
//!
//! The version byte is necessary because the serialised form of openraft's types may change between
//! versions of openraft. A later program recognises an older form by it.

use super::error::RaftError;
use remoor_model::Sha256;
use serde::{Serialize, de::DeserializeOwned};
use std::io;
use std::path::Path;

/// The version byte. It must be incremented when the form of any stored value changes, also of a
/// value of openraft.
const FORMAT: u8 = 1;
/// The hint in the error for a format that is too new. [`record_error`] recognises the error by it.
const INSTALL: &str = "install the newer program";
const SUM: usize = 8;
const HEADER: usize = 1 + SUM;

/// Encodes `value`. Fails only if the value cannot be serialised.
pub fn encode<T: Serialize + ?Sized>(value: &T) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; HEADER];
    bytes[0] = FORMAT;
    rmp_serde::encode::write_named(&mut bytes, value).map_err(io::Error::other)?;
    let sum = sum(&bytes);
    bytes[1..HEADER].copy_from_slice(&sum);
    Ok(bytes)
}

/// Decodes a record of [`encode`]. The error is the reason as text.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    if bytes.len() < HEADER {
        return Err(format!("a record of {} bytes", bytes.len()));
    }
    if bytes[0] != FORMAT {
        let known = format!("this program knows {FORMAT}: {INSTALL}");
        return Err(format!("a record of format {}, {known}", bytes[0]));
    }
    if bytes[1..HEADER] != sum(bytes) {
        return Err("a record with a wrong checksum".to_owned());
    }
    rmp_serde::from_slice(&bytes[HEADER..]).map_err(|e| format!("an unreadable record: {e}"))
}

/// The error for a file with a record that [`decode`] rejects.
pub fn record_error(path: &Path, why: String) -> RaftError {
    let path = path.to_owned();
    if why.contains(INSTALL) { RaftError::TooNew { path, why } } else { RaftError::Corrupt { path, why } }
}

/// The checksum over version and content, without the bytes of the checksum itself.
fn sum(bytes: &[u8]) -> [u8; SUM] {
    let mut covered = Sha256::digest(&bytes[HEADER..]).0.to_vec();
    covered.push(bytes[0]);
    let mut out = [0; SUM];
    out.copy_from_slice(&Sha256::digest(&covered).0[..SUM]);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_changed_byte_is_noticed() {
        let bytes = encode(&("leader", 7u64)).unwrap();
        assert_eq!(decode::<(String, u64)>(&bytes), Ok(("leader".to_owned(), 7)));
        for at in 0..bytes.len() {
            let mut bad = bytes.clone();
            bad[at] ^= 1;
            assert!(decode::<(String, u64)>(&bad).is_err(), "byte {at}");
        }
        assert!(decode::<(String, u64)>(&bytes[..4]).is_err());
        let newer = [&[FORMAT + 1], &bytes[1..]].concat();
        let error = decode::<(String, u64)>(&newer).unwrap_err();
        assert!(error.contains("install the newer program"), "{error}");
    }
}
