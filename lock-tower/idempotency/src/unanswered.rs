//! Records that an earlier attempt has left without an answer, and what is done about them.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use http::{Response, request};
use lockcore::FencingToken;

use crate::record::Record;

/// An attempt that began and left no answer: its process has died, its handler panicked or failed
/// with an answer that [says nothing](crate::Meaning::Unknown) about the work, or its answer could
/// not be stored. Its work may have been done.
#[derive(Debug)]
#[non_exhaustive]
pub struct Unanswered<'a> {
    /// The head of the request that comes now.
    pub parts: &'a request::Parts,
    /// Its idempotency key, without quotes: pass it on to a payment provider.
    pub idempotency_key: &'a str,
    /// The time at which the last attempt began, by the clock of the store.
    pub started: SystemTime,
    /// The fencing token of the last attempt.
    pub token: FencingToken,
}

/// What is done about an attempt that left no answer.
#[derive(Debug)]
pub enum Decision {
    /// Runs the handler again: nothing was done, or doing it again does no harm.
    Run,
    /// Refuses the request with 409, [`Cause::OutcomeUnknown`](crate::Cause::OutcomeUnknown).
    Refuse,
    /// Stores this answer and sends it, as if the handler had made it: the work was done.
    Answer(Response<Bytes>),
}

/// The future of a decision.
pub type DecisionFuture<'a> = Pin<Box<dyn Future<Output = Decision> + Send + 'a>>;
type Decides = dyn for<'a> Fn(Unanswered<'a>) -> DecisionFuture<'a> + Send + Sync;

/// The course of a request whose key has a record without an answer.
#[derive(Clone)]
pub(crate) enum OnUnanswered {
    Run,
    Refuse,
    Ask(Arc<Decides>),
}

impl OnUnanswered {
    /// Decides about this record.
    pub(crate) async fn decide(
        &self,
        record: &Record,
        parts: &request::Parts,
        idempotency_key: &str,
    ) -> Decision {
        match self {
            Self::Run => Decision::Run,
            Self::Refuse => Decision::Refuse,
            Self::Ask(decides) => {
                let (started, token) = (record.started(), record.token());
                decides(Unanswered { parts, idempotency_key, started, token }).await
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
