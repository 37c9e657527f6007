//! A node's gauges. They are set at most once a second while the node waits or holds, and a last
//! time when nothing is left.
//!
//! # Implementation notes
//!
//! - The background task sets the gauges when it runs, and so learns when to run again; once all
//!   gauges are zero, not at all. So an idle node has no timer, and no gauge keeps an old value.
//! - The values are computed from the core each time. Nothing is counted up and down in addition,
//!   so nothing can be missed at an await point.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use metrics::{Label, gauge};
use proto::node::{Core, Moment};

use super::super::Settings;
use super::super::driver::Driver;
use super::WATCHERS;
use crate::foreign;
use crate::operate::status::{Connection, ServerStatus};

/// Shortest time between two gauge updates.
const EVERY: Duration = Duration::from_secs(1);

/// What was set at the last update of a node's gauges.
#[derive(Debug, Default)]
pub(crate) struct Gauges {
    last: Option<Moment>,
    /// Classes with a gauge that was not zero at the last update.
    classes: HashSet<Arc<str>>,
    is_releasing: bool,
}

impl Gauges {
    /// Sets the gauges, unless they were set within the last second. Returns when to set them
    /// again, or `None` once all are zero.
    pub(crate) fn sample(&mut self, driver: &Driver) -> Option<Moment> {
        let now = driver.clock.now();
        let next = self.last.map(|last| last + EVERY).filter(|next| *next > now);
        if next.is_some() {
            return next;
        }
        self.last = Some(now);
        foreign::call(WATCHERS, || self.set(driver));
        let is_zero = self.classes.is_empty() && !self.is_releasing;
        (!is_zero).then_some(now + EVERY)
    }

    /// Sets an ended node's gauges to zero, and the connections to NaN: an alert compares them with
    /// zero, and an ended node needs none.
    pub(crate) fn end(&mut self, driver: &Driver) {
        foreign::call(WATCHERS, || {
            for class in self.classes.drain() {
                set_class(driver, &class, [0, 0], [0.0, 0.0]);
            }
            set_node(driver, 0, [f64::NAN; 2], 0);
        });
    }

    fn set(&mut self, driver: &Driver) {
        let before = std::mem::take(&mut self.classes);
        for status in driver.status_by_class() {
            let seconds = |age: Option<Duration>| age.unwrap_or_default().as_secs_f64();
            let oldest = [seconds(status.oldest_wait), seconds(status.oldest_hold)];
            set_class(driver, &status.class, [status.waiting, status.holding], oldest);
            self.classes.insert(status.class);
        }
        for class in before.difference(&self.classes) {
            set_class(driver, class, [0, 0], [0.0, 0.0]);
        }
        let releasing = driver.read(Core::counts).given_back;
        let round_trip = driver.read(Core::round_trip).as_secs_f64();
        gauge!("lockcore_round_trip_seconds", labels(&driver.settings, None)).set(round_trip);
        let links = [driver.store.commands(), driver.store.subscription()];
        // The end of a shutdown closes the connections, although handles may live on. No alert is
        // needed then.
        let is_closed = driver.read(Core::is_closed);
        let is_up = links.map(|link| match Connection::of(&link) {
            Connection::Up => 1.0,
            Connection::Down { .. } if is_closed => f64::NAN,
            Connection::Down { .. } => 0.0,
        });
        // A Redis Cluster primary without slots has no locks.
        let is_down = |server: &ServerStatus| !server.is_connected() && server.slots != Some(0);
        let servers = if is_closed { Vec::new() } else { driver.store.server_status() };
        let servers_down = servers.into_iter().filter(is_down).count();
        set_node(driver, releasing, is_up, servers_down);
        self.is_releasing = releasing > 0;
    }
}

/// Sets the gauges of a quorum primary: `counts` is 1 if it counts, 0 if not, and NaN once the
/// `Locks` has ended. A primary without a node (`is_away`) has no other gauges, and is shown as
/// disconnected. `settings` are the settings of its node.
pub(crate) fn set_primary(settings: &Settings, counts: f64, is_away: bool) {
    foreign::call(WATCHERS, || {
        set_connection(settings, "quorum", counts);
        if is_away {
            set_connected(settings, [counts; 2]);
        }
    });
}

fn set_node(driver: &Driver, releasing: usize, is_up: [f64; 2], servers_down: usize) {
    gauge!("lockcore_releasing", labels(&driver.settings, None)).set(releasing as f64);
    gauge!("lockcore_servers_down", labels(&driver.settings, None)).set(servers_down as f64);
    set_connected(&driver.settings, is_up);
}

fn set_connected(settings: &Settings, is_up: [f64; 2]) {
    for (connection, is_up) in ["commands", "subscription"].into_iter().zip(is_up) {
        set_connection(settings, connection, is_up);
    }
}

fn set_connection(settings: &Settings, connection: &'static str, is_up: f64) {
    let labels = labels(settings, Some(Label::new("connection", connection)));
    gauge!("lockcore_connected", labels).set(is_up);
}

fn set_class(driver: &Driver, class: &Arc<str>, counts: [usize; 2], oldest: [f64; 2]) {
    let labels = || labels(&driver.settings, Some(Label::new("class", Arc::clone(class))));
    let [waiting, holding] = counts;
    let [oldest_wait, oldest_hold] = oldest;
    gauge!("lockcore_waiting", labels()).set(waiting as f64);
    gauge!("lockcore_holding", labels()).set(holding as f64);
    gauge!("lockcore_oldest_wait_seconds", labels()).set(oldest_wait);
    gauge!("lockcore_oldest_hold_seconds", labels()).set(oldest_hold);
}

/// Returns the labels of a gauge: `own` if given, and the namespace and the quorum primary if the
/// node has them. These distinguish several `Locks` in a process, and the nodes of a quorum. The
/// label is not `namespace`: Prometheus sets that label on Kubernetes, and renames the gauge's.
fn labels(settings: &Settings, own: Option<Label>) -> Vec<Label> {
    let namespace = settings.namespace.clone().map(|name| Label::new("lock_namespace", name));
    let primary = settings.primary.map(|place| Label::new("primary", place.to_string()));
    own.into_iter().chain(namespace).chain(primary).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::locks::Locks;

    // While the server is away, an attempt has no timer.
    #[tokio::test(start_paused = true)]
    async fn gauges_are_to_be_set_again_until_they_are_zero() {
        let locks = Locks::in_memory();
        let mut gauges = Gauges::default();
        let mut sample = || {
            let next = gauges.sample(locks.backend.node());
            next.map(|next| next.since(locks.backend.node().clock.now()))
        };
        let guard = locks.lock("key").await.expect("free");
        assert_eq!(sample(), Some(EVERY));
        drop(guard);
        tokio::time::sleep(EVERY / 4).await;
        assert_eq!(sample(), Some(EVERY - EVERY / 4), "they were set lately");
        tokio::time::sleep(EVERY).await;
        assert_eq!(sample(), None);
    }
}
