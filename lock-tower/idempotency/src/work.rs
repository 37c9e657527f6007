//! Work under a granted lock: start, handler, finish.

use std::sync::Arc;
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
use crate::meaning::Meaning;
use crate::observe::{self, End};
use crate::read::WholeBody;
use crate::record::answer::Answer;
use crate::record::key::RecordKey;
use crate::record::outcome::Outcome;
use crate::refusal::Cause;
use crate::request_body::ReadBody;
use crate::response_body::AnswerBody;
use crate::store::error::StoreError;
use crate::store::{Finish, Finished, Start, Started};
use crate::unanswered::{Decision, OnUnanswered};

/// The header that marks a response sent but not stored.
const STORED: HeaderName = HeaderName::from_static("idempotency-stored");

/// A request with a key: the inner service, the body, and the identity.
pub(crate) struct Work<S> {
    pub(crate) inner: S,
    pub(crate) body: WholeBody,
    pub(crate) keyed: Keyed,
}

/// The identity of a request with a key, used to find and compare the record.
pub(crate) struct Keyed {
    pub(crate) config: Arc<Config>,
    pub(crate) key: Arc<str>,
    pub(crate) record: RecordKey,
    pub(crate) fingerprint: Fingerprint,
}

/// The next step under a granted lock.
enum Next<R> {
    Handler {
        is_again: bool,
    },
    /// A response returned by the function of [`OnUnanswered`].
    Given(Response<Bytes>),
    Answered(Response<AnswerBody<R>>),
}

impl<S> Work<S> {
    /// Does the work under the lock, unless a response is already stored. Runs in a separate task,
    /// so that a client disconnect does not drop it.
    pub(crate) async fn run<B, R>(
        self,
        mut parts: Parts,
        guard: LockGuard,
    ) -> Result<Response<AnswerBody<R>>, S::Error>
    where
        S: Service<Request<ReadBody<B>>, Response = Response<R>>,
        B: Body<Error: Into<BoxError>>,
        R: Body<Error: Into<BoxError>>,
    {
        let Self { mut inner, body, keyed } = self;
        let latest = later(keyed.config.max_run);
        let is_again = match keyed.start(&parts, &guard).await {
            Next::Handler { is_again } => is_again,
            Next::Given(response) => {
                let (outcome, response) = given(response);
                return Ok(keyed.finish(outcome, response, guard).await);
            }
            Next::Answered(response) => return Ok(response),
        };
        parts.extensions.insert(Attempt {
            key: Arc::clone(&keyed.key),
            record: keyed.record,
            token: guard.fencing_token(),
            is_again,
        });
        let request = Request::from_parts(parts, ReadBody::whole(body));
        let handling = async { inner.ready().await?.call(request).await };
        match timeout_at(latest, handling).await {
            Ok(Ok(response)) => Ok(keyed.settle(response, latest, guard).await),
            Ok(Err(error)) => {
                observe::ended(End::NoAnswer);
                Err(error)
            }
            Err(_) => Ok(keyed.config.refuse_keyed(Cause::RunTooLong)),
        }
    }
}

impl Keyed {
    /// Records the start of the request, unless an existing record forbids it.
    async fn start<R>(&self, parts: &Parts, guard: &LockGuard) -> Next<R> {
        let Self { config, record, .. } = self;
        let mut start = Start {
            fingerprint: self.fingerprint,
            token: guard.fencing_token(),
            expiry: self.expiry(),
            takes_over: matches!(config.on_unanswered, OnUnanswered::Run),
        };
        let mut given = None;
        loop {
            match config.within(config.store.start(record, &start)).await {
                Ok(Started::Begun { again: is_again }) => {
                    if let Some(response) = given {
                        return Next::Given(response);
                    }
                    if is_again {
                        observe::again(record);
                    }
                    return Next::Handler { is_again };
                }
                Ok(Started::Overtaken) => {
                    return Next::Answered(config.refuse_keyed(Cause::Overtaken));
                }
                Ok(Started::Found(found)) => {
                    if let Some(response) = self.answer(&found) {
                        config.board.tell(record);
                        return Next::Answered(response);
                    }
                    if start.takes_over {
                        let error = StoreError::malformed("not handed over to the store yet");
                        return Next::Answered(config.failed(record, &error));
                    }
                    match config.on_unanswered.decide(&found, parts, &self.key).await {
                        Decision::Run => {}
                        Decision::Answer(response) => given = Some(response),
                        Decision::Refuse => {
                            return Next::Answered(config.refuse_keyed(Cause::OutcomeUnknown));
                        }
                    }
                    start.takes_over = true;
                }
                Err(error) => return Next::Answered(config.failed(record, &error)),
            }
        }
    }

    /// Stores the handler's response, if it is definitive; returns the response.
    async fn settle<R>(
        &self,
        response: Response<R>,
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
            Meaning::NothingDone => self.end(response.map(AnswerBody::open), &guard).await,
            // The record stays as the start has left it.
            Meaning::Unknown => {
                observe::ended(End::Unknown);
                response.map(AnswerBody::open)
            }
        }
    }

    /// Removes the record of a request that did nothing.
    async fn end<R>(
        &self,
        response: Response<AnswerBody<R>>,
        guard: &LockGuard,
    ) -> Response<AnswerBody<R>> {
        let Self { config, record, .. } = self;
        if let Err(error) = config.within(config.store.end(record, guard.fencing_token())).await {
            observe::not_ended(record, &error);
        }
        observe::ended(End::NothingDone);
        response
    }

    /// Stores an outcome, then returns the response. The guard is dropped afterwards: the lock is
    /// released in the background, because later requests find the stored response.
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
        let finish = Finish { token: guard.fencing_token(), outcome, expiry: self.expiry() };
        let error = match config.within(config.store.finish(record, &finish)).await {
            Ok(Finished::Stored) => {
                config.board.tell(record);
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

    /// How long a record is kept: no handler outlives the record.
    fn expiry(&self) -> Duration {
        self.config.expiry.max(self.config.max_run)
    }
}

/// Splits a response not made by the handler into outcome and response.
fn given<R>(response: Response<Bytes>) -> (Outcome, Response<AnswerBody<R>>) {
    let (parts, body) = response.into_parts();
    let outcome = Outcome::kept(Answer::new(&parts, body.clone()));
    (outcome, Response::from_parts(parts, AnswerBody::whole(body)))
}

/// Returns the time after this duration; after a year, if the clock cannot represent it.
fn later(time: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(time).unwrap_or_else(|| now + Duration::from_secs(365 * 24 * 60 * 60))
}
