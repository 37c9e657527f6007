//! The keys that are pressed.

use std::thread;

use ratatui::crossterm::event::{self, Event, KeyEvent, KeyEventKind};
use tokio::sync::mpsc;

/// A key, or `None` for a terminal that has another size now. The channel ends with the terminal.
pub(super) fn listen() -> mpsc::UnboundedReceiver<Option<KeyEvent>> {
    let (sender, receiver) = mpsc::unbounded_channel();
    // It waits in the system for the next key, and ends with the process.
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
