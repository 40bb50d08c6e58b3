//! `remoor check --file`: runs check files on this machine, without a cluster.

use super::examine::{RESULT_COLUMNS, is_reported, result_cells};
use crate::cli::args::{CheckArgs, CheckFormat, Output};
use crate::cli::drivers::{self, Changes, Form, LastRun, ServeOptions, Suite, SuiteOptions, SuiteRun, SuiteRunOptions};
use crate::cli::duration;
use crate::cli::error::{self, CommandError};
use crate::cli::exit::Exit;
use crate::cli::format::Format;
use crate::cli::interrupt::Interrupt;
use crate::cli::out::Out;
use crate::cli::table::Table;
use anyhow::Context;
use remoor_model::sanitize;
use remoor_model::{CheckResult, CheckState, count_noun};
use serde_json::json;
use std::path::Path;
use std::thread;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

/// Maximum time after Ctrl-C until the programs of the checks have ended.
const LAST_WAIT: Duration = Duration::from_millis(500);
/// Maximum number of warnings that are printed. An audit may have hundreds.
const WARNINGS_MAX: usize = 20;
/// Maximum number of hints that are printed.
const HINTS_MAX: usize = 10;
/// Default number of checks that run in parallel, and default pause between two tries.
const PARALLEL: usize = 8;
const PAUSE: Duration = Duration::from_secs(1);
/// Default time for which a health endpoint keeps a result, as in goss.
const CACHE: Duration = Duration::from_secs(5);

/// The output for checks on this machine. The formats of goss are written as plain text.
pub fn suite_output(args: &CheckArgs) -> Out {
    let CheckArgs { no_headers, quiet, .. } = *args;
    let plain = Output { output: Format::Table, json: false, no_headers, quiet };
    Out::new(&args.common().unwrap_or(plain)).with_exit_as_answer()
}

/// Prints an error in the format of a Nagios plugin: the first line has the status. The exit code
/// is 3, because 2 would mean a failed check.
pub fn report_unknown(out: &Out, stop: &CommandError) -> Exit {
    // A failure to print is ignored, because the exit code reports the status too.
    let first = stop.message.lines().next().unwrap_or_default();
    let _ = out.text(&format!("REMOOR UNKNOWN - {}\n", sanitize::line(first)));
    out.talk(stop.render().trim_end());
    Exit::CouldNotAsk
}

pub fn run(out: &Out, args: &CheckArgs) -> anyhow::Result<Exit> {
    run_with(out, args, drivers::state_home().as_deref())
}

/// Runs `remoor check --file` or `--add`. With `--changed-only`, the results are stored below
/// `state_home`.
pub fn run_with(out: &Out, args: &CheckArgs, state_home: Option<&Path>) -> anyhow::Result<Exit> {
    let here = &args.here;
    if args.adds() {
        return add(out, args);
    }
    if here.changed_only && here.file.iter().any(|file| file == Path::new("-")) {
        return Err(error::no_last_run_of_standard_input().into());
    }
    let form = match &args.output {
        Some(CheckFormat::Goss(form)) => Some(*form),
        _ => None,
    };
    let options = SuiteOptions {
        files: here.file.clone(),
        vars: here.vars.clone(),
        vars_inline: here.vars_inline.clone(),
        only: here.only.clone(),
        strict: here.strict,
    };
    if args.render {
        return render(out, &options);
    }
    let suite = match (&args.fleet, &here.as_host) {
        (Some(dir), Some(host)) => drivers::fleet_suite(dir, host, &options.only),
        _ => drivers::suite(&options),
    };
    let suite = suite.map_err(|faults| error::invalid_checks(&faults))?;
    show_warnings(out, &suite);
    for file in &suite.skipped_files {
        out.talk(&format!("{file}: does not apply to this machine (its `when`)"));
    }
    if let Some(address) = here.serve {
        let options = ServeOptions {
            endpoint: here.endpoint.clone().unwrap_or_else(|| "/healthz".to_owned()),
            cache: here.cache.map_or(CACHE, |time| time.0),
            form: form.unwrap_or(Form::Structured),
        };
        if !is_route(&options.endpoint) {
            return Err(CommandError::usage_error("--endpoint is a path such as /healthz, and not /metrics").into());
        }
        let run = SuiteRunOptions { parallelism: parallelism(args), retry_for: None, pause: PAUSE };
        let started = |at| out.talk(&format!("serving http://{at}{}; Ctrl-C ends it", options.endpoint));
        drivers::serve_until_signal(address.0, suite, run, options.clone(), started)
            .with_context(|| format!("listening on {}", address.0))?;
        return Ok(Exit::Done);
    }
    let last = if here.changed_only { Some(last_run(out, &suite, state_home)?) } else { None };
    let options = SuiteRunOptions {
        parallelism: parallelism(args),
        retry_for: here.retry_timeout.map(|time| time.0),
        pause: here.sleep.map_or(PAUSE, |time| time.0),
    };
    let Some(mut run) = until_interrupted(out, suite, options)? else { return Ok(Exit::Interrupted) };
    let changes = last.as_ref().and_then(|last| last.compare(&mut run));
    match form {
        Some(Form::Structured) => out.json(&drivers::in_form(Form::Structured, &run))?,
        Some(form) => out.text(&drivers::in_form(form, &run))?,
        None => show(out, &run, changes)?,
    }
    if let Some(Changes { gone, .. }) = changes.filter(|changes| changes.gone > 0) {
        out.talk(&format!("removed since the last run: {}", count_noun(gone, "assertion")));
    }
    // Results that could not be printed are not stored, so that the next run prints them.
    if let Some(Err(error)) = last.filter(|_| !out.is_broken()).map(|last| last.keep(&run)) {
        let stop = CommandError::new(Exit::Done, "").cause(&error);
        out.talk(&format!(
            "warning: the results can't be stored, so the next run prints them again: {}",
            stop.causes.join(": ")
        ));
    }
    Ok(exit(&run, form))
}

fn parallelism(args: &CheckArgs) -> usize {
    args.here.parallel.map_or(PARALLEL, usize::from)
}

/// Whether a health endpoint can have this path. Braces and `*` have a meaning in routes.
fn is_route(path: &str) -> bool {
    path.starts_with('/') && path != "/metrics" && !path.contains(['{', '}', '*', '?', '#', ' '])
}

/// Prints the rendered text of each check file, and then the faults of all of them.
fn render(out: &Out, options: &SuiteOptions) -> anyhow::Result<Exit> {
    let (files, faults) = drivers::rendered_suite(options).map_err(|faults| error::invalid_checks(&faults))?;
    if !out.machine(&json!({"version": 1, "files": files}))? {
        for file in &files {
            // The heading is a YAML comment, so that goss can read the output of one file.
            out.document(&format!("# {}\n{}\n", file.file, file.text.trim_matches('\n')))?;
        }
    }
    if faults.is_empty() { Ok(Exit::Done) } else { Err(error::invalid_checks(&faults).into()) }
}

/// Prints the warnings of the check files, up to a maximum.
fn show_warnings(out: &Out, suite: &Suite) {
    for warning in suite.warnings.iter().take(WARNINGS_MAX) {
        out.talk(&warning.to_string());
    }
    if let Some(more @ 1..) = suite.warnings.len().checked_sub(WARNINGS_MAX) {
        out.talk(&format!("{} in all; `--strict` lists them as faults", count_noun(WARNINGS_MAX + more, "warning")));
    }
}

/// The stored results of the last run. If no usable results are stored, a message says so.
fn last_run(out: &Out, suite: &Suite, state_home: Option<&Path>) -> anyhow::Result<LastRun> {
    let home = state_home.ok_or_else(error::no_state_home)?;
    let last = LastRun::load(suite, home);
    match &last.unusable {
        Some(why) => {
            out.talk(&format!("warning: the results of the last run can't be used, so all results are printed: {why}"))
        }
        None if last.is_first() => out.talk("no results of an earlier run are stored, so all results are printed"),
        None => {}
    }
    Ok(last)
}

/// Runs the suite. None: Ctrl-C, SIGTERM or SIGHUP ended the run, and the programs that the checks
/// started were ended too.
fn until_interrupted(out: &Out, suite: Suite, options: SuiteRunOptions) -> anyhow::Result<Option<SuiteRun>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut interrupt = Interrupt::new()?;
        let (done, mut run) = oneshot::channel();
        let talk = out.clone();
        // The suite runs in a separate thread, because a check that blocks can't be cancelled. A
        // result after an interrupt is dropped.
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

/// Runs `remoor check --add` or `--autoadd`.
fn add(out: &Out, args: &CheckArgs) -> anyhow::Result<Exit> {
    let file = match &args.here.file[..] {
        [] => None,
        [one] if one != Path::new("-") && !one.is_dir() => Some(one),
        _ => {
            return Err(
                CommandError::usage_error("--add writes to one file, or without --file to standard output").into()
            );
        }
    };
    let more = match (&args.here.autoadd, args.here.add.split_first()) {
        (Some(service), _) => drivers::observe_service(service),
        (None, Some((kind, ids))) => drivers::observe(kind, ids),
        (None, None) => Ok(Vec::new()),
    };
    let more = more.map_err(|e| error::addition_error(&e))?;
    match file {
        None => out.document(&drivers::addition_text(&more).map_err(|e| error::addition_error(&e))?)?,
        Some(file) => {
            drivers::add_checks_to(file, &more).map_err(|e| error::addition_error(&e))?;
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
        // Exit codes of a Nagios plugin: 2 is critical, 3 unknown.
        Some(Form::Nagios) if run.count(CheckState::Fail) > 0 => Exit::Usage,
        Some(Form::Nagios) => Exit::CouldNotAsk,
        _ => Exit::No,
    }
}

/// A line with the hint of each check that fails, at most `HINTS_MAX` lines. A check has the hint
/// of its first failed assertion.
fn hint_lines(run: &SuiteRun) -> String {
    let mut lines: Vec<String> = Vec::new();
    let mut last = None;
    for outcome in run.reported_outcomes().filter(|outcome| is_reported(&outcome.result)) {
        let label = (&outcome.result.check, &outcome.file, outcome.line);
        let Some(hint) = outcome.hint.as_deref().filter(|_| last != Some(label)) else { continue };
        last = Some(label);
        lines.push(format!("hint: {}: {}\n", outcome.result.check, hint.replace('\n', " ")));
    }
    let more = lines.len().saturating_sub(HINTS_MAX);
    lines.truncate(HINTS_MAX);
    if more > 0 {
        lines.push(format!("{} in the output of -o json\n", count_noun(more, "more hint")));
    }
    lines.concat()
}

/// Prints the results. `changes` are the changes since the last run, with `--changed-only`.
fn show(out: &Out, run: &SuiteRun, changes: Option<Changes>) -> anyhow::Result<()> {
    if out.machine(&drivers::goss_json(run))? {
        return Ok(());
    }
    let results: Vec<&CheckResult> = run.reported_outcomes().map(|outcome| &outcome.result).collect();
    if out.quiet {
        let bad = |r: &&CheckResult| matches!(r.state, CheckState::Fail | CheckState::Unknown);
        let named = results.into_iter().filter(|result| changes.is_some() || bad(result));
        let mut names: Vec<&str> = named.map(|result| result.check.as_str()).collect();
        names.dedup();
        return Ok(out.names(names)?);
    }
    let wide = out.format == Format::Wide;
    let mut table = Table::new(RESULT_COLUMNS.into_iter().chain(["FILE"]).chain(wide.then_some("TITLE")));
    for outcome in run.reported_outcomes().filter(|one| changes.is_some() || wide || is_reported(&one.result)) {
        let place = format!("{}:{}", outcome.file, outcome.line);
        let title = wide.then(|| outcome.title.as_deref().unwrap_or_default().replace('\n', " "));
        table.row(result_cells(&outcome.result).into_iter().chain([place]).chain(title));
    }
    if !table.is_empty() {
        out.table(&table)?;
    }
    out.text(&hint_lines(run))?;
    let skipped = run.count(CheckState::Skip) + run.count(CheckState::Waived);
    let changed = match changes {
        Some(Changes { changed, .. }) => format!("; {changed} of {} changed", run.outcomes.len()),
        None => String::new(),
    };
    let tries = if run.tries > 1 { format!("; try {}", run.tries) } else { String::new() };
    out.text(&format!(
        "{} passed, {} failed, {} unknown, {skipped} skipped; took {}{tries}{changed}\n",
        count_noun(run.count(CheckState::Pass), "assertion"),
        run.count(CheckState::Fail),
        run.count(CheckState::Unknown),
        duration::age(u64::try_from(run.took.as_millis()).unwrap_or(u64::MAX))
    ))?;
    Ok(())
}
