//! Handlers that wait to be let on.

use std::sync::Arc;

use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout;

use crate::LIMIT;

/// A gate for handlers: they tell that they run, and wait to be let on.
#[derive(Clone, Debug)]
pub struct Gate {
    entered: mpsc::UnboundedSender<()>,
    finished: mpsc::UnboundedSender<()>,
    open: Arc<Semaphore>,
}

/// The other side of a gate, which lets handlers on.
#[derive(Debug)]
pub struct Keeper {
    entered: mpsc::UnboundedReceiver<()>,
    finished: mpsc::UnboundedReceiver<()>,
    open: Arc<Semaphore>,
}

/// Makes a closed gate.
pub fn gate() -> (Gate, Keeper) {
    let open = Arc::new(Semaphore::new(0));
    let (entered, is_entered) = mpsc::unbounded_channel();
    let (finished, is_finished) = mpsc::unbounded_channel();
    let keeper = Keeper { entered: is_entered, finished: is_finished, open: Arc::clone(&open) };
    (Gate { entered, finished, open }, keeper)
}

impl Gate {
    /// Tells that a handler runs, and waits until it is let on.
    pub async fn pass(&self) {
        let _ = self.entered.send(());
        self.open.acquire().await.expect("never closed").forget();
        let _ = self.finished.send(());
    }
}

impl Keeper {
    /// Waits until one more handler runs.
    pub async fn entered(&mut self) {
        timeout(LIMIT, self.entered.recv()).await.expect("a handler runs").expect("a gate");
    }

    /// Waits until one more handler has been let on.
    pub async fn finished(&mut self) {
        timeout(LIMIT, self.finished.recv()).await.expect("a handler finishes").expect("a gate");
    }

    /// Whether no handler runs but those that [`Keeper::entered`] told of.
    pub fn is_alone(&mut self) -> bool {
        self.entered.try_recv().is_err()
    }

    /// Whether a handler has been let on that [`Keeper::finished`] did not tell of.
    pub fn has_finished(&mut self) -> bool {
        self.finished.try_recv().is_ok()
    }

    /// Lets one handler on, now or when it comes.
    pub fn let_one_on(&self) {
        self.open.add_permits(1);
    }
}
