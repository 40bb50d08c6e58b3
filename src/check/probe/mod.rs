//! Asks the machine. Each resource type has its probe, which answers the asserted properties and judges nothing.

mod account;
mod addr;
mod command;
mod file;
mod http;
mod matching;
mod package;
mod port;
mod process;
mod service;
mod world;

pub(super) use world::World;

use super::load::Check;
use super::spec::Kind;
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;

/// Why there is no value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Trouble {
    /// It is certainly not as wanted: the contents of a directory, the header of a refused connection.
    Failed(String),
    /// It could not be found out.
    Unknown(String),
}

pub(super) type Answer = Result<Value, Trouble>;
/// By property; one that is missing was not found out.
pub(super) type Answers = BTreeMap<&'static str, Answer>;

fn unknown(why: impl ToString) -> Trouble {
    Trouble::Unknown(why.to_string())
}

fn failed(why: impl ToString) -> Trouble {
    Trouble::Failed(why.to_string())
}

/// What a probe has to know beside the check.
pub(super) struct Ask<'a> {
    pub check: &'a Check,
    pub world: &'a World,
    /// Longest wait of a check that names none; where goss's own default is shorter, that holds.
    pub limit: Duration,
}

impl Ask<'_> {
    fn wants(&self, property: &str) -> bool {
        self.check.assertions.iter().any(|assertion| assertion.property == property)
    }

    fn timeout(&self, default_ms: u64) -> Duration {
        let own = self.check.arguments.get("timeout").and_then(Value::as_u64).map(Duration::from_millis);
        own.unwrap_or_else(|| Duration::from_millis(default_ms).min(self.limit))
    }

    fn argument(&self, name: &str) -> Option<&str> {
        self.check.arguments.get(name).and_then(Value::as_str)
    }
}

/// Answers the asserted properties. Blocks, for about the check's timeout at most where it waits for others.
pub(super) fn ask(ask: &Ask) -> Answers {
    match ask.check.kind {
        Kind::Addr => addr::ask(ask),
        Kind::Command => command::ask(ask),
        Kind::File => file::ask(ask),
        Kind::Group => account::group(ask),
        Kind::Http => http::ask(ask),
        Kind::Matching => matching::ask(ask),
        Kind::Package => package::ask(ask),
        Kind::Port => port::ask(ask),
        Kind::Process => process::ask(ask),
        Kind::Service => service::ask(ask),
        Kind::User => account::user(ask),
    }
}

/// What can be said of a check's name while loading.
pub(super) fn validate(check: &Check) -> Result<(), String> {
    let name = check.name.as_str();
    let shown = check.label();
    match check.kind {
        _ if name.is_empty() => Err(format!("`{shown}` has an empty name")),
        Kind::Port => port::Port::parse(name)
            .map(drop)
            .ok_or_else(|| format!("`{name}` is no port; write tcp:80, tcp6:80, udp:53")),
        Kind::Service if !service::is_unit_name(name) => Err(format!("`{name}` is no name of a unit")),
        Kind::File if !name.starts_with('/') && !name.starts_with('~') => {
            Err(format!("the path `{name}` is not absolute"))
        }
        Kind::Http if name.starts_with("https://") => Err(format!("`{name}`: https comes in a later version")),
        Kind::Http if !name.starts_with("http://") => Err(format!("`{name}` is no URL; write http://HOST:PORT/PATH")),
        Kind::Addr if name.starts_with("udp://") => Err(format!("`{name}`: udp comes in a later version")),
        Kind::Addr if !name.starts_with("tcp://") => Err(format!("`{name}` is no address; write tcp://HOST:PORT")),
        Kind::Package if name.starts_with('-') => Err(format!("`{name}` is no name of a package")),
        _ => Ok(()),
    }
}
