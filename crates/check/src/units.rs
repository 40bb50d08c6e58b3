//! Numbers with a unit in check files, such as `30d` and `5GiB`. Pure.

use super::yaml::{Yaml, YamlKey, YamlNode};
use remoor_model::Fault;
use serde_json::Number;

/// A kind of numbers that may be written with a unit.
pub(super) struct Unit {
    /// The number that a text without a valid unit is not, for messages.
    name: &'static str,
    /// The units, as regular expression for the schema, and the size of each.
    pub pattern: &'static str,
    sizes: &'static [(&'static str, f64)],
    /// How to write a number, for hints.
    example: &'static str,
}

/// A time in days.
pub(super) const DAYS: Unit = Unit {
    name: "a number of days",
    pattern: "^[0-9]+[hdw]$",
    sizes: &[("h", 1.0 / 24.0), ("d", 1.0), ("w", 7.0)],
    example: "write it as 30d, 12h or 2w",
};
/// A time in seconds.
pub(super) const SECONDS: Unit = Unit {
    name: "a time",
    pattern: "^[0-9]+[smhdw]$",
    sizes: &[("s", 1.0), ("m", 60.0), ("h", 3600.0), ("d", 86_400.0), ("w", 604_800.0)],
    example: "write it as 90s, 5m, 26h, 2d or 1w",
};
const KIB: f64 = 1024.0;
/// A size in bytes. `KB` and `GB` are not accepted, because they mean powers of 1000 for some
/// programs and powers of 1024 for others.
pub(super) const BYTES: Unit = Unit {
    name: "a number of bytes",
    pattern: "^[0-9]+[KMGT]iB$",
    sizes: &[("KiB", KIB), ("MiB", KIB * KIB), ("GiB", KIB * KIB * KIB), ("TiB", KIB * KIB * KIB * KIB)],
    example: "write it as 500MiB or 5GiB",
};

impl Unit {
    /// Converts each text with a unit in `node` to a number. None after a fault.
    pub fn convert(&self, file: &str, node: &YamlNode, faults: &mut Vec<Fault>) -> Option<YamlNode> {
        let yaml = match &node.yaml {
            Yaml::Text(text) => match self.read(text) {
                Some(number) => Yaml::Number(number),
                None => {
                    let fault = node.fault(file, format!("`{text}` is not {}", self.name));
                    // `<26h` is a likely mistake.
                    let hint = match text.split_at_checked(1) {
                        Some(("<", rest)) if self.read(rest.trim()).is_some() => {
                            format!("write {{lt: {}}}", rest.trim())
                        }
                        Some((">", rest)) if self.read(rest.trim()).is_some() => {
                            format!("write {{gt: {}}}", rest.trim())
                        }
                        _ => self.example.to_owned(),
                    };
                    faults.push(fault.hint(hint));
                    return None;
                }
            },
            Yaml::List(items) => {
                Yaml::List(items.iter().map(|item| self.convert(file, item, faults)).collect::<Option<_>>()?)
            }
            Yaml::Map(pairs) => {
                let pair = |(key, node): &(YamlKey, YamlNode)| Some((key.clone(), self.convert(file, node, faults)?));
                Yaml::Map(pairs.iter().map(pair).collect::<Option<_>>()?)
            }
            other => other.clone(),
        };
        Some(YamlNode { yaml, ..node.clone() })
    }

    /// The number that `text` means, such as `30d`. None if the unit is missing or unknown.
    pub fn read(&self, text: &str) -> Option<Number> {
        let digits = text.find(|c: char| !c.is_ascii_digit())?;
        let number: u32 = text[..digits].parse().ok()?;
        let (_, size) = self.sizes.iter().find(|(name, _)| *name == &text[digits..])?;
        let number = f64::from(number) * size;
        // A whole number is shown without a decimal point.
        if number.fract() == 0.0 { Some((number as u64).into()) } else { Number::from_f64(number) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_is_required_and_known() {
        let read = |unit: &Unit, text: &str| unit.read(text).and_then(|n| n.as_f64());
        assert_eq!(["30d", "12h", "2w"].map(|text| read(&DAYS, text)), [Some(30.0), Some(0.5), Some(14.0)]);
        assert_eq!(["30", "d", "1m", "-1d", "99999999999d", "1.5d"].map(|text| read(&DAYS, text)), [None; 6]);
        assert_eq!(
            ["90s", "26h", "1w"].map(|text| read(&SECONDS, text)),
            [Some(90.0), Some(93_600.0), Some(604_800.0)]
        );
        assert_eq!(["3KiB", "5GiB"].map(|text| read(&BYTES, text)), [Some(3072.0), Some(5_368_709_120.0)]);
        assert_eq!(["5GB", "5G", "5", "5gib"].map(|text| read(&BYTES, text)), [None; 4]);
    }

    #[test]
    fn the_schema_accepts_what_is_read() {
        for (unit, texts) in [
            (&DAYS, &["30d", "12h", "2w", "1m", "d", "1.5d"][..]),
            (&SECONDS, &["90s", "5m", "26h", "2d", "1w", "1y", "s"][..]),
            (&BYTES, &["1KiB", "1MiB", "1GiB", "1TiB", "1GB", "1G", "GiB"][..]),
        ] {
            let pattern = regex::Regex::new(unit.pattern).unwrap();
            for text in texts {
                assert_eq!(pattern.is_match(text), unit.read(text).is_some(), "{text}");
            }
        }
    }
}
