//! Arguments of `remoor digest`.

use super::Output;
use clap::Args;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub struct DigestArgs {
    /// What to look at, directories with everything below them; the current directory if left out
    #[arg(value_name = "DIR|FILE")]
    pub paths: Vec<PathBuf>,
    /// Leave these out: a glob of the whole path, or of its last parts (repeat for several)
    #[arg(long, value_name = "GLOB", conflicts_with = "compare")]
    pub exclude: Vec<String>,
    /// Leave out lines that this regular expression finds, before a content is hashed (repeat for several)
    #[arg(long, value_name = "REGEX", conflicts_with = "compare")]
    pub normalize: Vec<String>,
    /// Key for the content of files that only their owner may read; made where it is missing
    #[arg(long, value_name = "FILE")]
    pub key: Option<PathBuf>,
    /// Compare with an earlier answer of `-o json`, by its paths, globs and expressions; `-` reads standard input
    #[arg(long, value_name = "FILE")]
    pub compare: Option<PathBuf>,
    #[command(flatten)]
    pub output: Output,
}
