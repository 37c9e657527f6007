//! `Stay`: a lock, acquired and then held until the program receives the command to end it.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::turns::take;
use crate::{Peer, now, say};

pub(crate) struct Stay {
    end: oneshot::Sender<()>,
    taken: oneshot::Receiver<()>,
    task: JoinHandle<()>,
}

impl Stay {
    /// Begins to wait, up to the wait limit. With a name, it reports the grant and the end.
    pub(crate) fn begin<P: Peer>(
        peer: &Arc<P>,
        key: &str,
        name: Option<String>,
        patience: Option<Duration>,
    ) -> Self {
        let (end, ended) = oneshot::channel();
        let (took, taken) = oneshot::channel();
        let task =
            tokio::spawn(stay(Arc::clone(peer), key.to_owned(), name, patience, ended, took));
        Self { end, taken, task }
    }

    pub(crate) async fn taken(&mut self) {
        let _ = (&mut self.taken).await;
    }

    /// Makes it release the lock, or stop waiting for it; the future completes when that is done.
    pub(crate) fn end(self) -> impl Future<Output = ()> {
        let _ = self.end.send(());
        async { self.task.await.expect("a lock is taken and given back without a panic") }
    }
}

async fn stay<P: Peer>(
    peer: Arc<P>,
    key: String,
    name: Option<String>,
    patience: Option<Duration>,
    mut ended: oneshot::Receiver<()>,
    took: oneshot::Sender<()>,
) {
    let asked = now();
    let hold = tokio::select! {
        hold = take(&*peer, key, patience) => hold,
        _ = &mut ended => None,
    };
    let Some(hold) = hold else {
        if let Some(name) = name {
            say(&format!("cancelled {name}"));
        }
        return;
    };
    let granted = now();
    let _ = took.send(());
    if let Some(name) = &name {
        say(&format!("taken {name} {asked} {granted}"));
    }
    let _ = ended.await;
    let giving = now();
    peer.give(hold).await;
    if let Some(name) = name {
        say(&format!("given {name} {giving} {}", now()));
    }
}
