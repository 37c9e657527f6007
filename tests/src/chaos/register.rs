//! The resource protected by the locks: per lock a pair of registers that checks tokens, and an
//! unfenced pair. Writers read the first register of each pair, and write both registers of it
//! together, incremented; a writer that reads an old value loses an update. Readers read the first
//! and then the second register, and must find them equal.

use redis::Script;

use super::record::Pair;
use crate::Raw;

/// The script that reads a register of each pair, presenting a token. The fenced register refuses a
/// token below the highest presented token.
const READ: &str = r"
local plain = redis.call('HGET', KEYS[2], ARGV[2]) or '0'
local highest = tonumber(redis.call('HGET', KEYS[1], 'token') or '0')
if tonumber(ARGV[1]) < highest then return { '', plain } end
redis.call('HSET', KEYS[1], 'token', ARGV[1])
return { redis.call('HGET', KEYS[1], ARGV[2]) or '0', plain }";

/// The script that writes both registers of each pair, counting accepted writes.
const WRITE: &str = r"
redis.call('HSET', KEYS[2], 'value', ARGV[3], 'second', ARGV[3])
redis.call('HINCRBY', KEYS[2], 'accepted', 1)
if ARGV[2] == '' or tonumber(ARGV[1]) < tonumber(redis.call('HGET', KEYS[1], 'token')) then return 0 end
redis.call('HSET', KEYS[1], 'value', ARGV[2], 'second', ARGV[2])
redis.call('HINCRBY', KEYS[1], 'accepted', 1)
return 1";

/// A register of a pair.
#[derive(Clone, Copy, Debug)]
pub(super) enum Half {
    First,
    Second,
}

impl Half {
    fn field(self) -> &'static str {
        match self {
            Self::First => "value",
            Self::Second => "second",
        }
    }
}

/// The registers of all locks, on a server without faults.
#[derive(Clone, Debug)]
pub(super) struct Registers {
    redis: Raw,
    read: Script,
    write: Script,
}

/// The values of a read; a writer writes them back incremented.
#[derive(Clone, Copy, Debug)]
pub(super) struct Values {
    /// The value of the fenced register; `None` if it refused the token.
    fenced: Option<u64>,
    plain: u64,
}

impl Values {
    /// Returns a reader's view after reading these values of the first registers, and then `second`
    /// of the second registers: of the fenced pair, and of the unfenced pair.
    pub(super) fn pairs(self, second: Self) -> [Pair; 2] {
        let pair = |is_equal| if is_equal { Pair::Equal } else { Pair::Torn };
        let fenced = self.fenced.zip(second.fenced);
        let fenced = fenced.map_or(Pair::Refused, |(first, second)| pair(first == second));
        [fenced, pair(self.plain == second.plain)]
    }
}

/// The number of accepted writes, and how many of them are in the value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Count {
    pub(super) accepted: u64,
    pub(super) value: u64,
}

impl Count {
    pub(super) fn lost(self) -> u64 {
        self.accepted - self.value
    }
}

impl Registers {
    pub(super) async fn connect(url: &str) -> Self {
        Self { redis: Raw::connect(url).await, read: Script::new(READ), write: Script::new(WRITE) }
    }

    pub(super) async fn read(&mut self, lock: u32, half: Half, token: u64) -> Values {
        let [fenced, plain] = names(lock);
        let mut call = self.read.prepare_invoke();
        call.key(fenced).key(plain).arg(token).arg(half.field());
        let (fenced, plain): (String, u64) =
            call.invoke_async(self.redis.connection()).await.expect("the resource answers");
        Values { fenced: fenced.parse().ok(), plain }
    }

    /// Writes both pairs; returns whether the fenced register accepted the write.
    pub(super) async fn write(&mut self, lock: u32, token: u64, read: Values) -> bool {
        let [fenced, plain] = names(lock);
        let next = read.fenced.map_or(String::new(), |value| (value + 1).to_string());
        let mut call = self.write.prepare_invoke();
        call.key(fenced).key(plain).arg(token).arg(next).arg(read.plain + 1);
        call.invoke_async(self.redis.connection()).await.expect("the resource answers")
    }

    /// Returns the counts of the fenced and of the unfenced register of a lock.
    pub(super) async fn counts(&mut self, lock: u32) -> [Count; 2] {
        let mut counts = [Count::default(); 2];
        for (name, count) in names(lock).into_iter().zip(&mut counts) {
            for (field, number) in self.redis.hash(&name).await {
                match field.as_str() {
                    "accepted" => count.accepted = number.parse().expect("a count"),
                    "value" => count.value = number.parse().expect("a value"),
                    _ => {}
                }
            }
        }
        counts
    }
}

fn names(lock: u32) -> [String; 2] {
    [format!("fenced:{lock}"), format!("plain:{lock}")]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RedisServer;

    /// Two tasks read before either writes: a lock is there to prevent this.
    #[tokio::test]
    async fn a_stale_token_is_refused_where_it_is_checked_and_loses_an_update_where_it_is_not() {
        let server = RedisServer::start();
        let mut registers = Registers::connect(&server.url()).await;
        let stale = registers.read(1, Half::First, 10).await;
        let fresh = registers.read(1, Half::First, 11).await;
        assert!(!registers.write(1, 10, stale).await);
        assert!(registers.write(1, 11, fresh).await);
        let [fenced, plain] = registers.counts(1).await;
        assert_eq!(fenced, Count { accepted: 1, value: 1 });
        assert_eq!(plain, Count { accepted: 2, value: 1 });
        assert_eq!((fenced.lost(), plain.lost()), (0, 1));
        let late = registers.read(1, Half::First, 10).await;
        assert!(!registers.write(1, 10, late).await, "also if it reads after the other's write");
        assert_eq!(registers.counts(1).await[0].lost(), 0);
    }
    /// The hold of a reader ends between its two reads, while another client writes.
    #[tokio::test]
    async fn a_pair_is_torn_by_a_stale_reader_only_where_its_token_is_not_checked() {
        let server = RedisServer::start();
        let mut registers = Registers::connect(&server.url()).await;
        let first = registers.read(1, Half::First, 10).await;
        let second = registers.read(1, Half::Second, 10).await;
        assert_eq!(first.pairs(second), [Pair::Equal, Pair::Equal]);
        let written = registers.read(1, Half::First, 11).await;
        assert!(registers.write(1, 11, written).await);
        let second = registers.read(1, Half::Second, 10).await;
        assert_eq!(first.pairs(second), [Pair::Refused, Pair::Torn]);
        // If both had the same token, the fenced pair would be torn as well.
        let second = registers.read(1, Half::Second, 11).await;
        assert_eq!(first.pairs(second), [Pair::Torn, Pair::Torn]);
    }
}
