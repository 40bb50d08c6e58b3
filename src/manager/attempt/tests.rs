//! Tests of the attempt task.

use super::*;
use crate::fleet::Expected;
use remoor_model::{FileEntry, FileKind, NodeManifest, ServiceDigest, Sha256};
use remoor_playbook::RenderedFile;

fn entry(path: &str, text: &str, secret: bool) -> FileEntry {
    FileEntry {
        path: path.to_owned(),
        kind: FileKind::File,
        mode: 0o644,
        owner: "root".to_owned(),
        group: "root".to_owned(),
        sha256: Some(Sha256::digest(text.as_bytes())),
        target: None,
        secret,
    }
}

fn rendered_file(text: &str) -> RenderedFile {
    let content = text.as_bytes().to_vec();
    RenderedFile {
        sha256: Sha256::digest(&content),
        mode: None,
        owner: None,
        group: None,
        content,
        source: "t".to_owned(),
        secret: false,
    }
}

#[test]
fn rendered_files_must_match_for_services_that_were_set_up() {
    let app = vec![entry("/app", "as rendered", false), entry("/key", "keyed hash", true), entry("/made", "x", false)];
    let mut digest = NodeDigest::default();
    digest.services.insert("app".into(), ServiceDigest { entries: app, ..ServiceDigest::default() });
    let db = ServiceDigest { entries: vec![entry("/db", "edited", false)], ..ServiceDigest::default() };
    digest.services.insert("db".into(), db);
    let files = [("/app", "as rendered"), ("/key", "secret"), ("/db", "as rendered")];
    let files: Expected = files.iter().map(|(path, text)| ((*path).to_owned(), rendered_file(text))).collect();
    let manifest = NodeManifest::default();
    let wanted = RenderedContent::new(&files, &manifest);
    assert_eq!(wrong_files(&wanted, &digest, |_| true), ["/db"]);
    assert_eq!(wrong_files(&wanted, &digest, |name| name.as_str() == "db"), ["/db"]);
    assert!(wrong_files(&wanted, &digest, |name| name.as_str() == "app").is_empty());
    // A file whose content differs from the rendered one counts as recorded, not as rendered. A
    // secret file can't be compared, so it counts as rendered.
    let record = examine::record(&wanted, &examine::Facts::new(), fleet::ClusterContext::default(), &digest);
    let origins: Vec<String> = record.rendered.clone().unwrap().into_iter().collect();
    assert_eq!(origins, ["/app", "/key"]);
    // The attempt did not cause the drift of services outside the job, and it does not repair that
    // drift.
    let mut was = record.clone();
    was.services.get_mut("db").unwrap().entries = vec![entry("/db", "as rendered", false)];
    was.rendered = Some(["/app".to_owned(), "/db".to_owned()].into());
    let part = record.clone().of_part(&["app".into()], Some(&was));
    assert_eq!(part.services["db"], was.services["db"]);
    assert_eq!(part.rendered.unwrap().into_iter().collect::<Vec<_>>(), ["/app", "/db", "/key"]);
    // A record that an older version stored contains only the digest, and can still be read.
    let old = rmp_serde::to_vec_named(&digest).unwrap();
    let read: Record = rmp_serde::from_slice(&old).unwrap();
    assert_eq!((read.digest(), read.rendered), (digest, None));
    let new = rmp_serde::to_vec_named(&record).unwrap();
    assert_eq!(rmp_serde::from_slice::<Record>(&new).unwrap(), record);
}
