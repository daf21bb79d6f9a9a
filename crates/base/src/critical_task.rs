//! Critical tasks. A panic elsewhere closes one connection; a panic in a critical task would leave a port without service,
//! so it ends the process, and the service manager starts it again.

use tokio::sync::mpsc;

/// Reports failures of critical tasks.
#[derive(Clone)]
pub struct CriticalTasks(mpsc::UnboundedSender<&'static str>);

/// Held by a critical task: reports a panic of the task.
pub struct Guard {
    critical: CriticalTasks,
    task: &'static str,
}

impl CriticalTasks {
    /// Failures are sent to `failures`, as the words that follow "the task that".
    pub fn new(failures: mpsc::UnboundedSender<&'static str>) -> Self {
        Self(failures)
    }

    /// The guard of a task; `task` says what the task does.
    pub fn guard(&self, task: &'static str) -> Guard {
        Guard { critical: self.clone(), task }
    }

    /// Reports that a critical task has failed.
    pub fn failed(&self, task: &'static str) {
        let _ = self.0.send(task); // without a receiver the gateway is ending already
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.critical.failed(self.task);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_panic_is_reported() {
        let (sender, mut failures) = mpsc::unbounded_channel();
        let critical = CriticalTasks::new(sender);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let local = tokio::task::LocalSet::new();
        let run = |panics: bool| {
            let guard = critical.guard("is tested");
            local.block_on(&runtime, async {
                let task = async move {
                    let _guard = guard;
                    tokio::task::yield_now().await;
                    assert!(!panics, "on purpose");
                };
                tokio::task::spawn_local(task).await.is_err()
            })
        };
        assert!(!run(false));
        assert!(failures.try_recv().is_err());
        assert!(run(true));
        assert_eq!(failures.try_recv(), Ok("is tested"));
    }
}
