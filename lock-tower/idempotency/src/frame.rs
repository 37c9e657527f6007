//! Reads the frames of a body.

use std::future::poll_fn;
use std::pin::Pin;

use http_body::{Body, Frame};

/// Returns the next frame; `None` at the end. Dropping the future loses nothing.
pub(crate) async fn next_frame<B: Body>(
    mut body: Pin<&mut B>,
) -> Option<Result<Frame<B::Data>, B::Error>> {
    poll_fn(|cx| body.as_mut().poll_frame(cx)).await
}
