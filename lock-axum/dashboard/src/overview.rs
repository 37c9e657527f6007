//! The page of all locks that are held or waited for.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use lockcore::{BusyLock, LockError, Locks};
use maud::{Markup, html};
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::accept::{Form, Query};
use super::page::{self, Page, age, ago, count, frame, lock_link, ms, optional_age, table, text};
use super::refusal::Refusal;
use super::{Board, Part};

/// The bounds of a survey.
const MOST_LOCKS: usize = 1_000;
const LONGEST: Duration = Duration::from_secs(2);
/// The age up to which a survey is shown again.
const FRESH: Duration = Duration::from_secs(2);

/// The last survey. One runs at a time, and requests that come meanwhile are shown the same.
#[derive(Debug, Default)]
pub(super) struct LastSurvey(Mutex<Option<(Instant, Arc<Overview>)>>);

/// The order in which locks are shown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
enum By {
    #[default]
    Waiting,
    OldestWait,
    OldestHolder,
}

impl By {
    const ALL: [(Self, &str, &str); 3] = [
        (Self::Waiting, "waiting", "Longest queue"),
        (Self::OldestWait, "oldest-wait", "Oldest wait"),
        (Self::OldestHolder, "oldest-holder", "Oldest holder"),
    ];

    fn of(self, lock: &Busy) -> u64 {
        match self {
            Self::Waiting => lock.waiting,
            Self::OldestWait => lock.next_waits_ms.unwrap_or_default(),
            Self::OldestHolder => lock.age_ms.unwrap_or_default(),
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(default)]
pub(super) struct Which {
    by: By,
    from: u32,
    most: u32,
}

impl Default for Which {
    fn default() -> Self {
        let Part { from, most } = Part::default();
        Self { by: By::default(), from, most }
    }
}

/// `GET /overview`
pub(super) async fn show(
    form: Form,
    Query(Which { by, from, most }): Query<Which>,
    State(board): State<Arc<Board>>,
) -> Response {
    let part = Part { from, most };
    let overview = board.survey.read(&board.locks).await;
    if let (true, Some(error)) = (overview.locks.is_empty(), &overview.failure) {
        return Refusal::of_lock(error.clone()).into_response(form);
    }
    let mut sorted: Vec<&Busy> = overview.locks.iter().collect();
    sorted.sort_by_key(|lock| (Reverse(by.of(lock)), Reverse(lock.waiting)));
    let shown = sorted.into_iter().skip(part.from as usize).take(part.most() as usize).collect();
    let view = View {
        overview: &overview,
        by,
        from: part.from,
        found: overview.locks.len(),
        locks: shown,
    };
    match form {
        Form::Json => page::json(&view),
        Form::Html | Form::Events => frame(Page::Overview, "All locks", None, view.markup()),
    }
}

/// The outcome of a survey.
#[derive(Debug, Serialize)]
pub(super) struct Overview {
    #[serde(skip)]
    locks: Vec<Busy>,
    /// Whether all keys were looked at.
    is_complete: bool,
    /// The steps that it took, and their time.
    steps: u32,
    took_ms: u64,
    /// Servers that did not answer.
    errors: Vec<String>,
    #[serde(skip)]
    failure: Option<LockError>,
}

#[derive(Debug, Serialize)]
struct View<'a> {
    #[serde(flatten)]
    overview: &'a Overview,
    /// The number of locks that were found.
    found: usize,
    by: By,
    from: u32,
    locks: Vec<&'a Busy>,
}

/// A lock that is held or waited for.
#[derive(Debug, Serialize)]
struct Busy {
    /// The name in the store; null where names are redacted.
    lock: Option<String>,
    /// The name by which this process acquires it.
    name: Option<String>,
    holding: u64,
    /// The holder whose lease ends first: its label, the time since it was first asked for, and
    /// its lease.
    holder: Option<String>,
    age_ms: Option<u64>,
    lease_ms: Option<u64>,
    waiting: u64,
    /// The time for which the next waiter has waited.
    next_waits_ms: Option<u64>,
}

impl LastSurvey {
    async fn read(&self, locks: &Locks) -> Arc<Overview> {
        let mut last = self.0.lock().await;
        if let Some((at, overview)) = &*last
            && at.elapsed() < FRESH
        {
            return Arc::clone(overview);
        }
        let overview = Arc::new(Overview::read(locks).await);
        *last = Some((Instant::now(), Arc::clone(&overview)));
        overview
    }
}

impl Overview {
    async fn read(locks: &Locks) -> Self {
        let begun = Instant::now();
        let mut survey = locks.survey();
        let (mut found, mut errors, mut failure) = (Vec::new(), Vec::new(), None);
        let (mut steps, mut is_complete) = (0, false);
        while found.len() < MOST_LOCKS && begun.elapsed() < LONGEST {
            match survey.next_page().await {
                Ok(None) => {
                    is_complete = errors.is_empty();
                    break;
                }
                Ok(Some(page)) => found.extend(page.into_iter().map(|lock| Busy::of(locks, lock))),
                Err(error) => {
                    let text = error.to_string();
                    if !errors.contains(&text) {
                        errors.push(text);
                    }
                    failure = Some(error);
                }
            }
            steps += 1;
        }
        let took_ms = ms(begun.elapsed());
        Self { locks: found, is_complete, steps, took_ms, errors, failure }
    }
}

impl View<'_> {
    fn markup(&self) -> Markup {
        let Overview { is_complete, steps, took_ms, errors, .. } = self.overview;
        html! {
            p.note {
                "Locks found: " (count(self.found as u64)) ", in " (age(*took_ms)) ". Steps: "
                (count((*steps).into())) ". "
                @if !is_complete { strong { "There may be more: the search was not finished. " } }
                "In each step the server looks at some 1 000 of all its keys, or at 64 locks: about "
                "a millisecond of its time. "
                a href={ "overview?by=" (self.by.word()) } { "Search again" }
            }
            @for error in errors { p.trouble { (text(error)) } }
            p.sorts {
                "First: "
                @for (by, word, title) in By::ALL {
                    a href={ "overview?by=" (word) } aria-current=[(by == self.by).then_some("true")] {
                        (title)
                    }
                    " "
                }
            }
            (table("busy", "Held or waited for",
                &["Lock", "Waiting", "Next has waited", "Held by", "Asked", "Lease left"],
                html! {
                    @for lock in &self.locks { (lock.row()) }
                    @if self.locks.is_empty() { tr { td colspan="6" { "None." } } }
                }))
            @if self.locks.len() < self.found {
                p.note {
                    (count(self.locks.len() as u64)) " of " (count(self.found as u64))
                    " are shown. As JSON, " code { "?from=" } " and " code { "&most=" }
                    " choose others."
                }
            }
        }
    }
}

impl By {
    fn word(self) -> &'static str {
        Self::ALL.iter().find(|(by, ..)| *by == self).map_or("waiting", |(_, word, _)| word)
    }
}

impl Busy {
    fn of(locks: &Locks, BusyLock { lock, inspection, .. }: BusyLock) -> Self {
        let first = inspection.holders.into_iter().next();
        let holder = first.as_ref();
        Self {
            name: lock.as_deref().and_then(|lock| locks.key_of(lock)),
            lock,
            holding: inspection.holding,
            age_ms: holder.and_then(|holder| holder.age).map(ms),
            lease_ms: holder.map(|holder| ms(holder.lease_left)),
            holder: first.map(|holder| holder.label.unwrap_or(holder.member)),
            waiting: inspection.waiting,
            next_waits_ms: inspection.waiters.first().and_then(|waiter| waiter.age).map(ms),
        }
    }

    fn row(&self) -> Markup {
        html! {
            tr {
                th scope="row" { (lock_link(self.lock.as_deref(), self.name.as_deref())) }
                td.number { (count(self.waiting)) }
                td.number { (optional_age(self.next_waits_ms)) }
                td {
                    @if let Some(holder) = &self.holder { (text(holder)) }
                    @if self.holding > 1 { " " span.soft { "and " (count(self.holding - 1)) " more" } }
                }
                td.number { (ago(self.age_ms)) }
                td.number { (optional_age(self.lease_ms)) }
            }
        }
    }
}
