//! Bodies: whole, or in pieces sent by a test.

use bytes::Bytes;
use futures_util::stream;
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use tokio::sync::mpsc;
use tower::BoxError;

/// The body of every request and response.
pub type AnyBody = UnsyncBoxBody<Bytes, BoxError>;
/// A piece of a body from [`streamed`].
pub type Piece = Result<Frame<Bytes>, BoxError>;
/// The sender of pieces; dropping it ends the body.
pub type Pieces = mpsc::UnboundedSender<Piece>;

/// Returns a body with this text.
pub fn text(text: impl Into<Bytes>) -> AnyBody {
    Full::new(text.into()).map_err(Into::into).boxed_unsync()
}

/// Returns a piece with this text.
pub fn piece(text: &'static str) -> Piece {
    Ok(Frame::data(Bytes::from_static(text.as_bytes())))
}

/// Returns a body of the sent pieces; it ends when the sender is dropped.
pub fn streamed() -> (Pieces, AnyBody) {
    let (pieces, received) = mpsc::unbounded_channel();
    let frames = stream::unfold(received, async |mut received| {
        let piece: Piece = received.recv().await?;
        Some((piece, received))
    });
    (pieces, StreamBody::new(frames).boxed_unsync())
}
