//! Sends a request to the shard that serves the request's slot, and follows redirects.
//!
//! # Implementation notes
//!
//! - A command is sent again here only after a reply that proves that the command did not run: see
//!   [`Route`]. After a broken connection or a timeout the core decides, as on a single server.
//! - A request never waits here for a lost connection. It fails at once, and the core retries when
//!   notified that a shard is up. A frozen primary that is still connected only delays its own
//!   requests, because requests under way are limited for each primary: see
//!   [`Store::lanes`](crate::store::Store::lanes).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use proto::StoreError;
use proto::wire::redirect::{Place, Redirect, Route, Step};
use tokio::time::Instant;

use super::slots::Shard;
use super::{Shared, unavailable};
use crate::store::StoreFuture;

/// How to send a command: to which slot, with which connections up, and with how many redirects.
pub(super) struct Way {
    pub(super) slot: u16,
    /// True if the server may answer by a message later, such as a grant. Then the shard's
    /// subscription must be up, too.
    pub(super) hears: bool,
    pub(super) route: Route,
}

impl Shared {
    /// Sends a command to the shard that serves the slot, and follows redirects. Sends the command
    /// again only if the reply proves that it did not run. `send` is called with `true` if an
    /// ASKING command must come directly before the command. Returns the shard that ran the
    /// command, and the answer.
    pub(super) async fn routed<T: Send + 'static>(
        &self,
        Way { slot, hears, mut route }: Way,
        send: impl Fn(&Shard, bool) -> StoreFuture<T>,
    ) -> Result<(Arc<Shard>, T), StoreError> {
        let begun = Instant::now();
        loop {
            let owner = self.slots().owner(slot).cloned();
            let shard = owner.ok_or_else(|| {
                self.outdated.notify_one();
                unavailable(format!("no primary serves slot {slot}"))
            })?;
            shard.check(hears).inspect_err(|_| self.outdated.notify_one())?;
            let error = match send(&shard, false).await {
                Ok(answer) => {
                    shard.note_cut_off(false);
                    self.note_server(&shard);
                    self.slots().note_answer(slot, &shard);
                    return Ok((shard, answer));
                }
                Err(error) => error,
            };
            let Some(redirect) = Redirect::read(&error, &shard.place.host) else {
                if error.may_have_run {
                    // The primary may have been replaced.
                    self.outdated.notify_one();
                }
                return Err(error);
            };
            let given_up = StoreError {
                lacks_keys: redirect.lacks_keys(),
                ..unavailable(format!("slot {slot} at {}: {}", shard.place, error.detail))
            };
            let is_elsewhere = matches!(redirect, Redirect::Moved(_));
            if let Redirect::Down = redirect {
                shard.note_cut_off(true);
            }
            match route.after(redirect) {
                Step::Follow(place) if self.moved(slot, &place) => continue,
                Step::Asking(place) => {
                    if let Some(target) = self.shard_at(&place)
                        && target.check(hears).is_ok()
                    {
                        match send(&target, true).await {
                            Ok(answer) => return Ok((target, answer)),
                            Err(error) if Redirect::read(&error, &place.host).is_some() => {}
                            Err(error) => return Err(error),
                        }
                    }
                }
                Step::Follow(_) | Step::Pause => {
                    if is_elsewhere {
                        self.outdated.notify_one();
                    }
                }
                Step::End => {
                    self.outdated.notify_one();
                    return Err(given_up);
                }
            }
            match route.pause(begun.elapsed(), rand::random_range(0.5..1.5)) {
                Some(pause) => tokio::time::sleep(pause).await,
                None => return Err(given_up),
            }
        }
    }

    fn shard_at(&self, place: &Place) -> Option<Arc<Shard>> {
        self.slots().open().find(|shard| shard.is_at(place)).cloned()
    }

    /// Records that the slot is served by the server at this address, as a redirect has shown.
    /// Returns false if no shard is open for the address.
    fn moved(&self, slot: u16, place: &Place) -> bool {
        let Some(shard) = self.shard_at(place) else { return false };
        let mut slots = self.slots();
        if slots.give(slot, &shard) {
            self.has_moved.store(true, Ordering::Release);
        }
        true
    }
}
