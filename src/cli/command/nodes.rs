//! `remoor nodes [NODE]`: identity, addresses and roles of the nodes. Their state is in `remoor
//! status`.

use super::keys;
use super::local_status::{self, AgentQuery};
use crate::cli::api::{self, Api};
use crate::cli::args::NodesArgs;
use crate::cli::error;
use crate::cli::exit::Exit;
use crate::cli::format::Format;
use crate::cli::moment::{self, Today};
use crate::cli::out::Out;
use crate::cli::table::{self, Table};
use crate::cli::{state, story};
use remoor_cluster::rpc::view::{AddressesView, AsOf, NodeView, ReportView, StatusView, VarsView};
use remoor_model::{Availability, count_noun};

pub async fn run(api: &Api, out: &Out, args: &NodesArgs) -> anyhow::Result<Exit> {
    let view: StatusView = match api.get("/v1/status").await {
        Ok(view) => view,
        Err(error) => {
            let asked = args.node.as_deref().map_or(AgentQuery::Nodes, AgentQuery::Node);
            return local_status::ask_agent_instead(api, out, asked, error).await;
        }
    };
    match &args.node {
        None => list(out, &view),
        Some(name) => match view.nodes.iter().find(|n| n.name == *name) {
            Some(node) if out.format == Format::Wide && !out.quiet => {
                let path = format!("/v1/nodes/{}/vars", api::segment(&node.name));
                let exit = describe(out, node, &view.as_of)?;
                out.table(&vars_table(&api.get::<VarsView>(&path).await?))?;
                Ok(exit)
            }
            Some(node) => describe(out, node, &view.as_of),
            None => Err(error::no_such_nodes(std::slice::from_ref(name), &view.left).into()),
        },
    }
}

pub fn list(out: &Out, view: &StatusView) -> anyhow::Result<Exit> {
    if !out.machine(view)? {
        if out.quiet {
            out.names(view.nodes.iter().map(|n| n.name.as_str()))?;
        } else {
            out.table(&list_table(view, out.format == Format::Wide))?;
            let today = Today::from_answer(&view.as_of.at);
            view.nodes.iter().filter_map(|node| next_step(node, today)).for_each(|text| out.talk(&text));
            if let Some(table) = keys::waiting_table(&view.pending) {
                out.text("\n")?;
                out.table(&table)?;
            }
        }
    }
    Ok(out.source(&view.as_of))
}

/// The variables of a node, each with the source that defines it.
pub fn vars_table(view: &VarsView) -> Table {
    let mut table = Table::new(["VARIABLE", "VALUE", "FROM"]);
    for var in &view.vars {
        table.row([var.name.clone(), var.value.to_string(), var.origin.clone()]);
    }
    table
}

fn list_table(view: &StatusView, wide: bool) -> Table {
    let mut heads = vec!["NODE", "ID", "MEMBERSHIP", "STATUS", "AVAILABILITY", "GROUP", "API", "CERTIFICATE"];
    if wide {
        heads.extend(["ROLE", "LIFECYCLE", "ZONE", "GOSSIP", "SSH", "HOST KEYS"]);
    }
    heads.push("MANAGER");
    let mut table = Table::new(heads);
    let today = Today::from_answer(&view.as_of.at);
    for node in &view.nodes {
        let mark = if node.name == view.as_of.by { "*" } else { "" };
        let mut row = vec![
            format!("{}{mark}", node.name),
            node.id.to_string(),
            "accepted".to_owned(),
            state::presence(node, today),
            availability(node.operation.availability).to_owned(),
            node.group.clone().unwrap_or_default(),
            node.addresses.api.clone(),
            certificate_expiry(node).unwrap_or_default(),
        ];
        if wide {
            row.extend([
                state::role(node),
                node.operation.lifecycle.clone(),
                node.zone.clone(),
                node.addresses.gossip.clone(),
                node.addresses.ssh.clone().unwrap_or_default(),
                node.addresses.ssh_fingerprints.join(" "),
            ]);
        }
        row.push(state::manager(node));
        table.row(row);
    }
    for left in &view.left {
        let status = moment::parse(&left.left).map(|at| format!("since {}", today.show(at)));
        let (group, api) = (left.group.clone().unwrap_or_default(), left.api.clone());
        let mut row = vec![left.name.clone(), left.id.to_string(), "left".to_owned(), status.unwrap_or_default()];
        row.extend([String::new(), group, api, String::new()]);
        row.resize(if wide { 15 } else { 9 }, String::new());
        table.row(row);
    }
    table
}

/// The day on which the certificate expires, as far as the asked manager knows.
fn certificate_expiry(node: &NodeView) -> Option<String> {
    node.certificate_until.as_ref().map(|at| at.split('T').next().unwrap_or(at).to_owned())
}

/// The next step for a manager that does not answer. The least intrusive step comes first.
fn next_step(node: &NodeView, today: Today) -> Option<String> {
    let (name, seen) = (&node.name, state::presence(node, today));
    let gone = matches!(node.presence.as_str(), "away" | "agent-down" | "left") && node.role == "manager";
    let restart = format!("next, on {name}: systemctl restart remoor, or reboot");
    if let Some(silent) = node.membership.silent.as_ref().filter(|_| !gone && node.manager.as_deref() == Some("voter"))
    {
        return Some(format!(
            "{name} is {seen} but does not act as a manager: {silent}; next, on {name}: remoor status and its log show why; if it \
             can't be repaired: remoor demote {name}, then remoor promote {name}"
        ));
    }
    gone.then(|| match matches!(node.manager.as_deref(), Some("voter" | "leader")) {
        true => format!(
            "{name} is {seen} and holds a vote; {restart}; if it is lost: remoor promote another node, then remoor demote \
             {name} and remoor remove {name}"
        ),
        false => format!(
            "{name} is {seen} and becomes a voter when it is back; {restart}; to cancel that: remoor demote {name}"
        ),
    })
}

fn availability(availability: Availability) -> &'static str {
    match availability {
        Availability::Active => "active",
        Availability::Pause => "pause",
        Availability::Drain => "drain",
    }
}

pub fn describe(out: &Out, node: &NodeView, as_of: &AsOf) -> anyhow::Result<Exit> {
    if !out.machine(node)? {
        if out.quiet {
            out.names([node.name.as_str()])?;
        } else {
            out.lines(&table::fields(&facts(node, as_of)))?;
        }
    }
    Ok(out.source(as_of))
}

/// The report that an agent gossips about itself, in one line.
pub fn report_text(report: &ReportView) -> String {
    let digest = if report.digest.is_empty() { "not taken yet" } else { &report.digest };
    let version = if report.version.is_empty() { String::new() } else { format!(", remoor {}", report.version) };
    format!(
        "boot {}, instance {}, isolations {}, digest {digest}, generation {}, checks {}{version}",
        report.boot, report.instance, report.isolation, report.generation, report.checks
    )
}

/// All facts about a node, each as name and value.
pub fn facts(node: &NodeView, as_of: &AsOf) -> Vec<(&'static str, String)> {
    let (today, by) = (Today::from_answer(&as_of.at), &as_of.by);
    let AddressesView { api, gossip, ssh, ssh_fingerprints } = &node.addresses;
    let mut out = vec![
        ("node", format!("{} (id {})", node.name, node.id)),
        ("group", node.group.clone().unwrap_or_default()),
        ("role", state::role(node)),
        ("seen", state::presence(node, today)),
        ("lifecycle", node.operation.lifecycle.clone()),
        ("availability", availability(node.operation.availability).to_owned()),
        ("configuration", state::config(node).to_owned()),
        ("checks", state::checks(node)),
        ("addresses", format!("api {api}, gossip {gossip}, ssh {}", ssh.as_deref().unwrap_or("-"))),
        ("host keys", ssh_fingerprints.join(", ")),
        ("absences", format!("{}, including {}", node.absences, count_noun(node.agent.faults, "agent fault"))),
    ];
    let manager = state::manager(node);
    if !manager.is_empty() {
        out.insert(3, ("manager", manager));
    }
    if !node.services.is_empty() {
        out.insert(2, ("services", node.services.join(", ")));
    }
    if !node.zone.is_empty() {
        out.push(("zone", node.zone.clone()));
    }
    if let Some(until) = certificate_expiry(node) {
        out.push(("certificate", format!("until {until}")));
    }
    if node.reachability.unanswered > 0 {
        let pings = count_noun(node.reachability.unanswered, "ping");
        out.push(("unanswered", format!("{pings} of {by} since its daemon started")));
    }
    if let Some(baseline) = &node.config.baseline {
        let how = if baseline.adopted { "adopted" } else { "provisioned" };
        let root = baseline.root.short_hex();
        let at = today.show(baseline.at);
        out.push(("baseline", format!("{how} at {at}, generation {}, digest {root}..", baseline.generation)));
    }
    if let Some(finding) = &node.config.finding {
        let at = today.show(finding.at);
        out.push(("last verdict", format!("{} (at {at}, by {})", story::conclusion(finding), finding.by)));
    }
    if let Some(report) = &node.agent.report {
        out.push(("agent says", report_text(report)));
    }
    if let Some(m) = &node.operation.maintenance {
        out.push(("maintenance", format!("until {}, announced by {}", today.show(m.until), m.by)));
    }
    let doing = state::activity(node);
    if !doing.is_empty() {
        out.push(("now", doing));
    }
    out
}
