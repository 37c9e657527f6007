//! `cargo run -p lock-examples --bin agent_session`: a chat with queued turns; each turn lasts
//! until the response stream has ended.
//!
//! Then run this twice at once: `curl -N -d hello localhost:3000/sessions/7/turns`. Other sessions
//! do not wait.
#![allow(clippy::print_stdout)]

use std::collections::HashMap;
use std::error::Error;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Sse;
use axum::response::sse::Event;
use axum::routing::post;
use axum::{Extension, Router};
use futures_util::stream::{self, Stream, StreamExt as _};
use lock_axum::{FencingToken, LockHandle, LockScopeLayer, Locks, lock_by};
use tokio::net::TcpListener;

/// The turns so far of each session. Replace this with your database.
#[derive(Clone, Default)]
struct Transcripts(Arc<Mutex<HashMap<u64, Transcript>>>);

#[derive(Default)]
struct Transcript {
    turns: Vec<String>,
    /// The fencing token of the last hold that has begun a turn. Earlier holds cannot write any
    /// more.
    token: Option<FencingToken>,
}

const OVERTAKEN: &str = "the lease expired, and a later turn has begun";

async fn turn(
    Path(session): Path<u64>,
    Extension(lock): Extension<LockHandle>,
    State(transcripts): State<Transcripts>,
    prompt: String,
) -> Result<Sse<impl Stream<Item = Result<Event, axum::Error>>>, (StatusCode, &'static str)> {
    let token = lock.fencing_token();
    // No other turn of this session runs until the last event has been sent, and if this hold is
    // lost, the turn is not saved. So the turns read here are still complete when this turn is
    // saved.
    let earlier = transcripts.begin(session, token).map_err(|why| (StatusCode::CONFLICT, why))?;
    let answer = format!("{prompt} came after {earlier} earlier turns");
    let words: Vec<_> = answer.split(' ').map(str::to_owned).collect();
    let words = stream::iter(words).then(async |word| {
        tokio::time::sleep(Duration::from_millis(250)).await; // the model
        Ok(Event::default().data(word))
    });
    let save = async move {
        transcripts.append(session, prompt, token).map_err(axum::Error::new)?;
        Ok(Event::default().event("saved").data(format!("token {token}")))
    };
    Ok(Sse::new(words.chain(stream::once(save))))
}

impl Transcripts {
    /// Begins a turn: records the hold's token, so that no earlier hold can write. Returns the
    /// number of turns so far, or an error if a later hold has begun. In SQL, before the `SELECT`:
    /// `UPDATE … SET token = $1 … AND token < $1`.
    fn begin(&self, session: u64, token: FencingToken) -> Result<usize, &'static str> {
        let mut all = self.all();
        let transcript = all.entry(session).or_default();
        if transcript.token >= Some(token) {
            return Err(OVERTAKEN);
        }
        transcript.token = Some(token);
        Ok(transcript.turns.len())
    }

    /// Adds a turn to the session. Returns an error instead if a later hold has begun. In SQL:
    /// `… WHERE token = $1`.
    fn append(&self, session: u64, turn: String, token: FencingToken) -> Result<(), &'static str> {
        let mut all = self.all();
        let transcript = all.entry(session).or_default();
        if transcript.token != Some(token) {
            return Err(OVERTAKEN);
        }
        transcript.turns.push(turn);
        Ok(())
    }

    fn all(&self) -> MutexGuard<'_, HashMap<u64, Transcript>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let locks = Locks::builder().namespace("chat").in_memory()?; // or .connect("redis://127.0.0.1/").await?
    // The key uses the parsed value: as text, `7` and `07` would be two keys for one session.
    let by_session = lock_by(|Path(session): Path<u64>| format!("session:{session}"));
    let layer = LockScopeLayer::new(locks)
        .hold_until_body_end(true)
        .max_hold(Duration::from_secs(120)) // even if the client stops reading
        .wait(Duration::from_secs(60))
        .queue_limit(2); // two turns may wait; a third is refused with 429
    let app = Router::new()
        .route("/sessions/{id}/turns", post(turn).route_layer(by_session))
        .layer(layer)
        .with_state(Transcripts::default());

    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:3000".to_owned());
    let listener = TcpListener::bind(address).await?;
    println!("listening on http://{}", listener.local_addr()?);
    axum::serve(listener, app).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_holders_that_both_read_only_the_later_one_saves_its_turn() {
        let transcripts = Transcripts::default();
        let [earlier, later] = [5, 9].map(|token| FencingToken::try_from(token).expect("small"));
        assert_eq!(transcripts.begin(7, earlier), Ok(0));
        assert_eq!(transcripts.begin(7, later), Ok(0));
        assert_eq!(transcripts.append(7, "earlier".to_owned(), earlier), Err(OVERTAKEN));
        assert_eq!(transcripts.append(7, "later".to_owned(), later), Ok(()));
        assert_eq!(transcripts.begin(7, earlier), Err(OVERTAKEN));
        assert_eq!(transcripts.all()[&7].turns, ["later"]);
    }
}
