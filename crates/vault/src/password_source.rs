//! Where a vault password comes from: a file, or the output of an executable file.

use crate::envelope::is_encrypted;
use crate::program;
use crate::vault::{DEFAULT_ID, LazyPassword, VaultPassword};
use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Maximum size of a password in bytes.
const PASSWORD_MAX: u64 = 64 << 10;

/// The reason why a password could not be read.
#[derive(Debug, thiserror::Error)]
pub enum PasswordError {
    #[error("the vault password file {} can't be read", path.display())]
    File { path: PathBuf, source: std::io::Error },
    #[error("the vault password program {} {why}", path.display())]
    Program { path: PathBuf, why: String },
    #[error("the vault password of {} {why}", path.display())]
    Content { path: PathBuf, why: &'static str },
    #[error("`{0}`: a vault password is not asked for; name a file or a program")]
    Prompt(String),
}

/// A file with a password, or a program that prints it, and the vault id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PasswordSource {
    pub id: String,
    pub path: PathBuf,
}

impl PasswordSource {
    /// The source of `--vault-password-file`.
    pub fn from_file(path: impl Into<PathBuf>) -> Self {
        Self { id: DEFAULT_ID.to_owned(), path: path.into() }
    }

    /// Parses the value of `--vault-id`: `LABEL@FILE`, or only `FILE`.
    pub fn parse(text: &str) -> Result<Self, PasswordError> {
        let (id, path) = text.split_once('@').unwrap_or((DEFAULT_ID, text));
        if path.is_empty() || path == "prompt" || path == "prompt_ask_vault_pass" {
            return Err(PasswordError::Prompt(text.to_owned()));
        }
        let id = if id.is_empty() { DEFAULT_ID } else { id };
        Ok(Self { id: id.to_owned(), path: path.into() })
    }

    /// Returns the source with a relative path resolved in `dir`, and with `~/` resolved in the
    /// home directory.
    pub fn relative_to(mut self, dir: &Path) -> Self {
        let home = self.path.strip_prefix("~").ok().map(Path::to_owned);
        self.path = match (home, std::env::var_os("HOME")) {
            (Some(rest), Some(home)) => Path::new(&home).join(rest),
            _ => dir.join(&self.path),
        };
        self
    }

    /// Reads the password. An executable file is a program, and its standard output is the
    /// password. As in Ansible, a program whose name ends with `-client` gets the option
    /// `--vault-id`. Spaces and newlines at both ends do not belong to the password.
    pub fn read(&self) -> Result<VaultPassword, PasswordError> {
        let failed = |source| PasswordError::File { path: self.path.clone(), source };
        let bytes = match self.is_program()? {
            true => self.run().map_err(|why| PasswordError::Program { path: self.path.clone(), why })?,
            false => {
                let mut bytes = Vec::new();
                let file = fs::File::open(&self.path).map_err(failed)?;
                file.take(PASSWORD_MAX + 1).read_to_end(&mut bytes).map_err(failed)?;
                bytes
            }
        };
        let content = |why| PasswordError::Content { path: self.path.clone(), why };
        if bytes.len() as u64 > PASSWORD_MAX {
            return Err(content("is larger than 64 KiB"));
        }
        match bytes.trim_ascii() {
            [] => Err(content("is empty")),
            secret if is_encrypted(secret) => Err(content("is itself encrypted")),
            secret => Ok(VaultPassword::new(&self.id, secret.to_vec())),
        }
    }

    /// Reads the password of a file. A program runs later, when a text is decrypted.
    pub fn read_lazily(self) -> Result<LazyPassword, PasswordError> {
        match self.is_program()? {
            true => Ok(LazyPassword::Program(self)),
            false => self.read().map(LazyPassword::Known),
        }
    }

    fn is_program(&self) -> Result<bool, PasswordError> {
        let meta = fs::metadata(&self.path);
        let meta = meta.map_err(|source| PasswordError::File { path: self.path.clone(), source })?;
        Ok(meta.is_file() && meta.permissions().mode() & 0o111 != 0)
    }

    fn run(&self) -> Result<Vec<u8>, String> {
        let path = std::path::absolute(&self.path).map_err(|e| format!("can't be found: {e}"))?;
        let mut command = Command::new(&path);
        if path.file_stem().and_then(|stem| stem.to_str()).is_some_and(|stem| stem.ends_with("-client")) {
            command.args(["--vault-id", &self.id]);
        }
        program::run(&mut command, None, PASSWORD_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(dir: &Path, name: &str, text: &str, mode: u32) -> PathBuf {
        let path = dir.join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    #[test]
    fn passwords_come_from_files_and_programs() {
        let dir = tempfile::tempdir().unwrap();
        let plain = file(dir.path(), "plain", " a b \n", 0o600);
        let program = file(dir.path(), "program", "#!/bin/sh\necho from program $#\n", 0o700);
        let client = file(dir.path(), "x-client.sh", "#!/bin/sh\necho $1 $2\n", 0o700);
        for (text, want) in [
            (format!("{}", plain.display()), ("default", "a b")),
            (format!("prod@{}", plain.display()), ("prod", "a b")),
            (format!("@{}", program.display()), ("default", "from program 0")),
            (format!("dev@{}", client.display()), ("dev", "--vault-id dev")),
        ] {
            let password = PasswordSource::parse(&text).unwrap().read().unwrap();
            assert_eq!(format!("{password:?}"), format!("VaultPassword({})", want.0));
            assert_eq!(password.secret(), want.1.as_bytes(), "{text}");
        }
        assert_eq!(PasswordSource::parse("a@b").unwrap().relative_to(Path::new("/d")).path, Path::new("/d/b"));
        assert_eq!(PasswordSource::parse("a@/b").unwrap().relative_to(Path::new("/d")).path, Path::new("/b"));
    }

    #[test]
    fn a_program_runs_once_and_only_for_an_encrypted_text() {
        let dir = tempfile::tempdir().unwrap();
        let text = "#!/bin/sh\necho run >>\"$0.runs\"\necho hunter2 pass\n";
        let source = PasswordSource::from_file(file(dir.path(), "program", text, 0o700));
        let vault = crate::Vault::with_programs(vec![source.read_lazily().unwrap()], "name a password");
        let runs = || fs::read_to_string(dir.path().join("program.runs")).unwrap_or_default().lines().count();
        assert!(!vault.is_empty() && vault.open("no vault text").is_err());
        assert_eq!(runs(), 0);
        assert_eq!(vault.open_text(include_str!("../fixtures/token.txt")).unwrap(), "s3cr{{ 1+1 }}et");
        assert!(vault.open(include_str!("../fixtures/prod.txt")).is_err());
        assert_eq!(runs(), 1);
        // The next step after a failure is to mend the program.
        let fails = PasswordSource::from_file(file(dir.path(), "fails", "#!/bin/sh\nexit 3\n", 0o700));
        let vault = crate::Vault::with_programs(vec![fails.read_lazily().unwrap()], "name a password");
        let error = vault.open(include_str!("../fixtures/prod.txt")).unwrap_err();
        assert!(vault.next_step(&error).unwrap().contains("fails failed: exit status: 3"), "{error}");
    }

    #[test]
    fn bad_sources_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let fails = file(dir.path(), "fails", "#!/bin/sh\nexit 3\n", 0o700);
        let endless = file(dir.path(), "endless", "#!/bin/sh\nyes\n", 0o700);
        let large = file(dir.path(), "large", &"x".repeat(65 << 10), 0o600);
        let empty = file(dir.path(), "empty", " \n", 0o600);
        for (path, why) in [
            (fails, "failed"),
            (endless, "printed more than 65536 bytes"),
            (large, "larger than"),
            (empty, "is empty"),
            (dir.path().join("none"), "can't be read"),
        ] {
            let error = PasswordSource::from_file(&path).read().unwrap_err().to_string();
            assert!(error.contains(why) && error.contains(&path.display().to_string()), "{error}");
        }
        assert!(matches!(PasswordSource::parse("dev@prompt"), Err(PasswordError::Prompt(_))));
    }
}
