//! What systemd is asked and told. Names of units are full ones.

use super::bus::{Bus, Fault, Patience};
use super::wire::{Arg, Call, Value};
use super::{Sockets, shown};
use std::collections::BTreeMap;
use std::time::Duration;

const SYSTEMD: &str = "org.freedesktop.systemd1";
const MANAGER: &str = "org.freedesktop.systemd1.Manager";
const MANAGER_PATH: &str = "/org/freedesktop/systemd1";
const PROPERTIES: &str = "org.freedesktop.DBus.Properties";

/// What a unit is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Job {
    Start,
    Stop,
    Restart,
    Reload,
}

impl Job {
    fn method(self) -> &'static str {
        match self {
            Job::Start => "StartUnit",
            Job::Stop => "StopUnit",
            Job::Restart => "RestartUnit",
            Job::Reload => "ReloadUnit",
        }
    }
}

/// What is done with a unit's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnitFiles {
    /// `force`: links that stand in the way go.
    Enable {
        force: bool,
    },
    Disable,
    Mask,
    Unmask,
}

/// A connection for one piece of work.
pub struct Manager<'a> {
    bus: Bus<'a>,
    /// It was asked to tell of the ends of jobs.
    listens: bool,
}

impl<'a> Manager<'a> {
    /// systemd answers no call while it reads all units anew, which on a large host takes a while.
    pub const ANSWER_MAX: Duration = Duration::from_secs(90);

    pub fn open(sockets: &Sockets, patience: Patience<'a>) -> Result<Self, Fault> {
        Ok(Self { bus: Bus::open(sockets, patience)?, listens: false })
    }

    /// All that systemd says of a unit and that is plain, as `systemctl show` writes it. A unit that there is not has the
    /// `LoadState` `not-found`.
    pub fn show(&mut self, unit: &str) -> Result<BTreeMap<String, String>, Fault> {
        let path = unit_path(unit);
        let (destination, interface) = (SYSTEMD, PROPERTIES);
        let args = vec![Arg::Text("")];
        let body = self.bus.call(&Call { destination, path: &path, interface, member: "GetAll", args })?;
        let properties = body.first().map(Value::items).unwrap_or_default().iter();
        let shown = properties.filter_map(|pair| match pair.items() {
            [Value::Text(name), value] => Some((name.clone(), shown::text(name, value)?)),
            _ => None,
        });
        Ok(shown.filter(|(_, text)| !text.is_empty()).collect())
    }

    /// systemd's word for the whole machine, `running` or `degraded` for instance.
    pub fn system_state(&mut self) -> Result<String, Fault> {
        let (destination, path, interface) = (SYSTEMD, MANAGER_PATH, PROPERTIES);
        let args = vec![Arg::Text(MANAGER), Arg::Text("SystemState")];
        let body = self.bus.call(&Call { destination, path, interface, member: "Get", args })?;
        Ok(body.first().and_then(Value::text).unwrap_or_default().to_owned())
    }

    /// Every loaded unit: name, load state, active state, sub-state.
    pub fn units(&mut self) -> Result<Vec<[String; 4]>, Fault> {
        let body = self.call("ListUnits", vec![])?;
        let units = body.first().map(Value::items).unwrap_or_default().iter();
        Ok(units.filter_map(|unit| texts(unit.items(), [0, 2, 3, 4])).collect())
    }

    /// Every unit file: path, state.
    pub fn unit_files(&mut self) -> Result<Vec<[String; 2]>, Fault> {
        let body = self.call("ListUnitFiles", vec![])?;
        let files = body.first().map(Value::items).unwrap_or_default().iter();
        Ok(files.filter_map(|file| texts(file.items(), [0, 1])).collect())
    }

    /// Begins a job and waits for its end: its result, `done` if all is well. None: it was not waited for.
    pub fn run(&mut self, job: Job, unit: &str, wait: bool) -> Result<Option<String>, Fault> {
        if wait && !self.listens {
            self.listen()?;
        }
        let body = self.call(job.method(), vec![Arg::Text(unit), Arg::Text("replace")])?;
        let path = body.first().and_then(Value::text).unwrap_or_default().to_owned();
        if wait { self.bus.job_end(&path).map(Some) } else { Ok(None) }
    }

    /// Before the job begins, so that its end is not missed.
    fn listen(&mut self) -> Result<(), Fault> {
        if self.bus.by_daemon() {
            let rule = format!("type='signal',sender='{SYSTEMD}',interface='{MANAGER}',member='JobRemoved'");
            self.bus.daemon("AddMatch", vec![Arg::Text(&rule)])?;
        }
        self.call("Subscribe", vec![])?;
        self.listens = true;
        Ok(())
    }

    /// Changes the links of a unit's file and lets systemd see it, as `systemctl` does.
    pub fn set_unit_files(&mut self, what: UnitFiles, unit: &str) -> Result<(), Fault> {
        let units = Arg::List(vec![unit]);
        // For good, not until the next boot.
        let runtime = Arg::Bool(false);
        let (member, args) = match what {
            UnitFiles::Enable { force } => ("EnableUnitFiles", vec![units, runtime, Arg::Bool(force)]),
            UnitFiles::Disable => ("DisableUnitFiles", vec![units, runtime]),
            UnitFiles::Mask => ("MaskUnitFiles", vec![units, runtime, Arg::Bool(false)]),
            UnitFiles::Unmask => ("UnmaskUnitFiles", vec![units, runtime]),
        };
        self.call(member, args)?;
        self.reload()
    }

    /// systemd reads all units anew.
    pub fn reload(&mut self) -> Result<(), Fault> {
        self.call("Reload", vec![]).map(drop)
    }

    fn call(&mut self, member: &str, args: Vec<Arg>) -> Result<Vec<Value>, Fault> {
        self.bus.call(&Call { destination: SYSTEMD, path: MANAGER_PATH, interface: MANAGER, member, args })
    }
}

fn texts<const N: usize>(items: &[Value], at: [usize; N]) -> Option<[String; N]> {
    let mut out = [const { String::new() }; N];
    for (text, index) in out.iter_mut().zip(at) {
        *text = items.get(index)?.text()?.to_owned();
    }
    Some(out)
}

/// The object of a unit: what is no ASCII letter or digit, and a digit in front, is written as `_` and its hexadecimal.
fn unit_path(unit: &str) -> String {
    let mut path = format!("{MANAGER_PATH}/unit/");
    for (at, byte) in unit.bytes().enumerate() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' => path.push(byte.into()),
            b'0'..=b'9' if at > 0 => path.push(byte.into()),
            _ => path.push_str(&format!("_{byte:02x}")),
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_objects_of_units() {
        assert_eq!(unit_path("getty@tty1.service"), "/org/freedesktop/systemd1/unit/getty_40tty1_2eservice");
        assert_eq!(unit_path("3.mount"), "/org/freedesktop/systemd1/unit/_33_2emount");
    }
}
