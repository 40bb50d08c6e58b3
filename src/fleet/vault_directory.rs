//! The vault passwords of a manager: the files of one directory on the manager, which is no part of
//! a fleet. The name of a file is the vault id.

use remoor_vault::{PasswordSource, SOPS_PROGRAM, Vault};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Maximum number of files that are looked at.
const FILES_MAX: usize = 64;
/// Minimum time between two attempts to read a directory of which a password could not be read. A
/// program may have failed because a service did not answer.
const RETRY: Duration = Duration::from_secs(60);

/// A state of the directory: the name, change time, size and mode of each file.
type DirectoryState = Vec<(String, i64, i64, u64, u32)>;

/// Reads the passwords of a directory, and reads them again after a change of the directory.
#[derive(Debug, Default)]
pub struct VaultDirectory {
    path: PathBuf,
    read: Mutex<Option<ReadDirectory>>,
}

/// The result of reading the directory.
#[derive(Debug)]
struct ReadDirectory {
    state: DirectoryState,
    vault: Arc<Vault>,
    /// The ids of the passwords.
    ids: Vec<String>,
    /// The end of the attempt in which a password could not be read. None: all were read.
    failed_at: Option<Instant>,
}

impl VaultDirectory {
    pub fn new(path: PathBuf) -> Self {
        Self { path, read: Mutex::default() }
    }

    /// The passwords, and whether they differ from those of the last call. A missing directory
    /// contains none.
    pub fn vault(&self) -> (Arc<Vault>, bool) {
        self.vault_at(Instant::now())
    }

    fn vault_at(&self, now: Instant) -> (Arc<Vault>, bool) {
        let state = self.state();
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        let known = read.as_mut().filter(|known| known.state == state);
        let is_due = |at: Instant| now.saturating_duration_since(at) >= RETRY;
        if let Some(known) = &known
            && !known.failed_at.is_some_and(is_due)
        {
            return (known.vault.clone(), false);
        }
        let begin = Instant::now();
        let (vault, ids, failed) = self.read_all(&state);
        // A program may have taken as long as the time between two attempts.
        let failed_at = failed.then(|| now + begin.elapsed());
        match known {
            // Nothing that was made with the known passwords changes.
            Some(known) if failed && known.ids == ids => {
                known.failed_at = failed_at;
                (known.vault.clone(), false)
            }
            _ => {
                let vault = Arc::new(vault);
                *read = Some(ReadDirectory { state, vault: vault.clone(), ids, failed_at });
                (vault, true)
            }
        }
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

    /// The passwords, their ids, and whether one of them could not be read.
    fn read_all(&self, state: &DirectoryState) -> (Vault, Vec<String>, bool) {
        let dir = self.path.display();
        let mut next = format!("write the password to {dir}/ID (mode 0600) on each manager; ID is the vault id");
        let (mut passwords, mut ids, mut failed) = (Vec::new(), Vec::new(), false);
        for (name, _, _, _, mode) in state {
            let path = self.path.join(name);
            if mode & 0o077 != 0 {
                next = format!("{} is readable by other users: chmod 600 {}", path.display(), path.display());
                continue;
            }
            match (PasswordSource { id: name.clone(), path }).read() {
                Ok(password) => {
                    passwords.push(password);
                    ids.push(name.clone());
                }
                Err(error) => {
                    next = format!("{error}; the manager tries again after {} s", RETRY.as_secs());
                    failed = true;
                }
            }
        }
        (Vault::new(passwords, &next).with_sops(SOPS_PROGRAM), ids, failed)
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

    #[test]
    fn a_program_that_failed_runs_again_after_a_minute() {
        let dir = tempfile::tempdir().unwrap();
        let (program, service) = (dir.path().join("vault/prod"), dir.path().join("service"));
        fs::create_dir(dir.path().join("vault")).unwrap();
        let text = "#!/bin/sh\necho run >>SERVICE.runs\ncat SERVICE\n";
        fs::write(&program, text.replace("SERVICE", &service.display().to_string())).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o700)).unwrap();
        let vaults = VaultDirectory::new(dir.path().join("vault"));
        let runs = || fs::read_to_string(service.with_extension("runs")).unwrap_or_default().lines().count();
        let start = Instant::now();
        let at = |seconds| vaults.vault_at(start + Duration::from_secs(seconds));
        let prod = include_str!("../../crates/vault/fixtures/prod.txt");
        let (vault, changed) = at(0);
        let error = vault.open(prod).unwrap_err();
        assert!(changed && vault.next_step(&error).unwrap().contains("tries again after 60 s"), "{error}");
        fs::write(&service, "other\n").unwrap();
        assert!(at(59).0.is_empty() && runs() == 1);
        let (vault, changed) = at(600);
        assert_eq!((vault.open_text(prod).unwrap().as_str(), changed, runs()), ("prodsecret", true, 2));
        // A password that was read is kept until the directory changes.
        fs::remove_file(&service).unwrap();
        assert!(!at(1200).1 && runs() == 2);
    }

    #[test]
    fn a_second_failure_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("prod");
        fs::write(&program, "#!/bin/sh\nexit 1\n").unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o700)).unwrap();
        let vaults = VaultDirectory::new(dir.path().to_owned());
        let start = Instant::now();
        assert!(vaults.vault_at(start).1 && !vaults.vault_at(start + 10 * RETRY).1);
    }
}
