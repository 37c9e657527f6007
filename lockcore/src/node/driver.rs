//! The driver of the table: the only mutex, the only calls of the store, and all wake-ups.
//!
//! # Implementation notes
//!
//! - An event takes the mutex once; its effects run without it. So a store that answers and calls
//!   back within a call, a waker that is not ours, or a log can do no harm. One that panics keeps
//!   none of the other effects from being run.
//! - A release or a leave is sent by the event that ends a hold or a wait, on the thread that
//!   causes it, whichever that is: it waits neither for the background task nor for a turn of the
//!   runtime, which may be busy. Only its repetitions are the background's.
//! - A request is sent by the call, and runs to its end: its reply may carry a grant for another
//!   attempt. The store hands its answer to the table, in a task of its own; no future of a caller
//!   takes part in it. The end of the runtime leaves it without an answer.
//! - Effects of two events may overtake each other. So the table never has two requests of one
//!   member on their way if their order matters: a leave waits for the answer of its acquire. A
//!   release may overtake a renewal; the answer of the renewal then means nothing.
//! - The requests of a tick are sent before the next tick sends its own: attempts that had to wait
//!   for their turn keep their order.
//! - With replicas required, every renewal goes out on a connection that then waits for them, and a
//!   guard relies on it only once enough have it. A release may overtake it there, too.

use std::fmt;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use proto::node::{Ask, Batch, Core, Effect, Lanes, Moment, Note, Rules, batches, is_of_one};
use proto::{Answer, Command, Event, Link, LockErrorKind, LockName, NodeId, StoreError};
use smallvec::smallvec;
use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::clock::Clock;
use super::foreign;
use super::hold_cell::HoldCell;
use super::observe::{Observer, begin_class};
use super::refusal_pace::RefusalPace;
use super::settings::Settings;
use crate::node::class::Classes;
use crate::operate::status::{Connection, Status};
use crate::store::{Listener, Replied, Replies, Store, TakeReply, Then};
use crate::types::error::LockError;

/// The most holders whose labels a wait is told.
const MOST_NAMED: NonZeroU32 = NonZeroU32::new(8).expect("it is not zero");

pub(crate) type Effects = Vec<Effect<HoldCell>>;

/// One node. Lives as long as a handle of it, or something that is to be given back.
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
    /// Something is due sooner than the background task knows.
    pub(super) wake: Notify,
    /// A closed node has changed.
    pub(crate) progress: Notify,
    has_ended: AtomicBool,
}

/// The state behind the mutex.
struct DriverState {
    core: Core<HoldCell>,
    commands: watch::Receiver<Link>,
    subscription: watch::Receiver<Link>,
    /// The number of servers that commands had gone to.
    servers: u64,
    lanes: Option<Lanes>,
    /// The moment at which the background task comes by itself.
    armed: Option<Moment>,
    /// No handle of the node is left.
    is_abandoned: bool,
}

impl DriverState {
    /// Takes in the state of the connections: nothing is decided on an old one.
    fn follow(&mut self, store: &dyn Store) {
        let has_changed = |link: &watch::Receiver<Link>| link.has_changed().unwrap_or(false);
        if has_changed(&self.commands) || has_changed(&self.subscription) {
            let commands = self.commands.borrow_and_update().clone();
            let subscription = self.subscription.borrow_and_update().clone();
            self.follow_store(store);
            // Read after the state: a server is counted before its connection is up.
            if std::mem::replace(&mut self.servers, store.servers()) != self.servers {
                self.core.moved();
            }
            self.core.linked(commands, subscription);
        }
    }

    /// Takes in what the store can do, and the servers that have the slots of a Redis Cluster.
    fn follow_store(&mut self, store: &dyn Store) {
        self.core.set_fast_way(store.has_fast_way());
        if let Some(lanes) = store.lanes().filter(|lanes| self.lanes.as_ref() != Some(lanes)) {
            self.core.set_lanes(Arc::clone(&lanes));
            self.lanes = Some(lanes);
        }
    }

    /// Whether nothing is left to be done, nor anything that could cause more.
    fn is_over(&self) -> bool {
        let counts = self.core.counts();
        self.is_abandoned && counts.attempts + counts.holds + counts.given_back == 0
    }

    /// Whether the background task has to come sooner.
    fn is_late(&mut self) -> bool {
        // It ends the node, too.
        let next = if self.is_over() { Some(Moment::default()) } else { self.core.next() };
        let Some(next) = next else { return false };
        let is_late = self.armed.is_none_or(|armed| next < armed);
        if is_late {
            // Once is enough for all that comes before it gets to run.
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
            replicas: settings.replicas,
            layout: settings.layout,
            runs: settings.run_limit as usize,
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
        table.follow_store(&*store);
        let classes = Classes::new(&settings.class);
        begin_class(&classes.unnamed());
        Self {
            store,
            observer: Observer::new(id.clone(), &settings),
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

    /// Runs one event, after a look at whether the machine was suspended: a lease or an offer may
    /// be over.
    pub(crate) fn with<T>(self: &Arc<Self>, event: impl FnOnce(&mut Core<HoldCell>) -> T) -> T {
        let mut table = self.table();
        table.core.event(self.clock.look());
        table.follow(&*self.store);
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

    /// Sends a request. Its answer is taken in whatever becomes of the caller: it may carry a grant
    /// for another attempt.
    pub(crate) fn send(self: &Arc<Self>, ask: Ask) {
        self.send_batch(smallvec![ask], false);
    }

    /// As [`send`](Self::send), and then calls `then` with the answer, unless the runtime ends
    /// before.
    pub(crate) fn send_then(
        self: &Arc<Self>,
        ask: Ask,
        then: impl FnOnce(Result<Answer, StoreError>) + Send + 'static,
    ) {
        if self.has_ended() {
            return;
        }
        let driver = Arc::clone(self);
        // A store in memory runs the command before this returns, and may call back.
        let taken = move |batch: Batch, replied: Replied| {
            driver.replied(&batch, &replied);
            then(replied.and_then(Replies::only));
        };
        self.store.send(smallvec![ask], Then::call(taken));
    }

    /// Handles the entries that are due. Returns whether there is more, and when to come again:
    /// after `longest` at the latest, since timers sleep through a suspension. A task that was
    /// woken comes once more, though nothing may be due: the next lock, which may be taken at once,
    /// need not wake it again.
    pub(super) fn tick(
        self: &Arc<Self>,
        longest: Duration,
        was_woken: bool,
    ) -> (bool, Option<Moment>) {
        let mut table = self.table();
        let now = self.clock.look();
        table.core.event(now);
        table.follow(&*self.store);
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
        let asks = taken(&mut effects, |effect| matches!(effect, Effect::Send(_)));
        // Here and not by a task, of which the next tick's could be first: attempts that were not
        // sent at once keep their order.
        self.send_all(asks, false);
        self.run(effects);
        (is_more, armed)
    }

    /// Notes that the last handle of the node is gone.
    pub(super) fn abandon(&self) {
        let mut table = self.table();
        table.is_abandoned = true;
        let is_late = table.is_late();
        drop(table);
        if is_late {
            self.wake.notify_one();
        }
    }

    /// Whether the background task has to end.
    pub(super) fn is_over(&self) -> bool {
        self.table().is_over()
    }

    /// The state of this node.
    pub(crate) fn status(&self) -> Status {
        let counts = self.look(Core::counts);
        Status {
            commands: Connection::of(&self.store.commands()),
            subscription: Connection::of(&self.store.subscription()),
            waiting: counts.attempts,
            holding: counts.holds,
            releasing: counts.given_back,
            places_lost: counts.places_lost,
            servers: self.store.server_status(),
        }
    }

    /// Looks without changing anything.
    pub(crate) fn look<T>(&self, at: impl FnOnce(&Core<HoldCell>) -> T) -> T {
        at(&self.table().core)
    }

    fn progressed(&self) {
        foreign::call("a waker", || self.progress.notify_waiters());
    }

    /// Requests first: a log may stop this thread.
    fn run(self: &Arc<Self>, mut effects: Effects) {
        if effects.is_empty() {
            return;
        }
        if effects.iter().any(|effect| matches!(effect, Effect::Send(_) | Effect::Confirm(_))) {
            let urgent = taken(&mut effects, is_urgent);
            if !urgent.is_empty() {
                self.send_all(urgent, false);
            }
            let asks = taken(&mut effects, |effect| matches!(effect, Effect::Send(_)));
            let renewals = taken(&mut effects, |effect| matches!(effect, Effect::Confirm(_)));
            // By a task: a store in memory answers at once, which leads to the next effects.
            for (asks, confirmed) in [(asks, false), (renewals, true)] {
                if !asks.is_empty() {
                    let driver = Arc::clone(self);
                    self.runtime.spawn(async move { driver.send_all(asks, confirmed) });
                }
            }
        }
        for effect in effects {
            match effect {
                Effect::Send(_) | Effect::Confirm(_) => {}
                Effect::Wake(mirror) => foreign::call("a waker", move || mirror.caller.wake()),
                Effect::TellLost(mirror) => foreign::call("a waker", move || mirror.tell_lost()),
                Effect::Reopen => self.store.reopen_subscription(),
                Effect::Observe(note) => {
                    if let Note::Queued { lock, of, .. } = &note {
                        foreign::call("a waker", || of.tell_position());
                        self.record_holders(lock, of);
                    }
                    self.observer.note(&note);
                }
            }
        }
    }

    /// Asks for the holders of a lock that an attempt waits for, if its span is to have them.
    fn record_holders(self: &Arc<Self>, lock: &LockName, of: &HoldCell) {
        let Some(wait) = of.take_records_holders() else { return };
        // No waiters: they may be a thousand.
        let command = Command::Inspect { from: u32::MAX, most: MOST_NAMED };
        let (lock, sent) = (lock.clone(), self.clock.now());
        let driver = Arc::clone(self);
        let ask = self.look(|core| core.aside(lock, command, sent));
        self.send_then(ask, move |answer| driver.observer.held_by(&wait, answer));
    }

    /// Sends requests in their order, those together that can go together. Those that are
    /// `confirmed` are renewals that replicas are to have.
    fn send_all(self: &Arc<Self>, asks: Vec<Ask>, confirmed: bool) {
        let together = |command: &Command| self.settings.layout.goes_together(command);
        let topology = self.store.topology();
        for batch in batches(asks, together, |lock| topology.slot(lock)) {
            self.send_batch(batch, confirmed);
        }
    }

    fn send_batch(self: &Arc<Self>, batch: Batch, confirmed: bool) {
        if self.has_ended() {
            return;
        }
        let driver = Arc::clone(self);
        // A store in memory runs the commands before this returns, and may call back.
        match confirmed {
            true => {
                let taken = move |batch, replied| driver.take_or_split(batch, &replied, true);
                self.store.confirm(batch, Then::call(taken));
            }
            false => self.store.send(batch, Then::Node(driver)),
        }
    }

    /// Takes in a reply, or sends each command alone: none is to suffer for another.
    fn take_or_split(self: &Arc<Self>, batch: Batch, replied: &Replied, confirmed: bool) {
        match replied {
            Err(error) if batch.len() > 1 && is_of_one(error) => {
                for alone in batch {
                    self.send_batch(smallvec![alone], confirmed);
                }
            }
            replied => self.replied(&batch, replied),
        }
    }

    fn replied(self: &Arc<Self>, batch: &[Ask], replied: &Replied) {
        self.with(|core| match replied {
            Ok(Replies { answers, replicas }) => {
                debug_assert_eq!(batch.len(), answers.len(), "each command has an answer");
                for (ask, answer) in batch.iter().zip(answers) {
                    match answer {
                        Ok(answer) => core.confirmed(ask, (answer, *replicas)),
                        Err(error) => core.unanswered(ask, error),
                    }
                }
            }
            Err(error) => batch.iter().for_each(|ask| core.unanswered(ask, error)),
        });
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Acquire)
    }

    /// The reason why nothing begins any more.
    pub(crate) fn closed(&self) -> LockError {
        let why = if self.has_ended() { "its runtime has ended" } else { "it was shut down" };
        LockError::with_detail(LockErrorKind::Closed, why)
    }

    /// Ends every attempt, since the runtime has ended: nothing could ever answer those that wait.
    pub(super) fn end(self: &Arc<Self>) {
        self.has_ended.store(true, Ordering::Release);
        self.with(|core| core.close());
        let mut from = Some(0);
        while let Some(start) = from {
            (_, from) = self.with(|core| core.end_attempts(start, LockErrorKind::Closed));
        }
    }

    /// The instant at which a request last succeeded.
    pub(crate) fn last_success(&self) -> Instant {
        self.clock.instant(self.look(Core::last_success))
    }
}

impl TakeReply for Driver {
    fn take(self: Arc<Self>, batch: Batch, replied: Replied) {
        self.take_or_split(batch, &replied, false);
    }
}

/// A seed for random times that is as random as the node's identity.
fn seed_of(id: &NodeId) -> u64 {
    let mut hasher = DefaultHasher::new();
    id.as_str().hash(&mut hasher);
    hasher.finish().max(1)
}

/// Whether it is a request that ends a hold or a wait on the server, or an acquire that waited for
/// the answer to another one.
fn is_urgent(effect: &mut Effect<HoldCell>) -> bool {
    let Effect::Send(ask) = effect else { return false };
    match ask.command {
        Command::Release { .. } | Command::Leave { .. } => true,
        Command::Acquire { .. } => !ask.background,
        _ => false,
    }
}

/// Takes out the requests of one kind, in their order.
fn taken(effects: &mut Effects, is_one: fn(&mut Effect<HoldCell>) -> bool) -> Vec<Ask> {
    let taken = effects.extract_if(.., is_one);
    let ask = |effect| match effect {
        Effect::Send(ask) | Effect::Confirm(ask) => Some(ask),
        _ => None,
    };
    taken.filter_map(ask).collect()
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node")
            .field("id", &self.id)
            .field("store", &self.store)
            .finish_non_exhaustive()
    }
}

/// The recipient of a store's messages: made before the store, opened once the node is there.
#[derive(Debug, Clone, Default)]
pub(crate) struct Inbox(Arc<OnceLock<Weak<Driver>>>);

impl Inbox {
    pub(super) fn open(&self, driver: &Arc<Driver>) {
        let _ = self.0.set(Arc::downgrade(driver));
    }
}

impl Listener for Inbox {
    fn hear(&self, event: Event) {
        // Before the node is there nothing waits, and after it nothing can.
        let Some(driver) = self.0.get().and_then(Weak::upgrade) else { return };
        // First: the floor of the next command of a caller that is granted it is above it.
        if let Some(token) = event.last_token()
            && let Some(lock) = driver.look(|core| core.lock_of(&event).cloned())
        {
            driver.store.note_token(&lock, token);
        }
        driver.with(|core| core.heard(event));
    }
}
