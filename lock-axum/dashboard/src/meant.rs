//! Suggestions of other names when the requested lock is free. Operators may have copied the name
//! from a log, where it includes the namespace, or from a service's code, where it lacks the
//! namespace.
//!
//! The page only suggests names, because it must never act on a lock that the operator did not
//! name.

use maud::{Markup, html};

use super::Board;
use super::page::{lock_path, text};

/// The maximum number of lock names that the page suggests for a free name.
const MOST: usize = 5;

/// Returns names to suggest for a name whose lock is free: the same name without the namespace, or
/// at most [`MOST`] names that end with a colon or a slash and this name. All suggested locks are
/// held or awaited now.
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

/// Renders the question whether one of these names was meant, or nothing if there are none.
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
