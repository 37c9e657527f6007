//! What happens to a request if an earlier attempt with the same key left no response.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use http::{Response, request};
use lockcore::FencingToken;

use crate::record::Record;
use crate::record::key::RecordKey;

/// A request whose earlier attempt began and left no response. The argument of the function set by
/// [`when_unanswered`](crate::IdempotencyLayer::when_unanswered).
///
/// An attempt leaves no response if the process dies, if the handler panics, fails, runs too long
/// or returns a response of [unknown meaning](crate::Meaning::Unknown), or if the response cannot
/// be stored. The work may have been done. If the store did not confirm that the attempt began, and
/// then could not remove the record, the handler never ran.
#[derive(Debug)]
#[non_exhaustive]
pub struct Unanswered<'a> {
    /// The head of the current request.
    pub parts: &'a request::Parts,
    /// The idempotency key sent by the client, without quotes. Two scopes may have the same key.
    pub idempotency_key: &'a str,
    /// The record name, the same as [`Attempt::record_key`](crate::Attempt::record_key) of the
    /// earlier attempt. Ask the payment provider for a charge by this name.
    pub record_key: &'a RecordKey,
    /// When the last earlier attempt began, by the store's clock.
    pub started: SystemTime,
    /// The fencing token of the last earlier attempt.
    pub token: FencingToken,
}

/// What to do with a request whose earlier attempt left no response.
#[derive(Debug)]
pub enum Decision {
    /// Run the handler again, because nothing was done or a repeat is harmless.
    Run,
    /// Refuse the request with 409, [`Cause::OutcomeUnknown`](crate::Cause::OutcomeUnknown).
    Refuse,
    /// Store and send this response, as if the handler had made it, because the work was done.
    Answer(Response<Bytes>),
}

/// A boxed future of the [`Decision`] for a request, returned by the function set by
/// [`when_unanswered`](crate::IdempotencyLayer::when_unanswered).
pub type DecisionFuture<'a> = Pin<Box<dyn Future<Output = Decision> + Send + 'a>>;
type Decides = dyn for<'a> Fn(Unanswered<'a>) -> DecisionFuture<'a> + Send + Sync;

/// The layer's setting for requests whose earlier attempt left no response.
#[derive(Clone)]
pub(crate) enum OnUnanswered {
    /// Run the handler again.
    Run,
    /// Refuse the request, until the record expires.
    Refuse,
    /// Call this function, and do what it decides for the request.
    Ask(Arc<Decides>),
}

impl OnUnanswered {
    /// Returns what to do with a request for this record, which an earlier attempt left without a
    /// response.
    pub(crate) async fn decide(
        &self,
        record: &Record,
        parts: &request::Parts,
        idempotency_key: &str,
        record_key: &RecordKey,
    ) -> Decision {
        match self {
            Self::Run => Decision::Run,
            Self::Refuse => Decision::Refuse,
            Self::Ask(decides) => {
                let (started, token) = (record.started(), record.token());
                decides(Unanswered { parts, idempotency_key, record_key, started, token }).await
            }
        }
    }
}

impl fmt::Debug for OnUnanswered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Run => "run",
            Self::Refuse => "refuse",
            Self::Ask(_) => "ask",
        })
    }
}
