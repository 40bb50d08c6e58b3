//! `remoor check`, `diff` and `adopt`: commands for which a manager examines a node over SSH now.

use super::changed_words::changed_words;
use super::selection;
use crate::cli::api::{self, Api};
use crate::cli::args::{AdoptArgs, CheckArgs, DiffArgs, NodeSelection};
use crate::cli::duration;
use crate::cli::error::CommandError;
use crate::cli::exit::Exit;
use crate::cli::format::Format;
use crate::cli::moment::Today;
use crate::cli::out::Out;
use crate::cli::table::Table;
use futures_util::stream::{self, StreamExt};
use remoor_cluster::rpc::view::{AdoptView, CheckView, DiffView, FileDiff, NodeView, OrderRequest};
use remoor_model::{CheckResult, CheckState, Difference, Severity, count_noun};
use serde_json::{Value, json};

/// Maximum number of nodes that one command examines at the same time.
const AT_ONCE: usize = 16;

pub async fn check(api: &Api, out: &Out, args: &CheckArgs) -> anyhow::Result<Exit> {
    let nodes = selection::choose(api, &args.selection()).await?;
    let mut views: Vec<CheckView> = Vec::new();
    let mut errors: Vec<Value> = Vec::new();
    let mut exit = Exit::Done;
    let look = async |node: &NodeView| {
        let path = format!("/v1/nodes/{}/check", api::segment(&node.name));
        (node.name.clone(), api.post::<CheckView>(&path, &json!({})).await)
    };
    let mut looks = stream::iter(&nodes).map(look).buffered(AT_ONCE);
    let mut seen = 0;
    while let Some((name, answer)) = looks.next().await {
        seen += 1;
        if out.is_tty() && nodes.len() > AT_ONCE {
            out.talk(&format!("{seen} of {}", nodes.len()));
        }
        match answer {
            Ok(view) => {
                exit = exit.more_serious(if as_desired(&view) { Exit::Done } else { Exit::No });
                if !out.format.is_machine() {
                    exit = exit.more_serious(show_check(out, &view)?);
                }
                views.push(view);
            }
            Err(error) if nodes.len() == 1 => return Err(error.into()),
            Err(error) => {
                let stop = CommandError::from_error(&anyhow::Error::new(error).context(format!("check of {name}")));
                exit = exit.more_serious(stop.exit);
                out.talk(stop.render().trim_end());
                errors.push(json!({"node": name, "message": stop.message, "causes": stop.causes}));
            }
        }
    }
    match views.as_slice() {
        [one] if errors.is_empty() => out.machine(one)?,
        several => out.machine(&json!({"version": 1, "nodes": several, "errors": errors}))?,
    };
    Ok(exit)
}

fn as_desired(view: &CheckView) -> bool {
    let bad =
        |c: &CheckResult| matches!(c.state, CheckState::Fail | CheckState::Unknown) && c.severity != Severity::Info;
    view.verdict == "same" && !view.checks.iter().any(bad)
}

pub fn show_check(out: &Out, view: &CheckView) -> anyhow::Result<Exit> {
    if out.quiet {
        if !as_desired(view) {
            out.names([view.node.as_str()])?;
        }
        return Ok(out.source(&view.as_of));
    }
    let count = |state| view.checks.iter().filter(|c| c.state == state).count();
    let mut text = format!(
        "{}: {} ({} passed, {} failed, {} unknown; took {})\n",
        view.node,
        view.verdict,
        count_noun(count(CheckState::Pass), "check"),
        count(CheckState::Fail),
        count(CheckState::Unknown),
        duration::age(view.took_ms)
    );
    view.reasons.iter().for_each(|reason| text.push_str(&format!("  reason: {reason}\n")));
    let is_unmentioned = |d: &&Difference| !view.reasons.iter().any(|r| r.contains(&d.path));
    view.differences.iter().filter(is_unmentioned).for_each(|d| text.push_str(&format!("  differs: {d}\n")));
    out.text(&text)?;
    let table = results_table(&view.checks, out.format == Format::Wide);
    if !table.is_empty() {
        out.table(&table)?;
    }
    Ok(out.source(&view.as_of))
}

/// The columns of a table of results.
pub const RESULT_COLUMNS: [&str; 8] =
    ["SERVICE", "CHECK", "PROPERTY", "STATE", "SEVERITY", "EXPECTED", "FOUND", "MESSAGE"];

/// The results that did not pass. With `all`, all results.
pub fn results_table(checks: &[CheckResult], all: bool) -> Table {
    let mut table = Table::new(RESULT_COLUMNS);
    for result in checks.iter().filter(|result| all || is_reported(result)) {
        table.row(result_cells(result));
    }
    table
}

/// Whether a short table shows the result.
pub fn is_reported(result: &CheckResult) -> bool {
    !matches!(result.state, CheckState::Pass | CheckState::Skip)
}

/// The cells of one result, in the order of [`RESULT_COLUMNS`].
pub fn result_cells(c: &CheckResult) -> [String; 8] {
    let cells = [&c.check, &c.property, &c.expected, &c.found, &c.message].map(|s| s.replace('\n', " "));
    let [check, property, expected, found, message] = cells;
    let (state, severity) = (state_word(c.state).into(), severity_word(c.severity).into());
    [c.service.to_string(), check, property, state, severity, expected, found, message]
}

fn state_word(state: CheckState) -> &'static str {
    match state {
        CheckState::Pass => "pass",
        CheckState::Fail => "fail",
        CheckState::Unknown => "unknown",
        CheckState::Skip => "skip",
        CheckState::Waived => "waived",
    }
}

pub(super) fn severity_word(severity: Severity) -> &'static str {
    match severity {
        Severity::Info => "info",
        Severity::Warning => "warning",
        Severity::Critical => "critical",
    }
}

pub async fn diff(api: &Api, out: &Out, args: &DiffArgs) -> anyhow::Result<Exit> {
    let view: DiffView = api.post(&format!("/v1/nodes/{}/diff", api::segment(&args.node)), &json!({})).await?;
    show_diff(out, &view)
}

pub fn show_diff(out: &Out, view: &DiffView) -> anyhow::Result<Exit> {
    if !out.machine(view)? {
        if out.quiet {
            out.names(view.files.iter().map(|f| f.path.as_str()))?;
        } else {
            let today = Today::from_answer(&view.as_of.at);
            let (mut text, mut missing, mut extra) = (String::new(), String::new(), String::new());
            for file in &view.files {
                match file.what.as_str() {
                    "missing" => missing.push_str(&format!("  {}\n", path_with_facts(file, today))),
                    "extra" => extra.push_str(&format!("  {}\n", path_with_facts(file, today))),
                    _ => text.push_str(&changed_file_text(file, today)),
                }
            }
            for (title, lines) in [("missing", missing), ("extra", extra)] {
                if !lines.is_empty() {
                    text.push_str(&format!("{title}:\n{lines}"));
                }
            }
            for what in &view.unclear {
                text.push_str(&format!("not compared: {what}\n"));
            }
            if text.is_empty() {
                text = format!("{}: no differences\n", view.node);
            }
            out.text(&text)?;
        }
    }
    let exit = out.source(&view.as_of);
    Ok(exit.more_serious(if view.files.is_empty() { Exit::Done } else { Exit::No }))
}

/// A path, followed by its service, origin, date and note in brackets.
fn path_with_facts(file: &FileDiff, today: Today) -> String {
    let mut facts = vec![file.service.clone()];
    facts.extend(Some(&file.origin).filter(|origin| !matches!(origin.as_str(), "" | "none")).cloned());
    facts.extend(file.since.map(|at| format!("since {}", today.show(at))));
    let note = file.note.as_ref().filter(|_| file.what != "changed");
    facts.extend(note.cloned());
    format!("{} ({})", file.path, facts.join(", "))
}

/// The description of a changed file: first the difference in a few words, last the checksums.
fn changed_file_text(file: &FileDiff, today: Today) -> String {
    let mut text = format!("{} {}\n", file.what, path_with_facts(file, today));
    let (checksums, attributes): (Vec<_>, Vec<_>) = file.attributes.iter().partition(|a| a.starts_with("sha256: "));
    let words = file.unified.as_deref().map(changed_words).unwrap_or_default();
    words.iter().chain(attributes).for_each(|change| text.push_str(&format!("  {change}\n")));
    if let Some(note) = &file.note {
        text.push_str(&format!("  ({note})\n"));
    }
    if let Some(unified) = &file.unified {
        text.push_str(unified.trim_end_matches('\n'));
        text.push('\n');
    }
    checksums.iter().for_each(|checksum| text.push_str(&format!("  {checksum}\n")));
    text
}

pub async fn adopt(api: &Api, out: &Out, args: &AdoptArgs) -> anyhow::Result<Exit> {
    let (paths, names): (Vec<String>, Vec<String>) = args.what.iter().cloned().partition(|w| w.starts_with('/'));
    let by_group = args.all || args.group.is_some();
    if names.is_empty() != by_group {
        let text =
            if by_group { "use either names of nodes, --group or --all" } else { "the node of these paths is missing" };
        return Err(CommandError::usage_error(text).next("remoor adopt NODE [PATH..]").into());
    }
    let chosen = NodeSelection { nodes: names, group: args.group.clone(), all: args.all };
    let nodes = selection::choose(api, &chosen).await?;
    let request = OrderRequest { paths, ..OrderRequest::default() };
    let mut views: Vec<AdoptView> = Vec::new();
    for node in &nodes {
        let path = format!("/v1/nodes/{}/adopt", api::segment(&node.name));
        let done: Vec<&str> = views.iter().map(|v| v.node.as_str()).collect();
        let view: AdoptView = match api.post(&path, &request).await {
            Err(error) if done.is_empty() => return Err(error.into()),
            Err(error) => {
                let so_far = format!("adopt stopped at {}; already adopted: {}", node.name, done.join(", "));
                return Err(anyhow::Error::new(error).context(so_far));
            }
            Ok(view) => view,
        };
        if !out.format.is_machine() {
            show_adopt(out, &view)?;
        }
        views.push(view);
    }
    match views.as_slice() {
        [one] => out.machine(one)?,
        several => out.machine(&json!({"version": 1, "nodes": several}))?,
    };
    Ok(Exit::Done)
}

fn show_adopt(out: &Out, view: &AdoptView) -> anyhow::Result<()> {
    if out.quiet {
        return Ok(out.names([view.node.as_str()])?);
    }
    let files: usize = view.digest.services.values().map(|s| s.entries.len()).sum();
    let (files, services) = (count_noun(files, "path"), count_noun(view.digest.services.len(), "service"));
    let root = view.digest.root.short_hex();
    let mut text = format!("{}: adopted {files} of {services}, digest {root}..; nothing was run\n", view.node);
    view.changes.iter().for_each(|change| text.push_str(&format!("  {change}\n")));
    if view.reported_only {
        text.push_str(&format!(
            "  drift of this node is reported, not repaired; to have it repaired from now on: remoor commission {}\n",
            view.node
        ));
    }
    Ok(out.text(&text)?)
}
