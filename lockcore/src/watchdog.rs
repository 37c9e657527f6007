//! The watchdog: renews every hold in time, and tells those that can no longer be certain.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::Instant;

use crate::engine::Engine;
use crate::error::StoreError;
use crate::hold::{self, Hold};
use crate::observe;
use crate::options::Renewal;
use crate::schedule::Schedule;
use crate::store::{Renewed, Reply};

/// Guards are told this long before their deadline: a timer fires up to a millisecond late.
const LEAD: Duration = Duration::from_millis(2);

/// The holds of this node.
#[derive(Debug)]
pub(crate) struct Holds {
    live: HashMap<u64, Arc<Hold>>,
    due: Schedule<u64>,
    /// Holds that end on the server by themselves, leaked or lost, and until when they may still be there.
    leaked: HashMap<u64, Instant>,
    /// Holds whose release is on its way: replies from before it may still tell of them.
    ending: HashSet<u64>,
}

impl Holds {
    pub(crate) fn new() -> Self {
        Self {
            live: HashMap::new(),
            due: Schedule::new(),
            leaked: HashMap::new(),
            ending: HashSet::new(),
        }
    }

    /// Whether a hold that the server tells of is one that this node means to have.
    pub(crate) fn contains(&self, number: u64) -> bool {
        self.live.contains_key(&number)
            || self.ending.contains(&number)
            || self.leaked.contains_key(&number)
    }

    /// The release of a hold is on its way: it is no longer renewed.
    pub(crate) fn begin_end(&mut self, number: u64) {
        self.remove(number);
        self.ending.insert(number);
    }

    fn is_ending(&self, number: u64) -> bool {
        self.ending.contains(&number)
    }

    /// The release was answered.
    pub(crate) fn finish_end(&mut self, number: u64) {
        self.ending.remove(&number);
    }

    /// The hold is to end by itself.
    /// Returns whether it was there.
    pub(crate) fn leak(&mut self, hold: &Hold) -> bool {
        let now = Instant::now();
        let was_live = self.remove(hold.number);
        self.leaked.retain(|_, until| *until > now);
        self.leaked.insert(hold.number, now + 2 * hold.options.lease);
        was_live
    }

    pub(crate) fn get(&self, number: u64) -> Option<Arc<Hold>> {
        self.live.get(&number).cloned()
    }

    pub(crate) fn len(&self) -> usize {
        self.live.len()
    }

    pub(crate) fn all(&self) -> Vec<Arc<Hold>> {
        self.live.values().cloned().collect()
    }

    /// Returns whether it was there.
    pub(crate) fn remove(&mut self, number: u64) -> bool {
        self.due.remove(&number);
        self.live.remove(&number).is_some()
    }

    /// How many releases are on their way.
    pub(crate) fn ending(&self) -> usize {
        self.ending.len()
    }

    /// Returns whether the watchdog must be woken.
    #[must_use]
    fn insert(&mut self, hold: Arc<Hold>) -> bool {
        let due = due(&hold);
        self.live.insert(hold.number, Arc::clone(&hold));
        self.due.set(hold.number, due)
    }
}

/// When something has to be done for a hold.
fn due(hold: &Hold) -> Instant {
    let last = hold.deadline() - LEAD;
    hold.lease().renew_at.map_or(last, |renew_at| renew_at.min(last))
}

impl Engine {
    /// Puts a new hold under the watchdog.
    pub(crate) fn watch(&self, hold: Arc<Hold>) {
        if self.holds().insert(hold) {
            self.watchdog_wake.notify_one();
        }
    }

    fn reschedule(&self, hold: &Hold) {
        let mut holds = self.holds();
        if holds.live.contains_key(&hold.number) && holds.due.set(hold.number, due(hold)) {
            self.watchdog_wake.notify_one();
        }
    }

    fn renew(self: &Arc<Self>, hold: Arc<Hold>) {
        let engine = Arc::clone(self);
        self.spawn(async move {
            let sent = Instant::now();
            let answer = engine.store.renew(&hold.lock, &hold.member).await;
            engine.renewed(&hold, sent, answer);
        });
    }

    fn renewed(&self, hold: &Hold, sent: Instant, answer: Result<Reply<Renewed>, StoreError>) {
        match answer {
            Ok(reply) => {
                self.succeeded();
                match reply.outcome {
                    Renewed::Held => {
                        self.extended(hold, sent, Duration::from_millis(reply.left_ms))
                    }
                    // Its own release has overtaken it, and tells how the hold ended.
                    Renewed::NotHeld if self.holds().is_ending(hold.number) => {}
                    Renewed::NotHeld => self.lost(hold, "the server no longer knows the hold"),
                }
            }
            Err(error) => {
                observe::renewal_failed(self, hold, &error);
                let now = Instant::now();
                let left = hold.deadline().saturating_duration_since(now);
                let pause = (left / 4).clamp(Duration::from_millis(20), Duration::from_secs(1));
                hold.lease().renew_at = Some(now + pause);
                self.reschedule(hold);
            }
        }
    }

    fn extended(&self, hold: &Hold, sent: Instant, left: Duration) {
        if hold.is_lost() {
            // Whoever asked has been told so.
            return self.lost(hold, "its renewal came too late");
        }
        observe::renewed(self, hold);
        {
            let mut lease = hold.lease();
            lease.deadline = lease.deadline.max(hold::deadline(sent, left));
            lease.renew_at = match hold.options.renewal {
                Renewal::Watchdog => Some(sent + spread(hold.options.lease / 3)),
                Renewal::Fixed => None,
            };
        }
        self.reschedule(hold);
    }

    /// The hold is over without having been given back.
    pub(crate) fn lost(&self, hold: &Hold, why: &'static str) {
        // What is left of its lease on the server stays as it is until the guard goes.
        let was_live = self.holds().leak(hold);
        hold.lose();
        if was_live {
            observe::lost(self, hold, why);
        }
    }

    fn attend(self: &Arc<Self>, hold: Arc<Hold>) {
        let now = Instant::now();
        if now + LEAD >= hold.deadline() {
            let why = match hold.last_instant() {
                Some(last) if now + LEAD >= last => "it reached its longest hold",
                _ if hold.options.renewal == Renewal::Fixed => "its fixed lease is over",
                _ => "its lease was not renewed in time",
            };
            return self.lost(&hold, why);
        }
        let renew = {
            let mut lease = hold.lease();
            let renew = lease.renew_at.is_some_and(|at| at <= now);
            if renew {
                // The answer sets the next one.
                lease.renew_at = None;
            }
            renew
        };
        self.reschedule(&hold);
        if renew {
            self.renew(hold);
        }
    }
}

/// Up to a tenth earlier, so that holds taken together are not all renewed at once.
fn spread(period: Duration) -> Duration {
    period - period.mul_f64(rand::random_range(0.0..0.1))
}

/// Runs until the engine is gone.
pub(crate) async fn run(engine: Weak<Engine>) {
    let Some(wake) = engine.upgrade().map(|engine| Arc::clone(&engine.watchdog_wake)) else {
        return;
    };
    loop {
        let Some(strong) = engine.upgrade() else { return };
        let now = Instant::now();
        loop {
            let mut holds = strong.holds();
            let Some(number) = holds.due.pop(now) else { break };
            let Some(hold) = holds.get(number) else { continue };
            drop(holds);
            strong.attend(hold);
        }
        let next = strong.holds().due.arm();
        drop(strong);
        sleep_until_or_wake(next, &wake).await;
    }
}

/// Sleeps until `next`, or until woken if that comes first or nothing is due.
async fn sleep_until_or_wake(next: Option<Instant>, wake: &tokio::sync::Notify) {
    match next {
        Some(next) => {
            let _ = tokio::time::timeout_at(next, wake.notified()).await;
        }
        None => wake.notified().await,
    }
}
