//! Handlers that wait to be let through.

use std::sync::Arc;

use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout;

use crate::LIMIT;

/// A gate for handlers: they report that they run, and wait to be let through.
#[derive(Clone, Debug)]
pub struct Gate {
    entered: mpsc::UnboundedSender<()>,
    finished: mpsc::UnboundedSender<()>,
    open: Arc<Semaphore>,
}

/// The other side of a gate, which lets handlers through.
#[derive(Debug)]
pub struct Keeper {
    entered: mpsc::UnboundedReceiver<()>,
    finished: mpsc::UnboundedReceiver<()>,
    open: Arc<Semaphore>,
}

/// Creates a closed gate.
pub fn gate() -> (Gate, Keeper) {
    let open = Arc::new(Semaphore::new(0));
    let (entered, is_entered) = mpsc::unbounded_channel();
    let (finished, is_finished) = mpsc::unbounded_channel();
    let keeper = Keeper { entered: is_entered, finished: is_finished, open: Arc::clone(&open) };
    (Gate { entered, finished, open }, keeper)
}

impl Gate {
    /// Reports that a handler runs, and waits until it is let through.
    pub async fn pass(&self) {
        let _ = self.entered.send(());
        self.open.acquire().await.expect("never closed").forget();
        let _ = self.finished.send(());
    }
}

impl Keeper {
    /// Drops the response once a request has entered, as a server does when the client disconnects.
    /// Then lets the request on.
    pub async fn abandon(&mut self, mut response: impl Future + Unpin) {
        tokio::select! {
            _ = &mut response => unreachable!("the gate is closed"),
            () = self.entered() => {}
        }
        drop(response);
        self.let_one_on();
    }

    /// Waits until one more handler runs.
    pub async fn entered(&mut self) {
        timeout(LIMIT, self.entered.recv()).await.expect("a handler runs").expect("a gate");
    }

    /// Waits until one more handler has been let through.
    pub async fn finished(&mut self) {
        timeout(LIMIT, self.finished.recv()).await.expect("a handler finishes").expect("a gate");
    }

    /// Whether no handler runs except those reported by [`Keeper::entered`].
    pub fn is_alone(&mut self) -> bool {
        self.entered.try_recv().is_err()
    }

    /// Whether a handler has been let through that [`Keeper::finished`] has not reported.
    pub fn has_finished(&mut self) -> bool {
        self.finished.try_recv().is_ok()
    }

    /// Lets one handler through, now or when it arrives.
    pub fn let_one_on(&self) {
        self.open.add_permits(1);
    }
}
