//! PostgreSQL advisory locks, with a session per holder or waiter; sessions are reused.

use std::sync::{Mutex, PoisonError};

use lock_peer_kit::{Peer, run};
use tokio_postgres::{Client, NoTls, Statement};

/// A session with its two statements.
struct Session {
    client: Client,
    lock: Statement,
    unlock: Statement,
}

struct Postgres {
    address: String,
    idle: Mutex<Vec<Session>>,
}

impl Postgres {
    async fn session(&self) -> Session {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        if let Some(session) = idle {
            return session;
        }
        let (client, connection) =
            tokio_postgres::connect(&self.address, NoTls).await.expect("connected");
        tokio::spawn(connection);
        let lock = "SELECT pg_advisory_lock(hashtextextended($1, 0))";
        let unlock = "SELECT pg_advisory_unlock(hashtextextended($1, 0))";
        let lock = client.prepare(lock).await.expect("prepared");
        let unlock = client.prepare(unlock).await.expect("prepared");
        Session { client, lock, unlock }
    }
}

impl Peer for Postgres {
    type Hold = (Session, String);

    async fn take(&self, key: String) -> (Session, String) {
        let session = self.session().await;
        session.client.query(&session.lock, &[&key]).await.expect("taken");
        (session, key)
    }

    async fn give(&self, (session, key): (Session, String)) {
        session.client.query(&session.unlock, &[&key]).await.expect("held");
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(session);
    }
}

fn main() {
    run("PostgreSQL", async |address| Postgres { address, idle: Mutex::default() });
}
