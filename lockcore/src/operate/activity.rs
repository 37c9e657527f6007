//! The waits and holds of a `Locks` and all clones, individually and by class.

use std::collections::{BTreeMap, VecDeque};
use std::iter::FusedIterator;
use std::sync::Arc;
use std::time::Duration;

use proto::node::{self, Stage};
use proto::{Demand, Label};

use crate::api::locks::Locks;
use crate::node::{Driver, HoldCell, Node};

/// A lock that a [`Locks`] waits for or holds; made by [`Locks::activity`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Activity {
    /// The lock's name in the store, as in [`LockGuard::name`](crate::LockGuard::name). `None` with
    /// [`redact_names`](crate::LocksBuilder::redact_names).
    pub lock: Option<String>,
    /// The [label](crate::LockRequest::label), for people, exactly as set: escape control
    /// characters before printing.
    pub label: String,
    /// What is held or waited for: the lock, a read or permits. A downgraded lock is a read.
    pub demand: Demand,
    /// The [class](crate::LockRequest::class) of the request, the name under which metrics group
    /// requests.
    pub class: Arc<str>,
    /// Whether the lock is waited for, held, or lost.
    pub state: ActivityState,
    /// How long the wait or the hold has lasted. Unlike
    /// [`Participant::age`](crate::operate::Participant::age), a hold's age excludes the wait.
    pub age: Duration,
}

/// The state of a wait or a hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ActivityState {
    /// The request waits for the lock.
    #[non_exhaustive]
    Waiting {
        /// The number of waiters ahead, as in [`Acquire::position`](crate::Acquire::position).
        /// `None` until the request is queued.
        position: Option<u64>,
    },
    /// The lock is held, or is granted and the caller has not yet received the guard.
    Holding,
    /// The hold is lost, and the guard is not yet dropped. Not shown after the end of `max_hold`,
    /// when the lock is released.
    Lost,
}

impl ActivityState {
    fn new(stage: Stage, cell: &HoldCell) -> Self {
        match stage {
            Stage::Waiting => Self::Waiting { position: cell.position() },
            Stage::Holding => Self::Holding,
            Stage::Lost => Self::Lost,
        }
    }
}

/// How many requests of a class wait and hold, and for how long. Returned by
/// [`Locks::status_by_class`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClassStatus {
    /// The [class](crate::LockRequest::class) of these requests, the name under which metrics group
    /// requests.
    pub class: Arc<str>,
    /// The number of acquisitions that wait.
    pub waiting: usize,
    /// The number of holds whose guard is not yet dropped, including lost holds.
    pub holding: usize,
    /// The time since the oldest present wait began; `None` without a wait.
    pub oldest_wait: Option<Duration>,
    /// The time since the oldest present hold began; `None` without a hold.
    pub oldest_hold: Option<Duration>,
}

/// An iterator over the waits and holds of a [`Locks`]; made by [`Locks::activity`].
#[derive(Debug)]
pub struct Activities {
    node: Arc<Node>,
    /// The items already read from the node, at most 256, which the iterator has not yet returned;
    /// in request order.
    part: VecDeque<Activity>,
    /// The member id from which to read the next items; `None` at the end.
    from: Option<u64>,
}

impl Iterator for Activities {
    type Item = Activity;

    fn next(&mut self) -> Option<Activity> {
        while self.part.is_empty() {
            let node = &self.node;
            let now = node.clock.refreshed_now();
            let is_redacted = node.settings.redact_names;
            let part = &mut self.part;
            let show = |seen: node::Activity<'_, HoldCell>| {
                let demand =
                    if seen.mirror.is_reduced() { Demand::READ } else { seen.member.demand() };
                part.push_back(Activity {
                    lock: (!is_redacted).then(|| seen.lock.as_str().to_owned()),
                    label: Label::unescape(seen.member.label()),
                    demand,
                    class: seen.mirror.class_label(),
                    state: ActivityState::new(seen.stage, seen.mirror),
                    age: now.since(seen.since),
                });
            };
            let from = self.from?;
            self.from = node.read(|core| core.each_from(from, show));
        }
        self.part.pop_front()
    }
}

impl FusedIterator for Activities {}

impl Locks {
    /// Returns the waits and holds of this `Locks` and all clones, not of other processes, in
    /// request order. On a [quorum](crate::guide::quorum), they are the waits and holds at the
    /// first reachable primary in the list. Sends no request.
    ///
    /// The iterator reads up to 256 items at a time, so that acquires and releases continue in
    /// between: each item existed when it was read, and items that begin or end meanwhile may be
    /// left out. Each item costs about 0.3 µs. If there may be tens of thousands, take only the
    /// first, or yield in between.
    ///
    /// ```
    /// # async fn example() -> Result<(), lockcore::LockError> {
    /// # let locks = lockcore::Locks::in_memory();
    /// let guard = locks.key("order:42").class("orders").lock().await?;
    /// for one in locks.activity().take(100) {
    ///     println!("{:?} {:?} for {:?}, class {}", one.lock, one.state, one.age, one.class);
    /// }
    /// # drop(guard);
    /// # Ok(())
    /// # }
    /// # tokio::runtime::Runtime::new().unwrap().block_on(example()).unwrap();
    /// ```
    pub fn activity(&self) -> Activities {
        Activities {
            node: Arc::clone(self.backend.node_to_ask()),
            part: VecDeque::new(),
            from: Some(0),
        }
    }

    /// Returns the waits and holds of this `Locks` and all clones by
    /// [class](crate::LockRequest::class), for classes that have any now, sorted by class. On a
    /// [quorum](crate::guide::quorum), they are the waits and holds at the first reachable primary
    /// in the list. Sends no request.
    ///
    /// Reads all waits and holds, at about 20 ns each, in parts like [`activity`](Self::activity).
    /// The totals in [`status`](Self::status) cost nothing.
    pub fn status_by_class(&self) -> Vec<ClassStatus> {
        self.backend.node_to_ask().status_by_class()
    }
}

impl Driver {
    pub(crate) fn status_by_class(&self) -> Vec<ClassStatus> {
        let now = self.clock.refreshed_now();
        let mut classes: BTreeMap<Arc<str>, ClassStatus> = BTreeMap::new();
        let mut from = Some(0);
        while let Some(start) = from {
            from = self.read(|core| {
                core.each_from(start, |seen| {
                    let class = seen.mirror.class_label();
                    let status = classes.entry(class).or_insert_with_key(|class| ClassStatus {
                        class: Arc::clone(class),
                        waiting: 0,
                        holding: 0,
                        oldest_wait: None,
                        oldest_hold: None,
                    });
                    let (count, oldest) = match seen.stage {
                        Stage::Waiting => (&mut status.waiting, &mut status.oldest_wait),
                        Stage::Holding | Stage::Lost => {
                            (&mut status.holding, &mut status.oldest_hold)
                        }
                    };
                    *count += 1;
                    *oldest = Some(now.since(seen.since)).max(*oldest);
                })
            });
        }
        classes.into_values().collect()
    }
}
