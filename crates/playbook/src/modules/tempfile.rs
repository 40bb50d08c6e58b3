//! The `tempfile` module: creates a temporary file or directory that the run does not remove.

use super::{ModuleCall, ModuleResult, TaskOutcome};
use crate::vars::unknown;
use serde_json::json;
use std::os::unix::fs::PermissionsExt;

pub fn tempfile(call: &mut ModuleCall) -> ModuleResult {
    let directory = call.text(&["state"]).as_deref() == Some("directory");
    let mut out = TaskOutcome::change("");
    out.extra_keys.insert("state".into(), json!(if directory { "directory" } else { "file" }));
    if call.ground.node.is_check_mode() {
        // Check mode creates no file, and the name is unknown because a real run chooses a random
        // one.
        out.extra_keys.insert("path".into(), unknown::mark());
        return Ok(out);
    }
    let (prefix, suffix) =
        (call.text(&["prefix"]).unwrap_or_else(|| "ansible.".into()), call.text(&["suffix"]).unwrap_or_default());
    if prefix.contains('/') || suffix.contains('/') {
        return Err("`prefix` and `suffix` must not contain `/`".into());
    }
    let within = match call.args.contains_key("path") {
        true => call.path(&["path"])?,
        false => std::env::temp_dir(),
    };
    let mut builder = tempfile::Builder::new();
    builder.prefix(&prefix).suffix(&suffix).rand_bytes(8);
    let fail = |e: std::io::Error| format!("{}: {e}", within.display());
    call.ground.node.begin_change()?;
    let path = if directory {
        builder.permissions(std::fs::Permissions::from_mode(0o700)).tempdir_in(&within).map_err(fail)?.keep()
    } else {
        builder.tempfile_in(&within).map_err(fail)?.keep().map_err(|e| fail(e.error))?.1
    };
    out.extra_keys.insert("path".into(), json!(path.display().to_string()));
    call.add_path_info(&path, &mut out);
    Ok(out)
}
