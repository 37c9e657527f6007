//! The work under a granted lock: wait for the inner service, record the start in the store, run
//! the handler, store the response.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderName, HeaderValue, Request, Response, StatusCode};
use http_body::Body;
use lockcore::LockGuard;
use tokio::time::{Instant, timeout_at};
use tower::{BoxError, Service, ServiceExt as _};

use crate::attempt::Attempt;
use crate::config::Config;
use crate::fingerprint::Fingerprint;
use crate::later::later;
use crate::meaning::Meaning;
use crate::observe::{self, End, HandlerPanics};
use crate::read::WholeBody;
use crate::record::Record;
use crate::record::answer::Answer;
use crate::record::key::RecordKey;
use crate::record::outcome::Outcome;
use crate::refusal::Cause;
use crate::request_body::ReadBody;
use crate::response_body::AnswerBody;
use crate::store::error::{StoreError, StoreErrorKind};
use crate::store::{Finish, Finished, Start, Started};
use crate::unanswered::{Decision, OnUnanswered};

/// The response header `idempotency-stored`. The value `no` marks a response that was sent although
/// it could not be stored.
const STORED: HeaderName = HeaderName::from_static("idempotency-stored");

/// A request with a key, and the inner service that handles it once the lock is granted.
pub(crate) struct Work<S> {
    pub(crate) inner: S,
    pub(crate) body: WholeBody,
    pub(crate) keyed: Keyed,
}

/// The key of a request, with the settings of the layer. `record` is the name of the record in the
/// store, and `fingerprint` shows whether an equal request wrote this record.
pub(crate) struct Keyed {
    pub(crate) config: Arc<Config>,
    pub(crate) key: Arc<str>,
    pub(crate) record: RecordKey,
    pub(crate) fingerprint: Fingerprint,
}

/// How to serve a request that has its lock. Decided by its record in the store.
enum Next<R> {
    /// The start is recorded: run the handler.
    Handler { is_again: bool },
    /// An earlier attempt has left this record without a response, and the start may not take it
    /// over yet.
    Undecided(Record),
    /// Send this response, a stored response or a refusal. The handler does not run.
    Answered(Response<AnswerBody<R>>),
}

impl<S> Work<S> {
    /// Runs the handler under the lock and stores the response, or returns the stored response if
    /// there is one. The caller runs this future in a separate task, so that a client disconnect
    /// does not drop it. Returns `Err` only if the inner service fails.
    pub(crate) async fn run<B, R>(
        self,
        mut parts: Parts,
        guard: LockGuard,
    ) -> Result<Response<AnswerBody<R>>, S::Error>
    where
        S: Service<Request<ReadBody<B>>, Response = Response<R>> + Clone,
        B: Body<Error: Into<BoxError>>,
        R: Body<Error: Into<BoxError>>,
    {
        let Self { inner, body, keyed } = self;
        let latest = later(keyed.config.max_run);
        let mut start = Start::new(keyed.fingerprint, guard.fencing_token(), keyed.expiry());
        start.takes_over = matches!(keyed.config.on_unanswered, OnUnanswered::Run);
        let mut given = None;
        let (mut inner, is_again) = loop {
            // A service that is ready may keep others from becoming ready, so this clone is dropped
            // before a decision.
            let mut inner = inner.clone();
            // Before the start is recorded: a request whose service does not become ready has done
            // nothing, and leaves no record that would refuse the next attempt. A given response
            // needs no service.
            let found = match given {
                None => match timeout_at(latest, keyed.ready(&mut inner, &start)).await {
                    Ok(Ok(found)) => found,
                    Ok(Err(error)) => {
                        observe::ended(End::NothingDone);
                        return Err(error);
                    }
                    Err(_) => return Ok(keyed.config.refuse_keyed(Cause::NotReady)),
                },
                Some(_) => None,
            };
            let next = match found {
                Some(next) => next,
                None => keyed.start(&start, &guard).await,
            };
            match (next, given.take()) {
                (Next::Handler { is_again }, None) => break (inner, is_again),
                (Next::Handler { .. }, Some(response)) => {
                    let (outcome, response) = to_store(response);
                    return Ok(keyed.finish(outcome, response, guard).await);
                }
                (Next::Answered(response), _) => return Ok(response),
                (Next::Undecided(found), _) => {
                    drop(inner);
                    match keyed.decide(&found, &parts, latest).await {
                        Decision::Run => {}
                        Decision::Answer(response) => given = Some(response),
                        Decision::Refuse => {
                            return Ok(keyed.config.refuse_keyed(Cause::OutcomeUnknown));
                        }
                    }
                    start.takes_over = true;
                }
            }
        };
        if is_again {
            observe::again(&keyed.record);
        }
        parts.extensions.insert(Attempt {
            key: Arc::clone(&keyed.key),
            record: keyed.record,
            token: guard.fencing_token(),
            is_again,
        });
        let request = Request::from_parts(parts, ReadBody::whole(body));
        let _panics = HandlerPanics;
        match timeout_at(latest, inner.call(request)).await {
            Ok(Ok(response)) => Ok(keyed.record_outcome(response, is_again, latest, guard).await),
            Ok(Err(error)) => {
                observe::ended(End::NoAnswer);
                Err(error)
            }
            Err(_) => Ok(keyed.config.refuse_keyed(Cause::RunTooLong)),
        }
    }
}

impl Keyed {
    /// Waits until the inner service is ready, and returns `None`. If it is not ready at once,
    /// looks first for what needs no inner service: a response, which another process may have
    /// stored during the wait for the lock, or a record that needs a decision before `start`.
    async fn ready<S, Q, R>(
        &self,
        inner: &mut S,
        start: &Start,
    ) -> Result<Option<Next<R>>, S::Error>
    where
        S: Service<Q>,
    {
        let Self { config, record, .. } = self;
        if let Poll::Ready(ready) = poll_fn(|cx| Poll::Ready(inner.poll_ready(cx))).await {
            return ready.map(|()| None);
        }
        if let Ok(Some(found)) = config.within(config.store.look_up(record)).await {
            if let Some(response) = self.answer(&found) {
                return Ok(Some(Next::Answered(response)));
            }
            // A record with a higher token is left to the start, which has been overtaken.
            if !start.takes_over && found.token() < start.token {
                return Ok(Some(Next::Undecided(found)));
            }
        }
        inner.ready().await.map(|_| None)
    }

    /// Records in the store that the handler starts. Returns [`Next::Answered`] if the record has a
    /// response or forbids the start, or if the store fails.
    async fn start<R>(&self, start: &Start, guard: &LockGuard) -> Next<R> {
        let Self { config, record, .. } = self;
        match config.within(config.store.start(record, start)).await {
            Ok(Started::Begun { again: is_again }) => Next::Handler { is_again },
            Ok(Started::Overtaken) => Next::Answered(config.refuse_keyed(Cause::Overtaken)),
            Ok(Started::Found(found)) => {
                if let Some(response) = self.answer(&found) {
                    config.board.notify(record);
                    return Next::Answered(response);
                }
                if start.takes_over {
                    let error = StoreError::malformed("not handed over to the store yet");
                    return Next::Answered(config.failed(record, &error));
                }
                Next::Undecided(found)
            }
            Err(error) => {
                // The start may have been executed although the reply is missing, and its record
                // would refuse the next attempt. A start that takes over may have replaced the
                // record of an earlier attempt, whose trace must stay.
                if !start.takes_over && error.kind() == StoreErrorKind::Unavailable {
                    self.end(guard).await;
                }
                Next::Answered(config.failed(record, &error))
            }
        }
    }

    /// Returns what to do after an earlier attempt that has left this record without a response.
    /// Refuses the request if the function set by `when_unanswered` has not decided by `latest`.
    async fn decide(&self, found: &Record, parts: &Parts, latest: Instant) -> Decision {
        let deciding = self.config.on_unanswered.decide(found, parts, &self.key, &self.record);
        timeout_at(latest, deciding).await.unwrap_or(Decision::Refuse)
    }

    /// Stores the handler's response if the work was done, removes the record if no attempt did
    /// anything, leaves the record unchanged if this is unknown, and returns the response to send.
    async fn record_outcome<R>(
        &self,
        response: Response<R>,
        is_again: bool,
        latest: Instant,
        guard: LockGuard,
    ) -> Response<AnswerBody<R>>
    where
        R: Body<Error: Into<BoxError>>,
    {
        let (parts, body) = response.into_parts();
        let meaning = match parts.status {
            StatusCode::SWITCHING_PROTOCOLS => Meaning::Done,
            _ => (self.config.meaning)(&parts),
        };
        let response = Response::from_parts(parts, body);
        match meaning {
            Meaning::Done => {
                let (outcome, response) = self.config.collect.collect(response, latest).await;
                self.finish(outcome, response, guard).await
            }
            Meaning::NothingDone => {
                // An earlier attempt without a response may have done the work. Its record must
                // stay: without it, the next attempt would run like a first one.
                if !is_again {
                    self.end(&guard).await;
                }
                observe::ended(End::NothingDone);
                response.map(AnswerBody::open)
            }
            // The record stays without an outcome, as the start has written it.
            Meaning::Unknown => {
                observe::ended(End::Unknown);
                response.map(AnswerBody::open)
            }
        }
    }

    /// Removes the record, because the handler did nothing. A failure is logged: the response is
    /// sent nevertheless.
    async fn end(&self, guard: &LockGuard) {
        let Self { config, record, .. } = self;
        if let Err(error) = config.within(config.store.end(record, guard.fencing_token())).await {
            observe::not_ended(record, &error);
        }
    }

    /// Stores the outcome, then returns `response`, or a refusal if the outcome was not stored and
    /// the settings require it. Dropping `guard` releases the lock in the background. This function
    /// need not wait for the release, because later requests find the stored response.
    async fn finish<R>(
        &self,
        outcome: Outcome,
        mut response: Response<AnswerBody<R>>,
        guard: LockGuard,
    ) -> Response<AnswerBody<R>> {
        let Self { config, record, .. } = self;
        let end = match outcome {
            Outcome::Kept(_) => End::Stored,
            Outcome::NotKept(_) => End::NotKept,
        };
        let finish = Finish::new(guard.fencing_token(), outcome, self.expiry());
        let error = match config.within(config.store.finish(record, &finish)).await {
            Ok(Finished::Stored) => {
                config.board.notify(record);
                observe::ended(end);
                return response;
            }
            Ok(Finished::Overtaken) => return config.refuse_keyed(Cause::Overtaken),
            Ok(Finished::Forgotten) => None,
            Err(error) => Some(error),
        };
        observe::not_stored(record, error.as_ref());
        if config.is_strict {
            return config.refuse_keyed(Cause::NotStored);
        }
        observe::ended(End::NotStored);
        response.headers_mut().insert(STORED, HeaderValue::from_static("no"));
        response
    }

    /// Returns how long the store keeps the record: at least `max_run`, so that no handler outlives
    /// the record.
    fn expiry(&self) -> Duration {
        self.config.expiry.max(self.config.max_run)
    }
}

/// Returns the outcome to store and the response to send, from a complete response that the
/// function set by `when_unanswered` has returned.
fn to_store<R>(response: Response<Bytes>) -> (Outcome, Response<AnswerBody<R>>) {
    let (parts, body) = response.into_parts();
    let outcome = Outcome::kept(Answer::new(&parts, body.clone()));
    (outcome, Response::from_parts(parts, AnswerBody::whole(body)))
}
