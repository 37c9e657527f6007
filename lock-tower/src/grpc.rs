//! A refusal as gRPC has it: a response that consists of its headers only.

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response};

use crate::error::LockError;
use crate::problem::detail;

pub(crate) fn response(error: &LockError) -> Response<Bytes> {
    let mut response = Response::new(Bytes::new());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    headers.insert("grpc-status", HeaderValue::from_static(error.cause().grpc_code()));
    if let Ok(message) = HeaderValue::try_from(percent_encoded(&detail(error))) {
        headers.insert("grpc-message", message);
    }
    response
}

/// As gRPC asks for in `grpc-message`.
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
