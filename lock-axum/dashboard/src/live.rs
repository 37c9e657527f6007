//! The event streams that update open pages.
//!
//! # Implementation notes
//!
//! - A single task renders each topic (a page with its parameters) once a second, however many
//!   visitors see it. The task ends when no page is open. It checks this under the mutex that is
//!   also locked to open a page, so that no page is left without a task.
//! - A page that reads slowly misses events, because only the last event is kept.

use std::collections::HashMap;
use std::convert::Infallible;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use futures_util::future::{Either, join_all, select};
use futures_util::stream::{self, Stream};
use http::StatusCode;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout_at};

use super::form::Form;
use super::refusal::Refusal;
use super::{Board, End, Topic};

/// The time between two updates of a page.
const PERIOD: Duration = Duration::from_secs(1);
/// The time between two keep-alive messages in an event stream. If a message cannot be sent, the
/// browser has closed the connection.
const ALIVE: Duration = Duration::from_secs(5);
/// The maximum duration of an event stream, after which the browser reconnects. It is short because
/// a graceful shutdown of the server waits until the stream ends.
const LIFE: Duration = Duration::from_secs(10);
/// How long the browser waits before it reconnects after an event stream has ended.
const RETRY: Duration = Duration::from_millis(500);
/// The maximum number of topics with open event streams. A topic is a page with its parameters.
/// Streams for further topics are refused with 503.
const MAX_TOPICS: usize = 16;

/// The topics with open event streams, and the task that renders them once a second. A topic is a
/// page with its parameters.
#[derive(Debug, Default)]
pub(super) struct Live(Mutex<Topics>);

#[derive(Debug, Default)]
struct Topics {
    /// Each topic with open event streams, and the sender of the topic's rendered content to these
    /// streams.
    watched: HashMap<Topic, watch::Sender<Arc<str>>>,
    ticker: Option<JoinHandle<()>>,
}

impl Live {
    fn topics(&self) -> MutexGuard<'_, Topics> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns an event stream with a topic's content. Returns a refusal (503) if [`MAX_TOPICS`] other
/// topics have open event streams.
pub(super) fn events(board: &Arc<Board>, topic: Topic) -> Response {
    let mut topics = board.live.topics();
    topics.watched.retain(|_, sender| sender.receiver_count() > 0);
    if topics.watched.len() >= MAX_TOPICS && !topics.watched.contains_key(&topic) {
        let sentence = "Too many different pages are open already.";
        return Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "watchers-full", sentence)
            .into_response(Form::Events);
    }
    let new = || watch::Sender::new(Arc::from(""));
    let receiver = topics.watched.entry(topic).or_insert_with(new).subscribe();
    // Starts a new task also if the last one has panicked.
    if topics.ticker.as_ref().is_none_or(JoinHandle::is_finished) {
        topics.ticker = Some(tokio::spawn(tick(Arc::clone(board))));
    }
    drop(topics);
    let changes = changes(receiver, board.end.clone());
    Sse::new(changes).keep_alive(KeepAlive::new().interval(ALIVE)).into_response()
}

/// Returns a topic's events, until the stream has lasted [`LIFE`] or `end` completes.
fn changes(
    receiver: watch::Receiver<Arc<str>>,
    end: End,
) -> impl Stream<Item = Result<Event, Infallible>> {
    let last = Instant::now() + LIFE;
    stream::unfold((receiver, last, end), async |(mut receiver, last, end)| {
        let changed = timeout_at(last, receiver.changed());
        // `end` first: after it there are no more events.
        let Either::Right((changed, end)) = select(end, pin!(changed)).await else { return None };
        changed.ok()?.ok()?;
        let markup = Arc::clone(&receiver.borrow_and_update());
        // The markup is sent as JSON, because it may contain characters that an event may not.
        let event = Event::default().retry(RETRY).data(serde_json::to_string(&*markup).ok()?);
        Some((Ok(event), (receiver, last, end)))
    })
}

/// Renders the topics of all open pages once a second, until no page is open.
async fn tick(board: Arc<Board>) {
    loop {
        sleep(PERIOD).await;
        let watched: Vec<_> = {
            let mut topics = board.live.topics();
            topics.watched.retain(|_, sender| sender.receiver_count() > 0);
            if topics.watched.is_empty() {
                topics.ticker = None;
                return;
            }
            topics.watched.iter().map(|(topic, sender)| (topic.clone(), sender.clone())).collect()
        };
        let renew = async |(topic, sender): (Topic, watch::Sender<Arc<str>>)| {
            sender.send_replace(board.render(&topic).await);
        };
        join_all(watched.into_iter().map(renew)).await;
    }
}
