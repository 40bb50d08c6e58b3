//! Checksums in hex by the name of the algorithm, as module options and results use them.

use crate::node::NodeAccess;
use sha2::Digest;
use std::io::Read;
use std::path::Path;

/// The checksum of a regular file, in hex. Fails on an unknown algorithm.
pub fn file_checksum(node: &NodeAccess, path: &Path, algorithm: &str) -> Result<String, String> {
    let mut reader = node.open(path)?;
    read(&mut reader, algorithm).map_err(|e| format!("{}: {e}", path.display()))
}

/// The checksum of bytes, in hex. Fails on an unknown algorithm.
pub fn bytes_checksum(bytes: &[u8], algorithm: &str) -> Result<String, String> {
    read(&mut { bytes }, algorithm)
}

fn read(from: &mut dyn Read, algorithm: &str) -> Result<String, String> {
    fn hash_all<D: Digest>(from: &mut dyn Read) -> Result<String, String> {
        let mut state = D::new();
        let mut buffer = vec![0; 256 << 10];
        loop {
            match from.read(&mut buffer) {
                Ok(0) => return Ok(hex::encode(state.finalize())),
                Ok(n) => state.update(&buffer[..n]),
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e.to_string()),
            }
        }
    }
    match algorithm {
        "md5" => hash_all::<md5::Md5>(from),
        "sha1" => hash_all::<sha1::Sha1>(from),
        "sha224" => hash_all::<sha2::Sha224>(from),
        "sha256" => hash_all::<sha2::Sha256>(from),
        "sha384" => hash_all::<sha2::Sha384>(from),
        "sha512" => hash_all::<sha2::Sha512>(from),
        other => Err(format!("the checksum algorithm `{other}` is not supported")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_of_empty_input() {
        for (algorithm, want) in [
            ("md5", "d41d8cd98f00b204e9800998ecf8427e"),
            ("sha1", "da39a3ee5e6b4b0d3255bfef95601890afd80709"),
            ("sha224", "d14a028c2a3a2bc9476102bb288234c415a2b01f828ea62ac5b3e42f"),
            ("sha256", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
        ] {
            assert_eq!(bytes_checksum(b"", algorithm).as_deref(), Ok(want));
        }
        assert!(bytes_checksum(b"", "sha3").is_err());
    }
}
