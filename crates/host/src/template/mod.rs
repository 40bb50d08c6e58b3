//! Renders Tera templates of a fleet. Tera limits neither loops nor values, so a manager renders in
//! child processes with limits of processor time and memory: a template that exceeds one ends its
//! child and is a fault like any other.

mod child;
mod engine;
mod pool;

pub use child::serve_rendering;
pub use engine::{TemplateError, TeraPlace, new_engine};

use serde_json::{Map, Value};
use std::sync::OnceLock;
use std::time::Duration;

/// Maximum length of a rendered text in bytes.
const RENDERED_MAX: usize = 16 << 20;
/// Processor time that one template may need. The slowest template of the examples needs a
/// thousandth of it, also in a debug build.
const CPU_MAX: Duration = Duration::from_secs(5);
/// Memory that a child may allocate: the longest text twice while it grows, the sent variables, and
/// the values of the template.
const MEMORY_MAX: u64 = 256 << 20;
/// The hint that is shown after an exceeded limit.
pub const LIMIT_HINT: &str = "loop over less, or build a shorter text; a template may use 5 s of processor time and 256 MiB of memory. The same \
     text is refused for 10 minutes";

static CHILDREN: OnceLock<pool::RenderPool> = OnceLock::new();

/// From now on this process renders in children, which are started when they are needed. A child is
/// the program of this process with `argument`, by which it must call [`serve_rendering`].
pub fn render_in_children(argument: &'static str) {
    CHILDREN.get_or_init(|| pool::RenderPool::new(argument));
}

/// Renders `text` with `variables`. Nothing is escaped. Blocks. Without [`render_in_children`] only
/// the length is limited. This is enough for an executor, and for a command that reads files of its
/// user: there, an endless template harms only that process.
pub fn render(text: &str, variables: &Map<String, Value>) -> Result<String, TemplateError> {
    match CHILDREN.get() {
        Some(children) => children.render(text, variables),
        None => engine::render_here(text, variables),
    }
}
