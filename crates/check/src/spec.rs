//! The table of resource types and their attributes, which loading uses.
//!
//! A new type needs a variant in `ResourceKind`, an entry in `SPECS` and a probe. A type that goss
//! does not have gets an entry in `EXTENSION_SPECS` instead.

/// A resource type of check files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Addr,
    Command,
    Dns,
    File,
    Group,
    Http,
    Interface,
    KernelParam,
    Mount,
    Matching,
    Package,
    Port,
    Process,
    Service,
    User,
    /// Only in the `remoor:` block: a certificate in a file or presented by a server.
    Cert,
    /// Only in the `remoor:` block: groups of checks.
    AnyOf,
    AllOf,
}

/// How an attribute is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    /// Asserted and required.
    Required,
    /// Asserted.
    Assert,
    /// Asserted; a list contains line patterns.
    Stream,
    /// Asserted: a number of days, which may be written as `30d`.
    Days,
    /// A string argument; the assertion is that it holds.
    Holds,
    /// Arguments: a string, a list of strings, milliseconds, true or false.
    Text,
    Texts,
    Millis,
    Flag,
    /// As `retry` of `meta.remoor`: the number of retries, and the delay before each in
    /// milliseconds or as `2s`.
    Retries,
    Delay,
    /// An argument with any value.
    Value,
}

pub(super) struct Spec {
    pub kind: Kind,
    pub name: &'static str,
    /// The attribute whose default is the id; empty if there is none.
    pub name_attribute: &'static str,
    /// If the first assertion does not hold, or finds `false`, the others are skipped.
    pub gated: bool,
    pub attributes: &'static [(&'static str, Use)],
}

/// The resource types of goss. Assertions are reported in the order of their attributes here.
pub(super) const SPECS: [Spec; 15] = [
    Spec {
        kind: Kind::Addr,
        name: "addr",
        name_attribute: "address",
        gated: false,
        attributes: &[("reachable", Use::Required), ("timeout", Use::Millis), ("local-address", Use::Text)],
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
            ("retry_count", Use::Retries),
            ("retry_delay", Use::Delay),
        ],
    },
    Spec {
        kind: Kind::Dns,
        name: "dns",
        name_attribute: "resolve",
        gated: true,
        attributes: &[
            ("resolvable", Use::Required),
            ("addrs", Use::Assert),
            ("server", Use::Text),
            ("timeout", Use::Millis),
            ("retry_count", Use::Retries),
            ("retry_delay", Use::Delay),
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
            ("md5", Use::Assert),
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
            ("allow-insecure", Use::Flag),
            ("ca-file", Use::Text),
            ("cert-file", Use::Text),
            ("key-file", Use::Text),
            ("proxy", Use::Text),
        ],
    },
    Spec {
        kind: Kind::Interface,
        name: "interface",
        name_attribute: "name",
        gated: true,
        attributes: &[("exists", Use::Required), ("addrs", Use::Assert), ("mtu", Use::Assert)],
    },
    Spec {
        kind: Kind::KernelParam,
        name: "kernel-param",
        name_attribute: "name",
        gated: false,
        attributes: &[("value", Use::Required)],
    },
    Spec {
        kind: Kind::Mount,
        name: "mount",
        name_attribute: "mountpoint",
        gated: true,
        attributes: &[
            ("exists", Use::Required),
            ("opts", Use::Assert),
            ("vfs-opts", Use::Assert),
            ("source", Use::Assert),
            ("filesystem", Use::Assert),
            ("usage", Use::Assert),
            ("timeout", Use::Millis),
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
            ("retry_count", Use::Retries),
            ("retry_delay", Use::Delay),
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
        attributes: &[("enabled", Use::Assert), ("running", Use::Assert), ("runlevels", Use::Assert)],
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

/// Resource types of the `remoor:` block, which goss ignores.
pub(super) const OWN: [Spec; 3] = [
    Spec {
        kind: Kind::Cert,
        name: "cert",
        name_attribute: "name",
        gated: false,
        attributes: &[
            ("not-after", Use::Days),
            ("subject", Use::Assert),
            ("issuer", Use::Assert),
            ("dns-names", Use::Assert),
            ("timeout", Use::Millis),
            ("server-name", Use::Text),
        ],
    },
    group(Kind::AnyOf, "any-of"),
    group(Kind::AllOf, "all-of"),
];

const fn group(kind: Kind, name: &'static str) -> Spec {
    Spec { kind, name, name_attribute: "", gated: false, attributes: &[(HOLDS, Use::Required)] }
}

/// The property that groups assert.
pub(super) const HOLDS: &str = "holds";

/// A resource type of goss that exists only on Windows.
pub(super) const WINDOWS: &str = "registry";

/// Attributes of every resource.
pub(super) const COMMON: [&str; 3] = ["title", "meta", "skip"];

impl Kind {
    pub(super) fn spec(self) -> &'static Spec {
        SPECS.iter().chain(&OWN).find(|spec| spec.kind == self).expect("every kind has a row")
    }

    /// Whether this is a group, which is evaluated from the results of other checks.
    pub(super) fn is_group(self) -> bool {
        matches!(self, Kind::AnyOf | Kind::AllOf)
    }
}

impl Spec {
    /// Keys that `meta.remoor` accepts for this type only, in addition to the common ones: features
    /// that goss has no attribute for.
    pub fn extensions(&self) -> &'static [(&'static str, Use)] {
        match self.kind {
            Kind::Process => &[("user", Use::Text), ("args", Use::Text), ("count", Use::Assert)],
            Kind::Package => &[("deb-constraint", Use::Holds)],
            _ => &[],
        }
    }

    /// Position of a property in the order of results.
    pub fn place(&self, property: &str) -> Option<usize> {
        self.attributes.iter().chain(self.extensions()).position(|(name, _)| *name == property)
    }
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.spec().name)
    }
}

/// The current name of an attribute that has an older spelling.
pub(super) fn current_name(attribute: &str) -> &str {
    match attribute {
        "contains" => "contents",
        "resolveable" => "resolvable",
        other => other,
    }
}
