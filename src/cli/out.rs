//! The outputs of a command. Answers go to standard output, messages to standard error. Colours are
//! used only on a terminal.

use super::args::Output;
use super::duration;
use super::exit::Exit;
use super::fold::fold;
use super::format::Format;
use super::table::{Table, TableStyle};
use remoor_cluster::rpc::view::AsOf;
use remoor_cluster::rpc::wire::QUORUM_LOST_AFTER;
use remoor_model::sanitize;
use serde::Serialize;
use std::io::{ErrorKind, IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
#[cfg(test)]
use std::sync::{Mutex, PoisonError};

/// The destination of answers and messages.
#[derive(Debug, Clone)]
enum Sink {
    Process,
    /// The answer and the messages, in memory.
    #[cfg(test)]
    Memory(Arc<Mutex<(String, String)>>),
}

/// The two outputs of one command, and how they are formatted.
#[derive(Debug, Clone)]
pub struct Out {
    sink: Sink,
    pub format: Format,
    headers: bool,
    pub quiet: bool,
    tty: bool,
    /// Number of columns of the terminal that shows the answer.
    width: Option<usize>,
    /// Whether a closed pipe does not end the command, because the caller also needs the exit code.
    judging: bool,
    /// Whether the reader of the answer has closed the pipe.
    broken: Arc<AtomicBool>,
}

/// Width of the terminal on standard output. None: standard output is no terminal, or its width is
/// unknown.
fn terminal_width() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok()?;
    (size.ws_col > 0).then_some(size.ws_col.into())
}

impl Out {
    pub fn new(output: &Output) -> Self {
        let tty = std::io::stdout().is_terminal();
        Self {
            sink: Sink::Process,
            format: output.format(),
            headers: !output.no_headers,
            quiet: output.quiet,
            tty,
            width: terminal_width(),
            judging: false,
            broken: Arc::default(),
        }
    }

    /// The output of a command that has no output options.
    pub fn without_options() -> Self {
        let tty = std::io::stdout().is_terminal();
        let (sink, format, width) = (Sink::Process, Format::Table, terminal_width());
        Self { sink, format, headers: true, quiet: false, tty, width, judging: false, broken: Arc::default() }
    }

    /// An output that keeps its text in memory.
    #[cfg(test)]
    pub fn memory(format: Format, tty: bool) -> Self {
        let sink = Sink::Memory(Arc::default());
        Self { sink, format, headers: true, quiet: false, tty, width: None, judging: false, broken: Arc::default() }
    }

    /// The answer and the messages of an output in memory.
    #[cfg(test)]
    pub fn captured_text(&self) -> (String, String) {
        match &self.sink {
            Sink::Process => Default::default(),
            #[cfg(test)]
            Sink::Memory(both) => both.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }

    #[cfg(test)]
    pub fn quietly(mut self, quiet: bool) -> Self {
        self.quiet = quiet;
        self
    }

    /// Makes the command continue after a closed pipe, because the caller also needs the exit code.
    pub fn with_exit_as_answer(mut self) -> Self {
        self.judging = true;
        self
    }

    /// Whether the reader closed the pipe before all text was written. The result is always false
    /// without [`Out::with_exit_as_answer`].
    pub fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Relaxed)
    }

    /// Whether a terminal shows the answer.
    pub fn is_tty(&self) -> bool {
        self.tty
    }

    /// Prints text that contains texts of other machines. Control characters become visible, also
    /// in a pipe or a file, because a terminal may show the text later.
    pub fn text(&self, text: &str) -> std::io::Result<()> {
        self.raw(&sanitize::block(text))
    }

    /// Prints serialized JSON. Control characters are escaped, so the value stays the same.
    pub fn json(&self, text: &str) -> std::io::Result<()> {
        self.raw(&sanitize::json(text))
    }

    /// Prints text for people. Long lines are folded to the width of the terminal, except with `-o
    /// wide`.
    pub fn lines(&self, text: &str) -> std::io::Result<()> {
        match self.width {
            Some(width) if self.format != Format::Wide => self.text(&fold(text, width)),
            _ => self.text(text),
        }
    }

    /// Prints a file that programs read. Its syntax allows no control characters. In a pipe or a
    /// file the text is unchanged, because another character would be another value.
    pub fn document(&self, text: &str) -> std::io::Result<()> {
        if self.tty { self.text(text) } else { self.raw(text) }
    }

    /// Prints text without sanitizing. The text is either harmless already, or meant for the
    /// terminal.
    pub fn raw(&self, text: &str) -> std::io::Result<()> {
        match &self.sink {
            Sink::Process => {
                let mut stdout: Box<dyn Write> = match self.tty {
                    true => Box::new(anstream::stdout().lock()),
                    false => Box::new(std::io::stdout().lock()),
                };
                match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
                    Err(e) if self.judging && e.kind() == ErrorKind::BrokenPipe => {
                        self.broken.store(true, Ordering::Relaxed);
                        Ok(())
                    }
                    written => written,
                }
            }
            #[cfg(test)]
            Sink::Memory(both) => {
                both.lock().unwrap_or_else(PoisonError::into_inner).0.push_str(text);
                Ok(())
            }
        }
    }

    /// Prints a message on standard error. A closed standard error is ignored.
    pub fn talk(&self, text: &str) {
        self.talk_styled("", text);
    }

    /// Prints a message in a style, which is the number of an ANSI escape code or empty.
    fn talk_styled(&self, style: &str, text: &str) {
        let text = sanitize::block(text);
        match &self.sink {
            Sink::Process => {
                let text = if style.is_empty() { text.into_owned() } else { format!("\u{1b}[{style}m{text}\u{1b}[0m") };
                // If standard error can't be written, there is no other output that could report
                // the failure.
                let _ = writeln!(anstream::stderr().lock(), "{text}");
            }
            #[cfg(test)]
            Sink::Memory(both) => {
                let mut both = both.lock().unwrap_or_else(PoisonError::into_inner);
                both.1.push_str(&text);
                both.1.push('\n');
            }
        }
    }

    /// Prints the answer (`view`) in a format for programs. If the format is for people, prints
    /// nothing and returns false.
    pub fn machine(&self, view: &impl Serialize) -> anyhow::Result<bool> {
        self.print_machine(self.format.machine(view)?)
    }

    /// Like [`Out::machine`], but JSON is on one line, for streams.
    pub fn machine_line(&self, view: &impl Serialize) -> anyhow::Result<bool> {
        self.print_machine(self.format.machine_line(view)?)
    }

    fn print_machine(&self, text: Option<String>) -> anyhow::Result<bool> {
        let Some(text) = text else { return Ok(false) };
        match self.format {
            Format::Json => self.json(&text)?,
            Format::Table | Format::Wide | Format::Template(_) => self.text(&text)?,
        }
        Ok(true)
    }

    pub fn table(&self, table: &Table) -> std::io::Result<()> {
        self.lines(&table.render(TableStyle { headers: self.headers, cut: self.tty && self.format != Format::Wide }))
    }

    /// Prints names, one per line.
    pub fn names<'a>(&self, names: impl IntoIterator<Item = &'a str>) -> std::io::Result<()> {
        self.text(&names.into_iter().map(|name| format!("{}\n", sanitize::cell(name))).collect::<String>())
    }

    /// Prints the last line of an answer: the manager that gave it, and the time. A stale answer is
    /// marked and has its own exit code.
    pub fn source(&self, as_of: &AsOf) -> Exit {
        if as_of.stale {
            let age = match as_of.age_ms {
                0 => String::new(),
                ms => format!(" {} ago", duration::age(ms)),
            };
            if as_of.heard {
                let (by, leader) = (&as_of.by, as_of.leader.as_deref().unwrap_or("the leader"));
                self.talk_styled(
                    BOLD,
                    &format!(
                        "STALE: {leader} is the leader, but its API did not answer; this is what {by} knew{age}, asked at {}",
                        as_of.at
                    ),
                );
                self.talk(&format!(
                    "next: retry the command; then check remoor status on {leader}, and the network from {by} to its API port"
                ));
                return Exit::CouldNotAsk;
            }
            let text = format!("STALE: no quorum; this is what {} last knew{age}, asked at {}", as_of.by, as_of.at);
            self.talk_styled(BOLD, &text);
            let lost = if u128::from(as_of.age_ms) < QUORUM_LOST_AFTER.as_millis() {
                ""
            } else {
                "; if they are lost for ever, remoor recover --force-new-cluster --dry-run"
            };
            self.talk(&format!("next: bring a majority of the managers back, or ask another one with --manager{lost}"));
            return Exit::CouldNotAsk;
        }
        if !self.quiet && !self.format.is_machine() {
            let leader = if as_of.leader.as_ref() == Some(&as_of.by) { " (leader)" } else { "" };
            self.talk_styled(DIM, &format!("as seen by {}{leader} at {}", as_of.by, as_of.at));
        }
        Exit::Done
    }
}

const BOLD: &str = "1";
const DIM: &str = "2";
