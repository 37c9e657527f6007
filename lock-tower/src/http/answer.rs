//! The end of a critical section as a response.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderValue, Response};
use http_body::Body;

use crate::hold::section::{End, Failure};
use crate::http::answers::Answers;
use crate::http::body::LockBody;
use crate::refusal::LockError;

/// What the layer answers: the inner service's response, or a refusal in its place.
pub(crate) fn answer<R: Body, E>(
    end: End<Response<R>, E>,
    answers: &Arc<Answers>,
) -> Result<Response<LockBody<R>>, E> {
    let End { result, mut share } = end;
    let waited = share.waited();
    let mut response = match result {
        Ok(response) if share.has_holds() => {
            response.map(|body| LockBody::held(body, share, answers))
        }
        Ok(response) => {
            share.end(refusal(&response));
            match answers.refusals.rendered(&response) {
                Some(refusal) => refusal.map(LockBody::refusal),
                None => response.map(LockBody::open),
            }
        }
        Err(Failure::Refused(error)) => {
            share.end(Some(&error));
            answers.refusals.respond(&error).map(LockBody::refusal)
        }
        Err(Failure::Inner(error)) => {
            share.end(None);
            return Err(error);
        }
    };
    if let Some(waited) = waited.filter(|_| answers.server_timing) {
        response.headers_mut().append("server-timing", server_timing(waited));
    }
    Ok(response)
}

/// Whether the hold is to last beyond a response: until the end of its body, if it has one and is
/// no refusal.
pub(crate) fn outlives<R: Body>(answers: &Answers) -> fn(&Response<R>) -> bool {
    match answers.hold_until_body_end {
        true => |response| !response.body().is_end_stream() && refusal(response).is_none(),
        false => |_| false,
    }
}

/// What an inner service refuses a request for, if it does.
fn refusal<R>(response: &Response<R>) -> Option<&LockError> {
    response.extensions().get()
}

/// As W3C Server Timing has it, in milliseconds.
fn server_timing(waited: Duration) -> HeaderValue {
    let text = format!("lock;dur={:.1}", waited.as_secs_f64() * 1e3);
    HeaderValue::try_from(text).expect("digits and a dot are visible ASCII")
}
