//! The list of peers at the start of a daemon, which without one finds nobody.

use crate::agent::PeerBook;
use crate::disk::{DiskError, Found, read_or_set_aside};
use crate::rpc::join::Peer;
use std::path::PathBuf;

/// The list as last heard; empty where there is none, or where it was damaged and put aside. Err where it can't be read at
/// this moment: with an empty one in its place the first answer of a manager would be written over it.
pub(super) fn known_peers(path: PathBuf) -> Result<PeerBook, DiskError> {
    if let Found::Damaged(kept) = read_or_set_aside::<(Vec<Peer>, Vec<Peer>)>(&path)? {
        let kept = kept.display();
        tracing::error!(%kept, "no peer is known now; next: mend it or copy peers.json from another node, and restart");
    }
    Ok(PeerBook::load(path))
}

#[cfg(test)]
mod tests {
    use super::known_peers;
    use crate::disk::DiskError;

    #[test]
    fn a_list_that_can_not_be_read_is_an_error_and_stays_and_a_damaged_one_is_put_aside() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("peers.json");
        assert!(known_peers(path.clone()).expect("none yet").peers.is_empty());
        // A link to itself is refused on opening (ELOOP), whoever asks; EACCES would not be for root.
        std::os::unix::fs::symlink(&path, &path).expect("linked");
        let Err(error) = known_peers(path.clone()) else { panic!("read what can't be read") };
        assert!(matches!(&error, DiskError::Io { path: named, .. } if *named == path), "{error}");
        assert!(path.is_symlink() && !dir.path().join("peers.json.damaged").exists());
        std::fs::remove_file(&path).expect("removed");
        std::fs::write(&path, "{ half").expect("written");
        assert!(known_peers(path.clone()).expect("put aside").peers.is_empty());
        let kept = std::fs::read_to_string(dir.path().join("peers.json.damaged")).expect("kept");
        assert_eq!((kept.as_str(), path.exists()), ("{ half", false));
    }
}
