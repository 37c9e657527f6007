//! The scripts, assembled once, with their digests.

use std::sync::LazyLock;

use redis::Cmd;

/// One script.
#[derive(Debug)]
pub(crate) struct Script {
    source: String,
    digest: String,
}

impl Script {
    fn new(source: &str) -> Self {
        let source = source.replace("--#include common\n", include_str!("lua/common.lua"));
        let digest = redis::Script::new(&source).get_hash().to_owned();
        Self { source, digest }
    }

    /// A call by digest; keys and arguments follow.
    pub(crate) fn command(&self, keys: usize) -> Cmd {
        let mut command = Cmd::with_capacity(16, 768);
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
    ($($name:ident)*) => {
        $(pub(crate) fn $name() -> &'static Script {
            static SCRIPT: LazyLock<Script> =
                LazyLock::new(|| Script::new(include_str!(concat!("lua/", stringify!($name), ".lua"))));
            &SCRIPT
        })*

        /// All that are called by digest.
        pub(crate) fn all() -> impl Iterator<Item = &'static Script> {
            [$($name()),*].into_iter()
        }
    };
}

scripts!(acquire release renew touch leave force_release inspect preflight);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_left_to_include() {
        assert!(all().all(|script| !script.source.contains("#include")));
    }

    #[test]
    fn a_call_by_source_has_the_same_keys_and_arguments() {
        let mut command = acquire().command(1);
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
        assert_eq!(arguments(&acquire().by_source(&command)), arguments(&command));
    }
}
