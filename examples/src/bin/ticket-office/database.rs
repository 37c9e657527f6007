//! The SQLite database: a file shared by several processes, or in memory for this process.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use deadpool_sqlite::rusqlite::{self, Connection, ErrorCode};
use deadpool_sqlite::{BuildError, Timeouts};
use deadpool_sqlite::{
    Config, Hook, HookError, InteractError, Pool, PoolConfig, PoolError, Runtime,
};
use tokio::task::JoinError;

/// The maximum wait of a query for a connection from the pool, and of a write until other
/// connections have finished their writes.
const PATIENCE: Duration = Duration::from_secs(5);

/// Creates the table of seats. `token` is the highest fencing token with which a purchase of the
/// seat has begun. When the seat is sold, it is the token of the sale. `purchase` names the record
/// of the sale's idempotency key; NULL without a key.
const SCHEMA: &str = "\
CREATE TABLE IF NOT EXISTS seats (
    seat  INTEGER PRIMARY KEY,
    buyer TEXT,
    token INTEGER NOT NULL DEFAULT 0,
    purchase TEXT
);";

const SEATS: &str = "\
WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < ?1)
INSERT OR IGNORE INTO seats (seat) SELECT n FROM numbers;";

/// A pool of connections to the SQLite database. Queries run on threads that may block.
#[derive(Clone)]
pub(crate) struct Database {
    pool: Pool,
}

impl Database {
    /// Opens the database. Creates the file and the seats if they are missing.
    pub(crate) async fn open(path: Option<PathBuf>, seats: u32) -> Result<Self, DatabaseError> {
        // Every connection to `:memory:` opens a separate database, so only one is allowed.
        let (path, connections) = match path {
            Some(path) => (path, 4),
            None => (PathBuf::from(":memory:"), 1),
        };
        let mut config = Config::new(path);
        config.pool = Some(PoolConfig {
            timeouts: Timeouts::wait_millis(PATIENCE.as_millis() as u64),
            ..PoolConfig::new(connections)
        });
        let builder = match config.builder(Runtime::Tokio1) {
            Ok(builder) => builder,
            Err(never) => match never {},
        };
        let patient = Hook::async_fn(|connection, _| {
            Box::pin(async move {
                let set = connection.interact(|connection| connection.busy_timeout(PATIENCE)).await;
                match set {
                    Ok(Ok(())) => Ok(()),
                    Ok(Err(error)) => Err(HookError::Backend(error)),
                    Err(error) => Err(HookError::message(error.to_string())),
                }
            })
        });
        let database = Self { pool: builder.post_create(patient).build()? };
        database.run(move |connection| prepare(connection, seats)).await?;
        Ok(database)
    }

    /// Runs `work` on a connection from the pool, in a separate task: once polled, it runs to
    /// completion, even if this future is dropped. Otherwise the pool would discard a connection
    /// whose check was interrupted, and an in-memory database would be lost with it.
    pub(crate) async fn run<T, F>(&self, work: F) -> Result<T, DatabaseError>
    where
        F: FnOnce(&mut Connection) -> rusqlite::Result<T> + Send + 'static,
        T: Send + 'static,
    {
        let pool = self.pool.clone();
        let run = tokio::spawn(async move {
            let connection = pool.get().await?;
            Ok(connection.interact(work).await??)
        });
        run.await?
    }
}

fn prepare(connection: &mut Connection, seats: u32) -> rusqlite::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    // In WAL mode, readers and a writer do not wait for each other. Despite the busy timeout,
    // SQLite does not wait if two processes change the mode at once. The change is stored in the
    // file.
    while let Err(error) = connection.pragma_update(None, "journal_mode", "wal") {
        if error.sqlite_error_code() != Some(ErrorCode::DatabaseBusy) || Instant::now() > deadline {
            return Err(error);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    connection.execute_batch(SCHEMA)?;
    connection.execute(SEATS, [seats])?;
    Ok(())
}

/// The text of an error of the database, of the connection pool, or of the task with a query.
#[derive(Debug)]
pub(crate) struct DatabaseError(String);

impl DatabaseError {
    /// Describes the error with the flag `--database` and the path, so that the user knows what to
    /// change. `path` is `None` for an in-memory database.
    pub(crate) fn about(&self, path: Option<&Path>) -> String {
        let path = path.map_or("in memory".into(), Path::to_string_lossy);
        format!("--database {path}: {self}")
    }
}

impl fmt::Display for DatabaseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

macro_rules! from {
    ($($error:ty),*) => {$(
        impl From<$error> for DatabaseError {
            fn from(error: $error) -> Self {
                Self(error.to_string())
            }
        }
    )*};
}

from!(rusqlite::Error, PoolError, InteractError, BuildError, JoinError);

#[cfg(test)]
mod tests {
    use std::task::Poll;

    use super::*;

    #[tokio::test]
    async fn a_database_in_memory_outlives_clients_that_hang_up() {
        let database = Database::open(None, 3).await.unwrap();
        let count = |connection: &mut Connection| {
            connection.query_one("SELECT count(*) FROM seats", [], |row| row.get::<_, u32>(0))
        };
        // Each future is dropped at a different point.
        for polls in 0..200 {
            let mut query = Box::pin(database.run(count));
            for _ in 0..polls % 20 {
                let poll = std::future::poll_fn(|cx| Poll::Ready(query.as_mut().poll(cx)));
                if poll.await.is_ready() {
                    break;
                }
                tokio::time::sleep(Duration::from_micros(20)).await;
            }
        }
        assert_eq!(database.run(count).await.unwrap(), 3);
    }

    #[tokio::test]
    async fn opened_again_it_has_what_was_written() {
        let directory = std::env::temp_dir().join(format!("ticket-office-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let path = directory.join("seats.sqlite");
        let count = |database: Database| async move {
            let count = "SELECT count(*) FROM seats";
            database.run(|connection| connection.query_one(count, [], |row| row.get(0))).await
        };
        let first = Database::open(Some(path.clone()), 3).await.unwrap();
        let mode: String = first
            .run(|connection| connection.pragma_query_value(None, "journal_mode", |row| row.get(0)))
            .await
            .unwrap();
        assert_eq!(mode, "wal");
        let sold = "UPDATE seats SET buyer = 'Ann' WHERE seat = 2";
        assert_eq!(first.run(|connection| connection.execute(sold, [])).await.unwrap(), 1);
        let more: u32 = count(Database::open(Some(path.clone()), 5).await.unwrap()).await.unwrap();
        assert_eq!(more, 5);
        let buyer = "SELECT buyer FROM seats WHERE seat = 2";
        let buyer: Option<String> = first
            .run(|connection| connection.query_one(buyer, [], |row| row.get(0)))
            .await
            .unwrap();
        assert_eq!(buyer.as_deref(), Some("Ann"));
        std::fs::remove_dir_all(directory).unwrap();
    }
}
