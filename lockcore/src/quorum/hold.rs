//! A lock held on a quorum: valid while a majority of primaries certainly hold it. Missing
//! primaries are acquired meanwhile.
//!
//! # Implementation notes
//!
//! - Each primary's node renews the hold at this primary. A task for each quorum hold acquires
//!   missing primaries, and reports the loss.
//! - A lost hold stays lost: a primary acquired later counts only if a majority is certainly held
//!   at that moment; both are checked under the same mutex. While a majority is certainly held, no
//!   other guard can be or become valid without a confirmation by these primaries, whatever data
//!   the later primary has lost.
//! - The primaries that a lost hold still has are released, because they would block others for
//!   nothing. But not before the deadline, because guards, which are notified slightly earlier, may
//!   still rely on them.
//! - A primary acquired later draws a token above the guard's, since the token floor includes
//!   the guard's token. The guard keeps the original token.

use std::future::{Future, ready};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::{BoxFuture, join_all, select_all};
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt as _, StreamExt as _};
use proto::node::{Note, Request};
use proto::{Demand, FencingToken, LockErrorKind, LockName, Mode, Renewal};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};
use tokio_util::task::AbortOnDropHandle;
use tracing::Span;

use super::context::{AcquireContext, BEHIND};
use super::primaries::{HOP, Primaries};
use super::primary::Step;
use super::view::View;
use crate::node::{Attempt, LocalOptions, Loss, later, until};
use crate::types::error::LockError;
use crate::types::hold_state::HoldState;
use crate::types::options::LockOptions;

/// The maximum time for which a lost hold keeps its remaining primaries. Guards may be notified of
/// an expiry up to this time before the deadline, and may rely on the primaries until the deadline.
const MAX_KEPT: Duration = Duration::from_millis(100);
/// How long an awaited release at least waits for the other primaries, once a majority has
/// confirmed.
const NEAR: Duration = Duration::from_millis(10);

/// A quorum hold, shared by all guards that re-entered it. Dropping it releases all primaries.
pub(crate) struct Hold {
    token: FencingToken,
    waited: Duration,
    position: Option<u64>,
    span: Span,
    shared: Arc<SharedHold>,
    /// The task that acquires missing primaries and reports the loss. Dropping the hold ends it.
    _keeping: AbortOnDropHandle<()>,
}

/// The part of a hold that is shared with the task that acquires missing primaries and reports the
/// loss.
struct SharedHold {
    context: AcquireContext,
    /// When the hold began.
    since: Instant,
    /// When the fixed lease or `max_hold` ends; `None` if the hold is unlimited.
    last: Option<Instant>,
    state: Mutex<State>,
    /// Notified when a missing primary was acquired, or a guard has found the hold lost. The task
    /// then checks for a loss again.
    changed: Notify,
    /// True once the hold was found lost. It then stays lost.
    was_lost: AtomicBool,
    /// True once the loss has been logged and counted, so that this happens only once.
    is_loss_reported: AtomicBool,
    /// Cancelled when the hold is lost, to notify the guards.
    lost: Arc<Loss>,
}

enum State {
    /// A lost hold stays in this state until its remaining primaries are released.
    Held {
        /// The hold at each primary, in list order; `None` where the lock is not held.
        held: Vec<Option<Step>>,
        /// Counts this hold in [`Primaries::status`]: a clone of `Primaries::holding`.
        _counted: Arc<()>,
    },
    /// The primaries were released or leaked. Contains the deadline of the hold at that time.
    Ended(Instant),
}

impl Hold {
    pub(crate) fn new(
        context: AcquireContext,
        held: Vec<Option<Step>>,
        token: FencingToken,
        waited: Duration,
        position: Option<u64>,
    ) -> Arc<Self> {
        let since = Instant::now();
        let options = &context.request.options;
        // A primary that is gained after a wait, or confirmed, keeps a fixed lease for longer.
        let fixed = (options.renewal == Renewal::Fixed).then_some(options.lease);
        let longest = options.max_hold.into_iter().chain(fixed).min();
        let last = longest.map(|longest| later(since, longest));
        let lock = &context.request.lock;
        let span = context.primaries.observer.holding(lock, &context.of, token, &Span::none());
        let primaries = Arc::clone(&context.primaries);
        let counted = Arc::clone(&primaries.holding);
        let shared = Arc::new(SharedHold {
            context,
            since,
            last,
            state: Mutex::new(State::Held { held, _counted: counted }),
            changed: Notify::new(),
            was_lost: AtomicBool::new(false),
            is_loss_reported: AtomicBool::new(false),
            lost: Arc::default(),
        });
        let keeping = primaries.runtime.spawn(Arc::clone(&shared).keep());
        Arc::new(Self {
            token,
            waited,
            position,
            span,
            shared,
            _keeping: AbortOnDropHandle::new(keeping),
        })
    }

    pub(crate) fn demand(&self) -> Demand {
        self.shared.context.request.demand
    }

    /// Returns the token, or 0 for a read, because concurrent reads would have different tokens.
    pub(crate) fn fencing_token(&self) -> FencingToken {
        match self.demand() {
            Demand::EXCLUSIVE => self.token,
            _ => FencingToken::NONE,
        }
    }

    pub(crate) fn lock(&self) -> &LockName {
        &self.shared.context.request.lock
    }

    pub(crate) fn namespace(&self) -> Option<&str> {
        self.shared.context.primaries.namespace()
    }

    pub(crate) fn waited(&self) -> Duration {
        self.waited
    }

    pub(crate) fn position(&self) -> Option<u64> {
        self.position
    }

    pub(crate) fn span(&self) -> &Span {
        &self.span
    }

    pub(crate) fn runtime(&self) -> &Handle {
        &self.shared.primaries().runtime
    }

    pub(crate) fn loss(&self) -> &Loss {
        &self.shared.lost
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.shared.is_lost()
    }

    pub(crate) fn state(&self) -> HoldState {
        if self.is_lost() {
            return HoldState::Lost;
        }
        let is_answered = |step: &Step| step.guard.state() == HoldState::Held;
        match self.shared.is_held(&self.shared.state(), is_answered) {
            true => HoldState::Held,
            false => HoldState::Uncertain,
        }
    }

    pub(crate) fn deadline(&self) -> Instant {
        self.shared.deadline(&self.shared.state())
    }

    /// Releases all primaries concurrently, and returns an error if the hold did not last until
    /// then. Releases nothing while other guards share the hold.
    pub(crate) fn release(self: Arc<Self>) -> BoxFuture<'static, Result<(), LockError>> {
        let was_lost = self.is_lost();
        match Arc::into_inner(self) {
            Some(this) => this.give_back().boxed(),
            None if was_lost => ready(Err(LockError::new(LockErrorKind::Lost))).boxed(),
            None => ready(Ok(())).boxed(),
        }
    }

    /// Releases the primaries. Completes once a majority has confirmed, and primaries that take
    /// little longer.
    fn give_back(self) -> impl Future<Output = Result<(), LockError>> + Send + 'static + use<> {
        let was_lost = self.is_lost();
        self.shared.report_if_found();
        // After the runtime's end, every hold counts as lost. The clock shows whether the work
        // was protected until now.
        let is_closed = self.shared.has_ended() && Instant::now() < self.deadline();
        let closed = is_closed.then(|| self.shared.primaries().closed());
        let shared = Arc::clone(&self.shared);
        let majority = self.shared.primaries().majority();
        let steps = self.shared.take();
        let mut releases: FuturesUnordered<_> =
            steps.into_iter().map(|step| step.guard.release()).collect();
        async move {
            if let Some(closed) = closed {
                return Err(closed);
            }
            let (mut confirmed, mut open, mut failure) = (0, releases.len(), None);
            let (begun, mut end) = (Instant::now(), None);
            loop {
                if was_lost || open < majority {
                    if !shared.is_loss_reported.swap(true, Ordering::Relaxed) {
                        shared.report_loss();
                    }
                    shared.lost.cancel();
                    return Err(LockError::new(LockErrorKind::Lost));
                }
                if confirmed >= majority && end.is_none() {
                    // The lock is released, but a request that begins at another primary would find
                    // it busy. So primaries as near as the majority are waited for, and a slow
                    // primary is not: its release continues.
                    end = Some(Instant::now() + begun.elapsed().max(NEAR));
                }
                let released = match end {
                    Some(end) => timeout_at(end, releases.next()).await.unwrap_or(None),
                    None => releases.next().await,
                };
                match released {
                    Some(Ok(())) => confirmed += 1,
                    Some(Err(error)) if error.kind() == LockErrorKind::Lost => open -= 1,
                    Some(Err(error)) => failure = failure.or(Some(error)),
                    None if confirmed >= majority => return Ok(()),
                    None => return failure.map_or(Ok(()), Err),
                }
            }
        }
    }

    /// Ends the hold without a release: all primaries stay locked until the leases end.
    pub(crate) fn leak(&self) {
        self.shared.report_if_found();
        for step in self.shared.take() {
            step.guard.leak();
        }
        // A leak is no loss, although other guards of the hold find it ended.
        self.shared.is_loss_reported.store(true, Ordering::Relaxed);
        self.shared.lost.cancel();
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.shared.report_if_found();
        // Release the primaries now, rather than when the task has ended.
        drop(self.shared.take());
        let SharedHold { context, since, .. } = &*self.shared;
        context.primaries.observer.ended(self.lock(), &context.of, || since.elapsed());
    }
}

/// The hold's task. If the runtime ends the task while the hold lasts, nobody renews the hold or
/// reports a loss any more: so the hold is lost.
struct Keeper(Arc<SharedHold>);

impl Drop for Keeper {
    fn drop(&mut self) {
        if matches!(*self.0.state(), State::Held { .. }) {
            self.0.was_lost.store(true, Ordering::Release);
            self.0.lost.cancel();
        }
    }
}

impl SharedHold {
    fn primaries(&self) -> &Primaries {
        &self.context.primaries
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the certain holds among `held`, the holds at the primaries: a hold is certain if it
    /// is not lost and the primary has kept its data.
    fn certain<'a>(&self, held: &'a [Option<Step>]) -> impl Iterator<Item = &'a Step> {
        let steps = self.primaries().members.iter().zip(held);
        steps.filter_map(|(primary, step)| step.as_ref().filter(|step| primary.has(step)))
    }

    /// Returns true if a majority is certainly held, and neither the fixed lease nor `max_hold` is
    /// over. Counts only holds for which `is_so` returns true.
    fn is_held(&self, state: &State, is_so: impl Fn(&Step) -> bool) -> bool {
        let State::Held { held, .. } = state else { return false };
        let is_over = self.last.is_some_and(|last| Instant::now() >= last);
        let certain = self.certain(held).filter(|step| is_so(step)).count();
        !is_over && certain >= self.primaries().majority()
    }

    /// Returns the time until which a majority is certainly held. After a loss or a release, this
    /// is the last deadline before.
    fn deadline(&self, state: &State) -> Instant {
        let held = match state {
            State::Held { held, .. } => held,
            State::Ended(deadline) => return *deadline,
        };
        let of = |step: &Step| step.guard.deadline();
        let mut deadlines: Vec<_> = self.certain(held).map(of).collect();
        if deadlines.len() < self.primaries().majority() {
            // Lost: use the deadline before the loss.
            deadlines = held.iter().flatten().map(of).collect();
        }
        deadlines.sort_unstable_by(|a, b| b.cmp(a));
        let deadline = deadlines.get(self.primaries().majority() - 1);
        let deadline = deadline.copied().unwrap_or_else(Instant::now);
        self.last.map_or(deadline, |last| last.min(deadline))
    }

    /// Returns true if the hold is lost. Runs no code from outside this crate, so mutexes may be
    /// locked: the hold's task notifies the guards.
    fn is_lost(&self) -> bool {
        if self.was_lost.load(Ordering::Acquire) {
            return true;
        }
        let state = self.state();
        let is_held = self.is_held(&state, |_| true);
        if !is_held {
            // Under the mutex, so that no primary is added to a lost hold.
            self.was_lost.store(true, Ordering::Release);
            self.changed.notify_one();
        }
        !is_held
    }

    /// Reports a loss that a guard has found, before the task that would report it ends.
    fn report_if_found(&self) {
        if self.was_lost.load(Ordering::Acquire) && !self.has_ended() {
            self.notify_lost();
        }
    }

    /// Returns true if the runtime of the primaries has ended.
    fn has_ended(&self) -> bool {
        self.primaries().nodes().any(|node| node.has_ended())
    }

    /// Notifies the guards that the hold is lost, and reports the loss, unless the hold was
    /// released or leaked before. This runs code from outside this crate, so no mutex may be
    /// locked.
    fn notify_lost(&self) {
        if !matches!(*self.state(), State::Held { .. }) {
            return;
        }
        self.lost.cancel();
        if !self.is_loss_reported.swap(true, Ordering::Relaxed) {
            self.report_loss();
        }
    }

    fn report_loss(&self) {
        let AcquireContext { primaries, request, of, .. } = &self.context;
        let why = match self.last {
            Some(last) if Instant::now() >= last => match request.options.max_hold {
                Some(_) => "max_hold reached",
                None => "the fixed lease expired",
            },
            _ => "too few primaries hold the lock",
        };
        let (lock, held) = (request.lock.clone(), self.since.elapsed());
        primaries.observer.note(&Note::Lost { lock, held, why, of: of.clone() });
    }

    /// Ends the hold: returns the holds at the primaries, for the caller to release. From now on no
    /// primary is added.
    fn take(&self) -> Vec<Step> {
        let mut state = self.state();
        let ended = State::Ended(self.deadline(&state));
        match std::mem::replace(&mut *state, ended) {
            State::Held { held, .. } => held.into_iter().flatten().collect(),
            State::Ended(_) => Vec::new(),
        }
    }

    /// Returns the future of the hold's task: it acquires missing primaries, reports the loss, and
    /// then releases the remaining primaries.
    fn keep(self: Arc<Self>) -> impl Future<Output = ()> + Send {
        // Created here, and not in the first poll: the runtime may drop the task before polling it.
        let keeper = Keeper(self);
        async move {
            let hold = &keeper.0;
            tokio::select! {
                biased;
                () = hold.until_lost() => {}
                () = hold.acquire_missing() => {}
            }
            let deadline = hold.deadline(&hold.state());
            sleep_until(deadline.min(Instant::now() + MAX_KEPT)).await;
            drop(hold.take());
        }
    }

    async fn until_lost(&self) {
        let (mut view, last) = (self.primaries().view.subscribe(), self.last);
        loop {
            // Before the check: if a hold ends in between, either the check or the hold's future
            // reports it. The primaries are on other threads.
            let mut changes = self.losses();
            if self.is_lost() {
                return self.notify_lost();
            }
            changes.push(Box::pin(self.changed.notified()));
            changes.push(Box::pin(self.lost.token().cancelled()));
            tokio::select! {
                biased;
                _ = select_all(changes) => {}
                _ = view.changed() => {}
                () = until(last) => {}
            }
        }
    }

    /// Returns a future for each certain hold at a primary. It completes when this primary is lost.
    fn losses(&self) -> Vec<BoxFuture<'_, ()>> {
        let State::Held { held, .. } = &*self.state() else { return Vec::new() };
        self.certain(held)
            .map(|step| step.guard.loss().token().clone().cancelled_owned().boxed())
            .collect()
    }

    /// Acquires missing primaries for as long as the hold lasts, independently of each other.
    async fn acquire_missing(&self) {
        join_all((0..self.primaries().members.len()).map(|at| self.acquire_missing_at(at))).await;
    }

    /// Acquires the primary at index `at` whenever it is missing: as soon as the primary counts
    /// again, and otherwise soon after the grant, and then less and less often, down to once per
    /// renewal period.
    async fn acquire_missing_at(&self, at: usize) {
        let period = self.context.request.options.lease / 3;
        let mut view = self.primaries().view.subscribe();
        let mut pause = HOP;
        loop {
            if self.drop_lost(at) {
                // Not acquired at once, whatever the view: a force release reaches the primaries
                // one after another, and would be undone at the first before it reaches the last.
                pause = period;
                sleep(pause).await;
                continue;
            }
            let server = view.borrow_and_update().servers[at];
            if let Some(server) = server {
                self.acquire_at(at, server).await;
            }
            let counts_again =
                |view: &View| view.servers[at].is_some() && view.servers[at] != server;
            match timeout(pause, view.wait_for(counts_again)).await {
                Ok(_) => pause = HOP,
                Err(_) => pause = (pause * 2).min(period),
            }
        }
    }

    /// Drops the hold at the primary at index `at` if it is lost there, and returns true if so.
    fn drop_lost(&self, at: usize) -> bool {
        let mut state = self.state();
        let State::Held { held, .. } = &mut *state else { return false };
        let lost = held[at].take_if(|step| step.guard.is_lost());
        drop(state);
        // Dropped outside the mutex, because dropping a guard runs foreign code.
        lost.is_some()
    }

    /// Acquires the primary at index `at`, which counts with the server number `server`, if it is
    /// not held. A hold from before a restart is confirmed instead: the primary may have kept it,
    /// and a release would give the lock to a waiter there.
    async fn acquire_at(&self, at: usize, server: u64) {
        let confirmation = match &*self.state() {
            State::Held { held, .. } => match &held[at] {
                Some(step) if step.server == server => return,
                held => held.as_ref().map(|step| step.guard.confirm()),
            },
            State::Ended(_) => return,
        };
        match confirmation {
            Some(confirmation) => {
                if confirmation.await.is_ok() {
                    self.change(at, |held| {
                        held.iter_mut().for_each(|step| step.server = server);
                        None
                    });
                }
            }
            None => self.gain(at, server).await,
        }
    }

    /// Returns the request for a missing primary. It does not wait, because it is repeated once per
    /// renewal period. A fixed lease is not renewed: the request then has the remaining time as
    /// lease and as wait, and queues at the primary. `None` if too little of a fixed lease remains.
    fn request(&self) -> Option<Request> {
        let mut request = Request { mode: Mode::Try, ..self.context.at_a_primary() };
        if request.options.renewal == Renewal::Fixed {
            let left = self.deadline(&self.state()).saturating_duration_since(Instant::now());
            request.mode = Mode::Wait;
            (request.options.lease, request.options.wait) = (left, Some(left));
            return (left >= LockOptions::MIN_LEASE).then_some(request);
        }
        Some(request)
    }

    async fn gain(&self, at: usize, server: u64) {
        let primary = &self.primaries().members[at];
        let (Some(node), Some(request)) = (primary.node(), self.request()) else { return };
        let class = node.classes.get(BEHIND);
        let attempt = Attempt::new(node, Ok(request), class, LocalOptions::LABELLED);
        let Ok(Some(guard)) = attempt.await else { return };
        self.change(at, |held| held.replace(Step::new(guard, server)));
    }

    /// Changes the hold at the primary at index `at`, after a grant or a confirmation there, unless
    /// the whole hold is lost. `change` returns the former hold if it replaces it.
    fn change(&self, at: usize, change: impl FnOnce(&mut Option<Step>) -> Option<Step>) {
        let mut state = self.state();
        if !self.was_lost.load(Ordering::Acquire)
            && self.is_held(&state, |_| true)
            && let State::Held { held, .. } = &mut *state
        {
            let before = change(&mut held[at]);
            drop(state);
            drop(before);
            self.changed.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::api::locks::Locks;

    // The task may check the hold after the release has begun, on another thread.
    #[tokio::test]
    async fn a_check_during_a_release_takes_it_for_no_loss() {
        let locks = Locks::builder().in_memory_quorum(3).expect("3 stores");
        let guard = locks.lock("k").await.expect("free");
        let token = guard.cancellation_token();
        let crate::backend::Hold::Quorum(hold) = &guard.0 else { panic!("a quorum") };
        let steps = hold.shared.take();
        hold.shared.until_lost().await;
        assert!(!token.is_cancelled());
        assert!(!hold.shared.lost.token().is_cancelled());
        drop(steps);
    }
}
