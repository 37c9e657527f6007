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

use crate::error::{LockError, StoreError};
use crate::key::LockName;
use crate::member::{Label, Member, NodeId};
use crate::store::{
    Acquired, Each, Inspection, Leaving, Left, Link, Listener, Mode, Released, Renewed, Reply,
    Store, StoreFuture, Touched, protocol, without_replicas,
};
use keys::{Key, Tombstone};
use link::CommandLink;
use rights::Rights;
use scripts::{Script, Scripts};
use seen::{Dated, Seen};
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
            link.run(redis::cmd("WAIT").arg(0).arg(1).to_owned()).await?;
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

    /// `script` with the keys of `lock`, then what every script knows of the caller.
    fn command(&self, script: &Script, lock: &LockName) -> Cmd {
        self.command_with(script, lock, &[])
    }

    fn command_with(&self, script: &Script, lock: &LockName, tombstones: &[&Member]) -> Cmd {
        let mut command = script.command(self.keys_each() + tombstones.len());
        self.add_keys(&mut command, lock, tombstones);
        command.arg(self.node.as_str()).arg(&*self.prefix);
        command
    }

    /// How many keys of a lock most scripts are given.
    fn keys_each(&self) -> usize {
        4 + 3 * usize::from(self.peers)
    }

    fn add_keys(&self, command: &mut Cmd, lock: &LockName, tombstones: &[&Member]) {
        command.arg(lock.as_str());
        command.arg(Key::queue(lock)).arg(Key::deadlines(lock)).arg(Key::token(lock));
        for member in tombstones {
            command.arg(Tombstone { lock, member });
        }
        if self.peers {
            command.arg(&Key::of_peers(lock));
        }
    }

    fn renewal(&self, holds: &[(LockName, Member)]) -> Cmd {
        let mut command = self.scripts.renew.command(2 * holds.len());
        for (lock, _) in holds {
            command.arg(lock.as_str()).arg(Key::token(lock));
        }
        command.arg(self.node.as_str()).arg(&*self.prefix);
        for (_, member) in holds {
            command.arg(member.as_str()).arg(member.ours().map_or(0, |ours| ours.lease_ms));
        }
        command
    }

    /// Runs a command, reads its answer, and says how many replicas have what it has written.
    fn run_confirmed<T: Dated + Send + 'static>(
        &self,
        script: &'static Script,
        command: Cmd,
        read: impl FnOnce(redis::Value) -> Result<T, StoreError> + Send + 'static,
    ) -> StoreFuture<(T, u32)> {
        let Some(confirmations) = &self.confirmations else {
            return StoreFuture::ready(Err(without_replicas()));
        };
        let running = confirmations.run(script, command);
        let (server, seen) = (self.link.servers(), Arc::clone(&self.seen));
        StoreFuture::pending(async move {
            let (answer, replicas) = running.await?;
            let answer = read(answer)?;
            seen.note(answer.now_us(), server);
            Ok((answer, replicas))
        })
    }

    /// Runs a command and reads its answer.
    fn run<T: Dated + Send + 'static>(
        &self,
        script: &'static Script,
        command: Cmd,
        read: impl FnOnce(redis::Value) -> Result<T, StoreError> + Send + 'static,
    ) -> StoreFuture<T> {
        let (link, seen, server) = (self.link.clone(), Arc::clone(&self.seen), self.link.servers());
        StoreFuture::pending(async move {
            // One that is replaced meanwhile answers in a good form, or the next bad one shows it.
            let generation = link.generation();
            let answer = read(link.run_script(script, command).await?)
                .inspect_err(|_| link.distrust(generation))?;
            seen.note(answer.now_us(), server);
            Ok(answer)
        })
    }

    /// Adds the latest time, which ends the arguments of a mutex' script.
    fn dated(&self, mut command: Cmd) -> Cmd {
        let (latest, _) = self.seen.by(self.link.servers());
        command.arg(latest);
        command
    }

    /// Adds the latest times, which end the arguments of a script of permits.
    fn dated_twice(&self, mut command: Cmd) -> Cmd {
        let (latest, elsewhere) = self.seen.by(self.link.servers());
        command.arg(latest).arg(elsewhere);
        command
    }
}

impl Store for RedisStore {
    fn acquire(
        &self,
        lock: &LockName,
        member: &Member,
        mode: Mode,
        queue_limit: u32,
    ) -> StoreFuture<Reply<Acquired>> {
        let script = &self.scripts.acquire;
        let mut command = self.command_with(script, lock, &[member]);
        let lease_ms = member.ours().map_or(0, |ours| ours.lease_ms);
        let mode = match mode {
            Mode::Try => "try",
            Mode::Wait => "wait",
        };
        command.arg(member.as_str()).arg(lease_ms).arg(mode).arg(queue_limit);
        let member = member.clone();
        self.run(script, self.dated(command), move |answer| reply::acquired(answer, &member))
    }

    fn release(&self, lock: &LockName, member: &Member) -> StoreFuture<Reply<Released>> {
        let script = &self.scripts.release;
        let mut command = self.command(script, lock);
        command.arg(member.as_str());
        self.run(script, self.dated(command), reply::released)
    }

    fn renew(&self, holds: Vec<(LockName, Member)>) -> StoreFuture<Each<Renewed>> {
        let command = self.dated(self.renewal(&holds));
        self.run(&self.scripts.renew, command, move |answer| reply::renewed(answer, &holds))
    }

    fn confirm(&self, holds: Vec<(LockName, Member)>) -> StoreFuture<(Each<Renewed>, u32)> {
        let command = self.dated(self.renewal(&holds));
        self.run_confirmed(&self.scripts.renew, command, move |answer| {
            reply::renewed(answer, &holds)
        })
    }

    fn touch(&self, lines: Vec<(LockName, Vec<Member>)>) -> StoreFuture<Each<Touched>> {
        let script = &self.scripts.touch;
        let mut command = script.command(self.keys_each() * lines.len());
        for (lock, _) in &lines {
            self.add_keys(&mut command, lock, &[]);
        }
        command.arg(self.node.as_str()).arg(&*self.prefix);
        for (_, members) in &lines {
            command.arg(members.len());
            for member in members {
                command.arg(member.as_str());
            }
        }
        self.run(script, self.dated(command), move |answer| reply::touched(answer, &lines))
    }

    fn leave(&self, lock: &LockName, leaving: Vec<Leaving>) -> StoreFuture<Reply<Vec<Left>>> {
        let script = &self.scripts.leave;
        let tombstones: Vec<_> = leaving
            .iter()
            .filter(|leaving| leaving.ambiguous)
            .map(|leaving| &leaving.member)
            .collect();
        let mut command = self.command_with(script, lock, &tombstones);
        for Leaving { member, ambiguous } in &leaving {
            command.arg(member.as_str()).arg(u8::from(*ambiguous));
        }
        self.run(script, self.dated(command), reply::left)
    }

    fn force_release(&self, lock: &LockName) -> StoreFuture<Reply<Released>> {
        let script = &self.scripts.force_release;
        self.run(script, self.dated(self.command(script, lock)), reply::released)
    }

    fn inspect(&self, lock: &LockName) -> StoreFuture<Inspection> {
        let script = &self.scripts.inspect;
        self.run(script, self.dated(self.command(script, lock)), reply::inspection)
    }

    fn permits(
        &self,
        lock: &LockName,
        command: protocol::permits::Command,
    ) -> StoreFuture<protocol::permits::Answer> {
        let script = permits::script(&command);
        let call = self.dated_twice(permits::command(lock, &self.node, &self.prefix, &command));
        self.run(script, call, move |answer| permits::answer(&command, answer))
    }

    fn confirm_permits(
        &self,
        lock: &LockName,
        command: protocol::permits::Command,
    ) -> StoreFuture<(protocol::permits::Answer, u32)> {
        let script = permits::script(&command);
        let call = self.dated_twice(permits::command(lock, &self.node, &self.prefix, &command));
        self.run_confirmed(script, call, move |answer| permits::answer(&command, answer))
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
