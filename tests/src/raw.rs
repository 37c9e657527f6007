//! `Raw`: a plain connection to prepare the content of Redis, and for assertions on it.

use std::fmt;
use std::time::Duration;

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{AsyncConnectionConfig, Client, Cmd, FromRedisValue, Pipeline, RedisResult, cmd};

/// A test's own connection. Its methods panic on errors, except [`try_ask`](Raw::try_ask).
#[derive(Clone)]
pub struct Raw {
    connection: MultiplexedConnection,
}

impl Raw {
    /// Connects to a server.
    ///
    /// # Panics
    ///
    /// If the server at `url` cannot be reached.
    pub async fn connect(url: &str) -> Self {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(Duration::from_secs(10)))
            .set_response_timeout(Some(Duration::from_secs(30)));
        let client = Client::open(url).expect("the URL of a test is well formed");
        let connection = client
            .get_multiplexed_async_connection_with_config(&config)
            .await
            .unwrap_or_else(|error| panic!("no connection to {url}: {error}"));
        Self { connection }
    }

    /// Returns the connection, for scripts.
    pub(crate) fn connection(&mut self) -> &mut MultiplexedConnection {
        &mut self.connection
    }

    /// Runs any command.
    ///
    /// # Panics
    ///
    /// If the command fails, or its reply is not a `T`.
    pub async fn ask<T: FromRedisValue>(&mut self, command: &Cmd) -> T {
        match self.try_ask(command).await {
            Ok(reply) => reply,
            Err(error) => {
                let packed = command.get_packed_command();
                panic!("{error}, in reply to {}", packed.escape_ascii())
            }
        }
    }

    /// Runs any command; it may fail.
    ///
    /// # Errors
    ///
    /// The error of the client library.
    pub async fn try_ask<T: FromRedisValue>(&mut self, command: &Cmd) -> RedisResult<T> {
        command.query_async(&mut self.connection).await
    }

    /// Runs a pipeline for its effects.
    ///
    /// # Panics
    ///
    /// If a command in it fails.
    pub async fn run(&mut self, pipeline: &Pipeline) {
        let result = pipeline.exec_async(&mut self.connection).await;
        result.unwrap_or_else(|error| panic!("{error}, in reply to a pipeline"));
    }

    /// Returns the names of the keys that match a pattern, sorted, without node keys, which come
    /// and go by themselves.
    pub async fn keys(&mut self, pattern: &str) -> Vec<String> {
        let mut keys: Vec<String> = self.ask(cmd("KEYS").arg(pattern)).await;
        keys.retain(|key| !key.starts_with("lock:node:"));
        keys.sort();
        keys
    }

    /// Whether the key exists.
    pub async fn exists(&mut self, key: &str) -> bool {
        self.ask(cmd("EXISTS").arg(key)).await
    }

    /// Returns the time to live of a key in milliseconds; -1 without an expiry, -2 without the key.
    pub async fn pttl(&mut self, key: &str) -> i64 {
        self.ask(cmd("PTTL").arg(key)).await
    }

    /// Reads a whole list, head first.
    pub async fn list(&mut self, key: &str) -> Vec<String> {
        self.ask(cmd("LRANGE").arg(key).arg(0).arg(-1)).await
    }

    /// Returns the length of a list.
    pub async fn list_length(&mut self, key: &str) -> usize {
        self.ask(cmd("LLEN").arg(key)).await
    }

    /// Returns the members of a sorted set with their scores, lowest first.
    pub async fn scores(&mut self, key: &str) -> Vec<(String, f64)> {
        self.ask(cmd("ZRANGE").arg(key).arg(0).arg(-1).arg("WITHSCORES")).await
    }

    /// Returns the fields of a hash with their values, sorted.
    pub async fn hash(&mut self, key: &str) -> Vec<(String, String)> {
        let mut fields: Vec<(String, String)> = self.ask(cmd("HGETALL").arg(key)).await;
        fields.sort();
        fields
    }

    /// Reads a string; `None` without the key.
    pub async fn get(&mut self, key: &str) -> Option<String> {
        self.ask(cmd("GET").arg(key)).await
    }

    /// Publishes a message; returns the number of subscribers that received it.
    pub async fn publish(&mut self, channel: &str, message: &str) -> usize {
        self.ask(cmd("PUBLISH").arg(channel).arg(message)).await
    }

    /// Returns the number of subscribers of a channel.
    pub async fn subscribers(&mut self, channel: &str) -> usize {
        let (_, count): (String, usize) = self.ask(cmd("PUBSUB").arg("NUMSUB").arg(channel)).await;
        count
    }

    /// Kills the command connection of the only node of this server.
    ///
    /// # Panics
    ///
    /// If there is no such connection.
    pub async fn kill_the_command_connection(&mut self) {
        let clients: String = self.ask(cmd("CLIENT").arg("LIST").arg("TYPE").arg("normal")).await;
        let node = clients.lines().find(|client| client.contains(" name=lockcore:"));
        let mut words = node.expect("the node is connected").split(' ');
        let id = words.find_map(|word| word.strip_prefix("id=")).expect("each has an id");
        assert_eq!(self.ask::<u64>(cmd("CLIENT").arg("KILL").arg("ID").arg(id)).await, 1);
    }

    /// Sets a configuration directive of the running server.
    pub async fn configure(&mut self, name: &str, value: &str) {
        self.ask(cmd("CONFIG").arg("SET").arg(name).arg(value)).await
    }

    /// Makes the server drop every script (SCRIPT FLUSH).
    pub async fn flush_scripts(&mut self) {
        self.ask(cmd("SCRIPT").arg("FLUSH")).await
    }

    /// Deletes everything (FLUSHALL).
    pub async fn flush_all(&mut self) {
        self.ask(&cmd("FLUSHALL")).await
    }

    /// Returns a section of INFO, as text.
    pub async fn info(&mut self, section: &str) -> String {
        self.ask(cmd("INFO").arg(section)).await
    }

    /// Returns the server's clock in microseconds since the epoch.
    pub async fn time_us(&mut self) -> u64 {
        let (seconds, micros): (u64, u64) = self.ask(&cmd("TIME")).await;
        seconds * 1_000_000 + micros
    }
}

impl fmt::Debug for Raw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Raw").field("database", &self.connection.get_db()).finish()
    }
}
