//! `Gates`: stop or pass the frames of each kind of connection, per direction.

use std::sync::{Arc, Mutex};

use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};

use super::shared::lock;
use super::{Connections, Flow};

/// A gate for each kind of connection and each direction. A passing frame keeps the gate open, so
/// after a gate was closed no frame is under way.
#[derive(Default)]
pub(super) struct Gates {
    commands: TwoWay,
    subscriptions: TwoWay,
}

#[derive(Default)]
struct TwoWay {
    requests: Gate,
    replies: Gate,
}

#[derive(Default)]
struct Gate {
    lock: Arc<RwLock<()>>,
    closed: Mutex<Option<OwnedRwLockWriteGuard<()>>>,
}

impl Gates {
    /// Waits until a frame may pass. The gate cannot close until the returned value is dropped.
    pub(super) async fn pass(&self, subscribed: bool, flow: Flow) -> OwnedRwLockReadGuard<()> {
        let way = if subscribed { &self.subscriptions } else { &self.commands };
        let gate = if flow == Flow::Requests { &way.requests } else { &way.replies };
        gate.lock.clone().read_owned().await
    }

    pub(super) async fn close(&self, which: Connections, flow: Flow) {
        for gate in self.select(which, flow) {
            if lock(&gate.closed).is_none() {
                let guard = gate.lock.clone().write_owned().await;
                *lock(&gate.closed) = Some(guard);
            }
        }
    }

    pub(super) fn open(&self, which: Connections, flow: Flow) {
        for gate in self.select(which, flow) {
            *lock(&gate.closed) = None;
        }
    }

    fn select(&self, which: Connections, flow: Flow) -> impl Iterator<Item = &Gate> {
        let kinds = [(&self.commands, false), (&self.subscriptions, true)];
        let ways = kinds.into_iter().filter(move |(_, subscribed)| which.include(*subscribed));
        ways.flat_map(move |(way, _)| {
            let requests = (flow != Flow::Replies).then_some(&way.requests);
            let replies = (flow != Flow::Requests).then_some(&way.replies);
            requests.into_iter().chain(replies)
        })
    }
}
