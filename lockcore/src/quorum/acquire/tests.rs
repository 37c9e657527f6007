//! Tests of single steps of an acquisition, on in-memory stores.

use proto::{Label, Terms, WhenBusy};

use super::*;
use crate::api::locks::Locks;

/// Returns the state of an acquisition that has not begun.
fn begun(locks: &Locks, mode: Mode, options: Terms) -> QuorumAcquireState {
    let backend = &locks.backend;
    let request = Request {
        lock: "k".into(),
        options,
        mode,
        label: Label::new(""),
        demand: Demand::EXCLUSIVE,
    };
    let context = AcquireContext {
        primaries: Arc::clone(backend.primaries()),
        request,
        of: HoldCell::of(backend.node().classes.get("")),
        local: LocalOptions::LABELLED,
    };
    QuorumAcquireState::new(context, watch::Sender::new(None))
}

#[tokio::test]
async fn no_primary_is_to_keep_only_the_newest_waiter() {
    let locks = Locks::builder().in_memory_quorum(3).expect("3 stores");
    let options = Terms { when_busy: WhenBusy::KeepNewest, ..Terms::default() };
    // A request that does not wait itself still queues at primaries.
    let state = begun(&locks, Mode::Try, options);
    assert_eq!(state.context.at_a_primary().options.when_busy, WhenBusy::Wait);
}
