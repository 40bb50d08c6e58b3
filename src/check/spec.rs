//! Which resource types there are and which attributes each has: the one table that loading goes by.
//!
//! A new type gets a line in `Kind`, a row in `SPECS` and a probe.

/// A resource type that can be run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Addr,
    Command,
    File,
    Group,
    Http,
    Matching,
    Package,
    Port,
    Process,
    Service,
    User,
}

/// What an attribute is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    /// Asserted, and has to be there.
    Required,
    /// Asserted.
    Assert,
    /// Asserted; a list is one of line patterns.
    Stream,
    /// Arguments: a string, a list of strings, milliseconds, true or false.
    Text,
    Texts,
    Millis,
    Flag,
    /// An argument: whatever it is.
    Value,
    /// goss knows it, this version does not.
    Later,
}

pub(super) struct Spec {
    pub kind: Kind,
    pub name: &'static str,
    /// The attribute whose default is the id; empty if there is none.
    pub name_attribute: &'static str,
    /// If the first assertion does not hold or finds `false`, the others are skipped.
    pub gated: bool,
    pub attributes: &'static [(&'static str, Use)],
}

/// Assertions in the order in which they are answered.
pub(super) const SPECS: [Spec; 11] = [
    Spec {
        kind: Kind::Addr,
        name: "addr",
        name_attribute: "address",
        gated: false,
        attributes: &[("reachable", Use::Required), ("timeout", Use::Millis), ("local-address", Use::Later)],
    },
    Spec {
        kind: Kind::Command,
        name: "command",
        name_attribute: "exec",
        gated: false,
        attributes: &[
            ("exit-status", Use::Required),
            ("stdout", Use::Stream),
            ("stderr", Use::Stream),
            ("timeout", Use::Millis),
            ("retry_count", Use::Later),
            ("retry_delay", Use::Later),
        ],
    },
    Spec {
        kind: Kind::File,
        name: "file",
        name_attribute: "path",
        gated: true,
        attributes: &[
            ("exists", Use::Required),
            ("mode", Use::Assert),
            ("size", Use::Assert),
            ("owner", Use::Assert),
            ("uid", Use::Assert),
            ("group", Use::Assert),
            ("gid", Use::Assert),
            ("linked-to", Use::Assert),
            ("filetype", Use::Assert),
            ("contents", Use::Stream),
            ("md5", Use::Later),
            ("sha256", Use::Assert),
            ("sha512", Use::Assert),
        ],
    },
    Spec {
        kind: Kind::Group,
        name: "group",
        name_attribute: "groupname",
        gated: true,
        attributes: &[("exists", Use::Required), ("gid", Use::Assert)],
    },
    Spec {
        kind: Kind::Http,
        name: "http",
        name_attribute: "url",
        gated: true,
        attributes: &[
            ("status", Use::Required),
            ("headers", Use::Stream),
            ("body", Use::Stream),
            ("method", Use::Text),
            ("no-follow-redirects", Use::Flag),
            ("timeout", Use::Millis),
            ("request-headers", Use::Texts),
            ("request-body", Use::Text),
            ("username", Use::Text),
            ("password", Use::Text),
            ("allow-insecure", Use::Later),
            ("ca-file", Use::Later),
            ("cert-file", Use::Later),
            ("key-file", Use::Later),
            ("proxy", Use::Later),
        ],
    },
    Spec {
        kind: Kind::Matching,
        name: "matching",
        name_attribute: "",
        gated: false,
        attributes: &[("matches", Use::Required), ("content", Use::Value), ("as-reader", Use::Flag)],
    },
    Spec {
        kind: Kind::Package,
        name: "package",
        name_attribute: "name",
        gated: true,
        attributes: &[
            ("installed", Use::Required),
            ("versions", Use::Assert),
            ("retry_count", Use::Later),
            ("retry_delay", Use::Later),
        ],
    },
    Spec {
        kind: Kind::Port,
        name: "port",
        name_attribute: "port",
        gated: true,
        attributes: &[("listening", Use::Required), ("ip", Use::Assert)],
    },
    Spec {
        kind: Kind::Process,
        name: "process",
        name_attribute: "comm",
        gated: false,
        attributes: &[("running", Use::Required)],
    },
    Spec {
        kind: Kind::Service,
        name: "service",
        name_attribute: "name",
        gated: false,
        attributes: &[("enabled", Use::Assert), ("running", Use::Assert), ("runlevels", Use::Later)],
    },
    Spec {
        kind: Kind::User,
        name: "user",
        name_attribute: "username",
        gated: true,
        attributes: &[
            ("exists", Use::Required),
            ("uid", Use::Assert),
            ("gid", Use::Assert),
            ("groups", Use::Assert),
            ("home", Use::Assert),
            ("shell", Use::Assert),
        ],
    },
];

/// goss knows these types, this version does not.
pub(super) const LATER: [&str; 6] = ["dns", "gossfile", "interface", "kernel-param", "mount", "registry"];

/// Attributes of every resource.
pub(super) const COMMON: [&str; 3] = ["title", "meta", "skip"];

impl Kind {
    pub(super) fn spec(self) -> &'static Spec {
        SPECS.iter().find(|spec| spec.kind == self).expect("every kind has a row")
    }
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.spec().name)
    }
}

/// The name in use for a former spelling.
pub(super) fn current_name(attribute: &str) -> &str {
    match attribute {
        "contains" => "contents",
        other => other,
    }
}
