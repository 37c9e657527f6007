//! Buyers: each acquires and releases a name, again and again, and reports each guard.

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

/// The pause between two tries.
const TRY: Duration = Duration::from_millis(5);

/// How a buyer acquires and holds a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Buyer {
    /// Waits for the name, and mostly holds it for a moment.
    Brief,
    /// Waits for the name, and holds it for longer than a renewal period.
    Keeper,
    /// Tries to acquire the name, without a wait, and holds it as a brief buyer.
    Trier,
}

/// Acquires the name until the run is over.
pub(super) async fn buy(
    buyer: Buyer,
    locks: Locks,
    name: usize,
    mut dice: Dice,
    report: impl Fn(BuyerReport),
    is_over: &AtomicBool,
) {
    while !is_over.load(Ordering::Relaxed) {
        let key = format!("name {name}");
        let acquired = if buyer == Buyer::Trier {
            sleep(TRY).await;
            locks.try_lock(key).await
        } else {
            locks.lock_timeout(key, WAIT).await.map(Some)
        };
        match acquired {
            Ok(Some(guard)) => hold(buyer, guard, name, &mut dice, &report).await,
            Ok(None) => {}
            Err(error) => {
                let kinds = [LockErrorKind::Unavailable, LockErrorKind::Timeout];
                assert!(kinds.contains(&error.kind()), "{error}");
                report(BuyerReport::Refused);
            }
        }
    }
}

async fn hold(
    buyer: Buyer,
    guard: LockGuard,
    name: usize,
    dice: &mut Dice,
    report: &impl Fn(BuyerReport),
) {
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
    let looks = match buyer {
        Buyer::Keeper => LOOKS,
        // Some holds last so long that others skip the primary.
        _ if dice.percent(1) => dice.of(5..=LOOKS),
        _ => 0,
    };
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
