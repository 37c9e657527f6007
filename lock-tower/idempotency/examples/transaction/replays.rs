//! Records in PostgreSQL, beside the service's own tables: a store for `lock_idempotency`.

use std::sync::Arc;
use std::time::Duration;

use lock_idempotency::{
    Answer, Attempt, Fingerprint, Finish, Finished, Outcome, Record, RecordKey, ReplayStore, Start,
    Started, StoreError, StoreFuture,
};
use lockcore::FencingToken;
use tokio::sync::Mutex;
use tokio_postgres::{Client, Row, Transaction};

/// Creates the table of records. The store ignores expired records and replaces them, so delete
/// them periodically.
pub(crate) const SCHEMA: &str = "CREATE TABLE IF NOT EXISTS replays (
    record      TEXT PRIMARY KEY,
    fingerprint BYTEA NOT NULL,
    token       BIGINT NOT NULL,
    started     TIMESTAMPTZ NOT NULL,
    expires     TIMESTAMPTZ NOT NULL,
    outcome     BYTEA
)";

/// Reads a record that has not expired.
const FIND: &str = "\
SELECT fingerprint, token, started, outcome FROM replays WHERE record = $1 AND expires > now()";

/// Deletes a record that has expired.
const REMOVE_EXPIRED: &str = "DELETE FROM replays WHERE record = $1 AND expires <= now()";

/// Writes a new record, unless the record exists.
const INSERT: &str = "\
INSERT INTO replays (record, fingerprint, token, started, expires)
VALUES ($1, $2, $3, now(), now() + make_interval(secs => $4)) ON CONFLICT DO NOTHING";

/// Gives a record a new token, because a later attempt begins.
const TAKE_OVER: &str = "\
UPDATE replays SET token = $2, started = now(), expires = now() + make_interval(secs => $3)
WHERE record = $1";

/// Writes the outcome into a record with this token, and extends the expiry. If the transaction of
/// the work has already stored an outcome, that outcome is kept.
const FINISH: &str = "\
UPDATE replays SET outcome = COALESCE(outcome, $3), expires = now() + make_interval(secs => $4)
WHERE record = $1 AND token = $2";

/// Writes the outcome into a record with this token, within the transaction of the work.
const STORE: &str = "\
UPDATE replays SET outcome = $3 WHERE record = $1 AND token = $2 AND outcome IS NULL";

/// Deletes a record with this token and without an outcome.
const END: &str = "DELETE FROM replays WHERE record = $1 AND token = $2 AND outcome IS NULL";

/// Stores the response within the transaction that does the work. Returns false if a later attempt
/// has begun: then the work must be rolled back.
///
/// The record's row stays locked until the transaction ends. So an attempt that starts meanwhile
/// waits for the end, and then finds the response.
pub(crate) async fn store(
    work: &Transaction<'_>,
    attempt: &Attempt,
    answer: Answer,
) -> Result<bool, tokio_postgres::Error> {
    let (record, token) = (attempt.record_key().to_string(), i64::from(attempt.fencing_token()));
    let outcome = Outcome::Kept(answer).encode();
    Ok(work.execute(STORE, &[&record, &token, &&outcome[..]]).await? == 1)
}

/// A store that keeps records in PostgreSQL.
#[derive(Debug, Clone)]
pub(crate) struct PostgresReplays {
    client: Arc<Mutex<Client>>,
}

impl PostgresReplays {
    pub(crate) fn new(client: Arc<Mutex<Client>>) -> Self {
        Self { client }
    }
}

impl ReplayStore for PostgresReplays {
    fn look_up<'a>(&'a self, key: &'a RecordKey) -> StoreFuture<'a, Option<Record>> {
        Box::pin(async {
            let row = self.client.lock().await.query_opt(FIND, &[&key.to_string()]).await;
            row.map_err(down)?.as_ref().map(read).transpose()
        })
    }

    fn start<'a>(&'a self, key: &'a RecordKey, start: &'a Start) -> StoreFuture<'a, Started> {
        Box::pin(async {
            let (key, token) = (key.to_string(), i64::from(start.token));
            let (fingerprint, expiry) = (&start.fingerprint.as_bytes()[..], seconds(start.expiry));
            let mut client = self.client.lock().await;
            let step = client.transaction().await.map_err(down)?;
            step.execute(REMOVE_EXPIRED, &[&key]).await.map_err(down)?;
            let new = step.execute(INSERT, &[&key, &fingerprint, &token, &expiry]).await;
            let mut started = Started::Begun { again: false };
            if new.map_err(down)? == 0 {
                let find = format!("{FIND} FOR UPDATE");
                let row = step.query_one(&find, &[&key]).await.map_err(down)?;
                started = start.judge(Some(&read(&row)?));
                if let Started::Begun { .. } = started {
                    step.execute(TAKE_OVER, &[&key, &token, &expiry]).await.map_err(down)?;
                }
            }
            step.commit().await.map_err(down)?;
            Ok(started)
        })
    }

    fn finish<'a>(&'a self, key: &'a RecordKey, finish: &'a Finish) -> StoreFuture<'a, Finished> {
        Box::pin(async {
            let (key, token) = (key.to_string(), i64::from(finish.token));
            let (outcome, expiry) = (finish.outcome.encode(), seconds(finish.expiry));
            let client = self.client.lock().await;
            let stored = client.execute(FINISH, &[&key, &token, &&outcome[..], &expiry]).await;
            if stored.map_err(down)? == 1 {
                return Ok(Finished::Stored);
            }
            let other = client.query_opt(FIND, &[&key]).await.map_err(down)?;
            Ok(if other.is_some() { Finished::Overtaken } else { Finished::Forgotten })
        })
    }

    fn end<'a>(&'a self, key: &'a RecordKey, token: FencingToken) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            let client = self.client.lock().await;
            let ended = client.execute(END, &[&key.to_string(), &i64::from(token)]).await;
            ended.map(drop).map_err(down)
        })
    }
}

fn read(row: &Row) -> Result<Record, StoreError> {
    let fingerprint = row.get::<_, &[u8]>("fingerprint").try_into();
    let fingerprint = fingerprint.map_err(|_| StoreError::malformed("a fingerprint"))?;
    let token = u64::try_from(row.get::<_, i64>("token")).ok();
    let token = token.and_then(|token| FencingToken::try_from(token).ok());
    let token = token.ok_or_else(|| StoreError::malformed("a token"))?;
    let record = Record::new(Fingerprint::from_bytes(fingerprint), token, row.get("started"));
    let Some(outcome) = row.get::<_, Option<Vec<u8>>>("outcome") else { return Ok(record) };
    let outcome = Outcome::decode(outcome.into()).map_err(StoreError::malformed)?;
    Ok(record.finished(outcome))
}

fn down(error: tokio_postgres::Error) -> StoreError {
    StoreError::unavailable(error)
}

fn seconds(time: Duration) -> f64 {
    // A hundred years, so that the sum with the server's current time does not overflow.
    time.as_secs_f64().min(100.0 * 365.0 * 24.0 * 60.0 * 60.0)
}
