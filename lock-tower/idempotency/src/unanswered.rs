//! Records left without a response by an earlier attempt, and how they are handled.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use http::{Response, request};
use lockcore::FencingToken;

use crate::record::Record;

/// An attempt that began and left no response: the process has died, the handler panicked, failed
/// or returned a response of [unknown meaning](crate::Meaning::Unknown), or the response could not
/// be stored. The work may have been done.
#[derive(Debug)]
#[non_exhaustive]
pub struct Unanswered<'a> {
    /// The head of the current request.
    pub parts: &'a request::Parts,
    /// The idempotency key, without quotes: pass it on to a payment provider.
    pub idempotency_key: &'a str,
    /// When the last attempt began, by the store's clock.
    pub started: SystemTime,
    /// The last attempt's fencing token.
    pub token: FencingToken,
}

/// What to do about an attempt that left no response.
#[derive(Debug)]
pub enum Decision {
    /// Runs the handler again: nothing was done, or a repeat is harmless.
    Run,
    /// Refuses the request with 409, [`Cause::OutcomeUnknown`](crate::Cause::OutcomeUnknown).
    Refuse,
    /// Stores and sends this response, as if the handler had made it: the work was done.
    Answer(Response<Bytes>),
}

/// The future of a decision.
pub type DecisionFuture<'a> = Pin<Box<dyn Future<Output = Decision> + Send + 'a>>;
type Decides = dyn for<'a> Fn(Unanswered<'a>) -> DecisionFuture<'a> + Send + Sync;

/// What happens to a request whose record has no response.
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
