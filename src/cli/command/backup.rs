//! `remoor backup`: made by the manager of this machine, on its disk; or read and checked here.

use crate::cli::api::Api;
use crate::cli::args::BackupArgs;
use crate::cli::drivers;
use crate::cli::duration;
use crate::cli::error::Stop;
use crate::cli::exit::Exit;
use crate::cli::out::Out;
use crate::rpc::view::{BackupPlanRequest, BackupRequest, BackupTakenView, Nothing};
use serde_json::json;
use std::path::Path;

pub async fn run(api: &Api, out: &Out, args: &BackupArgs) -> anyhow::Result<Exit> {
    if !args.connection.manager.is_empty() {
        return Err(Stop::usage("a backup holds keys, and is made where the manager runs")
            .next("the same command on a manager, without --manager")
            .into());
    }
    let path = args.file.as_deref().map(text).transpose()?.unwrap_or_default();
    match (args.every.zip(args.keep), args.end) {
        (None, false) => take(api, out, path).await,
        (Some((every, keep)), _) => {
            let every_ms = every.0.as_millis() as u64;
            let request = BackupPlanRequest { dir: path.clone(), every_ms, keep };
            let _: Nothing = api.post("/v1/backup/plan", &request).await?;
            let every = duration::age(every_ms);
            let said = format!(
                "a backup every {every} into {path}, the last {keep} are kept; remoor status on this machine \
                 tells of the last one\n"
            );
            told(out, json!({"version": 1, "dir": path, "every_ms": every_ms, "keep": keep}), &said)
        }
        (None, true) => {
            let _: Nothing = api.post("/v1/backup/plan", &BackupPlanRequest::default()).await?;
            told(out, json!({"version": 1, "every_ms": null}), "no backups are made by themselves any more\n")
        }
    }
}

fn told(out: &Out, view: serde_json::Value, said: &str) -> anyhow::Result<Exit> {
    if !out.machine(&view)? {
        out.text(said)?;
    }
    Ok(Exit::Done)
}

fn text(path: &Path) -> anyhow::Result<String> {
    let text = path.to_str().map(str::to_owned);
    Ok(text.ok_or_else(|| Stop::usage(format!("{} is no UTF-8", path.display())))?)
}

async fn take(api: &Api, out: &Out, file: String) -> anyhow::Result<Exit> {
    let taken: BackupTakenView = api.post("/v1/backup", &BackupRequest { file }).await?;
    if !out.machine(&taken)? {
        out.text(&format!(
            "{}: {} bytes, read back and whole: entry {} of epoch {}, generation {}, {} nodes\nsha256 {}\n",
            taken.file, taken.bytes, taken.index, taken.epoch, taken.generation, taken.nodes, taken.sha256
        ))?;
    }
    out.talk("this file holds the keys of the cluster: whoever has it is the cluster; keep it where only root reads");
    if taken.stale {
        out.talk("STALE: no leader was known; this is what this manager last knew");
        return Ok(Exit::CouldNotAsk);
    }
    Ok(Exit::Done)
}

/// Nobody is asked.
pub fn verify(out: &Out, file: &Path) -> anyhow::Result<Exit> {
    let head = drivers::verify_backup(file)?;
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
    let said = format!(
        "{} is whole: made by {} (remoor {}) of cluster {}, entry {} of epoch {}, generation {}, {} nodes\n",
        file.display(),
        head.name,
        head.program,
        head.cluster,
        head.index,
        head.epoch,
        head.generation,
        head.nodes
    );
    told(out, view, &said)
}
