//! The heartbeat of waiting members: touches every line in time, and after every interruption.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::attempt::lease_end;
use crate::engine::Engine;
use crate::error::{LockErrorKind, StoreError};
use crate::key::LockName;
use crate::member::Member;
use crate::observe;
use crate::store::{Link, MAX_BATCH, Presence, Reply, Touched};
use crate::waiters::Phase;

/// Attempts that were set aside although both connections stand are asked for again after this time,
const FIRST_RETRY: Duration = Duration::from_millis(100);
/// then twice that, and so on up to this.
const LAST_RETRY: Duration = Duration::from_secs(2);
/// A touch that failed is repeated after this time, if nothing else causes it.
const TOUCH_RETRY: Duration = Duration::from_millis(500);

impl Engine {
    /// Messages may have been missed: asks for every line, and again for what was set aside.
    pub(crate) fn check_all(self: &Arc<Self>) {
        self.waiters().touch_all_by(Instant::now());
        self.heartbeat_wake.notify_one();
    }

    /// A JVM tells a member of ours to come. Asks for that one alone: it is next, and the line may be long.
    pub(crate) fn poked(self: &Arc<Self>, member: Member) {
        let ours = member.ours().filter(|ours| ours.node == self.node.as_str());
        let Some(number) = ours.map(|ours| ours.number) else { return };
        let lock = {
            let mut waiters = self.waiters();
            let Some(waiter) = waiters.get_mut(number) else { return };
            if waiter.phase != Phase::Waiting {
                // The answer of its acquire is older than this and may say that the lock is held.
                waiter.poked = true;
                return;
            }
            waiter.lock.clone()
        };
        self.touch(lock, vec![member]);
    }

    fn touch_what_is_due(self: &Arc<Self>) {
        let now = Instant::now();
        loop {
            let due = {
                let mut waiters = self.waiters();
                let Some((lock, members, period)) = waiters.pop_due(now) else { return };
                // The heartbeat is awake and looks at the schedule again before it sleeps.
                let _ = waiters.touch_by(&lock, now + period);
                (lock, members)
            };
            let (lock, members) = due;
            for batch in members.chunks(MAX_BATCH) {
                self.touch(lock.clone(), batch.to_vec());
            }
        }
    }

    fn touch(self: &Arc<Self>, lock: LockName, members: Vec<Member>) {
        let engine = Arc::clone(self);
        self.spawn(async move {
            let sent = Instant::now();
            match engine.store.touch(&lock, members.clone()).await {
                Ok(reply) => engine.touched(&lock, &members, sent, &reply),
                Err(error) => engine.touch_failed(&lock, &error),
            }
        });
    }

    fn touched(
        self: &Arc<Self>,
        lock: &LockName,
        members: &[Member],
        sent: Instant,
        reply: &Reply<Touched>,
    ) {
        self.absorb(lock, sent, reply);
        let mut gone = Vec::new();
        let numbers = members.iter().filter_map(|member| Some(member.ours()?.number));
        let wake = {
            let mut waiters = self.waiters();
            for (number, presence) in numbers.zip(&reply.outcome.members) {
                let Some(waiter) = waiters.get_mut(number) else { continue };
                match presence {
                    Presence::Waiting => waiter.anchor = sent,
                    // Told as a grant in the same reply.
                    Presence::Holding => {}
                    Presence::Gone => gone.push(number),
                }
            }
            let due = lease_end(reply.left_ms);
            waiters.touch_sooner(lock, due)
        };
        if wake {
            self.heartbeat_wake.notify_one();
        }
        if !gone.is_empty() {
            self.place_lost(gone);
        }
        if reply.outcome.listeners == 0 && self.store.subscription().borrow().is_up() {
            observe::deaf(self);
            self.store.reopen_subscription();
        }
    }

    fn touch_failed(&self, lock: &LockName, error: &StoreError) {
        observe::touch_failed(self, lock, error);
        if self.waiters().touch_sooner(lock, Instant::now() + TOUCH_RETRY) {
            self.heartbeat_wake.notify_one();
        }
    }
}

/// Ends every attempt when the runtime drops the task: nothing could ever answer them.
struct EndWithTheRuntime(Weak<Engine>);

impl Drop for EndWithTheRuntime {
    fn drop(&mut self) {
        if let Some(engine) = self.0.upgrade() {
            engine.close();
            engine.cancel_all(LockErrorKind::Closed);
        }
    }
}

/// Runs until the engine is gone.
pub(crate) async fn run(engine: Weak<Engine>) {
    let _end = EndWithTheRuntime(Weak::clone(&engine));
    let Some(strong) = engine.upgrade() else { return };
    let wake = Arc::clone(&strong.heartbeat_wake);
    let mut commands = strong.store.commands();
    let mut subscription = strong.store.subscription();
    let mut was_up = both_up(&mut commands, &mut subscription);
    let mut retry = Retry::new();
    drop(strong);
    loop {
        let Some(strong) = engine.upgrade() else { return };
        let is_up = both_up(&mut commands, &mut subscription);
        if is_up && !was_up {
            strong.waiters().touch_all_by(Instant::now());
        }
        if retry.is_due(&strong, is_up, is_up && !was_up) {
            let parked = strong.waiters().unpark();
            strong.ask_all(parked);
        }
        was_up = is_up;
        strong.touch_what_is_due();
        let next = strong.waiters().arm();
        drop(strong);
        tokio::select! {
            () = wake.notified() => {}
            () = sleep_until(earliest(next, retry.at)) => {}
            changed = commands.changed() => if changed.is_err() { return },
            changed = subscription.changed() => if changed.is_err() { return },
        }
    }
}

/// When to ask again for what was set aside.
struct Retry {
    at: Option<Instant>,
    pause: Duration,
}

impl Retry {
    fn new() -> Self {
        Self { at: None, pause: FIRST_RETRY }
    }

    fn is_due(&mut self, engine: &Engine, is_up: bool, just_up: bool) -> bool {
        if !engine.waiters().has_parked() {
            *self = Self::new();
            return false;
        }
        let now = Instant::now();
        // Without connections, their return is what to wait for.
        if !is_up {
            self.at = None;
            return false;
        }
        let at = *self.at.get_or_insert(now + self.pause);
        if !just_up && now < at {
            return false;
        }
        self.at = None;
        self.pause = (self.pause * 2).min(LAST_RETRY);
        true
    }
}

fn both_up(commands: &mut watch::Receiver<Link>, subscription: &mut watch::Receiver<Link>) -> bool {
    let commands = commands.borrow_and_update().is_up();
    let subscription = subscription.borrow_and_update().is_up();
    commands && subscription
}

fn earliest(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    one.into_iter().chain(other).min()
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}
