//! Tasks that the gateway cannot do without. A panic costs a request its connection; one in such a task would leave
//! a port dead, so it ends the process, and whoever looks after that starts it again.

use tokio::sync::mpsc;

/// Where the failures of critical tasks are told.
#[derive(Clone)]
pub struct CriticalTasks(mpsc::UnboundedSender<&'static str>);

/// Held by a critical task: tells of it if the task panics.
pub struct Guard {
    critical: CriticalTasks,
    task: &'static str,
}

impl CriticalTasks {
    /// What has failed is sent to `failures`, in words that go on from "what".
    pub fn new(failures: mpsc::UnboundedSender<&'static str>) -> Self {
        Self(failures)
    }

    /// For a task that does this.
    pub fn guard(&self, task: &'static str) -> Guard {
        Guard { critical: self.clone(), task }
    }

    /// Something ended that never should.
    pub fn failed(&self, task: &'static str) {
        let _ = self.0.send(task); // if nobody hears it, the gateway is ending
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
    fn only_a_panic_is_told() {
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
