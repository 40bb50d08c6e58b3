//! Encryption of backup files with age (age-encryption.org/v1), for public keys of the operator.
//! The managers do not have the private keys, so a thief can't read a stolen backup.

use super::BackupError;
use age::x25519::Recipient;
use serde::{Deserialize, Serialize};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

/// Maximum number of public keys for one backup.
const RECIPIENTS_MAX: usize = 16;
/// First bytes of every age file.
const AGE_MAGIC: &[u8] = b"age-encryption.org/v1\n";
/// Maximum size of a file with private keys in bytes.
const IDENTITY_FILE_MAX: u64 = 64 << 10;

/// The public keys whose owners can read a backup. Without a key, a backup is not encrypted.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<String>", into = "Vec<String>")]
pub struct Recipients(Vec<Recipient>);

impl std::fmt::Debug for Recipients {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.0.iter().map(Recipient::to_string)).finish()
    }
}

impl TryFrom<Vec<String>> for Recipients {
    type Error = String;

    fn try_from(keys: Vec<String>) -> Result<Self, String> {
        if keys.len() > RECIPIENTS_MAX {
            return Err(format!("{} public keys; the maximum is {RECIPIENTS_MAX}", keys.len()));
        }
        keys.iter().map(|key| parse_recipient(key)).collect::<Result<_, _>>().map(Self)
    }
}

impl From<Recipients> for Vec<String> {
    fn from(recipients: Recipients) -> Self {
        recipients.0.iter().map(Recipient::to_string).collect()
    }
}

/// Parses a public key of age. The error names the expected form.
pub fn parse_recipient(key: &str) -> Result<Recipient, String> {
    // The error does not repeat the text, because the operator may have given the private key.
    key.parse().map_err(|why| format!("not a public key of age (age1...): {why}"))
}

impl Recipients {
    /// Encrypts the bytes for all keys. Without a key, it returns the bytes unchanged.
    pub(super) fn encrypt(&self, plain: Vec<u8>) -> Result<Vec<u8>, BackupError> {
        if self.0.is_empty() {
            return Ok(plain);
        }
        let failed = |why: String| BackupError::Encode(format!("the encryption failed: {why}"));
        let keys = self.0.iter().map(|key| key as &dyn age::Recipient);
        let encryptor = age::Encryptor::with_recipients(keys).map_err(|e| failed(e.to_string()))?;
        let mut encrypted = Vec::with_capacity(plain.len() + plain.len() / 1024 + 4096);
        let mut writer = encryptor.wrap_output(&mut encrypted).map_err(|e| failed(e.to_string()))?;
        writer.write_all(&plain).and_then(|()| writer.finish()).map_err(|e| failed(e.to_string()))?;
        Ok(encrypted)
    }
}

/// Whether the bytes begin like an age file.
pub(super) fn is_encrypted(bytes: &[u8]) -> bool {
    bytes.starts_with(AGE_MAGIC)
}

/// Decrypts an age file with the private keys in the file `identity`. The result has at most
/// `bytes_max` bytes; a longer backup is refused.
pub(super) fn decrypt(encrypted: &[u8], identity: &Path, bytes_max: u64) -> Result<Vec<u8>, BackupError> {
    let wrong = |why: String| BackupError::Identity { path: PathBuf::from(identity), why };
    let failed = |source| BackupError::File { action: "reading", path: PathBuf::from(identity), source };
    let file = std::fs::File::open(identity).map_err(failed)?;
    let keys = age::IdentityFile::from_buffer(std::io::BufReader::new(file.take(IDENTITY_FILE_MAX)))
        .map_err(|e| wrong(e.to_string()))?;
    let keys = keys.into_identities().map_err(|e| wrong(e.to_string()))?;
    let decryptor = age::Decryptor::new(encrypted).map_err(|e| wrong(e.to_string()))?;
    let keys = keys.iter().map(|key| &**key as &dyn age::Identity);
    let mut plain = Vec::new();
    let reader = decryptor.decrypt(keys).map_err(|e| wrong(e.to_string()))?;
    reader.take(bytes_max + 1).read_to_end(&mut plain).map_err(|e| wrong(e.to_string()))?;
    if plain.len() as u64 > bytes_max {
        return Err(BackupError::TooLarge);
    }
    Ok(plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use age::secrecy::ExposeSecret;

    #[test]
    fn only_the_owner_of_a_private_key_reads_an_encrypted_backup() {
        let dir = tempfile::tempdir().expect("a folder");
        let (owner, second, stranger) =
            (age::x25519::Identity::generate(), age::x25519::Identity::generate(), age::x25519::Identity::generate());
        let keys = vec![owner.to_public().to_string(), second.to_public().to_string()];
        let recipients = Recipients::try_from(keys.clone()).expect("public keys");
        assert_eq!(Vec::from(recipients.clone()), keys);
        let plain = vec![7; 200_000];
        let encrypted = recipients.encrypt(plain.clone()).expect("encrypted");
        assert!(is_encrypted(&encrypted) && !is_encrypted(&plain));
        let read = |key: &age::x25519::Identity, bytes: &[u8], max| {
            let path = dir.path().join("key");
            std::fs::write(&path, key.to_string().expose_secret()).expect("written");
            decrypt(bytes, &path, max)
        };
        for key in [&owner, &second] {
            assert_eq!(read(key, &encrypted, 1 << 20).expect("decrypted"), plain);
        }
        let refused = read(&stranger, &encrypted, 1 << 20).expect_err("another key").to_string();
        assert!(refused.contains("key"), "{refused}");
        assert!(matches!(read(&owner, &encrypted, 1000), Err(BackupError::TooLarge)));
        let end = encrypted.len() - 1;
        assert!(read(&owner, &encrypted[..end], 1 << 20).is_err(), "a truncated file");
        let mut changed = encrypted;
        changed[end] ^= 1;
        assert!(read(&owner, &changed, 1 << 20).is_err(), "a changed file");
    }

    #[test]
    fn a_private_key_or_another_text_is_no_public_key() {
        let secret = age::x25519::Identity::generate().to_string().expose_secret().to_owned();
        for bad in ["", "age1", "ssh-ed25519 AAAA", &*"x".repeat(1 << 20)] {
            let error = Recipients::try_from(vec![bad.to_owned()]).expect_err("refused");
            assert!(error.contains("age1...") && error.len() < 300, "{error}");
        }
        let error = Recipients::try_from(vec![secret.clone()]).expect_err("refused");
        assert!(!error.contains(&secret), "a private key is not repeated: {error}");
        let key = age::x25519::Identity::generate().to_public().to_string();
        assert!(Recipients::try_from(vec![key; RECIPIENTS_MAX + 1]).is_err());
    }
}
