//! The table of resource types and their attributes, by which check files are loaded.
//!
//! `CONTRIBUTING.md` lists what a new type needs.

/// A resource type of check files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ResourceKind {
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
    /// Not in goss: a certificate in a file or presented by a server.
    Cert,
    /// Not in goss: the file system that holds a path.
    Filesystem,
    /// Not in goss: entries of the journal.
    Journal,
    /// Only in the `remoor:` block: groups of checks.
    AnyOf,
    AllOf,
}

/// The use of an attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AttributeUse {
    /// An assertion that every check of this type must have.
    Required,
    /// An optional assertion.
    Assert,
    /// An optional assertion. A list in it contains line patterns.
    Stream,
    /// Optional assertions about a number with a unit: a time in days (`30d`), a time in seconds
    /// (`26h`), or a size in bytes (`5GiB`).
    Days,
    Seconds,
    Bytes,
    /// A map in which each entry is an assertion of its own, such as the properties of a unit.
    Entries,
    /// A string argument that is asserted to hold, such as a version constraint.
    Holds,
    /// Arguments: `Text` is a string, `Texts` a list of strings, `Millis` a number of milliseconds,
    /// `Flag` true or false.
    Text,
    Texts,
    Millis,
    Flag,
    /// An argument like `retry` of `meta.remoor`: the number of retries, and the delay before each
    /// in milliseconds or as `2s`.
    Retries,
    Delay,
    /// An argument with any value.
    Value,
}

pub(super) struct ResourceSpec {
    pub kind: ResourceKind,
    pub name: &'static str,
    /// The attribute that takes the id as its default. The text is empty if the type has no such
    /// attribute.
    pub name_attribute: &'static str,
    /// Whether the first assertion decides about the other assertions of the check. They are
    /// skipped if the first does not hold, or if its found value is `false`.
    pub gated: bool,
    pub attributes: &'static [(&'static str, AttributeUse)],
}

/// The resource types of goss. Assertions are reported in the order of the attributes in this
/// table.
pub(super) const SPECS: [ResourceSpec; 15] = [
    ResourceSpec {
        kind: ResourceKind::Addr,
        name: "addr",
        name_attribute: "address",
        gated: false,
        attributes: &[
            ("reachable", AttributeUse::Required),
            ("timeout", AttributeUse::Millis),
            ("local-address", AttributeUse::Text),
        ],
    },
    ResourceSpec {
        kind: ResourceKind::Command,
        name: "command",
        name_attribute: "exec",
        gated: false,
        attributes: &[
            ("exit-status", AttributeUse::Required),
            ("stdout", AttributeUse::Stream),
            ("stderr", AttributeUse::Stream),
            ("timeout", AttributeUse::Millis),
            ("retry_count", AttributeUse::Retries),
            ("retry_delay", AttributeUse::Delay),
        ],
    },
    ResourceSpec {
        kind: ResourceKind::Dns,
        name: "dns",
        name_attribute: "resolve",
        gated: true,
        attributes: &[
            ("resolvable", AttributeUse::Required),
            ("addrs", AttributeUse::Assert),
            ("server", AttributeUse::Text),
            ("timeout", AttributeUse::Millis),
            ("retry_count", AttributeUse::Retries),
            ("retry_delay", AttributeUse::Delay),
        ],
    },
    ResourceSpec {
        kind: ResourceKind::File,
        name: "file",
        name_attribute: "path",
        gated: true,
        attributes: &[
            ("exists", AttributeUse::Required),
            ("mode", AttributeUse::Assert),
            ("size", AttributeUse::Assert),
            ("owner", AttributeUse::Assert),
            ("uid", AttributeUse::Assert),
            ("group", AttributeUse::Assert),
            ("gid", AttributeUse::Assert),
            ("linked-to", AttributeUse::Assert),
            ("filetype", AttributeUse::Assert),
            ("contents", AttributeUse::Stream),
            ("md5", AttributeUse::Assert),
            ("sha256", AttributeUse::Assert),
            ("sha512", AttributeUse::Assert),
        ],
    },
    ResourceSpec {
        kind: ResourceKind::Group,
        name: "group",
        name_attribute: "groupname",
        gated: true,
        attributes: &[("exists", AttributeUse::Required), ("gid", AttributeUse::Assert)],
    },
    ResourceSpec {
        kind: ResourceKind::Http,
        name: "http",
        name_attribute: "url",
        gated: true,
        attributes: &[
            ("status", AttributeUse::Required),
            ("headers", AttributeUse::Stream),
            ("body", AttributeUse::Stream),
            ("method", AttributeUse::Text),
            ("no-follow-redirects", AttributeUse::Flag),
            ("timeout", AttributeUse::Millis),
            ("request-headers", AttributeUse::Texts),
            ("request-body", AttributeUse::Text),
            ("username", AttributeUse::Text),
            ("password", AttributeUse::Text),
            ("allow-insecure", AttributeUse::Flag),
            ("ca-file", AttributeUse::Text),
            ("cert-file", AttributeUse::Text),
            ("key-file", AttributeUse::Text),
            ("proxy", AttributeUse::Text),
        ],
    },
    ResourceSpec {
        kind: ResourceKind::Interface,
        name: "interface",
        name_attribute: "name",
        gated: true,
        attributes: &[
            ("exists", AttributeUse::Required),
            ("addrs", AttributeUse::Assert),
            ("mtu", AttributeUse::Assert),
        ],
    },
    ResourceSpec {
        kind: ResourceKind::KernelParam,
        name: "kernel-param",
        name_attribute: "name",
        gated: false,
        attributes: &[("value", AttributeUse::Required)],
    },
    ResourceSpec {
        kind: ResourceKind::Mount,
        name: "mount",
        name_attribute: "mountpoint",
        gated: true,
        attributes: &[
            ("exists", AttributeUse::Required),
            ("opts", AttributeUse::Assert),
            ("vfs-opts", AttributeUse::Assert),
            ("source", AttributeUse::Assert),
            ("filesystem", AttributeUse::Assert),
            ("usage", AttributeUse::Assert),
            ("timeout", AttributeUse::Millis),
        ],
    },
    ResourceSpec {
        kind: ResourceKind::Matching,
        name: "matching",
        name_attribute: "",
        gated: false,
        attributes: &[
            ("matches", AttributeUse::Required),
            ("content", AttributeUse::Value),
            ("as-reader", AttributeUse::Flag),
        ],
    },
    ResourceSpec {
        kind: ResourceKind::Package,
        name: "package",
        name_attribute: "name",
        gated: true,
        attributes: &[
            ("installed", AttributeUse::Required),
            ("versions", AttributeUse::Assert),
            ("retry_count", AttributeUse::Retries),
            ("retry_delay", AttributeUse::Delay),
        ],
    },
    ResourceSpec {
        kind: ResourceKind::Port,
        name: "port",
        name_attribute: "port",
        gated: true,
        attributes: &[("listening", AttributeUse::Required), ("ip", AttributeUse::Assert)],
    },
    ResourceSpec {
        kind: ResourceKind::Process,
        name: "process",
        name_attribute: "comm",
        gated: false,
        attributes: &[("running", AttributeUse::Required)],
    },
    ResourceSpec {
        kind: ResourceKind::Service,
        name: "service",
        name_attribute: "name",
        gated: false,
        attributes: &[
            ("enabled", AttributeUse::Assert),
            ("running", AttributeUse::Assert),
            ("runlevels", AttributeUse::Assert),
        ],
    },
    ResourceSpec {
        kind: ResourceKind::User,
        name: "user",
        name_attribute: "username",
        gated: true,
        attributes: &[
            ("exists", AttributeUse::Required),
            ("uid", AttributeUse::Assert),
            ("gid", AttributeUse::Assert),
            ("groups", AttributeUse::Assert),
            ("home", AttributeUse::Assert),
            ("shell", AttributeUse::Assert),
        ],
    },
];

/// Resource types that goss does not have. goss ignores them in the `remoor:` block and at the top
/// level of a file. Groups are only in the block.
pub(super) const EXTENSION_SPECS: [ResourceSpec; 5] = [
    ResourceSpec {
        kind: ResourceKind::Cert,
        name: "cert",
        name_attribute: "name",
        gated: false,
        attributes: &[
            ("not-after", AttributeUse::Days),
            ("subject", AttributeUse::Assert),
            ("issuer", AttributeUse::Assert),
            ("dns-names", AttributeUse::Assert),
            ("timeout", AttributeUse::Millis),
            ("server-name", AttributeUse::Text),
        ],
    },
    ResourceSpec {
        kind: ResourceKind::Filesystem,
        name: "filesystem",
        name_attribute: "path",
        gated: false,
        attributes: &[
            ("usage", AttributeUse::Assert),
            ("free-bytes", AttributeUse::Bytes),
            ("inode-usage", AttributeUse::Assert),
            ("mount-point", AttributeUse::Assert),
            ("filesystem", AttributeUse::Assert),
            ("timeout", AttributeUse::Millis),
        ],
    },
    ResourceSpec {
        kind: ResourceKind::Journal,
        name: "journal",
        name_attribute: "unit",
        gated: false,
        attributes: &[
            ("count", AttributeUse::Assert),
            ("messages", AttributeUse::Stream),
            ("since", AttributeUse::Text),
            ("priority", AttributeUse::Text),
            ("pattern", AttributeUse::Text),
            ("timeout", AttributeUse::Millis),
        ],
    },
    group(ResourceKind::AnyOf, "any-of"),
    group(ResourceKind::AllOf, "all-of"),
];

const fn group(kind: ResourceKind, name: &'static str) -> ResourceSpec {
    ResourceSpec { kind, name, name_attribute: "", gated: false, attributes: &[(HOLDS, AttributeUse::Required)] }
}

/// Entries of `meta.remoor` whose entries are assertions: properties of a unit, numbers that
/// regular expressions find in a text, and metrics in the text format of Prometheus.
pub(super) const PROPERTIES: &str = "properties";
pub(super) const NUMBERS: &str = "numbers";
pub(super) const METRICS: &str = "metrics";

/// The property that groups assert.
pub(super) const HOLDS: &str = "holds";

/// A resource type of goss that exists only on Windows.
pub(super) const WINDOWS: &str = "registry";

/// Attributes of every resource.
pub(super) const COMMON: [&str; 3] = ["title", "meta", "skip"];

impl ResourceKind {
    pub(super) fn spec(self) -> &'static ResourceSpec {
        SPECS.iter().chain(&EXTENSION_SPECS).find(|spec| spec.kind == self).expect("every kind has a row")
    }

    /// Whether this is a group, which is evaluated from the results of other checks.
    pub(super) fn is_group(self) -> bool {
        matches!(self, ResourceKind::AnyOf | ResourceKind::AllOf)
    }
}

impl ResourceSpec {
    /// Keys that `meta.remoor` accepts for this type only, in addition to the common ones: features
    /// that goss has no attribute for.
    pub fn extensions(&self) -> &'static [(&'static str, AttributeUse)] {
        match self.kind {
            ResourceKind::Process => {
                &[("user", AttributeUse::Text), ("args", AttributeUse::Text), ("count", AttributeUse::Assert)]
            }
            ResourceKind::Package => &[("deb-constraint", AttributeUse::Holds)],
            ResourceKind::Service => &[
                (PROPERTIES, AttributeUse::Entries),
                ("last-run-age", AttributeUse::Seconds),
                ("next-run-in", AttributeUse::Seconds),
                ("last-result", AttributeUse::Assert),
            ],
            ResourceKind::Command | ResourceKind::File | ResourceKind::Http => {
                &[(NUMBERS, AttributeUse::Entries), (METRICS, AttributeUse::Entries)]
            }
            _ => &[],
        }
    }

    /// Position of a property in the order of results.
    pub fn place(&self, property: &str) -> Option<usize> {
        self.attributes.iter().chain(self.extensions()).position(|(name, _)| *name == property)
    }
}

impl std::fmt::Display for ResourceKind {
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
