//! The file contents that a manager renders, hashed as in the digest of each service.

use super::Expected;
use remoor_model::{FileEntry, NodeManifest, Normalizer, ServiceName};
use std::collections::BTreeMap;

/// Compares rendered content with the entries of a digest. Lines that a service ignores are left
/// out on both sides.
#[derive(Debug)]
pub struct RenderedContent<'a> {
    rendered: &'a Expected,
    rules: BTreeMap<&'a ServiceName, Normalizer>,
}

impl<'a> RenderedContent<'a> {
    /// Uses the `normalize` patterns of each service of `manifest`. Invalid patterns are reported
    /// before a manifest exists. If a service has an invalid pattern nevertheless, none of its
    /// lines are ignored.
    pub fn new(rendered: &'a Expected, manifest: &'a NodeManifest) -> Self {
        let rule = |patterns: &[String]| Normalizer::new(patterns).ok().flatten();
        let rules = manifest.services.iter().filter_map(|s| Some((&s.name, rule(&s.normalize)?))).collect();
        Self { rendered, rules }
    }

    /// Whether `entry` of `service` has the content that is rendered for its path. None: nothing is
    /// rendered for the path. False for a secret file, because its hash is keyed and can't be
    /// compared.
    pub fn agrees(&self, service: &ServiceName, entry: &FileEntry) -> Option<bool> {
        let rendered = self.rendered.get(&entry.path)?;
        let sha256 = self.rules.get(service).map_or(rendered.sha256, |rule| rule.sha256(&rendered.content));
        Some(!entry.secret && entry.sha256 == Some(sha256))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use remoor_model::{FileKind, ServiceManifest, Sha256};
    use remoor_playbook::RenderedFile;

    #[test]
    fn lines_that_a_service_does_not_count_do_not_count_here_either() {
        let content = b"# generated on the manager\nport=80\n".to_vec();
        let raw = Sha256::digest(&content);
        let rendered = RenderedFile {
            sha256: raw,
            mode: None,
            owner: None,
            group: None,
            content,
            source: "t".to_owned(),
            secret: false,
        };
        let rendered = Expected::from([("/etc/app.conf".to_owned(), rendered)]);
        let service = |name: &str, normalize: Vec<String>| ServiceManifest {
            name: name.into(),
            normalize,
            ..ServiceManifest::default()
        };
        let services = vec![service("app", vec!["^# generated".to_owned()]), service("db", vec![])];
        let manifest = NodeManifest { services, ..NodeManifest::default() };
        let wanted = RenderedContent::new(&rendered, &manifest);
        let agrees = |service: &str, path: &str, sha256, secret| {
            let entry = FileEntry {
                path: path.to_owned(),
                kind: FileKind::File,
                mode: 0o644,
                owner: "root".to_owned(),
                group: "root".to_owned(),
                sha256: Some(sha256),
                target: None,
                secret,
            };
            wanted.agrees(&service.into(), &entry)
        };
        let (path, rest) = ("/etc/app.conf", Sha256::digest(b"port=80\n"));
        assert_eq!((agrees("app", path, rest, false), agrees("db", path, rest, false)), (Some(true), Some(false)));
        assert_eq!((agrees("app", path, raw, false), agrees("db", path, raw, false)), (Some(false), Some(true)));
        assert_eq!((agrees("app", path, rest, true), agrees("app", "/etc/other", rest, false)), (Some(false), None));
    }
}
