//! The vault passwords of a manager: the files of one directory on the manager, which is no part of
//! a fleet. The name of a file is the vault id.

use remoor_vault::{PasswordSource, Vault};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

/// Maximum number of files that are looked at.
const FILES_MAX: usize = 64;

/// A state of the directory: the name, change time, size and mode of each file.
type DirectoryState = Vec<(String, i64, i64, u64, u32)>;

/// Reads the passwords of a directory, and reads them again after a change of the directory.
#[derive(Debug, Default)]
pub struct VaultDirectory {
    path: PathBuf,
    read: Mutex<Option<(DirectoryState, Arc<Vault>)>>,
}

impl VaultDirectory {
    pub fn new(path: PathBuf) -> Self {
        Self { path, read: Mutex::default() }
    }

    /// The passwords, and whether they differ from those of the last call. A missing directory
    /// contains none.
    pub fn vault(&self) -> (Arc<Vault>, bool) {
        let state = self.state();
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, vault)) = read.as_ref().filter(|(known, _)| *known == state) {
            return (vault.clone(), false);
        }
        let vault = Arc::new(self.read_all(&state));
        *read = Some((state, vault.clone()));
        (vault, true)
    }

    fn state(&self) -> DirectoryState {
        let entries = fs::read_dir(&self.path).into_iter().flatten().take(FILES_MAX).flatten();
        let mut state: DirectoryState = entries
            .filter_map(|entry| {
                let name = entry.file_name().into_string().ok().filter(|name| !name.starts_with('.'))?;
                let meta = fs::metadata(entry.path()).ok().filter(fs::Metadata::is_file)?;
                Some((name, meta.mtime(), meta.mtime_nsec(), meta.len(), meta.permissions().mode() & 0o777))
            })
            .collect();
        state.sort();
        state
    }

    fn read_all(&self, state: &DirectoryState) -> Vault {
        let dir = self.path.display();
        let mut next = format!("write the password to {dir}/ID (mode 0600) on each manager; ID is the vault id");
        let mut passwords = Vec::new();
        for (name, _, _, _, mode) in state {
            let path = self.path.join(name);
            if mode & 0o077 != 0 {
                next = format!("{} is readable by other users: chmod 600 {}", path.display(), path.display());
                continue;
            }
            match (PasswordSource { id: name.clone(), path }).read() {
                Ok(password) => passwords.push(password),
                Err(error) => next = error.to_string(),
            }
        }
        Vault::new(passwords, &next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_private_files_are_passwords() {
        let dir = tempfile::tempdir().unwrap();
        let vaults = VaultDirectory::new(dir.path().join("vault"));
        assert!(vaults.vault().0.is_empty() && !vaults.vault().1);
        fs::create_dir(dir.path().join("vault")).unwrap();
        let write = |name: &str, mode: u32| {
            let path = dir.path().join("vault").join(name);
            fs::write(&path, "secret\n").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        };
        write("open", 0o644);
        let (vault, changed) = vaults.vault();
        assert!(vault.is_empty() && changed);
        let error = vault.open("$ANSIBLE_VAULT;1.2;AES256;open\n3030\n").unwrap_err();
        assert!(!error.is_about_password(), "{error}");
        write("prod", 0o600);
        let (vault, changed) = vaults.vault();
        assert_eq!((format!("{vault:?}").as_str(), changed), ("Vault([VaultPassword(prod)])", true));
        assert!(!vaults.vault().1);
    }
}
