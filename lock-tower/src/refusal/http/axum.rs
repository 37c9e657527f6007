//! A refusal as an axum response.

use axum_core::body::Body;
use axum_core::response::{IntoResponse, Response};

use crate::refusal::LockError;

impl IntoResponse for LockError {
    /// Makes the response with [`to_response`](Self::to_response), and logs it like axum's own
    /// rejections, so that one filter shows all of them.
    fn into_response(self) -> Response {
        let response = self.to_response();
        tracing::event!(
            target: "axum::rejection",
            tracing::Level::TRACE,
            status = response.status().as_u16(),
            body = %String::from_utf8_lossy(response.body()),
            rejection_type = std::any::type_name::<Self>(),
            "rejecting request",
        );
        response.map(Body::from)
    }
}
