//! The Redis key that stores a node's process for operators. The right to it is optional, because
//! no lock depends on the key.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use client::CommandLink;
use futures_util::FutureExt as _;
use futures_util::future::ready;
use proto::wire::keys::NodeKey;
use proto::{LockErrorKind, NodeId};
use redis::{Cmd, Value};
use tracing::debug;

use super::run::Run as _;
use crate::foreign;
use crate::store::StoreFuture;
use crate::store::process;

/// How long the server keeps a node's key after a write. The key then expires, so no node has to
/// delete a key.
const LIFE: Duration = Duration::from_secs(60);

/// Maximum length of the text in a node's key, in bytes. A longer text is ignored, because another
/// program must have written it.
const LONGEST: usize = 512;

/// Writes this node's key, and reads the keys of other nodes. Each key stores a node's process.
pub(super) struct NodeKeys {
    link: CommandLink,
    node: NodeId,
    /// True if the user may access these keys. Set to false once the server refuses.
    may: Arc<AtomicBool>,
}

impl NodeKeys {
    pub(super) fn new(link: CommandLink, node: NodeId, may: bool) -> Self {
        if !may {
            foreign::log(|| {
                debug!("~lock:node:* is not allowed: operators cannot see the processes of nodes");
            });
        }
        Self { link, node, may: Arc::new(AtomicBool::new(may)) }
    }

    /// Writes this node's process to its key.
    pub(super) fn write(&self) -> StoreFuture<()> {
        let mut set = redis::cmd("SET");
        set.arg(NodeKey(self.node.as_str()).to_string()).arg(process::of_this());
        set.arg("PX").arg(LIFE.as_millis() as u64);
        self.run(set, |_| ())
    }

    /// Reads a node's process; `None` if there is no key, or no right to read it.
    pub(super) fn read(&self, node: &str) -> StoreFuture<Option<String>> {
        let mut get = redis::cmd("GET");
        get.arg(NodeKey(node).to_string());
        self.run(get, |reply| {
            redis::from_redis_value(reply).ok().filter(|text: &String| text.len() <= LONGEST)
        })
    }

    /// Runs a command on a node's key, and converts the reply by `read`. Returns the default value
    /// if the user lacks the right, or another program has written the key.
    fn run<T: Default + Send + 'static>(
        &self,
        command: Cmd,
        read: fn(Value) -> T,
    ) -> StoreFuture<T> {
        if !self.may.load(Ordering::Relaxed) {
            return ready(Ok(T::default())).boxed();
        }
        let (link, may) = (self.link.clone(), Arc::clone(&self.may));
        let request = async move {
            match link.run(command).await {
                Ok(answer) => Ok(read(answer)),
                Err(error) if error.kind == LockErrorKind::Denied => {
                    // The server logs each refused attempt.
                    if may.swap(false, Ordering::Relaxed) {
                        let reason = &*error.detail;
                        foreign::log(|| {
                            debug!(reason, "operators cannot see the processes of nodes");
                        });
                    }
                    Ok(T::default())
                }
                // Another program has written the key.
                Err(error) if error.kind == LockErrorKind::WrongType => Ok(T::default()),
                Err(error) => Err(error),
            }
        };
        request.boxed()
    }
}
