//! The vault passwords of `play` and `lint`: from the command line, the environment, and
//! `ansible.cfg` of the project, as in Ansible. A password is never an argument.

use super::project_dir::{ansible_defaults, checked_root_of};
use remoor_model::Fault;
use remoor_vault::{LazyPassword, PasswordError, PasswordSource, SOPS_PROGRAM, Vault};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How a user names a password; the hint of errors about encrypted content.
const NEXT: &str = "name the password with --vault-password-file FILE or --vault-id ID@FILE, in \
    ANSIBLE_VAULT_PASSWORD_FILE, or in ansible.cfg";

/// The same if `ansible.cfg` names a program, in a review of a directory.
const NOT_RUN: &str = "lint and apply do not run the password program that ansible.cfg names; name it with \
    --vault-password-file";

/// The programs that may run to print a password.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Programs {
    All,
    /// Not those of `ansible.cfg`, because a review must run nothing of a stranger's repository.
    OfUser,
}

/// The options that name vault passwords.
#[derive(Debug, Clone, Default)]
pub struct VaultOptions {
    /// Files of `--vault-password-file`.
    pub files: Vec<PathBuf>,
    /// Values of `--vault-id`: `ID@FILE`, or `FILE`.
    pub ids: Vec<String>,
}

impl VaultOptions {
    /// Reads all passwords for a playbook. `root` is the directory of its files; None: the project
    /// directory of the playbook. The result also has warnings.
    pub fn read_for_playbook(
        &self,
        playbook: &Path,
        root: Option<&Path>,
    ) -> Result<(Arc<Vault>, Vec<Fault>), Vec<Fault>> {
        let real = std::fs::canonicalize(playbook).unwrap_or_else(|_| playbook.to_owned());
        let (project, ignored) = match root {
            Some(root) => (root.to_owned(), None),
            None => checked_root_of(real.parent().unwrap_or(Path::new(""))),
        };
        let (vault, mut warnings) = self.read_passwords(&project, Programs::All)?;
        warnings.extend(ignored);
        Ok((Arc::new(vault.with_sops(SOPS_PROGRAM)), warnings))
    }

    /// Reads all passwords for a review of a directory. Its files of sops stay encrypted, because
    /// sops may contact a service for a key. `project` is the directory with `ansible.cfg`.
    pub fn read(&self, project: &Path) -> Result<(Arc<Vault>, Vec<Fault>), Vec<Fault>> {
        self.read_passwords(project, Programs::OfUser).map(|(vault, warnings)| (Arc::new(vault), warnings))
    }

    /// Reads all passwords. A source of `ansible.cfg` that can't be read is only a warning, because
    /// nothing may be encrypted. A program runs only when encrypted content is opened.
    fn read_passwords(&self, project: &Path, programs: Programs) -> Result<(Vault, Vec<Fault>), Vec<Fault>> {
        let (mut sources, mut faults) = (Vec::new(), Vec::new());
        let here = Path::new("");
        let mut add = |parsed: Result<PasswordSource, PasswordError>, dir: &Path, option: &str| match parsed {
            Ok(source) => sources.push((source.relative_to(dir), option.to_owned())),
            Err(error) => faults.push(Fault::error(option, 0, 0, message(&error))),
        };
        self.ids.iter().for_each(|id| add(PasswordSource::parse(id), here, "--vault-id"));
        for file in &self.files {
            add(Ok(PasswordSource::from_file(file)), here, "--vault-password-file");
        }
        for (name, list) in [("ANSIBLE_VAULT_PASSWORD_FILE", false), ("ANSIBLE_VAULT_IDENTITY_LIST", true)] {
            let value = std::env::var(name).unwrap_or_default();
            split_sources(&value, list).for_each(|word| add(PasswordSource::parse(word), here, name));
        }
        let config = project.join("ansible.cfg").display().to_string();
        let (defaults, ignored) = ansible_defaults(project);
        for (name, list) in [("vault_password_file", false), ("vault_identity_list", true)] {
            let value = defaults.get(name).map(String::as_str).unwrap_or_default();
            split_sources(value, list).for_each(|word| add(PasswordSource::parse(word), project, &config));
        }
        let files = sources.iter().map(|(source, _)| source.path.clone()).collect();
        let (mut passwords, mut warnings, mut next) = (Vec::new(), Vec::from_iter(ignored), NEXT);
        for (source, option) in sources {
            match source.read_lazily() {
                Ok(LazyPassword::Program(_)) if option == config && programs == Programs::OfUser => next = NOT_RUN,
                Ok(password) => passwords.push(password),
                Err(error) if option == config => warnings.push(Fault::warn(&option, 0, 0, message(&error))),
                Err(error) => faults.push(Fault::error(&option, 0, 0, message(&error))),
            }
        }
        let (grave, doubts): (Vec<_>, Vec<_>) = faults.into_iter().partition(|fault| fault.file != config);
        warnings.extend(doubts.into_iter().map(|fault| Fault { warning: true, ..fault }));
        if !grave.is_empty() {
            return Err(grave);
        }
        Ok((Vault::with_programs(passwords, next).with_password_files(files), warnings))
    }
}

/// The values of a setting: a list separated by commas, or one value.
fn split_sources(value: &str, list: bool) -> impl Iterator<Item = &str> {
    let whole = (!list).then_some(value);
    let parts = list.then(|| value.split(',')).into_iter().flatten();
    whole.into_iter().chain(parts).map(str::trim).filter(|word| !word.is_empty())
}

fn message(error: &PasswordError) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    const TOKEN: &str = include_str!("../../crates/vault/fixtures/token.txt");

    #[test]
    fn a_program_of_another_user_is_not_run_and_an_own_one_only_if_needed() {
        let dir = tempfile::tempdir().unwrap();
        let (shared, own) = (dir.path().join("shared"), dir.path().join("shared/own"));
        fs::create_dir_all(&own).unwrap();
        let program = shared.join("program");
        fs::write(&program, "#!/bin/sh\ntouch \"$0.ran\"\necho hunter2 pass\n").unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(shared.join("ansible.cfg"), "[defaults]\nvault_password_file = program\n").unwrap();
        let playbook = own.join("site.yml");
        fs::write(&playbook, "[]").unwrap();
        let read = |mode: u32| {
            fs::set_permissions(&shared, fs::Permissions::from_mode(mode)).unwrap();
            VaultOptions::default().read_for_playbook(&playbook, None).unwrap()
        };
        let ran = || shared.join("program.ran").exists();
        let (vault, warnings) = read(0o777);
        assert!(vault.open(TOKEN).is_err() && !ran());
        assert!(warnings.iter().any(|fault| fault.message.contains("can write to")), "{warnings:?}");
        // A review runs no program of the directory.
        fs::set_permissions(&shared, fs::Permissions::from_mode(0o755)).unwrap();
        let (vault, warnings) = VaultOptions::default().read(&shared).unwrap();
        let error = vault.open(TOKEN).unwrap_err();
        assert!(vault.next_step(&error).unwrap().contains("do not run the password program") && !ran(), "{error}");
        assert!(warnings.is_empty(), "{warnings:?}");
        let (vault, warnings) = read(0o755);
        assert!(warnings.is_empty() && !ran(), "{warnings:?}");
        assert!(vault.open(TOKEN).is_ok() && ran());
        // The file is also ignored if the user names its directory.
        fs::set_permissions(&shared, fs::Permissions::from_mode(0o777)).unwrap();
        let (vault, warnings) = VaultOptions::default().read_for_playbook(&playbook, Some(&shared)).unwrap();
        assert!(vault.is_empty() && warnings[0].hint.as_ref().unwrap().contains("--vault-password-file"));
    }
}
