//! Operations on this machine that know nothing of tasks: files by descriptors, temporary files,
//! accounts, processes, and threads that act as another user. Modules change files through `node`,
//! which can also predict a change.

pub(crate) mod accounts;
pub(crate) mod acting_user;
pub(crate) mod atomic_fs;
pub mod process;
pub(crate) mod symlink_safe_path;
pub(crate) mod temp_files;
pub(crate) mod tree_removal;
