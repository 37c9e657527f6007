//! Sends a request group to a server, and decodes the response for the receiver of the replies.

use std::sync::Arc;

use client::{Answered, Packed, Recipient, ScriptCall, Sender, answer_to, is_unknown};
use proto::node::{RequestGroup, StoreRequest, Way, commands};
use proto::wire::{TokenFloors, is_nonsense};
use proto::{LockErrorKind, StoreError};
use smallvec::smallvec;

use super::call::Scripted;
use super::failure;
use super::fast;
use super::run::{Judged, finished_script, judged};
use super::server::Server;
use crate::store::{Replied, Replies, Then};

/// A request group under way, with everything that is needed to handle the response. Boxed as a
/// whole, so that a request needs a single allocation.
pub(super) struct InFlight {
    server: Arc<Server>,
    group: RequestGroup,
    /// The connection on which the group was sent, with the number of its server.
    sender: Sender,
    /// The token floors of the group: the server draws only tokens above them. They depend on the
    /// server, so they are read once the connection is known.
    floors: TokenFloors,
    path: Path,
    /// True if an ASKING command must come directly before the commands.
    asking: bool,
    then: Then,
}

/// The form in which the commands were last sent.
enum Path {
    /// Redis commands that acquire or release without a script.
    Fast,
    /// A script, called by its digest.
    Digest,
    /// A script, called by its digest again, behind another call that has sent the source.
    DigestAgain,
    /// A script, sent as source, because the server did not know the digest. With the source if
    /// later calls rely on this one.
    Source(Option<&'static str>),
}

impl InFlight {
    /// Sends a request group, at once if the connection is up. Otherwise waits for the connection
    /// in a task, at most for the request timeout. `then` receives the replies.
    pub(super) fn send(server: Arc<Server>, group: RequestGroup, then: Then) {
        Self::send_as(server, group, false, then);
    }

    fn send_as(server: Arc<Server>, group: RequestGroup, asking: bool, then: Then) {
        let link = server.link.clone();
        link.with_sender(move |sender| match sender {
            Ok(sender) => {
                let floors = server.floors(&group, sender.server);
                let path = Path::Digest;
                Box::new(Self { server, group, sender, floors, path, asking, then }).begin();
            }
            Err(error) => then.take(group, Err(failure::of_client(error))),
        });
    }

    /// Sends a request group when first polled, and returns the replies. If the slot of the group
    /// is migrating to this server, ASKING is sent first (`asking`), because it makes the server
    /// accept the next command on the connection for such a slot. If a command of another task
    /// comes in between, the group is refused and does not run.
    pub(super) async fn run(server: Arc<Server>, group: RequestGroup, asking: bool) -> Replied {
        let replied = answer_to(|then| {
            let then = Then::call(move |_, replied| then(replied));
            Self::send_as(server, group, asking, then);
        });
        let ended = || StoreError::refused(LockErrorKind::Closed, "the runtime has ended");
        replied.await.unwrap_or_else(|| Err(ended()))
    }

    fn begin(mut self: Box<Self>) {
        let command = match &*self.group {
            [request] if request.way == Way::Fast => self.fast(request),
            _ => None,
        };
        match command {
            Some(command) => {
                self.path = Path::Fast;
                self.write(&command);
            }
            None => self.run_script(),
        }
    }

    /// Returns the Redis commands of the fast path; `None` if the connection does not support them
    /// or the command has no fast path.
    fn fast(&self, request: &StoreRequest) -> Option<Packed> {
        let Self { server, sender, .. } = self;
        let command = (&request.lock, &request.command);
        if let Some(free) = server.wire.free_acquire(command) {
            return server.link.may_transact(sender).then(|| fast::acquire(&free));
        }
        let compare = server.link.may_compare(sender)?;
        server.wire.free_release(command).map(|free| fast::release(&free, compare))
    }

    fn run_script(self: Box<Self>) {
        self.write_script(|flight, call| {
            flight.path = Path::Digest;
            call.command
        });
    }

    /// Runs the script, which the server lacked, once more. The source is long, and thousands of
    /// calls may be in flight: so it is sent once, and the calls behind it only need the digest.
    fn run_unknown_script(self: Box<Self>, was_again: bool) {
        self.write_script(|flight, call| {
            let source = call.source();
            let is_first = flight.server.loading.begin(flight.sender.generation, source);
            if is_first || was_again {
                flight.path = Path::Source(is_first.then_some(source));
                call.by_source()
            } else {
                flight.path = Path::DigestAgain;
                call.command
            }
        });
    }

    fn write_script(mut self: Box<Self>, packed: impl FnOnce(&mut Self, ScriptCall) -> Packed) {
        let call = self.server.wire.write(&commands(&self.group), self.floors);
        match call {
            Ok(Scripted(call)) => {
                let command = packed(&mut self, call);
                self.write(&command);
            }
            Err(error) => self.end(Err(error)),
        }
    }

    fn write(self: Box<Self>, command: &Packed) {
        let (server, sender) = (Arc::clone(&self.server), self.sender.clone());
        if self.asking {
            let asking = Packed::from(&redis::cmd("ASKING"));
            server.link.send(&sender, &asking, Box::new(|_: Answered| {}));
        }
        server.link.send(&sender, command, self);
    }

    /// Handles the response to a fast acquire or release. If it is a reply, passes it to the
    /// receiver. If the fast path has released nothing, runs the script.
    fn finish_fast(mut self: Box<Self>, response: Judged) {
        let Self { server, group, sender, floors, .. } = &*self;
        let request = &group[0];
        let lacks_command = matches!(&response, Ok(Err(error)) if fast::lacks_command(error));
        let answer = match server.wire.free_acquire((&request.lock, &request.command)) {
            Some(free) => {
                if lacks_command {
                    server.link.note_refused_transact();
                }
                fast::acquired(&free, floors.floor_us, response).map(Some)
            }
            None => {
                if lacks_command {
                    server.link.note_refused_compare();
                }
                fast::released(response)
            }
        };
        match answer {
            Ok(Some(answer)) => {
                server.note(&request.lock, &answer, sender.server);
                self.end(Ok(Replies::from(smallvec![Ok(answer)])));
            }
            Ok(None) => {
                self.group[0].way = Way::FellBack;
                self.run_script();
            }
            Err(response) => self.finish(response),
        }
    }

    fn finish(self: Box<Self>, answer: Judged) {
        let Self { server, group, sender, floors, .. } = &*self;
        let (link, number) = (&server.link, sender.server);
        if matches!(&answer, Ok(Err(error)) if failure::is_forgotten(error))
            && server.server_time.end_epoch(floors.epoch_us)
        {
            link.count_as_another();
        }
        let answers = finished_script(answer, server.wire.layout)
            .and_then(|answer| server.answers(group, number, &answer));
        let replied = answers.map(Replies::from).inspect_err(|error| {
            if is_nonsense(error) {
                link.distrust(sender.generation);
            }
        });
        self.end(replied);
    }

    #[allow(clippy::boxed_local, reason = "unboxed, the whole value would be copied again")]
    fn end(self: Box<Self>, replied: Replied) {
        let Self { group, then, .. } = *self;
        then.take(group, replied);
    }
}

impl Recipient for InFlight {
    fn take(mut self: Box<Self>, answer: Answered) {
        let path = std::mem::replace(&mut self.path, Path::Source(None));
        let Self { server, sender, .. } = &*self;
        let answer = judged(server.link.judge(sender, answer));
        // A server that does not have the script did not run it.
        let is_unknown = matches!(&answer, Ok(Err(error)) if is_unknown(error));
        match path {
            Path::Fast => self.finish_fast(answer),
            Path::Digest if is_unknown => self.run_unknown_script(false),
            Path::DigestAgain if is_unknown => self.run_unknown_script(true),
            Path::Digest | Path::DigestAgain => self.finish(answer),
            Path::Source(source) => {
                if let Some(source) = source {
                    server.loading.end(sender.generation, source);
                }
                self.finish(answer);
            }
        }
    }
}
