//! One node's view of the store in memory.

use std::fmt;
use std::sync::{Arc, MutexGuard};

use tokio::sync::watch;

use super::Shared;
use super::inner::Inner;
use crate::error::{LockErrorKind, StoreError};
use crate::key::LockName;
use crate::member::{Member, NodeId};
use crate::store::protocol::{Call, LockState, permits};
use crate::store::{
    Acquired, Each, Event, Inspection, Leaving, Left, Link, Mode, Released, Renewed, Reply, Store,
    StoreFuture, Touched,
};

/// Connected from its creation until it is closed or dropped.
pub(super) struct MemoryNode {
    shared: Arc<Shared>,
    node: NodeId,
    peers: bool,
    link: watch::Sender<Link>,
}

impl MemoryNode {
    pub(super) fn new(shared: Arc<Shared>, node: NodeId, peers: bool) -> Self {
        Self { shared, node, peers, link: watch::Sender::new(Link::Up) }
    }

    /// Runs one command, then delivers what it and others have posted.
    fn run<T>(
        &self,
        lock: &LockName,
        command: impl FnOnce(&mut LockState, &mut Call<'_>) -> T,
    ) -> StoreFuture<T> {
        self.run_on(self.shared.lock(), lock, command)
    }

    fn run_on<T>(
        &self,
        mut inner: MutexGuard<'_, Inner>,
        lock: &LockName,
        command: impl FnOnce(&mut LockState, &mut Call<'_>) -> T,
    ) -> StoreFuture<T> {
        if !inner.nodes.contains_key(self.node.as_str()) {
            return StoreFuture::ready(Err(closed()));
        }
        // Read under the mutex: commands see the time in the order in which they run.
        let now_us = self.shared.clock.now_us();
        let outcome = inner.run(lock, &self.node, self.peers, now_us, command);
        self.deliver(inner);
        StoreFuture::ready(Ok(outcome))
    }

    /// The same on one lock after the other, at one time.
    fn run_each<A, T>(
        &self,
        locks: &[(LockName, A)],
        mut command: impl FnMut(&mut LockState, &mut Call<'_>, &A) -> Reply<T>,
    ) -> StoreFuture<Each<T>> {
        let mut inner = self.shared.lock();
        if !inner.nodes.contains_key(self.node.as_str()) {
            return StoreFuture::ready(Err(closed()));
        }
        let now_us = self.shared.clock.now_us();
        let mut run = |(lock, of_lock): &(LockName, A)| {
            let command =
                |state: &mut LockState, call: &mut Call<'_>| command(state, call, of_lock);
            Ok(inner.run(lock, &self.node, self.peers, now_us, command))
        };
        let outcomes = locks.iter().map(&mut run).collect();
        self.deliver(inner);
        StoreFuture::ready(Ok(outcomes))
    }

    fn deliver(&self, inner: MutexGuard<'_, Inner>) {
        let has_mail = !inner.outbox.is_empty();
        drop(inner);
        if has_mail {
            self.shared.deliver();
        }
    }

    fn is_closed(&self) -> bool {
        !self.shared.lock().nodes.contains_key(self.node.as_str())
    }
}

impl Store for MemoryNode {
    fn acquire(
        &self,
        lock: &LockName,
        member: &Member,
        mode: Mode,
        queue_limit: u32,
    ) -> StoreFuture<Reply<Acquired>> {
        let inner = self.shared.lock();
        match inner.refusing {
            Some(LockErrorKind::QueueFull) => {
                self.run_on(inner, lock, |state, call| state.full(call))
            }
            Some(kind) if inner.nodes.contains_key(self.node.as_str()) => {
                StoreFuture::ready(Err(StoreError::refused(kind, "refused by the test")))
            }
            _ => self
                .run_on(inner, lock, |state, call| state.acquire(call, member, mode, queue_limit)),
        }
    }

    fn release(&self, lock: &LockName, member: &Member) -> StoreFuture<Reply<Released>> {
        self.run(lock, |state, call| state.release(call, member))
    }

    fn renew(&self, holds: Vec<(LockName, Member)>) -> StoreFuture<Each<Renewed>> {
        self.run_each(&holds, |state, call, member| state.renew(call, member))
    }

    fn touch(&self, lines: Vec<(LockName, Vec<Member>)>) -> StoreFuture<Each<Touched>> {
        self.run_each(&lines, |state, call, members| state.touch(call, members))
    }

    fn leave(&self, lock: &LockName, leaving: Vec<Leaving>) -> StoreFuture<Reply<Vec<Left>>> {
        self.run(lock, |state, call| state.leave(call, &leaving))
    }

    fn force_release(&self, lock: &LockName) -> StoreFuture<Reply<Released>> {
        self.run(lock, |state, call| state.force_release(call))
    }

    fn inspect(&self, lock: &LockName) -> StoreFuture<Inspection> {
        self.run(lock, |state, call| state.inspect(call.now_us))
    }

    fn permits(&self, lock: &LockName, command: permits::Command) -> StoreFuture<permits::Answer> {
        let mut inner = self.shared.lock();
        if !inner.nodes.contains_key(self.node.as_str()) {
            return StoreFuture::ready(Err(closed()));
        }
        let is_acquire = matches!(command, permits::Command::Acquire { .. });
        let refusing = inner.refusing.filter(|_| is_acquire);
        if let Some(kind) = refusing.filter(|kind| *kind != LockErrorKind::QueueFull) {
            return StoreFuture::ready(Err(StoreError::refused(kind, "refused by the test")));
        }
        // Read under the mutex: commands see the time in the order in which they run.
        let now_us = self.shared.clock.now_us();
        let answer = inner.run_permits(lock, &self.node, now_us, |state, call| match refusing {
            Some(_) => permits::Answer::Acquired(state.full(call)),
            None => state.step(call, &command),
        });
        self.deliver(inner);
        StoreFuture::ready(Ok(answer))
    }

    fn ping(&self) -> StoreFuture<()> {
        StoreFuture::ready(if self.is_closed() { Err(closed()) } else { Ok(()) })
    }

    fn commands(&self) -> watch::Receiver<Link> {
        self.link.subscribe()
    }

    fn subscription(&self) -> watch::Receiver<Link> {
        self.link.subscribe()
    }

    fn reopen_subscription(&self) {
        let mut inner = self.shared.lock();
        // A node made deaf stays so: told of a new subscription it would ask again at once, for
        // ever.
        if inner.deaf.has(self.node.as_str()) {
            return;
        }
        let Some(listener) = inner.nodes.get(self.node.as_str()).map(Arc::clone) else {
            return;
        };
        inner.outbox.push_back((listener, Event::Resubscribed));
        drop(inner);
        self.shared.deliver();
    }

    fn close(&self) {
        let listener = self.shared.lock().nodes.remove(self.node.as_str());
        // Dropped without the mutex: it may be the last of its owner.
        drop(listener);
        self.link.send_replace(Link::Down { reason: Arc::from("closed") });
    }
}

impl Drop for MemoryNode {
    fn drop(&mut self) {
        self.close();
    }
}

impl fmt::Debug for MemoryNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryNode").field("node", &self.node).finish_non_exhaustive()
    }
}

fn closed() -> StoreError {
    StoreError::refused(LockErrorKind::Closed, "the node was closed")
}
