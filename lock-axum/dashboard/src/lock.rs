//! The page for a lock: its holders and its queue.

use std::cmp::Reverse;
use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use http::HeaderMap;
use lockcore::LockError;
use lockcore::operate::{LockInspection, Participant};
use maud::{Markup, html};
use serde::{Deserialize, Serialize};

use super::accept::Query;
use super::form::Form;
use super::live;
use super::meant;
use super::page::{
    self, Page, Parts, age, ago, count, demand, frame, label_or, lock_path, ms, optional_age,
    table, text, visible,
};
use super::refusal::Refusal;
use super::release::{self, MOST_SENT, Token};
use super::{Board, Part, Topic};

/// The query parameters of a lock's page: the lock name, and the part of the queue to show.
#[derive(Debug, Deserialize)]
pub(super) struct Which {
    name: String,
    /// Set if the browser opens the page after a forced release: true if there was a hold to
    /// release, false if the lock was free.
    released: Option<bool>,
    #[serde(default)]
    from: u32,
    most: Option<u32>,
}

/// Handles `GET /lock`: returns the page, the JSON or an event stream.
pub(super) async fn show(
    form: Form,
    headers: HeaderMap,
    Query(Which { name, released, from, most }): Query<Which>,
    State(board): State<Arc<Board>>,
) -> Response {
    let most = Part { from, most: most.unwrap_or(Part::default().most) }.most();
    if form == Form::Events {
        return live::events(&board, Topic::Lock { name, from, most });
    }
    let mut view = match LockView::read(&board, name, (from, most)).await {
        Ok(view) => view,
        Err(error) => return Refusal::of_lock(error).into_response(form),
    };
    if view.holding + view.waiting == 0 {
        view.meant = meant::by(&board, &view.name).await;
    }
    let token = board.allows_release.then(|| Token::of(&headers));
    if form == Form::Json {
        let answer = page::json(&view.with_token(token.as_ref()));
        return release::with_cookie(answer, token);
    }
    let title = visible(&view.name);
    let notes = html! {
        @match released {
            Some(true) => p.note role="status" { "All holds were force-released." },
            Some(false) => p.note role="status" { "The lock was free: nothing was released." },
            None => {}
        }
        (meant::question(&view.meant))
    };
    let rest = token.as_ref().map(|token| release::form(&view.name, token, &view.oldest()));
    let parts = Parts { notes: Some(notes), live: Some(view.markup()), rest };
    release::with_cookie(frame(Page::Lock, &title, parts), token)
}

/// Renders the holders and waiters of the lock, for the part of the page that is updated while it
/// is open. `part` is the number of waiters to skip, and the maximum number of holders and of
/// waiters to show. An error is rendered as text.
pub(super) async fn fragment(board: &Board, name: &str, part: (u32, u32)) -> Markup {
    match LockView::read(board, name.to_owned(), part).await {
        Ok(view) => view.markup(),
        Err(error) => html! { p.trouble { (error) } },
    }
}

/// The content of a lock's page, also sent as JSON.
#[derive(Debug, Serialize)]
struct LockView {
    /// The lock name as this process passes it to `Locks`, without the namespace.
    name: String,
    /// The lock name in the store, with the namespace.
    lock: String,
    holding: u64,
    holders: Vec<Member>,
    token: Option<u64>,
    waiting: u64,
    from: u32,
    waiters: Vec<Member>,
    /// The names of similar locks that are held or awaited. Empty unless this lock is free.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    meant: Vec<String>,
    #[serde(skip)]
    most: u32,
    /// The token that a client sends back to release the lock by force. `None` if releases are
    /// switched off.
    #[serde(skip_serializing_if = "Option::is_none")]
    release_token: Option<String>,
}

/// A holder or a waiter of the lock.
#[derive(Debug, Serialize)]
struct Member {
    /// The text that stands for the holder or waiter in the store.
    member: String,
    label: Option<String>,
    node: Option<String>,
    /// The process that holds or waits, as `host:pid`. `None` if the process has not published this
    /// in the store, as for waits and holds of less than a second.
    process: Option<String>,
    demand: String,
    /// The time since the holder or waiter requested the lock, in ms. For a holder, this includes
    /// the wait. `None` for other programs, such as a JVM service.
    age_ms: Option<u64>,
    /// The remaining lease in ms; 0 for a waiter.
    lease_ms: u64,
    /// True if the holder may not have renewed the lease since the grant, because the remaining
    /// lease is no longer than the short first lease of a handed-off lock. The page then shows
    /// "unconfirmed".
    is_claim: bool,
    /// The estimated time until the waiter's turn, in ms, if the queue continues at the observed
    /// rate of turns. `None` for a holder, and before two turns were observed.
    #[serde(skip_serializing_if = "Option::is_none")]
    turn_in_ms: Option<u64>,
    /// With a quorum of Redis primaries: how many of them report the hold, and how many there are.
    /// `None` for a waiter, and without a quorum.
    #[serde(skip_serializing_if = "Option::is_none")]
    primaries: Option<[usize; 2]>,
}

impl LockView {
    /// Reads the holders and the waiters from the store: at most `most` of each, after the first
    /// `from` waiters.
    async fn read(
        board: &Board,
        name: String,
        (from, most): (u32, u32),
    ) -> Result<Self, LockError> {
        let lock = board.locks.name_of(name.as_str())?;
        let found: LockInspection = board.locks.inspect_part(name.as_str(), from, most).await?;
        let shown = found.holders.iter().chain(&found.waiters);
        let nodes = shown.filter_map(|participant| participant.node.as_ref());
        let processes = board.locks.processes(nodes).await;
        let member = |participant: Participant| {
            let node = participant.node.as_ref();
            let process = node.and_then(|node| processes.get(node.as_str()).cloned());
            Member { process, ..Member::from(participant) }
        };
        let turn = board.queues.note(&name, from, &found.waiters);
        let waiter = |(ahead, waiter): (u32, Participant)| Member {
            turn_in_ms: turn.map(|turn| ms(turn.saturating_mul(ahead.saturating_add(1)))),
            ..member(waiter)
        };
        // The store keeps a token for all shared holds together. If all holders have permits, the
        // token is not shown, because permits have no token.
        let has_token = found.holders.iter().any(|holder| !holder.demand.is_permits());
        Ok(Self {
            name,
            lock,
            holding: found.holding,
            holders: found.holders.into_iter().map(member).collect(),
            token: found.token.filter(|_| has_token).map(u64::from),
            waiting: found.waiting,
            from,
            waiters: (from..).zip(found.waiters).map(waiter).collect(),
            meant: Vec::new(),
            most,
            release_token: None,
        })
    }

    fn with_token(self, token: Option<&Token>) -> Self {
        Self { release_token: token.map(|token| token.as_str().to_owned()), ..self }
    }

    /// Returns the texts that stand in the store for the holders with the oldest requests, at most
    /// as many as a release form may have.
    fn oldest(&self) -> Vec<&str> {
        let mut oldest: Vec<&Member> = self.holders.iter().collect();
        oldest.sort_by_key(|holder| Reverse(holder.age_ms));
        oldest.truncate(MOST_SENT);
        oldest.into_iter().map(|holder| &*holder.member).collect()
    }

    fn markup(&self) -> Markup {
        let is_free = self.holders.is_empty();
        html! {
            @if self.lock != self.name { p.soft { "In the store: " (text(&self.lock)) } }
            dl.tally {
                div.holding { dt { "holding" } dd { (count(self.holding)) } }
                div.waiting { dt { "waiting" } dd { (count(self.waiting)) } }
                @if let Some(token) = self.token { div { dt { "token" } dd.small { (token) } } }
            }
            (table("holders", "Held by",
                &["Label", "Requested", "Lease left", "Demand", "Node"],
                html! {
                    @for holder in &self.holders { (holder.holder()) }
                    @if is_free { tr { td colspan="5" { "Nobody." } } }
                }))
            @if self.holding > self.holders.len() as u64 && !is_free {
                p.note {
                    (count(self.holders.len() as u64)) " of up to " (count(self.holding))
                    " are shown: the holds whose leases end first."
                }
            }
            (table("waiters", "Waiting, in order",
                &["Position", "Label", "Waiting for", "Turn in", "Demand", "Node"],
                html! {
                    @for (place, waiter) in (u64::from(self.from) + 1..).zip(&self.waiters) {
                        (waiter.waiter(place))
                    }
                    @if self.waiters.is_empty() { tr { td colspan="6" { "Nobody." } } }
                }))
            (self.pages())
        }
    }

    /// Renders which queue positions are shown, with links to the previous and the next positions.
    fn pages(&self) -> Markup {
        let (from, most) = (u64::from(self.from), u64::from(self.most));
        let last = from + self.waiters.len() as u64;
        let is_whole = from == 0 && self.waiting <= most;
        html! {
            @if !is_whole {
                p.note {
                    @if self.waiters.is_empty() { "None" }
                    @else { "Positions " (count(from + 1)) " to " (count(last)) }
                    " of " (count(self.waiting)) "."
                    @if from > 0 {
                        " " a #before href=(lock_path(&self.name, from.saturating_sub(most))) {
                            "Previous"
                        }
                    }
                    @if last < self.waiting && !self.waiters.is_empty() {
                        " " a #behind href=(lock_path(&self.name, from + most)) { "Next" }
                    }
                }
            }
        }
    }
}

impl Member {
    /// Renders the label and the process of the holder or waiter. Other programs, such as a JVM
    /// service, set no label, so the text that stands for the holder or waiter in the store is
    /// shown instead.
    fn name(&self) -> Markup {
        let label = label_or(self.label.as_deref(), &self.member);
        html! {
            (text(label))
            @if let Some(process) = self.process.as_deref().filter(|process| *process != label) {
                " " span.soft { (text(process)) }
            }
        }
    }

    fn node(&self) -> Markup {
        html! { @if let Some(node) = &self.node { code { (node) } } }
    }

    fn holder(&self) -> Markup {
        html! {
            tr {
                th scope="row" { (self.name()) }
                td.number { (ago(self.age_ms)) }
                td.number {
                    (age(self.lease_ms))
                    @if self.is_claim { " " span.soft { "unconfirmed" } }
                }
                td {
                    (self.demand)
                    @if let Some([held, all]) = self.primaries {
                        " " span.soft { "at " (held) " of " (all) " primaries" }
                    }
                }
                td { (self.node()) }
            }
        }
    }

    fn waiter(&self, place: u64) -> Markup {
        html! {
            tr {
                td.number { (count(place)) }
                th scope="row" { (self.name()) }
                td.number { (optional_age(self.age_ms)) }
                td.number { (optional_age(self.turn_in_ms)) }
                td { (self.demand) }
                td { (self.node()) }
            }
        }
    }
}

impl From<Participant> for Member {
    fn from(participant: Participant) -> Self {
        Self {
            demand: demand(participant.demand),
            age_ms: participant.age.map(ms),
            lease_ms: ms(participant.lease_left),
            is_claim: participant.is_claim,
            process: None,
            turn_in_ms: None,
            primaries: participant.primaries.map(|at| [at.held, at.all]),
            member: participant.member,
            label: participant.label,
            node: participant.node.map(|node| node.to_string()),
        }
    }
}
