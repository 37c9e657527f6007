//! The Lua scripts with their digests, assembled once.

use std::sync::LazyLock;

use crate::function::{
    ALIVE_MS, FOREIGN_LEASE_MS, GRACE_MS, JVM_STEP_MS, LEADING, LOOKED_AT, MAX_COUNT_DIGITS,
    SHORT_SCORE_MS, SKIPPED_MS, SLACK_MS, SUSPECTS_MS, SWEEP,
};

/// Script parts shared by several scripts, each with the line that it replaces in a script.
const PARTS: [(&str, &str); 3] = [
    ("--#include redisson/take\n", include_str!("lua/take.lua")),
    ("--#include redisson/common\n", include_str!("lua/common.lua")),
    ("--#include redisson/several\n", include_str!("lua/several.lua")),
];

/// Number of waiters that a script reads at a time while it searches for the next holder. The first
/// waiter is read alone, because it usually gets the lock.
const MOST_WALKED: u64 = 32;

/// The constants of the scripts, as names and values. In the Lua files, `$name` stands for the
/// value.
pub const NUMBERS: [(&str, u64); 13] = [
    ("alive_ms", ALIVE_MS),
    ("foreign_lease_ms", FOREIGN_LEASE_MS),
    ("grace_ms", GRACE_MS),
    ("jvm_step_ms", JVM_STEP_MS),
    // Redis counts from 0.
    ("last_leading", LEADING as u64 - 1),
    ("last_looked_at", LOOKED_AT as u64 - 1),
    ("most_count_digits", MAX_COUNT_DIGITS as u64),
    ("most_walked", MOST_WALKED),
    ("skipped_ms", SKIPPED_MS),
    ("short_score_ms", SHORT_SCORE_MS),
    ("slack_ms", SLACK_MS),
    ("suspects_ms", SUSPECTS_MS),
    ("sweep", SWEEP as u64),
];

proto::scripts!(
    /// The scripts for a lock with a queue shared with JVMs.
    RedissonScripts in "lua/":
    acquire acquire_all release renew touch leave force_release inspect preflight
);

/// Returns all scripts with their digests. The first call assembles them.
pub fn all() -> &'static RedissonScripts {
    static ALL: LazyLock<RedissonScripts> =
        LazyLock::new(|| RedissonScripts::new(&PARTS, &NUMBERS));
    &ALL
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_left_to_include() {
        for script in all().all() {
            assert_eq!(script.first_gap(), None, "{}", script.name);
        }
    }
}
