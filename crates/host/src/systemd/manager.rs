//! Requests to systemd. Unit names are full names.

use super::bus::{Bus, BusDeadline, BusError};
use super::wire::{CallArg, MethodCall, Value};
use super::{SystemdSockets, property_text};
use std::collections::BTreeMap;
use std::time::Duration;

const SYSTEMD: &str = "org.freedesktop.systemd1";
const MANAGER: &str = "org.freedesktop.systemd1.Manager";
const MANAGER_PATH: &str = "/org/freedesktop/systemd1";
const PROPERTIES: &str = "org.freedesktop.DBus.Properties";

/// An operation on a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnitJob {
    Start,
    Stop,
    Restart,
    Reload,
}

impl UnitJob {
    fn method(self) -> &'static str {
        match self {
            UnitJob::Start => "StartUnit",
            UnitJob::Stop => "StopUnit",
            UnitJob::Restart => "RestartUnit",
            UnitJob::Reload => "ReloadUnit",
        }
    }
}

/// A change of the links to a unit's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnitFileChange {
    /// `force`: replace conflicting links.
    Enable {
        force: bool,
    },
    Disable,
    Mask,
    Unmask,
}

/// The properties of a unit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UnitProperties {
    /// The properties that have a plain text, as `systemctl show` prints them.
    pub texts: BTreeMap<String, String>,
    /// The properties that are unsigned numbers of 64 bits. Times are in microseconds.
    pub numbers: BTreeMap<String, u64>,
}

/// A connection to systemd that the caller drops after a few related requests.
pub struct SystemdManager<'a> {
    bus: Bus<'a>,
    /// Whether the signals of systemd jobs were subscribed to.
    subscribed: bool,
}

impl<'a> SystemdManager<'a> {
    /// Maximum time for an answer. systemd answers no call while it reloads all units, which takes
    /// long on a large host.
    pub const ANSWER_MAX: Duration = Duration::from_secs(90);

    /// Connects to systemd. `Absent`: systemd is not reachable; nothing was done.
    pub fn open(sockets: &SystemdSockets, patience: BusDeadline<'a>) -> Result<Self, BusError> {
        Ok(Self { bus: Bus::open(sockets, patience)?, subscribed: false })
    }

    /// Properties of a unit that have a plain text which is not empty, as `systemctl show` prints
    /// them. A unit that does not exist has the `LoadState` `not-found`.
    pub fn show(&mut self, unit: &str) -> Result<BTreeMap<String, String>, BusError> {
        let mut texts = self.properties(unit)?.texts;
        texts.retain(|_, text| !text.is_empty());
        Ok(texts)
    }

    /// All properties of a unit that have a plain text or are numbers.
    pub fn properties(&mut self, unit: &str) -> Result<UnitProperties, BusError> {
        let path = unit_path(unit);
        let (destination, interface) = (SYSTEMD, PROPERTIES);
        let args = vec![CallArg::Text("")];
        let body = self.bus.call(&MethodCall { destination, path: &path, interface, member: "GetAll", args })?;
        let mut found = UnitProperties::default();
        for pair in body.first().map(Value::items).unwrap_or_default() {
            let [Value::Text(name), value] = pair.items() else { continue };
            if let Value::Long(number) = value {
                found.numbers.insert(name.clone(), *number);
            }
            if let Some(text) = property_text::property_text(name, value) {
                found.texts.insert(name.clone(), text);
            }
        }
        Ok(found)
    }

    /// The state of the whole system, for instance `running` or `degraded`.
    pub fn system_state(&mut self) -> Result<String, BusError> {
        let (destination, path, interface) = (SYSTEMD, MANAGER_PATH, PROPERTIES);
        let args = vec![CallArg::Text(MANAGER), CallArg::Text("SystemState")];
        let body = self.bus.call(&MethodCall { destination, path, interface, member: "Get", args })?;
        Ok(body.first().and_then(Value::text).unwrap_or_default().to_owned())
    }

    /// Every loaded unit: name, load state, active state, sub-state.
    pub fn units(&mut self) -> Result<Vec<[String; 4]>, BusError> {
        let body = self.call("ListUnits", vec![])?;
        let units = body.first().map(Value::items).unwrap_or_default().iter();
        Ok(units.filter_map(|unit| texts(unit.items(), [0, 2, 3, 4])).collect())
    }

    /// Every unit file: path, state.
    pub fn unit_files(&mut self) -> Result<Vec<[String; 2]>, BusError> {
        let body = self.call("ListUnitFiles", vec![])?;
        let files = body.first().map(Value::items).unwrap_or_default().iter();
        Ok(files.filter_map(|file| texts(file.items(), [0, 1])).collect())
    }

    /// Starts a systemd job. With `wait`, returns the result of the job after its end; `done` means
    /// success. Without `wait`, returns None.
    pub fn run(&mut self, job: UnitJob, unit: &str, wait: bool) -> Result<Option<String>, BusError> {
        if wait && !self.subscribed {
            self.subscribe()?;
        }
        let body = self.call(job.method(), vec![CallArg::Text(unit), CallArg::Text("replace")])?;
        let path = body.first().and_then(Value::text).unwrap_or_default().to_owned();
        if wait { self.bus.wait_for_job(&path).map(Some) } else { Ok(None) }
    }

    /// Subscribes to the signals of systemd jobs. Called before a job starts, so that the signal of
    /// its end is not missed.
    fn subscribe(&mut self) -> Result<(), BusError> {
        if self.bus.by_daemon() {
            let rule = format!("type='signal',sender='{SYSTEMD}',interface='{MANAGER}',member='JobRemoved'");
            self.bus.call_daemon("AddMatch", vec![CallArg::Text(&rule)])?;
        }
        self.call("Subscribe", vec![])?;
        self.subscribed = true;
        Ok(())
    }

    /// Changes the links of a unit's file and reloads systemd, as `systemctl` does.
    pub fn set_unit_files(&mut self, what: UnitFileChange, unit: &str) -> Result<(), BusError> {
        let units = CallArg::List(vec![unit]);
        // The change is permanent and does not end at the next boot.
        let runtime = CallArg::Bool(false);
        let (member, args) = match what {
            UnitFileChange::Enable { force } => ("EnableUnitFiles", vec![units, runtime, CallArg::Bool(force)]),
            UnitFileChange::Disable => ("DisableUnitFiles", vec![units, runtime]),
            UnitFileChange::Mask => ("MaskUnitFiles", vec![units, runtime, CallArg::Bool(false)]),
            UnitFileChange::Unmask => ("UnmaskUnitFiles", vec![units, runtime]),
        };
        self.call(member, args)?;
        self.reload()
    }

    /// Reloads all units.
    pub fn reload(&mut self) -> Result<(), BusError> {
        self.call("Reload", vec![]).map(drop)
    }

    fn call(&mut self, member: &str, args: Vec<CallArg>) -> Result<Vec<Value>, BusError> {
        self.bus.call(&MethodCall { destination: SYSTEMD, path: MANAGER_PATH, interface: MANAGER, member, args })
    }
}

fn texts<const N: usize>(items: &[Value], at: [usize; N]) -> Option<[String; N]> {
    let mut out = [const { String::new() }; N];
    for (text, index) in out.iter_mut().zip(at) {
        *text = items.get(index)?.text()?.to_owned();
    }
    Some(out)
}

/// The D-Bus object path of a unit. A leading digit, and each byte that is not an ASCII letter or
/// digit, is written as `_` and its hexadecimal value.
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
    fn unit_names_are_escaped_in_object_paths() {
        assert_eq!(unit_path("getty@tty1.service"), "/org/freedesktop/systemd1/unit/getty_40tty1_2eservice");
        assert_eq!(unit_path("3.mount"), "/org/freedesktop/systemd1/unit/_33_2emount");
    }
}
