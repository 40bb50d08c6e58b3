//! The SSH key pair of the managers of a cluster, made once by `init`: ed25519, without a
//! passphrase, in OpenSSH's format. Every manager has the same key pair in a file of mode 0600;
//! only managers receive it.
//!
//! ssh offers this key after all keys of the operator's configuration, so existing logins continue
//! to work.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ed25519_dalek::SigningKey;
use remoor_host::disk::{DiskError, atomic_write};
use remoor_model::ClusterId;
use std::fmt;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

const BEGIN: &str = "-----BEGIN OPENSSH PRIVATE KEY-----";
const END: &str = "-----END OPENSSH PRIVATE KEY-----";
/// The first bytes of a decoded private key; the file PROTOCOL.key of OpenSSH describes the format.
const MAGIC: &[u8] = b"openssh-key-v1\0";
const KIND: &[u8] = b"ssh-ed25519";
/// Block size of the cipher `none`, to which the private part is padded.
const BLOCK: usize = 8;
const COLUMNS: usize = 70;
/// Maximum size of the key file in bytes; far larger than any valid file.
const SIZE_MAX: u64 = 16 << 10;
/// The files that ssh tries by default below `~/.ssh` if no file is configured, in the order of
/// ssh.
const DEFAULT_KEY_FILES: [&str; 5] = ["id_rsa", "id_ecdsa", "id_ecdsa_sk", "id_ed25519", "id_ed25519_sk"];

/// The reason why there is no key. Never contains a part of the key.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    #[error("the cluster's SSH key could not be generated: {0}")]
    Random(getrandom::Error),
    #[error("the cluster's SSH key could not be written")]
    Store(#[from] DiskError),
    #[error("the cluster's SSH key {} could not be read", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    /// The file has another format, or the private and public halves do not match.
    #[error("this is not the SSH key of a cluster: {0}")]
    Malformed(&'static str),
}

/// The private and the public key of the cluster. `Debug` shows only the public key.
#[derive(Clone, PartialEq, Eq)]
pub struct ClusterKey {
    private: String,
    /// The public key in Base64, as in a line of authorized_keys.
    public: String,
    comment: String,
}

impl ClusterKey {
    /// Creates a key pair named after its cluster.
    pub fn create(cluster: &ClusterId) -> Result<Self, KeyError> {
        let mut seed = [0; 32];
        getrandom::fill(&mut seed).map_err(KeyError::Random)?;
        let mut check = [0; 4];
        getrandom::fill(&mut check).map_err(KeyError::Random)?;
        Ok(Self::from_signing_key(&SigningKey::from_bytes(&seed), check, &format!("remoor-{cluster}")))
    }

    fn from_signing_key(key: &SigningKey, check: [u8; 4], comment: &str) -> Self {
        let public = key.verifying_key().to_bytes();
        let blob = [encode_string(KIND), encode_string(&public)].concat();
        let mut inner = [&check[..], &check].concat();
        inner.extend([&blob[..], &encode_string(&key.to_keypair_bytes()), &encode_string(comment.as_bytes())].concat());
        inner.extend((1..).take(inner.len().next_multiple_of(BLOCK) - inner.len()));
        let mut bytes = MAGIC.to_vec();
        bytes.extend(
            [
                encode_string(b"none"),
                encode_string(b"none"),
                encode_string(b""),
                vec![0, 0, 0, 1],
                encode_string(&blob),
                encode_string(&inner),
            ]
            .concat(),
        );
        let encoded = STANDARD.encode(bytes);
        let lines = encoded.as_bytes().chunks(COLUMNS).map(String::from_utf8_lossy);
        let private = format!("{BEGIN}\n{}\n{END}\n", lines.collect::<Vec<_>>().join("\n"));
        Self { private, public: STANDARD.encode(blob), comment: comment.to_owned() }
    }

    /// Parses the text of [`private`](Self::private). Fails if the halves do not match.
    pub fn parse(private: &str) -> Result<Self, KeyError> {
        let bad = KeyError::Malformed;
        let body = private
            .trim()
            .strip_prefix(BEGIN)
            .and_then(|t| t.strip_suffix(END))
            .ok_or(bad("wrong begin or end line"))?;
        let body: String = body.split_whitespace().collect();
        let bytes = STANDARD.decode(body).map_err(|_| bad("invalid base64"))?;
        let mut rest = bytes.strip_prefix(MAGIC).ok_or(bad("wrong magic bytes"))?;
        for wanted in [&b"none"[..], b"none", b""] {
            if read_string(&mut rest)? != wanted {
                return Err(bad("it has a passphrase"));
            }
        }
        rest = rest.strip_prefix(&[0, 0, 0, 1]).ok_or(bad("not exactly one key"))?;
        let _public = read_string(&mut rest)?;
        let inner = read_string(&mut rest)?;
        let (check, mut inner) = inner.split_at_checked(8).ok_or(bad("it ends early"))?;
        if read_string(&mut inner)? != KIND {
            return Err(bad("it is not ed25519"));
        }
        let _public = read_string(&mut inner)?;
        let pair: &[u8; 64] = read_string(&mut inner)?.try_into().map_err(|_| bad("wrong key length"))?;
        let key =
            SigningKey::from_keypair_bytes(pair).map_err(|_| bad("the public and private halves do not match"))?;
        let comment = std::str::from_utf8(read_string(&mut inner)?).map_err(|_| bad("invalid comment"))?;
        if comment.is_empty() || !comment.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') {
            return Err(bad("invalid comment"));
        }
        let again = Self::from_signing_key(&key, [check[0], check[1], check[2], check[3]], comment);
        // Only the canonical form is accepted, so that unknown content is not passed on.
        if again.private.trim() == private.trim() { Ok(again) } else { Err(bad("not the canonical form")) }
    }

    /// Writes the private key with mode 0600. After a crash the file has either the old or the new
    /// content.
    pub fn save(&self, path: &Path) -> Result<(), KeyError> {
        Ok(atomic_write(path, self.private.as_bytes(), 0o600)?)
    }

    /// Reads the key. None: the file does not exist. The permissions of the file are not checked
    /// here, because ssh refuses a file that others may read.
    pub fn load(path: &Path) -> Result<Option<Self>, KeyError> {
        let failed = |source| KeyError::Read { path: path.to_owned(), source };
        let file = match std::fs::File::open(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            file => file.map_err(failed)?,
        };
        let mut private = String::new();
        file.take(SIZE_MAX).read_to_string(&mut private).map_err(failed)?;
        Self::parse(&private).map(Some)
    }

    /// The private key, as in the key file. Send it only to another manager, over mutually
    /// authenticated TLS.
    pub fn private(&self) -> &str {
        &self.private
    }

    /// The line for `authorized_keys` of a node. The option `restrict` forbids a terminal and
    /// forwarding, because a session of the executor needs neither.
    pub fn line(&self) -> String {
        format!("restrict {} {}", self.public_key(), self.comment)
    }

    fn public_key(&self) -> String {
        format!("ssh-ed25519 {}", self.public)
    }
}

impl fmt::Debug for ClusterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClusterKey({})", self.public_key())
    }
}

/// The keys that ssh offers to a node, in this order, after all keys of the operator's
/// configuration. If a file is configured, ssh does not try the default keys of its user. The
/// cluster key is such a file, so the default keys are listed before it. With an `identity` the
/// default keys are not listed, because ssh would not try them without the cluster key either.
pub fn last_offered_keys(cluster_key: PathBuf, identity_given: bool) -> Vec<PathBuf> {
    let mut keys = if identity_given { Vec::new() } else { default_keys(std::env::home_dir().as_deref()) };
    keys.push(cluster_key);
    keys
}

/// Returns only existing files, because ssh complains about a configured file that does not exist.
fn default_keys(home: Option<&Path>) -> Vec<PathBuf> {
    let Some(dir) = home.map(|home| home.join(".ssh")) else { return Vec::new() };
    let there = DEFAULT_KEY_FILES.iter().map(|name| dir.join(name)).filter(|path| path.is_file());
    there.filter(|path| super::target::check_path(path).is_ok()).collect()
}

/// Encodes a string of RFC 4251.
fn encode_string(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u32).to_be_bytes()[..], bytes].concat()
}

fn read_string<'a>(rest: &mut &'a [u8]) -> Result<&'a [u8], KeyError> {
    let early = || KeyError::Malformed("it ends early");
    let (length, after) = rest.split_first_chunk::<4>().ok_or_else(early)?;
    let (text, after) = after.split_at_checked(u32::from_be_bytes(*length) as usize).ok_or_else(early)?;
    *rest = after;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use std::process::Command;

    #[test]
    fn ssh_reads_it_and_derives_the_same_public_half() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ssh.key");
        let key = ClusterKey::create(&"c0ffee".into()).unwrap();
        key.save(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let derived = match Command::new("ssh-keygen").arg("-yf").arg(&path).output() {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                eprintln!("SKIPPED: there is no ssh-keygen to read the cluster's key (Debian: openssh-client)");
                return;
            }
            derived => derived.unwrap(),
        };
        let public = String::from_utf8(derived.stdout).unwrap();
        assert_eq!(format!("restrict {}", public.trim()), key.line(), "{}", String::from_utf8_lossy(&derived.stderr));
        assert!(key.line().ends_with(" remoor-c0ffee"), "{}", key.line());
    }

    #[test]
    fn only_the_canonical_private_key_is_parsed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ssh.key");
        assert_eq!(ClusterKey::load(&path).unwrap(), None);
        let key = ClusterKey::create(&"c1".into()).unwrap();
        let other = ClusterKey::create(&"c1".into()).unwrap();
        assert_ne!(key.line(), other.line());
        key.save(&path).unwrap();
        assert_eq!(ClusterKey::load(&path).unwrap(), Some(key.clone()));
        assert_eq!(ClusterKey::parse(key.private()).unwrap(), key);
        let private = key.private();
        let shorter = private.replacen(END, "", 1);
        let body = |edit: &dyn Fn(&mut Vec<u8>)| {
            let lines: String = private.lines().filter(|l| !l.starts_with('-')).collect();
            let mut bytes = STANDARD.decode(lines).unwrap();
            edit(&mut bytes);
            format!("{BEGIN}\n{}\n{END}\n", STANDARD.encode(bytes))
        };
        let halves = body(&|bytes| {
            let at = bytes.len() - 40;
            bytes[at] ^= 1;
        });
        let longer = body(&|bytes| bytes.push(0));
        let cut = body(&|bytes| bytes.truncate(60));
        for bad in ["", &shorter, &halves, &longer, &cut, "-----BEGIN RSA PRIVATE KEY-----\nAAAA\n"] {
            let error = ClusterKey::parse(bad).unwrap_err();
            assert!(matches!(error, KeyError::Malformed(_)), "{error}");
        }
        std::fs::write(&path, "x").unwrap();
        assert!(ClusterKey::load(&path).is_err());
        assert!(!format!("{key:?}").contains("PRIVATE"));
    }

    #[test]
    fn keys_of_the_user_are_offered_before_the_cluster_key() {
        let home = tempfile::tempdir().unwrap();
        std::fs::create_dir(home.path().join(".ssh")).unwrap();
        for name in ["id_ed25519", "id_rsa", "config", "id_rsa.pub"] {
            std::fs::write(home.path().join(".ssh").join(name), "").unwrap();
        }
        let keys = default_keys(Some(home.path()));
        assert_eq!(keys, ["id_rsa", "id_ed25519"].map(|name| home.path().join(".ssh").join(name)));
        assert_eq!(default_keys(None), Vec::<PathBuf>::new());
        let own = PathBuf::from("/var/lib/remoor/ssh.key");
        assert_eq!(last_offered_keys(own.clone(), true), std::slice::from_ref(&own));
        assert_eq!(last_offered_keys(own.clone(), false).last(), Some(&own));
    }
}
