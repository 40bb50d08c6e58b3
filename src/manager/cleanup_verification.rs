//! The state that a node must have after a cleanup. `attempt` sends this state in an order to the
//! executor, which compares the node with it.

use remoor_model::{FleetSummary, ServiceManifest, ServiceName};

/// The required state of a node after a cleanup.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct CleanupExpectation {
    /// Units that must be stopped and disabled.
    pub units: Vec<String>,
    /// Paths that must not exist.
    pub files: Vec<String>,
    /// Paths that may exist although `files` contains them.
    pub keep: Vec<String>,
}

/// The required state after a cleanup of the job's services. An empty `of_job` means all services.
/// Monitor-only services are omitted.
pub fn taken_down(all: Vec<ServiceManifest>, of_job: &[ServiceName], summary: &FleetSummary) -> CleanupExpectation {
    let mut down = CleanupExpectation::default();
    let mine = |service: &ServiceManifest| of_job.is_empty() || of_job.contains(&service.name);
    for service in all.into_iter().filter(|service| mine(service) && !summary.is_monitor_only(&service.name)) {
        down.units.extend(service.units);
        down.files.extend(service.files);
        down.keep.extend(service.keep);
        down.keep.extend(service.state);
    }
    down
}

#[cfg(test)]
mod tests {
    use super::*;
    use remoor_model::ServiceSummary;

    #[test]
    fn monitor_only_services_are_not_verified_after_a_cleanup() {
        let service = |name: &str| ServiceManifest {
            name: name.into(),
            units: vec![format!("{name}.service")],
            files: vec![format!("/etc/{name}/")],
            keep: vec![format!("/etc/{name}/kept")],
            state: vec![format!("/var/{name}")],
            ..ServiceManifest::default()
        };
        let all = || ["app", "clock", "db"].map(service).to_vec();
        let mut summary = FleetSummary::default();
        for name in ["app", "clock"] {
            let watched = name == "clock";
            summary.services.insert(name.into(), ServiceSummary { monitor_only: watched, ..ServiceSummary::default() });
        }
        let of = |of_job: &[&str]| {
            let of_job: Vec<ServiceName> = of_job.iter().map(|name| (*name).into()).collect();
            taken_down(all(), &of_job, &summary)
        };
        let down = of(&[]);
        assert_eq!(down.units, ["app.service", "db.service"]);
        assert_eq!(down.files, ["/etc/app/", "/etc/db/"]);
        // The path that the monitor-only service `clock` may keep is not an exception for other
        // services.
        assert_eq!(down.keep, ["/etc/app/kept", "/var/app", "/etc/db/kept", "/var/db"]);
        assert_eq!(of(&["db", "clock"]).units, ["db.service"]);
        assert_eq!(of(&["clock"]), CleanupExpectation::default());
    }
}
