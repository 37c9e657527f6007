//! `Permits`: the scripts on a server, with bounds that a test chooses.

use std::collections::HashMap;

use lock_tests::Raw;
use lockcore::NodeId;
use lockcore::internals::protocol::permits::Bounds;
use lockcore::internals::wire::{self, permits};
use lockcore::internals::{Answer, Command, LockName, StoreError};
use redis::{Arg, Cmd, Value, cmd};

/// The first part of the channels.
pub(crate) const PREFIX: &str = "lockcore";
const SCRIPTS: [&str; 8] =
    ["acquire", "release", "renew", "reduce", "touch", "leave", "force_release", "inspect"];

/// All scripts, as the server knows them.
pub(crate) struct Permits {
    digests: HashMap<&'static str, String>,
    /// The times that nodes have seen: on any server, and on servers before this one.
    pub(crate) seen_us: [u64; 2],
}

impl Permits {
    pub(crate) async fn load(redis: &mut Raw, bounds: Bounds) -> Self {
        let usual = Bounds::default();
        let line = |of: Bounds| format!(" = {}, {}, {}\n", of.granted, of.looked_at, of.reclaimed);
        let mut digests = HashMap::new();
        for name in SCRIPTS {
            let source = permits::script(name).expect("a script");
            assert_eq!(source.matches(&line(usual)).count(), 1, "the bounds of {name}");
            let source = source.replace(&line(usual), &line(bounds));
            digests.insert(name, redis.ask(cmd("SCRIPT").arg("LOAD").arg(source)).await);
        }
        Self { digests, seen_us: [0, 0] }
    }

    pub(crate) async fn run(
        &self,
        redis: &mut Raw,
        lock: &LockName,
        node: &NodeId,
        command: &Command,
    ) -> Result<Answer, StoreError> {
        let call = self.call(lock, node, command);
        let answer: Value = redis.try_ask(&call).await.map_err(|error| wire::error(&error))?;
        permits::answer(command, &answer)
    }

    pub(crate) fn call(&self, lock: &LockName, node: &NodeId, command: &Command) -> Cmd {
        let name = match command {
            Command::Acquire { .. } => "acquire",
            Command::Release { .. } => "release",
            Command::Renew { .. } => "renew",
            Command::Reduce { .. } => "reduce",
            Command::Touch { .. } => "touch",
            Command::Leave { .. } => "leave",
            Command::ForceRelease { .. } => "force_release",
            Command::Inspect => "inspect",
        };
        let mut call = cmd("EVALSHA");
        call.arg(&self.digests[name]);
        let by_digest = permits::command(lock, node, PREFIX, command, self.seen_us);
        for argument in by_digest.args_iter().skip(2) {
            if let Arg::Simple(argument) = argument {
                call.arg(argument);
            }
        }
        call
    }
}
