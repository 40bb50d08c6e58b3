//! Debian's order of package versions, and version constraints as in control files.
//!
//! The rules are in the policy manual, section "Version": the epoch, the upstream version and the
//! revision are compared in this order. The last two are compared in alternating runs of non-digits
//! and digits. `~` sorts before everything, even before the end of the text: `1.0~rc1` is before
//! `1.0`.

use std::cmp::Ordering;
use std::fmt;

/// A version of a package: `1:2.30-1+deb12u1`.
#[derive(Debug, Clone)]
pub(super) struct Version {
    text: String,
    epoch: u64,
    upstream: String,
    revision: String,
}

impl Version {
    /// None if `text` is not a valid version.
    pub fn parse(text: &str) -> Option<Self> {
        let (epoch, rest) = match text.split_once(':') {
            Some((epoch, rest)) => (number(epoch)?, rest),
            None => (0, text),
        };
        let (upstream, revision) = rest.rsplit_once('-').unwrap_or((rest, ""));
        let known = |text: &str, more: &[u8]| text.bytes().all(|b| b.is_ascii_alphanumeric() || more.contains(&b));
        let empty_revision = rest.len() > upstream.len() && revision.is_empty();
        let fits = !upstream.is_empty() && !empty_revision && known(upstream, b".+~-:") && known(revision, b".+~");
        let (upstream, revision) = (upstream.to_owned(), revision.to_owned());
        fits.then(|| Self { text: text.to_owned(), epoch, upstream, revision })
    }
}

impl Ord for Version {
    fn cmp(&self, other: &Self) -> Ordering {
        let parts = || part(&self.upstream, &other.upstream).then_with(|| part(&self.revision, &other.revision));
        self.epoch.cmp(&other.epoch).then_with(parts)
    }
}

impl PartialOrd for Version {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Equality follows the order, not the spelling: `1.0` and `1.0-0` are the same version.
impl PartialEq for Version {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Version {}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Parses an epoch. The maximum is that of a C `int`, because dpkg stores epochs in an `int`.
fn number(text: &str) -> Option<u64> {
    text.parse().ok().filter(|n| text.bytes().all(|b| b.is_ascii_digit()) && *n <= i32::MAX.unsigned_abs().into())
}

/// Compares two upstream versions, or two revisions.
fn part(a: &str, b: &str) -> Ordering {
    let (mut a, mut b) = (a.as_bytes(), b.as_bytes());
    while !a.is_empty() || !b.is_empty() {
        let ((word_a, rest_a), (word_b, rest_b)) =
            (split_leading(a, |b| !b.is_ascii_digit()), split_leading(b, |b| !b.is_ascii_digit()));
        let ((digits_a, rest_a), (digits_b, rest_b)) =
            (split_leading(rest_a, u8::is_ascii_digit), split_leading(rest_b, u8::is_ascii_digit));
        let order = compare_non_digits(word_a, word_b).then_with(|| numeric_key(digits_a).cmp(&numeric_key(digits_b)));
        if order != Ordering::Equal {
            return order;
        }
        (a, b) = (rest_a, rest_b);
    }
    Ordering::Equal
}

/// Splits off the leading bytes for which `is` holds.
fn split_leading(text: &[u8], is: impl Fn(&u8) -> bool) -> (&[u8], &[u8]) {
    text.split_at(text.iter().position(|byte| !is(byte)).unwrap_or(text.len()))
}

/// Compares runs of non-digits: letters sort before other characters, and `~` before the end of the
/// run.
fn compare_non_digits(a: &[u8], b: &[u8]) -> Ordering {
    let weight = |byte: Option<&u8>| match byte {
        Some(b'~') => -1,
        None => 0,
        Some(letter) if letter.is_ascii_alphabetic() => i32::from(*letter),
        Some(other) => i32::from(*other) + 256,
    };
    let longest = a.len().max(b.len());
    (0..longest).map(|at| weight(a.get(at)).cmp(&weight(b.get(at)))).find(|o| o.is_ne()).unwrap_or(Ordering::Equal)
}

/// A sort key for numbers of any length: the count of digits without leading zeros, then the
/// digits.
fn numeric_key(digits: &[u8]) -> (usize, &[u8]) {
    let (_zeros, digits) = split_leading(digits, |byte| *byte == b'0');
    (digits.len(), digits)
}

/// A list of relations that must all hold, such as `>= 1.22, << 2~`.
#[derive(Debug, Clone)]
pub(super) struct Constraint(Vec<(Relation, Version)>);

#[derive(Debug, Clone, Copy)]
struct Relation {
    sign: &'static str,
    holds: fn(Ordering) -> bool,
}

const RELATIONS: [Relation; 5] = [
    Relation { sign: "<<", holds: Ordering::is_lt },
    Relation { sign: "<=", holds: Ordering::is_le },
    Relation { sign: "=", holds: Ordering::is_eq },
    Relation { sign: ">=", holds: Ordering::is_ge },
    Relation { sign: ">>", holds: Ordering::is_gt },
];

impl Constraint {
    /// Err: the reason why `text` is not a constraint.
    pub fn parse(text: &str) -> Result<Self, String> {
        let one = |part: &str| {
            let part = part.trim();
            let found = RELATIONS.iter().find_map(|relation| Some((*relation, part.strip_prefix(relation.sign)?)));
            let (relation, version) =
                found.ok_or_else(|| format!("`{part}` does not begin with one of <<, <=, =, >=, >>"))?;
            let version = version.trim();
            let version =
                Version::parse(version).ok_or_else(|| format!("`{version}` is not a valid Debian version"))?;
            Ok((relation, version))
        };
        text.split(',').map(one).collect::<Result<_, String>>().map(Self)
    }

    /// The first part of the constraint that `version` does not satisfy, as text.
    pub fn first_unmet_part(&self, version: &Version) -> Option<String> {
        let unmet = self.0.iter().find(|(relation, limit)| !(relation.holds)(version.cmp(limit)));
        unmet.map(|(relation, limit)| format!("{} {limit}", relation.sign))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::process::Command;

    fn version(text: &str) -> Version {
        Version::parse(text).unwrap_or_else(|| panic!("{text}"))
    }

    /// The ordered versions come from the policy manual and from packages in Debian.
    #[test]
    fn the_rules_of_the_policy_manual() {
        let ascending: [&[&str]; 6] = [
            &["1~~", "1~~a", "1~", "1", "1a"],
            &["1.2~rc1-1", "1.2-1", "1.2-1+b1", "1.2-1.1", "1.2-2", "1.2+dfsg-1", "1.2.1-1"],
            &["0.9", "1.0", "1.9", "1.10", "1.010.1", "2"],
            &["9.9-9", "1:0.1", "1:0.2", "2:0"],
            &["2.30-1", "2.30-1+deb12u1", "2.30-1+deb12u2", "2.30-2"],
            &["1.0-1", "1.0a", "1.0b", "1.0+a"],
        ];
        for line in ascending {
            for (at, low) in line.iter().enumerate() {
                for high in &line[at + 1..] {
                    assert_eq!(version(low).cmp(&version(high)), Ordering::Less, "{low} {high}");
                    assert_eq!(version(high).cmp(&version(low)), Ordering::Greater, "{high} {low}");
                }
            }
        }
        let same = [("1.0", "1.0-0"), ("0:1", "1"), ("1.01", "1.1"), ("1.0-00", "1.0"), ("1.", "1.0")];
        for (a, b) in same {
            assert_eq!(version(a), version(b));
        }
        let long = format!("1.{}", "9".repeat(40));
        assert!(version("1.8") < version(&long) && version(&long) < version(&format!("{long}0")));
    }

    #[test]
    fn invalid_versions_and_constraints_are_rejected() {
        for text in ["", ":1", "a:1", "-1:1", "1:", "1-", "-1", "1 2", "1_2", "9999999999:1", "1\u{e9}"] {
            assert!(Version::parse(text).is_none(), "{text}");
        }
        let why = |text| Constraint::parse(text).unwrap_err();
        assert_eq!(why("1.2"), "`1.2` does not begin with one of <<, <=, =, >=, >>");
        assert_eq!(why(">= 1,"), "`` does not begin with one of <<, <=, =, >=, >>");
        assert_eq!(why("> 1"), "`> 1` does not begin with one of <<, <=, =, >=, >>");
        assert_eq!(why("= "), "`` is not a valid Debian version");
    }

    #[test]
    fn constraints() {
        let range = Constraint::parse(">= 1.22, << 2~").unwrap();
        let unmet = |text| range.first_unmet_part(&version(text));
        assert_eq!((unmet("1.22"), unmet("1.22.1-9")), (None, None));
        assert_eq!(unmet("1.21-9").as_deref(), Some(">= 1.22"));
        assert_eq!(unmet("2~rc1").as_deref(), Some("<< 2~"));
        assert_eq!(unmet("1:1.22").as_deref(), Some("<< 2~"));
        let at = |text: &str, of: &str| Constraint::parse(text).unwrap().first_unmet_part(&version(of)).is_none();
        assert!(
            at("= 1.0", "1.0-0") && !at("= 1.0", "1.0-1") && at("<= 1", "1") && !at("<< 1", "1") && !at(">> 1", "1")
        );
    }

    fn arbitrary_version() -> impl Strategy<Value = String> {
        "([0-2]:)?[0-9]{1,2}([.+~a-c-]{0,2}[0-9a]{1,2}){0,3}(-[0-9a.~+]{1,3})?"
    }

    proptest! {
        #[test]
        fn it_is_an_order(a in arbitrary_version(), b in arbitrary_version(), c in arbitrary_version()) {
            let (a, b, c) = (version(&a), version(&b), version(&c));
            prop_assert_eq!(a.cmp(&b), b.cmp(&a).reverse());
            if a <= b && b <= c {
                prop_assert!(a <= c);
            }
        }
    }

    /// If dpkg is installed, it must order each pair of these versions as `Version` does.
    #[test]
    fn dpkg_agrees() {
        let texts = [
            "1",
            "1~",
            "1~~a",
            "1a",
            "1+",
            "1.0",
            "1.0-1",
            "1.0-1~bpo1",
            "1.0-1+b1",
            "1.01",
            "1.1",
            "1:0",
            "0:1.0-0",
            "1.0.",
            "1.a",
            "1.+",
            "1-1-1",
            "1.0~~",
            "1.0-0.1",
            "10",
            "9",
            "1.000000000000000000000000000001",
        ];
        if Command::new("dpkg").arg("--version").output().is_err() {
            return;
        }
        let mut script = String::new();
        for (a, b) in texts.iter().flat_map(|a| texts.iter().map(move |b| (a, b))) {
            let sign = match version(a).cmp(&version(b)) {
                Ordering::Less => "lt-nl",
                Ordering::Equal => "eq",
                Ordering::Greater => "gt-nl",
            };
            script += &format!("dpkg --compare-versions '{a}' {sign} '{b}' || echo '{a} {sign} {b}'\n");
        }
        let output = Command::new("sh").args(["-ec", &(script + "echo asked all")]).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "asked all\n");
    }
}
