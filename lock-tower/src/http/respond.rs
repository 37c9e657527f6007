//! The responses of the layers for HTTP.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{HeaderValue, Method, Response, StatusCode, Version};
use http_body::Body;

use crate::hold::layer_holds::LayerHolds;
use crate::hold::section::{End, Failure};
use crate::http::body::LockBody;
use crate::http::response_options::ResponseOptions;
use crate::refusal::LockError;

/// Makes the layer's response after the work under the locks has ended: the response of the inner
/// service, or a refusal. An error of the inner service is returned unchanged. `version` is the
/// request's.
pub(crate) fn respond<R: Body, E>(
    end: End<Response<R>, E>,
    response_options: &Arc<ResponseOptions>,
    version: Version,
) -> Result<Response<LockBody<R>>, E> {
    let End { result, mut layer_holds } = end;
    let waited = layer_holds.waited();
    let mut response = match result {
        Ok(response) if layer_holds.has_holds() => {
            let length = length(&response).filter(|_| is_http1(version));
            response.map(|body| LockBody::held(body, length, layer_holds, response_options))
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

/// Returns the function that decides whether the lock stays held after the response to a request
/// with this method and version, until the end of the body. The lock does so only with
/// `hold_until_body_end`, and if the response has a body and is not a refusal. The function also
/// warns of an upgrade: see [`warn_of_upgrade`].
pub(crate) fn outlives<R: Body>(
    response_options: &ResponseOptions,
    method: &Method,
    version: Version,
) -> fn(&Response<R>, &LayerHolds) -> bool {
    match response_options.hold_until_body_end && method != Method::HEAD {
        true if method == Method::CONNECT => |response, layer_holds| {
            warn_of_upgrade(is_tunnel(response.status()), &TUNNEL, layer_holds);
            !is_tunnel(response.status()) && has_body(response) && refusal(response).is_none()
        },
        false if method == Method::CONNECT => |response, layer_holds| {
            warn_of_upgrade(is_tunnel(response.status()), &TUNNEL, layer_holds);
            false
        },
        true if is_http1(version) => |response, layer_holds| {
            warn_of_upgrade(is_upgrade(response.status()), &UPGRADE, layer_holds);
            has_body(response) && length(response) != Some(0) && refusal(response).is_none()
        },
        true => |response, layer_holds| {
            warn_of_upgrade(is_upgrade(response.status()), &UPGRADE, layer_holds);
            has_body(response) && refusal(response).is_none()
        },
        false => |response, layer_holds| {
            warn_of_upgrade(is_upgrade(response.status()), &UPGRADE, layer_holds);
            false
        },
    }
}

fn is_http1(version: Version) -> bool {
    version <= Version::HTTP_11
}

/// Returns true if a body is sent with this response, unless the request is a HEAD.
fn has_body<R: Body>(response: &Response<R>) -> bool {
    let is_bodiless =
        [StatusCode::NO_CONTENT, StatusCode::NOT_MODIFIED].contains(&response.status());
    !is_bodiless && !response.body().is_end_stream()
}

/// Returns the number of bytes after which an HTTP/1 server drops the body, without a poll that
/// would show the end; `None` if the server polls the body to its end. On HTTP/2 trailers may
/// follow.
fn length<R: Body>(response: &Response<R>) -> Option<u64> {
    let headers = response.headers();
    match headers.get(CONTENT_LENGTH) {
        Some(length) => length.to_str().ok()?.parse().ok(),
        None if headers.contains_key(TRANSFER_ENCODING) => None,
        None => response.body().size_hint().exact(),
    }
}

fn is_upgrade(status: StatusCode) -> bool {
    status == StatusCode::SWITCHING_PROTOCOLS
}

/// Returns true if this response to CONNECT opens a tunnel, such as a WebSocket over HTTP/2 (RFC
/// 8441).
fn is_tunnel(status: StatusCode) -> bool {
    status.is_success()
}

/// True once an upgrade, or a tunnel, was warned of.
static UPGRADE: AtomicBool = AtomicBool::new(false);
static TUNNEL: AtomicBool = AtomicBool::new(false);

/// Logs a warning if the lock is released with a response that upgrades the connection: the socket
/// is then open without the lock. Logged once per process, by `warned`.
fn warn_of_upgrade(is_upgrade: bool, warned: &AtomicBool, layer_holds: &LayerHolds) {
    if is_upgrade && layer_holds.is_only_keeper() && !warned.swap(true, Ordering::Relaxed) {
        tracing::warn!(
            "the lock ends with the response, and the WebSocket continues without it: keep a guard \
             as long as the socket, from `OwnedLock` or `LockHandle::reenter` (logged once)"
        );
    }
}

/// Returns the error with which the inner service refused the request; `None` if the response is
/// not a refusal.
fn refusal<R>(response: &Response<R>) -> Option<&LockError> {
    response.extensions().get()
}

/// Returns the value of the header `Server-Timing`: the wait in milliseconds, and the number of
/// waiters ahead when the request was queued, if it was queued.
fn server_timing(waited: Duration, position: Option<u64>) -> HeaderValue {
    let mut text = format!("lock;dur={:.1}", waited.as_secs_f64() * 1e3);
    if let Some(position) = position {
        text += &format!(", lock-queue;desc={position}");
    }
    HeaderValue::try_from(text).expect("digits and names are visible ASCII")
}
