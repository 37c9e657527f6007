//! Keyboard input.

use std::thread;

use ratatui::crossterm::event::{self, Event, KeyEvent, KeyEventKind};
use tokio::sync::mpsc;

/// Starts to read the keyboard in a separate thread. The channel yields each pressed key, and
/// `None` when the terminal was resized. It closes when the terminal is closed.
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
