//! `remoor digest`: hashes files of this machine, or shows the changes since an earlier digest.

use crate::cli::args::DigestArgs;
use crate::cli::drivers::digest::{DigestComparison, DigestRequest, PathChangeKind, StoredDigest};
use crate::cli::drivers::{compare_digests, read_digest, take_digest};
use crate::cli::exit::Exit;
use crate::cli::format::Format;
use crate::cli::out::Out;
use crate::cli::table::{Table, fields};
use remoor_model::{FileEntry, FileKind, count_noun};

/// Maximum number of unreadable paths that are listed on standard error.
const TOLD_MAX: usize = 20;

pub fn run(out: &Out, args: DigestArgs) -> anyhow::Result<Exit> {
    let DigestArgs { paths, exclude, normalize, key, compare, .. } = args;
    match compare {
        None => show(out, &take_digest(&DigestRequest { paths, exclude, normalize, key })?),
        Some(file) => {
            let before = read_digest(&file)?;
            show_changes(out, &compare_digests(&before, &paths, key)?)
        }
    }
}

/// Exit code 0: everything was read. 1: a path of the command line does not exist. 3: something
/// could not be read.
pub fn show(out: &Out, taken: &StoredDigest) -> anyhow::Result<Exit> {
    if !out.machine(taken)? {
        if out.quiet {
            out.text(&format!("{}\n", taken.root))?;
        } else {
            if out.format == Format::Wide {
                entries(out, taken)?;
            }
            out.text(&fields(&[
                ("root", taken.root.to_string()),
                ("of", taken.paths.join(", ")),
                ("holds", count_entries(taken)),
            ]))?;
        }
    }
    let mut exit = Exit::Done;
    for path in taken.absent() {
        out.talk(&format!("{path}: does not exist"));
        exit = exit.more_serious(Exit::No);
    }
    if taken.keyless() > 0 {
        let files = count_noun(taken.keyless(), "file");
        out.talk(&format!(
            "{files} without a content hash, because only the owner may read the content; --key FILE hashes it with a key"
        ));
        exit = exit.more_serious(Exit::CouldNotAsk);
    }
    Ok(exit.more_serious(unclear(out, &taken.unclear())))
}

fn entries(out: &Out, taken: &StoredDigest) -> std::io::Result<()> {
    let mut table = Table::new(["MODE", "OWNER", "GROUP", "KIND", "CONTENT", "PATH"]);
    for e in &taken.entries {
        let mode = if e.kind == FileKind::Symlink { String::new() } else { format!("{:04o}", e.mode) };
        table.row([mode, e.owner.clone(), e.group.clone(), e.kind.to_string(), content(e), e.path.clone()]);
    }
    out.table(&table)
}

fn content(entry: &FileEntry) -> String {
    match (&entry.target, entry.sha256) {
        (Some(target), _) => format!("-> {target}"),
        (None, Some(sha256)) if entry.secret => format!("hmac:{}", sha256.short_hex()),
        (None, Some(sha256)) => sha256.to_string(),
        (None, None) => String::new(),
    }
}

/// The number of entries of each kind: `3 files, 1 directory, 1 symlink`.
fn count_entries(taken: &StoredDigest) -> String {
    let count = |test: &dyn Fn(FileKind) -> bool| taken.entries.iter().filter(|e| test(e.kind)).count();
    let directories = match count(&|kind| kind == FileKind::Dir) {
        1 => "1 directory".to_owned(),
        n => format!("{n} directories"),
    };
    let mut parts = vec![count_noun(count(&|kind| kind == FileKind::File), "file"), directories];
    let others = [("symlink", FileKind::Symlink), ("pipe", FileKind::Fifo), ("socket", FileKind::Socket)];
    let others = others.map(|(noun, kind)| (noun, count(&|k| k == kind)));
    let devices = count(&|kind| matches!(kind, FileKind::CharDevice | FileKind::BlockDevice));
    for (noun, number) in others.into_iter().chain([("device", devices)]).filter(|(_, number)| *number > 0) {
        parts.push(count_noun(number, noun));
    }
    parts.join(", ")
}

/// Exit code 0: nothing changed. 1: something changed. 3: no change was found, but some paths could
/// not be compared.
pub fn show_changes(out: &Out, comparison: &DigestComparison) -> anyhow::Result<Exit> {
    if !out.machine(comparison)? {
        if out.quiet {
            out.names(comparison.differences.iter().map(|c| c.path.as_str()))?;
        } else {
            let mut table = Table::new(["CHANGE", "PATH", "WHAT"]);
            for c in &comparison.differences {
                let attributes: Vec<String> = c.attributes.iter().map(|a| a.describe()).collect();
                table.row([change_word(c.change).to_owned(), c.path.clone(), attributes.join(", ")]);
            }
            if !table.is_empty() {
                out.table(&table)?;
            }
            let count = |what| comparison.differences.iter().filter(|c| c.change == what).count();
            out.text(&format!(
                "{} unchanged, {} added, {} missing, {} changed\n",
                comparison.unchanged,
                count(PathChangeKind::Added),
                count(PathChangeKind::Missing),
                count(PathChangeKind::Changed)
            ))?;
        }
    }
    let unclear = unclear(out, &comparison.unclear);
    Ok(if comparison.differences.is_empty() { unclear } else { Exit::No })
}

fn change_word(what: PathChangeKind) -> &'static str {
    match what {
        PathChangeKind::Added => "added",
        PathChangeKind::Missing => "missing",
        PathChangeKind::Changed => "changed",
    }
}

fn unclear(out: &Out, lines: &[String]) -> Exit {
    if lines.is_empty() {
        return Exit::Done;
    }
    lines.iter().take(TOLD_MAX).for_each(|line| out.talk(line));
    if lines.len() > TOLD_MAX {
        out.talk(&format!("and {} more; -o json lists all", lines.len() - TOLD_MAX));
    }
    Exit::CouldNotAsk
}
