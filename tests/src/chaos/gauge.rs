//! The gauge of permits: how many are in use of each lock, counted by the clients as they enter and
//! leave, on a server without faults.

use redis::{Script, cmd};

use crate::Raw;

/// The script of an entering client, with its weight and deadline. It returns the weight in use
/// then: of clients before their deadlines, and of all clients that have not left. A client that
/// enters after its own deadline receives nothing about the others. Dead clients are removed after
/// ten seconds.
const ENTER: &str = r"
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', now - 10000000))
redis.call('ZADD', KEYS[1], ARGV[1], ARGV[2])
local valid, all = 0, 0
local entries = redis.call('ZRANGE', KEYS[1], 0, -1, 'WITHSCORES')
for i = 1, #entries, 2 do
  local weight = tonumber(string.match(entries[i], '^%d+'))
  all = all + weight
  if tonumber(entries[i + 1]) > now then valid = valid + weight end
end
if tonumber(ARGV[1]) <= now then valid = 0 end
return { valid, all }";

/// The gauges of all locks: how many permits clients say they use.
#[derive(Clone, Debug)]
pub(super) struct Gauge {
    redis: Raw,
    enter: Script,
}

impl Gauge {
    pub(super) async fn connect(url: &str) -> Self {
        Self { redis: Raw::connect(url).await, enter: Script::new(ENTER) }
    }

    /// Enters the gauge, with a hold until `until`, in µs of the wall clock. Returns the weight in
    /// use including its own: of clients with valid holds, and of all clients that have not left.
    pub(super) async fn enter(
        &mut self,
        lock: u32,
        who: &str,
        weight: u64,
        until: i64,
    ) -> [u64; 2] {
        let mut call = self.enter.prepare_invoke();
        call.key(name(lock)).arg(until).arg(entry(who, weight));
        call.invoke_async(self.redis.connection()).await.expect("the resource answers")
    }

    pub(super) async fn leave(&mut self, lock: u32, who: &str, weight: u64) {
        self.redis.ask(cmd("ZREM").arg(name(lock)).arg(entry(who, weight))).await
    }
}

fn name(lock: u32) -> String {
    format!("gauge:{lock}")
}

fn entry(who: &str, weight: u64) -> String {
    format!("{weight} {who}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RedisServer;

    #[tokio::test]
    async fn who_is_past_its_deadline_counts_among_all_only() {
        let server = RedisServer::start();
        let mut gauge = Gauge::connect(&server.url()).await;
        let now = Raw::connect(&server.url()).await.time_us().await as i64;
        let later = now + 60_000_000;
        let over = now - 1_000_000;
        assert_eq!(gauge.enter(1, "ann", 2, later).await, [2, 2]);
        assert_eq!(gauge.enter(1, "ben", 1, over).await, [0, 3], "it is late itself");
        assert_eq!(gauge.enter(1, "cat", 3, later).await, [5, 6]);
        gauge.leave(1, "ann", 2).await;
        assert_eq!(gauge.enter(1, "dan", 1, later).await, [4, 5]);
        assert_eq!(gauge.enter(2, "eve", 1, later).await, [1, 1], "of another lock");
        assert_eq!(gauge.enter(1, "old", 7, over - 10_000_000).await, [0, 12]);
        assert_eq!(gauge.enter(1, "fay", 1, later).await, [5, 6], "the dead are forgotten");
    }
}
