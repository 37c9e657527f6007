//! A buyer: acquires and releases a name, again and again, and reports each guard.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lockcore::{LockErrorKind, LockGuard, Locks};
use tokio::time::sleep;

use super::ledger::BuyerReport;
use crate::chaos::clock::now_us;
use crate::chaos::dice::Dice;

/// The longest wait. A primary whose clock jumped back keeps the hold of a dead process for longer.
const WAIT: Duration = Duration::from_secs(5);
/// The interval between two checks of a guard.
const LOOK: Duration = Duration::from_millis(20);
/// The number of checks of a long hold.
const LOOKS: u64 = 15;

/// Acquires the name until the run is over.
pub(super) async fn buy(
    locks: Locks,
    name: usize,
    mut dice: Dice,
    report: impl Fn(BuyerReport),
    is_over: &AtomicBool,
) {
    while !is_over.load(Ordering::Relaxed) {
        match locks.lock_timeout(format!("name {name}"), WAIT).await {
            Ok(guard) => hold(guard, name, &mut dice, &report).await,
            Err(error) => {
                let kinds = [LockErrorKind::Unavailable, LockErrorKind::Timeout];
                assert!(kinds.contains(&error.kind()), "{error}");
                report(BuyerReport::Refused);
            }
        }
    }
}

async fn hold(guard: LockGuard, name: usize, dice: &mut Dice, report: &impl Fn(BuyerReport)) {
    let (id, token) = (dice.next(), guard.fencing_token().get());
    // The clock first: a guard that is valid now was valid then.
    let is_valid = || {
        let at_us = now_us();
        let is_lost = guard.is_lost();
        report(match is_lost {
            true => BuyerReport::Lost,
            false => BuyerReport::Valid { name, id, token, at_us },
        });
        !is_lost
    };
    if !is_valid() {
        return;
    }
    // Some holds last so long that others skip the primary.
    let looks = if dice.percent(1) { dice.of(5..=LOOKS) } else { 0 };
    for _ in 0..looks {
        sleep(LOOK).await;
        if !is_valid() {
            return;
        }
    }
    sleep(Duration::from_millis(dice.of(0..=2))).await;
    if is_valid() {
        match dice.percent(50) {
            true => drop(guard),
            false => drop(guard.release().await),
        }
    }
}
