//! `POST /v1/nodes/{name}/plan`: what a re-setup of the node would run, and the reasons against the
//! re-setup. The request examines the node and changes nothing on it.
//!
//! The plan lists the selected tasks, but not their effects, because only the node can determine
//! the effects.

use super::super::{ManagerContext, blobs};
use super::examination::examine_node;
use super::order::Desk;
use super::{Actor, as_of, find_node};
use crate::fleet::{self, ClusterContext, PlanScope};
use axum::Extension;
use axum::extract::{Path, State};
use remoor_cluster::rpc::view::{OrderRequest, PlanTaskView, PlanView};
use remoor_cluster::rpc::wire::{ApiFailure, Code, Strict};
use remoor_config::Provisioner;
use remoor_model::{FleetView, Generation, JobState, JobVars, Node, Phase, ServiceName, Trigger, Verdict};
use remoor_playbook::PlanStep;
use std::sync::Arc;

/// Maximum number of tasks in the answer for each phase.
const TASKS_MAX: usize = 1_000;

pub async fn plan(
    State(shared): State<Arc<ManagerContext>>,
    Extension(by): Extension<Actor>,
    Path(name): Path<String>,
    Strict(request): Strict<OrderRequest>,
) -> Result<axum::Json<PlanView>, ApiFailure> {
    let inventory = shared.inventory();
    let node = find_node(&inventory, &name)?;
    let desk = Desk { shared: &shared, by: &by, node: &node, request: &request };
    desk.check_vars("resetup")?;
    let mut against = Vec::new();
    match desk.may_resetup(&inventory) {
        Ok(()) => {}
        // If the re-setup would be refused, the refusal is part of the answer. But a service that
        // does not exist is an error of the request.
        Err(failure) if failure.code == Code::Refused => against.push(failure.message),
        Err(failure) => return Err(failure),
    }
    if let Some(absence) = node.absence.as_ref().filter(|_| node.is_away() && !node.agent_down()) {
        let since = remoor_cluster::rpc::wire::rfc3339(absence.last_seen);
        let text = format!("{name} is away since {since} and can't be examined");
        return Err(ApiFailure::new(Code::Unavailable, text).next(format!("remoor wait {name} --for=alive")));
    }
    let begun = std::time::Instant::now();
    let evidence = examine_node(&shared, &node).await?;
    let judged = desk.judge(&inventory, &evidence);
    let unclear = matches!(judged.verdict, Verdict::Unknown(_)) && evidence.expected.is_some() && !request.force;
    if unclear {
        against.push("no verdict is possible, and unknown is not drift: refused without --force".to_owned());
    }
    let mut view = PlanView {
        version: 1,
        as_of: as_of(&shared),
        node: name,
        verdict: judged.verdict.to_string(),
        reasons: judged.reasons.iter().map(|r| r.text.clone()).collect(),
        would_change: judged.services.is_some() && !unclear,
        services: judged.services.iter().flatten().map(ToString::to_string).collect(),
        tasks: Vec::new(),
        against,
        notes: Vec::new(),
        took_ms: 0,
    };
    if let Some(services) = judged.services {
        let want = desk.build_request(Trigger::Live, services.clone(), Vec::new(), false);
        let obstacles = FleetView::new(&inventory).obstacles(&node, &want.spec, super::wall());
        view.against.extend(obstacles.iter().map(ToString::to_string));
        if let Some(job) = node.job.and_then(|j| inventory.job(j)).filter(|j| j.state == JobState::Open) {
            view.against.push(format!("job {} is open", job.id));
        }
        let current = inventory.generations.get(&inventory.source_generation(&node, &services)).cloned();
        let applied = node.setup.baseline.as_ref().and_then(|b| inventory.generations.get(&b.generation)).cloned();
        for (phase, generation) in [(Phase::Cleanup, applied.or(current.clone())), (Phase::Provision, current)] {
            let Some(generation) = generation else { continue };
            match tasks(&shared, &node, phase, generation, services.clone(), &request.vars).await {
                Ok((tasks, note)) => {
                    view.tasks.extend(tasks);
                    view.notes.extend(note);
                }
                Err(fault) => view.against.push(format!("its {phase} can't be compiled: {fault}")),
            }
        }
    }
    view.took_ms = begun.elapsed().as_millis() as u64;
    Ok(axum::Json(view))
}

/// The tasks of one phase, and a note about omitted tasks.
async fn tasks(
    shared: &Arc<ManagerContext>,
    node: &Node,
    phase: Phase,
    generation: Arc<Generation>,
    services: Vec<ServiceName>,
    vars: &JobVars,
) -> Result<(Vec<PlanTaskView>, Option<String>), String> {
    blobs::ensure(shared, &generation.blob).await;
    let (shared, host) = (shared.clone(), node.name().to_string());
    let known = ClusterContext { vars: vars.clone(), ..shared.render_context() };
    let work = move || {
        let fleet = shared.fleets.fleet(&generation).map_err(|e| e.to_string())?;
        let group = fleet.host_group(&host).map_err(|f| f.to_string())?;
        if fleet.config.groups.get(&group).is_some_and(|g| g.provisioner == Provisioner::Ansible) {
            let tags = fleet::tags_of(&fleet, &services);
            let tags = if tags.is_empty() { "all tasks".to_owned() } else { format!("the tags {}", tags.join(", ")) };
            return Ok((Vec::new(), Some(format!("{phase}: Ansible runs the group's own playbook with {tags}"))));
        }
        let context = fleet::context(&fleet, &host, &known).map_err(|f| f.to_string())?;
        let scope = PlanScope { services, extra: known.vars.into_iter().collect() };
        let faults = |f: Vec<remoor_model::Fault>| f.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
        let plan = fleet::compile(&fleet, &host, &context, phase, &scope).map_err(faults)?;
        let mut all = Vec::new();
        plan.plays.iter().flat_map(|p| p.sections.iter().flatten()).for_each(|step| collect(step, phase, &mut all));
        let more = all.len().saturating_sub(TASKS_MAX);
        all.truncate(TASKS_MAX);
        Ok((all, (more > 0).then(|| format!("{phase}: {more} more tasks"))))
    };
    tokio::task::spawn_blocking(work).await.map_err(|_| "compiling ended early".to_owned())?
}

fn collect(step: &PlanStep, phase: Phase, out: &mut Vec<PlanTaskView>) {
    match step {
        PlanStep::Task(task) => out.push(PlanTaskView {
            phase: phase.as_str().to_owned(),
            name: task.name.clone(),
            module: task.module.clone(),
            file: task.place.file.clone(),
            line: task.place.line,
        }),
        PlanStep::Block(block) => block.block.iter().chain(&block.always).for_each(|step| collect(step, phase, out)),
        PlanStep::Include(include) => include.choices.values().flatten().for_each(|step| collect(step, phase, out)),
    }
}
