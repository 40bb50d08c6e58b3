//! `remoor node add`: adds one machine, or the hosts of the inventory that are not nodes yet.

use crate::cli::args::NodeAddArgs;
use crate::cli::ask;
use crate::cli::drivers::{self, AddError, AddOptions, Added, ToAdd};
use crate::cli::error::CommandError;
use crate::cli::exit::Exit;
use crate::cli::out::Out;
use remoor_model::count_noun;

const SSH_PORT: u16 = 22;

pub fn run(out: &Out, args: NodeAddArgs) -> anyhow::Result<Exit> {
    match &args.host {
        Some(host) => add_one(out, &args, host),
        None => add_many(out, &args),
    }
}

fn add_one(out: &Out, args: &NodeAddArgs, host: &str) -> anyhow::Result<Exit> {
    let port = args.ssh_port.unwrap_or(SSH_PORT);
    let to_add = ToAdd {
        name: args.name.clone().unwrap_or_else(|| host.to_owned()),
        host: host.to_owned(),
        port: Some(port),
        user: None,
        identity: None,
    };
    let options = options(out, args, to_add)?;
    let added = drivers::node_add(&options, &mut |line| out.talk(line)).map_err(with_done_steps)?;
    show(out, &options, &added)?;
    print_next(out, &options.name);
    Ok(Exit::Done)
}

/// Adds several machines. The host keys of all machines are confirmed before anything is sent to
/// the first machine.
fn add_many(out: &Out, args: &NodeAddArgs) -> anyhow::Result<Exit> {
    let (missing, of) = drivers::hosts_to_add(&args.socket, args.group.as_deref())?;
    if of == 0 {
        let text = match &args.group {
            Some(group) => format!("the applied inventory has no hosts in group {group}"),
            None => "no inventory is applied".to_owned(),
        };
        return Err(CommandError::refusal(text).next("remoor apply DIR, or remoor node add HOST").into());
    }
    if missing.is_empty() {
        out.talk(&format!("nothing to do: all {} of the inventory are nodes already", count_noun(of, "host")));
        return Ok(Exit::Done);
    }
    let all = missing.into_iter().map(|to_add| options(out, args, to_add)).collect::<anyhow::Result<Vec<_>>>()?;
    let ended = drivers::node_add_many(&all, &mut |name, line| out.talk(&format!("{name}: {line}")))?;
    let mut failed = Vec::new();
    for (options, ended) in all.iter().zip(ended) {
        match ended {
            Ok(added) => show(out, options, &added)?,
            Err(error) => failed.push((&options.name, CommandError::from_error(&with_done_steps(error.into())))),
        }
    }
    if failed.is_empty() {
        print_next(out, if args.all { "--all" } else { "NODE" });
        return Ok(Exit::Done);
    }
    let names: Vec<&str> = failed.iter().map(|(name, _)| name.as_str()).collect();
    let text = format!("{} of {} were not added: {}", failed.len(), count_noun(all.len(), "machine"), names.join(", "));
    let mut stop = CommandError::new(Exit::Failed, text)
        .next("fix the causes, then retry the command; machines that are nodes already are skipped");
    for (name, why) in failed {
        let next = why.next.map(|next| format!(" (next: {next})")).unwrap_or_default();
        stop.causes.push(format!("{name}: {}{next}", why.message));
    }
    Err(stop.into())
}

/// The options for one machine. The command line overrides the inventory.
fn options(out: &Out, args: &NodeAddArgs, to_add: ToAdd) -> anyhow::Result<AddOptions> {
    let port = args.ssh_port.or(to_add.port).unwrap_or(SSH_PORT);
    let host_keys = match &args.known_hosts {
        Some(file) => {
            let keys = drivers::known_keys(file, &to_add.host, port)?;
            if keys.is_empty() {
                let text =
                    format!("{} has no host key for {} port {port}; nothing was changed", file.display(), to_add.host);
                let next = format!(
                    "run ssh-keyscan -p {port} {}, compare the key on the console of the machine, and add it",
                    to_add.host
                );
                return Err(CommandError::refusal(text).next(next).into());
            }
            keys
        }
        None => {
            let offered = drivers::offered_keys(&to_add.host, port).map_err(|why| {
                CommandError::new(Exit::Failed, format!("{} offers no SSH host key on port {port}", to_add.host))
                    .cause(&std::io::Error::other(why))
                    .next("use --ssh-port PORT, or check that sshd runs there; nothing was changed")
            })?;
            ask::confirm_host_keys(out, &to_add.host, &offered, args.fingerprint.as_deref())?
        }
    };
    Ok(AddOptions {
        name: to_add.name,
        host: to_add.host,
        group: args.host.as_ref().and(args.group.clone()),
        manager: args.manager,
        zone: args.zone.clone(),
        user: args.ssh_user.clone().or(to_add.user).unwrap_or_else(|| "root".to_owned()),
        port,
        identity: args.identity.clone().or(to_add.identity),
        advertise: args.advertise,
        host_keys,
        socket: args.socket.clone(),
    })
}

fn show(out: &Out, options: &AddOptions, added: &Added) -> anyhow::Result<()> {
    let name = &options.name;
    out.text(&format!("{name} is node {} and alive\n", added.id))?;
    if !added.same_host_key {
        out.talk(&format!(
            "warning: the SSH host key of {name} differs from those that the node recorded; compare with remoor nodes, then remoor trust-key"
        ));
    }
    Ok(())
}

fn print_next(out: &Out, which: &str) {
    out.talk(&format!("next: remoor adopt {which} (keep the present state), or remoor commission {which} (set it up)"));
}

/// Adds the steps that were completed before the failure to the `caused by:` lines of the error.
fn with_done_steps(error: anyhow::Error) -> anyhow::Error {
    match error.downcast::<AddError>() {
        Ok(stopped @ AddError::Stopped { .. }) => {
            let mut stop = CommandError::new(Exit::Failed, stopped.to_string());
            if let AddError::Stopped { done, next, .. } = stopped {
                stop.causes = match done.is_empty() {
                    true => vec!["nothing was changed on the machine".to_owned()],
                    false => {
                        done.iter().map(|what| format!("done before the failure, and not undone: {what}")).collect()
                    }
                };
                stop = stop.next(next);
            }
            stop.into()
        }
        Ok(api) => api.into(),
        Err(other) => other,
    }
}
