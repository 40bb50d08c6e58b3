//! The text format of ansible-vault and its cryptography.
//!
//! ```text
//! $ANSIBLE_VAULT;1.2;AES256;ID          the ID only in 1.2
//! hex( hex(salt) \n hex(HMAC of the ciphertext) \n hex(ciphertext) )     in lines of 80 digits
//! PBKDF2-HMAC-SHA256(password, salt, 10,000 rounds) = AES key | HMAC key | counter
//! plaintext = AES-256-CTR(ciphertext), with the padding of PKCS#7
//! ```
//! The format is documented by Ansible ("Encrypting content with Ansible Vault").

use ctr::cipher::{KeyIvInit, StreamCipher};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// The first bytes of every encrypted text.
const MAGIC: &str = "$ANSIBLE_VAULT;";
/// Rounds of PBKDF2 that the format prescribes.
const ROUNDS: u32 = 10_000;
/// Maximum size of an encrypted text in bytes. A file of the fleet directory is not larger.
const TEXT_MAX: usize = 64 << 20;
/// Maximum size of the salt in bytes. Ansible uses 32.
const SALT_MAX: usize = 1 << 10;
/// Size of a block of AES in bytes.
const BLOCK: usize = 16;

/// Whether a file or a value is encrypted.
pub fn is_encrypted(content: &[u8]) -> bool {
    content.starts_with(MAGIC.trim_end_matches(';').as_bytes())
}

/// The vault id in the header of an encrypted text. None: the header has none.
pub fn vault_id(text: &str) -> Option<&str> {
    let id = text.lines().next()?.trim().split(';').nth(3)?.trim();
    (!id.is_empty()).then_some(id)
}

/// An encrypted text, taken apart.
#[derive(Debug)]
pub struct Envelope {
    salt: Vec<u8>,
    mac: Vec<u8>,
    ciphertext: Vec<u8>,
}

/// The keys that a password and a salt give.
pub struct VaultKeys {
    cipher: [u8; 32],
    mac: [u8; 32],
    counter: [u8; BLOCK],
}

impl VaultKeys {
    /// Derives the keys; takes some milliseconds.
    pub fn derive(password: &[u8], envelope: &Envelope) -> Self {
        let mut all = [0; 80];
        pbkdf2::pbkdf2_hmac::<Sha256>(password, &envelope.salt, ROUNDS, &mut all);
        let (mut cipher, mut mac, mut counter) = ([0; 32], [0; 32], [0; BLOCK]);
        cipher.copy_from_slice(&all[..32]);
        mac.copy_from_slice(&all[32..64]);
        counter.copy_from_slice(&all[64..]);
        Self { cipher, mac, counter }
    }

    /// The key of the HMAC. Only the holder of the password knows the key, so other values can be
    /// hashed with it.
    pub fn mac_key(&self) -> [u8; 32] {
        self.mac
    }
}

impl Envelope {
    /// Parses an encrypted text. The error says what is wrong with its form.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.len() > TEXT_MAX {
            return Err(format!("is larger than {} MiB", TEXT_MAX >> 20));
        }
        let mut lines = text.trim().lines();
        let header = lines.next().unwrap_or_default().trim();
        if !header.starts_with(MAGIC) {
            return Err("does not begin with the header of ansible-vault".to_owned());
        }
        let fields: Vec<&str> = header.split(';').map(str::trim).collect();
        match (fields.get(1), fields.get(2)) {
            (Some(&("1.1" | "1.2")), Some(&"AES256")) => {}
            (Some(version @ &("1.1" | "1.2")), cipher) => {
                let cipher = cipher.copied().unwrap_or_default();
                return Err(format!("has the cipher `{cipher}`; version {version} has AES256"));
            }
            (version, _) => {
                let version = version.copied().unwrap_or_default();
                return Err(format!("has version {version} of ansible-vault; supported are 1.1 and 1.2"));
            }
        }
        let digits: String = lines.map(str::trim).collect();
        let body = hex::decode(&digits).map_err(|_| "has a body that is not hexadecimal".to_owned())?;
        let mut parts = body.splitn(3, |byte| *byte == b'\n').map(hex::decode);
        let mut part = || parts.next().and_then(Result::ok).ok_or_else(|| "has an incomplete body".to_owned());
        let (salt, mac, ciphertext) = (part()?, part()?, part()?);
        if salt.is_empty() || salt.len() > SALT_MAX || ciphertext.is_empty() || ciphertext.len() % BLOCK != 0 {
            return Err("has an incomplete body".to_owned());
        }
        Ok(Self { salt, mac, ciphertext })
    }

    /// The plaintext. None: the keys are from another password, or the text was changed.
    pub fn open(&self, keys: &VaultKeys) -> Option<Vec<u8>> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&keys.mac).ok()?;
        mac.update(&self.ciphertext);
        mac.verify_slice(&self.mac).ok()?;
        let mut plain = self.ciphertext.clone();
        ctr::Ctr128BE::<aes::Aes256>::new(&keys.cipher.into(), &keys.counter.into()).apply_keystream(&mut plain);
        let padding = usize::from(*plain.last()?);
        let whole = (1..=BLOCK).contains(&padding) && plain.ends_with(&vec![padding as u8; padding]);
        whole.then(|| plain.truncate(plain.len() - padding))?;
        Some(plain)
    }
}
