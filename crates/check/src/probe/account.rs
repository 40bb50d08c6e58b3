//! `user` and `group`: accounts in this machine's local files.

use super::{ProbeAnswer, ProbeAnswers, ProbeContext, failed_error};
use serde_json::Value;

pub(super) fn user(ask: &ProbeContext) -> ProbeAnswers {
    let names = ask.world.names();
    let account = names.account(&ask.check.name);
    let of = |value: Option<Value>| -> ProbeAnswer { value.ok_or_else(|| failed_error("there is no such user")) };
    ProbeAnswers::from([
        ("exists", Ok(account.is_some().into())),
        ("uid", of(account.map(|a| a.uid.into()))),
        ("gid", of(account.map(|a| a.gid.into()))),
        ("groups", of(account.map(|_| names.groups_of(&ask.check.name).into()))),
        ("home", of(account.map(|a| a.home.as_str().into()))),
        ("shell", of(account.map(|a| a.shell.as_str().into()))),
    ])
}

pub(super) fn group(ask: &ProbeContext) -> ProbeAnswers {
    let gid = ask.world.names().gid(&ask.check.name);
    ProbeAnswers::from([
        ("exists", Ok(gid.is_some().into())),
        ("gid", gid.map(Value::from).ok_or_else(|| failed_error("there is no such group"))),
    ])
}
