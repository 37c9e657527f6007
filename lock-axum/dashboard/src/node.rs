//! The page of this process: its connections, waits and holds.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use lockcore::Locks;
use lockcore::operate::{
    Activity, ActivityState, ClassStatus, Connection, HotHour, ServerStatus, Status,
};
use maud::{Markup, html};
use serde::Serialize;

use super::accept::Query;
use super::form::Form;
use super::history::Past;
use super::live;
use super::page::{
    self, Page, Parts, age, count, demand, frame, lock_link, ms, optional_age, table, text,
};
use super::plot::plot;
use super::{Board, Part, Topic};

/// The maximum number of names that the page shows for each hour in each of two lists: the most
/// refused names and the names with the longest waits. The JSON response has up to 32 in each.
const MOST_HOT: usize = 5;

/// Handles `GET /node`: returns the page, the JSON or an event stream.
pub(super) async fn show(
    form: Form,
    Query(part): Query<Part>,
    State(board): State<Arc<Board>>,
) -> Response {
    match form {
        Form::Html => {
            let parts = Parts { live: Some(fragment(&board)), ..Parts::default() };
            frame(Page::Node, "This process", parts)
        }
        Form::Json => page::json(&NodeView::of(&board, part)),
        Form::Events => live::events(&board, Topic::Node),
    }
}

/// Renders the page about this process without its frame. This part is updated while the page is
/// open.
pub(super) fn fragment(board: &Board) -> Markup {
    NodeView::of(board, Part::default()).markup()
}

/// The content of the page about this process, also sent as JSON.
#[derive(Debug, Serialize)]
struct NodeView {
    node: String,
    commands: Link,
    subscription: Link,
    waiting: usize,
    holding: usize,
    releasing: usize,
    positions_lost: u64,
    servers: Vec<Server>,
    classes: Vec<Class>,
    /// The waits, holds and refusals of the busiest classes in the last ten minutes, with a sample
    /// every five seconds.
    past: Vec<Past>,
    hottest: Vec<Hour>,
    from: u32,
    activity: Vec<One>,
}

/// A connection's state: `down` is null while it is up, otherwise the reason why it is down.
#[derive(Debug, Serialize)]
struct Link {
    down: Option<String>,
}

#[derive(Debug, Serialize)]
struct Server {
    address: String,
    commands: Link,
    subscription: Link,
    silent_for_ms: u64,
    unanswered: Option<usize>,
    slots: Option<u16>,
}

#[derive(Debug, Serialize)]
struct Class {
    class: String,
    waiting: usize,
    holding: usize,
    oldest_wait_ms: Option<u64>,
    oldest_hold_ms: Option<u64>,
}

/// The lock names that were refused most often or waited for longest in one hour.
#[derive(Debug, Serialize)]
struct Hour {
    /// The time since the hour began, in ms.
    began_ms: u64,
    /// The most refused names with the number of refusals, most refused first; at most 32.
    refused: Vec<Hot>,
    /// The names with the longest waits, longest first; at most 32.
    waited: Vec<Hot>,
}

/// A lock name that was often refused or waited for long. `times` is the number of refusals, and
/// `longest_ms` the longest wait in ms. An entry has one of the two.
#[derive(Debug, Serialize)]
struct Hot {
    lock: Option<String>,
    name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    times: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    longest_ms: Option<u64>,
}

/// A wait or a hold of this process.
#[derive(Debug, Serialize)]
struct One {
    /// The lock name in the store; null if names are redacted.
    lock: Option<String>,
    /// The lock name as this process passes it to `Locks`, without the namespace; null if names are
    /// redacted.
    name: Option<String>,
    label: String,
    demand: String,
    class: String,
    state: &'static str,
    /// The number of waiters ahead in the queue; null for a hold, and until the request is queued.
    position: Option<u64>,
    age_ms: u64,
}

impl NodeView {
    fn of(board: &Board, part: Part) -> Self {
        let locks = &board.locks;
        board.history.begin(locks);
        let Status {
            commands,
            subscription,
            waiting,
            holding,
            releasing,
            positions_lost,
            servers,
            ..
        } = locks.status();
        let activity = locks.activity().skip(part.from as usize).take(part.most() as usize);
        Self {
            node: locks.node().to_string(),
            commands: commands.into(),
            subscription: subscription.into(),
            waiting,
            holding,
            releasing,
            positions_lost,
            servers: servers.into_iter().map(Server::from).collect(),
            classes: locks.status_by_class().into_iter().map(Class::from).collect(),
            past: board.history.by_class(),
            hottest: locks.hottest().into_iter().map(|hour| Hour::of(locks, hour)).collect(),
            from: part.from,
            activity: activity.map(|one| One::of(locks, one)).collect(),
        }
    }

    fn markup(&self) -> Markup {
        let all = self.waiting + self.holding;
        let is_cut = all > self.activity.len();
        html! {
            dl.tally {
                div.waiting { dt { "waiting" } dd { (count(self.waiting as u64)) } }
                div.holding { dt { "holding" } dd { (count(self.holding as u64)) } }
                div { dt { "releasing" } dd { (count(self.releasing as u64)) } }
                div { dt { "positions lost" } dd { (count(self.positions_lost)) } }
            }
            @for (name, link) in [("commands", &self.commands), ("grants", &self.subscription)] {
                @if let Some(reason) = &link.down {
                    p.trouble { "The connection for " (name) " is down: " (text(reason)) }
                }
            }
            (table("activity", "Waits and holds of this process",
                &["Lock", "State", "Age", "Label", "Demand", "Class"],
                html! {
                    @for one in &self.activity { (one.row()) }
                    @if self.activity.is_empty() { tr { td colspan="6" { "None." } } }
                }))
            @if is_cut {
                p.note {
                    "The oldest " (count(self.activity.len() as u64)) " of "
                    (count(all as u64)) " are shown. In JSON, "
                    code { "?from=" } " and " code { "&most=" } " select others."
                }
            }
            (table("classes", "By class",
                &["Class", "Waiting", "Oldest wait", "Holding", "Oldest hold"],
                html! {
                    @for class in &self.classes { (class.row()) }
                    @if self.classes.is_empty() { tr { td colspan="5" { "None." } } }
                }))
            (table("past", "The last ten minutes",
                &["Class", "Waiting", "Holding", "Refused"],
                html! {
                    @for past in &self.past { (row(past)) }
                    @if self.past.is_empty() { tr { td colspan="4" { "Nothing." } } }
                }))
            (table("hottest", "Hottest names of the last 24 hours",
                &["Began", "Refused most often", "Longest waits"],
                html! {
                    @for hour in &self.hottest { (hour.row()) }
                    @if self.hottest.is_empty() { tr { td colspan="3" { "None." } } }
                }))
            @if !self.servers.is_empty() {
                (table("servers", "Servers",
                    &["Address", "Commands", "Grants", "Last reply", "Unanswered", "Slots"],
                    html! { @for server in &self.servers { (server.row()) } }))
            }
            p.soft { "Node " code { (self.node) } }
        }
    }
}

impl One {
    fn of(locks: &Locks, one: Activity) -> Self {
        let (state, position) = match one.state {
            ActivityState::Waiting { position, .. } => ("waiting", position),
            ActivityState::Holding => ("holding", None),
            ActivityState::Lost => ("lost", None),
            _ => ("unknown", None),
        };
        Self {
            name: one.lock.as_deref().and_then(|lock| locks.key_of(lock)),
            lock: one.lock,
            label: one.label,
            demand: demand(one.demand),
            class: one.class.to_string(),
            state,
            position,
            age_ms: ms(one.age),
        }
    }

    fn row(&self) -> Markup {
        html! {
            tr {
                th scope="row" { (lock_link(self.lock.as_deref(), self.name.as_deref())) }
                td {
                    span.state.(self.state) { (self.state) }
                    @if let Some(ahead) = self.position { " " span.soft { (count(ahead)) " ahead" } }
                }
                td.number { (age(self.age_ms)) }
                td { (text(&self.label)) }
                td { (self.demand) }
                td { (text(&self.class)) }
            }
        }
    }
}

/// Renders a class's waits, holds and refusals of the last ten minutes as a table row with three
/// graphs.
fn row(past: &Past) -> Markup {
    let Past { class, waiting, holding, refused } = past;
    let times: u64 = refused.iter().sum();
    html! {
        tr {
            th scope="row" { (text(class)) }
            td { (plot(&format!("{class}, waiting"), waiting, "waiting")) }
            td { (plot(&format!("{class}, holding"), holding, "holding")) }
            td {
                (plot(&format!("{class}, refused in 5 s"), refused, "lost"))
                span.soft.number { ", " (count(times)) " in all" }
            }
        }
    }
}

impl Hour {
    fn of(locks: &Locks, hour: HotHour) -> Self {
        let hot = |lock: Option<String>, times, longest: Option<Duration>| Hot {
            name: lock.as_deref().and_then(|lock| locks.key_of(lock)),
            lock,
            times,
            longest_ms: longest.map(ms),
        };
        let refused = hour.refused.into_iter().map(|one| hot(one.lock, Some(one.times), None));
        let waited = hour.waited.into_iter().map(|one| hot(one.lock, None, Some(one.longest)));
        Self { began_ms: ms(hour.began), refused: refused.collect(), waited: waited.collect() }
    }

    fn row(&self) -> Markup {
        let list = |hot: &[Hot]| {
            html! {
                @if hot.is_empty() { "None." }
                ol.hot {
                    @for hot in &hot[..hot.len().min(MOST_HOT)] {
                        li {
                            (lock_link(hot.lock.as_deref(), hot.name.as_deref())) " "
                            span.number {
                                @if let Some(times) = hot.times { (count(times)) " ×" }
                                @if let Some(longest) = hot.longest_ms { (age(longest)) }
                            }
                        }
                    }
                }
            }
        };
        html! {
            tr {
                th.number scope="row" { (age(self.began_ms)) " ago" }
                td { (list(&self.refused)) }
                td { (list(&self.waited)) }
            }
        }
    }
}

impl Class {
    fn row(&self) -> Markup {
        html! {
            tr {
                th scope="row" { (text(&self.class)) }
                td.number { (count(self.waiting as u64)) }
                td.number { (optional_age(self.oldest_wait_ms)) }
                td.number { (count(self.holding as u64)) }
                td.number { (optional_age(self.oldest_hold_ms)) }
            }
        }
    }
}

impl From<ClassStatus> for Class {
    fn from(status: ClassStatus) -> Self {
        Self {
            class: status.class.to_string(),
            waiting: status.waiting,
            holding: status.holding,
            oldest_wait_ms: status.oldest_wait.map(ms),
            oldest_hold_ms: status.oldest_hold.map(ms),
        }
    }
}

impl Server {
    fn row(&self) -> Markup {
        html! {
            tr {
                th scope="row" { (text(&self.address)) }
                td { (self.commands.markup()) }
                td { (self.subscription.markup()) }
                td.number { (age(self.silent_for_ms)) " ago" }
                td.number { (self.unanswered.map_or_else(|| "–".into(), |many| many.to_string())) }
                td.number { (self.slots.map_or_else(|| "–".into(), |slots| slots.to_string())) }
            }
        }
    }
}

impl From<ServerStatus> for Server {
    fn from(status: ServerStatus) -> Self {
        Self {
            address: status.address,
            commands: status.commands.into(),
            subscription: status.subscription.into(),
            silent_for_ms: ms(status.silent_for),
            unanswered: status.unanswered,
            slots: status.slots,
        }
    }
}

impl Link {
    fn markup(&self) -> Markup {
        match &self.down {
            None => html! { span.state.holding { "up" } },
            Some(reason) => html! { span.state.lost { "down" } " " (text(reason)) },
        }
    }
}

impl From<Connection> for Link {
    fn from(connection: Connection) -> Self {
        match connection {
            Connection::Up => Self { down: None },
            Connection::Down { reason, .. } => Self { down: Some(reason) },
            other => Self { down: Some(format!("{other:?}")) },
        }
    }
}
