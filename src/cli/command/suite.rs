//! `remoor check --file`: check files on this machine, without a cluster.

use super::examine::results_table;
use crate::cli::args::{CheckArgs, CheckFormat, Output};
use crate::cli::drivers::{self, Form, Suite, SuiteOptions, SuiteRun, SuiteRunOptions};
use crate::cli::duration;
use crate::cli::error::{self, Stop};
use crate::cli::exit::Exit;
use crate::cli::format::Format;
use crate::cli::interrupt::Interrupt;
use crate::cli::out::Out;
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
    Out::new(&args.common().unwrap_or(plain))
}

pub fn run(out: &Out, args: &CheckArgs) -> anyhow::Result<Exit> {
    let here = &args.here;
    if let Some((kind, ids)) = here.add.split_first() {
        return add(out, kind, ids, &here.file);
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
    let suite = match drivers::suite(&options) {
        Ok(suite) => suite,
        Err(faults) if form == Some(Form::Nagios) => {
            // Its readers take 2 for a failing check, and look at the first line only.
            out.text("REMOOR UNKNOWN - the check files are not valid\n")?;
            out.talk(error::invalid_checks(&faults).render().trim_end());
            return Ok(Exit::CouldNotAsk);
        }
        Err(faults) => return Err(error::invalid_checks(&faults).into()),
    };
    for file in &suite.passed_over {
        out.talk(&format!("{file}: not for this machine, by its `when`"));
    }
    let options = SuiteRunOptions {
        parallelism: here.parallel.into(),
        retry_for: here.retry_timeout.map(|time| time.0),
        pause: here.sleep.0,
    };
    let Some(run) = until_interrupted(out, suite, options)? else { return Ok(Exit::Interrupted) };
    match form {
        Some(form) => out.text(&drivers::in_form(form, &run))?,
        None => show(out, &run)?,
    }
    Ok(exit(&run, form))
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
            let labels: Vec<String> = more.iter().map(|one| format!("{}:{}", one.kind, one.id)).collect();
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

fn show(out: &Out, run: &SuiteRun) -> anyhow::Result<()> {
    if out.machine(&drivers::goss_json(run))? {
        return Ok(());
    }
    let results: Vec<CheckResult> = run.outcomes.iter().map(|outcome| outcome.result.clone()).collect();
    if out.quiet {
        let bad = results.iter().filter(|r| matches!(r.state, CheckState::Fail | CheckState::Unknown));
        let mut names: Vec<&str> = bad.map(|result| result.check.as_str()).collect();
        names.dedup();
        return Ok(out.names(names)?);
    }
    let table = results_table(&results, out.format == Format::Wide);
    if !table.is_empty() {
        out.table(&table)?;
    }
    let skipped = run.count(CheckState::Skip) + run.count(CheckState::Waived);
    let tries = if run.tries > 1 { format!("; try {}", run.tries) } else { String::new() };
    out.text(&format!(
        "{} passed, {} failed, {} unknown, {skipped} skipped; took {}{tries}\n",
        counted(run.count(CheckState::Pass), "assertion"),
        run.count(CheckState::Fail),
        run.count(CheckState::Unknown),
        duration::age(u64::try_from(run.took.as_millis()).unwrap_or(u64::MAX))
    ))?;
    Ok(())
}
