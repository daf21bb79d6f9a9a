//! What serves the requests of one worker thread, for as long as the thread runs.

use std::cell::{OnceCell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::view::View;
use crate::process_state::ProcessState;
use crate::snapshot::Snapshot;
use sluicegate_downstream::worker_state::WorkerState;

/// Called with a snapshot before the first request that it applies to.
type OnReload = Box<dyn Fn(&Snapshot)>;

/// The state of a worker thread, the state of the process, and the configuration in force as the worker sees it.
pub struct Services {
    /// What all threads share.
    pub process: Arc<ProcessState>,
    /// The clock, deadlines and buffers of this thread.
    pub worker: Rc<WorkerState>,
    /// The worker's number, from 0.
    pub index: usize,
    view: RefCell<Rc<View>>,
    on_reload: OnceCell<OnReload>,
}

impl Services {
    /// The services of the worker `index`, under the configuration that is in force now.
    pub fn new(process: Arc<ProcessState>, index: usize) -> Rc<Self> {
        let snapshot = process.snapshot.load_full();
        let worker = WorkerState::new(process.clock, index, snapshot.config.client);
        worker.set_header_case(snapshot.header_case.clone());
        let view = View::new(snapshot, &process, index, None);
        Rc::new(Self {
            worker: Rc::new(worker),
            view: RefCell::new(Rc::new(view)),
            on_reload: OnceCell::new(),
            index,
            process,
        })
    }

    /// Has `call` called with each snapshot that comes into force, before the first request that it applies to. It must
    /// not call [`view`](Self::view). Only the first `call` is kept.
    pub fn on_reload(&self, call: impl Fn(&Snapshot) + 'static) {
        let _ = self.on_reload.set(Box::new(call));
    }

    /// The configuration in force, with what this worker resolved of it.
    #[inline]
    pub fn view(&self) -> Rc<View> {
        if self.process.generation.load(Ordering::Acquire) != self.view.borrow().snapshot.generation {
            self.renew();
        }
        Rc::clone(&self.view.borrow())
    }

    #[cold]
    fn renew(&self) {
        let mut view = self.view.borrow_mut();
        let snapshot = self.process.snapshot.load_full();
        if let Some(call) = self.on_reload.get() {
            call(&snapshot);
        }
        self.worker.set_client(snapshot.config.client);
        self.worker.set_header_case(snapshot.header_case.clone());
        *view = Rc::new(View::new(snapshot, &self.process, self.index, Some(&view)));
    }

    /// The view that was used last, which may be outdated.
    pub fn last_view(&self) -> Rc<View> {
        Rc::clone(&self.view.borrow())
    }
}
