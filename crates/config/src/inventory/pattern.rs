//! Host patterns of inventories: `web[01:10].example.org:2222` is ten names and a port.

use super::HOSTS_MAX;

/// The names and the port of a host pattern. Err: the reason why the pattern is not valid.
pub fn expand(pattern: &str) -> Result<(Vec<String>, Option<u16>), String> {
    let (host, port) = split_port(pattern)?;
    let names = expand_ranges(host)?;
    names.iter().try_for_each(|name| check_name(name))?;
    Ok((names, port))
}

/// Checks a host name. The name becomes part of command lines and file names, so only safe
/// characters are allowed.
pub fn check_name(name: &str) -> Result<(), String> {
    let bad = |c: char| c.is_whitespace() || c.is_control() || matches!(c, '/' | ',' | '=' | '\\' | '[' | ']');
    if name.is_empty() || name.len() > 253 || name.starts_with(['-', '.']) || name.contains(bad) {
        return Err(format!("`{name}` is not a host name"));
    }
    Ok(())
}

/// Splits off the port. A port follows the only colon outside of brackets, or the brackets around a
/// whole IPv6 address. All other colons belong to the name.
fn split_port(pattern: &str) -> Result<(&str, Option<u16>), String> {
    let port_of = |text: &str| text.parse::<u16>().ok().filter(|port| *port > 0);
    if let Some((host, port)) = pattern.strip_prefix('[').and_then(|rest| rest.rsplit_once("]:"))
        && !host.contains(['[', ']'])
        && port.bytes().all(|b| b.is_ascii_digit())
    {
        return Ok((host, Some(port_of(port).ok_or_else(|| format!("`{port}` is not a port"))?)));
    }
    let mut depth = 0_usize;
    let colons: Vec<usize> = pattern
        .char_indices()
        .filter_map(|(at, c)| {
            match c {
                '[' => depth += 1,
                ']' => depth = depth.saturating_sub(1),
                ':' if depth == 0 => return Some(at),
                _ => {}
            }
            None
        })
        .collect();
    match colons[..] {
        [at] => {
            let port = &pattern[at + 1..];
            port_of(port)
                .map(|port| (&pattern[..at], Some(port)))
                .ok_or_else(|| format!("`{port}` after the colon of `{pattern}` is not a port"))
        }
        _ => Ok((pattern, None)),
    }
}

/// Expands all ranges of a host pattern without a port, such as `web[01:10]-[a:c]`.
fn expand_ranges(host: &str) -> Result<Vec<String>, String> {
    let mut done = vec![String::new()];
    let mut rest = host;
    while let Some((head, after)) = rest.split_once('[') {
        let Some((range, tail)) = after.split_once(']') else {
            return Err(format!("`{host}` has a `[` without its `]`"));
        };
        let items = range_items(range)?;
        if done.len().saturating_mul(items.len()) > HOSTS_MAX {
            return Err(format!("`{host}` stands for more than {HOSTS_MAX} hosts"));
        }
        done = done.iter().flat_map(|so_far| items.iter().map(move |item| format!("{so_far}{head}{item}"))).collect();
        rest = tail;
    }
    if rest.contains(']') {
        return Err(format!("`{host}` has a `]` without its `[`"));
    }
    done.iter_mut().for_each(|name| name.push_str(rest));
    Ok(done)
}

/// Expands `01:10`, `a:f` or `0:10:2`. Both ends are included; a leading zero fixes the width.
fn range_items(range: &str) -> Result<Vec<String>, String> {
    let wrong = |why: &str| format!("the range [{range}] {why}");
    let parts: Vec<&str> = range.split(':').collect();
    let (first, last, step) = match parts[..] {
        [first, last] => (first, last, "1"),
        [first, last, step] => (first, last, step),
        _ => return Err(wrong("must be first:last or first:last:step")),
    };
    let step: usize =
        step.parse().ok().filter(|step| *step > 0).ok_or_else(|| wrong("has a step that is not a number above 0"))?;
    let letter = |text: &str| match text.as_bytes() {
        [b] if b.is_ascii_alphabetic() => Some(*b),
        _ => None,
    };
    if let (Some(a), Some(b)) = (letter(first), letter(last)) {
        // Ansible's alphabet: lower case before upper case.
        let alphabet: Vec<u8> = (b'a'..=b'z').chain(b'A'..=b'Z').collect();
        let at = |letter| alphabet.iter().position(|l| *l == letter).unwrap_or_default();
        if at(a) > at(b) {
            return Err(wrong("ends before it begins"));
        }
        return Ok(alphabet[at(a)..=at(b)].iter().step_by(step).map(|l| char::from(*l).to_string()).collect());
    }
    let first = if first.is_empty() { "0" } else { first };
    let number = |text: &str| text.parse::<u64>().ok().filter(|_| text.bytes().all(|b| b.is_ascii_digit()));
    let (Some(a), Some(b)) = (number(first), number(last)) else {
        return Err(wrong("has ends that are neither numbers nor single letters"));
    };
    let width = if first.len() > 1 && first.starts_with('0') { first.len() } else { 0 };
    if width > 0 && width != last.len() {
        return Err(wrong("has ends of different width"));
    }
    if a > b {
        return Err(wrong("ends before it begins"));
    }
    if (b - a) / step as u64 >= HOSTS_MAX as u64 {
        return Err(wrong(&format!("stands for more than {HOSTS_MAX} hosts")));
    }
    Ok((a..=b).step_by(step).map(|n| format!("{n:0width$}")).collect())
}

#[cfg(test)]
mod tests {
    use super::expand;

    #[test]
    fn names_and_ports_are_expanded() {
        let table: &[(&str, &str, Option<u16>)] = &[
            ("web", "web", None),
            ("web:2222", "web", Some(2222)),
            ("web[01:03].x", "web01.x web02.x web03.x", None),
            ("web[8:10]:22", "web8 web9 web10", Some(22)),
            ("web[1:6:2]", "web1 web3 web5", None),
            ("r[a:b]n[:1]", "ran0 ran1 rbn0 rbn1", None),
            ("x[y:B]", "xy xz xA xB", None),
            ("fe80::1", "fe80::1", None),
            ("[fe80::1]:22", "fe80::1", Some(22)),
            ("10.0.0.[1:2]", "10.0.0.1 10.0.0.2", None),
        ];
        for (pattern, names, port) in table {
            let names: Vec<String> = names.split(' ').map(str::to_owned).collect();
            assert_eq!(expand(pattern), Ok((names, *port)), "{pattern}");
        }
    }

    #[test]
    fn invalid_patterns_are_rejected() {
        let table = [
            ("web:ssh", "`ssh` after the colon of `web:ssh` is not a port"),
            ("web:", "`` after the colon of `web:` is not a port"),
            ("web:70000", "`70000` after the colon of `web:70000` is not a port"),
            ("web[1:2", "`web[1:2` has a `[` without its `]`"),
            ("web1]", "`web1]` has a `]` without its `[`"),
            ("web[1]", "the range [1] must be first:last or first:last:step"),
            ("web[01:9]", "the range [01:9] has ends of different width"),
            ("web[3:1]", "the range [3:1] ends before it begins"),
            ("web[1:x]", "the range [1:x] has ends that are neither numbers nor single letters"),
            ("web[1:9:0]", "the range [1:9:0] has a step that is not a number above 0"),
            ("web[0:99999999999]", "the range [0:99999999999] stands for more than 10000 hosts"),
            ("w[0:999]x[0:999]", "`w[0:999]x[0:999]` stands for more than 10000 hosts"),
            ("-oProxyCommand", "`-oProxyCommand` is not a host name"),
        ];
        for (pattern, want) in table {
            assert_eq!(expand(pattern).unwrap_err(), want, "{pattern}");
        }
    }
}
