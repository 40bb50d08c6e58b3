//! The base process of the loopback hosts. It is the network between the hosts and starts the first
//! process of each host. It runs until the demo ends it, or until the demo has ended for any
//! reason. At its end it ends every process that it started.

use super::host;
use super::place::{self, Place, Programs};
use super::relay::Relay;
use super::tree;
use crate::lab::five::HOSTS;
use crate::lab::tool::wait_for;
use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, set_child_subreaper};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Sender};
use std::time::Duration;

/// The argument that makes the program a base process. `HOST_WORD` makes it a host.
pub const WORD: &str = "ground";
pub const HOST_WORD: &str = "host";
/// Number of networks that are tried, because another user of this machine may use a network
/// already.
const NETS: u8 = 20;
const END: Duration = Duration::from_secs(120);
/// Maximum length of an order to the base process, in bytes. Such an order is one short line.
const ORDER_MAX: u64 = 100;

/// The demo's handle of the base process. The base process ends when the handle is dropped.
pub struct BaseProcess {
    pub place: Place,
    child: Child,
    hand: Option<ChildStdin>,
}

impl BaseProcess {
    /// Removes the hosts of an earlier base process, then starts a base process with its hosts.
    pub fn begin() -> Result<BaseProcess> {
        remove_hosts()?;
        let mut command = Command::new(std::env::current_exe()?);
        command.arg(WORD).stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
        let mut child = command.spawn().context("starting the base process of the hosts")?;
        let hand = child.stdin.take();
        let mut line = String::new();
        BufReader::new(child.stdout.take().context("the output of the base process")?).read_line(&mut line)?;
        let net = line.trim().parse().ok();
        let Some(net) = net else {
            let _ = child.wait();
            bail!("the loopback hosts could not be started; see above");
        };
        Ok(BaseProcess { place: Place { base: Place::base(), net }, child, hand })
    }

    pub fn cut(&self, host: &str, cut: bool) -> Result<()> {
        order(&format!("{} {host}", if cut { "cut" } else { "heal" }))
    }

    /// Closes the handle and leaves the hosts running.
    pub fn keep(mut self) -> Result<()> {
        self.hand
            .take()
            .context("the pipe of the base process")?
            .write_all(b"keep")
            .context("writing to the base process")
    }

    /// Ends the hosts and waits until all of their processes have ended.
    pub fn end(mut self) -> Result<()> {
        self.end_and_wait()
    }

    fn end_and_wait(&mut self) -> Result<()> {
        if let Some(hand) = self.hand.take() {
            drop(hand);
            ensure!(self.child.wait()?.success(), "the hosts could not be removed completely; see above");
        }
        Ok(())
    }
}

impl Drop for BaseProcess {
    fn drop(&mut self) {
        if let Err(error) = self.end_and_wait() {
            eprintln!("{error:#}");
        }
    }
}

/// Sends one line to this user's running base process, and checks the answer.
pub fn order(line: &str) -> Result<()> {
    let mut stream = UnixStream::connect(Place::ground()).context("no loopback hosts are up")?;
    stream.set_read_timeout(Some(END))?;
    stream.write_all(format!("{line}\n").as_bytes())?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    ensure!(text == "ok\n", "{}", text.trim());
    Ok(())
}

/// Ends the hosts of this user that were kept or left behind. It is no error if there are none.
/// Hosts of a running demo are not changed.
pub fn remove_hosts() -> Result<()> {
    let base = Place::base();
    if UnixStream::connect(Place::ground()).is_ok() {
        order("end")?;
        wait_for("the earlier hosts to end", END, || (!base.exists()).then_some(()))?;
    }
    place::remove(&base)
}

/// The main function of the base process.
pub fn run_base() -> Result<()> {
    set_child_subreaper(Some(rustix::process::getpid()))?;
    let (end, ended) = mpsc::channel();
    let kept = Arc::new(AtomicBool::new(false));
    let built = build(end.clone(), kept.clone());
    if built.is_ok() {
        std::thread::spawn(move || hold(&end, &kept));
        let _no_sender_is_left = ended.recv();
    }
    let cleaned = tree::end_all_below_me().and_then(|()| place::remove(&Place::base()));
    built.map(drop).and(cleaned)
}

/// Waits for the end of the demo's pipe. Then the hosts end, unless the demo sent a message to keep
/// them.
fn hold(end: &Sender<()>, kept: &AtomicBool) {
    let mut message = Vec::new();
    let _ended_as_well = std::io::stdin().read_to_end(&mut message);
    kept.store(!message.is_empty(), Ordering::SeqCst);
    if message.is_empty() {
        let _ending_already = end.send(());
    }
}

fn build(end: Sender<()>, kept: Arc<AtomicBool>) -> Result<tokio::runtime::Runtime> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let (place, relay) = runtime.block_on(network())?;
    place.make(&Programs::find()?)?;
    let mut roots = BTreeMap::new();
    for name in HOSTS {
        let mut command = Command::new(std::env::current_exe()?);
        command.args([HOST_WORD, name, &place.net.to_string()]).stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.process_group(0).spawn().with_context(|| format!("starting {name}"))?;
        roots.insert(name.to_owned(), Pid::from_child(&child).as_raw_nonzero().get());
    }
    let inside = runtime.enter();
    let relay = relay.start(roots);
    drop(inside);
    listen(relay, end, kept)?;
    writeln!(std::io::stdout(), "{}", place.net).context("reporting the network to the demo")?;
    Ok(runtime)
}

/// Finds a network that no other process uses.
async fn network() -> Result<(Place, Relay)> {
    let first = rustix::process::getuid().as_raw() % 200;
    let mut why = None;
    for net in (first as u8..).take(NETS.into()) {
        let place = Place { base: Place::base(), net };
        match Relay::bind(place.clone()).await {
            Ok(relay) => return Ok((place, relay)),
            Err(error) => why = why.or(Some(error)),
        }
    }
    Err(why.context("no network was tried")?.context("no loopback network is free"))
}

fn listen(relay: Arc<Relay>, end: Sender<()>, kept: Arc<AtomicBool>) -> Result<()> {
    let listener = UnixListener::bind(Place::ground()).context("the socket of the base process")?;
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut line = String::new();
            // A caller that sends nothing does not block the other callers.
            let _no_limit = stream.set_read_timeout(Some(END));
            let _short = BufReader::new(&stream).take(ORDER_MAX).read_line(&mut line);
            let text = handle_order(line.trim(), &relay, &end, &kept);
            let _the_caller_is_gone = stream.write_all(text.as_bytes());
        }
    });
    Ok(())
}

fn handle_order(line: &str, relay: &Relay, end: &Sender<()>, kept: &AtomicBool) -> &'static str {
    match line.split_once(' ') {
        Some((word @ ("cut" | "heal"), host)) if HOSTS.contains(&host) => relay.change(host, word == "cut"),
        None if line == "end" && !kept.load(Ordering::SeqCst) => {
            return "a demo of this user is running: end it first\n";
        }
        None if line == "end" => drop(end.send(())),
        _ => return "cut HOST, heal HOST or end\n",
    }
    "ok\n"
}

/// The main function of a host process. `words` are its arguments on the command line.
pub fn run_host(words: &[String]) -> Result<()> {
    let [name, net] = words else { bail!("host NAME NET") };
    ensure!(HOSTS.contains(&name.as_str()), "no host {name}");
    let place = Place { base: Place::base(), net: net.parse().context("a network")? };
    host::run(&place, name)
}
