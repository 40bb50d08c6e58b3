//! Stores a copy of the running program under its hash. Managers of the same version look for the
//! copy, and then need not upload the program.

use super::remote::Build;
use remoor_host::disk::DiskError;
use remoor_model::Sha256;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Number of kept programs, including the running one.
const KEPT: usize = 2;

/// The running program and its hash, for an installation. Blocking.
pub fn own_binary() -> std::io::Result<(Vec<u8>, Sha256)> {
    let bytes = std::fs::read("/proc/self/exe")?;
    let hash = Sha256::digest(&bytes);
    Ok((bytes, hash))
}

/// Copies the running program into `dir` as `remoor-SHA256`, mode 0755, and keeps one older
/// program. Blocking.
pub fn keep_binary(dir: &Path) -> Result<(), DiskError> {
    let own = Path::new("/proc/self/exe");
    let build = Build::of_this_program().map_err(DiskError::io("reading", own))?;
    std::fs::create_dir_all(dir).map_err(DiskError::io("making", dir))?;
    let path = dir.join(format!("remoor-{}", build.sha256));
    if !path.exists() {
        copy(own, dir, &path).map_err(DiskError::io("writing", &path))?;
    }
    let entries = std::fs::read_dir(dir).map_err(DiskError::io("reading", dir))?;
    let mut others: Vec<_> = entries
        .flatten()
        .filter(|entry| entry.path() != path)
        .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
        .collect();
    others.sort();
    for (_, old) in others.iter().take(others.len().saturating_sub(KEPT - 1)) {
        let _next_start = std::fs::remove_file(old);
    }
    Ok(())
}

/// Copies in chunks, because a daemon that held its whole program in memory would not return all of
/// that memory to the system. The name appears only after the content is on the disk.
fn copy(own: &Path, dir: &Path, path: &Path) -> std::io::Result<()> {
    let mut file = tempfile::NamedTempFile::new_in(dir)?;
    std::io::copy(&mut std::fs::File::open(own)?, &mut file)?;
    file.as_file().set_permissions(std::fs::Permissions::from_mode(0o755))?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    std::fs::File::open(dir)?.sync_all()
}
