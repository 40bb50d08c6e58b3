//! What the cleaned check of an attempt asks a node about. It is asked in `attempt`, and looked at by the executor.

use crate::model::{FleetSummary, ServiceManifest, ServiceName};

/// What a cleanup must have left: units stopped, files gone, and files that may stay; of the services of the job (none: all),
/// but for those that are only looked at.
pub fn taken_down(
    all: Vec<ServiceManifest>,
    of_job: &[ServiceName],
    summary: &FleetSummary,
) -> (Vec<String>, Vec<String>, Vec<String>) {
    let (mut units, mut files, mut keep) = (Vec::new(), Vec::new(), Vec::new());
    let mine = |service: &ServiceManifest| of_job.is_empty() || of_job.contains(&service.name);
    for service in all.into_iter().filter(|service| mine(service) && !summary.watches(&service.name)) {
        units.extend(service.units);
        files.extend(service.files);
        keep.extend(service.keep);
        keep.extend(service.state);
    }
    (units, files, keep)
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
        let (units, files, keep) = of(&[]);
        assert_eq!(
            (units, files),
            (vec!["app.service".into(), "db.service".into()], vec!["/etc/app/".into(), "/etc/db/".into()])
        );
        // What may stay of the clock is no leave for others.
        assert_eq!(keep, ["/etc/app/kept", "/var/app", "/etc/db/kept", "/var/db"]);
        assert_eq!(of(&["db", "clock"]).0, ["db.service"]);
        assert_eq!(of(&["clock"]), Default::default());
    }
}
