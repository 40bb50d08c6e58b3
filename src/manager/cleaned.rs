//! What the cleaned check of an attempt asks a node about. It is asked in `attempt`, and looked at by the executor.

use crate::model::{FleetSummary, ServiceManifest, ServiceName};

/// What a cleanup must have left.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Down {
    /// Stopped and disabled.
    pub units: Vec<String>,
    /// Gone.
    pub files: Vec<String>,
    /// Of these what may stay.
    pub keep: Vec<String>,
}

/// The same of the services of the job (none: all), but for those that are only looked at.
pub fn taken_down(all: Vec<ServiceManifest>, of_job: &[ServiceName], summary: &FleetSummary) -> Down {
    let mut down = Down::default();
    let mine = |service: &ServiceManifest| of_job.is_empty() || of_job.contains(&service.name);
    for service in all.into_iter().filter(|service| mine(service) && !summary.watches(&service.name)) {
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
    use crate::model::ServiceSummary;

    #[test]
    fn a_cleanup_is_not_asked_about_what_is_only_looked_at() {
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
            summary.services.insert(name.into(), ServiceSummary { watched, ..ServiceSummary::default() });
        }
        let of = |of_job: &[&str]| {
            let of_job: Vec<ServiceName> = of_job.iter().map(|name| (*name).into()).collect();
            taken_down(all(), &of_job, &summary)
        };
        let down = of(&[]);
        assert_eq!(down.units, ["app.service", "db.service"]);
        assert_eq!(down.files, ["/etc/app/", "/etc/db/"]);
        // What may stay of the clock is no leave for others.
        assert_eq!(down.keep, ["/etc/app/kept", "/var/app", "/etc/db/kept", "/var/db"]);
        assert_eq!(of(&["db", "clock"]).units, ["db.service"]);
        assert_eq!(of(&["clock"]), Down::default());
    }
}
