//! Property values as texts, by the rules of `systemctl show`, which depend on the property name.

use super::wire::Value;
use jiff::Timestamp;
use jiff::tz::TimeZone;

/// The value of a property as text. None: the value has no plain text (`ExecStart`,
/// `EnvironmentFiles`), or is a bit set with named bits.
pub fn property_text(name: &str, value: &Value) -> Option<String> {
    Some(match value {
        Value::Text(text) => text.replace('\n', "\\x0a"),
        Value::Bool(on) => if *on { "yes" } else { "no" }.to_owned(),
        Value::Int(number) => number.to_string(),
        Value::Uint(number) => match name {
            _ if name.contains("UMask") || name.contains("Mode") => format!("{number:04o}"),
            "UID" | "GID" if *number == u32::MAX => "[not set]".to_owned(),
            _ => number.to_string(),
        },
        Value::Long(number) => format_u64(name, *number)?,
        Value::Double(number) => number.to_string(),
        Value::Array(items) if name == "InvocationID" => items
            .iter()
            .map(|item| if let Value::Byte(byte) = item { format!("{byte:02x}") } else { String::new() })
            .collect(),
        Value::Array(items) => list(items)?,
        Value::Byte(_) | Value::Struct(_) => return None,
    })
}

fn format_u64(name: &str, number: u64) -> Option<String> {
    let ends = |ends: &[&str]| ends.iter().any(|end| name.ends_with(end));
    let starts = |starts: &[&str]| starts.iter().any(|start| name.starts_with(start));
    let unlimited = number == u64::MAX;
    Some(match name {
        "CapabilityBoundingSet" | "AmbientCapabilities" | "RestrictNamespaces" | "MountFlags" => return None,
        "NextElapseUSecRealtime" | "LastTriggerUSec" => format_time(number),
        _ if ends(&["Timestamp"]) => format_time(number),
        _ if name.contains("USec") => format_duration(number),
        "CoredumpFilter" => format!("{number:#x}"),
        _ if unlimited && ends(&["NSec", "CPUWeight", "IOWeight", "CPUShares"]) => "[not set]".to_owned(),
        _ if unlimited
            && ends(&["MemoryCurrent", "TasksCurrent", "MemoryPeak", "MemorySwapCurrent", "MemorySwapPeak"]) =>
        {
            "[not set]".to_owned()
        }
        _ if unlimited && name.starts_with("IP") => "[no data]".to_owned(),
        _ if unlimited && name.starts_with("IO") => number.to_string(),
        _ if unlimited && starts(&["Limit", "Memory", "DefaultMemory", "StartupMemory", "TasksMax"]) => {
            "infinity".to_owned()
        }
        _ => number.to_string(),
    })
}

/// A list of texts or numbers. Texts with blanks are quoted.
fn list(items: &[Value]) -> Option<String> {
    let words: Option<Vec<String>> = items
        .iter()
        .map(|item| match item {
            Value::Text(text) => Some(quote(text)),
            Value::Uint(number) => Some(number.to_string()),
            Value::Int(number) => Some(number.to_string()),
            _ => None,
        })
        .collect();
    Some(words?.join(" "))
}

/// Quotes a text for a shell if necessary.
fn quote(text: &str) -> String {
    let plain = |c: char| !c.is_whitespace() && !"\"\\`$*?['()<>|&;!".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text.to_owned();
    }
    let mut out = String::from("\"");
    for c in text.chars() {
        if "\"\\`$".contains(c) {
            out.push('\\');
        }
        out.push(c);
    }
    out.push('"');
    out
}

/// Formats microseconds since 1970 as a time in the machine's time zone. An empty text
/// means never.
fn format_time(us: u64) -> String {
    let at = i64::try_from(us).ok().filter(|us| *us > 0).and_then(|us| Timestamp::from_microsecond(us).ok());
    at.map_or_else(String::new, |at| at.to_zoned(TimeZone::system()).strftime("%a %Y-%m-%d %H:%M:%S %Z").to_string())
}

/// Formats microseconds as a text such as `1min 30s`.
fn format_duration(us: u64) -> String {
    const UNITS: [(&str, u64); 9] = [
        ("y", 31_557_600_000_000),
        ("month", 2_629_800_000_000),
        ("w", 604_800_000_000),
        ("d", 86_400_000_000),
        ("h", 3_600_000_000),
        ("min", 60_000_000),
        ("s", 1_000_000),
        ("ms", 1000),
        ("us", 1),
    ];
    if us == u64::MAX {
        return "infinity".to_owned();
    }
    if us == 0 {
        return "0".to_owned();
    }
    let (mut left, mut words) = (us, Vec::new());
    for (unit, size) in UNITS {
        let count = left / size;
        // A rest of less than a minute is written as one decimal number, such as `1.5s`.
        if size < 60_000_000 && size > 1 && count > 0 && left % size > 0 {
            let digits = size.ilog10() as usize;
            let fraction = format!("{:0digits$}", left % size);
            words.push(format!("{count}.{}{unit}", fraction.trim_end_matches('0')));
            break;
        }
        if count > 0 {
            words.push(format!("{count}{unit}"));
        }
        left %= size;
    }
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_written_as_systemctl_writes_them() {
        let texts = |words: &[&str]| Value::Array(words.iter().map(|w| Value::Text((*w).into())).collect());
        for (name, value, expected) in [
            ("Id", Value::Text("a.service".into()), "a.service"),
            ("StatusText", Value::Text("a\nb".into()), "a\\x0ab"),
            ("CanStop", Value::Bool(true), "yes"),
            ("UMask", Value::Uint(0o22), "0022"),
            ("RuntimeDirectoryMode", Value::Uint(0o755), "0755"),
            ("UID", Value::Uint(u32::MAX), "[not set]"),
            ("MainPID", Value::Uint(63), "63"),
            ("LogLevelMax", Value::Int(-1), "-1"),
            ("TimeoutStartUSec", Value::Long(90_000_000), "1min 30s"),
            ("RestartUSec", Value::Long(100_000), "100ms"),
            ("WatchdogUSec", Value::Long(1_500_000), "1.5s"),
            ("RuntimeMaxUSec", Value::Long(u64::MAX), "infinity"),
            ("WatchdogUSec", Value::Long(0), "0"),
            ("JobTimeoutUSec", Value::Long(86_400_000_000 * 8 + 61_000_000), "1w 1d 1min 1s"),
            ("ActiveExitTimestamp", Value::Long(0), ""),
            ("ActiveEnterTimestampMonotonic", Value::Long(2_907_276), "2907276"),
            ("LimitNPROC", Value::Long(u64::MAX), "infinity"),
            ("LimitNPROC", Value::Long(96365), "96365"),
            ("TasksCurrent", Value::Long(u64::MAX), "[not set]"),
            ("CPUUsageNSec", Value::Long(u64::MAX), "[not set]"),
            ("StartupIOWeight", Value::Long(u64::MAX), "[not set]"),
            ("IPEgressBytes", Value::Long(u64::MAX), "[no data]"),
            ("MemoryMax", Value::Long(u64::MAX), "infinity"),
            ("CoredumpFilter", Value::Long(0x33), "0x33"),
            ("Names", texts(&["ssh.service", "sshd.service"]), "ssh.service sshd.service"),
            ("Documentation", texts(&["man:sshd(8)"]), "\"man:sshd(8)\""),
            ("Before", texts(&[]), ""),
            ("InvocationID", Value::Array(vec![Value::Byte(0xc9), Value::Byte(0)]), "c900"),
        ] {
            assert_eq!(property_text(name, &value).as_deref(), Some(expected), "{name} {value:?}");
        }
        assert_eq!(property_text("ExecStart", &Value::Array(vec![Value::Struct(vec![])])), None);
        assert_eq!(property_text("CapabilityBoundingSet", &Value::Long(1)), None);
        assert!(
            property_text("StateChangeTimestamp", &Value::Long(1_700_000_000_000_000)).unwrap().contains(" 2023-11-1")
        );
    }
}
