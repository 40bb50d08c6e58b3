//! `remoor status`: the state of the whole fleet on one page.

use super::local_status::{self, AgentQuery};
use crate::cli::api::{self, Api};
use crate::cli::args::StatusArgs;
use crate::cli::error::CommandError;
use crate::cli::exit::Exit;
use crate::cli::format::Format;
use crate::cli::interrupt::Interrupt;
use crate::cli::moment::{self, Today};
use crate::cli::out::Out;
use crate::cli::state;
use crate::cli::table::Table;
use remoor_cluster::rpc::view::{NodeView, StatusView};

/// Clears the terminal and moves to its first line.
const CLEAR: &str = "\u{1b}[2J\u{1b}[H";

pub async fn run(api: &Api, out: &Out, args: &StatusArgs) -> anyhow::Result<Exit> {
    let Some(every) = args.watch else {
        return match api.get::<StatusView>("/v1/status").await {
            Ok(view) => show(out, &view, args.exit_code),
            Err(error) => local_status::ask_agent_instead(api, out, AgentQuery::Status, error).await,
        };
    };
    let mut interrupt = Interrupt::new()?;
    loop {
        let Some(answer) = interrupt.unless_interrupted(api.get::<StatusView>("/v1/status")).await else {
            return Ok(Exit::Interrupted);
        };
        match answer {
            Ok(view) => redraw(out, &view)?,
            Err(error) if local_status::only_managers(&error) => {
                if out.is_tty() {
                    out.raw(CLEAR)?;
                }
                local_status::ask_agent_instead(api, out, AgentQuery::Status, error).await.map(|_| ())?;
            }
            // The command keeps watching, because the manager may come back.
            Err(error) if api::temporary(&error) => {
                out.talk(CommandError::from_error(&error.into()).render().trim_end())
            }
            Err(error) => return Err(error.into()),
        }
        if interrupt.unless_interrupted(tokio::time::sleep(every.0)).await.is_none() {
            return Ok(Exit::Interrupted);
        }
    }
}

fn redraw(out: &Out, view: &StatusView) -> anyhow::Result<()> {
    if out.machine_line(view)? {
        return Ok(());
    }
    if out.is_tty() {
        out.raw(CLEAR)?;
    }
    show(out, view, false).map(|_| ())
}

pub fn show(out: &Out, view: &StatusView, exit_code: bool) -> anyhow::Result<Exit> {
    let undesired: Vec<(&str, String)> =
        view.nodes.iter().filter_map(|n| Some((n.name.as_str(), state::why_not_desired(n)?))).collect();
    if !out.machine(view)? {
        if out.quiet {
            let wanted = |n: &&NodeView| !exit_code || undesired.iter().any(|(name, _)| *name == n.name);
            out.names(view.nodes.iter().filter(wanted).map(|n| n.name.as_str()))?;
        } else {
            out.text(&heading(view))?;
            out.table(&table(view, out.format == Format::Wide))?;
        }
    }
    let exit = out.source(&view.as_of);
    if !exit_code {
        return Ok(exit);
    }
    if !out.quiet {
        for (name, why) in &undesired {
            out.talk(&format!("not as desired: {name} {why}"));
        }
        if let Some(breaker) = &view.breaker {
            out.talk(&format!("not as desired: a circuit breaker is open: {}", breaker.why));
        }
    }
    let no = !undesired.is_empty() || view.breaker.is_some();
    Ok(exit.more_serious(if no { Exit::No } else { Exit::Done }))
}

fn heading(view: &StatusView) -> String {
    let today = Today::from_answer(&view.as_of.at);
    let generation = match (view.generation, &view.generation_at) {
        (0, _) => "no fleet applied".to_owned(),
        (seq, Some(at)) => {
            let at = moment::parse(at).map_or_else(|| at.clone(), |at| today.show(at));
            format!("generation {seq} (applied {at})")
        }
        (seq, None) => format!("generation {seq}"),
    };
    let cluster: String = view.cluster.chars().take(12).collect();
    // Only the leader knows how many managers are up. If the leader did not answer, the number is
    // unknown.
    let up = if view.as_of.heard { "?".to_owned() } else { view.managers_up.to_string() };
    let mut out = format!("cluster {cluster}   {generation}   managers up: {up} of {}\n", view.managers);
    if let Some(breaker) = &view.breaker {
        let of = breaker.group.as_ref().map_or_else(|| "the fleet".to_owned(), |g| format!("group {g}"));
        let at = today.show(breaker.at);
        out.push_str(&format!(
            "CIRCUIT BREAKER of {of} open since {at}: {}; next, after an inspection: remoor resume\n",
            breaker.why
        ));
    }
    if let Some(backup) = &view.backup {
        let by = if backup.by.is_empty() { &view.as_of.by } else { &backup.by };
        out.push_str(&format!("backup of {by}: {}\n", state::backup(backup)));
    }
    for warning in &view.warnings {
        out.push_str(&format!("warning: {warning}\n"));
    }
    out.push('\n');
    out
}

fn table(view: &StatusView, wide: bool) -> Table {
    let today = Today::from_answer(&view.as_of.at);
    let narrow = ["NODE", "GROUP", "ROLE", "SEEN", "LIFECYCLE", "CONFIG", "CHECKS", "LAST VERDICT", "NOW"];
    let mut table = if wide {
        let [node, group, role, seen, lifecycle, config, checks, verdict, now] = narrow;
        let more = ["GENERATION", "ABSENCES", "AGENT FAULTS"];
        let [generation, absences, faults] = more;
        Table::new([node, group, role, seen, lifecycle, config, checks, verdict, generation, absences, faults, now])
    } else {
        Table::new(narrow)
    };
    for node in &view.nodes {
        let mark = if node.name == view.as_of.by { "*" } else { "" };
        let mut row = vec![
            format!("{}{mark}", node.name),
            node.group.clone().unwrap_or_default(),
            state::role(node),
            state::presence(node, today),
            node.operation.lifecycle.clone(),
            state::config(node).to_owned(),
            state::checks(node),
            last_verdict(node, today),
        ];
        if wide {
            let generation = node.config.baseline.as_ref().map(|b| b.generation.to_string()).unwrap_or_default();
            row.extend([generation, node.absences.to_string(), node.agent.faults.to_string()]);
        }
        row.push(now(node));
        table.row(row);
    }
    table
}

/// The current activity of the node, or the reason why it waits. An unfinished role change comes
/// first. If the node has neither an activity nor a role change, its drift is shown.
fn now(node: &NodeView) -> String {
    let role = node.membership.waits.as_ref().or(node.membership.silent.as_ref()).map(|_| state::manager(node));
    let all = role.into_iter().chain([state::activity(node)]).filter(|text| !text.is_empty());
    let all = all.collect::<Vec<_>>().join("; ");
    if all.is_empty() { state::difference(node).unwrap_or_default() } else { all }
}

/// The last verdict with its cause and time: `drifted after network, 12:01:09`.
fn last_verdict(node: &NodeView, today: Today) -> String {
    let Some(finding) = &node.config.finding else { return String::new() };
    let after = match finding.cause.filter(|_| finding.absence.is_some()) {
        Some(cause) => format!(" after {}", crate::cli::story::cause_word(cause)),
        None => String::new(),
    };
    format!("{}{after}, {}", finding.verdict.as_str(), today.show(finding.at))
}
