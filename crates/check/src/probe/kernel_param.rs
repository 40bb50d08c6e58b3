//! `kernel-param`: a value below `/proc/sys`, as the kernel gives it.

use super::{ProbeAnswers, ProbeContext, failed_error, unknown_error};
use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;

/// Maximum length read; the kernel returns at most one page.
const MAX_VALUE: u64 = 1 << 16;

pub(super) fn ask(ask: &ProbeContext) -> ProbeAnswers {
    let value = match path(&ask.check.name) {
        None => Err(unknown_error("not a valid parameter name")),
        Some(path) => read(&path).map(|value| value.trim_end().into()).map_err(|e| match e.kind() {
            io::ErrorKind::NotFound => failed_error("there is no such parameter"),
            io::ErrorKind::IsADirectory => failed_error("the name is a group of parameters"),
            _ => unknown_error(e),
        }),
    };
    ProbeAnswers::from([("value", value)])
}

fn read(path: &PathBuf) -> io::Result<String> {
    let mut bytes = Vec::new();
    File::open(path)?.take(MAX_VALUE).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The path of a parameter. As in sysctl(8), the first `.` or `/` in a name decides which of the
/// two characters separates the components. The other character then stands for the separator
/// character within a component. So `net.ipv4.conf.eth0/100.mtu` and `net/ipv4/conf/eth0.100/mtu`
/// are the same parameter. None if the name is not valid.
pub(super) fn path(name: &str) -> Option<PathBuf> {
    let turned = |c: char| match c {
        '.' => '/',
        '/' => '.',
        other => other,
    };
    let name = match name.find(['.', '/']) {
        Some(at) if name[at..].starts_with('.') => name.chars().map(turned).collect(),
        _ => name.to_owned(),
    };
    let is_part = |part: &str| !part.is_empty() && part != "." && part != ".." && !part.contains('\0');
    name.split('/').all(is_part).then(|| PathBuf::from("/proc/sys").join(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_below_proc_sys_and_nowhere_else() {
        let of = |name| path(name).map(|path| path.display().to_string());
        assert_eq!(of("kernel.ostype").as_deref(), Some("/proc/sys/kernel/ostype"));
        assert_eq!(of("net/ipv4/ip_forward").as_deref(), Some("/proc/sys/net/ipv4/ip_forward"));
        let vlan = Some("/proc/sys/net/ipv4/conf/eth0.100/mtu".to_owned());
        assert_eq!((of("net.ipv4.conf.eth0/100.mtu"), of("net/ipv4/conf/eth0.100/mtu")), (vlan.clone(), vlan));
        let outside =
            ["", ".", "..", "/etc/passwd", "kernel/../../etc/passwd", "kernel.//.x", "a..b", "a/", "a.", "a\0"];
        assert_eq!(outside.map(of), [const { None }; 10]);
    }
}
