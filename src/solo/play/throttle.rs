//! Limits how many hosts run a task at the same time (`throttle`).

use super::run::PlayStop;
use remoor_playbook::{SourcePlace, Task};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

/// The limits of all tasks of a run. All hosts share them.
#[derive(Debug, Default)]
pub(super) struct TaskLimits {
    of_place: Mutex<BTreeMap<(String, u32), Arc<Semaphore>>>,
}

impl TaskLimits {
    /// Waits until fewer hosts than the limit of `task` run it. The host runs it until it drops the
    /// permit.
    pub async fn acquire(&self, task: &Task) -> Option<OwnedSemaphorePermit> {
        let SourcePlace { file, line } = task.place.clone();
        let limit = {
            let mut all = self.of_place.lock().unwrap_or_else(PoisonError::into_inner);
            let most = usize::try_from(task.hosts.throttle).unwrap_or(usize::MAX).min(Semaphore::MAX_PERMITS);
            Arc::clone(all.entry((file, line)).or_insert_with(|| Arc::new(Semaphore::new(most))))
        };
        limit.acquire_owned().await.ok()
    }
}

/// The permit of one host. All clones are the same permit. A host has at most one permit, because
/// it runs its tasks one after the other.
#[derive(Debug, Clone, Default)]
pub(super) struct HostPermit(Arc<Mutex<PermitState>>);

#[derive(Debug, Default)]
struct PermitState {
    /// The last play that the host has completed.
    completed: Option<u32>,
    /// The number of the task that the host may run. The permit is None after a stop, which the
    /// host may not know yet.
    held: Option<(u32, Option<OwnedSemaphorePermit>)>,
}

impl HostPermit {
    /// Waits until the host may run a task of the play with this index. Some: the reason why the
    /// host may not request this. A host that lies about the end of its task loses the permit when
    /// its play or its session ends.
    pub async fn begin(
        &self,
        limits: &TaskLimits,
        (play, task): (u32, &Task),
        mut ending: watch::Receiver<PlayStop>,
    ) -> Option<String> {
        self.end_task();
        let permit = tokio::select! {
            biased;
            _ = ending.wait_for(|ending| *ending != PlayStop::Not) => None,
            permit = limits.acquire(task) => permit,
        };
        let mut state = self.lock();
        if state.completed.is_some_and(|completed| play <= completed) {
            return Some("a task of a play that it has completed".to_owned());
        }
        state.held = Some((task.id, permit));
        None
    }

    pub fn end_task(&self) {
        self.lock().held = None;
    }

    /// Whether the host may run the task with this number.
    pub fn allows(&self, task: u32) -> bool {
        self.lock().held.as_ref().is_some_and(|(held, _)| *held == task)
    }

    /// Records that the host has completed a play. Returns false if the host has already completed
    /// this play or a later one.
    pub fn complete_play(&self, play: u32) -> bool {
        let mut state = self.lock();
        state.held = None;
        let is_new = state.completed.is_none_or(|completed| play > completed);
        state.completed = state.completed.max(Some(play));
        is_new
    }

    fn lock(&self) -> MutexGuard<'_, PermitState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use remoor_playbook::HostRules;

    #[tokio::test]
    async fn a_host_waits_for_the_limit_of_its_task() {
        let limits = Arc::new(TaskLimits::default());
        let task = |line: u32| Task {
            place: SourcePlace { file: "site.yml".to_owned(), line },
            hosts: HostRules { throttle: 2, ..HostRules::default() },
            ..Task::default()
        };
        let (first, second) = (limits.acquire(&task(1)).await, limits.acquire(&task(1)).await);
        assert!(first.is_some() && second.is_some());
        let (shared, third) = (Arc::clone(&limits), task(1));
        let waiting = tokio::spawn(async move { shared.acquire(&third).await.is_some() });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        assert!(limits.acquire(&task(2)).await.is_some(), "another task has its own limit");
        drop(first);
        assert!(waiting.await.unwrap());
    }

    #[tokio::test]
    async fn a_permit_ends_with_its_task_and_with_its_play() {
        let (limits, permit, ending) =
            (TaskLimits::default(), HostPermit::default(), watch::Sender::new(PlayStop::Not));
        let task = Task { id: 7, hosts: HostRules { throttle: 1, ..HostRules::default() }, ..Task::default() };
        let free = || {
            let all = limits.of_place.lock().unwrap();
            all.values().map(|limit| limit.available_permits()).sum::<usize>()
        };
        assert!(!permit.allows(7));
        assert_eq!(permit.begin(&limits, (1, &task), ending.subscribe()).await, None);
        assert!(permit.allows(7) && !permit.allows(8) && free() == 0);
        permit.end_task();
        assert!(!permit.allows(7) && free() == 1);
        assert_eq!(permit.begin(&limits, (1, &task), ending.subscribe()).await, None);
        assert!(permit.complete_play(1), "its first end");
        assert!(!permit.allows(7) && free() == 1, "the host did not say that the task ended");
        assert!(permit.begin(&limits, (1, &task), ending.subscribe()).await.unwrap().contains("has completed"));
        assert!(!permit.complete_play(1) && !permit.complete_play(0) && free() == 1);
        ending.send_replace(PlayStop::AfterTask);
        assert_eq!(permit.begin(&limits, (2, &task), ending.subscribe()).await, None);
        assert!(permit.allows(7) && free() == 1, "after a stop nobody waits");
    }
}
