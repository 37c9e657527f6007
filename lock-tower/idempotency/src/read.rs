//! Reads the whole request body before the wait for the lock, within bounds for size, memory and
//! time.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use http::HeaderMap;
use http_body::Body;
use tokio::time::timeout;

use crate::frame::next_frame;
use crate::refusal::{Cause, Refusal};

/// The limits within which the layer reads a request body, before the request queues.
#[derive(Debug, Clone)]
pub(crate) struct ReadBounds {
    /// The maximum size in bytes for a single body.
    pub(crate) each: usize,
    /// The memory that the bodies of all requests share. A request whose body does not fit is
    /// refused.
    pub(crate) room: Arc<Room>,
    /// The maximum time until a body has arrived completely.
    pub(crate) within: Duration,
}

/// The memory for request bodies, shared by a layer and its clones. Stores how many bytes are free.
#[derive(Debug)]
pub(crate) struct Room {
    free: AtomicUsize,
}

impl Room {
    pub(crate) fn new(bytes: usize) -> Arc<Self> {
        Arc::new(Self { free: AtomicUsize::new(bytes) })
    }

    /// Takes this many bytes. Returns false, and takes nothing, if fewer are free.
    fn take(&self, bytes: usize) -> bool {
        let take = |free: usize| free.checked_sub(bytes);
        self.free.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
    }
}

/// Bytes in a [`Room`] that a request body occupies, freed on drop.
#[derive(Debug)]
pub(crate) struct Reserved {
    room: Arc<Room>,
    bytes: usize,
}

impl Reserved {
    /// Reserves more bytes. Returns false, and reserves nothing, if fewer are free.
    fn grow(&mut self, bytes: usize) -> bool {
        let is_taken = self.room.take(bytes);
        if is_taken {
            self.bytes += bytes;
        }
        is_taken
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.room.free.fetch_add(self.bytes, Ordering::Relaxed);
    }
}

/// A completely read request body.
#[derive(Debug)]
pub(crate) struct WholeBody {
    pub(crate) data: Bytes,
    pub(crate) trailers: Option<HeaderMap>,
    pub(crate) reserved: Reserved,
}

impl ReadBounds {
    /// Reads a body completely. Returns a refusal if the body fails or exceeds a bound.
    ///
    /// Dropping the future drops the body, and frees the reserved memory.
    pub(crate) async fn read<B: Body>(&self, body: B) -> Result<WholeBody, Refusal> {
        // Refused before the first read, so that a client that waits for `100 Continue` does not
        // send the body.
        if body.size_hint().lower() > self.each as u64 {
            return Err(Refusal::new(Cause::BodyTooLarge));
        }
        match timeout(self.within, self.read_frames(body)).await {
            Ok(read) => read,
            Err(_) => Err(Refusal::new(Cause::BodyTimeout)),
        }
    }

    async fn read_frames<B: Body>(&self, body: B) -> Result<WholeBody, Refusal> {
        let mut body = pin!(body);
        let mut data = BytesMut::new();
        let mut trailers = None;
        let mut reserved = Reserved { room: Arc::clone(&self.room), bytes: 0 };
        while let Some(frame) = next_frame(body.as_mut()).await {
            let frame = frame.map_err(|_| Refusal::new(Cause::BodyFailed))?;
            match frame.into_data() {
                Ok(piece) => {
                    if piece.remaining() > self.each - data.len() {
                        return Err(Refusal::new(Cause::BodyTooLarge));
                    }
                    if !reserved.grow(piece.remaining()) {
                        return Err(Refusal::new(Cause::BodyRoomFull));
                    }
                    data.put(piece);
                }
                Err(frame) => trailers = frame.into_trailers().ok().or(trailers),
            }
        }
        Ok(WholeBody { data: data.freeze(), trailers, reserved })
    }
}
