//! The waits and holds of this node, one by one and by class.

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
    /// The name of the lock in the store, as [`LockGuard::key`](crate::LockGuard::key) has it.
    /// `None` where [`redact_names`](crate::LocksBuilder::redact_names) is set.
    pub lock: Option<String>,
    /// The label, for people, exactly as it was set: escape control characters before you print it.
    pub label: String,
    /// The demand that it holds or waits for. A lock that was made a read is a read.
    pub demand: Demand,
    /// The [class](crate::LockRequest::class).
    pub class: Arc<str>,
    /// Whether it waits or holds.
    pub state: ActivityState,
    /// The time for which it has waited, or has held. The age of a hold does not include its wait,
    /// unlike [`Participant::age`](crate::operate::Participant::age).
    pub age: Duration,
}

/// The state of a wait or a hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ActivityState {
    /// A wait.
    Waiting {
        /// The number of waiters ahead, as [`Acquire::position`](crate::Acquire::position) has it.
        position: Option<u64>,
    },
    /// A hold, or a grant that its caller has still to receive.
    Holding,
    /// A lost hold whose guard is not dropped yet.
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

/// The waits and holds of one class of requests on this node; made by
/// [`Locks::status_by_class`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClassStatus {
    /// The [class](crate::LockRequest::class).
    pub class: Arc<str>,
    /// Acquisitions that wait.
    pub waiting: usize,
    /// Holds that have a guard; also lost ones.
    pub holding: usize,
    /// The age of the oldest wait, if there is one.
    pub oldest_wait: Option<Duration>,
    /// The age of the oldest hold, if there is one.
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
    /// The waits and holds of this node, in the order in which they were asked for; other processes
    /// have their own. On a [quorum](crate::guide::quorum), those at the lowest primary that is
    /// reached. Does not ask the server.
    ///
    /// Reads them in parts of at most 256, so that acquires and releases go on meanwhile: each was
    /// there when its part was read, and one that begins or ends meanwhile may be left out. Each
    /// item costs some 0.3 µs. Where there may be ten thousands, take the first ones, or yield in
    /// between.
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
        Activities { node: Arc::clone(self.node_to_ask()), part: VecDeque::new(), from: Some(0) }
    }

    /// The waits and holds of this node by their [class](crate::LockRequest::class): those classes
    /// that have any now, in the order of their names. On a [quorum](crate::guide::quorum), those
    /// at the lowest primary that is reached. Does not ask the server.
    ///
    /// Looks at each wait and hold, which costs some 20 ns each, in parts as
    /// [`activity`](Self::activity) does. The totals of [`status`](Self::status) cost nothing.
    pub fn status_by_class(&self) -> Vec<ClassStatus> {
        self.node_to_ask().status_by_class()
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
