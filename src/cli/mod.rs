//! The command line: it parses arguments, asks a daemon through `rpc::client`, prints the answer,
//! and maps the answer to an exit code. Only `drivers` calls code that runs on this machine. The
//! command line makes no decisions about nodes.

pub mod args;
pub mod drivers;
pub mod exit;
pub mod fold;

mod api;
mod ask;
mod command;
mod duration;
mod error;
mod format;
mod goss_environment;
mod interrupt;
mod moment;
mod out;
mod reasons;
mod state;
mod story;
mod table;
#[cfg(test)]
mod tests;

use api::Api;
use args::{BackupArgs, CheckArgs, ConnectionOptions, KeyVerb, NodeVerb, Output, TokenVerb, Verb};
use command::{
    add, backup, check_files, check_list, digest, examine, fleet, history, import, job, keys, leave, local, members,
    nodes, order, play, recover, remove, roles, status, wait, watch, why,
};
use error::CommandError;
use exit::Exit;
use out::Out;
use std::ffi::OsString;
use std::process::ExitCode;

/// Runs one command. A closed standard output causes no error and no panic, because the reader
/// closed it on purpose.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let args: Vec<OsString> = args.into_iter().collect();
    let plugin = args::asks_for_a_plugin(&args);
    let cli = match args::parse(args) {
        Ok(cli) => cli,
        Err(error) if plugin && error.use_stderr() => {
            // The message of clap has several lines; `report_unknown` prints only the first on
            // standard output.
            let text = error.to_string();
            return check_files::report_unknown(
                &Out::without_options(),
                &CommandError::usage_error(text.trim_end().trim_start_matches("error: ")),
            )
            .into();
        }
        Err(error) => {
            // If printing fails, there is no other output that could report the failure.
            let _ = error.print();
            return if error.use_stderr() { Exit::Usage.into() } else { Exit::Done.into() };
        }
    };
    if let Verb::Exec(exec) = &cli.verb {
        return drivers::exec(exec).unwrap_or_else(|e| report_result(Err(e)).into());
    }
    if let Verb::RunTask = &cli.verb {
        return drivers::serve_job();
    }
    match dispatch(cli.verb) {
        Err(error) if plugin => {
            check_files::report_unknown(&Out::without_options(), &CommandError::from_error(&error)).into()
        }
        result => report_result(result).into(),
    }
}

fn report_result(result: anyhow::Result<Exit>) -> Exit {
    match result {
        Ok(exit) => exit,
        Err(error) if is_broken_pipe(&error) => Exit::Done,
        Err(error) => {
            let stop = CommandError::from_error(&error);
            Out::without_options().talk(stop.render().trim_end());
            stop.exit
        }
    }
}

/// Whether the reader of the answer closed the pipe.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<std::io::Error>().is_some_and(|e| e.kind() == std::io::ErrorKind::BrokenPipe)
}

fn dispatch(verb: Verb) -> anyhow::Result<Exit> {
    // A harmful template ends only the child process that renders it.
    let renders_fleet = match &verb {
        Verb::Agent(_) | Verb::Lint(_) | Verb::Import(_) => true,
        Verb::Check(args) => args.fleet.is_some(),
        _ => false,
    };
    if renders_fleet {
        drivers::render_in_children();
    }
    // These commands handle the keys of a node, so their memory and their new files are protected
    // from other users. The other commands write files that other users may read.
    if matches!(verb, Verb::Init(_) | Verb::Join(_) | Verb::Recover(_) | Verb::Restore(_) | Verb::Agent(_)) {
        drivers::protect_process()?;
    }
    match verb {
        Verb::Init(args) => local::init(&Out::new(&args.output), args),
        Verb::Join(args) => local::join(&Out::without_options(), args),
        Verb::Agent(args) => local::agent(args),
        Verb::Render => drivers::serve_rendering().map(|()| Exit::Done),
        Verb::Recover(args) => recover::recover(&Out::new(&args.output), args),
        Verb::Restore(args) => recover::restore(&Out::new(&args.output), args),
        Verb::Backup(BackupArgs { verify: true, file: Some(file), identity, output, .. }) => {
            backup::verify(&Out::new(&output), &file, identity.as_deref())
        }
        Verb::Node(NodeVerb::Add(args)) => add::run(&Out::without_options(), args),
        Verb::Completions(args) => local::completions(&Out::without_options(), &args),
        Verb::Man(args) => local::man(&Out::without_options(), &args),
        Verb::Schema(args) => local::schema(&Out::without_options(), &args),
        Verb::Digest(args) => digest::run(&Out::new(&args.output).with_exit_as_answer(), args),
        Verb::Check(args) if args.runs_locally() => {
            let args = goss_environment::apply(args, &|name| std::env::var(name).ok())?;
            check_files::run(&check_files::suite_output(&args), &args)
        }
        Verb::Check(args) if args.here.changed_only => Err(error::no_last_check_of_nodes().into()),
        Verb::Play(args) => play::run(&args.output(), &args),
        Verb::Import(args) => import::run(&Out::new(&args.output), &args),
        Verb::Lint(args) => fleet::lint(&Out::new(&args.output).with_exit_as_answer(), &args),
        Verb::RaftMembers(args) if args.table => members::table(&Out::new(&args.output)),
        Verb::Check(args) if args.fleet.is_some() => {
            check_list::list_for_directory(&Out::new(&node_output(&args)?), &args)
        }
        verb => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            let result = runtime.block_on(remote(&verb));
            runtime.shutdown_background();
            result
        }
    }
}

/// The output options of `check` for nodes. A format of goss is an error.
fn node_output(args: &CheckArgs) -> anyhow::Result<Output> {
    let text = "this format is only for --file; for nodes use table, wide, json or template='...'";
    args.common().ok_or_else(|| CommandError::usage_error(text).into())
}

/// Runs a command that asks a manager.
async fn remote(verb: &Verb) -> anyhow::Result<Exit> {
    let open = |connection: &ConnectionOptions, output: &Output| {
        Ok::<_, anyhow::Error>((Api::open(connection)?, Out::new(output)))
    };
    macro_rules! ask {
        ($args:expr, $call:expr) => {{
            let (api, out) = open(&$args.connection, &$args.output)?;
            $call(&api, &out, $args).await
        }};
    }
    match verb {
        Verb::Status(args) if args.exit_code && args.watch.is_none() => {
            ask!(args, async |api, out: &Out, args| status::run(api, &out.clone().with_exit_as_answer(), args).await)
        }
        Verb::Status(args) => ask!(args, status::run),
        Verb::Nodes(args) if args.removed => ask!(args, async |api, out, _| remove::list(api, out).await),
        Verb::Nodes(args) => ask!(args, nodes::run),
        Verb::RaftMembers(args) => ask!(args, async |api, out, _| members::run(api, out).await),
        Verb::Watch(args) => ask!(args, async |api, out, _| watch::run(api, out).await),
        Verb::History(args) => ask!(args, history::run),
        Verb::Why(args) => ask!(args, why::run),
        Verb::Job(verb) => {
            let (connection, output) = verb.common();
            let (api, out) = open(connection, output)?;
            job::run(&api, &out, verb).await
        }
        Verb::Wait(args) => {
            ask!(args, async |api, out: &Out, args| wait::run(api, &out.clone().with_exit_as_answer(), args).await)
        }
        Verb::Check(args) => {
            let (api, out) = open(&args.connection, &node_output(args)?)?;
            let out = out.with_exit_as_answer();
            if args.list || args.render {
                return check_list::list_for_node(&api, &out, args).await;
            }
            examine::check(&api, &out, args).await
        }
        Verb::Diff(args) => {
            ask!(args, async |api, out: &Out, args| examine::diff(api, &out.clone().with_exit_as_answer(), args).await)
        }
        Verb::Adopt(args) => ask!(args, examine::adopt),
        Verb::Resetup(args) => ask!(args, order::resetup),
        Verb::Undo(args) => ask!(args, order::undo),
        Verb::Apply(args) => ask!(args, fleet::apply),
        Verb::Update(args) => ask!(args, order::update),
        Verb::Inventory(args) => fleet::inventory(&Api::open(&args.connection)?, &Out::without_options(), args).await,
        Verb::Commission(args) => ask!(args, order::commission),
        Verb::Decommission(args) => ask!(args, order::decommission),
        Verb::Drain(args) => ask!(args, order::drain),
        Verb::Zone(args) => ask!(args, order::zone),
        Verb::Pause(args) => {
            let (api, out) = open(&args.connection, &args.output)?;
            order::pause(&api, &out, &args.which).await
        }
        Verb::Resume(args) => ask!(args, order::resume),
        Verb::Maintenance(args) => ask!(args, order::maintenance),
        Verb::Promote(args) => ask!(args, roles::promote),
        Verb::Demote(args) => ask!(args, roles::demote),
        Verb::Remove(args) => ask!(args, remove::run),
        Verb::Leave(args) => {
            let (api, out) = open(&args.connection(), &args.output)?;
            leave::run(&api, &out, args).await
        }
        Verb::TrustKey(args) => ask!(args, order::trust_key),
        Verb::Backup(args) => ask!(args, backup::run),
        Verb::Token(TokenVerb::List(args)) => ask!(args, keys::list),
        Verb::Token(TokenVerb::Rotate(args)) => ask!(args, keys::rotate),
        Verb::Key(KeyVerb::Rotate(args)) => ask!(args, keys::rotate_key),
        Verb::Key(KeyVerb::Status(args)) => ask!(args, keys::key_status),
        Verb::Key(KeyVerb::Operator(args)) => ask!(args, keys::operator),
        Verb::Accept(args) => ask!(args, keys::accept),
        Verb::Lint(_)
        | Verb::Digest(_)
        | Verb::Play(_)
        | Verb::Import(_)
        | Verb::Init(_)
        | Verb::Join(_)
        | Verb::Recover(_)
        | Verb::Restore(_)
        | Verb::Agent(_)
        | Verb::Node(_)
        | Verb::Exec(_)
        | Verb::Render
        | Verb::RunTask
        | Verb::Completions(_)
        | Verb::Man(_)
        | Verb::Schema(_) => {
            Err(CommandError::usage_error("this command runs on this machine and asks no manager").into())
        }
    }
}
