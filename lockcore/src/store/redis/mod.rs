//! The store on Redis: scripts over one shared connection, grants over one subscription.

mod confirmations;
mod connector;
mod denial;
#[cfg(feature = "unstable-internals")]
pub(crate) mod door;
mod failure;
mod greeting;
mod hello;
mod keys;
mod link;
mod mutex;
mod permits;
mod preflight;
#[cfg(feature = "unstable-internals")]
mod queue;
mod reply;
mod rights;
mod scripts;
pub(crate) mod seen;
mod subscription;
mod tls;
mod together;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis::Cmd;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use confirmations::Confirmations;
pub(crate) use confirmations::Replicas;
pub(crate) use connector::Connector;
pub(crate) use tls::Certificates;

use crate::error::{LockError, LockErrorKind, StoreError};
use crate::key::LockName;
use crate::member::{Label, NodeId};
use crate::store::{Answer, Answers, Command, Link, Listener, Store, StoreFuture};
use link::CommandLink;
use mutex::Writer;
use rights::Rights;
use scripts::{Script, Scripts};
use seen::Seen;
use subscription::{Channels, Subscription};

/// What a store on Redis needs to know.
pub(crate) struct RedisSettings {
    pub(crate) connector: Connector,
    pub(crate) node: NodeId,
    /// First part of the grants channels.
    pub(crate) prefix: Arc<str>,
    /// What people see of this node.
    pub(crate) label: Label,
    pub(crate) namespace: Option<Arc<str>>,
    /// A name in the namespace that nothing else uses, for checking rights.
    pub(crate) probe: LockName,
    pub(crate) request_timeout: Duration,
    /// Whether queues are shared with JVMs.
    pub(crate) peers: bool,
    /// Which replicas have to have a grant.
    pub(crate) replicas: Option<Replicas>,
    /// What no token is below.
    pub(crate) seen: Arc<Seen>,
}

/// One node's view of a Redis server.
pub(crate) struct RedisStore {
    node: NodeId,
    prefix: Arc<str>,
    peers: bool,
    scripts: &'static Scripts,
    link: CommandLink,
    subscription: Subscription,
    /// Where grants count only once replicas have them.
    confirmations: Option<Confirmations>,
    seen: Arc<Seen>,
    closed: CancellationToken,
}

impl RedisStore {
    /// Both connections stand, the subscription is confirmed and the rights are there when this
    /// returns.
    pub(crate) async fn connect(
        settings: RedisSettings,
        listener: Arc<dyn Listener>,
    ) -> Result<Self, LockError> {
        let RedisSettings {
            connector,
            node,
            prefix,
            label,
            namespace,
            probe,
            request_timeout,
            peers,
            replicas,
            seen,
        } = settings;
        let scripts = scripts::of(peers);
        let closed = CancellationToken::new();
        // Ends the tasks of a store that is not finished, too.
        let guard = closed.clone().drop_guard();
        let connector = Arc::new(connector);
        let is_watched = connector.is_watched();
        let (link, hello) = CommandLink::connect(
            Arc::clone(&connector),
            request_timeout,
            scripts,
            hello::connection_name(label.as_str()),
            closed.clone(),
        )
        .await?;
        preflight::check_server(&link, hello).await?;
        let rights = Rights {
            scripts,
            prefix: &prefix,
            node: &node,
            namespace: namespace.as_deref(),
            probe: &probe,
            peers,
        };
        let extras = rights.check(&link).await?;
        link.settle(extras).await?;
        if extras.info {
            preflight::check_settings(&link, is_watched).await?;
        }
        if replicas.is_some() {
            // Whether the user may.
            link.run(redis::cmd("WAIT").arg(0).arg(1).to_owned())
                .await
                .map_err(LockError::of_store)?;
        }
        let confirmations = replicas.map(|replicas| {
            Confirmations::start(&connector, &link, replicas, request_timeout, &closed)
        });
        let subscription = Subscription::connect(
            connector,
            Channels::new(&prefix, &node, peers),
            extras.introduce,
            request_timeout,
            listener,
            link.suspicion(),
            closed.clone(),
        )
        .await?;
        together::check(&link, &subscription, &prefix, &node).await?;
        guard.disarm();
        Ok(Self { node, prefix, peers, scripts, link, subscription, confirmations, seen, closed })
    }

    fn writer(&self) -> Writer<'_> {
        Writer { node: &self.node, prefix: &self.prefix, peers: self.peers, scripts: self.scripts }
    }

    /// A call of a script that runs these commands, and the reader of its answer. The latest times
    /// that this node has seen end the arguments.
    fn write(
        &self,
        commands: &[(&LockName, &Command)],
    ) -> Result<(&'static Script, Cmd, Asked), StoreError> {
        let (latest, elsewhere) = self.seen.by(self.link.servers());
        if let [(lock, command)] = commands {
            if lock.is_shared() {
                let mut call = permits::command(lock, &self.node, &self.prefix, command);
                call.arg(latest).arg(elsewhere);
                let asked = Asked::Permits(Command::clone(command));
                return Ok((permits::script(command), call, asked));
            }
            if let Some((script, mut call)) = self.writer().write(lock, command) {
                call.arg(latest);
                return Ok((script, call, Asked::Mutex(Command::clone(command))));
            }
        }
        let written = self.writer().write_several(commands).ok_or_else(no_such_command)?;
        let (script, mut call) = written;
        call.arg(latest);
        let asked = commands.iter().map(|(_, command)| Command::clone(command)).collect();
        Ok((script, call, Asked::Mutexes(asked)))
    }

    /// Runs the script for these commands, reads its answer, and remembers the server's time.
    fn call<T: Send + 'static>(
        &self,
        commands: &[(&LockName, &Command)],
        read: fn(&Asked, &redis::Value) -> Result<T, StoreError>,
        time: fn(&T) -> Option<u64>,
    ) -> StoreFuture<T> {
        let (script, call, asked) = match self.write(commands) {
            Ok(written) => written,
            Err(error) => return StoreFuture::ready(Err(error)),
        };
        let (link, seen, server) = (self.link.clone(), Arc::clone(&self.seen), self.link.servers());
        StoreFuture::pending(async move {
            // One that is replaced meanwhile answers in a good form, or the next bad one shows it.
            let generation = link.generation();
            let answer = link.run_script(script, call).await?;
            let answer = read(&asked, &answer).inspect_err(|_| link.distrust(generation))?;
            note(time(&answer), &seen, server);
            Ok(answer)
        })
    }
}

/// The commands that an answer is for.
enum Asked {
    Mutex(Command),
    /// Renewals or touches.
    Mutexes(Vec<Command>),
    /// Of reads, writes and permits.
    Permits(Command),
}

impl Asked {
    /// Reads the answer to the only command.
    fn answer(&self, answer: &redis::Value) -> Result<Answer, StoreError> {
        match self {
            Self::Mutex(command) => reply::answer(command, answer),
            Self::Permits(command) => permits::answer(command, answer),
            Self::Mutexes(commands) => {
                let alone = reply::answers(commands, answer)?.pop();
                alone.unwrap_or_else(|| Err(reply::nonsense()))
            }
        }
    }

    /// Reads an answer for each command.
    fn answers(&self, answer: &redis::Value) -> Result<Answers, StoreError> {
        match self {
            Self::Mutexes(commands) => reply::answers(commands, answer),
            one => Ok(vec![Ok(one.answer(answer)?)]),
        }
    }
}

/// The time that several answers tell: one script has answered them all.
fn latest(answers: &Answers) -> Option<u64> {
    answers.iter().flatten().filter_map(Answer::now_us).max()
}

fn note(told_us: Option<u64>, seen: &Seen, server: u64) {
    if let Some(now_us) = told_us {
        seen.note(now_us, server);
    }
}

fn no_such_command() -> StoreError {
    StoreError::refused(LockErrorKind::Protocol, "there is no script for these commands")
}

impl Store for RedisStore {
    fn run(&self, lock: &LockName, command: &Command) -> StoreFuture<Answer> {
        self.call(&[(lock, command)], Asked::answer, Answer::now_us)
    }

    fn run_together(&self, commands: &[(&LockName, &Command)]) -> StoreFuture<Answers> {
        self.call(commands, Asked::answers, latest)
    }

    fn confirm(&self, renewals: &[(&LockName, &Command)]) -> StoreFuture<(Answers, u32)> {
        let written = self.confirmations.as_ref().ok_or_else(no_such_command);
        let written = written.and_then(|confirmations| Ok((confirmations, self.write(renewals)?)));
        let (confirmations, (script, call, asked)) = match written {
            Ok(written) => written,
            Err(error) => return StoreFuture::ready(Err(error)),
        };
        let running = confirmations.run(script, call);
        let (seen, server) = (Arc::clone(&self.seen), self.link.servers());
        StoreFuture::pending(async move {
            let (answer, replicas) = running.await?;
            let answers = asked.answers(&answer)?;
            note(latest(&answers), &seen, server);
            Ok((answers, replicas))
        })
    }

    fn ping(&self) -> StoreFuture<()> {
        let link = self.link.clone();
        StoreFuture::pending(async move { link.run(redis::cmd("PING")).await.map(drop) })
    }

    fn commands(&self) -> watch::Receiver<Link> {
        self.link.state()
    }

    fn servers(&self) -> u64 {
        self.link.servers()
    }

    fn subscription(&self) -> watch::Receiver<Link> {
        self.subscription.state()
    }

    fn reopen_subscription(&self) {
        self.subscription.reopen();
    }

    fn close(&self) {
        self.closed.cancel();
    }
}

impl Drop for RedisStore {
    fn drop(&mut self) {
        self.closed.cancel();
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore").field("node", &self.node).finish_non_exhaustive()
    }
}
