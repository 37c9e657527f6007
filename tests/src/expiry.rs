//! When keys expire, to the millisecond, also on servers before 7.0, which have no `PEXPIRETIME`.

use redis::cmd;

use crate::Raw;

/// A Lua function: `expiry(key)` returns the same as `PEXPIRETIME`. It goes before the text of a
/// script.
pub const EXPIRY: &str = "
local function now_ms()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end
local function expiry(key)
  local at = redis.pcall('PEXPIRETIME', key)
  if type(at) == 'number' then return at end
  local before, left
  repeat -- the clock of an old server goes on within a script
    before = now_ms()
    left = redis.call('PTTL', key)
  until now_ms() == before
  return left < 0 and left or before + left
end
";

impl Raw {
    /// Returns when the key expires, in ms since the epoch; -1 without an expiry, -2 without the
    /// key.
    pub async fn expiry(&mut self, key: &str) -> i64 {
        let script = format!("{EXPIRY} return expiry(KEYS[1])");
        self.ask(cmd("EVAL").arg(script).arg(1).arg(key)).await
    }
}
