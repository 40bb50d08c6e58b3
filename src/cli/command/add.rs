//! `remoor node add HOST`.

use crate::cli::args::NodeAddArgs;
use crate::cli::ask;
use crate::cli::drivers::{self, AddError, AddOptions};
use crate::cli::error::Stop;
use crate::cli::exit::Exit;
use crate::cli::out::Out;

const SSH_PORT: u16 = 22;

pub fn run(out: &Out, args: NodeAddArgs) -> anyhow::Result<Exit> {
    let port = args.ssh_port.unwrap_or(SSH_PORT);
    let offered = drivers::offered_keys(&args.host, port).map_err(|why| {
        Stop::new(Exit::Failed, format!("{} shows no SSH host key on port {port}", args.host))
            .cause(&std::io::Error::other(why))
            .next("--ssh-port PORT, or look whether sshd runs there; nothing was changed")
    })?;
    let host_keys = ask::host_keys(out, &args.host, &offered, args.fingerprint.as_deref())?;
    let options = AddOptions {
        name: args.name.unwrap_or_else(|| args.host.clone()),
        host: args.host,
        group: args.group,
        manager: args.manager,
        user: args.ssh_user.unwrap_or_else(|| "root".to_owned()),
        port,
        identity: args.identity,
        advertise: args.advertise,
        host_keys,
        socket: args.socket,
    };
    let added = drivers::node_add(&options, &mut |line| out.talk(line)).map_err(told)?;
    out.text(&format!("{} is node {} and alive\n", options.name, added.id))?;
    if !added.same_host_key {
        out.talk("warning: its SSH host key is not among those it recorded; compare with remoor nodes, then trust-key");
    }
    out.talk(&format!(
        "next: remoor adopt {0} (keep what is there), or remoor commission {0} (set it up)",
        options.name
    ));
    Ok(Exit::Done)
}

/// What was done before the end is told with it.
fn told(error: anyhow::Error) -> anyhow::Error {
    match error.downcast::<AddError>() {
        Ok(stopped @ AddError::Stopped { .. }) => {
            let mut stop = Stop::new(Exit::Failed, stopped.to_string());
            if let AddError::Stopped { done, next, .. } = stopped {
                stop.causes = match done.is_empty() {
                    true => vec!["nothing was changed there".to_owned()],
                    false => done.iter().map(|what| format!("before that, and still so: {what}")).collect(),
                };
                stop = stop.next(next);
            }
            stop.into()
        }
        Ok(api) => api.into(),
        Err(other) => other,
    }
}
