//! Stand-ins for contiv's netmaster and netplugin, which Debian does not package. They read the
//! same arguments as the real programs, bind the real ports, query the cluster store, and exit with
//! a message if the configuration is wrong.
//!
//! Both are one program. The name of the executable selects the role. The stand-ins forward no
//! packets.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixDatagram};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// If a store refuses connections for this time, its address is wrong or etcd is missing.
const STORE_PATIENCE: Duration = Duration::from_secs(10);
const STORE_ANSWER: Duration = Duration::from_secs(3);

fn main() -> ExitCode {
    let mut words = std::env::args();
    let called = words.next().unwrap_or_default();
    let name = Path::new(&called).file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    let outcome = options(words).and_then(|options| match name.as_str() {
        "netmaster" => netmaster(&options),
        "netplugin" => netplugin(&options),
        _ => Err(format!("called as {name:?}: the name must be netmaster or netplugin")),
    });
    let Err(why) = outcome;
    let _ = std::io::stderr().write_all(format!("{name}: {why}\n").as_bytes());
    ExitCode::FAILURE
}

/// A type without values, because the program only ends with an error.
enum Never {}

type Options = BTreeMap<String, String>;

/// Parses `-name value` and `-name=value`, as Go's flag package does.
fn options(mut words: impl Iterator<Item = String>) -> Result<Options, String> {
    let mut options = Options::new();
    while let Some(word) = words.next() {
        let name = word.strip_prefix("--").or(word.strip_prefix('-')).ok_or(format!("{word:?} is no option"))?;
        let (name, value) = match name.split_once('=') {
            Some((name, value)) => (name.to_owned(), value.to_owned()),
            None => (name.to_owned(), words.next().ok_or(format!("-{name} needs a value"))?),
        };
        options.insert(name, value);
    }
    Ok(options)
}

fn reject_unknown(options: &Options, known: &[&str]) -> Result<(), String> {
    match options.keys().find(|name| !known.contains(&name.as_str())) {
        Some(name) => Err(format!("flag provided but not defined: -{name}")),
        None => Ok(()),
    }
}

fn required_option<'a>(options: &'a Options, name: &str) -> Result<&'a str, String> {
    options.get(name).map(String::as_str).filter(|value| !value.is_empty()).ok_or(format!("-{name} is missing"))
}

fn netplugin(options: &Options) -> Result<Never, String> {
    reject_unknown(options, &["plugin-mode", "host-label", "vtep-ip", "ctrl-ip", "vlan-if", "cluster-store"])?;
    for name in ["vtep-ip", "ctrl-ip"] {
        own_address(required_option(options, name)?).map_err(|why| format!("-{name}: {why}"))?;
    }
    let link = required_option(options, "vlan-if")?;
    if link.contains('/') || !Path::new("/sys/class/net").join(link).exists() {
        return Err(format!("-vlan-if: this host has no interface {link:?}"));
    }
    let store = store_address(required_option(options, "cluster-store")?)?;
    let any = IpAddr::from(Ipv4Addr::UNSPECIFIED);
    serve(&[SocketAddr::new(any, 9002), SocketAddr::new(any, 9003)], store)
}

fn netmaster(options: &Options) -> Result<Never, String> {
    reject_unknown(options, &["cluster-mode", "listen-url", "control-url", "cluster-store"])?;
    let store = store_address(required_option(options, "cluster-store")?)?;
    let port = |name: &str, usual: &str| -> Result<u16, String> {
        let text = options.get(name).map_or(usual, String::as_str);
        text.rsplit(':').next().and_then(|p| p.parse().ok()).ok_or(format!("-{name}: {text:?} is no address"))
    };
    let any = IpAddr::from(Ipv6Addr::UNSPECIFIED);
    serve(
        &[SocketAddr::new(any, port("listen-url", ":9999")?), SocketAddr::new(any, port("control-url", ":9001")?)],
        store,
    )
}

/// Checks that `text` is an address of this host, because no other address can be bound.
fn own_address(text: &str) -> Result<(), String> {
    let ip: IpAddr = text.parse().map_err(|_| format!("{text:?} is no IP address"))?;
    if ip.is_unspecified() {
        return Err(format!("{ip} is no address of one host"));
    }
    UdpSocket::bind((ip, 0)).map(drop).map_err(|e| format!("{ip} is no address of this host ({e})"))
}

fn store_address(text: &str) -> Result<String, String> {
    let place = text.strip_prefix("etcd://").ok_or(format!("-cluster-store: {text:?} is no etcd://HOST:PORT"))?;
    match place.rsplit_once(':') {
        Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok() => Ok(place.to_owned()),
        _ => Err(format!("-cluster-store: {text:?} is no etcd://HOST:PORT")),
    }
}

/// Binds, notifies systemd that the program is ready, queries the store, then answers every
/// connection.
fn serve(places: &[SocketAddr], store: String) -> Result<Never, String> {
    let mut doors = Vec::new();
    for place in places {
        doors.push(TcpListener::bind(place).map_err(|e| format!("can't listen on {place}: {e}"))?);
    }
    ready().map_err(|e| format!("can't tell systemd: {e}"))?;
    let (ended, end) = std::sync::mpsc::channel();
    for door in doors {
        let ended = ended.clone();
        std::thread::spawn(move || {
            let why = answer(&door);
            let _ = ended.send(why);
        });
    }
    std::thread::spawn(move || {
        if let Err(why) = find_store(&store) {
            let _ = ended.send(why);
        }
    });
    Err(end.recv().unwrap_or_else(|_| "every thread ended".into()))
}

/// Sends one line to each client, so that a test can distinguish this program from any other open
/// port.
fn answer(door: &TcpListener) -> String {
    loop {
        match door.accept() {
            Ok((mut caller, _)) => {
                let _ = caller.set_write_timeout(Some(Duration::from_secs(1)));
                let _ = caller.write_all(b"HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\nstand-in\n");
            }
            Err(e) if e.kind() == ErrorKind::ConnectionAborted => {}
            Err(e) => return format!("accepting: {e}"),
        }
    }
}

/// Waits while the store can be reached but gives no answer, because it has no quorum. Returns an
/// error if the store can't be reached.
fn find_store(place: &str) -> Result<(), String> {
    let mut refused_since: Option<(Instant, String)> = None;
    loop {
        match ask_store(place) {
            Ok(Some(answer)) if answer.contains("etcdserver") => {
                println!("cluster store etcd://{place}: {}", answer.lines().last().unwrap_or_default());
                return Ok(());
            }
            Ok(Some(answer)) => {
                return Err(format!(
                    "etcd://{place} is no etcd: it says {:?}",
                    answer.lines().next().unwrap_or_default()
                ));
            }
            Ok(None) => refused_since = None,
            Err(e) => {
                let (since, why) = refused_since.get_or_insert((Instant::now(), e.to_string()));
                if since.elapsed() > STORE_PATIENCE {
                    return Err(format!("no cluster store at etcd://{place} for {STORE_PATIENCE:?}: {why}"));
                }
            }
        }
        std::thread::sleep(Duration::from_millis(500));
    }
}

/// The store's answer to the query for its version, including the HTTP head. None: the store
/// accepted the connection, but gave no answer in time or a server error.
fn ask_store(place: &str) -> std::io::Result<Option<String>> {
    let to = place.to_socket_addrs()?.next().ok_or(ErrorKind::NotFound)?;
    let mut stream = TcpStream::connect_timeout(&to, STORE_ANSWER)?;
    stream.set_read_timeout(Some(STORE_ANSWER))?;
    stream.write_all(b"GET /version HTTP/1.0\r\n\r\n")?;
    let mut answer = Vec::new();
    // An etcd without a quorum, or a proxy without members, gives no answer or a server error.
    let _ = stream.take(4096).read_to_end(&mut answer);
    let text = String::from_utf8_lossy(&answer).into_owned();
    let waits = text.is_empty() || text.split(' ').nth(1).is_some_and(|code| code.starts_with('5'));
    Ok((!waits).then_some(text))
}

fn ready() -> std::io::Result<()> {
    let Some(place) = std::env::var_os("NOTIFY_SOCKET") else { return Ok(()) };
    let place = place.into_encoded_bytes();
    let to = match place.strip_prefix(b"@") {
        Some(name) => UnixAddr::from_abstract_name(name)?,
        None => UnixAddr::from_pathname(Path::new(&*String::from_utf8_lossy(&place)))?,
    };
    UnixDatagram::unbound()?.send_to_addr(b"READY=1", &to).map(drop)
}
