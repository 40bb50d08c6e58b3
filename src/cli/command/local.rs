//! Commands that run on this machine: init, join, the daemon, completions, manual pages.

use crate::cli::args::{
    self, AgentArgs, CompletionsArgs, InitArgs, JoinArgs, LocalNodeArgs, ManArgs, SchemaArgs, SchemaKind,
};
use crate::cli::drivers::{self, AgentCommand, InitCommand, JoinCommand};
use crate::cli::error::CommandError;
use crate::cli::exit::Exit;
use crate::cli::out::Out;
use anyhow::Context;
use remoor_model::{count_noun, reserved_by_ansible};
use serde_json::json;
use std::io::Read;
use std::path::Path;

/// Maximum length of a token file, in bytes.
const TOKEN_MAX: u64 = 4 << 10;
/// Environment variable for the token. Other users can't read the environment of a process that
/// runs as root.
const TOKEN_VAR: &str = "REMOOR_TOKEN";
const SEEN: &str = "warning: the secret of the token is in the command line, where every user of this machine can read it; next: \
                    run remoor token rotate on a manager, and use --token-file FILE (- for standard input) from now on";

fn no_token() -> CommandError {
    CommandError::usage_error("no token is given")
        .next("--token-file FILE, or - for standard input; or the variable REMOOR_TOKEN")
}

pub fn init(out: &Out, args: InitArgs) -> anyhow::Result<Exit> {
    let name = name_of(&args.here)?;
    let api = std::net::SocketAddr::new(args.here.advertise, args.here.api_port).to_string();
    let dir = args.here.dir.clone();
    let (force, gossip_key_file) = (args.force, args.gossip_key_file);
    let done = drivers::init(InitCommand { here: args.here, name: name.clone(), force, gossip_key_file })?;
    let view = json!({
        "version": 1,
        "name": name,
        "api": api,
        "worker_token": done.worker_token,
        "manager_token": done.manager_token,
        "operator_credentials": done.operator_credentials,
        "ssh_key": done.ssh_key,
    });
    let machine = out.machine(&view)?;
    if !machine {
        out.text(&format!(
            "{name} is the first manager of a new cluster.\n\n\
             worker token:          {}\nmanager token:         {}\noperator credentials:  {}\n\n\
             The managers log in to nodes as `ssh:` in remoor.yml says, or with the SSH key of the cluster.\n\
             remoor node add installs the key. On other machines, add this line to authorized_keys:\n\n{}\n",
            done.worker_token,
            done.manager_token,
            done.operator_credentials.display(),
            done.ssh_key,
        ))?;
    }
    drivers::record_tokens_printed(&dir)?;
    if !machine {
        out.talk(&format!(
            "next: systemctl start remoor; then on the others: remoor join {api} --token-file FILE --advertise ADDRESS"
        ));
    }
    Ok(Exit::Done)
}

pub fn join(out: &Out, args: JoinArgs) -> anyhow::Result<Exit> {
    let from_env = std::env::var(TOKEN_VAR).ok().filter(|token| !token.is_empty());
    let token = match (args.token, &args.token_file, from_env) {
        (Some(token), ..) => {
            if drivers::is_secret_token(&token) {
                out.talk(SEEN);
            }
            token
        }
        (None, Some(file), _) => read_token(file)?,
        (None, None, Some(token)) => token.trim().to_owned(),
        (None, None, None) => return Err(no_token().into()),
    };
    let name = name_of(&args.here)?;
    let (here, addr, manager, wait) = (args.here, args.addr, args.manager, args.wait.0);
    drivers::join(JoinCommand { here, name: name.clone(), addr, token, manager, wait }, &mut |message| {
        out.talk(message)
    })?;
    out.text(&format!("{name} joined\n"))?;
    out.talk("next: systemctl start remoor");
    Ok(Exit::Done)
}

fn read_token(file: &Path) -> anyhow::Result<String> {
    let mut text = String::new();
    let read = if file == Path::new("-") {
        std::io::stdin().lock().take(TOKEN_MAX).read_to_string(&mut text)
    } else {
        std::fs::File::open(file).and_then(|f| f.take(TOKEN_MAX).read_to_string(&mut text))
    };
    read.map_err(|e| CommandError::usage_error(format!("the token can't be read from {}", file.display())).cause(&e))?;
    Ok(text.trim().to_owned())
}

fn name_of(here: &LocalNodeArgs) -> anyhow::Result<String> {
    here.name.clone().map_or_else(host_name, Ok)
}

fn host_name() -> anyhow::Result<String> {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    if name.is_empty() || name.starts_with("localhost") && reserved_by_ansible(&name).is_some() {
        return Err(CommandError::usage_error("this machine has no usable host name").next("--name NAME").into());
    }
    Ok(name)
}

pub fn agent(args: AgentArgs) -> anyhow::Result<Exit> {
    drivers::run(AgentCommand { dir: args.dir, socket: args.socket })?;
    Ok(Exit::Done)
}

pub fn completions(out: &Out, args: &CompletionsArgs) -> anyhow::Result<Exit> {
    // clap_complete panics if a write fails, so the script is first written to memory.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut args::command(), "remoor", &mut script);
    out.raw(&String::from_utf8(script).context("the completion script is not valid UTF-8")?)?;
    Ok(Exit::Done)
}

pub fn schema(out: &Out, args: &SchemaArgs) -> anyhow::Result<Exit> {
    let schema = match args.kind {
        SchemaKind::Checks => drivers::check_file_schema(),
        SchemaKind::Fleet => drivers::fleet_schema(),
    };
    out.document(&(serde_json::to_string_pretty(&schema)? + "\n"))?;
    Ok(Exit::Done)
}

pub fn man(out: &Out, args: &ManArgs) -> anyhow::Result<Exit> {
    let context = || format!("writing manual pages to {}", args.dir.display());
    std::fs::create_dir_all(&args.dir).with_context(context)?;
    clap_mangen::generate_to(args::command(), &args.dir).with_context(context)?;
    let pages = std::fs::read_dir(&args.dir).with_context(context)?.count();
    out.talk(&format!("{} in {}", count_noun(pages, "file"), args.dir.display()));
    Ok(Exit::Done)
}
