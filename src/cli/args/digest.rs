//! Arguments of `remoor digest`.

use super::Output;
use clap::Args;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub struct DigestArgs {
    /// Files, and directories with everything below them (default: the current directory)
    #[arg(value_name = "DIR|FILE")]
    pub paths: Vec<PathBuf>,
    /// Exclude paths: a glob for the whole path or its last components (repeatable)
    #[arg(long, value_name = "GLOB", conflicts_with = "compare")]
    pub exclude: Vec<String>,
    /// Ignore lines that match this regular expression when hashing contents (repeatable)
    #[arg(long, value_name = "REGEX", conflicts_with = "compare")]
    pub normalize: Vec<String>,
    /// Key file for hashing files that only their owner may read; created if missing
    #[arg(long, value_name = "FILE")]
    pub key: Option<PathBuf>,
    /// Compare with saved output of `-o json`, using its paths, globs and expressions; `-` is
    /// standard input
    #[arg(long, value_name = "FILE")]
    pub compare: Option<PathBuf>,
    #[command(flatten)]
    pub output: Output,
}
