//! The passwords, and what they have opened.

use crate::envelope::{Envelope, VaultKeys, vault_id};
use crate::password_source::PasswordSource;
use crate::recent_map::{RecentLimits, RecentMap};
use crate::sealed_value::{SealedPart, part_of};
use crate::sops;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Maximum number of passwords. Each is tried for a text that no other password opens.
const PASSWORDS_MAX: usize = 16;
/// Limits for the texts that are remembered. A forgotten text is decrypted again, in some
/// milliseconds.
const TEXT_LIMITS: RecentLimits = RecentLimits { count: 50_000, size: 64 << 20 };
/// Limits for the encrypted files of variables that are remembered. A fleet has at most 10,000
/// files and 64 MiB; the newest generation must fit besides others that are still in use.
const FILE_LIMITS: RecentLimits = RecentLimits { count: 20_000, size: 128 << 20 };
/// Limits for the files that sops could not open.
const FAILURE_LIMITS: RecentLimits = RecentLimits { count: 1000, size: usize::MAX };
/// Time until sops is run again for a file that it could not open.
const SOPS_RETRY: Duration = Duration::from_secs(60);
/// The hint for a file that sops could not open.
const SOPS_NEXT: &str = "sops must be on the PATH of this user, and finds its keys by the environment, for example \
    SOPS_AGE_KEY_FILE; `sops --decrypt FILE` shows what is missing";
/// The id of a password without a label.
pub(crate) const DEFAULT_ID: &str = "default";

/// A password with its vault id. `Debug` does not show the password.
#[derive(Clone)]
pub struct VaultPassword {
    id: String,
    secret: Vec<u8>,
}

impl VaultPassword {
    pub fn new(id: &str, secret: Vec<u8>) -> Self {
        Self { id: id.to_owned(), secret }
    }

    /// The vault id.
    pub fn id(&self) -> &str {
        &self.id
    }

    #[cfg(test)]
    pub(crate) fn secret(&self) -> &[u8] {
        &self.secret
    }
}

impl fmt::Debug for VaultPassword {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VaultPassword({})", self.id)
    }
}

/// A password, or a program that prints one. The program runs when the first text is decrypted,
/// because a program must not run for a playbook without encrypted content.
#[derive(Clone)]
pub enum LazyPassword {
    Known(VaultPassword),
    Program(PasswordSource),
}

impl LazyPassword {
    fn read(&self) -> Result<VaultPassword, String> {
        match self {
            Self::Known(password) => Ok(password.clone()),
            Self::Program(source) => source.read().map_err(|error| error.to_string()),
        }
    }
}

impl fmt::Debug for LazyPassword {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Known(password) => password.fmt(f),
            Self::Program(source) => write!(f, "Program({})", source.id),
        }
    }
}

/// The passwords after all programs have run.
struct ReadPasswords {
    passwords: Vec<VaultPassword>,
    /// Why the first program that failed has printed no password.
    failure: Option<String>,
}

/// The reason why a text was not opened, as a predicate of the text. `Vault::next_step` has the
/// hint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VaultError {
    #[error("is encrypted by ansible-vault (vault id `{id}`), and there is no vault password")]
    NoPassword { id: String },
    #[error(
        "is encrypted by ansible-vault (vault id `{id}`), and none of the vault passwords opens it (tried: {tried})"
    )]
    WrongPassword { id: String, tried: String },
    #[error("{0}")]
    Malformed(String),
    #[error("is encrypted by ansible-vault, and its content is not UTF-8 text")]
    NotText,
    #[error("is encrypted by sops, and the program {} {why}", program.display())]
    Sops { program: PathBuf, why: String },
    #[error("is encrypted by sops, which only `remoor play` and managers run")]
    SopsNotRun,
    #[error("refers to the variable `{0}` of an encrypted file that was not opened")]
    UnknownVariable(String),
}

impl VaultError {
    /// Whether a password is missing or wrong, so that another password would help.
    pub fn is_about_password(&self) -> bool {
        matches!(self, Self::NoPassword { .. } | Self::WrongPassword { .. })
    }
}

/// A key for the hashes of what contains an opened text. For ansible-vault, only the holder of the
/// password can derive it, so the hashes reveal nothing to others. For sops, it is a hash of the
/// plaintext, because sops does not print its own key: a person who can guess all values of the
/// file can derive it.
pub type OpenedKey = [u8; 32];

/// An opened text.
#[derive(Clone)]
struct Opened {
    plain: Arc<Vec<u8>>,
    key: OpenedKey,
}

/// The variables of an opened file, and the key of its text.
type OpenedFile = Arc<(Map<String, Value>, Option<OpenedKey>)>;

/// The vault passwords, and a cache of what they have opened. A text is decrypted once.
#[derive(Default)]
pub struct Vault {
    passwords: Vec<LazyPassword>,
    read: OnceLock<ReadPasswords>,
    next: String,
    /// The program that opens files of sops. None: they are not opened.
    sops: Option<PathBuf>,
    /// The files with passwords, and the programs that print them.
    password_files: Vec<PathBuf>,
    /// The files that sops could not open. The lock is held during a run, so that a waiting thread
    /// does not run sops again for the same file. So different files are opened one after the
    /// other.
    sops_runs: Mutex<RecentMap<[u8; 32], (Instant, VaultError)>>,
    opened: Mutex<RecentMap<[u8; 32], Result<Opened, VaultError>>>,
    files: Mutex<RecentMap<String, OpenedFile>>,
}

impl fmt::Debug for Vault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Vault({:?})", self.passwords)
    }
}

impl Vault {
    /// `next` tells a user how to name a password; it is the hint of errors about passwords.
    /// Passwords beyond the first 16 are not used.
    pub fn new(passwords: Vec<VaultPassword>, next: &str) -> Self {
        Self::with_programs(passwords.into_iter().map(LazyPassword::Known).collect(), next)
    }

    /// Like `new`, for passwords that programs print. If a program fails, the reason replaces
    /// `next`.
    pub fn with_programs(mut passwords: Vec<LazyPassword>, next: &str) -> Self {
        passwords.truncate(PASSWORDS_MAX);
        Self { passwords, next: next.to_owned(), ..Self::default() }
    }

    /// The same vault, which also opens the files of sops with this program.
    pub fn with_sops(self, program: impl Into<PathBuf>) -> Self {
        Self { sops: Some(program.into()), ..self }
    }

    /// The same vault with the paths of its password files, which nobody else may read.
    pub fn with_password_files(self, password_files: Vec<PathBuf>) -> Self {
        Self { password_files, ..self }
    }

    pub fn password_files(&self) -> &[PathBuf] {
        &self.password_files
    }

    /// Whether there is no password.
    pub fn is_empty(&self) -> bool {
        self.passwords.is_empty()
    }

    /// The hint for an error. None: no other password would help.
    pub fn next_step(&self, error: &VaultError) -> Option<&str> {
        if matches!(error, VaultError::Sops { .. }) {
            return Some(SOPS_NEXT);
        }
        let failure = self.read.get().and_then(|read| read.failure.as_deref());
        Some(failure.unwrap_or(&self.next)).filter(|next| error.is_about_password() && !next.is_empty())
    }

    /// The passwords. The first call runs the programs.
    fn read_passwords(&self) -> &[VaultPassword] {
        let read = self.read.get_or_init(|| {
            let mut read = ReadPasswords { passwords: Vec::new(), failure: None };
            for password in &self.passwords {
                match password.read() {
                    Ok(password) => read.passwords.push(password),
                    Err(why) => drop(read.failure.get_or_insert_with(|| {
                        format!("{why}; correct the program, or name another password with --vault-password-file")
                    })),
                }
            }
            read
        });
        &read.passwords
    }

    /// Decrypts a text that begins with `$ANSIBLE_VAULT;`, or a file of sops. As in Ansible, the
    /// password with the id of the text is tried first, and then all others.
    pub fn open(&self, text: &str) -> Result<Arc<Vec<u8>>, VaultError> {
        self.open_with_key(text).map(|(plain, _)| plain)
    }

    /// Like `open`, and also returns the key of the text.
    pub fn open_with_key(&self, text: &str) -> Result<(Arc<Vec<u8>>, OpenedKey), VaultError> {
        let hash: [u8; 32] = Sha256::digest(text.as_bytes()).into();
        let known = lock(&self.opened).get(&hash).cloned();
        let opened = match known {
            Some(known) => known,
            None if sops::is_sops(text.as_bytes()) => self.decrypt_by_sops(hash, text),
            None => {
                let opened = self.decrypt(text);
                let size = opened.as_ref().map_or(0, |opened| opened.plain.len());
                lock(&self.opened).insert(hash, opened.clone(), size, TEXT_LIMITS);
                opened
            }
        };
        opened.map(|opened| (opened.plain, opened.key))
    }

    fn decrypt(&self, text: &str) -> Result<Opened, VaultError> {
        let envelope = Envelope::parse(text).map_err(VaultError::Malformed)?;
        let named = vault_id(text);
        let id = named.unwrap_or(DEFAULT_ID).to_owned();
        let passwords = self.read_passwords();
        if passwords.is_empty() {
            return Err(VaultError::NoPassword { id });
        }
        let (own, others): (Vec<_>, Vec<_>) = passwords.iter().partition(|password| Some(password.id()) == named);
        for password in own.into_iter().chain(others) {
            let keys = VaultKeys::derive(&password.secret, &envelope);
            if let Some(plain) = envelope.open(&keys) {
                return Ok(Opened { plain: Arc::new(plain), key: keys.mac_key() });
            }
        }
        let tried: Vec<&str> = passwords.iter().map(VaultPassword::id).collect();
        Err(VaultError::WrongPassword { id, tried: tried.join(", ") })
    }

    /// Runs sops, and remembers what it opens. A failure is remembered for a minute, because it
    /// ends when the user gives the key to sops.
    fn decrypt_by_sops(&self, hash: [u8; 32], text: &str) -> Result<Opened, VaultError> {
        let Some(program) = &self.sops else { return Err(VaultError::SopsNotRun) };
        let mut failures = lock(&self.sops_runs);
        if let Some((_, error)) = failures.get(&hash).filter(|(at, _)| at.elapsed() < SOPS_RETRY) {
            return Err(error.clone());
        }
        failures.remove(&hash);
        // Another thread may have opened the file while this one waited.
        if let Some(known) = lock(&self.opened).get(&hash) {
            return known.clone();
        }
        match sops::decrypt(program, text) {
            Ok(plain) => {
                let key = Sha256::new().chain_update(b"remoor sops file\0").chain_update(&plain).finalize().into();
                let opened = Opened { plain: Arc::new(plain), key };
                lock(&self.opened).insert(hash, Ok(opened.clone()), opened.plain.len(), TEXT_LIMITS);
                Ok(opened)
            }
            Err(why) => {
                let error = VaultError::Sops { program: program.clone(), why };
                failures.insert(hash, (Instant::now(), error.clone()), 1, FAILURE_LIMITS);
                Err(error)
            }
        }
    }

    /// Like `open`. Fails if the plaintext is not UTF-8.
    pub fn open_text(&self, text: &str) -> Result<String, VaultError> {
        let plain = self.open(text)?;
        String::from_utf8(plain.to_vec()).map_err(|_| VaultError::NotText)
    }

    /// Remembers the variables of an opened file. Returns the hash of the file, by which
    /// [`seal_variable`](crate::seal_variable) refers to it.
    pub fn keep_file(&self, text: &str, variables: Map<String, Value>) -> String {
        let file_hash = hex::encode(Sha256::digest(text.as_bytes()));
        let opened = self.open_with_key(text).ok().map(|(_, key)| key);
        lock(&self.files).insert(file_hash.clone(), Arc::new((variables, opened)), text.len(), FILE_LIMITS);
        file_hash
    }

    /// The key of an opened sealed value. None: the value is not sealed, or no password opens it.
    pub fn key_of(&self, value: &Value) -> Option<OpenedKey> {
        match part_of(value)? {
            SealedPart::Text(text) => self.open_with_key(text).ok().map(|(_, key)| key),
            SealedPart::Variable { file, .. } => lock(&self.files).get(file)?.1,
        }
    }

    /// Opens a sealed value. None: the value is not sealed. The result of a variable of an
    /// encrypted file may contain sealed values again.
    pub fn open_value(&self, value: &Value) -> Option<Result<Value, VaultError>> {
        Some(match part_of(value)? {
            SealedPart::Text(text) => self.open_text(text).map(Value::String),
            SealedPart::Variable { file, name } => {
                let found = lock(&self.files).get(file).and_then(|file| file.0.get(name).cloned());
                found.ok_or_else(|| VaultError::UnknownVariable(name.to_owned()))
            }
        })
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{is_encrypted, is_sealed, seal, seal_variable, sealed_part};
    use serde_json::json;

    /// Written by ansible-vault of ansible-core 2.19 with the password `hunter2 pass`.
    const DEFAULT: &str = include_str!("../fixtures/token.txt");
    /// The same with the password `other` and the vault id `prod`.
    const PROD: &str = include_str!("../fixtures/prod.txt");

    fn vault(passwords: &[(&str, &str)]) -> Vault {
        let passwords = passwords.iter().map(|(id, secret)| VaultPassword::new(id, secret.as_bytes().to_vec()));
        Vault::new(passwords.collect(), "use --vault-id")
    }

    #[test]
    fn texts_of_ansible_vault_are_opened_by_any_password() {
        let both = vault(&[("default", "hunter2 pass"), ("prod", "other")]);
        assert_eq!(both.open_text(DEFAULT).unwrap(), "s3cr{{ 1+1 }}et");
        assert_eq!(both.open_text(PROD).unwrap(), "prodsecret");
        let indented = PROD.replace('\n', "\n    ");
        assert_eq!(both.open_text(&indented).unwrap(), "prodsecret", "as in YAML");
        // The label only decides which password is tried first.
        assert_eq!(vault(&[("x", "no"), ("default", "other")]).open_text(PROD).unwrap(), "prodsecret");
        assert_eq!(both.open_value(&seal(PROD)).unwrap().unwrap(), json!("prodsecret"));
        assert!(both.open_value(&json!({"a": 1})).is_none());
        let (first, second) = (both.open_with_key(DEFAULT).unwrap().1, both.open_with_key(PROD).unwrap().1);
        assert_ne!(first, second);
    }

    #[test]
    fn errors_name_the_id_and_the_next_step() {
        let none = vault(&[]);
        let error = none.open(PROD).unwrap_err();
        assert_eq!(
            error.to_string(),
            "is encrypted by ansible-vault (vault id `prod`), and there is no vault password"
        );
        assert_eq!(none.next_step(&error), Some("use --vault-id"));
        let error = vault(&[("prod", "wrong"), ("dev", "wrong too")]).open(PROD).unwrap_err();
        assert!(error.to_string().contains("`prod`") && error.to_string().contains("tried: prod, dev"), "{error}");
    }

    #[test]
    fn damaged_texts_are_refused() {
        let all = vault(&[("default", "hunter2 pass")]);
        let changed = DEFAULT.replace("6237\n", "6238\n");
        assert!(all.open(&changed).unwrap_err().is_about_password());
        for (text, why) in [
            ("$ANSIBLE_VAULT;1.0;AES\n00", "version 1.0"),
            ("$ANSIBLE_VAULT;1.1;AES\n00", "cipher `AES`"),
            ("$ANSIBLE_VAULT;1.1;AES256\n0g", "not hexadecimal"),
            ("$ANSIBLE_VAULT;1.1;AES256\n00", "incomplete"),
            ("$ANSIBLE_VAULT;1.1;AES256\n", "incomplete"),
            ("text", "header"),
        ] {
            let error = all.open(text).unwrap_err();
            assert!(error.to_string().contains(why), "{text}: {error}");
            assert!(!error.is_about_password());
        }
        assert!(is_encrypted(DEFAULT.as_bytes()) && !is_encrypted(b"text"));
    }

    #[test]
    fn variables_of_encrypted_files_are_references() {
        let all = vault(&[]);
        let file = all.keep_file(DEFAULT, json!({"a": {"b": 1}}).as_object().unwrap().clone());
        let sealed = seal_variable(&file, "a");
        assert!(is_sealed(&sealed));
        assert_eq!(all.open_value(&sealed).unwrap().unwrap(), json!({"b": 1}));
        assert!(all.open_value(&seal_variable(&file, "c")).unwrap().is_err());
        assert_eq!(sealed_part(&json!({"x": [1, sealed]})), Some(&sealed));
        assert_eq!(sealed_part(&json!({"x": [1]})), None);
    }
}
