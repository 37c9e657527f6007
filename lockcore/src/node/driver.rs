//! The driver of a node: guards the state machine [`Core`] by a mutex, sends its requests to the
//! store, and wakes callers.
//!
//! # Implementation notes
//!
//! - An event locks the mutex once, and its effects run without the mutex. So nothing can deadlock
//!   when a store responds within the call, or a user's waker or log subscriber calls back. A panic
//!   in one effect does not prevent the others.
//! - The event that ends a hold or a wait also sends the release or the leave, on the thread that
//!   causes the event. The request waits neither for the background task nor for a turn on a busy
//!   runtime. Only the retries are sent in the background.
//! - A request is sent within the call, and always completes, because the reply may contain a grant
//!   for another attempt. A store task passes the reply to the core, without the caller's future.
//!   When the runtime ends, there is no reply.
//! - Effects of two events may overtake each other. So the core never has two requests for the same
//!   member in flight if their order matters: a leave waits for the reply to the acquire. A release
//!   may overtake a renewal, whose reply then changes nothing.
//! - A tick's requests are sent before the next tick sends any: attempts that had to wait for a
//!   tick keep their order.
//! - With required replicas, each renewal is sent on a connection that then waits for the replicas,
//!   and a guard relies on the renewal only once enough replicas have it. A release may overtake
//!   such a renewal, too.

use std::fmt;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use proto::node::{
    Core, Effect, Lanes, Moment, Note, RequestGroup, Rules, StoreRequest, grouped, is_of_one,
};
use proto::{Answer, Command, Event, Link, LockErrorKind, LockName, NodeId, StoreError};
use smallvec::smallvec;
use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::clock::Clock;
use super::hold_cell::HoldCell;
use super::observe::{Observer, begin_class};
use super::refusal_pace::RefusalPace;
use super::settings::Settings;
use crate::foreign;
use crate::node::class::Classes;
use crate::operate::status::{Connection, Status};
use crate::store::{Listener, Replied, Replies, Store, TakeReply, Then};
use crate::types::error::LockError;

/// Maximum number of holders whose labels are recorded in the tracing span of a wait.
const MOST_NAMED: NonZeroU32 = NonZeroU32::new(8).expect("the number is not zero");

pub(crate) type Effects = Vec<Effect<HoldCell>>;

/// A running node, shared by the handles, the guards and the background task. It lives until all
/// handles and guards are dropped and all holds are released.
pub(crate) struct Driver {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) id: NodeId,
    pub(crate) settings: Settings,
    pub(crate) runtime: Handle,
    pub(crate) clock: Clock,
    pub(crate) observer: Observer,
    pub(crate) classes: Classes,
    pub(crate) refusals: RefusalPace,
    table: Mutex<DriverState>,
    /// Wakes the background task when a timer is due sooner than the task expects.
    pub(super) wake: Notify,
    /// Notified after each event of a node that is shut down, for tasks that wait until the
    /// shutdown is complete.
    pub(crate) progress: Notify,
    has_ended: AtomicBool,
}

/// The driver state that the mutex guards.
struct DriverState {
    core: Core<HoldCell>,
    commands: watch::Receiver<Link>,
    subscription: watch::Receiver<Link>,
    /// The value of [`Store::servers`] at the last event. If it rises, commands now go to another
    /// server.
    servers: u64,
    lanes: Option<Lanes>,
    /// When the background task wakes by itself; `None` if it waits only for a notification.
    armed: Option<Moment>,
    /// True once all handles were dropped.
    is_abandoned: bool,
}

impl DriverState {
    /// Passes the states of the store's two connections, for commands and for messages, to the core
    /// if they have changed. Called before each event, so that the core decides nothing by an old
    /// state.
    fn sync_links(&mut self, store: &dyn Store) {
        let has_changed = |link: &watch::Receiver<Link>| link.has_changed().unwrap_or(false);
        if has_changed(&self.commands) || has_changed(&self.subscription) {
            let commands = self.commands.borrow_and_update().clone();
            let subscription = self.subscription.borrow_and_update().clone();
            self.sync_store(store);
            // Read after the state: a server is counted before the connection is up.
            if std::mem::replace(&mut self.servers, store.servers()) != self.servers {
                self.core.moved();
            }
            self.core.linked(commands, subscription);
        }
    }

    /// Passes to the core whether the store can acquire a free lock by plain Redis commands instead
    /// of a script (the fast path), and the lane of each Redis Cluster slot. A lane is the core's
    /// record of the requests and timers for one server.
    fn sync_store(&mut self, store: &dyn Store) {
        self.core.set_fast_path(store.has_fast_path());
        if let Some(lanes) = store.lanes().filter(|lanes| self.lanes.as_ref() != Some(lanes)) {
            self.core.set_lanes(Arc::clone(&lanes));
            self.lanes = Some(lanes);
        }
    }

    /// Returns true if all handles were dropped, and no attempt, hold or pending release is left.
    fn is_over(&self) -> bool {
        let counts = self.core.counts();
        self.is_abandoned && counts.attempts + counts.holds + counts.given_back == 0
    }

    /// Returns true if the background task must be notified, because a timer or the node's end is
    /// due before the task wakes by itself.
    fn is_late(&mut self) -> bool {
        // At the end of the node, the background task is due at once, because it closes the store.
        let next = if self.is_over() { Some(Moment::default()) } else { self.core.next() };
        let Some(next) = next else { return false };
        let is_late = self.armed.is_none_or(|armed| next < armed);
        if is_late {
            // A single wake-up suffices for everything that happens before the task runs.
            self.armed = Some(Moment::default());
        }
        is_late
    }
}

impl Driver {
    pub(super) fn new(
        store: Arc<dyn Store>,
        id: NodeId,
        settings: Settings,
        runtime: Handle,
    ) -> Self {
        let rules = Rules {
            confirm_grants: settings.confirm_grants,
            confirms_writes: settings.confirmation.is_some(),
            layout: settings.layout,
            batch_limit: settings.batch_limit as usize,
            born_us: Some(store.now_us()),
            seed: seed_of(&id),
            ..Rules::default()
        };
        let mut table = DriverState {
            core: Core::new(id.clone(), rules),
            commands: store.commands(),
            subscription: store.subscription(),
            servers: store.servers(),
            lanes: None,
            armed: None,
            is_abandoned: false,
        };
        table.sync_store(&*store);
        let classes = Classes::new(&settings.class);
        begin_class(&classes.unnamed());
        Self {
            store,
            observer: Observer::new(id.clone(), &settings, &runtime),
            classes,
            refusals: RefusalPace::default(),
            id,
            settings,
            runtime,
            clock: Clock::new(),
            table: Mutex::new(table),
            wake: Notify::new(),
            progress: Notify::new(),
            has_ended: AtomicBool::new(false),
        }
    }

    fn table(&self) -> MutexGuard<'_, DriverState> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `event` with the core, the node's state machine, and then runs the effects, such as
    /// requests to send. Before the event, checks whether the machine was suspended, because leases
    /// may have expired meanwhile.
    pub(crate) fn with<T>(self: &Arc<Self>, event: impl FnOnce(&mut Core<HoldCell>) -> T) -> T {
        let mut table = self.table();
        table.core.event(self.clock.refreshed_now());
        table.sync_links(&*self.store);
        let value = event(&mut table.core);
        let effects = table.core.drain();
        let is_late = table.is_late();
        let is_closed = table.core.is_closed();
        drop(table);
        if is_late {
            self.wake.notify_one();
        }
        if is_closed {
            self.progressed();
        }
        self.run(effects);
        value
    }

    /// Sends a request. The reply is processed even if the caller is gone, because it may contain a
    /// grant for another attempt of this node.
    pub(crate) fn send(self: &Arc<Self>, request: StoreRequest) {
        self.send_group(smallvec![request], false);
    }

    /// Sends a request, and calls `then` with the response once the core has processed it. If the
    /// runtime ends first, `then` is dropped without a call.
    pub(crate) fn send_then(
        self: &Arc<Self>,
        request: StoreRequest,
        then: impl FnOnce(Result<Answer, StoreError>) + Send + 'static,
    ) {
        if self.has_ended() {
            return;
        }
        let driver = Arc::clone(self);
        // An in-memory store runs the command before this returns, and may call back.
        let taken = move |group: RequestGroup, replied: Replied| {
            driver.replied(&group, &replied);
            then(replied.and_then(Replies::only));
        };
        self.store.send(smallvec![request], Then::call(taken));
    }

    /// Runs the timers that are due. Returns true if more are due, and when to call this again:
    /// after `longest` at the latest, because timers stop while the machine is suspended. The time
    /// is `None` if no timer is pending.
    ///
    /// After a notification of the background task (`was_woken`), the time is set even if no timer
    /// is pending. The task then wakes by itself, and locks taken until then need not notify it.
    pub(super) fn tick(
        self: &Arc<Self>,
        longest: Duration,
        was_woken: bool,
    ) -> (bool, Option<Moment>) {
        let mut table = self.table();
        let now = self.clock.refreshed_now();
        table.core.event(now);
        table.sync_links(&*self.store);
        let is_more = table.core.tick();
        let mut effects = table.core.drain();
        let latest = now + longest;
        let next = table.core.next().map(|next| next.min(latest));
        let armed = next.or(was_woken.then_some(latest));
        table.armed = armed;
        let is_closed = table.core.is_closed();
        drop(table);
        if is_closed {
            self.progressed();
        }
        let requests = taken(&mut effects, |effect| matches!(effect, Effect::Send(_)));
        // Send within this call, not in a task: a task of the next tick could overtake a task of
        // this tick, and attempts that had to wait would lose their order.
        self.send_all(requests, false);
        self.run(effects);
        (is_more, armed)
    }

    /// Records that the last handle was dropped, and wakes the background task if it can end.
    pub(super) fn abandon(&self) {
        let mut table = self.table();
        table.is_abandoned = true;
        let is_late = table.is_late();
        drop(table);
        if is_late {
            self.wake.notify_one();
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.table().is_over()
    }

    /// Returns the node's connection states and numbers of attempts and holds.
    pub(crate) fn status(&self) -> Status {
        let counts = self.read(Core::counts);
        Status {
            commands: Connection::of(&self.store.commands()),
            subscription: Connection::of(&self.store.subscription()),
            waiting: counts.attempts,
            holding: counts.holds,
            releasing: counts.given_back,
            positions_lost: counts.positions_lost,
            servers: self.store.server_status(),
        }
    }

    /// Calls `at` with the core, the node's state machine, and returns the result. Only for reads:
    /// a change needs [`with`](Self::with), because its effects have to run.
    pub(crate) fn read<T>(&self, at: impl FnOnce(&Core<HoldCell>) -> T) -> T {
        at(&self.table().core)
    }

    fn progressed(&self) {
        foreign::call("a waker", || self.progress.notify_waiters());
    }

    /// Runs the effects of an event: sends requests, wakes callers, and logs. Requests are sent
    /// first, because logging may block this thread.
    fn run(self: &Arc<Self>, mut effects: Effects) {
        if effects.is_empty() {
            return;
        }
        if effects.iter().any(|effect| matches!(effect, Effect::Send(_) | Effect::Confirm(_))) {
            let urgent = taken(&mut effects, is_urgent);
            if !urgent.is_empty() {
                self.send_all(urgent, false);
            }
            let requests = taken(&mut effects, |effect| matches!(effect, Effect::Send(_)));
            let renewals = taken(&mut effects, |effect| matches!(effect, Effect::Confirm(_)));
            // Send in a task: an in-memory store replies within the call, and the effects of the
            // reply would run inside this call.
            for (requests, confirmed) in [(requests, false), (renewals, true)] {
                if !requests.is_empty() {
                    let driver = Arc::clone(self);
                    self.runtime.spawn(async move { driver.send_all(requests, confirmed) });
                }
            }
        }
        for effect in effects {
            match effect {
                Effect::Send(_) | Effect::Confirm(_) => {}
                Effect::Wake(mirror) => foreign::call("a waker", move || mirror.caller.wake()),
                Effect::NotifyLost(mirror) => mirror.notify_lost(),
                Effect::Reopen => self.store.reopen_subscription(),
                Effect::Observe(note) => {
                    if let Note::Queued { lock, of, .. } = &note {
                        foreign::call("a waker", || of.publish_position());
                        self.record_holders(lock, of);
                    }
                    self.observer.note(&note);
                }
            }
        }
    }

    /// Requests the labels of the lock's holders, if they are to be recorded in the tracing span of
    /// this attempt's wait. Called when the server has queued the attempt.
    fn record_holders(self: &Arc<Self>, lock: &LockName, of: &HoldCell) {
        let Some(wait) = of.take_records_holders() else { return };
        // The maximum excludes the waiters from the reply; there may be a thousand.
        let command = Command::Inspect { from: u32::MAX, most: MOST_NAMED };
        let (lock, sent) = (lock.clone(), self.clock.now());
        let driver = Arc::clone(self);
        let request = self.read(|core| core.untracked_request(lock, command, sent));
        self.send_then(request, move |answer| driver.observer.held_by(wait, answer));
    }

    /// Sends requests in order, in groups where possible. If `confirmed` is true, the requests are
    /// renewals, and the store replies once the writes are confirmed by replicas or on the disk.
    fn send_all(self: &Arc<Self>, requests: Vec<StoreRequest>, confirmed: bool) {
        let together = |command: &Command| self.settings.layout.goes_together(command);
        let topology = self.store.topology();
        for group in grouped(requests, together, |lock| topology.slot(lock)) {
            self.send_group(group, confirmed);
        }
    }

    fn send_group(self: &Arc<Self>, group: RequestGroup, confirmed: bool) {
        if self.has_ended() {
            return;
        }
        let driver = Arc::clone(self);
        // An in-memory store runs the commands before this returns, and may call back.
        match confirmed {
            true => {
                let taken = move |group, replied| driver.take_or_split(group, &replied, true);
                self.store.confirm(group, Then::call(taken));
            }
            false => self.store.send(group, Then::Node(driver)),
        }
    }

    /// Processes the reply to a request group, several requests sent together. If the whole group
    /// failed and a single command may be the reason, sends each command again in a separate
    /// request.
    fn take_or_split(self: &Arc<Self>, group: RequestGroup, replied: &Replied, confirmed: bool) {
        match replied {
            Err(error) if group.len() > 1 && is_of_one(error) => {
                for alone in group {
                    self.send_group(smallvec![alone], confirmed);
                }
            }
            replied => self.replied(&group, replied),
        }
    }

    fn replied(self: &Arc<Self>, group: &[StoreRequest], replied: &Replied) {
        self.with(|core| match replied {
            Ok(Replies { answers, unconfirmed }) => {
                debug_assert_eq!(group.len(), answers.len(), "each command has a reply");
                for (request, answer) in group.iter().zip(answers) {
                    match (answer, unconfirmed) {
                        (Ok(answer), None) => core.replied(request, answer),
                        (Err(error), None) => core.unanswered(request, error),
                        (answer, Some(error)) => {
                            core.unconfirmed(request, answer.as_ref().ok(), error)
                        }
                    }
                }
            }
            Err(error) => group.iter().for_each(|request| core.unanswered(request, error)),
        });
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Acquire)
    }

    /// Returns the error for a request after the node's shutdown or the end of its runtime.
    pub(crate) fn closed(&self) -> LockError {
        let why = if self.has_ended() { "its runtime has ended" } else { "it was shut down" };
        LockError::with_detail(LockErrorKind::Closed, why)
    }

    /// Ends all attempts, because the runtime has ended and no reply can arrive any more. Marks all
    /// holds as lost, because nobody renews them and nobody would report that they have expired.
    pub(super) fn end(self: &Arc<Self>) {
        self.has_ended.store(true, Ordering::Release);
        self.with(|core| core.close());
        let mut from = Some(0);
        while let Some(start) = from {
            (_, from) = self.with(|core| core.end_attempts(start, LockErrorKind::Closed));
        }
        let mut from = Some(0);
        while let Some(start) = from {
            from = self.with(|core| core.lose_holds(start, "the runtime has ended"));
        }
    }

    /// Returns when a request of this node last succeeded.
    pub(crate) fn last_success(&self) -> Instant {
        self.clock.instant(self.read(Core::last_success))
    }
}

impl TakeReply for Driver {
    fn take(self: Arc<Self>, group: RequestGroup, replied: Replied) {
        self.take_or_split(group, &replied, false);
    }
}

/// Returns the seed for random delays between requests, derived from the random node id.
fn seed_of(id: &NodeId) -> u64 {
    let mut hasher = DefaultHasher::new();
    id.as_str().hash(&mut hasher);
    hasher.finish().max(1)
}

/// Returns true if the effect sends a request that must be sent within the present call, as opposed
/// to by a new task: a release, a leave, or an acquire that had to wait for the response to an
/// acquire of the same lock on the fast path, without a script.
fn is_urgent(effect: &mut Effect<HoldCell>) -> bool {
    let Effect::Send(request) = effect else { return false };
    match request.command {
        Command::Release { .. } | Command::Leave { .. } => true,
        Command::Acquire { .. } => !request.background,
        _ => false,
    }
}

/// Removes the effects for which `is_one` returns true, and returns their requests in order.
fn taken(effects: &mut Effects, is_one: fn(&mut Effect<HoldCell>) -> bool) -> Vec<StoreRequest> {
    let taken = effects.extract_if(.., is_one);
    let request = |effect| match effect {
        Effect::Send(request) | Effect::Confirm(request) => Some(request),
        _ => None,
    };
    taken.filter_map(request).collect()
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node")
            .field("id", &self.id)
            .field("store", &self.store)
            .finish_non_exhaustive()
    }
}

/// Passes the store's messages to the node. The store needs this before the node exists, so
/// messages are ignored until `open` sets the node.
#[derive(Debug, Clone, Default)]
pub(crate) struct Inbox(Arc<OnceLock<Weak<Driver>>>);

impl Inbox {
    pub(super) fn open(&self, driver: &Arc<Driver>) {
        let _ = self.0.set(Arc::downgrade(driver));
    }
}

impl Listener for Inbox {
    fn hear(&self, event: Event) {
        // Before the node exists or after it is dropped, nothing is waiting for messages.
        let Some(driver) = self.0.get().and_then(Weak::upgrade) else { return };
        // First, so that the granted caller's next command has a token floor above this
        // token.
        if let Some(token) = event.last_token()
            && let Some(lock) = driver.read(|core| core.lock_of(&event).cloned())
        {
            driver.store.note_token(&lock, token);
        }
        driver.with(|core| core.heard(event));
    }
}
