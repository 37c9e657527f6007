//! Reads frames from a body.

use std::future::poll_fn;
use std::pin::Pin;

use http_body::{Body, Frame};

/// Waits for the body's next frame. Returns `None` when the body has ended. Dropping the future
/// loses no frame.
pub(crate) async fn next_frame<B: Body>(
    mut body: Pin<&mut B>,
) -> Option<Result<Frame<B::Data>, B::Error>> {
    poll_fn(|cx| body.as_mut().poll_frame(cx)).await
}
