//! `remoor check --list` and `--render`: the checks of a node, and the reason why each check file
//! applies. No node is contacted.

use super::examine::severity_word;
use super::selection;
use crate::cli::api::{self, Api};
use crate::cli::args::CheckArgs;
use crate::cli::drivers;
use crate::cli::error::{self, CommandError};
use crate::cli::exit::Exit;
use crate::cli::format::Format;
use crate::cli::out::Out;
use crate::cli::table::Table;
use remoor_cluster::rpc::view::ChecksView;
use remoor_model::{CheckFile, OnFail, count_noun};
use serde_json::json;

/// Lists the checks with which the managers examine the node. They are from the current generation.
pub async fn list_for_node(api: &Api, out: &Out, args: &CheckArgs) -> anyhow::Result<Exit> {
    let nodes = selection::choose(api, &args.selection()).await?;
    let [node] = &nodes[..] else { return Err(one_node().into()) };
    let view: ChecksView = api.get(&format!("/v1/nodes/{}/checks", api::segment(&node.name))).await?;
    if !out.machine(&view)? {
        out.talk(&format!("{}: generation {}", view.node, view.generation));
        show(out, args, &view.files)?;
    }
    Ok(out.source(&view.as_of))
}

/// Lists the checks of a fleet directory, without a manager.
pub fn list_for_directory(out: &Out, args: &CheckArgs) -> anyhow::Result<Exit> {
    let [node] = &args.nodes[..] else { return Err(one_node().into()) };
    let Some(dir) = args.fleet.as_ref().filter(|_| args.list || args.render) else {
        return Err(CommandError::usage_error("--fleet requires --list or --render").into());
    };
    let files = drivers::check_files(dir, node).map_err(|faults| error::invalid_fleet(&faults))?;
    if !out.machine(&json!({"version": 1, "node": node, "files": files}))? {
        show(out, args, &files)?;
    }
    Ok(Exit::Done)
}

fn one_node() -> CommandError {
    CommandError::usage_error("--list and --render take one node")
}

fn show(out: &Out, args: &CheckArgs, files: &[CheckFile]) -> anyhow::Result<()> {
    let applied = || files.iter().filter(|file| file.applies);
    if out.quiet {
        return Ok(out.names(applied().map(|file| file.file.as_str()))?);
    }
    if args.render {
        for file in applied() {
            // The heading is a YAML comment, so that goss can read the output.
            out.document(&format!("# {} ({})\n{}\n", file.file, file.service, file.text.trim_matches('\n')))?;
        }
        return Ok(());
    }
    let mut table = Table::new(["FILE", "SERVICE", "APPLIES", "CHECKS", "WHY"]);
    for file in files {
        let (applies, checks) = if file.applies { ("yes", file.checks.len().to_string()) } else { ("no", "-".into()) };
        table.row([file.file.clone(), file.service.to_string(), applies.into(), checks, file.why.clone()]);
    }
    out.table(&table)?;
    if out.format == Format::Wide {
        let mut table = Table::new(["FILE", "CHECK", "SEVERITY", "ON-FAIL", "TITLE"]);
        for (file, check) in applied().flat_map(|file| file.checks.iter().map(move |check| (file, check))) {
            table.row([
                format!("{}:{}", file.file, check.line),
                check.check.clone(),
                severity_word(check.severity).to_owned(),
                remedy(check.on_fail).to_owned(),
                check.title.clone().unwrap_or_default(),
            ]);
        }
        out.table(&table)?;
    }
    let count: usize = applied().map(|file| file.checks.len()).sum();
    out.talk(&format!("{} from {}", count_noun(count, "check"), count_noun(applied().count(), "file")));
    Ok(())
}

fn remedy(on_fail: OnFail) -> &'static str {
    match on_fail {
        OnFail::None => "none",
        OnFail::Alert => "alert",
        OnFail::Resetup => "resetup",
    }
}
