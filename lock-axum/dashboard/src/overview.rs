//! The page of all held or awaited locks.

use std::cmp::Reverse;
use std::future::pending;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use lockcore::operate::BusyLock;
use lockcore::{LockError, Locks};
use maud::{Markup, html};
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;
use tokio::task::JoinError;
use tokio::time::Instant;

use super::accept::Query;
use super::form::Form;
use super::live;
use super::page::{
    self, Page, Parts, age, ago, count, frame, label_or, lock_link, ms, optional_age, table, text,
};
use super::refusal::Refusal;
use super::turns::Queues;
use super::{Board, Part, Topic};

/// The number of found locks at which a survey ends. A survey searches the store for held or
/// awaited locks.
const MOST_LOCKS: usize = 1_000;
/// The time after which a survey ends, even if it has not searched the whole store.
const LONGEST: Duration = Duration::from_secs(2);
/// The minimum time between the end of a survey and the next survey. Meanwhile, all requests
/// receive the result of the last survey.
const FRESH: Duration = Duration::from_secs(2);
/// The minimum time between the end of a survey and the next survey, as a multiple of the last
/// survey's duration. The longer of this time and [`FRESH`] applies. With 4, surveys run for at
/// most a fifth of the time, however many pages are open.
const PAUSE: u32 = 4;
/// The maximum length of the filter text, in bytes. A longer text is cut.
const MAX_TEXT: usize = 512;

/// The last survey's result, the held or awaited locks, which requests share until it is too old.
/// Only one survey runs at a time; other requests wait for its result.
#[derive(Debug)]
pub(super) struct LastSurvey {
    last: Arc<Mutex<Option<Arc<Overview>>>>,
    queues: Arc<Queues>,
}

impl Default for LastSurvey {
    fn default() -> Self {
        // More than a survey finds, so that its locks do not replace each other.
        Self { last: Arc::default(), queues: Arc::new(Queues::new(2 * MOST_LOCKS)) }
    }
}

/// The number by which the page sorts locks, highest first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
enum By {
    #[default]
    Waiting,
    OldestWait,
    OldestHolder,
}

impl By {
    /// Each sort order, with the value of `by` in the URL and the text of the link.
    const ALL: [(Self, &str, &str); 3] = [
        (Self::Waiting, "waiting", "Longest queue"),
        (Self::OldestWait, "oldest-wait", "Oldest wait"),
        (Self::OldestHolder, "oldest-holder", "Oldest holder"),
    ];

    /// Returns the number by which this order sorts: the length of the lock's queue, or the age in
    /// ms of the next waiter or of the holder whose lease ends first.
    fn of(self, lock: &Busy) -> u64 {
        match self {
            Self::Waiting => lock.waiting,
            Self::OldestWait => lock.next_waits_ms.unwrap_or_default(),
            Self::OldestHolder => lock.age_ms.unwrap_or_default(),
        }
    }
}

/// The query parameters of the overview: the sort order, the filter text, and the part of the list
/// to show.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Deserialize)]
#[serde(default)]
pub(super) struct Which {
    by: By,
    /// Shows only locks with this text in the lock name or the holder's label. Case is ignored.
    has: String,
    from: u32,
    most: u32,
}

impl Default for Which {
    fn default() -> Self {
        let Part { from, most } = Part::default();
        Self { by: By::default(), has: String::new(), from, most }
    }
}

/// Handles `GET /overview`: returns the page, the JSON or an event stream.
pub(super) async fn show(
    form: Form,
    Query(mut which): Query<Which>,
    State(board): State<Arc<Board>>,
) -> Response {
    let end = (0..=MAX_TEXT).rfind(|end| which.has.is_char_boundary(*end)).unwrap_or(0);
    which.has.truncate(end);
    if form == Form::Events {
        return live::events(&board, Topic::Overview(which));
    }
    let overview = board.survey.read(&board.locks).await;
    if let (true, Some(error)) = (overview.locks.is_empty(), &overview.failure) {
        return Refusal::of_lock(error.clone()).into_response(form);
    }
    let view = View::of(&overview, &which);
    if form == Form::Json {
        return page::json(&view);
    }
    let parts = Parts { notes: Some(which.choices()), live: Some(view.markup()), rest: None };
    frame(Page::Overview, "All locks", parts)
}

/// Renders the list of locks, which is updated while the page is open.
pub(super) async fn fragment(board: &Board, which: &Which) -> Markup {
    View::of(&*board.survey.read(&board.locks).await, which).markup()
}

impl Which {
    /// Renders the filter form and the links that change the order.
    fn choices(&self) -> Markup {
        html! {
            form.look.filter action="overview" method="get" {
                input type="hidden" name="by" value=(self.by.word());
                label for="has" { "Filter" }
                input #has name="has" value=(self.has) maxlength=(MAX_TEXT) type="search"
                    placeholder="part of a lock name or holder label" autocomplete="off"
                    autocapitalize="none" spellcheck="false";
                button type="submit" { "Apply" }
            }
            p.sorts {
                "Sort: "
                @for (by, word, title) in By::ALL {
                    a href=(self.path(word)) aria-current=[(by == self.by).then_some("true")] {
                        (title)
                    }
                    " "
                }
            }
        }
    }

    /// Returns the relative URL of the overview with this order and the same filter.
    fn path(&self, by: &str) -> String {
        match self.has.as_str() {
            "" => format!("overview?by={by}"),
            has => format!("overview?by={by}&has={}", page::encoded(has)),
        }
    }
}

/// The result of a survey: the held or awaited locks, and how the search for them ended.
#[derive(Debug, Serialize)]
pub(super) struct Overview {
    #[serde(skip)]
    locks: Vec<Busy>,
    /// True if the survey has searched the whole store. False if the survey ended early, or if a
    /// server did not respond.
    is_complete: bool,
    /// How many steps the survey took. Each step searches some keys, or inspects some locks.
    steps: u32,
    /// The survey's duration, in ms.
    took_ms: u64,
    #[serde(skip)]
    ended: Instant,
    /// The number of names left out because their keys belong to another program, or to processes
    /// with another version of lockcore.
    unreadable: u64,
    /// The errors of servers that did not respond to the survey, each text once.
    errors: Vec<String>,
    /// The last error in `errors`. It becomes the response if the survey found no lock.
    #[serde(skip)]
    failure: Option<LockError>,
}

/// The content of the overview, also sent as JSON: the locks that match the filter, sorted.
#[derive(Debug, Serialize)]
struct View<'a> {
    #[serde(flatten)]
    overview: &'a Overview,
    /// The number of held or awaited locks that were found in the store.
    found: usize,
    /// The number of found locks that match the filter text.
    matching: usize,
    by: By,
    has: &'a str,
    from: u32,
    locks: Vec<&'a Busy>,
}

/// A held or awaited lock.
#[derive(Debug, Serialize)]
struct Busy {
    /// The lock name in the store; null if names are redacted.
    lock: Option<String>,
    /// The lock name as this process passes it to `Locks`, without the namespace; null if names are
    /// redacted, or if the lock is outside the namespace.
    name: Option<String>,
    holding: u64,
    /// The label of the holder whose lease ends first, or the text that stands for the holder in
    /// the store if there is no label. `None` if nobody holds the lock.
    holder: Option<String>,
    /// The time since the holder whose lease ends first requested the lock, in ms, including the
    /// wait. `None` without a holder, and for other programs, such as a JVM service.
    age_ms: Option<u64>,
    /// The remaining lease of the holder whose lease ends first, in ms; `None` without a holder.
    lease_ms: Option<u64>,
    waiting: u64,
    /// How long the next waiter has waited, in ms; `None` without a waiter, and for other programs.
    next_waits_ms: Option<u64>,
    /// An upper bound for the time until the next waiter's turn, in ms, if the queue continues at
    /// the observed rate of turns. `None` without a waiter, and before two turns were observed.
    turn_in_ms: Option<u64>,
}

impl LastSurvey {
    /// Returns the last survey's result. Runs a new survey if there is none, or if the last survey
    /// ended longer ago than [`FRESH`] and [`PAUSE`] allow. If the caller drops the future, a
    /// survey that has begun continues to its end, and its result is kept.
    pub(super) async fn read(&self, locks: &Locks) -> Arc<Overview> {
        let mut last = Arc::clone(&self.last).lock_owned().await;
        if let Some(overview) = &*last
            && overview.ended.elapsed() < FRESH.max(PAUSE * Duration::from_millis(overview.took_ms))
        {
            return Arc::clone(overview);
        }
        let (locks, queues) = (locks.clone(), Arc::clone(&self.queues));
        // Runs as a task, because a survey that ended with its request would leave no result, and
        // the next request would start another at once. The task keeps the mutex locked.
        let survey = tokio::spawn(async move {
            let overview = Arc::new(Overview::read(&locks, &queues).await);
            *last = Some(Arc::clone(&overview));
            overview
        });
        match survey.await.map_err(JoinError::try_into_panic) {
            Ok(overview) => overview,
            Err(Ok(panic)) => resume_unwind(panic),
            Err(Err(_)) => pending().await, // the runtime is ending, and so is this future
        }
    }
}

impl Overview {
    /// Returns the lock names as this process passes them to `Locks`. For a lock outside the
    /// process's namespace, this is the name in the store.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.locks.iter().filter_map(|lock| lock.name.as_deref().or(lock.lock.as_deref()))
    }

    /// Runs a survey until it is complete, has found [`MOST_LOCKS`] locks or has taken [`LONGEST`].
    /// An error of a server does not end the survey.
    async fn read(locks: &Locks, queues: &Queues) -> Self {
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
                Ok(Some(page)) => {
                    found.extend(page.into_iter().map(|lock| Busy::of(locks, queues, lock)));
                }
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
        let (ended, unreadable) = (Instant::now(), survey.unreadable());
        let took_ms = ms(ended.duration_since(begun));
        Self { locks: found, is_complete, steps, took_ms, ended, unreadable, errors, failure }
    }
}

impl<'a> View<'a> {
    fn of(overview: &'a Overview, which: &'a Which) -> Self {
        let Which { by, has, from, most } = which;
        let lower = has.to_lowercase();
        let mut locks: Vec<&Busy> = overview.locks.iter().filter(|lock| lock.has(&lower)).collect();
        let matching = locks.len();
        locks.sort_by_key(|lock| (Reverse(by.of(lock)), Reverse(lock.waiting)));
        let part = Part { from: *from, most: *most };
        let shown = locks.into_iter().skip(part.from as usize).take(part.most() as usize);
        let (found, locks) = (overview.locks.len(), shown.collect());
        Self { overview, found, matching, by: *by, has, from: *from, locks }
    }

    fn markup(&self) -> Markup {
        let Overview { is_complete, steps, took_ms, unreadable, errors, .. } = self.overview;
        html! {
            p.note {
                "Locks found: " (count(self.found as u64)) ", in " (age(*took_ms)) ". Steps: "
                (count((*steps).into())) ". "
                @if !self.has.is_empty() {
                    (count(self.matching as u64)) " match the filter. "
                }
                @if !is_complete { strong { "There may be more: the search did not finish. " } }
            }
            @if *unreadable > 0 {
                p.trouble {
                    (count(*unreadable)) " more cannot be read: the keys belong to another program, \
                     or to processes with another version of lockcore."
                }
            }
            @for error in errors { p.trouble { (text(error)) } }
            (table("busy", "Held or awaited",
                &[
                    "Lock", "Waiting", "Held by", "Next has waited", "Turn in", "Requested",
                    "Lease left",
                ],
                html! {
                    @for lock in &self.locks { (lock.row()) }
                    @if self.locks.is_empty() { tr { td colspan="7" { "None." } } }
                }))
            p.soft {
                "Each step searches about 1 000 keys or inspects 64 locks, and takes about a \
                 millisecond of server time. Searches start at most every 2 s, and run for at most \
                 a fifth of the time."
            }
            @if self.locks.len() < self.matching {
                p.note {
                    (count(self.locks.len() as u64)) " of " (count(self.matching as u64))
                    " are shown. In JSON, " code { "?from=" } " and " code { "&most=" }
                    " select others."
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
    fn of(locks: &Locks, queues: &Queues, BusyLock { lock, inspection, .. }: BusyLock) -> Self {
        // Only the next waiter is known, so several turns between two surveys count as one.
        let turn = match lock.as_deref() {
            Some(lock) => queues.note(lock, 0, inspection.waiters.get(..1).unwrap_or_default()),
            None => None,
        };
        let holder = inspection.holders.first();
        Self {
            name: lock.as_deref().and_then(|lock| locks.key_of(lock)),
            lock,
            holding: inspection.holding,
            age_ms: holder.and_then(|holder| holder.age).map(ms),
            lease_ms: holder.map(|holder| ms(holder.lease_left)),
            holder: holder
                .map(|holder| label_or(holder.label.as_deref(), &holder.member).to_owned()),
            waiting: inspection.waiting,
            next_waits_ms: inspection.waiters.first().and_then(|waiter| waiter.age).map(ms),
            turn_in_ms: turn.map(ms),
        }
    }

    /// Returns true if one of the lock's names or the holder contains `text`, in any case. `text`
    /// must be in lower case.
    fn has(&self, text: &str) -> bool {
        let texts = [&self.name, &self.lock, &self.holder];
        text.is_empty() || texts.into_iter().flatten().any(|of| of.to_lowercase().contains(text))
    }

    fn row(&self) -> Markup {
        html! {
            tr {
                th scope="row" { (lock_link(self.lock.as_deref(), self.name.as_deref())) }
                td.number { (count(self.waiting)) }
                td {
                    @if let Some(holder) = &self.holder { (text(holder)) }
                    @if self.holding > 1 { " " span.soft { "and " (count(self.holding - 1)) " more" } }
                }
                td.number { (optional_age(self.next_waits_ms)) }
                td.number {
                    @if let Some(turn) = self.turn_in_ms { "within " (age(turn)) } @else { "–" }
                }
                td.number { (ago(self.age_ms)) }
                td.number { (optional_age(self.lease_ms)) }
            }
        }
    }
}
