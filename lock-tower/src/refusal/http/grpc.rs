//! A refusal in gRPC or gRPC-Web format, in the headers or as trailers.

use bytes::{BufMut as _, Bytes, BytesMut};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue, Response};
use http_body::Frame;

use crate::refusal::LockError;
use crate::refusal::http::problem::{detail, jittered};

const STATUS: HeaderName = HeaderName::from_static("grpc-status");
const MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");
const CODE: HeaderName = HeaderName::from_static("lock-code");

/// The kind of gRPC that a client speaks.
#[derive(Debug, Clone, Default)]
pub(crate) enum Dialect {
    /// Plain gRPC, with HTTP trailers.
    #[default]
    Grpc,
    /// gRPC-Web: trailers are the last body frame, because browsers cannot read HTTP trailers.
    Web {
        /// The content type of the request, which the response repeats.
        content_type: HeaderValue,
        /// True if the body is Base64 text.
        is_text: bool,
    },
}

impl Dialect {
    /// Returns the kind of gRPC that the request's `content-type` names; `None` if the request is
    /// not gRPC.
    pub(crate) fn of(headers: &HeaderMap) -> Option<Self> {
        let content_type = headers.get(CONTENT_TYPE)?;
        let format = content_type.to_str().ok()?.strip_prefix("application/grpc")?;
        let Some(web) = format.strip_prefix("-web") else { return Some(Self::Grpc) };
        let is_text = web.starts_with("-text");
        Some(Self::Web { content_type: content_type.clone(), is_text })
    }

    /// Makes the response for an error, with status, message and code as headers (gRPC) or in the
    /// body (gRPC-Web).
    pub(crate) fn response(&self, error: &LockError) -> Response<Bytes> {
        let mut response = Response::new(Bytes::new());
        let content_type = match self {
            Self::Grpc => {
                *response.headers_mut() = error.grpc_trailers();
                HeaderValue::from_static("application/grpc")
            }
            Self::Web { content_type, is_text } => {
                *response.body_mut() = web_frame(&error.grpc_trailers(), *is_text);
                content_type.clone()
            }
        };
        response.headers_mut().insert(CONTENT_TYPE, content_type);
        response
    }

    /// Returns the last frame, with the error as trailers, of a response body that ends early
    /// because its lock was lost.
    pub(crate) fn last_frame<D: From<Bytes>>(&self, error: &LockError) -> Frame<D> {
        match self {
            Self::Grpc => Frame::trailers(error.grpc_trailers()),
            Self::Web { is_text, .. } => {
                Frame::data(web_frame(&error.grpc_trailers(), *is_text).into())
            }
        }
    }
}

impl LockError {
    /// Returns the refusal in gRPC format, for headers or trailers: `grpc-status`, `grpc-message`,
    /// and the [machine-readable name](crate::Cause::code) as `lock-code`. If a retry is useful,
    /// `grpc-retry-pushback-ms` says after how many milliseconds. Clients with a retry policy obey
    /// it.
    ///
    /// For methods that acquire their locks themselves. tonic keeps `lock-code` and
    /// `grpc-retry-pushback-ms` as status metadata:
    ///
    /// ```
    /// use lock_tower::{Keys, LockError, RequestLocks};
    /// use tonic::{Request, Response, Status};
    ///
    /// fn refused(error: LockError) -> Status {
    ///     Status::from_header_map(&error.grpc_trailers()).expect("it has a status")
    /// }
    ///
    /// async fn pay(request: Request<u64>) -> Result<Response<()>, Status> {
    ///     let locks = RequestLocks::of(request.extensions()).map_err(refused)?; // of a LockScopeLayer
    ///     locks.lock(Keys::one(format!("order:{}", request.get_ref()))).await.map_err(refused)?;
    ///     Ok(Response::new(())) // held until the response has been sent
    /// }
    /// ```
    pub fn grpc_trailers(&self) -> HeaderMap {
        let cause = self.cause();
        let mut trailers = HeaderMap::with_capacity(4);
        trailers.insert(STATUS, HeaderValue::from(cause.grpc_code()));
        let message = HeaderValue::try_from(percent_encoded(&detail(self)));
        trailers.insert(MESSAGE, message.expect("characters other than visible ASCII are encoded"));
        trailers.insert(CODE, HeaderValue::from_static(cause.code()));
        if let Some(hint) = self.retry_after() {
            trailers.insert(PUSHBACK, HeaderValue::from(jittered(hint.as_millis() as u64)));
        }
        trailers
    }
}

/// Encodes trailers as the last frame of a gRPC-Web body.
fn web_frame(trailers: &HeaderMap, is_text: bool) -> Bytes {
    let mut block = BytesMut::new();
    for (name, value) in trailers {
        block.put_slice(name.as_str().as_bytes());
        block.put_u8(b':');
        block.put_slice(value.as_bytes());
        block.put_slice(b"\r\n");
    }
    let mut frame = BytesMut::with_capacity(block.len() + 5);
    frame.put_u8(0x80); // trailers, not compressed
    frame.put_u32(block.len() as u32);
    frame.put_slice(&block);
    match is_text {
        true => base64(&frame).into(),
        false => frame.freeze(),
    }
}

/// Percent-encodes a text for the header `grpc-message`.
fn percent_encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'%' | 0..=0x1f | 0x7f..=0xff => encoded.push_str(&format!("%{byte:02X}")),
            byte => encoded.push(char::from(byte)),
        }
    }
    encoded
}

/// Encodes the bytes in Base64 with padding, as in gRPC-Web.
fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let byte = |at: usize| u32::from(chunk.get(at).copied().unwrap_or_default());
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for at in 0..4 {
            text.push(match at <= chunk.len() {
                true => char::from(ALPHABET[(bits >> (18 - 6 * at) & 63) as usize]),
                false => '=',
            });
        }
    }
    text
}
