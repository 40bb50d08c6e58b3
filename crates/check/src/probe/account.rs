//! `user` and `group`: accounts in this machine's local files.

use super::{Answer, Answers, Ask, failed};
use serde_json::Value;

pub(super) fn user(ask: &Ask) -> Answers {
    let names = ask.world.names();
    let account = names.account(&ask.check.name);
    let of = |value: Option<Value>| -> Answer { value.ok_or_else(|| failed("there is no such user")) };
    Answers::from([
        ("exists", Ok(account.is_some().into())),
        ("uid", of(account.map(|a| a.uid.into()))),
        ("gid", of(account.map(|a| a.gid.into()))),
        ("groups", of(account.map(|_| names.groups_of(&ask.check.name).into()))),
        ("home", of(account.map(|a| a.home.as_str().into()))),
        ("shell", of(account.map(|a| a.shell.as_str().into()))),
    ])
}

pub(super) fn group(ask: &Ask) -> Answers {
    let gid = ask.world.names().gid(&ask.check.name);
    Answers::from([
        ("exists", Ok(gid.is_some().into())),
        ("gid", gid.map(Value::from).ok_or_else(|| failed("there is no such group"))),
    ])
}
