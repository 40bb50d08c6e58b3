//! Orders for nodes. A refused order changes nothing. An order that needs evidence examines the
//! node first, over SSH. An order for several nodes is one log entry, which is accepted or refused
//! for all of these nodes.

use super::super::{ManagerContext, examine, wall};
use super::examination::{examine_node, is_no_route};
use super::{Actor, leave, propose, remove, roles};
use axum::Extension;
use axum::extract::{Path, State};
use futures_util::{StreamExt, TryStreamExt};
use remoor_cluster::rpc::view::{
    CancelRequest, Nothing, OrderRequest, OrderView, OrderedView, OrdersRequest, OrdersView,
};
use remoor_cluster::rpc::wire::{ApiFailure, Code, Strict, rfc3339};
use remoor_engine::{self as engine, Evidence};
use remoor_model::{
    Availability, BATCH_MAX, ClusterRole, Command, FleetView, GroupName, Inventory, JobId, JobSpec, Lifecycle, Node,
    NodeId, Reason, ResetupRequest, ServiceName, Trigger, Verdict, Wait,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

const SCAN_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of nodes that one order examines at the same time.
const LOOKS_MAX: usize = 16;

type Answer<T> = Result<axum::Json<T>, ApiFailure>;
/// The command to propose for one node, if any, and the answer after it is applied.
pub(super) type Decided = (Option<Command>, OrderView);

/// Handles an order for one node: `resetup`, `commission`, `decommission`, `drain`, `update`,
/// `pause`, `resume`, `maintenance`, `zone`, `promote`, `demote`, `remove`, `trust-key` or
/// `cancel`.
pub async fn order(
    State(shared): State<Arc<ManagerContext>>,
    Extension(by): Extension<Actor>,
    Path((name, verb)): Path<(String, String)>,
    Strict(request): Strict<OrderRequest>,
) -> Answer<OrderView> {
    let inventory = shared.inventory();
    let node = leave::node_of_order(&inventory, &name, &verb)?;
    let (command, mut view) = Desk { shared: &shared, by: &by, node: &node, request: &request }.decide(&verb).await?;
    if let Some(command) = command {
        view.warnings = roles::warnings(&shared, std::slice::from_ref(&command));
        let removed = remove::removed_nodes(std::slice::from_ref(&command));
        propose(&shared, &by, command).await?;
        remove::notify_removed(&shared, &inventory, &removed);
    }
    Ok(axum::Json(view))
}

/// Handles an order for several nodes. If the order is refused for one of the nodes, it is refused
/// for all of them.
pub async fn orders(
    State(shared): State<Arc<ManagerContext>>,
    Extension(by): Extension<Actor>,
    Strict(request): Strict<OrdersRequest>,
) -> Answer<OrdersView> {
    let names: BTreeSet<&String> = request.nodes.iter().collect();
    if names.is_empty() || names.len() > BATCH_MAX || names.len() < request.nodes.len() {
        let text = format!("an order takes 1 to {BATCH_MAX} nodes, each named once");
        return Err(ApiFailure::new(Code::BadRequest, text));
    }
    if matches!(request.order.as_str(), "trust-key" | "cancel") {
        return Err(ApiFailure::new(Code::BadRequest, format!("{} takes exactly one node", request.order)));
    }
    let inventory = shared.inventory();
    let node = |name: &String| leave::node_of_order(&inventory, name, &request.order);
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
    let (warnings, removed) = (roles::warnings(&shared, &commands), remove::removed_nodes(&commands));
    match commands.len() {
        0 => {}
        1 => drop(propose(&shared, &by, commands.remove(0)).await?),
        _ => drop(propose(&shared, &by, Command::Batch(commands)).await?),
    }
    remove::notify_removed(&shared, &inventory, &removed);
    Ok(axum::Json(OrdersView { version: 1, orders, warnings }))
}

/// Marks an update of several nodes of one group as a rollout. One node goes first, and the others
/// follow after its success. [`remoor_model::may_open`] chooses the first node.
fn roll_out(inventory: &Inventory, commands: &mut [Command]) {
    let group = |id: NodeId| inventory.node(id).and_then(|n| inventory.group(n)).map(|(name, _)| name);
    let mut sizes = BTreeMap::<&GroupName, usize>::new();
    for name in commands.iter().filter_map(Command::in_batch).filter_map(group) {
        *sizes.entry(name).or_default() += 1;
    }
    for command in commands {
        if let Command::RequestResetup { node, want } = command {
            want.spec.rollout = group(*node).and_then(|name| sizes.get(name)).is_some_and(|many| *many > 1);
        }
    }
}

pub async fn resume_fleet(
    State(shared): State<Arc<ManagerContext>>,
    Extension(by): Extension<Actor>,
    _: Strict<Nothing>,
) -> Answer<OrderView> {
    propose(&shared, &by, Command::Resume).await?;
    Ok(axum::Json(ok_view("the breaker is closed; waiting re-setups begin within the budgets")))
}

pub async fn cancel(
    State(shared): State<Arc<ManagerContext>>,
    Extension(by): Extension<Actor>,
    Path(id): Path<u64>,
    Strict(request): Strict<CancelRequest>,
) -> Answer<OrderView> {
    let (command, view) = cancel_job(&shared.inventory(), JobId(id), &by, request.now);
    propose(&shared, &by, command).await?;
    Ok(axum::Json(view))
}

/// Cancels a job. The current task may finish, unless `now` is set. If the job was cancelled
/// without `now` before, `now` still ends the task.
fn cancel_job(inventory: &Inventory, id: JobId, by: &str, now: bool) -> (Command, OrderView) {
    let running = inventory.job(id).is_some_and(|j| j.open_attempt().is_some());
    let node = inventory.job(id).and_then(|j| inventory.node(j.node)).map_or("NODE", |n| n.name().as_str());
    let task = match (running, now) {
        (_, true) => "; its current task is ended at once",
        (true, false) => "; its current task may finish (--now ends it)",
        (false, false) => "",
    };
    let view = ok_view(&format!("job {id} is cancelled{task}; {node} is held until `remoor resume {node}`"));
    let how = if now { ", at once" } else { "" };
    (Command::CancelJob { job: id, why: format!("cancelled by {by}{how}"), now }, view)
}

pub(super) struct Desk<'a> {
    pub shared: &'a Arc<ManagerContext>,
    pub by: &'a str,
    pub node: &'a Node,
    pub request: &'a OrderRequest,
}

/// The verdict on a node, and the services that an ordered re-setup of the node sets up because of
/// it.
pub(super) struct ResetupScope {
    pub verdict: Verdict,
    pub reasons: Vec<Reason>,
    /// The services to set up. None if there is nothing to do; an empty list for all services of
    /// the node.
    pub services: Option<Vec<ServiceName>>,
}

/// The services of a node that drifted and can be set up again. Failed checks that only alert do
/// not count. None if only monitor-only services drifted.
fn drifted_services(inventory: &Inventory, known: &[ServiceName], reasons: &[Reason]) -> Option<BTreeSet<ServiceName>> {
    let drifted = reasons.iter().filter(|r| r.drifts() && !inventory.is_monitor_only(&r.service)).map(|r| &r.service);
    (!inventory.drifts_only_monitored(reasons))
        .then(|| drifted.filter(|service| known.contains(service)).cloned().collect())
}

impl Desk<'_> {
    async fn decide(&self, verb: &str) -> Result<Decided, ApiFailure> {
        let (id, name) = (self.node.id, self.node.name());
        let simple = |command, text: &str| Ok((Some(command), ok_view(&format!("{name} {text}"))));
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
            other => Err(ApiFailure::new(Code::NotFound, format!("unknown order {other}"))),
        }
    }

    /// Checks the order's variables. They apply to all services of a node, so an order for single
    /// services can't have variables.
    pub fn check_vars(&self, verb: &str) -> Result<(), ApiFailure> {
        if self.request.vars.is_empty() {
            return Ok(());
        }
        if !matches!(verb, "resetup" | "update" | "commission") {
            return Err(ApiFailure::new(Code::BadRequest, format!("{verb} takes no variables")));
        }
        if !self.request.services.is_empty() {
            let text = "variables apply to all services of a node; give either variables or services, not both";
            return Err(ApiFailure::new(Code::BadRequest, text));
        }
        super::vars::check(&self.request.vars)
    }

    /// Cancels the node's job. If the node has no job, cancels its queued request.
    fn cancel(&self) -> Result<Decided, ApiFailure> {
        let (name, by) = (self.node.name(), self.by);
        if let Some(job) = self.node.job {
            let (command, view) = cancel_job(&self.shared.inventory(), job, by, self.request.now);
            return Ok((Some(command), view));
        }
        let Some(want) = &self.node.pending_resetup else {
            let text = format!("{name} has no open job, and nothing is queued for it");
            return Err(ApiFailure::new(Code::Refused, text).next(format!("remoor job list --node {name}")));
        };
        let what = match (want.spec.undo, want.spec.decommission) {
            (Some(attempt), _) => format!("undo of attempt {attempt}"),
            (None, true) => "decommissioning".to_owned(),
            (None, false) => "re-setup".to_owned(),
        };
        let automatic = want.spec.by.is_none();
        let held = if automatic { format!("; it is held until `remoor resume {name}`") } else { String::new() };
        let command = Command::DropRequest { node: self.node.id, why: format!("cancelled by {by}") };
        Ok((Some(command), ok_view(&format!("{name}: the queued {what} is cancelled{held}"))))
    }

    /// The re-setup request that is proposed to the state machine.
    pub fn build_request(
        &self,
        occasion: Trigger,
        services: Vec<ServiceName>,
        reasons: Vec<Reason>,
        decommission: bool,
    ) -> ResetupRequest {
        let OrderRequest { now, force, .. } = *self.request;
        let (by, force) = (Some(self.by.to_owned()), force && !decommission);
        let vars = self.request.vars.clone();
        JobSpec { reasons, services, by, now, decommission, force, vars, ..JobSpec::new(occasion) }.into_request(wall())
    }

    fn want(&self, want: ResetupRequest) -> Result<Decided, ApiFailure> {
        let name = self.node.name();
        let insisted = want.spec.force && self.node.agent_down();
        let away = self.node.absence.as_ref().filter(|a| a.returned.is_none() && !insisted);
        if let Some(absence) = away
            && self.request.no_queue
        {
            let since = rfc3339(absence.last_seen);
            let text = format!("{name} is away since {since}; nothing was queued");
            return Err(ApiFailure::new(Code::Refused, text).next(format!("remoor wait {name} --for=alive")));
        }
        let view = match away {
            Some(absence) => OrderView {
                version: 1,
                text: format!(
                    "queued: {name} is away since {}; it runs once the node returns",
                    rfc3339(absence.last_seen)
                ),
                queued: true,
                ..OrderView::default()
            },
            None => ok_view(&format!("{name}: ordered{}", self.older_generation_note(&want.spec.services))),
        };
        Ok((Some(Command::RequestResetup { node: self.node.id, want: Box::new(want) }), view))
    }

    /// A note that the services are set up from a generation that is older than the applied one. An
    /// empty text if they are set up from the applied one.
    fn older_generation_note(&self, services: &[ServiceName]) -> String {
        let inventory = self.shared.inventory();
        let (name, current, source) =
            (self.node.name(), inventory.current, inventory.source_generation(self.node, services));
        match source == current {
            true => String::new(),
            false => {
                format!(" from generation {source}, applied to {name}; remoor update {name} brings it to {current}")
            }
        }
    }

    /// Refuses a node that was never set up or that is decommissioned, because only `commission`
    /// sets it up.
    fn in_service(&self) -> Result<(), ApiFailure> {
        let name = self.node.name();
        let text = match self.node.lifecycle {
            Lifecycle::Commissioning | Lifecycle::Commissioned => return Ok(()),
            Lifecycle::Accepted => format!("{name} was never commissioned"),
            out @ (Lifecycle::Decommissioning | Lifecycle::Decommissioned) => {
                format!("{name} is {} and is not set up again", out.as_str())
            }
        };
        Err(ApiFailure::new(Code::Refused, text).next(format!("remoor commission {name}")))
    }

    /// Refuses an order if no re-setup of this node can carry it out.
    pub fn may_resetup(&self, inventory: &Inventory) -> Result<(), ApiFailure> {
        let name = self.node.name();
        let asked: Vec<ServiceName> = self.request.services.iter().map(|s| s.as_str().into()).collect();
        let source = inventory.source_generation(self.node, &asked);
        let known = inventory.generations.get(&source).map(|g| g.services_of(name).to_vec()).unwrap_or_default();
        if let Some(unknown) = asked.iter().find(|s| !known.contains(s)) {
            let whole = if source == inventory.current { String::new() } else { format!(" of generation {source}") };
            let text = format!("{name}{whole} has no service {unknown}; it has: {}", list(&known));
            return Err(ApiFailure::new(Code::NotFound, text).next(format!("remoor nodes {name}")));
        }
        if let Some(watched) = asked.iter().find(|s| inventory.is_monitor_only(s)) {
            let text = format!("{watched} is monitor-only, not provisioned: there is nothing to set up");
            return Err(ApiFailure::new(Code::Refused, text).next(format!("remoor check {name}")));
        }
        if self.node.agent_down() && !self.request.force {
            let text = format!("the agent of {name} is silent while its host answers");
            return Err(ApiFailure::new(Code::Refused, text).next(format!("remoor resetup {name} --force")));
        }
        self.in_service()
    }

    /// Decides from the evidence which services a re-setup sets up.
    pub fn judge(&self, inventory: &Inventory, evidence: &Evidence) -> ResetupScope {
        let asked: Vec<ServiceName> = self.request.services.iter().map(|s| s.as_str().into()).collect();
        let known = inventory.group(self.node).map(|(_, g)| g.services.clone()).unwrap_or_default();
        let (verdict, reasons) = engine::compare(inventory, self.node, evidence);
        let about = drifted_services(inventory, &known, &reasons);
        let services = match (&verdict, inventory.generation()) {
            _ if self.request.force || !asked.is_empty() => Some(asked),
            (Verdict::Same, _) => None,
            (Verdict::Drifted, _) if about.is_none() && self.request.vars.is_empty() => None,
            (Verdict::Conflict, _) if inventory.own_address_change(self.node).is_some() => Some(Vec::new()),
            (Verdict::Drifted | Verdict::Conflict, Some(generation)) if self.request.vars.is_empty() => {
                Some(engine::with_dependents(&generation.summary, &about.unwrap_or_default()))
            }
            _ => Some(Vec::new()),
        };
        ResetupScope { verdict, reasons, services }
    }

    async fn resetup(&self) -> Result<Decided, ApiFailure> {
        let name = self.node.name();
        let inventory = self.shared.inventory();
        self.may_resetup(&inventory)?;
        if self.request.force || self.node.is_away() {
            let services = self.request.services.iter().map(|s| s.as_str().into()).collect();
            return self.want(self.build_request(Trigger::Live, services, Vec::new(), false));
        }
        let evidence = match examine_node(self.shared, self.node).await {
            // No manager can examine the node, so the order is queued, as for an absent node.
            Err(failure) if is_no_route(&failure) && !self.request.no_queue => {
                let services = self.request.services.iter().map(|s| s.as_str().into()).collect();
                let want = self.build_request(Trigger::Live, services, Vec::new(), false);
                let text = format!("queued: blocked: no route to {name}; it runs once a manager reaches the node");
                let view = OrderView { version: 1, text, queued: true, ..OrderView::default() };
                return Ok((Some(Command::RequestResetup { node: self.node.id, want: Box::new(want) }), view));
            }
            looked => looked?,
        };
        let judged = self.judge(&inventory, &evidence);
        if let Verdict::Unknown(why) = &judged.verdict
            && evidence.expected.is_some()
        {
            let text = format!("{name} could not be judged: {why}");
            return Err(ApiFailure::new(Code::Refused, text).next(format!("remoor resetup {name} --force")));
        }
        match judged.services {
            None if judged.verdict == Verdict::Drifted => {
                let text = format!("what differs on {name} is monitor-only, not provisioned: nothing to do");
                Ok((None, nothing_to_do_view(text)))
            }
            None if self.request.vars.is_empty() => {
                Ok((None, nothing_to_do_view(format!("{name} is as it should be: nothing to do"))))
            }
            None => Ok((None, nothing_to_do_view(format!("{name} is as it should be: nothing to do without --force")))),
            Some(services) => self.want(self.build_request(Trigger::Live, services, judged.reasons, false)),
        }
    }

    fn commission(&self) -> Result<Decided, ApiFailure> {
        if self.node.setup.adopted_only {
            let name = self.node.name();
            if !self.request.vars.is_empty() {
                let text = format!("{name} was adopted: commissioning runs nothing on it, so variables have no effect");
                return Err(ApiFailure::new(Code::Refused, text).next(format!("remoor commission {name} without them")));
            }
            let text = "was adopted; from now on the policies of its group apply to it; nothing was run";
            return Ok((Some(Command::Entrust { node: self.node.id }), nothing_to_do_view(format!("{name} {text}"))));
        }
        if self.node.lifecycle == Lifecycle::Commissioned {
            let text = format!("{} is commissioned already", self.node.name());
            return Ok((None, nothing_to_do_view(text)));
        }
        let want = self.build_request(Trigger::Apply, Vec::new(), Vec::new(), false);
        self.want(ResetupRequest { commission: true, ..want })
    }

    fn decommission(&self) -> Result<Decided, ApiFailure> {
        let name = self.node.name();
        if self.node.lifecycle == Lifecycle::Decommissioned {
            return Ok((None, nothing_to_do_view(format!("{name} is decommissioned already"))));
        }
        self.here_or_forced("decommission")?;
        self.want(self.build_request(Trigger::Apply, Vec::new(), Vec::new(), true))
    }

    /// Drains a node. If the quorum of the node's group needs the node, the order is refused. It is
    /// not queued, because a drained node would be missing permanently.
    fn drain(&self) -> Result<Decided, ApiFailure> {
        let (id, name) = (self.node.id, self.node.name());
        let inventory = self.shared.inventory();
        let want = self.build_request(Trigger::Apply, Vec::new(), Vec::new(), true);
        if !inventory.may_contain_services(self.node) {
            let text = format!("{name} is drained: nothing is provisioned on it, and remoor had set up nothing there");
            return Ok((Some(Command::Drain { node: id, want: Box::new(want) }), nothing_to_do_view(text)));
        }
        self.here_or_forced("drain")?;
        let obstacles = FleetView::new(&inventory).obstacles(self.node, &want.spec, wall());
        if let Some(Wait::Quorum(why)) = obstacles.into_iter().find(|wait| matches!(wait, Wait::Quorum(_))) {
            return Err(ApiFailure::new(Code::Refused, format!("{name} is needed: {why}")).next("remoor status"));
        }
        let (command, view) = self.want(want)?;
        let command = command.map(|command| match command {
            Command::RequestResetup { node, want } => Command::Drain { node, want },
            other => other,
        });
        Ok((command, view))
    }

    fn resume(&self) -> Decided {
        let (id, name) = (self.node.id, self.node.name());
        let drained = self.node.availability == Availability::Drain;
        let inventory = self.shared.inventory();
        let held = self.node.job.and_then(|job| inventory.job(job)).is_some_and(|job| job.spec.decommission);
        if drained && held {
            let text = format!("the cleanup of {name} is retried; it stays drained");
            return (Some(Command::ResumeNode { node: id }), ok_view(&text));
        }
        let next = match self.node.lifecycle {
            Lifecycle::Decommissioned if drained => format!("; remoor commission {name} sets it up again"),
            _ => String::new(),
        };
        (Some(Command::ResumeNode { node: id }), ok_view(&format!("{name} is active again{next}")))
    }

    fn zone(&self) -> Decided {
        let (id, name, zone) = (self.node.id, self.node.name(), self.request.zone.clone());
        let text = if zone.is_empty() { format!("{name} is in no zone") } else { format!("{name} is in zone {zone}") };
        (Some(Command::Zone { node: id, zone }), ok_view(&text))
    }

    /// Refuses an order whose cleanup would wait for the return of an absent node, unless the
    /// operator uses `--force`.
    fn here_or_forced(&self, verb: &str) -> Result<(), ApiFailure> {
        let name = self.node.name();
        match self.node.absence.as_ref().filter(|a| a.returned.is_none() && !self.request.force) {
            Some(absence) => {
                let text = format!("{name} is away since {}", rfc3339(absence.last_seen));
                let next = format!("remoor {verb} {name} --force cleans it up on its return");
                Err(ApiFailure::new(Code::Refused, text).next(next))
            }
            None => Ok(()),
        }
    }

    /// Handles an update. It refuses a node that was never set up or is decommissioned, because a
    /// rollout does not commission.
    fn update(&self) -> Result<Decided, ApiFailure> {
        let inventory = self.shared.inventory();
        self.in_service()?;
        let applied = self.node.setup.baseline.as_ref().map(|b| b.desired);
        if applied.is_some() && applied == inventory.desired_hash(self.node) {
            let text = format!("{} has generation {} already", self.node.name(), inventory.current);
            return Ok((None, nothing_to_do_view(text)));
        }
        self.want(self.build_request(Trigger::Apply, Vec::new(), Vec::new(), false))
    }

    fn maintenance(&self) -> Result<Decided, ApiFailure> {
        let until = (self.request.for_ms > 0).then(|| wall().plus_ms(self.request.for_ms));
        let text = match until {
            Some(until) => format!("is in maintenance until {}", rfc3339(until)),
            None => "is no longer in maintenance".to_owned(),
        };
        Ok((Some(Command::Maintenance { node: self.node.id, until }), ok_view(&format!("{} {text}", self.node.name()))))
    }

    /// Trusts the host key with the fingerprint that the operator gave, and recorded keys that are
    /// still offered. Other offered keys are not trusted, because nobody has compared them.
    async fn trust_key(&self) -> Result<Decided, ApiFailure> {
        let name = self.node.name();
        let target = examine::target(self.shared, self.node.id).await;
        let target = target.map_err(|e| ApiFailure::new(Code::Refused, e.to_string()))?;
        let offered = self.shared.remote.host_keys(&target, SCAN_TIMEOUT).await;
        let offered = offered.map_err(|e| ApiFailure::new(Code::Timeout, format!("{name} offers no host key: {e}")))?;
        let prints: Vec<String> = offered.iter().filter_map(|k| remoor_exec::ssh::fingerprint(k)).collect();
        if !prints.contains(&self.request.fingerprint) {
            let text = format!("{name} offers {}, not {}", prints.join(", "), self.request.fingerprint);
            return Err(
                ApiFailure::new(Code::Refused, text).next("compare it with ssh-keygen -lf on the host's console")
            );
        }
        let keys = compared_keys(offered, &self.request.fingerprint, &self.node.spec.ssh_host_keys);
        let command = Command::TrustKey { node: self.node.id, keys };
        Ok((Some(command), ok_view(&format!("{name} is trusted with its host key {}", self.request.fingerprint))))
    }
}

/// The offered keys that somebody has compared: the key with this fingerprint, and recorded keys.
fn compared_keys(offered: Vec<String>, fingerprint: &str, recorded: &[String]) -> Vec<String> {
    let print = |line: &str| remoor_exec::ssh::fingerprint(line);
    let known: BTreeSet<String> = recorded.iter().filter_map(|k| print(k)).chain([fingerprint.to_owned()]).collect();
    offered.into_iter().filter(|k| print(k).is_some_and(|p| known.contains(&p))).collect()
}

pub(super) fn ok_view(text: &str) -> OrderView {
    OrderView { version: 1, text: text.to_owned(), ..OrderView::default() }
}

fn nothing_to_do_view(text: String) -> OrderView {
    OrderView { version: 1, text, nothing_to_do: true, ..OrderView::default() }
}

fn list(services: &[ServiceName]) -> String {
    services.iter().map(ServiceName::as_str).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests;
