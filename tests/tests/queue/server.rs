//! `Scripts`: the scripts on a server, with bounds that a test chooses.

use std::collections::HashMap;

use lock_tests::Raw;
use lockcore::NodeId;
use lockcore::internals::protocol::queue::Bounds;
use lockcore::internals::wire::{self, queue};
use lockcore::internals::{Answer, Command, LockName, StoreError};
use redis::{Arg, Cmd, Value, cmd};

/// The first part of the channels.
pub(crate) const PREFIX: &str = "lockcore";
const SCRIPTS: [&str; 12] = [
    "lock",
    "unlock",
    "extend",
    "acquire",
    "release",
    "renew",
    "confirm",
    "reduce",
    "touch",
    "leave",
    "force_release",
    "inspect",
];

/// All scripts, as the server knows them.
pub(crate) struct Scripts {
    digests: HashMap<&'static str, String>,
    /// The times that nodes have seen: the greatest token and time on any server, and the latest
    /// time on servers before this one.
    pub(crate) floors_us: [u64; 2],
}

impl Scripts {
    pub(crate) async fn load(redis: &mut Raw, bounds: Bounds) -> Self {
        let usual = Bounds::default();
        let line = |of: Bounds| format!(" = {}, {}, {}\n", of.granted, of.looked_at, of.reclaimed);
        let mut digests = HashMap::new();
        for name in SCRIPTS {
            let source = queue::script(name).expect("a script");
            let is_bound = name != "extend";
            assert_eq!(source.matches(&line(usual)).count(), usize::from(is_bound), "{name}");
            let source = source.replace(&line(usual), &line(bounds));
            digests.insert(name, redis.ask(cmd("SCRIPT").arg("LOAD").arg(source)).await);
        }
        Self { digests, floors_us: [0, 0] }
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
        queue::answer(command, node, self.floors_us[0], &answer)
    }

    pub(crate) fn call(&self, lock: &LockName, node: &NodeId, command: &Command) -> Cmd {
        let name = queue::script_name(command);
        let mut call = cmd("EVALSHA");
        call.arg(&self.digests[name]);
        let by_digest = queue::command(lock, node, PREFIX, command, self.floors_us);
        for argument in by_digest.args_iter().skip(2) {
            if let Arg::Simple(argument) = argument {
                call.arg(argument);
            }
        }
        call
    }
}
