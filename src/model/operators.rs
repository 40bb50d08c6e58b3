//! Credentials of operators that were made by order: whose they are, and whether they were revoked.

use super::{Sha256, Wall};
use serde::{Deserialize, Serialize};

/// So many are remembered at a time.
pub const OPERATORS_MAX: usize = 1_000;
/// Longest name of an operator, bytes.
const NAME_MAX: usize = 64;
/// They are remembered for so long after their end, for clocks that are wrong.
pub const OPERATOR_KEPT_MS: u64 = 7 * 24 * 3_600_000;

/// Whom `init` makes credentials for, which nobody lists or revokes.
pub const INIT_OPERATOR: &str = "operator";

/// Whether an operator may be called so. The journal names operators by this: an `@` would pass for root of a manager.
pub fn is_operator_name(name: &str) -> bool {
    let fits = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_');
    (1..=NAME_MAX).contains(&name.len()) && name.bytes().all(fits) && name != INIT_OPERATOR
}

/// One set of credentials. It counts until its certificate ends, its CA is replaced or it is revoked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperatorKey {
    pub name: String,
    pub at: Wall,
    pub by: String,
    /// The last moment of the certificate.
    pub until: Wall,
    /// The CA that issued it, as [`ca_id`](super::ca_id) has it.
    pub ca: Sha256,
    /// When, and by whom.
    #[serde(default)]
    pub revoked: Option<(Wall, String)>,
}
