//! The screen state, and how keys and surveys change it.

use lockcore::LockKey;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::one::{self, One};
use super::order::Order;
use super::peaks::Peaks;
use crate::busy::{self, Look};

/// The number of rows by which a page key moves.
const PAGE: usize = 10;

/// The state of the screen of `lockctl top`: what is shown, and what the user has selected.
#[derive(Debug)]
pub(super) struct View {
    pub(super) order: Order,
    /// The last survey, with the locks in the order shown. A survey without any lock because of an
    /// error does not replace it.
    pub(super) look: Option<Look>,
    /// The error of the latest survey, if any: some or all locks in `look` are missing or outdated.
    pub(super) trouble: Option<String>,
    pub(super) selected: usize,
    /// The longest queues since `top` started.
    pub(super) peaks: Peaks,
    /// Whether `peaks` is shown instead of `look`.
    pub(super) shows_peaks: bool,
    /// The lock that is shown alone; `None` while the list is shown.
    pub(super) one: Option<One>,
    /// The lock name that the user is typing; `None` if the user types none.
    pub(super) typed: Option<String>,
}

impl View {
    pub(super) fn new(order: Order, name: Option<String>) -> Self {
        let one = name.map(One::new);
        let (look, trouble, typed) = (None, None, None);
        let (peaks, shows_peaks) = (Peaks::default(), false);
        Self { order, look, trouble, selected: 0, peaks, shows_peaks, one, typed }
    }

    /// Returns the name of the lock to inspect, the one that is shown alone. `None` while the list
    /// is shown: all locks are then surveyed.
    pub(super) fn wanted(&self) -> Option<String> {
        self.one.as_ref().map(|one| one.name.clone())
    }

    pub(super) fn take(&mut self, mut look: Look) {
        self.trouble = look.trouble.as_ref().map(ToString::to_string);
        if self.trouble.is_some() && look.locks.is_empty() {
            // The earlier locks are more informative than an empty list.
            return;
        }
        let selected = self.selected_name();
        self.order.sort(&mut look.locks);
        self.peaks.note(&look);
        self.look = Some(look);
        self.select(selected);
    }

    pub(super) fn take_one(&mut self, look: one::Look) {
        if let Some(one) = &mut self.one {
            one.take(look);
        }
    }

    /// Handles a pressed key, or a resized terminal (`None`). Returns false if the user wants to
    /// quit.
    pub(super) fn press(&mut self, key: Option<KeyEvent>) -> bool {
        let Some(key) = key else { return true };
        if key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL) {
            return false;
        }
        match (self.typed.is_some(), self.one.is_some()) {
            (true, _) => self.type_name(key.code),
            (_, true) => self.press_in_one(key.code),
            _ => self.press_in_list(key.code),
        }
    }

    fn type_name(&mut self, key: KeyCode) -> bool {
        let Some(typed) = &mut self.typed else { return true };
        match key {
            KeyCode::Char(c) => typed.push(c),
            KeyCode::Backspace => drop(typed.pop()),
            KeyCode::Enter if LockKey::new(typed.as_str()).is_ok() => {
                self.one = self.typed.take().map(One::new);
            }
            KeyCode::Esc => self.typed = None,
            _ => {}
        }
        true
    }

    fn press_in_one(&mut self, key: KeyCode) -> bool {
        let Some(one) = &mut self.one else { return true };
        let last = one.last.as_ref().map_or(0, |(found, ..)| found.waiters.len().saturating_sub(1));
        match key {
            KeyCode::Char('q') => return false,
            KeyCode::Esc | KeyCode::Backspace | KeyCode::Left => self.one = None,
            key => one.from = moved(one.from, last, key),
        }
        true
    }

    fn press_in_list(&mut self, key: KeyCode) -> bool {
        let last = self.names().len().saturating_sub(1);
        match key {
            KeyCode::Esc if self.shows_peaks => (self.shows_peaks, self.selected) = (false, 0),
            KeyCode::Char('h') => (self.shows_peaks, self.selected) = (!self.shows_peaks, 0),
            KeyCode::Char('q') | KeyCode::Esc => return false,
            KeyCode::Char('s') => {
                self.order = self.order.next();
                if let Some(look) = &mut self.look {
                    self.order.sort(&mut look.locks);
                }
                self.selected = 0;
            }
            KeyCode::Char('/') => self.typed = Some(String::new()),
            KeyCode::Enter | KeyCode::Right => {
                self.one = self.selected_name().map(One::new);
            }
            key => self.selected = moved(self.selected, last, key),
        }
        true
    }

    /// Returns the names in the shown list, from top to bottom.
    fn names(&self) -> Vec<&str> {
        match self.shows_peaks {
            true => self.peaks.sorted().into_iter().map(|(name, _)| name).collect(),
            false => self.look.iter().flat_map(|look| &look.locks).map(busy::name).collect(),
        }
    }

    fn selected_name(&self) -> Option<String> {
        self.names().get(self.selected).map(|name| (*name).to_owned())
    }

    /// Selects the row of the lock with this name, after a new survey has moved it. If the lock is
    /// gone, the selected row stays.
    fn select(&mut self, name: Option<String>) {
        let names = self.names();
        // The first row stays selected: it is the busiest lock, whatever the name.
        let row = match (self.selected, name) {
            (0, _) | (_, None) => None,
            (_, Some(name)) => names.iter().position(|other| *other == name),
        };
        self.selected = row.unwrap_or(self.selected).min(names.len().saturating_sub(1));
    }
}

/// Returns the row that is selected after this key. A key that is not a movement key changes
/// nothing.
fn moved(row: usize, last: usize, key: KeyCode) -> usize {
    let row = match key {
        KeyCode::Down | KeyCode::Char('j') => row.saturating_add(1),
        KeyCode::Up | KeyCode::Char('k') => row.saturating_sub(1),
        KeyCode::PageDown => row.saturating_add(PAGE),
        KeyCode::PageUp => row.saturating_sub(PAGE),
        KeyCode::Home => 0,
        KeyCode::End => last,
        _ => row,
    };
    row.min(last)
}
