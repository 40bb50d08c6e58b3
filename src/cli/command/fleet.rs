//! `remoor lint`, `apply` and `inventory`: validate the fleet directory, upload it, and print the
//! inventory.

use super::play::vault_options;
use crate::cli::api::Api;
use crate::cli::args::{ApplyArgs, InventoryArgs, LintArgs};
use crate::cli::drivers;
use crate::cli::error::{self, CommandError};
use crate::cli::exit::Exit;
use crate::cli::out::Out;
use anyhow::Context;
use remoor_cluster::rpc::view::AppliedView;
use remoor_model::{Fault, count_noun};
use serde_json::{Value, json};

pub fn lint(out: &Out, args: &LintArgs) -> anyhow::Result<Exit> {
    let vault = vault_options(&args.vault);
    let faults = drivers::lint(&args.dir, args.strict, drivers::module_policy(args.native_only), &vault);
    show_faults(out, &faults)
}

pub fn show_faults(out: &Out, faults: &[Fault]) -> anyhow::Result<Exit> {
    let grave = faults.iter().filter(|f| !f.warning).count();
    if !out.machine(&json!({"version": 1, "faults": faults}))? {
        if out.quiet {
            let mut files: Vec<&str> = faults.iter().map(|f| f.file.as_str()).collect();
            files.dedup();
            out.names(files)?;
        } else {
            let text: String = faults.iter().map(|fault| format!("{fault}\n")).collect();
            out.text(&text)?;
            out.talk(&format!("{}, {}", count_noun(grave, "fault"), count_noun(faults.len() - grave, "warning")));
        }
    }
    Ok(if grave > 0 { Exit::Usage } else { Exit::Done })
}

pub async fn apply(api: &Api, out: &Out, args: &ApplyArgs) -> anyhow::Result<Exit> {
    let packed =
        drivers::pack(&args.dir, &vault_options(&args.vault)).map_err(|faults| error::invalid_fleet(&faults))?;
    let path = if args.orphans { "/v1/apply?orphans=true" } else { "/v1/apply" };
    packed.warnings.iter().for_each(|warning| out.talk(&warning.to_string()));
    let answer = api.post_bytes(path, packed.body.into()).await?;
    let view: AppliedView = serde_json::from_slice(&answer)
        .context("the manager's answer can't be parsed; remoor status shows the current generation")?;
    show_applied(out, &view)
}

pub fn show_applied(out: &Out, view: &AppliedView) -> anyhow::Result<Exit> {
    if out.machine(view)? {
        return Ok(Exit::Done);
    }
    for warning in &view.warnings {
        out.talk(&warning.to_string());
    }
    if out.quiet {
        out.names(view.outdated.iter().map(String::as_str))?;
        return Ok(Exit::Done);
    }
    let what = if view.unchanged { "is already the current one; nothing changed" } else { "applied" };
    let mut text = format!("generation {} {what}\n", view.generation);
    if !view.outdated.is_empty() {
        text.push_str(&format!("outdated nodes: {}\n", view.outdated.join(", ")));
        out.text(&text)?;
        out.talk(&format!("next: remoor update {}", view.outdated.join(" ")));
    } else {
        out.text(&text)?;
    }
    Ok(Exit::Done)
}

/// Prints the inventory in the form that Ansible expects from an inventory script.
pub async fn inventory(api: &Api, out: &Out, args: &InventoryArgs) -> anyhow::Result<Exit> {
    let all: Value = api.get("/v1/inventory").await?;
    let shown = match &args.host {
        None => all,
        Some(host) => {
            let vars = all.get("_meta").and_then(|m| m.get("hostvars")).and_then(|h| h.get(host));
            vars.cloned().ok_or_else(|| {
                CommandError::refusal(format!("the inventory has no host {host}")).next("remoor inventory --list")
            })?
        }
    };
    out.json(&(serde_json::to_string_pretty(&shown)? + "\n"))?;
    Ok(Exit::Done)
}
