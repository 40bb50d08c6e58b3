//! One value on disk: a version byte, eight bytes of SHA-256 over version and content, MessagePack with field names.
//!
//! openraft's serialised form may change between its versions; the version byte is what lets a later program tell.

use super::error::RaftError;
use crate::model::Sha256;
use serde::{Serialize, de::DeserializeOwned};
use std::io;
use std::path::Path;

/// Raised whenever the form of anything stored below changes, openraft's included.
const FORMAT: u8 = 1;
/// What every format that is too new is answered with.
const INSTALL: &str = "install the newer program";
const SUM: usize = 8;
const HEADER: usize = 1 + SUM;

/// Encodes `value`; fails only if the value can't be serialised.
pub fn encode<T: Serialize + ?Sized>(value: &T) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; HEADER];
    bytes[0] = FORMAT;
    rmp_serde::encode::write_named(&mut bytes, value).map_err(io::Error::other)?;
    let sum = sum(&bytes);
    bytes[1..HEADER].copy_from_slice(&sum);
    Ok(bytes)
}

/// Decodes what `encode` made; the error says what is wrong with it.
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

/// The error for a file with a record that [`decode`] refuses.
pub fn refused(path: &Path, why: String) -> RaftError {
    let path = path.to_owned();
    if why.contains(INSTALL) { RaftError::TooNew { path, why } } else { RaftError::Corrupt { path, why } }
}

/// Over the version and the content, leaving out the place of the sum itself.
fn sum(bytes: &[u8]) -> [u8; SUM] {
    let mut covered = Sha256::of(&bytes[HEADER..]).0.to_vec();
    covered.push(bytes[0]);
    let mut out = [0; SUM];
    out.copy_from_slice(&Sha256::of(&covered).0[..SUM]);
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
