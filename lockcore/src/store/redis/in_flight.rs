//! One request on its way: from the commands of a node to bytes, and from the answer of the server
//! to whoever takes the reply.

use std::sync::Arc;

use client::{Answered, Compare, Packed, Recipient, Sender, answer_to, is_unknown};
use proto::node::{Batch, commands};
use proto::wire::{Floors, is_nonsense};
use proto::{Command, LockErrorKind, StoreError};
use smallvec::smallvec;

use super::call::Scripted;
use super::failure;
use super::native::{self, Place, Transaction};
use super::run::{Judged, finished_script, judged};
use super::server::Server;
use crate::store::{Replied, Replies, Then};

/// A batch on its way, which takes its answer itself: one box for all that is left to do.
pub(super) struct InFlight {
    server: Arc<Server>,
    batch: Batch,
    /// The connection.
    sender: Sender,
    /// The floors of the commands. Known only when they are written: they depend on the server.
    floors: Floors,
    path: Path,
    /// Whether the member may hold the lock, also if the command is refused.
    may_hold: bool,
    then: Then,
}

/// The form in which the commands were sent last.
enum Path {
    /// The acquire of a lock that may be free, without a script.
    Acquire(Place, Transaction),
    /// The release of a lock that may have no waiters, without a script.
    Release(Place),
    /// A script by its digest.
    Digest,
    /// A script by its source: it did not run by its digest.
    Source,
}

impl InFlight {
    /// Sends the commands, at once if the connection stands.
    pub(super) fn send(server: Arc<Server>, batch: Batch, then: Then) {
        let link = server.link.clone();
        link.with_sender(move |sender| match sender {
            Ok(sender) => {
                let floors = server.floors(&batch, sender.server);
                let (path, may_hold) = (Path::Digest, false);
                Box::new(Self { server, batch, sender, floors, path, may_hold, then }).begin();
            }
            Err(error) => then.take(batch, Err(failure::of_client(error))),
        });
    }

    /// As [`send`](Self::send), once this is polled.
    pub(super) async fn ask(server: Arc<Server>, batch: Batch) -> Replied {
        let replied = answer_to(|then| {
            Self::send(server, batch, Then::call(move |_, replied| then(replied)));
        });
        let ended = || StoreError::refused(LockErrorKind::Closed, "the runtime has ended");
        replied.await.unwrap_or_else(|| Err(ended()))
    }

    fn begin(self: Box<Self>) {
        let Self { server, batch, sender, .. } = &*self;
        match &**batch {
            [ask] if matches!(ask.command, Command::Acquire { .. }) => {
                match server.link.may_transact(sender) {
                    true => self.acquire(),
                    false => self.run_script(),
                }
            }
            [ask] if matches!(ask.command, Command::Release { .. }) => {
                match server.link.may_compare(sender) {
                    Some(compare) => self.release(compare),
                    None => self.run_script(),
                }
            }
            _ => self.run_script(),
        }
    }

    /// Acquires a lock without a script if it is likely to be free.
    fn acquire(mut self: Box<Self>) {
        let (server, ask) = (&self.server, &self.batch[0]);
        let place = Place::of(&ask.lock);
        if let Some(free) = server.wire.free_acquire((&ask.lock, &ask.command))
            && let Some(transaction) = server.acquires.begin(place)
        {
            let commands = native::acquire(&free);
            self.path = Path::Acquire(place, transaction);
            return self.write(&commands);
        }
        let acquires = Arc::clone(&server.acquires);
        if let Some(script) = acquires.defer(place, move || self.run_script()) {
            script();
        }
    }

    /// Releases a lock without a script if it is likely to have no waiters.
    fn release(mut self: Box<Self>, compare: Compare) {
        let (server, ask) = (&self.server, &self.batch[0]);
        let place = Place::of(&ask.lock);
        let free = server.wire.free_release((&ask.lock, &ask.command));
        let Some(free) = free.filter(|_| !server.acquires.is_busy(place)) else {
            return self.run_script();
        };
        let command = native::release(&free, compare);
        self.path = Path::Release(place);
        self.write(&command);
    }

    fn run_script(mut self: Box<Self>) {
        self.path = Path::Digest;
        self.write_script(|call| call.0.command);
    }

    fn write_script(self: Box<Self>, packed: impl FnOnce(Scripted) -> Packed) {
        let call = self.server.wire.write(&commands(&self.batch), self.floors);
        match call {
            Ok(call) => self.write(&packed(call)),
            Err(error) => self.end(Err(error)),
        }
    }

    fn write(self: Box<Self>, command: &Packed) {
        let (server, sender) = (Arc::clone(&self.server), self.sender.clone());
        server.link.send(&sender, command, self);
    }

    /// Takes the outcome of commands without a script, or asks the script.
    fn take_native(mut self: Box<Self>, place: Place, outcome: native::Outcome) {
        let Self { server, batch, sender, .. } = &*self;
        match outcome {
            native::Outcome::Answered(answer) => {
                server.note(&batch[0].lock, &answer, sender.server);
                server.acquires.note(place, true);
                self.end(Ok(Replies::from(smallvec![Ok(answer)])));
            }
            native::Outcome::Unanswered(answer) => self.finish(answer),
            native::Outcome::AskScript { may_hold } => {
                // Until the script grants it: whatever the reason is may last.
                server.acquires.note(place, false);
                self.may_hold = may_hold;
                self.run_script();
            }
        }
    }

    fn finish(self: Box<Self>, answer: Judged) {
        let Self { server, batch, sender, floors, may_hold, .. } = &*self;
        let (link, number) = (&server.link, sender.server);
        if matches!(&answer, Ok(Err(error)) if failure::is_forgotten(error))
            && server.server_time.end_epoch(floors.epoch_us)
        {
            link.count_as_another();
        }
        let answers = finished_script(answer, server.wire.layout)
            .and_then(|answer| server.answers(batch, number, &answer));
        let replied = answers.map(Replies::from).map_err(|mut error| {
            error.may_have_run |= may_hold;
            if is_nonsense(&error) {
                link.distrust(sender.generation);
            }
            error
        });
        self.end(replied);
    }

    #[allow(clippy::boxed_local, reason = "without its box all of it would be copied once more")]
    fn end(self: Box<Self>, replied: Replied) {
        let Self { batch, then, .. } = *self;
        then.take(batch, replied);
    }
}

impl Recipient for InFlight {
    fn take(mut self: Box<Self>, answer: Answered) {
        let path = std::mem::replace(&mut self.path, Path::Source);
        let Self { server, batch, sender, floors, .. } = &*self;
        let answer = judged(server.link.judge(sender, answer));
        match path {
            Path::Acquire(place, transaction) => {
                let ask = &batch[0];
                match server.wire.free_acquire((&ask.lock, &ask.command)) {
                    Some(free) => {
                        let floor_us = floors.floor_us;
                        let outcome = native::Outcome::of_acquire(&free, floor_us, answer);
                        self.take_native(place, outcome);
                    }
                    None => self.run_script(),
                }
                transaction.end();
            }
            Path::Release(place) => self.take_native(place, native::Outcome::of_release(answer)),
            // A server that has forgotten the script did not run it.
            Path::Digest if matches!(&answer, Ok(Err(error)) if is_unknown(error)) => {
                self.write_script(|call| call.0.by_source());
            }
            Path::Digest | Path::Source => self.finish(answer),
        }
    }
}
