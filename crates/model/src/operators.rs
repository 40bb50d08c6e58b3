//! Operator credentials that an entry recorded: their owner, and whether they were revoked.

use super::{InventoryEntry, Sha256, Wall};
use serde::{Deserialize, Serialize};

/// Maximum number of remembered credentials.
pub const OPERATORS_MAX: usize = 1_000;
/// Maximum length of an operator's name in bytes.
const NAME_MAX: usize = 64;
/// The time for which credentials are remembered after their expiry, because clocks may be wrong.
pub const OPERATOR_KEPT_MS: u64 = 7 * 24 * 3_600_000;

/// The name of the operator for whom `init` creates credentials.
pub const INIT_OPERATOR: &str = "operator";

/// The rule of [`is_operator_name`], for messages.
pub const OPERATOR_NAME_RULE: &str = "use 1 to 64 letters, digits, dots, dashes and _, and no dot or dash at the start";

/// Whether an operator may have this name. `@` is not allowed, because the journal uses it for
/// users of a manager's socket, for example `root@m1`.
pub fn is_operator_name(name: &str) -> bool {
    has_usable_characters(name) && !name.starts_with(['.', '-'])
}

/// Whether an entry of an earlier version may contain this name. The rule must not change, because
/// each manager must compute the same state from such an entry.
pub(crate) fn is_former_operator_name(name: &str) -> bool {
    has_usable_characters(name) && name != INIT_OPERATOR
}

fn has_usable_characters(name: &str) -> bool {
    let fits = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_');
    (1..=NAME_MAX).contains(&name.len()) && name.bytes().all(fits)
}

/// One set of credentials. It is valid until its certificate expires, its CA is replaced, or the
/// credentials are revoked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperatorKey {
    pub name: String,
    pub at: Wall,
    pub by: String,
    /// The last moment at which the certificate is valid.
    pub until: Wall,
    /// The CA that issued the credentials, as a [`ca_id`](super::ca_id).
    pub ca: Sha256,
    /// The time of the revocation, and the operator who ordered it. None if the credentials are not
    /// revoked.
    #[serde(default)]
    pub revoked: Option<(Wall, String)>,
}

impl OperatorKey {
    /// The credentials that `entry` records.
    pub fn new(entry: &InventoryEntry, name: &str, ca: Sha256, until: Wall) -> Self {
        Self { name: name.to_owned(), at: entry.at, by: entry.by.clone(), until, ca, revoked: None }
    }
}
