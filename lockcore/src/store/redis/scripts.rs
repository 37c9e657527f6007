//! The scripts, assembled once, with their digests.

use std::sync::LazyLock;

use redis::{Cmd, ErrorKind, RedisError, ServerErrorKind};

/// What several scripts have in common, by the line that stands for it.
const PARTS: [(&str, &str); 8] = [
    ("--#include clock\n", include_str!("lua/clock.lua")),
    ("--#include common\n", include_str!("lua/common.lua")),
    ("--#include several\n", include_str!("lua/several.lua")),
    ("--#include permits/common\n", include_str!("lua/permits/common.lua")),
    ("--#include queue/take\n", include_str!("lua/queue/take.lua")),
    ("--#include queue/drop\n", include_str!("lua/queue/drop.lua")),
    // After both that include it, as strange after all `common`.
    ("--#include queue/common\n", include_str!("lua/queue/common.lua")),
    ("--#include strange\n", include_str!("lua/strange.lua")),
];

/// Whether the server has forgotten the script, and is to be given its source.
pub(crate) fn is_unknown(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
}

/// One script.
#[derive(Debug)]
pub(crate) struct Script {
    source: String,
    digest: String,
}

impl Script {
    fn new(source: &str, peers: bool) -> Self {
        let mut source = source.to_owned();
        for (line, part) in PARTS {
            source = source.replace(line, part);
        }
        let source = choose(&source, peers);
        let digest = redis::Script::new(&source).get_hash().to_owned();
        Self { source, digest }
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

/// The lines that are for one kind of queue stand between `--#if peers`, `--#else` and `--#end`.
fn choose(source: &str, peers: bool) -> String {
    let mut chosen = String::with_capacity(source.len());
    let mut is_in = true;
    for line in source.lines() {
        match line {
            "--#if peers" => is_in = peers,
            "--#else" => is_in = !peers,
            "--#end" => is_in = true,
            line if is_in => {
                chosen.push_str(line);
                chosen.push('\n');
            }
            _ => {}
        }
    }
    chosen
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
            fn new(peers: bool) -> Self {
                Self {
                    $($name: Script::new(
                        include_str!(concat!($folder, stringify!($name), ".lua")),
                        peers,
                    ),)*
                }
            }

            #[allow(dead_code, reason = "those of permits are not loaded at connect")]
            pub(crate) fn all(&self) -> impl Iterator<Item = &Script> {
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
    /// All that a mutex has, called by digest.
    Scripts in "lua/": acquire release renew touch leave force_release inspect preflight
);

scripts!(
    /// All that a resource with permits has.
    PermitScripts in "lua/permits/": acquire release renew reduce touch leave force_release inspect
);

scripts!(
    /// All that a lock has by the protocol of the queue.
    #[cfg_attr(
        not(feature = "unstable-internals"),
        allow(dead_code, reason = "no store speaks the protocol of the queue yet")
    )]
    QueueScripts in "lua/queue/":
    lock unlock extend acquire release renew reduce touch leave force_release inspect
);

/// Those for queues of our own, or for ones that are shared with JVMs.
pub(crate) fn of(peers: bool) -> &'static Scripts {
    static OWN: LazyLock<Scripts> = LazyLock::new(|| Scripts::new(false));
    static SHARED: LazyLock<Scripts> = LazyLock::new(|| Scripts::new(true));
    if peers { &SHARED } else { &OWN }
}

/// Those of resources with permits.
pub(crate) fn of_permits() -> &'static PermitScripts {
    static PERMITS: LazyLock<PermitScripts> = LazyLock::new(|| PermitScripts::new(false));
    &PERMITS
}

/// Those of the queue.
#[cfg_attr(
    not(feature = "unstable-internals"),
    allow(dead_code, reason = "no store speaks the protocol of the queue yet")
)]
pub(crate) fn of_queue() -> &'static QueueScripts {
    static QUEUE: LazyLock<QueueScripts> = LazyLock::new(|| QueueScripts::new(false));
    &QUEUE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_left_to_include() {
        for peers in [false, true] {
            let mut scripts = of(peers).all();
            assert!(scripts.all(|script| !script.source.contains("--#")));
        }
        assert!(of_permits().all().all(|script| !script.source.contains("--#")));
        assert!(of_queue().all().all(|script| !script.source.contains("--#")));
    }

    #[test]
    fn each_kind_of_queue_has_its_own_lines() {
        let source = "a\n--#if peers\nb\n--#else\nc\n--#end\nd\n";
        assert_eq!(choose(source, true), "a\nb\nd\n");
        assert_eq!(choose(source, false), "a\nc\nd\n");
    }

    #[test]
    fn a_call_by_source_has_the_same_keys_and_arguments() {
        let mut command = of(false).acquire.command(1);
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
        assert_eq!(arguments(&of(false).acquire.by_source(&command)), arguments(&command));
    }
}
