//! Sends notices to a webhook or a command, as configured by `notify:` in the fleet. A notice about
//! the same problem is sent at most once an hour.

use remoor_cluster::rpc::wire::rfc3339;
use remoor_config::{FleetConfig, Notify, NotifyOn, NotifyTo};
use remoor_model::Wall;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;

/// Minimum time between two notices about the same problem.
const QUIET: Duration = Duration::from_secs(3600);
/// Kinds of problems that are reported again and again as long as they last. `status` shows such a
/// problem until it has not been reported for the time `PASSED`.
const PASSING: [&str; 4] = ["conflict", "twice", "forged", "copy"];
const PASSED: Duration = QUIET;
const KEYS_MAX: usize = 1_000;
const RECENT_MAX: usize = 100;
const SEND_TIMEOUT: Duration = Duration::from_secs(10);
const DELIVERIES_MAX: usize = 8;
const QUEUE_MAX: usize = 256;

#[derive(Debug, Clone)]
struct SentNotice {
    last: Instant,
    times: u64,
}

/// The notices of one kind about one node, with their number.
#[derive(Debug)]
struct Recent {
    /// The kind of the problem and the node. If the notice is about no node, the whole key of the
    /// notice.
    about: String,
    /// Text of the latest notice.
    text: String,
    times: u64,
    since: Wall,
    /// Time of the last report of the problem, even if no notice was sent.
    seen: Instant,
}

#[derive(Debug, Default)]
struct Inner {
    sent: BTreeMap<String, SentNotice>,
    /// For each kind of problem and node, the notices about it; the latest at the end.
    recent: VecDeque<Recent>,
    fleet: Option<Arc<FleetConfig>>,
}

/// Slots for deliveries. They are limited because deliveries to a receiver that hangs must not
/// occupy the threads that other work needs.
#[derive(Debug, Clone)]
struct Post {
    /// Limits the number of deliveries that run or wait for a slot.
    queue: Arc<Semaphore>,
    under_way: Arc<Semaphore>,
}

impl Default for Post {
    fn default() -> Self {
        Self { queue: Arc::new(Semaphore::new(QUEUE_MAX)), under_way: Arc::new(Semaphore::new(DELIVERIES_MAX)) }
    }
}

impl Post {
    /// Renders and delivers a notice in the background, because both may take long. If too many
    /// deliveries wait, the notice is dropped and the drop is logged.
    fn deliver(&self, rule: Notify, node: String, text: String) {
        let Ok(waiting) = self.queue.clone().try_acquire_owned() else {
            tracing::warn!(node, "a notification is dropped: {QUEUE_MAX} deliveries wait already");
            return;
        };
        let under_way = self.under_way.clone();
        tokio::spawn(async move {
            let _waiting = waiting;
            let _place = under_way.acquire_owned().await;
            let _ = tokio::task::spawn_blocking(move || send(&rule.to, &node, &render_text(&rule, &node, &text))).await;
        });
    }
}

/// Deduplicates and delivers notices.
#[derive(Debug, Default)]
pub struct Notices {
    inner: Mutex<Inner>,
    post: Post,
}

impl Notices {
    /// Sets the fleet whose `notify:` settings apply from now on.
    pub fn configure(&self, fleet: Option<Arc<FleetConfig>>) {
        self.inner().fleet = fleet;
    }

    /// Logs and sends `text`, unless a notice with the same `key` was sent within the last hour.
    /// The first word of `key` is the kind of the notice, `verdict` or `held`. With any other first
    /// word, the notice is an alert.
    pub fn notify(&self, key: &str, node: Option<&str>, text: &str) {
        let mut inner = self.inner();
        if inner.sent.len() >= KEYS_MAX {
            inner.sent.retain(|_, told| told.last.elapsed() < QUIET);
            if inner.sent.len() >= KEYS_MAX {
                inner.sent.clear();
            }
        }
        let kind = key.split(' ').next();
        let about = node.map_or_else(|| key.to_owned(), |node| format!("{} {node}", kind.unwrap_or(key)));
        if let Some(told) = inner.sent.get_mut(key) {
            told.times += 1;
            if told.last.elapsed() < QUIET {
                if let Some(recent) = inner.recent.iter_mut().find(|r| r.about == about) {
                    recent.seen = Instant::now();
                }
                return;
            }
            told.last = Instant::now();
        } else {
            inner.sent.insert(key.to_owned(), SentNotice { last: Instant::now(), times: 1 });
        }
        tracing::warn!(node = node.unwrap_or("-"), "{text}");
        inner.remember(about, text);
        let about = match kind {
            Some("verdict") => NotifyOn::Verdict,
            Some("held") => NotifyOn::Held,
            _ => NotifyOn::Alert,
        };
        for rule in inner.fleet.iter().flat_map(|f| &f.notify).filter(|rule| rule.on.contains(&about)) {
            self.post.deliver(rule.clone(), node.unwrap_or("").to_owned(), text.to_owned());
        }
    }

    /// The latest notices, oldest first. Notices of `kinds` are omitted, and also notices about
    /// problems that have passed. Several notices of one kind about one node are one line, with
    /// their number and the time of the first one.
    pub fn recent_but(&self, kinds: &[&str]) -> Vec<String> {
        let lasts = |r: &&Recent| !r.has_passed(Instant::now());
        self.inner().recent.iter().filter(|r| !r.is_of(kinds)).filter(lasts).map(Recent::line).collect()
    }

    fn inner(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(|p| p.into_inner())
    }
}

impl Inner {
    fn remember(&mut self, about: String, text: &str) {
        let known = self.recent.iter().position(|r| r.about == about).and_then(|at| self.recent.remove(at));
        // If the problem had not been reported for the time `PASSED`, the number of its notices
        // begins again.
        let known = known.filter(|r| !r.has_passed(Instant::now()));
        let (times, since) = known.map_or_else(|| (1, super::wall()), |r| (r.times + 1, r.since));
        self.recent.push_back(Recent { about, text: text.to_owned(), times, since, seen: Instant::now() });
        if self.recent.len() > RECENT_MAX {
            self.recent.pop_front();
        }
    }
}

impl Recent {
    fn is_of(&self, kinds: &[&str]) -> bool {
        self.about.split(' ').next().is_some_and(|kind| kinds.contains(&kind))
    }

    fn has_passed(&self, now: Instant) -> bool {
        self.is_of(&PASSING) && now.saturating_duration_since(self.seen) >= PASSED
    }

    fn line(&self) -> String {
        match self.times {
            1 => self.text.clone(),
            n => format!("{} (reported {n} times since {})", self.text, rfc3339(self.since)),
        }
    }
}

/// Fills the Tera template of the `notify:` rule with `node` and `text`. Returns the plain text if
/// the rule has no template or the template fails.
fn render_text(rule: &Notify, node: &str, text: &str) -> String {
    let Some(template) = &rule.text else { return text.to_owned() };
    let variables = [("node", node), ("text", text)].map(|(name, value)| (name.to_owned(), value.into()));
    remoor_host::template::render(template, &variables.into_iter().collect()).unwrap_or_else(|error| {
        tracing::warn!(%error, "the text of a notification can't be rendered");
        text.to_owned()
    })
}

fn send(to: &NotifyTo, node: &str, text: &str) {
    let result = match to {
        NotifyTo::Webhook(url) => {
            let body = serde_json::json!({"version": 1, "node": node, "text": text}).to_string();
            ureq::post(url)
                .config()
                .timeout_global(Some(SEND_TIMEOUT))
                .build()
                .header("content-type", "application/json")
                .send(body)
                .map(|_| ())
                .map_err(|e| e.to_string())
        }
        NotifyTo::Command(argv) => run(argv, node, text),
    };
    if let Err(error) = result {
        tracing::warn!(%error, "a notification could not be delivered");
    }
}

/// Runs `argv` for at most [`SEND_TIMEOUT`], with the text on standard input and the node in
/// `REMOOR_NODE`.
fn run(argv: &[String], node: &str, text: &str) -> Result<(), String> {
    use std::io::Write;
    use std::process::{Command, Stdio};
    let (program, args) = argv.split_first().ok_or("an empty command")?;
    let mut child = Command::new(program)
        .args(args)
        .env("REMOOR_NODE", node)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|e| format!("{program}: {e}"))?;
    if let Some(mut stdin) = child.stdin.take() {
        let text = text.to_owned();
        // A command that does not read its input is not an error. The write has its own thread, so
        // that it can't block the check of the time limit.
        std::thread::spawn(move || drop(writeln!(stdin, "{text}")));
    }
    let begun = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => return Ok(()),
            Ok(Some(status)) => return Err(format!("{program}: {status}")),
            Ok(None) if begun.elapsed() > SEND_TIMEOUT => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("{program}: took longer than {} s", SEND_TIMEOUT.as_secs()));
            }
            Ok(None) => std::thread::sleep(Duration::from_millis(50)),
            Err(e) => return Err(e.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absences_of_one_node_are_one_line_with_their_count() {
        let notices = Notices::default();
        notices.notify("verdict 4 drifted Some(1)", Some("w2"), "w2: was away (network), drifted");
        for no in 1..=5 {
            let text = format!("w1: was away (network), same: none, absence {no}");
            notices.notify(&format!("verdict 3 same Some({no})"), Some("w1"), &text);
        }
        notices.notify("held 9", Some("w1"), "w1: job 9 is held");
        notices.notify("conflict w3 a", None, "two nodes call themselves w3");
        notices.notify("conflict w4 a", None, "two nodes call themselves w4");
        let later = Instant::now() + PASSED;
        let passed: Vec<String> =
            notices.inner().recent.iter().filter(|r| r.has_passed(later)).map(|r| r.about.clone()).collect();
        assert_eq!(passed, ["conflict w3 a", "conflict w4 a"], "a problem that lasts is reported again");
        let told = notices.recent_but(&[]);
        assert_eq!(told.len(), 5, "{told:?}");
        assert_eq!(told[0], "w2: was away (network), drifted");
        assert!(
            told[1].starts_with("w1: was away (network), same: none, absence 5 (reported 5 times since 2"),
            "{told:?}"
        );
        assert_eq!(told[2], "w1: job 9 is held");
    }

    /// Waits until `ready` returns a value.
    async fn wait_for<T>(mut ready: impl FnMut() -> Option<T>) -> T {
        for _ in 0..3_000 {
            if let Some(found) = ready() {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("it did not come");
    }

    fn notices(to: NotifyTo, on: NotifyOn, text: Option<&str>) -> Notices {
        let notify = vec![Notify { to, on: vec![on], text: text.map(str::to_owned) }];
        let notices = Notices::default();
        notices.configure(Some(Arc::new(FleetConfig { notify, ..FleetConfig::default() })));
        notices
    }

    #[tokio::test]
    async fn a_webhook_gets_only_matching_notices_with_its_own_text() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/hook", listener.local_addr().unwrap());
        let notices = notices(NotifyTo::Webhook(url), NotifyOn::Held, Some("{{ node }} wants you: {{ text }}"));
        notices.notify("verdict 3", Some("w1"), "not for this rule");
        notices.notify("held 9", Some("w1"), "job 9 is held");
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = Vec::new();
        while !request.ends_with(b"}") {
            use tokio::io::AsyncReadExt;
            assert!(stream.read_buf(&mut request).await.unwrap() > 0, "{}", String::from_utf8_lossy(&request));
        }
        let request = String::from_utf8(request).unwrap();
        assert!(request.starts_with("POST /hook HTTP/1.1\r\n"), "{request}");
        let (_, body) = request.split_once("\r\n\r\n").unwrap();
        let body: serde_json::Value = serde_json::from_str(body).unwrap();
        assert_eq!(body, serde_json::json!({"version": 1, "node": "w1", "text": "w1 wants you: job 9 is held"}));
    }

    #[tokio::test]
    async fn a_command_gets_text_and_node_and_its_exit_status_is_checked() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("told");
        let script = format!("{{ echo \"$REMOOR_NODE\"; cat; }} > {0}.new && mv {0}.new {0}", path.display());
        let argv = ["sh", "-c", &script].map(str::to_owned).to_vec();
        let notices = notices(NotifyTo::Command(argv), NotifyOn::Alert, None);
        notices.notify("absent", Some("w2"), "w2 is away");
        assert_eq!(wait_for(|| std::fs::read_to_string(&path).ok()).await, "w2\nw2 is away\n");
        assert_eq!(run(&["false".to_owned()], "w2", ""), Err("false: exit status: 1".to_owned()));
    }

    #[test]
    fn a_command_that_does_not_read_its_input_succeeds() {
        assert_eq!(run(&["true".to_owned()], "w1", &"x".repeat(1 << 20)), Ok(()));
    }

    #[tokio::test]
    async fn deliveries_beyond_the_queue_limit_are_dropped() {
        let post = Post { queue: Arc::new(Semaphore::new(1)), under_way: Arc::new(Semaphore::new(0)) };
        for _ in 0..3 {
            let rule = Notify { to: NotifyTo::Command(vec!["true".to_owned()]), on: Vec::new(), text: None };
            post.deliver(rule, "w1".to_owned(), "text".to_owned());
        }
        assert_eq!(post.queue.available_permits(), 0);
        post.under_way.add_permits(1);
        wait_for(|| (post.queue.available_permits() == 1).then_some(())).await;
    }
}
