//! `remoor token`, `remoor key` and `remoor accept`: join tokens, shared keys, operator
//! credentials, and waiting machines.

use crate::cli::api::Api;
use crate::cli::args::{
    AcceptArgs, KeyOperatorArgs, KeyRotateArgs, KeyStatusArgs, KeyWord, TokenListArgs, TokenRotateArgs,
};
use crate::cli::ask::{self, UserConfirmation};
use crate::cli::error::CommandError;
use crate::cli::exit::Exit;
use crate::cli::out::Out;
use crate::cli::table::Table;
use remoor_cluster::rpc::view::{
    AcceptRequest, AcceptedView, KeysView, OperatorMade, OperatorRequest, PendingView, RotateKeyRequest, RotateRequest,
    RotatedView, RotationView, TokensView,
};
use remoor_model::{OPERATOR_NAME_RULE, is_operator_name};
use serde_json::json;
use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt;

pub async fn list(api: &Api, out: &Out, _: &TokenListArgs) -> anyhow::Result<Exit> {
    let view: TokensView = api.get("/v1/tokens").await?;
    if !out.machine(&view)? {
        if out.quiet {
            out.names(view.tokens.iter().map(|t| t.role.as_str()))?;
        } else {
            let mut table = Table::new(["TOKEN", "SINCE", "BY", "OLD ONE UNTIL"]);
            for token in &view.tokens {
                let text = |field: &Option<String>| field.clone().unwrap_or_default();
                table.row([token.role.clone(), text(&token.since), token.by.clone(), text(&token.old_until)]);
            }
            out.table(&table)?;
            out.text(&format!(
                "\npublic token (machines that join with it wait for remoor accept): {}\n",
                view.public
            ))?;
        }
    }
    Ok(out.source(&view.as_of))
}

pub async fn rotate(api: &Api, out: &Out, args: &TokenRotateArgs) -> anyhow::Result<Exit> {
    let keep_old_ms = args.keep_old.map_or(0, |span| u64::try_from(span.0.as_millis()).unwrap_or(u64::MAX));
    let request = RotateRequest { role: args.role.name().to_owned(), keep_old_ms };
    let view: RotatedView = api.post("/v1/tokens/rotate", &request).await?;
    if !out.machine(&view)? {
        out.text(&format!("{}\n", view.token.reveal()))?;
        if !out.quiet {
            let before = match args.keep_old {
                Some(_) => format!("the old one is valid until {}", view.old_until),
                None => "the old one is invalid".to_owned(),
            };
            out.talk(&format!("this is the new {} token; it can't be printed again; {before}", view.role));
        }
    }
    Ok(Exit::Done)
}

pub async fn rotate_key(api: &Api, out: &Out, args: &KeyRotateArgs) -> anyhow::Result<Exit> {
    let key = match args.key {
        KeyWord::Gossip if args.finish => {
            return Err(CommandError::usage_error(
                "--finish is only for the CA: a rotation of the gossip key does not wait for nodes that are away",
            )
            .into());
        }
        KeyWord::Gossip => "gossip",
        KeyWord::Ca => "ca",
    };
    if args.finish {
        let view: KeysView = api.get("/v1/keys").await?;
        let away = view.ca.and_then(|ca| ca.next).map(|next| next.away).unwrap_or_default();
        if !away.is_empty() {
            let effect = format!(
                "these nodes are away, and the rotation does not wait for them: {}\nif one returns after the rotation, its \
                 certificate is no longer accepted: it needs remoor accept NAME, and is then the same node as before",
                away.join(", ")
            );
            let UserConfirmation(()) = ask::confirm_yes(out, "the rotation", &effect, args.yes)?;
        }
    }
    let request = RotateKeyRequest { key: key.to_owned(), finish: args.finish };
    let view: AcceptedView = api.post("/v1/keys/rotate", &request).await?;
    if !out.machine(&view)? && !out.quiet {
        out.text(&format!("{}\n", view.text))?;
        if matches!(args.key, KeyWord::Ca) {
            out.talk(
                "operator credentials are valid as long as the old CA; only operator.json on the first manager is renewed. \
                 After the rotation, run remoor key operator NAME --file FILE for each operator",
            );
        }
        out.talk("next: remoor key status");
    }
    Ok(Exit::Done)
}

pub async fn key_status(api: &Api, out: &Out, _: &KeyStatusArgs) -> anyhow::Result<Exit> {
    let view: KeysView = api.get("/v1/keys").await?;
    if !out.machine(&view)? && !out.quiet {
        out.text(&format!("gossip key: {}\n", key_origin(view.serial)))?;
        if let Some(next) = &view.gossip {
            let step = match next.step.as_str() {
                "insert" => "all nodes accept it",
                _ => "all nodes use it, and still accept the old one",
            };
            print_rotation(out, "new key", next, step, "away, get it when they return")?;
            print_overdue_advice(out, next, "or stop it: it gets the key when it returns");
        }
        if let Some(ca) = &view.ca {
            out.text(&format!("CA: {}, {}, until {}\n", ca.fingerprint, key_origin(ca.serial), ca.until))?;
            if let Some(next) = &ca.next {
                let step = match next.step.as_str() {
                    "trust" => "all nodes start to trust it in addition to the old one",
                    _ => "all nodes get certificates from it, and trust both",
                };
                let what = format!("new CA {}", next.fingerprint.as_deref().unwrap_or_default());
                print_rotation(out, &what, next, step, "waits for (away)")?;
                print_overdue_advice(out, next, "or stop it, then remoor key rotate ca --finish continues without it");
                if !next.away.is_empty() {
                    out.talk("next: start them, or remoor key rotate ca --finish");
                }
            }
        }
        if !view.operators.is_empty() {
            let mut table = Table::new(["OPERATOR", "KEY", "SINCE", "BY", "UNTIL", "STATE"]);
            for one in &view.operators {
                table.row([&one.name, &one.fingerprint, &one.since, &one.by, &one.until, &one.state].map(Clone::clone));
            }
            out.text("\n")?;
            out.table(&table)?;
        }
        if let Some(table) = waiting_table(&view.waiting) {
            out.text("\n")?;
            out.table(&table)?;
            if view.waiting.iter().any(|one| one.state == "waiting") {
                out.talk("next: remoor accept NAME");
            }
        }
    }
    Ok(out.source(&view.as_of))
}

/// Prints advice for nodes that are present but delay the rotation.
fn print_overdue_advice(out: &Out, next: &RotationView, or: &str) {
    if !next.overdue.is_empty() {
        let names = next.overdue.join(", ");
        out.talk(&format!(
            "{names}: present, but did not confirm the key; next, on the node: journalctl -u remoor shows why, systemctl restart remoor; {or}"
        ));
    }
}

pub async fn operator(api: &Api, out: &Out, args: &KeyOperatorArgs) -> anyhow::Result<Exit> {
    if !is_operator_name(&args.name) {
        let text = format!("{:?} is not a valid operator name: {OPERATOR_NAME_RULE}", args.name);
        return Err(CommandError::usage_error(text).into());
    }
    let request = OperatorRequest { name: args.name.clone(), ..OperatorRequest::default() };
    let Some(file) = &args.file else {
        let view: AcceptedView = api.post("/v1/operators/revoke", &request).await?;
        if !out.machine(&view)? && !out.quiet {
            out.text(&format!("{}\n", view.text))?;
        }
        return Ok(Exit::Done);
    };
    // The file is created before the request, so that no credentials are made if the file can't be
    // created.
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(file).map_err(|error| {
        let stop = match error.kind() {
            ErrorKind::AlreadyExists => {
                CommandError::usage_error(format!("{} exists already and is not overwritten", file.display()))
            }
            _ => CommandError::usage_error(format!("{} can't be written", file.display())).cause(&error),
        };
        stop.next("--file with another name")
    })?;
    let made: OperatorMade = match api.post("/v1/operators", &request).await {
        Ok(made) => made,
        Err(error) => {
            // No credentials were created, so the empty file is removed.
            let _ = std::fs::remove_file(file);
            return Err(error.into());
        }
    };
    let OperatorMade { name, fingerprint, until, credentials, .. } = made;
    let Some(credentials) = credentials else {
        return Err(CommandError::new(Exit::Failed, "the manager sent no credentials").into());
    };
    credentials.save(file).map_err(|error| {
        let stop =
            CommandError::new(Exit::Failed, "the credentials were created, but could not be written").cause(&error);
        stop.next(format!("remoor key operator {name} --revoke, then the same command with another --file"))
    })?;
    let file = file.display();
    let view =
        json!({"version": 1, "name": name, "fingerprint": fingerprint, "until": until, "file": file.to_string()});
    if !out.machine(&view)? && !out.quiet {
        out.text(&format!("credentials of {name} until {until}: {file}\n"))?;
        out.talk(&format!("next: remoor status --manager HOST:PORT --credentials {file}"));
    }
    Ok(Exit::Done)
}

fn key_origin(serial: u64) -> String {
    match serial {
        0 => "made by init".to_owned(),
        entry => format!("made by entry {entry}"),
    }
}

fn print_rotation(out: &Out, what: &str, next: &RotationView, step: &str, away: &str) -> anyhow::Result<()> {
    out.text(&format!("{what}: rotation since {}, by {}: {step}\n", next.since, next.by))?;
    let behind = "away, need remoor accept NAME when they return";
    for (what, names) in [("waits for", &next.waits_for), (away, &next.away), (behind, &next.without)] {
        if !names.is_empty() {
            out.text(&format!("{what}: {}\n", names.join(", ")))?;
        }
    }
    Ok(())
}

pub async fn accept(api: &Api, out: &Out, args: &AcceptArgs) -> anyhow::Result<Exit> {
    let request = AcceptRequest {
        name: args.name.clone(),
        role: args.role.map_or_else(String::new, |role| role.name().to_owned()),
        deny: args.deny,
        fingerprint: args.fingerprint.clone().unwrap_or_default(),
    };
    let view: AcceptedView = api.post("/v1/accept", &request).await?;
    if !out.machine(&view)? && !out.quiet {
        out.text(&format!("{}\n", view.text))?;
    }
    Ok(Exit::Done)
}

/// The table of the machines that wait to be accepted. None: no machine waits.
pub fn waiting_table(pending: &[PendingView]) -> Option<Table> {
    let mut table = Table::new(["WAITS", "FOR", "STATE", "ROLE", "KEY", "ADDRESS", "SINCE"]);
    for one in pending {
        table.row(
            [&one.name, &one.why, &one.state, &one.role, &one.fingerprint, &one.address, &one.since].map(Clone::clone),
        );
    }
    (!pending.is_empty()).then_some(table)
}
