//! Responses at the end of critical sections.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::{HeaderValue, Response, StatusCode};
use http_body::Body;

use crate::hold::layer_holds::LayerHolds;
use crate::hold::section::{End, Failure};
use crate::http::body::LockBody;
use crate::http::response_options::ResponseOptions;
use crate::refusal::LockError;

/// Makes the layer's response: the inner service's, or a refusal.
pub(crate) fn respond<R: Body, E>(
    end: End<Response<R>, E>,
    response_options: &Arc<ResponseOptions>,
) -> Result<Response<LockBody<R>>, E> {
    let End { result, mut layer_holds } = end;
    let waited = layer_holds.waited();
    let mut response = match result {
        Ok(response) if layer_holds.has_holds() => {
            response.map(|body| LockBody::held(body, layer_holds, response_options))
        }
        Ok(response) => {
            layer_holds.end(refusal(&response));
            match response_options.refusals.rendered(&response) {
                Some(refusal) => refusal.map(LockBody::refusal),
                None => response.map(LockBody::open),
            }
        }
        Err(Failure::Refused(error)) => {
            layer_holds.end(Some(&error));
            response_options.refusals.respond(&error).map(LockBody::refusal)
        }
        Err(Failure::Inner(error)) => {
            layer_holds.end(None);
            return Err(error);
        }
    };
    if let Some((waited, position)) = waited.filter(|_| response_options.server_timing) {
        response.headers_mut().append("server-timing", server_timing(waited, position));
    }
    Ok(response)
}

/// Decides whether the hold outlives a response: until the body ends, if there is a body and the
/// response is not a refusal.
pub(crate) fn outlives<R: Body>(
    response_options: &ResponseOptions,
) -> fn(&Response<R>, &LayerHolds) -> bool {
    match response_options.hold_until_body_end {
        true => |response, layer_holds| {
            warn_of_upgrade(response, layer_holds);
            !response.body().is_end_stream() && refusal(response).is_none()
        },
        false => |response, layer_holds| {
            warn_of_upgrade(response, layer_holds);
            false
        },
    }
}

/// Logs a single warning if a hold ends with an upgrade's 101: the socket is open without the lock.
fn warn_of_upgrade<R>(response: &Response<R>, layer_holds: &LayerHolds) {
    static SAID: AtomicBool = AtomicBool::new(false);
    if response.status() == StatusCode::SWITCHING_PROTOCOLS
        && layer_holds.is_only_keeper()
        && !SAID.swap(true, Ordering::Relaxed)
    {
        tracing::warn!(
            "the lock ends with the 101 response, and the WebSocket continues without it: keep a \
             guard as long as the socket, from `OwnedLock` or `LockHandle::reenter` (logged once)"
        );
    }
}

/// Returns the error with which an inner service refuses a request, if any.
fn refusal<R>(response: &Response<R>) -> Option<&LockError> {
    response.extensions().get()
}

/// Formats the wait in milliseconds and the queue position as W3C Server Timing.
fn server_timing(waited: Duration, position: Option<u64>) -> HeaderValue {
    let mut text = format!("lock;dur={:.1}", waited.as_secs_f64() * 1e3);
    if let Some(position) = position {
        text += &format!(", lock-queue;desc={position}");
    }
    HeaderValue::try_from(text).expect("digits and names are visible ASCII")
}
