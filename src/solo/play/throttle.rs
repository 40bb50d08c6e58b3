//! Limits how many hosts run a task at the same time (`throttle`).

use remoor_playbook::{SourcePlace, Task};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

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
}
