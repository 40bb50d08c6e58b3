//! The answer to `status` and `nodes` on a machine that is not a manager: the knowledge of its own
//! agent, under a heading that says so. This is not the view of the cluster, so the exit code is
//! the one for a missing answer.

use super::nodes;
use crate::cli::api::Api;
use crate::cli::error::{self, CommandError};
use crate::cli::exit::Exit;
use crate::cli::format::Format;
use crate::cli::moment::{self, Today};
use crate::cli::out::Out;
use crate::cli::{duration, table, table::Table};
use remoor_cluster::rpc::client::ApiError;
use remoor_cluster::rpc::view::{AgentView, PeerView, ReportView};
use remoor_model::{CheckState, count_noun};

/// Maximum number of checks that are listed. `-o wide` and the JSON list all checks.
const CHECKS_SHOWN: usize = 20;

/// The command that the agent answers instead of a manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AgentQuery<'a> {
    Status,
    Nodes,
    Node(&'a str),
}

/// Asks the agent of this machine if `error` says that only managers answer. Otherwise returns
/// `error`.
pub async fn ask_agent_instead(api: &Api, out: &Out, asked: AgentQuery<'_>, error: ApiError) -> anyhow::Result<Exit> {
    if !only_managers(&error) {
        return Err(error.into());
    }
    match api.get::<AgentView>("/v1/agent").await {
        Ok(view) => show(out, &view, asked),
        // The manager is still starting, or the daemon has another version. `error`, the failure of
        // the first request, explains more.
        Err(_) => Err(error.into()),
    }
}

/// Whether a daemon answered that it is not a manager.
pub fn only_managers(error: &ApiError) -> bool {
    matches!(error, ApiError::Status { code, .. } if code == "unavailable")
}

pub fn show(out: &Out, view: &AgentView, asked: AgentQuery<'_>) -> anyhow::Result<Exit> {
    let peer = match asked {
        AgentQuery::Node(name) if name != view.node.name => {
            let known = view.peers.iter().find(|p| p.name == name);
            Some(known.ok_or_else(|| anyhow::Error::from(unknown_node(view, name)))?)
        }
        _ => None,
    };
    let done = match peer {
        Some(peer) => out.machine(peer)?,
        None => out.machine(view)?,
    };
    if !done && out.quiet {
        let all = std::iter::once(view.node.name.as_str()).chain(view.peers.iter().map(|p| p.name.as_str()));
        match asked {
            AgentQuery::Node(name) => out.names([name])?,
            AgentQuery::Status | AgentQuery::Nodes => out.names(all)?,
        }
    } else if !done {
        out.text(&format!(
            "not the cluster's view: {} is no manager, and this is what its agent knows itself\n\n",
            view.node.name
        ))?;
        match (peer, asked) {
            (Some(peer), _) => out.text(&table::fields(&peer_facts(peer, Today::from_answer(&view.as_of.at))))?,
            (None, AgentQuery::Nodes) => out.table(&peers(view, out.format == Format::Wide))?,
            (None, AgentQuery::Status | AgentQuery::Node(_)) => {
                out.text(&table::fields(&facts(view)))?;
                out.text(&checks(view, out.format == Format::Wide))?;
                if asked == AgentQuery::Status && !view.peers.is_empty() {
                    out.text("\n")?;
                    out.table(&peers(view, out.format == Format::Wide))?;
                }
            }
        }
    }
    out.talk(&format!("as known by the agent of {} at {}; no manager was asked", view.node.name, view.as_of.at));
    match view.node.removed {
        Some(_) if view.node.left => {
            out.talk("next: systemctl disable --now remoor; or remoor join, with the data directory unchanged");
        }
        Some(_) => out.talk("next: systemctl disable --now remoor; or join again with an empty data directory"),
        None => out.talk(&format!("next: {}", manager_command(view))),
    }
    Ok(Exit::CouldNotAsk)
}

fn unknown_node(view: &AgentView, name: &str) -> CommandError {
    let stop = error::unknown_nodes(&[name.to_owned()]);
    CommandError::new(Exit::CouldNotAsk, format!("the agent of {} does not know a node {name}", view.node.name))
        .cause(&stop)
        .next(manager_command(view))
}

/// The command with which the operator asks a manager.
fn manager_command(view: &AgentView) -> String {
    let at = match view.manager.known.as_slice() {
        [] => "HOST:PORT".to_owned(),
        some => some.iter().take(3).cloned().collect::<Vec<_>>().join(","),
    };
    format!("remoor status on a manager, or here with --manager {at} --credentials FILE")
}

fn facts(view: &AgentView) -> Vec<(&'static str, String)> {
    let today = Today::from_answer(&view.as_of.at);
    let moment = |at: &str| moment::parse(at).map_or_else(|| at.to_owned(), |at| today.show(at));
    let (node, isolation) = (&view.node, &view.isolation);
    let short = |text: &str| text.chars().take(8).collect::<String>();
    let role = if node.manager { "manager" } else { "worker" };
    let cluster: String = node.cluster.chars().take(12).collect();
    let mut agent = format!(
        "remoor {}, boot {}, instance {}, since {}",
        node.agent_version,
        short(&node.boot),
        short(&node.instance),
        moment(&node.started)
    );
    if let Some(end) = &node.previous_end {
        agent.push_str(&format!("; the one before {end}"));
    }
    let mut alone = match isolation.episodes {
        0 => "never without peers".to_owned(),
        n => format!("{} without peers", count_noun(n, "episode")),
    };
    match (&isolation.from, &isolation.to) {
        (Some(from), None) => alone.push_str(&format!(
            "; ALONE since {}, {} lost",
            moment(from),
            count_noun(isolation.peers_lost, "peer")
        )),
        (Some(from), Some(to)) => alone.push_str(&format!("; the last from {} to {}", moment(from), moment(to))),
        (None, _) => {}
    }
    let mut manager = match (&view.manager.name, view.manager.age_ms) {
        (Some(name), Some(age)) => format!("{name} answered {} ago", duration::age(age)),
        _ => "none answered since the agent started".to_owned(),
    };
    if let Some(error) = &view.manager.error {
        manager.push_str(&format!("; the last failure: {error}"));
    }
    let manifest = view.manifest.as_ref().map_or("none yet: no manager has sent one".to_owned(), |m| {
        format!("group {}, generation {}: {}", m.group, m.generation, m.services.join(", "))
    });
    let mut out = vec![
        ("node", format!("{} (id {}), {role} of cluster {cluster}, epoch {}", node.name, node.id, node.epoch)),
        ("agent", agent),
        (
            "crashes",
            format!("{} (starts of the agent within one boot after an end without an announcement)", node.crashes),
        ),
        ("peers", format!("{} of {} alive", view.peers_alive, view.peers.len())),
        ("isolation", alone),
        ("managers", manager),
        ("manifest", manifest),
    ];
    if let Some(removed) = &node.removed {
        let word = if node.left { "LEFT" } else { "REMOVED" };
        out.insert(0, (word, format!("{removed}; this agent is inactive and has deleted nothing")));
    }
    if !node.damaged.is_empty() {
        out.push((
            "damaged",
            format!("{}; examine these files in its data directory, then remove them", node.damaged.join(", ")),
        ));
    }
    if let Some(why) = &node.unsaved {
        out.push(("DISK", format!("the agent's record is not saved: {why}; make space on the disk of this machine")));
    }
    if node.archived_logs > 0 {
        let count = count_noun(node.archived_logs as usize, "archived log");
        out.push(("archives", format!("{count} with keys of the cluster; next: remoor recover --delete-archives 30d")));
    }
    if let Some(look) = &view.look {
        let took = duration::age(look.took_ms);
        let age = duration::age(look.age_ms);
        let files = match look.unreadable.as_slice() {
            [] => String::new(),
            some => format!("; unreadable: {}", some.join("; ")),
        };
        let text = format!("{}, by generation {}, taken {age} ago in {took}{files}", look.digest, look.generation);
        out.push(("digest", text));
        out.push(("checks", format!("{} passed, {} failed, {} unknown", look.passed, look.failed, look.unknown)));
    } else {
        out.push(("digest", "not taken since the agent started".to_owned()));
    }
    out
}

/// The checks that did not pass; with `wide`, all checks.
fn checks(view: &AgentView, wide: bool) -> String {
    let Some(look) = &view.look else { return String::new() };
    let all: Vec<_> = look
        .checks
        .iter()
        .filter(|c| wide || matches!(c.state, CheckState::Fail | CheckState::Unknown))
        .map(|c| match c.state {
            CheckState::Pass | CheckState::Skip | CheckState::Waived => {
                format!("  {}: {} {}\n", c.service, c.check, c.property)
            }
            CheckState::Fail => format!("  FAIL {}: {}\n", c.service, c.describe()),
            CheckState::Unknown => format!("  UNKNOWN {}: {}\n", c.service, c.describe()),
        })
        .collect();
    let shown = if wide { all.len() } else { all.len().min(CHECKS_SHOWN) };
    let more = (all.len() - shown) as u64 + look.checks_left_out;
    let more = if more > 0 { format!("  and {more} more\n") } else { String::new() };
    all[..shown].concat() + &more
}

fn peers(view: &AgentView, wide: bool) -> Table {
    let today = Today::from_answer(&view.as_of.at);
    let mut table = if wide {
        Table::new(["PEER", "ID", "ROLE", "SEEN", "SINCE", "GENERATION", "CHECKS", "VERSION", "API", "GOSSIP"])
    } else {
        Table::new(["PEER", "ID", "ROLE", "SEEN", "SINCE", "GENERATION", "CHECKS", "GOSSIP"])
    };
    for peer in &view.peers {
        let report = |f: fn(&ReportView) -> String| peer.report.as_ref().map(f).unwrap_or_default();
        let mut row = vec![
            peer.name.clone(),
            peer.id.map(|id| id.to_string()).unwrap_or_default(),
            if peer.manager { "manager" } else { "worker" }.to_owned(),
            peer.presence.clone(),
            peer.since.as_deref().and_then(moment::parse).map(|at| today.show(at)).unwrap_or_default(),
            report(|r| r.generation.to_string()),
            report(|r| r.checks.clone()),
        ];
        if wide {
            row.extend([report(|r| r.version.clone()), peer.api.clone()]);
        }
        row.push(peer.gossip.clone());
        table.row(row);
    }
    table
}

fn peer_facts(peer: &PeerView, today: Today) -> Vec<(&'static str, String)> {
    let since = peer.since.as_deref().and_then(moment::parse).map(|at| format!(" since {}", today.show(at)));
    let mut out = vec![
        ("node", peer.id.map_or_else(|| peer.name.clone(), |id| format!("{} (id {id})", peer.name))),
        ("role", if peer.manager { "manager" } else { "worker" }.to_owned()),
        ("seen", format!("{}{}, by gossip", peer.presence, since.unwrap_or_default())),
        ("addresses", format!("api {}, gossip {}", peer.api, peer.gossip)),
    ];
    out.extend(peer.report.as_ref().map(|report| ("agent says", nodes::report_text(report))));
    out
}
