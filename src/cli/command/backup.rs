//! `remoor backup`: the manager of this machine writes a backup to its disk, or this command
//! verifies a backup.

use crate::cli::api::Api;
use crate::cli::args::BackupArgs;
use crate::cli::drivers;
use crate::cli::duration;
use crate::cli::error::CommandError;
use crate::cli::exit::Exit;
use crate::cli::out::Out;
use remoor_cluster::rpc::view::{BackupPlanRequest, BackupRequest, BackupTakenView, Nothing};
use serde_json::json;
use std::path::Path;

pub async fn run(api: &Api, out: &Out, args: &BackupArgs) -> anyhow::Result<Exit> {
    if !args.connection.manager.is_empty() {
        return Err(CommandError::usage_error(
            "a backup contains keys, so it can only be written on the machine of the manager",
        )
        .next("run the command on a manager, without --manager")
        .into());
    }
    let path = args.file.as_deref().map(text).transpose()?.unwrap_or_default();
    match (args.every.zip(args.keep), args.end) {
        (None, false) => take(api, out, path, args.recipient.clone()).await,
        (Some((every, keep)), _) => {
            let every_ms = every.0.as_millis() as u64;
            let recipients = args.recipient.clone();
            let request = BackupPlanRequest { dir: path.clone(), every_ms, keep, recipients };
            let _: Nothing = api.post("/v1/backup/plan", &request).await?;
            let every = duration::age(every_ms);
            let message = format!(
                "scheduled: a backup every {every} in {path}; the last {keep} are kept; remoor status on this machine \
                 shows the last one\n"
            );
            print_view(out, json!({"version": 1, "dir": path, "every_ms": every_ms, "keep": keep}), &message)
        }
        (None, true) => {
            let _: Nothing = api.post("/v1/backup/plan", &BackupPlanRequest::default()).await?;
            print_view(out, json!({"version": 1, "every_ms": null}), "scheduled backups are stopped\n")
        }
    }
}

fn print_view(out: &Out, view: serde_json::Value, text: &str) -> anyhow::Result<Exit> {
    if !out.machine(&view)? {
        out.text(text)?;
    }
    Ok(Exit::Done)
}

fn text(path: &Path) -> anyhow::Result<String> {
    let text = path.to_str().map(str::to_owned);
    Ok(text.ok_or_else(|| CommandError::usage_error(format!("the path {} is not valid UTF-8", path.display())))?)
}

async fn take(api: &Api, out: &Out, file: String, recipients: Vec<String>) -> anyhow::Result<Exit> {
    let encrypted = !recipients.is_empty();
    let taken: BackupTakenView = api.post("/v1/backup", &BackupRequest { file, recipients }).await?;
    if !out.machine(&taken)? {
        out.text(&format!(
            "{}: {} bytes, read back and verified: entry {} of epoch {}, generation {}, {} nodes\nsha256 {}\n",
            taken.file, taken.bytes, taken.index, taken.epoch, taken.generation, taken.nodes, taken.sha256
        ))?;
    }
    out.talk(if encrypted {
        "this file is encrypted: without the private key nobody can restore it; keep that key safe, away from here"
    } else {
        "this file contains the keys of the cluster: anyone who has it controls the cluster; let only root read it"
    });
    if taken.stale {
        out.talk("STALE: no leader is known; the backup contains what this manager last knew");
        return Ok(Exit::CouldNotAsk);
    }
    Ok(Exit::Done)
}

/// Verifies a backup. Contacts no manager.
pub fn verify(out: &Out, file: &Path, identity: Option<&Path>) -> anyhow::Result<Exit> {
    let head = drivers::verify_backup(file, identity)?;
    let view = json!({
        "version": 1,
        "file": file,
        "made_ms": head.made,
        "by": head.name,
        "program": head.program,
        "cluster": head.cluster,
        "epoch": head.epoch,
        "index": head.index,
        "generation": head.generation,
        "nodes": head.nodes,
    });
    let text = format!(
        "{} is complete: made by {} (remoor {}) of cluster {}, entry {} of epoch {}, generation {}, {} nodes\n",
        file.display(),
        head.name,
        head.program,
        head.cluster,
        head.index,
        head.epoch,
        head.generation,
        head.nodes
    );
    print_view(out, view, &text)
}
