//! `remoor check --file`: check files on this machine, without a cluster.

use super::examine::results_table;
use crate::cli::args::{CheckArgs, CheckFormat, Output};
use crate::cli::drivers::{self, Changes, Form, LastRun, Suite, SuiteOptions, SuiteRun, SuiteRunOptions};
use crate::cli::duration;
use crate::cli::error::{self, Stop};
use crate::cli::exit::Exit;
use crate::cli::format::Format;
use crate::cli::interrupt::Interrupt;
use crate::cli::out::Out;
use crate::cli::sanitize;
use crate::model::{CheckResult, CheckState, counted};
use anyhow::Context;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

/// After Ctrl-C, until the programs of the checks are gone.
const LAST_WAIT: Duration = Duration::from_millis(500);

/// The output of a check of this machine: a form of goss is a text like any other there.
pub fn out(args: &CheckArgs) -> Out {
    let CheckArgs { no_headers, quiet, .. } = *args;
    let plain = Output { output: Format::Table, json: false, no_headers, quiet };
    Out::new(&args.common().unwrap_or(plain)).judging()
}

/// An end without results, as a plugin tells it: its readers look at the first line, and take 2 for a check that fails.
pub fn unknown(out: &Out, stop: &Stop) -> Exit {
    // Where that can't be printed the exit code still says it.
    let first = stop.message.lines().next().unwrap_or_default();
    let _ = out.text(&format!("REMOOR UNKNOWN - {}\n", sanitize::line(first)));
    out.talk(stop.render().trim_end());
    Exit::CouldNotAsk
}

pub fn run(out: &Out, args: &CheckArgs) -> anyhow::Result<Exit> {
    run_with(out, args, drivers::state_home().as_deref())
}

/// `state_home`: below it the last run of a suite is kept.
pub fn run_with(out: &Out, args: &CheckArgs, state_home: Option<&Path>) -> anyhow::Result<Exit> {
    let here = &args.here;
    if let Some((kind, ids)) = here.add.split_first() {
        return add(out, kind, ids, &here.file);
    }
    if here.changed_only && here.file.iter().any(|file| file == Path::new("-")) {
        return Err(error::no_last_run_of_standard_input().into());
    }
    let form = match &args.output {
        CheckFormat::Goss(form) => Some(*form),
        CheckFormat::Common(_) => None,
    };
    let options = SuiteOptions {
        files: here.file.clone(),
        vars: here.vars.clone(),
        vars_inline: here.vars_inline.clone(),
        only: here.only.clone(),
    };
    let suite = drivers::suite(&options).map_err(|faults| error::invalid_checks(&faults))?;
    for file in &suite.passed_over {
        out.talk(&format!("{file}: not for this machine, by its `when`"));
    }
    let last = if here.changed_only { Some(last_run(out, &suite, state_home)?) } else { None };
    let options = SuiteRunOptions {
        parallelism: here.parallel.into(),
        retry_for: here.retry_timeout.map(|time| time.0),
        pause: here.sleep.0,
    };
    let Some(mut run) = until_interrupted(out, suite, options)? else { return Ok(Exit::Interrupted) };
    let changes = last.as_ref().and_then(|last| last.compare(&mut run));
    match form {
        Some(form) => out.text(&drivers::in_form(form, &run))?,
        None => show(out, &run, changes)?,
    }
    if let Some(Changes { gone, .. }) = changes.filter(|changes| changes.gone > 0) {
        out.talk(&format!("no longer asked since the last run: {}", counted(gone, "assertion")));
    }
    // Only what was told is known: whoever did not hear of it hears of it the next time.
    if let Some(Err(error)) = last.filter(|_| !out.is_broken()).map(|last| last.keep(&run)) {
        let stop = Stop::new(Exit::Done, "").cause(&error);
        out.talk(&format!("warning: the run is not kept, the next one tells this again: {}", stop.causes.join(": ")));
    }
    Ok(exit(&run, form))
}

/// What is kept of the last run; says so where nothing can be known of it.
fn last_run(out: &Out, suite: &Suite, state_home: Option<&Path>) -> anyhow::Result<LastRun> {
    let home = state_home.ok_or_else(error::no_state_home)?;
    let last = LastRun::of(suite, home);
    match &last.unusable {
        Some(why) => out.talk(&format!("warning: what the last run found can't be used, everything is told: {why}")),
        None if last.is_first() => out.talk("nothing is known of a run before this one, everything is told"),
        None => {}
    }
    Ok(last)
}

/// The run; None: Ctrl-C, or another's wish that it ends, came first, and what the checks had started is ended.
fn until_interrupted(out: &Out, suite: Suite, options: SuiteRunOptions) -> anyhow::Result<Option<SuiteRun>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut interrupt = Interrupt::new()?;
        let (done, mut run) = oneshot::channel();
        let talk = out.clone();
        // A thread of its own, since a check that waits can't be called back. Nobody hears of a run that came too late.
        thread::spawn(move || drop(done.send(drivers::run_suite(&suite, &options, &mut |text| talk.talk(text)))));
        let (mut term, mut hangup) = (signal(SignalKind::terminate())?, signal(SignalKind::hangup())?);
        let stopped = async {
            tokio::select! {
                () = interrupt.wait() => {}
                _ = term.recv() => {}
                _ = hangup.recv() => {}
            }
        };
        let ended = tokio::select! {
            run = &mut run => Some(run),
            () = stopped => None,
        };
        match ended {
            Some(run) => Ok(Some(run.context("the run ended without a result")?)),
            None => {
                drivers::end_programs();
                let _ = tokio::time::timeout(LAST_WAIT, run).await;
                Ok(None)
            }
        }
    })
}

/// `remoor check --add`.
fn add(out: &Out, kind: &str, ids: &[String], files: &[PathBuf]) -> anyhow::Result<Exit> {
    let file = match files {
        [] => None,
        [one] if one != Path::new("-") && !one.is_dir() => Some(one),
        _ => return Err(Stop::usage("--add writes into one file, or without --file to standard output").into()),
    };
    let more = drivers::observe(kind, ids).map_err(|e| error::of_addition(&e))?;
    match file {
        None => out.text(&drivers::addition_text(&more).map_err(|e| error::of_addition(&e))?)?,
        Some(file) => {
            drivers::add_to(file, &more).map_err(|e| error::of_addition(&e))?;
            let labels: Vec<String> = more.iter().map(|one| one.label()).collect();
            out.talk(&format!("added to {}: {}", file.display(), labels.join(", ")));
        }
    }
    Ok(Exit::Done)
}

fn exit(run: &SuiteRun, form: Option<Form>) -> Exit {
    if run.is_as_wanted() {
        return Exit::Done;
    }
    match form {
        // The codes of a plugin: 2 is critical, 3 unknown.
        Some(Form::Nagios) if run.count(CheckState::Fail) > 0 => Exit::Usage,
        Some(Form::Nagios) => Exit::CouldNotAsk,
        _ => Exit::No,
    }
}

/// `changes`: since the last run, where only these are told.
fn show(out: &Out, run: &SuiteRun, changes: Option<Changes>) -> anyhow::Result<()> {
    if out.machine(&drivers::goss_json(run))? {
        return Ok(());
    }
    let results: Vec<CheckResult> = run.told().map(|outcome| outcome.result.clone()).collect();
    if out.quiet {
        let bad = |r: &&CheckResult| matches!(r.state, CheckState::Fail | CheckState::Unknown);
        let named = results.iter().filter(|result| changes.is_some() || bad(result));
        let mut names: Vec<&str> = named.map(|result| result.check.as_str()).collect();
        names.dedup();
        return Ok(out.names(names)?);
    }
    let table = results_table(&results, changes.is_some() || out.format == Format::Wide);
    if !table.is_empty() {
        out.table(&table)?;
    }
    let skipped = run.count(CheckState::Skip) + run.count(CheckState::Waived);
    let changed = match changes {
        Some(Changes { changed, .. }) => format!("; {changed} of {} changed", run.outcomes.len()),
        None => String::new(),
    };
    let tries = if run.tries > 1 { format!("; try {}", run.tries) } else { String::new() };
    out.text(&format!(
        "{} passed, {} failed, {} unknown, {skipped} skipped; took {}{tries}{changed}\n",
        counted(run.count(CheckState::Pass), "assertion"),
        run.count(CheckState::Fail),
        run.count(CheckState::Unknown),
        duration::age(u64::try_from(run.took.as_millis()).unwrap_or(u64::MAX))
    ))?;
    Ok(())
}
