//! Guards of holds on a single node.

use std::cell::LazyCell;
use std::sync::Arc;
use std::time::Duration;

use proto::layout::Ability;
use proto::node::{GivenBack, Moment};
use proto::{Answer, Demand, FencingToken, Grant, LockErrorKind, LockName, Renewed};
use tokio::runtime::Handle;
use tokio::time::Instant;
use tracing::Span;

use super::release::Returning;
use super::{HoldCell, Loss, Node, NodeRelease, TimedRequest};
use crate::types::error::LockError;
use crate::types::hold_state::HoldState;

/// Panic message for a guard without a hold. Only a consumed guard has none, so this would be a
/// bug.
const KEPT: &str = "a guard has a hold until consumed";

/// A guard of a single node's hold. Dropping the last guard releases the hold.
pub(crate) struct NodeGuard(Option<NodeHold>);

/// The data of a hold. Each guard of the hold has a clone.
#[derive(Clone)]
struct NodeHold {
    node: Arc<Node>,
    lock: LockName,
    shared: HoldCell,
    /// The number that identifies the hold in the core, the node's state machine.
    number: u64,
    demand: Demand,
    token: FencingToken,
    since: Moment,
    waited: Duration,
    /// The hold's tracing span, open while the hold lasts.
    span: Span,
}

impl NodeHold {
    fn observe_end(&self) {
        // Read the clock once for all observers.
        let held = LazyCell::new(|| self.node.clock.now().since(self.since));
        if let Some(class) = self.shared.class() {
            class.held(|| *held);
        }
        self.node.observer.ended(&self.lock, &self.shared, || *held);
    }

    /// Ends the hold after its last guard. Nobody waits for the outcome.
    fn forget(&self) {
        // First, while the core still counts the hold: a shutdown waits for this thread.
        self.observe_end();
        self.node.with(|core| core.dropped(self.number));
    }
}

impl NodeGuard {
    pub(crate) fn new(
        node: &Arc<Node>,
        lock: LockName,
        shared: HoldCell,
        demand: Demand,
        (number, token, since, waited): (u64, FencingToken, Moment, Duration),
        wait: &Span,
    ) -> Self {
        shared.add_guard();
        let node = Arc::clone(node);
        let span = node.observer.holding(&lock, &shared, token, wait);
        Self(Some(NodeHold { node, lock, shared, number, demand, token, since, waited, span }))
    }

    fn hold(&self) -> &NodeHold {
        self.0.as_ref().expect(KEPT)
    }

    /// Takes the hold from the guard, so that the guard's drop does not release it.
    fn into_hold(mut self) -> NodeHold {
        self.0.take().expect(KEPT)
    }

    pub(crate) fn demand(&self) -> Demand {
        self.hold().demand
    }

    /// Returns the fencing token. Permits have no token: the result is
    /// [`NONE`](FencingToken::NONE).
    pub(crate) fn fencing_token(&self) -> FencingToken {
        let hold = self.hold();
        if hold.demand.is_permits() { FencingToken::NONE } else { hold.token }
    }

    pub(crate) fn lock(&self) -> &LockName {
        &self.hold().lock
    }

    pub(crate) fn namespace(&self) -> Option<&str> {
        self.hold().node.settings.namespace.as_deref()
    }

    pub(crate) fn waited(&self) -> Duration {
        self.hold().waited
    }

    pub(crate) fn position(&self) -> Option<u64> {
        self.hold().shared.position()
    }

    pub(crate) fn span(&self) -> &Span {
        &self.hold().span
    }

    pub(crate) fn runtime(&self) -> &Handle {
        &self.hold().node.runtime
    }

    pub(crate) fn is_lost(&self) -> bool {
        let hold = self.hold();
        hold.shared.is_lost(hold.node.clock.refreshed_now())
    }

    /// Returns the cancellation tokens that are cancelled once the node knows that the hold is
    /// lost.
    pub(crate) fn loss(&self) -> &Loss {
        self.hold().shared.loss()
    }

    pub(crate) fn state(&self) -> HoldState {
        let NodeHold { node, shared, lock, .. } = self.hold();
        if self.is_lost() {
            HoldState::Lost
        } else if shared.is_unanswered() || node.store.why_down(lock).is_some() {
            HoldState::Uncertain
        } else {
            HoldState::Held
        }
    }

    pub(crate) fn deadline(&self) -> Instant {
        let hold = self.hold();
        // Otherwise the deadline of an expired lease would be in the future after a suspension.
        hold.node.clock.refreshed_now();
        hold.node.clock.instant(hold.shared.until())
    }

    /// Returns the number of guards that share the hold.
    pub(crate) fn guards(&self) -> usize {
        self.hold().shared.guards()
    }

    /// Returns another guard that shares the hold.
    pub(crate) fn reenter(&self) -> Self {
        // First the clone, because a subscriber may panic when it clones the span. Otherwise the
        // hold would count a guard that nobody drops.
        let hold = self.hold().clone();
        hold.shared.add_guard();
        Self(Some(hold))
    }

    /// Renews the hold when the returned future is first polled, and returns a new fencing token
    /// above all tokens seen by this process. For a read or permits, returns the token that the
    /// holders share.
    pub(crate) fn confirm(
        &self,
    ) -> impl Future<Output = Result<FencingToken, LockError>> + Send + use<> {
        let NodeHold { node, number, .. } = self.hold();
        let (node, number) = (Arc::clone(node), *number);
        async move {
            let lost = || LockError::new(LockErrorKind::Lost);
            let request = node.with(|core| core.confirmation(number)).ok_or_else(lost)?;
            match TimedRequest::send(&node, request).await? {
                Answer::Renewed(reply) if reply.outcome == [Renewed::Held] => {
                    let token = reply.grants.first().map(|grant| grant.token);
                    token.ok_or_else(|| LockError::new(LockErrorKind::Protocol))
                }
                Answer::Renewed(_) => Err(lost()),
                _ => Err(LockError::new(LockErrorKind::Protocol)),
            }
        }
    }

    /// Downgrades an exclusive lock to a read, so that other reads can share the lock. Fails if the
    /// guard is not exclusive, or another guard shares the hold.
    pub(crate) async fn reduce(&mut self) -> Result<(), LockError> {
        let hold = self.hold();
        let invalid = |why: String| Err(LockError::with_detail(LockErrorKind::InvalidOption, why));
        if hold.demand != Demand::EXCLUSIVE {
            return invalid(format!(
                "only a lock can be downgraded to a read; this is {}",
                hold.demand
            ));
        }
        if self.guards() > 1 {
            return invalid("other guards share the lock: drop them first".to_owned());
        }
        let node = &hold.node;
        let number = hold.number;
        node.settings.can(Ability::Parts)?;
        // In a batch of waiters that were granted the lock as one hold, the server has the hold
        // under another member's id.
        let asked = node.with(|core| Some((core.downgrade(number)?, core.held_as(number))));
        let Some((request, held_as)) = asked else {
            return Err(LockError::new(LockErrorKind::Lost));
        };
        match TimedRequest::send(node, request).await? {
            Answer::Renewed(reply) if reply.outcome == [Renewed::NotHeld] => {
                Err(LockError::new(LockErrorKind::Lost))
            }
            Answer::Renewed(reply) => {
                let is_own = |grant: &&Grant| grant.member.number() == held_as;
                let Some(grant) = reply.grants.iter().find(is_own) else {
                    return Err(LockError::new(LockErrorKind::Protocol));
                };
                let token = grant.token;
                let hold = self.0.as_mut().expect(KEPT);
                hold.token = token;
                hold.demand = Demand::READ;
                hold.shared.reduce();
                Ok(())
            }
            _ => Err(LockError::new(LockErrorKind::Protocol)),
        }
    }

    /// Drops this guard, and releases the hold if no other guard shares it. The request is sent
    /// within this call; the future only returns the outcome. If another guard shares the hold, the
    /// outcome is whether the hold is lost.
    pub(crate) fn release(self) -> NodeRelease {
        let hold = self.into_hold();
        if !hold.shared.drop_guard() {
            return NodeRelease::done(match hold.shared.is_lost(hold.node.clock.refreshed_now()) {
                true => Err(LockError::new(LockErrorKind::Lost)),
                false => Ok(()),
            });
        }
        let node = &hold.node;
        if node.has_ended() {
            hold.forget();
            // Every hold counts as lost now. The clock shows whether the work was protected.
            return NodeRelease::done(Err(
                match node.clock.refreshed_now() >= hold.shared.until() {
                    true => LockError::new(LockErrorKind::Lost),
                    false => node.closed(),
                },
            ));
        }
        hold.observe_end();
        match node.with(|core| core.release(hold.number)) {
            GivenBack::By(request) => {
                let returning = Returning(hold.shared.clone());
                node.send_then(request, move |answer| returning.complete(answer));
            }
            // The core reports the outcome later, with the reply to another request of the batch.
            GivenBack::InBatch => {}
            // Leaked, or released at the end of `max_hold` or by a shutdown.
            GivenBack::Nothing => {
                return NodeRelease::done(Err(LockError::new(LockErrorKind::Lost)));
            }
        }
        // Holds the driver and not the node, so that an unpolled release does not keep the node
        // alive.
        NodeRelease::running(Arc::clone(&*hold.node), hold.shared)
    }

    /// Drops this guard without a release: the server keeps the hold until the lease ends.
    pub(crate) fn leak(self) {
        let hold = self.into_hold();
        // First the core: otherwise another guard, on another thread, could be the last and release
        // the hold before the leak.
        hold.node.with(|core| core.leak(hold.number));
        hold.shared.drop_guard();
    }
}

impl Drop for NodeGuard {
    fn drop(&mut self) {
        let Some(hold) = self.0.take() else { return };
        if hold.shared.drop_guard() {
            hold.forget();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future as _;
    use std::pin::pin;
    use std::sync::OnceLock;
    use std::task::{Context, Wake};

    use crate::LockGuard;
    use crate::api::locks::Locks;

    use super::*;

    /// A waker that counts the guards of a hold when it is woken.
    struct CountsGuards {
        guard: LockGuard,
        count: OnceLock<usize>,
    }

    impl Wake for CountsGuards {
        fn wake(self: Arc<Self>) {
            let _ = self.count.set(self.guard.hold_count());
        }
    }

    // Otherwise the release of the other guard, on another thread, could overtake the leak.
    #[tokio::test]
    async fn a_leaked_guard_counts_until_the_core_has_leaked_the_hold() {
        let locks = Locks::in_memory();
        let leaked = locks.lock("key").await.expect("free");
        let guard = leaked.reenter().expect("held");
        let token = guard.cancellation_token();
        let waker = Arc::new(CountsGuards { guard, count: OnceLock::new() });
        let mut lost = pin!(token.cancelled());
        let polled = lost.as_mut().poll(&mut Context::from_waker(&Arc::clone(&waker).into()));
        assert!(polled.is_pending());
        // The leak notifies the guards within this call, once the core has processed it.
        let _until = leaked.leak();
        assert_eq!(waker.count.get(), Some(&2));
    }
}
