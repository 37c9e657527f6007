//! Keyboard input.

use std::thread;

use ratatui::crossterm::event::{self, Event, KeyEvent, KeyEventKind};
use tokio::sync::mpsc;

/// Returns pressed keys, and `None` when the terminal was resized. The channel closes with the
/// terminal.
pub(super) fn listen() -> mpsc::UnboundedReceiver<Option<KeyEvent>> {
    let (sender, receiver) = mpsc::unbounded_channel();
    // The thread blocks in a system call for the next key, and ends with the process.
    thread::spawn(move || {
        while let Ok(event) = event::read() {
            let key = match event {
                Event::Key(key) if key.kind != KeyEventKind::Release => Some(key),
                Event::Resize(..) => None,
                _ => continue,
            };
            if sender.send(key).is_err() {
                return;
            }
        }
    });
    receiver
}
