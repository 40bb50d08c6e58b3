//! Opens what `ansible-vault` has encrypted: the formats 1.1 and 1.2 with the cipher AES256. Files
//! of variables that `sops` has encrypted are opened with that program.
//!
//! ```text
//! PasswordSource -> VaultPassword -> Vault::open(ciphertext) -> plaintext
//! ```
//! The crate knows nothing of YAML, variables and templates, and it encrypts nothing. A sealed
//! value is the JSON form of an encrypted value, see [`seal`].
#![doc = include_str!("../README.md")]

mod envelope;
mod password_source;
mod program;
mod recent_map;
mod sealed_value;
mod sops;
mod vault;

pub use envelope::{is_encrypted, vault_id};
pub use password_source::{PasswordError, PasswordSource};
pub use sealed_value::{is_file_variable, is_sealed, seal, seal_variable, sealed_part};
pub use sops::SOPS_PROGRAM;
pub use vault::{LazyPassword, OpenedKey, Vault, VaultError, VaultPassword};

/// Whether a file of variables or tasks is encrypted, by ansible-vault or by sops.
pub fn is_encrypted_yaml(content: &[u8]) -> bool {
    is_encrypted(content) || sops::is_sops(content)
}
