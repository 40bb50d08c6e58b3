//! Shell patterns that name included check files; the schemas are in `schema`.

mod schema;

use super::glob::expand;
use std::fs;

#[test]
fn patterns_are_those_of_goss_and_sorted() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["b/2.yml", "b/1.yml", "a/1.yml", "a/x{y}.yml", "a/.hidden.yml", "c"] {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "").unwrap();
    }
    let found = |pattern: &str| -> Vec<String> {
        let base = dir.path();
        let paths = expand(base, pattern).unwrap();
        paths.iter().map(|path| path.strip_prefix(base).unwrap().display().to_string()).collect()
    };
    assert_eq!(found("*/[0-9].yml"), ["a/1.yml", "b/1.yml", "b/2.yml"]);
    assert_eq!(found("b/?.yml"), ["b/1.yml", "b/2.yml"]);
    assert_eq!(found("a/x{y}*"), ["a/x{y}.yml"]);
    assert_eq!(found("c"), ["c"]);
    assert_eq!(found("c/*"), [""; 0]);
    assert_eq!(found("d*"), [""; 0]);
    assert!(expand(dir.path(), "[").is_err());
    assert_eq!(expand(dir.path(), dir.path().join("?").to_str().unwrap()).unwrap().len(), 3, "an absolute one");
}
