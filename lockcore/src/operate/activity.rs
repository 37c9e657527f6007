//! The waits and holds of this node, individually and by class.

use std::collections::{BTreeMap, VecDeque};
use std::iter::FusedIterator;
use std::sync::Arc;
use std::time::Duration;

use proto::node::{self, Stage};
use proto::{Demand, Label};

use crate::api::locks::Locks;
use crate::node::{Driver, HoldCell, Node};

/// A wait or a hold of this node; made by [`Locks::activity`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Activity {
    /// The lock's name in the store, as in [`LockGuard::name`](crate::LockGuard::name). `None` with
    /// [`redact_names`](crate::LocksBuilder::redact_names).
    pub lock: Option<String>,
    /// The label, for people, exactly as set: escape control characters before printing.
    pub label: String,
    /// The demand held or waited for. A downgraded lock is a read.
    pub demand: Demand,
    /// The [class](crate::LockRequest::class).
    pub class: Arc<str>,
    /// Whether this is a wait or a hold.
    pub state: ActivityState,
    /// How long the wait or the hold has lasted. Unlike
    /// [`Participant::age`](crate::operate::Participant::age), a hold's age excludes the wait.
    pub age: Duration,
}

/// The state of a wait or a hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ActivityState {
    /// A wait.
    Waiting {
        /// The number of waiters ahead, as in [`Acquire::position`](crate::Acquire::position).
        position: Option<u64>,
    },
    /// A hold, or a grant not yet received by the caller.
    Holding,
    /// A lost hold whose guard is not yet dropped.
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

/// The waits and holds of a request class on this node; made by [`Locks::status_by_class`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClassStatus {
    /// The [class](crate::LockRequest::class).
    pub class: Arc<str>,
    /// Acquisitions that wait.
    pub waiting: usize,
    /// Holds with a guard, including lost holds.
    pub holding: usize,
    /// The age of the oldest wait, if any.
    pub oldest_wait: Option<Duration>,
    /// The age of the oldest hold, if any.
    pub oldest_hold: Option<Duration>,
}

/// The iterator of [`Locks::activity`].
#[derive(Debug)]
pub struct Activities {
    node: Arc<Node>,
    part: VecDeque<Activity>,
    from: Option<u64>,
}

impl Iterator for Activities {
    type Item = Activity;

    fn next(&mut self) -> Option<Activity> {
        while self.part.is_empty() {
            let node = &self.node;
            let now = node.clock.look();
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
            self.from = node.look(|core| core.each_from(from, show));
        }
        self.part.pop_front()
    }
}

impl FusedIterator for Activities {}

impl Locks {
    /// Returns the waits and holds of this node, not of other processes, in request order. On a
    /// [quorum](crate::guide::quorum), at the lowest reachable primary. Sends no request.
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

    /// Returns the waits and holds of this node by [class](crate::LockRequest::class), for classes
    /// that have any now, sorted by name. On a [quorum](crate::guide::quorum), at the lowest
    /// reachable primary. Sends no request.
    ///
    /// Reads all waits and holds, at about 20 ns each, in parts like [`activity`](Self::activity).
    /// The totals in [`status`](Self::status) cost nothing.
    pub fn status_by_class(&self) -> Vec<ClassStatus> {
        self.backend.node_to_ask().status_by_class()
    }
}

impl Driver {
    pub(crate) fn status_by_class(&self) -> Vec<ClassStatus> {
        let now = self.clock.look();
        let mut classes: BTreeMap<Arc<str>, ClassStatus> = BTreeMap::new();
        let mut from = Some(0);
        while let Some(start) = from {
            from = self.look(|core| {
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
