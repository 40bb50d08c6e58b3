//! Stores the content hashes of files that have not changed since they were read.

use remoor_model::Sha256;
use std::collections::HashMap;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Minimum age of a change for a hash to be cached. Two writes within one tick of the kernel's
/// clock have the same times, so a younger change could go unnoticed.
const SETTLE: Duration = Duration::from_secs(1);

/// Identifies a file and its last change. A write that resets the modification time still updates
/// the change time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Stamp {
    dev: u64,
    ino: u64,
    /// The size of the file in bytes.
    pub size: u64,
    mtime: (i64, i64),
    ctime: (i64, i64),
}

impl Stamp {
    pub(super) fn from_metadata(meta: &Metadata) -> Self {
        Self {
            dev: meta.dev(),
            ino: meta.ino(),
            size: meta.size(),
            mtime: (meta.mtime(), meta.mtime_nsec()),
            ctime: (meta.ctime(), meta.ctime_nsec()),
        }
    }

    fn changed_at(&self) -> SystemTime {
        UNIX_EPOCH + Duration::new(self.ctime.0.max(0).cast_unsigned(), u32::try_from(self.ctime.1).unwrap_or(0))
    }
}

/// The method by which the content of a file is hashed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(super) struct HashMethod {
    /// Whether the content is secret and therefore hashed with the key (HMAC).
    pub secret: bool,
    /// Id of the set of patterns; lines that match one of the patterns are ignored. 0: no line is
    /// ignored.
    pub normalize: u64,
}

/// Hashes by (device, inode, size, modification and change time). `Cache::default()` is empty.
#[derive(Debug, Default)]
pub struct Cache {
    key: [u8; 32],
    hashes: HashMap<(Stamp, HashMethod), (Sha256, u64)>,
    pass: u64,
    reads: u64,
    trust_at_once: bool,
}

impl Cache {
    /// Number of files that were read since this cache was made. Cache hits do not count.
    pub fn reads(&self) -> u64 {
        self.reads
    }

    /// Drops all hashes, so that the next digest reads every file.
    pub fn clear(&mut self) {
        self.hashes.clear();
    }

    /// Begins a digest of all files. A key other than that of the last digest invalidates the
    /// hashes of secret files.
    pub(super) fn begin(&mut self, key: &[u8; 32]) {
        if self.key != *key {
            self.key = *key;
            self.hashes.retain(|(_, way), _| !way.secret);
        }
        self.pass += 1;
    }

    /// Ends a digest of all files: drops the hashes of files that this digest did not find.
    pub(super) fn end(&mut self) {
        self.hashes.retain(|_, (_, pass)| *pass == self.pass);
    }

    pub(super) fn get(&mut self, stamp: &Stamp, way: HashMethod) -> Option<Sha256> {
        let (sha256, pass) = self.hashes.get_mut(&(*stamp, way))?;
        *pass = self.pass;
        Some(*sha256)
    }

    /// Stores a hash. `read_at` is the time before the first byte was read.
    pub(super) fn put(&mut self, stamp: Stamp, way: HashMethod, sha256: Sha256, read_at: SystemTime) {
        self.reads += 1;
        if self.trust_at_once || read_at.duration_since(stamp.changed_at()).is_ok_and(|age| age > SETTLE) {
            self.hashes.insert((stamp, way), (sha256, self.pass));
        }
    }

    /// A cache that also stores the hash of a file that has just changed, for tests that cannot
    /// wait.
    #[cfg(test)]
    pub(super) fn without_settle_time() -> Self {
        Self { trust_at_once: true, ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: HashMethod = HashMethod { secret: false, normalize: 0 };
    const SECRET: HashMethod = HashMethod { secret: true, normalize: 0 };

    #[test]
    fn a_recently_changed_file_is_read_again() {
        let stamp = Stamp { dev: 1, ino: 2, size: 3, mtime: (100, 0), ctime: (100, 0) };
        let at = |secs| UNIX_EPOCH + Duration::from_secs(secs);
        let mut cache = Cache::default();
        cache.put(stamp, PLAIN, Sha256::digest(b"x"), at(100));
        assert_eq!(cache.get(&stamp, PLAIN), None, "same second");
        cache.put(stamp, PLAIN, Sha256::digest(b"x"), at(99));
        assert_eq!(cache.get(&stamp, PLAIN), None, "clock set back");
        cache.put(stamp, PLAIN, Sha256::digest(b"x"), at(102));
        assert_eq!(cache.get(&stamp, PLAIN), Some(Sha256::digest(b"x")));
        assert_eq!(cache.get(&stamp, SECRET), None, "the HMAC is another hash");
        assert_eq!(
            cache.get(&stamp, HashMethod { normalize: 1, ..PLAIN }),
            None,
            "lines left out make another one too"
        );
    }

    #[test]
    fn another_key_forgets_secret_files_only() {
        let stamp = Stamp { dev: 1, ino: 2, size: 3, mtime: (100, 0), ctime: (100, 0) };
        let mut cache = Cache::without_settle_time();
        cache.begin(&[1; 32]);
        for way in [PLAIN, SECRET] {
            cache.put(stamp, way, Sha256::digest(b"x"), UNIX_EPOCH);
        }
        cache.begin(&[2; 32]);
        assert!(cache.get(&stamp, PLAIN).is_some());
        assert!(cache.get(&stamp, SECRET).is_none());
    }
}
