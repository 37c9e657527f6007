//! `Frames`: splits the bytes of a socket into whole requests or replies.

use tokio::io::AsyncReadExt;
use tokio::net::tcp::OwnedReadHalf;

use crate::resp;

/// The frames that arrive on a socket.
pub(super) struct Frames {
    socket: OwnedReadHalf,
    buffer: Vec<u8>,
}

impl Frames {
    pub(super) fn new(socket: OwnedReadHalf) -> Self {
        Self { socket, buffer: Vec::new() }
    }

    /// Returns the next complete frame; `None` when the other side has closed.
    pub(super) async fn next(&mut self) -> Option<Vec<u8>> {
        loop {
            if let Some(length) = resp::frame_length(&self.buffer) {
                return Some(self.buffer.drain(..length).collect());
            }
            self.buffer.reserve(16 * 1024);
            let count = self.socket.read_buf(&mut self.buffer).await.ok()?;
            if count == 0 {
                return None;
            }
        }
    }
}
