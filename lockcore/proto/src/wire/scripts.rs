//! The scripts, assembled once, with their digests.

use std::sync::LazyLock;

/// The parts that several scripts have in common, by the line that stands for each.
const PARTS: [(&str, &str); 13] = [
    ("--#include clock\n", include_str!("lua/clock.lua")),
    ("--#include redisson/take\n", include_str!("lua/redisson/take.lua")),
    ("--#include redisson/common\n", include_str!("lua/redisson/common.lua")),
    ("--#include redisson/several\n", include_str!("lua/redisson/several.lua")),
    ("--#include queue/put_back\n", include_str!("lua/queue/put_back.lua")),
    ("--#include queue/behind_lock\n", include_str!("lua/queue/behind_lock.lua")),
    ("--#include queue/take\n", include_str!("lua/queue/take.lua")),
    ("--#include queue/drop\n", include_str!("lua/queue/drop.lua")),
    // After both that include them, as `foreign_key` after all `common`.
    ("--#include queue/state\n", include_str!("lua/queue/state.lua")),
    ("--#include queue/common\n", include_str!("lua/queue/common.lua")),
    ("--#include foreign_key\n", include_str!("lua/foreign_key.lua")),
    ("--#include preflight/try\n", include_str!("lua/preflight/try.lua")),
    ("--#include preflight/extras\n", include_str!("lua/preflight/extras.lua")),
];

/// SHA-1 of a script's text, by which a server knows it.
pub fn digest_of(source: &str) -> String {
    sha1_smol::Sha1::from(source).digest().to_string()
}

/// One script.
#[derive(Debug)]
pub struct Script {
    /// The name of its file.
    pub name: &'static str,
    /// The whole text, with all that it includes.
    pub source: String,
    /// SHA-1 of the text, by which a server knows it.
    pub digest: String,
}

impl Script {
    fn new(name: &'static str, source: &str) -> Self {
        let mut source = source.to_owned();
        for (line, part) in PARTS {
            source = source.replace(line, part);
        }
        let digest = digest_of(&source);
        Self { name, source, digest }
    }
}

macro_rules! scripts {
    ($(#[$about:meta])* $set:ident in $folder:literal: $($name:ident)*) => {
        $(#[$about])*
        #[derive(Debug)]
        pub struct $set {
            $(#[allow(missing_docs, reason = "named after its file")] pub $name: Script,)*
        }

        $(#[$about])*
        impl $set {
            fn new() -> Self {
                Self {
                    $($name: Script::new(
                        stringify!($name),
                        include_str!(concat!($folder, stringify!($name), ".lua")),
                    ),)*
                }
            }

            /// All of them.
            pub fn all(&self) -> impl Iterator<Item = &Script> {
                [$(&self.$name),*].into_iter()
            }

            /// The script of this name.
            pub fn get(&self, name: &str) -> Option<&Script> {
                self.all().find(|script| script.name == name)
            }

            /// The text of the script of this name.
            pub fn source(&self, name: &str) -> Option<&str> {
                self.get(name).map(|script| &*script.source)
            }
        }
    };
}

scripts!(
    /// The scripts of the queue.
    QueueScripts in "lua/queue/":
    lock unlock extend acquire acquire_all acquire_newest release renew confirm reduce touch leave force_release inspect
    preflight mark
);

scripts!(
    /// The scripts of a queue that JVMs share.
    RedissonScripts in "lua/redisson/":
    acquire acquire_all release renew touch leave force_release inspect preflight
);

/// The scripts of the queue.
pub fn of_queue() -> &'static QueueScripts {
    static QUEUE: LazyLock<QueueScripts> = LazyLock::new(QueueScripts::new);
    &QUEUE
}

/// The scripts of a queue that JVMs share.
pub fn of_redisson() -> &'static RedissonScripts {
    static REDISSON: LazyLock<RedissonScripts> = LazyLock::new(RedissonScripts::new);
    &REDISSON
}

/// The usual scripts of the queue.
pub(crate) fn usual() -> Vec<&'static Script> {
    let QueueScripts {
        lock,
        unlock,
        extend,
        acquire,
        acquire_all,
        release,
        renew,
        confirm,
        touch,
        leave,
        ..
    } = of_queue();
    vec![lock, unlock, extend, acquire, acquire_all, release, renew, confirm, touch, leave]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_left_to_include() {
        let mut all = of_queue().all().chain(of_redisson().all());
        assert!(all.all(|script| !script.source.contains("--#")));
    }
}
