//! The scripts, assembled once, with their digests.

use std::sync::LazyLock;

/// The parts that several scripts have in common, by the line that stands for each.
const PARTS: [(&str, &str); 3] = [
    ("--#include redisson/take\n", include_str!("lua/take.lua")),
    ("--#include redisson/common\n", include_str!("lua/common.lua")),
    ("--#include redisson/several\n", include_str!("lua/several.lua")),
];

proto::scripts!(
    /// The scripts of a queue that JVMs share.
    RedissonScripts in "lua/":
    acquire acquire_all release renew touch leave force_release inspect preflight
);

/// All scripts.
pub fn all() -> &'static RedissonScripts {
    static ALL: LazyLock<RedissonScripts> = LazyLock::new(|| RedissonScripts::new(&PARTS));
    &ALL
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_left_to_include() {
        assert!(all().all().all(|script| !script.source.contains("--#")));
    }
}
