//! A child process that renders templates. It reads a template with its variables, answers, and
//! repeats that until its parent closes the pipe.
//!
//! A request is its length (4 bytes, big endian) and JSON. An answer is one byte (see [`RENDERED`]
//! and [`FAILED`]), its length, and the text or the error as JSON.

use super::engine::render_here;
use super::{CPU_MAX, MEMORY_MAX};
use rustix::process::{DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::io::{self, ErrorKind, Read, Write};

/// The answer is the rendered text.
pub(super) const RENDERED: u8 = 0;
/// The answer is an error.
pub(super) const FAILED: u8 = 1;
/// Maximum length of a request: a template and the variables of a large fleet.
pub(super) const REQUEST_MAX: usize = 64 << 20;

/// A template and its variables.
#[derive(Serialize, Deserialize)]
pub(super) struct RenderRequest<'a> {
    pub text: Cow<'a, str>,
    pub variables: Cow<'a, Map<String, Value>>,
}

/// Limits this process, then renders the requests on standard input until the input is closed.
pub fn serve_rendering() -> io::Result<()> {
    for (resource, most) in [(Resource::Data, MEMORY_MAX), (Resource::Core, 0), (Resource::Fsize, 0)] {
        // A process cannot raise the hard limit that it inherited.
        let most = Some(getrlimit(resource).maximum.map_or(most, |hard| hard.min(most)));
        setrlimit(resource, Rlimit { current: most, maximum: most })?;
    }
    // The variables may contain secrets, and an exceeded limit ends this process with a signal that
    // writes a core file.
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    let (mut input, mut output) = (io::stdin().lock(), io::stdout().lock());
    while let Some(request) = read_request(&mut input)? {
        limit_time()?;
        let (kind, answer) = match render_here(&request.text, &request.variables) {
            Ok(text) => (RENDERED, text.into_bytes()),
            Err(error) => (FAILED, serde_json::to_vec(&error)?),
        };
        output.write_all(&[kind])?;
        output.write_all(&u32::try_from(answer.len()).map_err(io::Error::other)?.to_be_bytes())?;
        output.write_all(&answer)?;
        output.flush()?;
    }
    Ok(())
}

/// Reads one request. None: the parent closed the pipe.
fn read_request(input: &mut impl Read) -> io::Result<Option<RenderRequest<'static>>> {
    let mut len = [0; 4];
    match input.read_exact(&mut len) {
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(None),
        read => read?,
    }
    let len = u64::from(u32::from_be_bytes(len));
    let mut bytes = Vec::new();
    input.take(len).read_to_end(&mut bytes)?;
    Ok(Some(serde_json::from_slice(&bytes)?))
}

/// Sets the time limit: the kernel ends this process if the next template needs more than
/// [`CPU_MAX`].
fn limit_time() -> io::Result<()> {
    let used = u64::try_from(clock_gettime(ClockId::ProcessCPUTime).tv_sec).unwrap_or(0);
    // The limit has whole seconds, so the used time is rounded up.
    let Rlimit { maximum, .. } = getrlimit(Resource::Cpu);
    let most = used + 1 + CPU_MAX.as_secs();
    Ok(setrlimit(Resource::Cpu, Rlimit { current: Some(maximum.map_or(most, |hard| hard.min(most))), maximum })?)
}
