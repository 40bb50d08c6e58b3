//! `remoor recover` rebuilds a cluster on a surviving manager. `remoor restore` rebuilds it from a
//! backup.

use crate::cli::args::{RecoverArgs, RestoreArgs};
use crate::cli::ask;
use crate::cli::drivers::{self, LookedAt, Objection, PositionAnswer, Recovery};
use crate::cli::error::CommandError;
use crate::cli::exit::Exit;
use crate::cli::out::Out;
use remoor_cluster::rpc::wire::rfc3339;
use remoor_model::count_noun;
use serde_json::{Value, json};
use std::time::Duration;

pub fn recover(out: &Out, args: RecoverArgs) -> anyhow::Result<Exit> {
    if let Some(age) = args.delete_archives {
        return delete_archives(out, &args, age.0);
    }
    if !args.force_new_cluster {
        return record_addresses(out, &args);
    }
    let options = drivers::RecoverOptions {
        dir: args.dir.clone(),
        by: drivers::user(),
        places: args.set_addr,
        even_if_majority_alive: args.even_if_majority_alive,
        even_if_behind: args.even_if_behind,
        even_if_rolled_back: args.even_if_rolled_back,
    };
    let recovery = match drivers::plan_recovery(&options)? {
        LookedAt::Ready(recovery) => *recovery,
        LookedAt::Finished(founded) => {
            let text = format!("an interrupted recovery was completed: epoch {}", founded.epoch);
            if !out.machine(&json!({"version": 1, "done": true, "epoch": founded.epoch, "parked": founded.parked}))? {
                out.text(&format!("{text}\n"))?;
            }
            out.talk("next: systemctl start remoor");
            return Ok(Exit::Done);
        }
    };
    let mut view = view(&recovery);
    if !out.format.is_machine() {
        out.text(&plan(&recovery))?;
    }
    if let Some(first) = recovery.objections.first() {
        out.machine(&view)?;
        return Err(refusal(first, &recovery.objections[1..]).into());
    }
    if args.dry_run {
        if !out.machine(&view)? {
            out.talk("nothing was changed; next: the same command without --dry-run");
        }
        return Ok(Exit::Done);
    }
    let name = recovery.name.clone();
    let effect = "from then on, only the data of this manager is valid";
    ask::confirm_name(out, "rebuilding the cluster", effect, &name, args.yes.then_some(name.as_str()), false).map_err(
        |error| {
            let mut stop = CommandError::from_error(&error);
            stop.next = Some("the same command with --yes".to_owned());
            stop
        },
    )?;
    let founded = drivers::recover(recovery)?;
    view["done"] = true.into();
    view["parked"] = json!(founded.parked);
    if !out.machine(&view)? {
        out.text(&format!(
            "done: epoch {} begins with {name} as its only manager; the old log is archived in {}\n",
            founded.epoch,
            founded.parked.display()
        ))?;
    }
    out.talk("next: systemctl start remoor; then remoor promote or remoor demote the lost managers");
    Ok(Exit::Done)
}

/// Records the new addresses of nodes on this machine.
fn record_addresses(out: &Out, args: &RecoverArgs) -> anyhow::Result<Exit> {
    if args.dry_run {
        return Err(CommandError::usage_error("--set-addr without --force-new-cluster has no --dry-run").into());
    }
    let (own, recorded) = drivers::record_addresses(&args.dir, &args.set_addr)?;
    let list: Vec<Value> = recorded.iter().map(|(node, addr)| json!({"node": node, "gossip": addr})).collect();
    if !out.machine(&json!({"version": 1, "node": own, "recorded": list}))? {
        for (node, addr) in &recorded {
            let this = if *node == own { ", this node" } else { "" };
            out.text(&format!("recorded: {node} is at {addr}{this}\n"))?;
        }
    }
    out.talk("epoch, log and keys are unchanged; next: the same command on the other nodes, then systemctl start remoor on all");
    Ok(Exit::Done)
}

/// Deletes the archived logs of this machine that are older than `age`.
fn delete_archives(out: &Out, args: &RecoverArgs, age: Duration) -> anyhow::Result<Exit> {
    let old = drivers::old_archives(&args.dir, age)?;
    let facts: Vec<(String, u64, String)> =
        old.iter().map(|log| (log.path.display().to_string(), log.bytes(), rfc3339(log.at))).collect();
    let list = |done: bool| {
        let logs = facts.iter().map(|(path, bytes, at)| json!({"path": path, "bytes": bytes, "at": at}));
        json!({"version": 1, "deleted": done, "archives": logs.collect::<Vec<_>>()})
    };
    if !out.format.is_machine() {
        for (path, bytes, at) in &facts {
            out.text(&format!("{path}  {} MB, of {at}\n", bytes.div_ceil(1_000_000)))?;
        }
    }
    if old.is_empty() || args.dry_run {
        if !out.machine(&list(false))? {
            let text = if old.is_empty() { "no archived log is that old" } else { "nothing was deleted" };
            out.talk(text);
        }
        return Ok(Exit::Done);
    }
    let count = count_noun(old.len(), "archived log");
    let effect = format!("{count} will be deleted; an archive may be the only copy of decisions of an earlier epoch");
    let ask::UserConfirmation(()) = ask::confirm_yes(out, &format!("deletion of {count}"), &effect, args.yes)?;
    for log in &old {
        log.delete()?;
    }
    if !out.machine(&list(true))? {
        out.text(&format!("{count} deleted\n"))?;
    }
    Ok(Exit::Done)
}

fn refusal(first: &Objection, others: &[Objection]) -> CommandError {
    let mut stop = CommandError::refusal(format!("the cluster is not rebuilt: {first}"));
    stop.causes = others.iter().map(ToString::to_string).collect();
    stop.next(first.next())
}

fn plan(recovery: &Recovery) -> String {
    let (was, is) = recovery.epochs;
    let mut text = format!(
        "{} of cluster {}: its log ends at entry {} of term {}, with generation {} and {}\n\nthe other managers:\n",
        recovery.name,
        recovery.cluster,
        recovery.index,
        recovery.term,
        recovery.generation,
        count_noun(recovery.nodes, "node")
    );
    for other in &recovery.others {
        let message = match &other.said {
            PositionAnswer::Position(p) => {
                let led = p.leader.as_ref().map_or_else(|| "knows no leader".to_owned(), |l| format!("follows {l}"));
                format!("answers; epoch {}, its log ends at entry {} of term {}, {led}", p.epoch, p.index, p.term)
            }
            PositionAnswer::NoLog(why) => format!("answers as a worker, so it does not count ({why})"),
            PositionAnswer::OtherAnswer(why) => format!("answers, but not with the end of its log ({why})"),
            PositionAnswer::Silent(why) => format!("does not answer ({why})"),
        };
        text.push_str(&format!("  {} (Raft id {}, {}): {message}\n", other.name, other.raft, other.addr));
    }
    if recovery.others.is_empty() {
        text.push_str("  none\n");
    }
    text.push_str(&format!(
        "\nactions:\n  epoch {was} ends and epoch {is} begins, with {} as its only manager (Raft id {} becomes {})\n",
        recovery.name, recovery.raft.0, recovery.raft.1
    ));
    text.push_str("  nodes, generations, verdicts, jobs and history are kept; workers follow automatically\n");
    text.push_str("  the other managers are lost: they archive their logs on contact, and are managers again after remoor promote\n");
    for node in &recovery.open {
        text.push_str(&format!("  the running re-setup of {node} is fenced off and started again\n"));
    }
    text.push_str("  the old log is archived, nothing is deleted\n\n");
    text
}

fn view(recovery: &Recovery) -> Value {
    let others: Vec<Value> = recovery
        .others
        .iter()
        .map(|other| {
            let mut view = json!({"name": other.name, "raft": other.raft, "address": other.addr});
            match &other.said {
                PositionAnswer::Position(position) => {
                    view["answers"] = true.into();
                    view["position"] = json!(position);
                }
                PositionAnswer::NoLog(why) => {
                    view["answers"] = true.into();
                    view["no_log"] = true.into();
                    view["error"] = why.as_str().into();
                }
                PositionAnswer::OtherAnswer(why) => {
                    view["answers"] = true.into();
                    view["error"] = why.as_str().into();
                }
                PositionAnswer::Silent(why) => {
                    view["answers"] = false.into();
                    view["error"] = why.as_str().into();
                }
            }
            view
        })
        .collect();
    json!({
        "version": 1,
        "done": false,
        "node": recovery.name,
        "cluster": recovery.cluster,
        "epoch": recovery.epochs.0,
        "new_epoch": recovery.epochs.1,
        "raft": recovery.raft.0,
        "new_raft": recovery.raft.1,
        "term": recovery.term,
        "index": recovery.index,
        "generation": recovery.generation,
        "others": others,
        "ends": recovery.open,
        "objections": recovery.objections.iter().map(ToString::to_string).collect::<Vec<_>>(),
    })
}

pub fn restore(out: &Out, args: RestoreArgs) -> anyhow::Result<Exit> {
    let restored = drivers::restore(&drivers::RestoreOptions {
        dir: args.dir,
        file: args.file,
        identity: args.identity,
        by: drivers::user(),
        name: args.name,
        places: args.set_addr,
        epoch: args.epoch,
        even_if_majority_alive: args.even_if_majority_alive,
    })?;
    let view = json!({
        "version": 1,
        "node": restored.name,
        "api": restored.api,
        "cluster": restored.head.cluster,
        "epoch": restored.epoch,
        "index": restored.head.index,
        "generation": restored.head.generation,
        "nodes": restored.head.nodes,
        "lost": restored.lost,
    });
    if !out.machine(&view)? {
        out.text(&format!(
            "{} is the only manager of cluster {} at {}, in epoch {}, with the state of entry {} of epoch {}\n",
            restored.name,
            restored.head.cluster,
            restored.api,
            restored.epoch,
            restored.head.index,
            restored.head.epoch
        ))?;
        if !restored.lost.is_empty() {
            out.text(&format!("lost managers: {}\n", restored.lost.join(", ")))?;
        }
    }
    out.talk(
        "next: systemctl start remoor; an old manager that still runs archives its log when it learns of the new epoch",
    );
    Ok(Exit::Done)
}
