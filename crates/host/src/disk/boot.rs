//! The kernel's boot id, which distinguishes a reboot from a restart of the program.

use super::DiskError;
use remoor_model::BootId;
use std::path::Path;

/// Reads this machine's boot id. It changes only with a boot.
pub fn boot_id() -> Result<BootId, DiskError> {
    read(Path::new("/proc/sys/kernel/random/boot_id"))
}

fn read(path: &Path) -> Result<BootId, DiskError> {
    let text = std::fs::read_to_string(path).map_err(DiskError::io("reading", path))?;
    let text = text.trim();
    let plausible = text.len() >= 32 && text.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-');
    if !plausible {
        return Err(DiskError::Corrupt { path: path.to_owned(), why: "not a boot id".to_owned() });
    }
    Ok(BootId::from(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_same_id_twice_and_rejects_an_invalid_one() {
        assert_eq!(boot_id().unwrap(), boot_id().unwrap());
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(matches!(read(file.path()), Err(DiskError::Corrupt { .. })));
    }
}
