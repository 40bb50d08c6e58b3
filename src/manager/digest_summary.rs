//! Examines a node in an open SSH session. If the digest that the manager expects is known, the
//! node sends only the differences from it.

use remoor_exec::ssh::{Session, SshError};
use remoor_exec::wire::{ExecutorOrder, Reply};
use remoor_model::{
    DigestSummary, DigestWalk, Exam, InconsistentAnswers, NodeDigest, NodeManifest, ServiceName, Sha256, WalkStep,
};
use std::collections::BTreeMap;
use std::future::Future;
use std::time::Duration;

/// Gives orders to an executor, one after the other. The real implementation is an SSH session;
/// tests use a fake.
pub(super) trait Orders: Send {
    /// Sends one order and returns its final reply.
    fn give(&mut self, order: ExecutorOrder) -> impl Future<Output = Result<Reply, SshError>> + Send;
}

/// A session with a time limit for each reply.
pub(super) struct TimedSession<'a> {
    pub session: &'a mut Session,
    pub at_most: Duration,
}

impl Orders for TimedSession<'_> {
    async fn give(&mut self, order: ExecutorOrder) -> Result<Reply, SshError> {
        self.session.order(order, &mut |_| {}, self.at_most).await
    }
}

/// An examination request to a node.
pub(super) struct ExamRequest<'a> {
    pub manifest: &'a NodeManifest,
    pub key: [u8; 32],
}

impl ExamRequest<'_> {
    /// Returns the complete examination, even if the node sends only the differences from `known`,
    /// the expected digest. The node sends every entry in two cases: its executor does not support
    /// differences, or its answers contradict each other.
    pub async fn ask(&self, node: &mut impl Orders, known: Option<NodeDigest>) -> Result<Exam, SshError> {
        let Some(known) = known else { return self.examine_all(node).await };
        match node.give(self.order(Some(DigestWalk::roots(&known)))).await? {
            Reply::Exam(exam) => Ok(exam),
            Reply::Outlined { exam, services } => match walk(node, known, services).await? {
                Ok(digest) => Ok(Exam { digest, ..exam }),
                Err(astray) => {
                    tracing::warn!(node = %self.manifest.node, %astray, "requesting the complete digest");
                    self.examine_all(node).await
                }
            },
            other => Err(unexpected_reply(&other)),
        }
    }

    async fn examine_all(&self, node: &mut impl Orders) -> Result<Exam, SshError> {
        match node.give(self.order(None)).await? {
            Reply::Exam(exam) => Ok(exam),
            other => Err(unexpected_reply(&other)),
        }
    }

    fn order(&self, known: Option<BTreeMap<ServiceName, Sha256>>) -> ExecutorOrder {
        ExecutorOrder::Examine { manifest: self.manifest.clone(), digest_key: self.key, known }
    }
}

/// Requests the entries of the digest that differ from `known`. Node and manager have the entries
/// of each service in a hash tree. The manager requests the hashes below each branch that differs.
/// Each step hashes up to all entries of a service, so it runs on a blocking thread.
async fn walk(
    node: &mut impl Orders,
    known: NodeDigest,
    services: BTreeMap<ServiceName, DigestSummary>,
) -> Result<Result<NodeDigest, InconsistentAnswers>, SshError> {
    let mut step = run_blocking(move || DigestWalk::begin(known, services)).await?;
    loop {
        let (mut walk, questions) = match step {
            Err(astray) => return Ok(Err(astray)),
            Ok((_, WalkStep::Found(digest))) => return Ok(Ok(*digest)),
            Ok((walk, WalkStep::Ask(questions))) => (walk, questions),
        };
        let below = match node.give(ExecutorOrder::Branches { questions }).await? {
            Reply::Branches { below } => below,
            other => return Err(unexpected_reply(&other)),
        };
        step = run_blocking(move || walk.answers(below).map(|next| (walk, next))).await?;
    }
}

async fn run_blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, SshError> {
    let ended = tokio::task::spawn_blocking(work).await;
    ended.map_err(|_| SshError::Protocol("a task of this manager ended early".to_owned()))
}

fn unexpected_reply(reply: &Reply) -> SshError {
    const SHOWN: usize = 300;
    let told: String = format!("{reply:?}").chars().take(SHOWN).collect();
    SshError::Protocol(format!("unexpected reply to an examination: {told}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use remoor_model::{BranchContent, DigestTrees, FileEntry, FileKind, ServiceDigest};

    /// A simulated node. It answers from the hash trees of its digest, as an executor does.
    #[derive(Default)]
    struct Node {
        digest: NodeDigest,
        trees: DigestTrees,
        orders: Vec<&'static str>,
        /// Whether the executor is an older one, which can't send a summary of its digest.
        old: bool,
        /// Whether the node omits entries in its answers, which then contradict its hashes.
        lies: bool,
    }

    impl Orders for Node {
        async fn give(&mut self, order: ExecutorOrder) -> Result<Reply, SshError> {
            let exam = Exam { boot: "b1".into(), ..Exam::default() };
            self.orders.push(order.kind());
            match order {
                ExecutorOrder::Examine { known: Some(known), .. } if !self.old => {
                    let (services, trees) = DigestTrees::summarize(self.digest.clone(), &known);
                    self.trees = trees;
                    Ok(Reply::Outlined { exam, services })
                }
                ExecutorOrder::Examine { .. } => Ok(Reply::Exam(Exam { digest: self.digest.clone(), ..exam })),
                ExecutorOrder::Branches { questions } => {
                    let mut below = self.trees.answer(&questions).map_err(SshError::Protocol)?;
                    if self.lies
                        && let Some(BranchContent::Entries(entries)) = below.first_mut()
                    {
                        entries.clear();
                    }
                    Ok(Reply::Branches { below })
                }
                other => Ok(Reply::Error { message: format!("no answer to {other:?}") }),
            }
        }
    }

    fn digest(edited: Option<usize>) -> NodeDigest {
        let entry = |n: usize| FileEntry {
            path: format!("/etc/app/{n}"),
            kind: FileKind::File,
            mode: if edited == Some(n) { 0o600 } else { 0o644 },
            owner: "root".to_owned(),
            group: "root".to_owned(),
            sha256: Some(Sha256::digest(&n.to_be_bytes())),
            target: None,
            secret: false,
        };
        let app = ServiceDigest::new((0..2_000).map(entry).collect(), BTreeMap::new());
        let services = BTreeMap::from([("app".into(), app)]);
        NodeDigest { root: NodeDigest::root_of(&services), services }
    }

    #[tokio::test]
    async fn the_digest_is_the_same_whole_or_by_differences() {
        let manifest = NodeManifest::default();
        let look = ExamRequest { manifest: &manifest, key: [7; 32] };
        let node = |old, lies| Node { digest: digest(Some(5)), old, lies, ..Node::default() };
        for (mut node, known, orders) in [
            (node(false, false), Some(digest(None)), &["examine", "branches", "branches"][..]),
            (node(false, false), Some(digest(Some(5))), &["examine"]),
            (node(false, false), None, &["examine"]),
            (node(true, false), Some(digest(None)), &["examine"]),
            (node(false, true), Some(digest(None)), &["examine", "branches", "branches", "examine"]),
        ] {
            let exam = look.ask(&mut node, known).await.unwrap();
            assert_eq!((exam.digest, exam.boot), (digest(Some(5)), "b1".into()));
            assert_eq!(node.orders, orders);
        }
    }
}
