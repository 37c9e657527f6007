//! The wait in the queue for a record's lock, with concurrent lookups for a stored response.

use std::pin::pin;

use http::request::Parts;
use http::{Request, Response};
use http_body::Body;
use lock_tower::{Keys, LockError, RequestLocks};
use lockcore::LockGuard;
use tower::{BoxError, Service};

use crate::config::Config;
use crate::observe::{self, End};
use crate::record::Record;
use crate::record::key::RecordKey;
use crate::record::outcome::Outcome;
use crate::refusal::Cause;
use crate::request_body::ReadBody;
use crate::response_body::AnswerBody;
use crate::store::error::{StoreError, StoreErrorKind};
use crate::work::{Keyed, Work};

/// How a request's wait for the record's lock has ended.
enum Turn<R> {
    /// The lock is granted, so the handler may run.
    Granted(LockGuard),
    /// The record or the store has ended the wait before the grant: send this response or refusal.
    Answered(Response<AnswerBody<R>>),
    /// The lock is not granted, for example because the wait has timed out.
    Refused(LockError),
}

/// Waits in the queue for the lock, then runs `work` in a separate task and returns the response.
/// `parts` is the request head, after lock-tower's scope has inserted the [`RequestLocks`].
///
/// Dropping the future before the grant leaves the queue. Dropping it later does not stop the work.
pub(crate) async fn wait_in_queue<S, B, R>(
    work: Work<S>,
    mut parts: Parts,
) -> Result<Response<AnswerBody<R>>, S::Error>
where
    S: Service<Request<ReadBody<B>>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send,
    B: Body<Error: Into<BoxError>> + Send + 'static,
    R: Body<Error: Into<BoxError>> + Send + 'static,
{
    // Removed, so that the handler cannot use it: locks acquired through it would end with the
    // client connection, while the handler continues.
    let locks = parts.extensions.remove::<RequestLocks>().expect("inserted by the scope");
    let guard = match turn(&work.keyed, &locks).await {
        Turn::Granted(guard) => guard,
        Turn::Answered(response) => return Ok(response),
        Turn::Refused(error) => {
            return Ok(locks.refusals().respond(&error).map(AnswerBody::whole));
        }
    };
    // From here on the work continues without the client: there is no await between the grant and
    // this task.
    match locks.detach(work.run(parts, guard)).await {
        Ok(result) => result,
        // An outer layer's lock was lost, and the loss has stopped the work.
        Err(error) => Ok(locks.refusals().respond(&error).map(AnswerBody::whole)),
    }
}

/// Waits for the lock. Meanwhile looks up the record, at once and again whenever this process
/// stores a response for it. Concurrent duplicates then receive the response together, and do not
/// wait for each other's locks. A lookup under way is waited for even if the lock is refused.
async fn turn<R>(keyed: &Keyed, locks: &RequestLocks) -> Turn<R> {
    let Keyed { config, record, .. } = keyed;
    let seat = config.board.join(*record);
    let mut acquire = pin!(async {
        match locks.guards(Keys::one(record.lock())).await {
            Ok(guards) => {
                let guard = guards.into_iter().next();
                Turn::Granted(guard.expect("a single key has a single guard"))
            }
            Err(error) => Turn::Refused(error),
        }
    });
    loop {
        // Created before the lookup, so that a response stored after the lookup is not missed.
        let notified = seat.notified();
        let mut lookup = pin!(config.within(config.store.look_up(record)));
        let (turn, found) = tokio::select! {
            // Poll the acquire first, so that the position in the queue is requested first.
            biased;
            // The lookup was sent together with the acquire, so the reply is about to arrive. Wait
            // for it: a stored response is sent even if the lock is refused, and after a grant the
            // replay saves the round trip of `start`.
            turn = &mut acquire => (Some(turn), lookup.await),
            found = &mut lookup => (None, found),
        };
        match found {
            Ok(Some(found)) => {
                if let Some(response) = keyed.answer(&found) {
                    return Turn::Answered(response);
                }
            }
            Ok(None) => {}
            // A refusal by the lock says more: for example, that the lock is busy.
            Err(_) if matches!(turn, Some(Turn::Refused(_))) => {}
            Err(error) => return Turn::Answered(config.failed(record, &error)),
        }
        if let Some(turn) = turn {
            return turn;
        }
        tokio::select! {
            biased;
            turn = &mut acquire => return turn,
            () = notified => {}
        }
    }
}

impl Keyed {
    /// Returns the response to this request that follows from the record: the stored response, or a
    /// refusal if the key belongs to another request or the response was not stored. Returns `None`
    /// while the record has no outcome.
    pub(crate) fn answer<R>(&self, record: &Record) -> Option<Response<AnswerBody<R>>> {
        if *record.fingerprint() != self.fingerprint {
            return Some(self.config.refuse_keyed(Cause::KeyReused));
        }
        match record.outcome()? {
            Outcome::Kept(answer) => {
                observe::ended(End::Replayed);
                Some(answer.to_response().map(AnswerBody::whole))
            }
            Outcome::NotKept(_) => Some(self.config.refuse_keyed(Cause::AnswerNotKept)),
        }
    }
}

impl Config {
    /// Logs a store failure, and returns the refusal for a request whose handler has not begun.
    pub(crate) fn failed<R>(
        &self,
        record: &RecordKey,
        error: &StoreError,
    ) -> Response<AnswerBody<R>> {
        observe::store_failed(record, error);
        self.refuse_keyed(match error.kind() {
            StoreErrorKind::Unavailable => Cause::StoreUnavailable,
            StoreErrorKind::Malformed => Cause::RecordMalformed,
        })
    }
}
