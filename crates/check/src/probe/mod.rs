//! Reads the state of the machine. Each resource type has its probe, which returns the asserted
//! properties and does not compare them.

mod account;
mod addr;
mod answers;
mod cert;
mod command;
mod dns;
mod file;
mod filesystem;
mod http;
mod init_scripts;
mod interface;
mod journal;
mod kernel_param;
mod matching;
mod measure;
mod mount;
mod package;
mod port;
mod process;
mod prometheus;
mod read;
mod resolve;
mod service;
mod unit_properties;
mod world;

pub(super) use answers::ProbeAnswers;
pub(super) use world::World;

use super::deb::Constraint;
use super::load::Check;
use super::spec::{PROPERTIES, ResourceKind};
use remoor_model::Wall;
use serde_json::Value;
use std::time::Duration;

/// The reason why there is no value for a property.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ProbeError {
    /// The property certainly does not have the expected value. For example, a directory has no
    /// content, and a refused connection gives no headers.
    Failed(String),
    /// The property could not be read.
    Unknown(String),
}

/// An additional answer for a `file`: whether only the owner may read the file. For a link, the
/// answer is about the target if the check asserts the content, and false otherwise.
pub(super) const PRIVATE: &str = "private";

pub(super) type ProbeAnswer = Result<Value, ProbeError>;

fn unknown_error(why: impl ToString) -> ProbeError {
    ProbeError::Unknown(why.to_string())
}

fn failed_error(why: impl ToString) -> ProbeError {
    ProbeError::Failed(why.to_string())
}

/// The input of a probe: the check, and the shared state of the run.
pub(super) struct ProbeContext<'a> {
    pub check: &'a Check,
    pub world: &'a World,
    /// Timeout of checks without a timeout of their own. A shorter default of goss takes
    /// precedence.
    pub limit: Duration,
    /// The current time, for certificates.
    pub now: Wall,
}

impl ProbeContext<'_> {
    fn wants(&self, property: &str) -> bool {
        self.check.assertions.iter().any(|assertion| assertion.property == property)
    }

    fn timeout(&self, default_ms: u64) -> Duration {
        // As in goss, a timeout of 0 means the default timeout.
        let own = self.check.arguments.get("timeout").and_then(Value::as_u64).filter(|ms| *ms > 0);
        own.map(Duration::from_millis).unwrap_or_else(|| Duration::from_millis(default_ms).min(self.limit))
    }

    fn argument(&self, name: &str) -> Option<&str> {
        text(self.check, name)
    }

    fn flag(&self, name: &str) -> bool {
        self.check.arguments.get(name).and_then(Value::as_bool).unwrap_or(false)
    }
}

fn text<'c>(check: &'c Check, argument: &str) -> Option<&'c str> {
    check.arguments.get(argument).and_then(Value::as_str)
}

/// Reads the asserted properties. A probe that waits for other programs or machines blocks for at
/// most about the check's timeout.
pub(super) fn ask(ask: &ProbeContext) -> ProbeAnswers {
    match ask.check.kind {
        ResourceKind::Addr => addr::ask(ask),
        ResourceKind::Cert => cert::ask(ask),
        ResourceKind::Command => command::ask(ask),
        ResourceKind::Dns => dns::ask(ask),
        ResourceKind::File => file::ask(ask),
        ResourceKind::Filesystem => filesystem::ask(ask),
        ResourceKind::Group => account::group(ask),
        ResourceKind::Http => http::ask(ask),
        ResourceKind::Interface => interface::ask(ask),
        ResourceKind::Journal => journal::ask(ask),
        ResourceKind::KernelParam => kernel_param::ask(ask),
        ResourceKind::Mount => mount::ask(ask),
        ResourceKind::Matching => matching::ask(ask),
        ResourceKind::Package => package::ask(ask),
        ResourceKind::Port => port::ask(ask),
        ResourceKind::Process => process::ask(ask),
        ResourceKind::Service => service::ask(ask),
        ResourceKind::User => account::user(ask),
        // Groups are evaluated in `groups`, from the results of their members.
        ResourceKind::AnyOf | ResourceKind::AllOf => ProbeAnswers::default(),
    }
}

/// Validates the name of an entry of `property`, of which each entry is an assertion of its own.
/// Err: the reason.
pub(super) fn validate_entry(property: &str, entry: &str) -> Result<(), String> {
    match property {
        PROPERTIES => unit_properties::validate_name(entry),
        _ => measure::validate(property, entry),
    }
}

/// Validates a check's name and arguments while a file is loaded. Err: the reason.
pub(super) fn validate(check: &Check) -> Result<(), String> {
    let name = check.name.as_str();
    let argument = |argument: &str| text(check, argument);
    let shown = check.label();
    match check.kind {
        _ if name.is_empty() => Err(format!("`{shown}` has an empty name")),
        ResourceKind::Port => port::Port::parse(name)
            .map(drop)
            .ok_or_else(|| format!("`{name}` is not a port; write tcp:80, tcp6:80, udp:53")),
        ResourceKind::Service if !service::is_unit_name(name) => Err(format!("`{name}` is not a valid unit name")),
        ResourceKind::File if !name.starts_with('/') && !name.starts_with('~') => {
            Err(format!("the path `{name}` is not absolute"))
        }
        ResourceKind::Http => http::validate(name, argument),
        ResourceKind::Addr => addr::validate(name, argument("local-address")),
        ResourceKind::Cert => cert::validate(name, argument("server-name")),
        ResourceKind::Dns => dns::validate(name, argument("server")),
        ResourceKind::KernelParam if kernel_param::path(name).is_none() => {
            Err(format!("`{name}` is not a parameter name; write net.ipv4.ip_forward"))
        }
        ResourceKind::Service => {
            check.assertions.iter().try_for_each(|one| unit_properties::validate_unit(name, one.property))
        }
        ResourceKind::Journal => journal::validate(name, argument),
        ResourceKind::Mount | ResourceKind::Filesystem if !name.starts_with('/') => {
            Err(format!("the path `{name}` is not absolute"))
        }
        ResourceKind::Package => argument("deb-constraint").map_or(Ok(()), |text| Constraint::parse(text).map(drop)),
        ResourceKind::Process => process::validate(argument("args")),
        _ => Ok(()),
    }
}
