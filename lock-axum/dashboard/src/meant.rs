//! The locks that may be meant, where the name that was looked up is free: a name that is copied
//! from a log has the namespace in front, and a name from the code of a service has none.
//!
//! They are only named: nothing is done to a lock whose own name was not given.

use maud::{Markup, html};

use super::Board;
use super::page::{lock_path, text};

/// The most names that are shown.
const MOST: usize = 5;

/// The locks that may be meant by a name that is free: those that are held or waited for now.
pub(super) async fn by(board: &Board, name: &str) -> Vec<String> {
    if let Some(short) = board.locks.key_of(name).filter(|short| short != name)
        && let Ok(found) = board.locks.inspect_part(short.as_str(), 0, 1).await
        && found.holding + found.waiting > 0
    {
        return vec![short];
    }
    let overview = board.survey.read(&board.locks).await;
    let ends_so =
        |of: &&str| of.strip_suffix(name).is_some_and(|before| before.ends_with([':', '/']));
    let names = overview.names();
    names.filter(ends_so).take(MOST).map(str::to_owned).collect()
}

/// The question, or nothing.
pub(super) fn question(meant: &[String]) -> Markup {
    html! {
        @if !meant.is_empty() {
            p #meant .note role="status" {
                "This name was free when the page was opened. Did you mean "
                @for (at, name) in meant.iter().enumerate() {
                    @if at > 0 { ", or " }
                    a href=(lock_path(name, 0)) { (text(name)) }
                }
                "?"
            }
        }
    }
}
