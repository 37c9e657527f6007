//! Grants, however they are told: from the server's word to the guard.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::engine::Engine;
use crate::guard::LockGuard;
use crate::hold::{self, Hold};
use crate::key::LockName;
use crate::member::Member;
use crate::observe;
use crate::protocol::claim_ms;
use crate::reaper::Job;
use crate::store::{Grant, Renewed, Reply};
use crate::token::FencingToken;
use crate::waiters::{Phase, Waiter};

/// A renewal before the hand-out that failed is followed by a touch after this time.
const RETRY: Duration = Duration::from_millis(250);

impl Engine {
    /// Takes in what every reply tells besides its outcome.
    pub(crate) fn absorb<T>(self: &Arc<Self>, lock: &LockName, sent: Instant, reply: &Reply<T>) {
        self.succeeded();
        if reply.foreign && !self.settings.redisson_peers {
            observe::foreign(self, lock);
        }
        if reply.passed_over > 0 {
            observe::passed_over(self, lock, reply.passed_over);
        }
        let Some(Grant { member, token }) = &reply.grant else { return };
        let ours = member.ours().filter(|ours| ours.node == self.node.as_str());
        let Some(number) = ours.map(|ours| ours.number) else { return };
        let known = self.granted(number, *token, reply.left_ms, Some(sent));
        // Nobody here waits for it any more. A leave that is on its way already knows better whether a copy of its
        // acquire may still come, and must not be overtaken by one that does not.
        if !known && !self.reaper.is_leaving(number) {
            self.reaper.send(Job::leave(lock.clone(), member.clone(), false));
        }
    }

    /// The server says, unasked, that a member of ours was granted its lock.
    pub(crate) fn pushed(self: &Arc<Self>, member: &Member, token: FencingToken, left_ms: u64) {
        if let Some(ours) = member.ours().filter(|ours| ours.node == self.node.as_str()) {
            // An unknown one has left, and its leave gives the lock on.
            let _ = self.granted(ours.number, token, left_ms, None);
        }
    }

    /// A member of ours holds its lock, with `left_ms` counted from `anchor`, or from the waiter's
    /// own anchor if the grant came unasked. Returns whether somebody here waits for it or holds it.
    fn granted(
        self: &Arc<Self>,
        number: u64,
        token: FencingToken,
        left_ms: u64,
        anchor: Option<Instant>,
    ) -> bool {
        let mut waiters = self.waiters();
        let Some(waiter) = waiters.get_mut(number) else { return self.holds().contains(number) };
        if waiter.phase == Phase::Confirming {
            return true;
        }
        let left = Duration::from_millis(left_ms);
        let pushed = anchor.is_none();
        let anchor = anchor.unwrap_or(waiter.anchor);
        let now = Instant::now();
        let certain = hold::deadline(anchor, left).saturating_duration_since(now);
        if certain.is_zero() {
            // Too late to be a guard: back to waiting, and a touch decides.
            if waiter.future.is_none() {
                self.give_up(waiters, number);
                return true;
            }
            let anchor = waiter.anchor;
            if waiters.line_up(number, anchor, now) {
                self.heartbeat_wake.notify_one();
            }
            return true;
        }
        let claim = Duration::from_millis(claim_ms(waiter.options.lease_ms()));
        if certain < claim / 2 || (pushed && self.settings.confirm_grants) {
            waiter.phase = Phase::Confirming;
            let (lock, member) = (waiter.lock.clone(), waiter.member.clone());
            drop(waiters);
            self.confirm(number, lock, member, token);
            return true;
        }
        let Some(waiter) = waiters.take(number) else { return false };
        let guard = self.seize(&waiter, number, token, anchor, left);
        drop(waiters);
        observe::granted(self, &waiter, pushed);
        waiter.finish(Ok(Some(guard)));
        true
    }

    /// Makes the guard. Called with the waiters locked, so that the number is at no time neither waiting nor held.
    fn seize(
        self: &Arc<Self>,
        waiter: &Waiter,
        number: u64,
        token: FencingToken,
        anchor: Instant,
        left: Duration,
    ) -> LockGuard {
        let hold = Arc::new(Hold::new(self, waiter, number, token, anchor, left));
        self.watch(Arc::clone(&hold));
        LockGuard::new(hold)
    }

    /// Renews a grant before it is handed out.
    fn confirm(self: &Arc<Self>, number: u64, lock: LockName, member: Member, token: FencingToken) {
        let engine = Arc::clone(self);
        self.spawn(async move {
            let sent = Instant::now();
            let answer = engine.store.renew(&lock, &member).await;
            let mut waiters = engine.waiters();
            let held = match &answer {
                Ok(reply) if reply.outcome == Renewed::Held => Duration::from_millis(reply.left_ms),
                _ => Duration::ZERO,
            };
            if answer.is_ok() {
                engine.succeeded();
            }
            if hold::deadline(sent, held) > Instant::now() {
                // Cancelled meanwhile: its leave is on its way.
                let Some(waiter) = waiters.take(number) else { return };
                let guard = engine.seize(&waiter, number, token, sent, held);
                drop(waiters);
                observe::granted(&engine, &waiter, true);
                return waiter.finish(Ok(Some(guard)));
            }
            let Some(anchor) = waiters.get(number).map(|waiter| waiter.anchor) else { return };
            let pause = if answer.is_ok() { Duration::ZERO } else { RETRY };
            if waiters.line_up(number, anchor, Instant::now() + pause) {
                engine.heartbeat_wake.notify_one();
            }
        });
    }
}
