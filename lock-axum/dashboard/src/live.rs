//! The event streams that update open pages.
//!
//! # Implementation notes
//!
//! - One task for each topic (a page with its parameters) renders the topic once a second, however
//!   many visitors see it. A page that waits for a slow server does not delay the others. The task
//!   ends when the page is not open any more. It checks this under the mutex that is also locked to
//!   open a page, so that no page is left without a task.
//! - A page that reads slowly misses events, because only the last event is kept.

use std::collections::HashMap;
use std::convert::Infallible;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use futures_util::future::{Either, select};
use futures_util::stream::{self, Stream};
use http::StatusCode;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::task::AbortOnDropHandle;

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

/// The topics with open event streams.
#[derive(Debug, Default)]
pub(super) struct Live(Mutex<HashMap<Topic, Watched>>);

impl Live {
    fn topics(&self) -> MutexGuard<'_, HashMap<Topic, Watched>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A topic with open event streams.
#[derive(Debug)]
struct Watched {
    /// Sends the rendered content to the streams.
    sender: watch::Sender<Arc<str>>,
    /// Renders the content once a second.
    task: AbortOnDropHandle<()>,
}

impl Watched {
    fn new(board: &Arc<Board>, topic: Topic) -> Self {
        let task = AbortOnDropHandle::new(tokio::spawn(update(Arc::clone(board), topic)));
        Self { sender: watch::Sender::new(Arc::from("")), task }
    }

    /// Returns true while a stream is open and the task has not panicked.
    fn is_live(&self) -> bool {
        self.sender.receiver_count() > 0 && !self.task.is_finished()
    }
}

/// Returns an event stream with a topic's content. Returns a refusal (503) if [`MAX_TOPICS`] other
/// topics have open event streams.
pub(super) fn events(board: &Arc<Board>, topic: Topic) -> Response {
    let mut topics = board.live.topics();
    topics.retain(|_, watched| watched.is_live());
    if topics.len() >= MAX_TOPICS && !topics.contains_key(&topic) {
        let sentence = "Too many different pages are open already.";
        return Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "watchers-full", sentence)
            .into_response(Form::Events);
    }
    let new = |topic: &Topic| Watched::new(board, topic.clone());
    let receiver = topics.entry(topic).or_insert_with_key(new).sender.subscribe();
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

/// Renders a topic once a second, until no stream for it is open.
async fn update(board: Arc<Board>, topic: Topic) {
    loop {
        sleep(PERIOD).await;
        let sender = {
            let mut topics = board.live.topics();
            match topics.get(&topic) {
                Some(watched) if watched.sender.receiver_count() > 0 => watched.sender.clone(),
                _ => {
                    topics.remove(&topic);
                    return;
                }
            }
        };
        sender.send_replace(board.render(&topic).await);
    }
}
