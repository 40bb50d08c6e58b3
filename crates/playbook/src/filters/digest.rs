//! Filters that compute hashes: checksums, password hashes for `/etc/shadow`, name-based UUIDs.

use super::{Args, Filter, FilterResult, failure, filter, filter_with_difference};
use crate::lang::python;
use md5::Md5;
use minijinja::{Error, State, Value};
use sha1::Sha1;
use sha2::{Digest, Sha224, Sha256, Sha384, Sha512};

pub const FILTERS: &[Filter] = &[
    filter_with_difference(
        "hash",
        &["hashtype"],
        |_, v, a| {
            let text = python::text(&v)?;
            let kind = a.text("hashtype")?.unwrap_or_else(|| "sha1".into());
            let known = hash(&kind, text.as_bytes());
            known.map(Value::from).ok_or_else(|| {
                failure(format!("hash: `{kind}` is not supported; use md5, sha1, sha224, sha256, sha384 or sha512"))
            })
        },
        "md5, sha1, sha224, sha256, sha384 and sha512 only",
    ),
    filter("checksum", &[], |_, v, _| Ok(hash("sha1", python::text(&v)?.as_bytes()).unwrap_or_default().into())),
    filter("sha1", &[], |_, v, _| Ok(hash("sha1", python::text(&v)?.as_bytes()).unwrap_or_default().into())),
    filter("md5", &[], |_, v, _| Ok(hash("md5", python::text(&v)?.as_bytes()).unwrap_or_default().into())),
    filter_with_difference(
        "password_hash",
        &["hashtype", "salt", "salt_size", "rounds", "ident"],
        password_hash,
        "sha512 and sha256 only; without a salt, the salt is computed from `inventory_hostname`, because a random salt would change the account in each run",
    ),
    filter("to_uuid", &["namespace"], to_uuid),
];

fn hash(kind: &str, bytes: &[u8]) -> Option<String> {
    Some(match kind {
        "md5" => hex::encode(Md5::digest(bytes)),
        "sha1" => hex::encode(Sha1::digest(bytes)),
        "sha224" => hex::encode(Sha224::digest(bytes)),
        "sha256" => hex::encode(Sha256::digest(bytes)),
        "sha384" => hex::encode(Sha384::digest(bytes)),
        "sha512" => hex::encode(Sha512::digest(bytes)),
        _ => return None,
    })
}

/// The default numbers of rounds for SHA-512 and SHA-256 in passlib, which Ansible uses. More than
/// a million rounds take seconds.
const ROUNDS: (u32, u32) = (656_000, 535_000);
const ROUNDS_MAX: i64 = 1_000_000;

/// Length of a computed salt. Each digit has six bits.
const SALT_LENGTH: usize = 16;

/// A salt that is the same in each run on a host, so that a second run changes nothing, and another
/// one on each host. The password is no part of it, because a salt can be read.
fn salt_of_host(state: &State) -> Result<String, Error> {
    let host = state.lookup("inventory_hostname").filter(|host| !host.is_undefined());
    let host = host.ok_or_else(|| failure("password_hash: a salt is required where no host is known"))?;
    let bytes = Sha256::digest(format!("salt of passwords: {}", python::text(&host)?).as_bytes());
    Ok(bytes.iter().take(SALT_LENGTH).map(|byte| char::from(DIGITS[usize::from(byte & 63)])).collect())
}

fn password_hash(state: &mut State, v: Value, a: Args) -> FilterResult {
    let password = python::text(&v)?;
    let kind = a.text("hashtype")?.unwrap_or_else(|| "sha512".into());
    let long = match kind.as_str() {
        "sha512" | "sha512_crypt" => true,
        "sha256" | "sha256_crypt" => false,
        other => {
            return Err(failure(format!("password_hash: `{other}` is not supported; use sha512 or sha256")));
        }
    };
    if a.get("ident").is_some_and(|i| !i.is_none()) || a.get("salt_size").is_some_and(|s| !s.is_none()) {
        return Err(failure("password_hash: `ident` and `salt_size` are not supported"));
    }
    let salt = match a.text("salt")? {
        Some(salt) => salt,
        None => salt_of_host(state)?,
    };
    let rounds = match a.number("rounds")? {
        None => None,
        Some(n) if (1000..=ROUNDS_MAX).contains(&n) => u32::try_from(n).ok(),
        Some(_) => return Err(failure(format!("password_hash: `rounds` must be 1000 to {ROUNDS_MAX}"))),
    };
    let hashed = crypt_password(long, &password, &salt, rounds);
    Ok(hashed.map_err(|why| failure(format!("password_hash: {why}")))?.into())
}

/// Hashes a password as crypt(3) does, with SHA-512 if `long`, otherwise with SHA-256. None: the
/// default number of rounds.
pub fn crypt_password(long: bool, password: &str, salt: &str, rounds: Option<u32>) -> Result<String, String> {
    if salt.is_empty() || salt.len() > 16 || !salt.bytes().all(|b| b.is_ascii_alphanumeric() || b"./".contains(&b)) {
        return Err("the salt must be 1 to 16 letters, digits, dots and slashes".to_owned());
    }
    let rounds = rounds.unwrap_or(if long { ROUNDS.0 } else { ROUNDS.1 });
    let params = sha_crypt::Params::new(rounds).map_err(|e| e.to_string())?;
    let (id, hashed) = if long {
        ("6", crypt64(&sha_crypt::sha512_crypt(password.as_bytes(), salt.as_bytes(), params), 21))
    } else {
        ("5", crypt64(&sha_crypt::sha256_crypt(password.as_bytes(), salt.as_bytes(), params), 10))
    };
    let shown = if rounds == 5000 { String::new() } else { format!("rounds={rounds}$") };
    Ok(format!("${id}${shown}{salt}${hashed}"))
}

/// The digits of crypt(3).
const DIGITS: &[u8; 64] = b"./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// Encodes a hash as crypt(3) does: the bytes in the order of crypt, six bits a digit, lowest bits
/// first.
fn crypt64(bytes: &[u8], step: usize) -> String {
    let mut out = String::new();
    let mut put = |word: u32, count: usize| {
        for i in 0..count {
            out.push(char::from(DIGITS[(word >> (6 * i) & 63) as usize]));
        }
    };
    let byte = |i: usize| u32::from(bytes.get(i).copied().unwrap_or_default());
    let (mut a, mut b, mut c) = (0, step, 2 * step);
    for _ in 0..bytes.len() / 3 {
        put(byte(a) << 16 | byte(b) << 8 | byte(c), 4);
        // SHA-512 rotates the three indices to the left, SHA-256 to the right.
        (a, b, c) = if bytes.len() == 64 { (b + 1, c + 1, a + 1) } else { (c + 1, a + 1, b + 1) };
    }
    if bytes.len() == 64 {
        put(byte(63), 2);
    } else {
        put(byte(31) << 8 | byte(30), 3);
    }
    out
}

fn to_uuid(_: &mut State, v: Value, a: Args) -> FilterResult {
    let name = python::text(&v)?;
    let space = a.text("namespace")?.unwrap_or_else(|| "361E6D51-FAEC-444A-9079-341386DA8E2E".into());
    let bytes = hex::decode(space.replace('-', "")).ok().filter(|b| b.len() == 16);
    let bytes = bytes.ok_or_else(|| failure(format!("to_uuid: `{space}` is not a UUID")))?;
    let mut hasher = Sha1::new();
    hasher.update(bytes);
    hasher.update(name.as_bytes());
    let mut out: Vec<u8> = hasher.finalize().to_vec();
    out.truncate(16);
    out[6] = out[6] & 0x0f | 0x50;
    out[8] = out[8] & 0x3f | 0x80;
    let text = hex::encode(out);
    Ok::<_, Error>(
        format!("{}-{}-{}-{}-{}", &text[..8], &text[8..12], &text[12..16], &text[16..20], &text[20..]).into(),
    )
}
