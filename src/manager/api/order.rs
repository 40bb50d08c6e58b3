//! Orders about nodes, one or several at once. A refused one changes nothing; one that needs evidence examines first,
//! over SSH. Several are one entry: accepted all or refused all.

use super::super::{Shared, examine, wall};
use super::look::{is_no_route, look};
use super::{leave, operator, propose, remove, roles};
use crate::engine::{self, Evidence};
use crate::model::{
    Availability, BATCH_MAX, ClusterRole, Command, Ground, GroupName, Inventory, JobId, Lifecycle, Node, NodeId,
    Occasion, Reason, ServiceName, Verdict, Wait, Want,
};
use crate::rpc::caller::Caller;
use crate::rpc::view::{CancelRequest, Nothing, OrderRequest, OrderView, OrderedView, OrdersRequest, OrdersView};
use crate::rpc::wire::{Code, Failure, Strict};
use axum::extract::{Path, State};
use futures_util::{StreamExt, TryStreamExt};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

const SCAN_TIMEOUT: Duration = Duration::from_secs(10);
/// Nodes that one order examines at the same time.
const LOOKS_MAX: usize = 16;

type Answer<T> = Result<axum::Json<T>, Failure>;
/// What is to be proposed for one node, if anything, and what is said when that is applied.
pub(super) type Decided = (Option<Command>, OrderView);

/// `resetup`, `commission`, `decommission`, `drain`, `update`, `pause`, `resume`, `maintenance`, `zone`, `promote`, `demote`, `remove`,
/// `trust-key`, `cancel`.
pub async fn order(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    Path((name, verb)): Path<(String, String)>,
    Strict(request): Strict<OrderRequest>,
) -> Answer<OrderView> {
    let by = operator(&shared, &caller)?;
    let inventory = shared.inventory();
    let node = leave::about_whom(&inventory, &name, &verb)?;
    let (command, mut view) = Desk { shared: &shared, by: &by, node: &node, request: &request }.decide(&verb).await?;
    if let Some(command) = command {
        view.warnings = roles::warnings(&shared, std::slice::from_ref(&command));
        let removed = remove::of(std::slice::from_ref(&command));
        propose(&shared, &by, command).await?;
        remove::tell(&shared, &inventory, &removed);
    }
    Ok(axum::Json(view))
}

/// The same order for several nodes: everything that one of them would be refused for refuses it for all.
pub async fn orders(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    Strict(request): Strict<OrdersRequest>,
) -> Answer<OrdersView> {
    let by = operator(&shared, &caller)?;
    let names: BTreeSet<&String> = request.nodes.iter().collect();
    if names.is_empty() || names.len() > BATCH_MAX || names.len() < request.nodes.len() {
        let text = format!("an order is about 1 to {BATCH_MAX} nodes, each named once");
        return Err(Failure::new(Code::BadRequest, text));
    }
    if matches!(request.order.as_str(), "trust-key" | "cancel") {
        return Err(Failure::new(Code::BadRequest, format!("{} is about one node", request.order)));
    }
    let inventory = shared.inventory();
    let node = |name: &String| leave::about_whom(&inventory, name, &request.order);
    let nodes = request.nodes.iter().map(node).collect::<Result<Vec<_>, _>>()?;
    let alone = nodes.len() == 1;
    let decide = async |node: Arc<Node>| {
        let desk = Desk { shared: &shared, by: &by, node: &node, request: &request.request };
        let decided = desk.decide(&request.order).await;
        decided.map(|(command, view)| (node.name().to_string(), command, view)).map_err(|mut failure| {
            if !alone {
                failure.message = format!("{}: {}; nothing was ordered", node.name(), failure.message);
            }
            failure
        })
    };
    let decided: Vec<(String, Option<Command>, OrderView)> =
        futures_util::stream::iter(nodes).map(decide).buffered(LOOKS_MAX).try_collect().await?;
    let mut commands = Vec::new();
    let mut orders = Vec::new();
    for (node, command, order) in decided {
        commands.extend(command);
        orders.push(OrderedView { node, order });
    }
    if request.order == "update" && !request.request.no_canary {
        roll_out(&inventory, &mut commands);
    }
    let (warnings, removed) = (roles::warnings(&shared, &commands), remove::of(&commands));
    match commands.len() {
        0 => {}
        1 => drop(propose(&shared, &by, commands.remove(0)).await?),
        _ => drop(propose(&shared, &by, Command::Batch(commands)).await?),
    }
    remove::tell(&shared, &inventory, &removed);
    Ok(axum::Json(OrdersView { version: 1, orders, warnings }))
}

/// Of several nodes of one group that are updated together one goes first, and the others once it has ended well; which one is
/// found out by [`crate::model::may_open`].
fn roll_out(inventory: &Inventory, commands: &mut [Command]) {
    let group = |id: NodeId| inventory.node(id).and_then(|n| inventory.group(n)).map(|(name, _)| name);
    let mut sizes = BTreeMap::<&GroupName, usize>::new();
    for name in commands.iter().filter_map(Command::in_batch).filter_map(group) {
        *sizes.entry(name).or_default() += 1;
    }
    for command in commands {
        if let Command::Want { node, want } = command {
            want.rollout = group(*node).and_then(|name| sizes.get(name)).is_some_and(|many| *many > 1);
        }
    }
}

pub async fn resume_fleet(State(shared): State<Arc<Shared>>, caller: Caller, _: Strict<Nothing>) -> Answer<OrderView> {
    let by = operator(&shared, &caller)?;
    propose(&shared, &by, Command::Resume).await?;
    Ok(axum::Json(said("the breaker is closed; waiting re-setups begin within the budgets")))
}

pub async fn cancel(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    Path(id): Path<u64>,
    Strict(request): Strict<CancelRequest>,
) -> Answer<OrderView> {
    let by = operator(&shared, &caller)?;
    let (command, view) = cancelled(&shared.inventory(), JobId(id), &by, request.now);
    propose(&shared, &by, command).await?;
    Ok(axum::Json(view))
}

/// The task under way may finish; `now` ends it, also where the job was cancelled before.
fn cancelled(inventory: &Inventory, id: JobId, by: &str, now: bool) -> (Command, OrderView) {
    let running = inventory.job(id).is_some_and(|j| j.open_attempt().is_some());
    let node = inventory.job(id).and_then(|j| inventory.node(j.node)).map_or("NODE", |n| n.name().as_str());
    let task = match (running, now) {
        (_, true) => "; what still runs is ended at once",
        (true, false) => "; its current task is let finish (--now ends it)",
        (false, false) => "",
    };
    let view = said(&format!("job {id} is cancelled{task}; {node} is held until `remoor resume {node}`"));
    let how = if now { ", at once" } else { "" };
    (Command::CancelJob { job: id, why: format!("cancelled by {by}{how}"), now }, view)
}

pub(super) struct Desk<'a> {
    pub shared: &'a Arc<Shared>,
    pub by: &'a str,
    pub node: &'a Node,
    pub request: &'a OrderRequest,
}

/// What a re-setup of a node would be about.
pub(super) struct Judged {
    pub verdict: Verdict,
    pub reasons: Vec<Reason>,
    /// None: there is nothing to do. Empty: the whole group.
    pub services: Option<Vec<ServiceName>>,
}

/// The services of a node that drifted and can be set up again, none for a mere alert. None: all that drifted is only looked at.
fn about(inventory: &Inventory, known: &[ServiceName], reasons: &[Reason]) -> Option<BTreeSet<ServiceName>> {
    let drifted = reasons.iter().filter(|r| r.drifts() && !inventory.watches(&r.service)).map(|r| &r.service);
    (!inventory.only_watched(reasons)).then(|| drifted.filter(|service| known.contains(service)).cloned().collect())
}

impl Desk<'_> {
    async fn decide(&self, verb: &str) -> Result<Decided, Failure> {
        let (id, name) = (self.node.id, self.node.name());
        let simple = |command, text: &str| Ok((Some(command), said(&format!("{name} {text}"))));
        self.check_vars(verb)?;
        match verb {
            "resetup" => self.resetup().await,
            "commission" => self.commission(),
            "decommission" => self.decommission(),
            "update" => self.update(),
            "pause" => simple(
                Command::Availability { node: id, availability: Availability::Pause },
                "is paused: examined and reported only",
            ),
            "resume" => Ok(self.resume()),
            "drain" => self.drain(),
            "zone" => Ok(self.zone()),
            "maintenance" => self.maintenance(),
            "promote" => roles::change(self, ClusterRole::Manager),
            "demote" => roles::change(self, ClusterRole::Worker),
            "remove" => remove::decide(self),
            "trust-key" => self.trust_key().await,
            "cancel" => self.cancel(),
            other => Err(Failure::new(Code::NotFound, format!("there is no order {other}"))),
        }
    }

    /// What is rendered with variables of the job is the whole group, so that all of it agrees with them afterwards.
    pub fn check_vars(&self, verb: &str) -> Result<(), Failure> {
        if self.request.vars.is_empty() {
            return Ok(());
        }
        if !matches!(verb, "resetup" | "update" | "commission") {
            return Err(Failure::new(Code::BadRequest, format!("{verb} takes no variables")));
        }
        if !self.request.services.is_empty() {
            let text = "variables are for all services of a node; leave either them or the services out";
            return Err(Failure::new(Code::BadRequest, text));
        }
        super::vars::check(&self.request.vars)
    }

    /// The job of the node, or else what is queued for it.
    fn cancel(&self) -> Result<Decided, Failure> {
        let (name, by) = (self.node.name(), self.by);
        if let Some(job) = self.node.job {
            let (command, view) = cancelled(&self.shared.inventory(), job, by, self.request.now);
            return Ok((Some(command), view));
        }
        let Some(want) = &self.node.want else {
            let text = format!("{name} has no open job, and nothing is queued for it");
            return Err(Failure::new(Code::Refused, text).next(format!("remoor job list --node {name}")));
        };
        let what = match (want.undo, want.decommission) {
            (Some(attempt), _) => format!("undo of attempt {attempt}"),
            (None, true) => "decommissioning".to_owned(),
            (None, false) => "re-setup".to_owned(),
        };
        let held = if want.by.is_none() { format!("; it is held until `remoor resume {name}`") } else { String::new() };
        let command = Command::DropWant { node: self.node.id, why: format!("called off by {by}") };
        Ok((Some(command), said(&format!("{name}: the queued {what} is called off{held}"))))
    }

    /// The order as the state machine knows it.
    pub fn wanted(
        &self,
        occasion: Occasion,
        services: Vec<ServiceName>,
        reasons: Vec<Reason>,
        decommission: bool,
    ) -> Want {
        let OrderRequest { now, force, .. } = *self.request;
        let (by, force) = (Some(self.by.to_owned()), force && !decommission);
        let vars = self.request.vars.clone();
        Want { reasons, services, by, now, decommission, force, vars, ..Want::new(occasion, wall()) }
    }

    fn want(&self, want: Want) -> Result<Decided, Failure> {
        let name = self.node.name();
        let insisted = want.force && self.node.agent_down();
        let away = self.node.absence.as_ref().filter(|a| a.returned.is_none() && !insisted);
        if let Some(absence) = away
            && self.request.no_queue
        {
            let since = crate::rpc::wire::rfc3339(absence.last_seen);
            let text = format!("{name} is away since {since}; nothing was queued");
            return Err(Failure::new(Code::Refused, text).next(format!("remoor wait {name} --for=alive")));
        }
        let view = match away {
            Some(absence) => OrderView {
                version: 1,
                text: format!(
                    "queued: {name} is away since {}; it is done once on its return",
                    crate::rpc::wire::rfc3339(absence.last_seen)
                ),
                queued: true,
                ..OrderView::default()
            },
            None => said(&format!("{name}: ordered{}", self.behind(&want.services))),
        };
        Ok((Some(Command::Want { node: self.node.id, want: Box::new(want) }), view))
    }

    /// That a part of the node is set up from an older generation than the one that is applied.
    fn behind(&self, services: &[ServiceName]) -> String {
        let inventory = self.shared.inventory();
        let (name, current, source) = (self.node.name(), inventory.current, inventory.source(self.node, services));
        match source == current {
            true => String::new(),
            false => {
                format!(" from generation {source}, which {name} is of; remoor update {name} brings it to {current}")
            }
        }
    }

    /// Who was never set up, or is no more, is set up by `commission` only.
    fn in_service(&self) -> Result<(), Failure> {
        let name = self.node.name();
        let text = match self.node.lifecycle {
            Lifecycle::Commissioning | Lifecycle::Commissioned => return Ok(()),
            Lifecycle::Accepted => format!("{name} was never commissioned"),
            out @ (Lifecycle::Decommissioning | Lifecycle::Decommissioned) => {
                format!("{name} is {} and is not set up again", out.word())
            }
        };
        Err(Failure::new(Code::Refused, text).next(format!("remoor commission {name}")))
    }

    /// Refuses what is no re-setup of this node in the first place.
    pub fn may_resetup(&self, inventory: &Inventory) -> Result<(), Failure> {
        let name = self.node.name();
        let asked: Vec<ServiceName> = self.request.services.iter().map(|s| s.as_str().into()).collect();
        let source = inventory.source(self.node, &asked);
        let known = inventory.generations.get(&source).map(|g| g.services_of(name).to_vec()).unwrap_or_default();
        if let Some(unknown) = asked.iter().find(|s| !known.contains(s)) {
            let whole = if source == inventory.current { String::new() } else { format!(" of generation {source}") };
            let text = format!("{name}{whole} has no service {unknown}; it has: {}", list(&known));
            return Err(Failure::new(Code::NotFound, text).next(format!("remoor nodes {name}")));
        }
        if let Some(watched) = asked.iter().find(|s| inventory.watches(s)) {
            let text = format!("{watched} is only looked at, not provisioned: there is nothing to set up");
            return Err(Failure::new(Code::Refused, text).next(format!("remoor check {name}")));
        }
        if self.node.agent_down() && !self.request.force {
            let text = format!("the agent of {name} is silent while its host answers");
            return Err(Failure::new(Code::Refused, text).next(format!("remoor resetup {name} --force")));
        }
        self.in_service()
    }

    /// What a re-setup would be about, after what was found.
    pub fn judged(&self, inventory: &Inventory, evidence: &Evidence) -> Judged {
        let asked: Vec<ServiceName> = self.request.services.iter().map(|s| s.as_str().into()).collect();
        let known = inventory.group(self.node).map(|(_, g)| g.services.clone()).unwrap_or_default();
        let (verdict, reasons) = engine::compare(inventory, self.node, evidence);
        let about = about(inventory, &known, &reasons);
        let services = match (&verdict, inventory.generation()) {
            _ if self.request.force || !asked.is_empty() => Some(asked),
            (Verdict::Same, _) => None,
            (Verdict::Drifted, _) if about.is_none() && self.request.vars.is_empty() => None,
            (Verdict::Conflict, _) if inventory.own_move(self.node).is_some() => Some(Vec::new()),
            (Verdict::Drifted | Verdict::Conflict, Some(generation)) if self.request.vars.is_empty() => {
                Some(engine::with_dependents(&generation.summary, &about.unwrap_or_default()))
            }
            _ => Some(Vec::new()),
        };
        Judged { verdict, reasons, services }
    }

    async fn resetup(&self) -> Result<Decided, Failure> {
        let name = self.node.name();
        let inventory = self.shared.inventory();
        self.may_resetup(&inventory)?;
        if self.request.force || self.node.away() {
            let services = self.request.services.iter().map(|s| s.as_str().into()).collect();
            return self.want(self.wanted(Occasion::Live, services, Vec::new(), false));
        }
        let evidence = match look(self.shared, self.node).await {
            // Nobody can look: it is queued like an order for a node that is away.
            Err(failure) if is_no_route(&failure) && !self.request.no_queue => {
                let services = self.request.services.iter().map(|s| s.as_str().into()).collect();
                let want = self.wanted(Occasion::Live, services, Vec::new(), false);
                let text = format!("queued: blocked: no route to {name}; it is done once a manager reaches it");
                let view = OrderView { version: 1, text, queued: true, ..OrderView::default() };
                return Ok((Some(Command::Want { node: self.node.id, want: Box::new(want) }), view));
            }
            looked => looked?,
        };
        let judged = self.judged(&inventory, &evidence);
        if let Verdict::Unknown(why) = &judged.verdict
            && evidence.expected.is_some()
        {
            let text = format!("{name} could not be judged: {why}");
            return Err(Failure::new(Code::Refused, text).next(format!("remoor resetup {name} --force")));
        }
        match judged.services {
            None if judged.verdict == Verdict::Drifted => {
                let text = format!("what differs on {name} is only looked at, not provisioned: nothing to do");
                Ok((None, nothing(text)))
            }
            None if self.request.vars.is_empty() => {
                Ok((None, nothing(format!("{name} is as it should be: nothing to do"))))
            }
            None => Ok((None, nothing(format!("{name} is as it should be: nothing to do without --force")))),
            Some(services) => self.want(self.wanted(Occasion::Live, services, judged.reasons, false)),
        }
    }

    fn commission(&self) -> Result<Decided, Failure> {
        if self.node.watched {
            let name = self.node.name();
            if !self.request.vars.is_empty() {
                let text =
                    format!("{name} was adopted: it is entrusted to remoor and nothing is run, so variables are lost");
                return Err(Failure::new(Code::Refused, text).next(format!("remoor commission {name} without them")));
            }
            let text = "was adopted, and is entrusted to remoor now: the policies of its group hold; nothing was run";
            return Ok((Some(Command::Entrust { node: self.node.id }), nothing(format!("{name} {text}"))));
        }
        if self.node.lifecycle == Lifecycle::Commissioned {
            let text = format!("{} is commissioned already", self.node.name());
            return Ok((None, nothing(text)));
        }
        let want = self.wanted(Occasion::Apply, Vec::new(), Vec::new(), false);
        self.want(Want { commission: true, ..want })
    }

    fn decommission(&self) -> Result<Decided, Failure> {
        let name = self.node.name();
        if self.node.lifecycle == Lifecycle::Decommissioned {
            return Ok((None, nothing(format!("{name} is decommissioned already"))));
        }
        self.here_or_forced("decommission")?;
        self.want(self.wanted(Occasion::Apply, Vec::new(), Vec::new(), true))
    }

    /// A group's quorum is not waited for, as where a re-setup is to follow: the node would be missing for good.
    fn drain(&self) -> Result<Decided, Failure> {
        let (id, name) = (self.node.id, self.node.name());
        let inventory = self.shared.inventory();
        let want = self.wanted(Occasion::Apply, Vec::new(), Vec::new(), true);
        if !inventory.may_hold(self.node) {
            let text = format!("{name} is drained: nothing is provisioned on it, and nothing of remoor's was there");
            return Ok((Some(Command::Drain { node: id, want: Box::new(want) }), nothing(text)));
        }
        self.here_or_forced("drain")?;
        let obstacles = Ground::new(&inventory).obstacles(self.node, &want, wall());
        if let Some(Wait::Quorum(why)) = obstacles.into_iter().find(|wait| matches!(wait, Wait::Quorum(_))) {
            return Err(Failure::new(Code::Refused, format!("{name} is needed: {why}")).next("remoor status"));
        }
        let (command, view) = self.want(want)?;
        let command = command.map(|command| match command {
            Command::Want { node, want } => Command::Drain { node, want },
            other => other,
        });
        Ok((command, view))
    }

    fn resume(&self) -> Decided {
        let (id, name) = (self.node.id, self.node.name());
        let drained = self.node.availability == Availability::Drain;
        let inventory = self.shared.inventory();
        let held = self.node.job.and_then(|job| inventory.job(job)).is_some_and(|job| job.decommission);
        if drained && held {
            let text = format!("the cleanup of {name} is tried again; it stays drained");
            return (Some(Command::ResumeNode { node: id }), said(&text));
        }
        let next = match self.node.lifecycle {
            Lifecycle::Decommissioned if drained => format!("; remoor commission {name} sets it up again"),
            _ => String::new(),
        };
        (Some(Command::ResumeNode { node: id }), said(&format!("{name} is active again{next}")))
    }

    fn zone(&self) -> Decided {
        let (id, name, zone) = (self.node.id, self.node.name(), self.request.zone.clone());
        let text = if zone.is_empty() { format!("{name} is in no zone") } else { format!("{name} is in zone {zone}") };
        (Some(Command::Zone { node: id, zone }), said(&text))
    }

    /// What is cleaned up for good is not queued for a return without a word.
    fn here_or_forced(&self, verb: &str) -> Result<(), Failure> {
        let name = self.node.name();
        match self.node.absence.as_ref().filter(|a| a.returned.is_none() && !self.request.force) {
            Some(absence) => {
                let text = format!("{name} is away since {}", crate::rpc::wire::rfc3339(absence.last_seen));
                let next = format!("remoor {verb} {name} --force cleans it up on its return");
                Err(Failure::new(Code::Refused, text).next(next))
            }
            None => Ok(()),
        }
    }

    /// Never sets up who was not set up before, or not any more: a roll-out is no commissioning.
    fn update(&self) -> Result<Decided, Failure> {
        let inventory = self.shared.inventory();
        self.in_service()?;
        let applied = self.node.baseline.as_ref().map(|b| b.desired);
        if applied.is_some() && applied == inventory.desired(self.node) {
            let text = format!("{} has generation {} already", self.node.name(), inventory.current);
            return Ok((None, nothing(text)));
        }
        self.want(self.wanted(Occasion::Apply, Vec::new(), Vec::new(), false))
    }

    fn maintenance(&self) -> Result<Decided, Failure> {
        let until = (self.request.for_ms > 0).then(|| wall().after(self.request.for_ms));
        let text = match until {
            Some(until) => format!("is in maintenance until {}", crate::rpc::wire::rfc3339(until)),
            None => "is no longer in maintenance".to_owned(),
        };
        Ok((Some(Command::Maintenance { node: self.node.id, until }), said(&format!("{} {text}", self.node.name()))))
    }

    /// The key that is offered now must have the fingerprint that the operator names; it alone is trusted, beside recorded
    /// ones that the host still offers. The other keys of the scan nobody has compared: whoever answered has written them.
    async fn trust_key(&self) -> Result<Decided, Failure> {
        let name = self.node.name();
        let target = examine::target(self.shared, self.node.id).await;
        let target = target.map_err(|e| Failure::new(Code::Refused, e.to_string()))?;
        let offered = self.shared.remote.host_keys(&target, SCAN_TIMEOUT).await;
        let offered = offered.map_err(|e| Failure::new(Code::Timeout, format!("{name} offers no host key: {e}")))?;
        let prints: Vec<String> = offered.iter().filter_map(|k| crate::ssh::fingerprint(k)).collect();
        if !prints.contains(&self.request.fingerprint) {
            let text = format!("{name} offers {}, not {}", prints.join(", "), self.request.fingerprint);
            return Err(Failure::new(Code::Refused, text).next("compare it with ssh-keygen -lf on the host's console"));
        }
        let keys = compared(offered, &self.request.fingerprint, &self.node.spec.ssh_host_keys);
        let command = Command::TrustKey { node: self.node.id, keys };
        Ok((Some(command), said(&format!("{name} is trusted with its host key {}", self.request.fingerprint))))
    }
}

/// Of the offered keys those that somebody has compared: the one of this fingerprint, and those recorded before.
fn compared(offered: Vec<String>, fingerprint: &str, recorded: &[String]) -> Vec<String> {
    let print = |line: &str| crate::ssh::fingerprint(line);
    let known: BTreeSet<String> = recorded.iter().filter_map(|k| print(k)).chain([fingerprint.to_owned()]).collect();
    offered.into_iter().filter(|k| print(k).is_some_and(|p| known.contains(&p))).collect()
}

pub(super) fn said(text: &str) -> OrderView {
    OrderView { version: 1, text: text.to_owned(), ..OrderView::default() }
}

fn nothing(text: String) -> OrderView {
    OrderView { version: 1, text, nothing_to_do: true, ..OrderView::default() }
}

fn list(services: &[ServiceName]) -> String {
    services.iter().map(ServiceName::as_str).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{
        Applied, Entry, FleetSummary, GroupSummary, HostSummary, NodeSpec, ServiceSummary, Sha256, Wall, Witness,
    };

    #[test]
    fn those_of_one_group_that_are_updated_together_are_a_roll_out() {
        let mut inventory = Inventory::default();
        let mut summary = FleetSummary::default();
        let mut ids = Vec::new();
        let write = |inventory: &mut Inventory, command| {
            let index = inventory.applied + 1;
            inventory.apply(index, &Entry { at: Wall(index), by: "admin".to_owned(), command })
        };
        for (name, group) in [("w1", "web"), ("w2", "web"), ("d1", "db")] {
            let spec = NodeSpec { name: name.into(), public_key: name.to_owned(), ..NodeSpec::default() };
            let applied = write(&mut inventory, Command::Accept { spec, role: ClusterRole::Worker });
            let Applied::Node(id) = applied else { panic!("{applied:?}") };
            ids.push(id);
            summary.hosts.insert(name.into(), HostSummary { group: group.into(), desired: Sha256::of(b"two") });
            summary.groups.insert(group.into(), GroupSummary::default());
        }
        write(&mut inventory, Command::Generation { blob: Sha256::of(b"files"), summary: Box::new(summary) });
        let marked = |ids: &[NodeId]| {
            let want = |node: &NodeId| Command::Want {
                node: *node,
                want: Box::new(Want { by: Some("admin".to_owned()), ..Want::new(Occasion::Apply, Wall(1)) }),
            };
            let mut commands: Vec<Command> = ids.iter().map(want).collect();
            roll_out(&inventory, &mut commands);
            let marks = commands.iter().map(|c| matches!(c, Command::Want { want, .. } if want.rollout));
            marks.collect::<Vec<bool>>()
        };
        assert_eq!(marked(&ids), [true, true, false], "one of a group is alone in it");
        assert_eq!(marked(&ids[1..]), [false, false]);
        assert_eq!(marked(&ids[..1]), [false]);
    }

    #[test]
    fn what_is_only_looked_at_is_no_part_of_a_resetup() {
        let mut summary = FleetSummary::default();
        for (name, watched) in [("app", false), ("clock", true), ("other", false)] {
            summary.services.insert(name.into(), ServiceSummary { watched, ..ServiceSummary::default() });
        }
        let mut inventory = Inventory::default();
        let command = Command::Generation { blob: Sha256::of(b"files"), summary: Box::new(summary) };
        inventory.apply(1, &Entry { at: Wall(1), by: "admin".to_owned(), command });
        let reason = |service: &str, by| Reason::new(by, service.into(), "differs".to_owned(), false);
        let of = |digest: &[&str], check: &[&str], desired: &[&str]| {
            let by = [(digest, Witness::Digest), (check, Witness::Check), (desired, Witness::Desired)];
            let reasons = by.iter().flat_map(|(services, by)| services.iter().map(|service| reason(service, *by)));
            about(&inventory, &["app".into(), "clock".into()], &reasons.collect::<Vec<_>>())
        };
        let app = Some(BTreeSet::from(["app".into()]));
        assert_eq!(of(&["app", "clock", "other"], &[], &[]), app);
        assert_eq!(of(&["clock", "clock"], &[], &[]), None);
        assert_eq!(of(&["clock"], &["app"], &[]), None, "an alert of app is no drift of it");
        assert_eq!(of(&["app"], &["clock"], &[]), app);
        // What is desired is of no service.
        assert_eq!(of(&[], &[], &[""]), Some(BTreeSet::new()));
        assert_eq!(of(&[], &[], &[]), Some(BTreeSet::new()));
    }

    #[test]
    fn trusted_is_only_what_somebody_compared() {
        let key = |kind: &str, data: &str| format!("{kind} {data}");
        let (new, other) = (key("ssh-ed25519", "AAAAbmV3"), key("ssh-rsa", "AAAAb3RoZXI="));
        let (old, gone) = (key("ecdsa-sha2-nistp256", "AAAAb2xk"), key("ssh-ed25519", "AAAAZ29uZQ=="));
        let print = crate::ssh::fingerprint(&new).expect("a key line");
        let offered = || vec![new.clone(), other.clone(), old.clone()];
        assert_eq!(compared(offered(), &print, &[]), std::slice::from_ref(&new));
        let recorded = [format!("{old} root@w1"), gone];
        assert_eq!(
            compared(offered(), &print, &recorded),
            [new.clone(), old.clone()],
            "one that it offers no more goes"
        );
    }
}
