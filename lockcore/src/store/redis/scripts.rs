//! The scripts, assembled once, with their digests.

use std::sync::LazyLock;

use redis::{Cmd, ErrorKind, RedisError, ServerErrorKind};

/// The parts that several scripts have in common, by the line that stands for each.
const PARTS: [(&str, &str); 9] = [
    ("--#include clock\n", include_str!("lua/clock.lua")),
    ("--#include redisson/common\n", include_str!("lua/redisson/common.lua")),
    ("--#include redisson/several\n", include_str!("lua/redisson/several.lua")),
    ("--#include queue/take\n", include_str!("lua/queue/take.lua")),
    ("--#include queue/drop\n", include_str!("lua/queue/drop.lua")),
    // After both that include it, as strange after all `common`.
    ("--#include queue/common\n", include_str!("lua/queue/common.lua")),
    ("--#include strange\n", include_str!("lua/strange.lua")),
    ("--#include preflight/try\n", include_str!("lua/preflight/try.lua")),
    ("--#include preflight/extras\n", include_str!("lua/preflight/extras.lua")),
];

/// Whether the server has forgotten the script, and is to be given its source.
pub(crate) fn is_unknown(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
}

/// One script.
#[derive(Debug)]
pub(crate) struct Script {
    /// The name of its file.
    #[cfg_attr(not(feature = "unstable-internals"), allow(dead_code, reason = "for tests"))]
    pub(crate) name: &'static str,
    source: String,
    digest: String,
}

impl Script {
    fn new(name: &'static str, source: &str) -> Self {
        let mut source = source.to_owned();
        for (line, part) in PARTS {
            source = source.replace(line, part);
        }
        let digest = redis::Script::new(&source).get_hash().to_owned();
        Self { name, source, digest }
    }

    /// A call by digest; keys and arguments follow.
    pub(crate) fn command(&self, keys: usize) -> Cmd {
        let mut command = Cmd::with_capacity(12 + 3 * keys, 512 + 64 * keys);
        command.arg("EVALSHA").arg(&self.digest).arg(keys);
        command
    }

    /// The same call with the whole source, for a server that has forgotten the script.
    pub(crate) fn by_source(&self, command: &Cmd) -> Cmd {
        let mut by_source = Cmd::new();
        by_source.arg("EVAL").arg(&self.source);
        for argument in command.args_iter().skip(2) {
            if let redis::Arg::Simple(argument) = argument {
                by_source.arg(argument);
            }
        }
        by_source
    }

    pub(crate) fn load(&self) -> Cmd {
        let mut command = redis::cmd("SCRIPT");
        command.arg("LOAD").arg(&self.source);
        command
    }
}

macro_rules! scripts {
    ($(#[$about:meta])* $set:ident in $folder:literal: $($name:ident)*) => {
        $(#[$about])*
        #[derive(Debug)]
        pub(crate) struct $set {
            $(pub(crate) $name: Script,)*
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

            #[cfg(test)]
            fn all(&self) -> impl Iterator<Item = &Script> {
                [$(&self.$name),*].into_iter()
            }

            #[cfg(feature = "unstable-internals")]
            pub(super) fn source(&self, name: &str) -> Option<&str> {
                match name {
                    $(stringify!($name) => Some(&self.$name.source),)*
                    _ => None,
                }
            }
        }
    };
}

scripts!(
    /// Those of the queue.
    QueueScripts in "lua/queue/":
    lock unlock extend acquire release renew confirm reduce touch leave force_release inspect
    preflight
);

scripts!(
    /// Those of a queue that JVMs share.
    RedissonScripts in "lua/redisson/":
    acquire release renew touch leave force_release inspect preflight
);

/// Those of the queue.
pub(crate) fn of_queue() -> &'static QueueScripts {
    static QUEUE: LazyLock<QueueScripts> = LazyLock::new(QueueScripts::new);
    &QUEUE
}

/// Those of a queue that JVMs share.
pub(crate) fn of_redisson() -> &'static RedissonScripts {
    static REDISSON: LazyLock<RedissonScripts> = LazyLock::new(RedissonScripts::new);
    &REDISSON
}

/// Those that each server is to know from the start. The others are rare, and go by their source
/// the first time.
pub(crate) fn usual(peers: bool) -> Vec<&'static Script> {
    if peers {
        let RedissonScripts { acquire, release, renew, touch, leave, .. } = of_redisson();
        return vec![acquire, release, renew, touch, leave];
    }
    let QueueScripts {
        lock, unlock, extend, acquire, release, renew, confirm, touch, leave, ..
    } = of_queue();
    vec![lock, unlock, extend, acquire, release, renew, confirm, touch, leave]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_left_to_include() {
        let mut all = of_queue().all().chain(of_redisson().all());
        assert!(all.all(|script| !script.source.contains("--#")));
    }

    #[test]
    fn a_call_by_source_has_the_same_keys_and_arguments() {
        let mut command = of_queue().acquire.command(1);
        command.arg("key").arg("argument with spaces");
        let arguments = |command: &Cmd| -> Vec<Vec<u8>> {
            command
                .args_iter()
                .skip(2)
                .map(|argument| match argument {
                    redis::Arg::Simple(argument) => argument.to_vec(),
                    _ => Vec::new(),
                })
                .collect()
        };
        assert_eq!(arguments(&of_queue().acquire.by_source(&command)), arguments(&command));
    }
}
