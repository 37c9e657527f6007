//! The store on Redis: scripts over one shared connection, grants over one subscription.

mod acl;
mod call;
pub(crate) mod cluster;
mod confirmations;
mod connection_name;
mod failure;
mod hooks;
mod native;
mod node_key;
mod preflight;
mod run;
mod search;
pub(crate) mod server_time;
mod standing;
mod wire;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use client::{
    Answered, Channels, CommandLink, Compare, Connector, Packed, Recipient, Sender, Subscription,
    check_same_server, is_unknown,
};
use futures_util::future::join_all;
use proto::layout::Layout;
use proto::wire::{Asked, Floors, Wire, is_nonsense, keys, no_such_command};
use proto::{
    Answer, Answers, Command, FencingToken, Label, Link, LockErrorKind, LockName, NodeId,
    StoreError, Topology,
};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use call::Scripted;
use confirmations::Confirmations;
pub(crate) use confirmations::Replicas;
pub(crate) use standing::{Mark, Marks, Used};

use crate::error::LockError;
use crate::process;
use crate::status::{Connection, ServerStatus};
use crate::store::Standing;
use crate::store::{Listener, Outage, Search, Store, StoreFuture, begin, no_primary};
use acl::{AclCheck, Rights};
use hooks::{OfCommands, OfMessages};
use native::{Place, Transaction};
use node_key::NodeKeys;
use run::{Judged, Run as _, finished_script, judged};
use search::RedisSearch;
use server_time::ServerTime;
use wire::{Reading, TimedWire};

/// The settings of a store on Redis.
pub(crate) struct RedisSettings {
    pub(crate) connector: Connector,
    pub(crate) node: NodeId,
    /// First part of the grants channels.
    pub(crate) prefix: Arc<str>,
    /// The label of this node, for people, if one is set.
    pub(crate) label: Option<Label>,
    pub(crate) namespace: Option<Arc<str>>,
    /// A name in the namespace that nothing else uses, for checking rights; none where the server
    /// has no slots yet.
    pub(crate) probe: Option<LockName>,
    pub(crate) request_timeout: Duration,
    pub(crate) layout: &'static dyn Layout,
    /// The replicas that have to have a grant.
    pub(crate) replicas: Option<Replicas>,
    /// The floor of tokens.
    pub(crate) server_time: Arc<ServerTime>,
    pub(crate) role: Role,
}

/// The part of a server among others.
pub(crate) enum Role {
    /// It has all locks.
    Alone,
    /// It has some slots of a Redis Cluster.
    Shard,
    /// It is a primary of a quorum, with this mark.
    Primary(Mark),
}

impl Role {
    fn topology(&self) -> Topology {
        match self {
            Self::Alone => Topology::Single,
            Self::Shard => Topology::Cluster,
            Self::Primary(_) => Topology::Quorum,
        }
    }
}

/// One node's view of a Redis server.
pub(crate) struct RedisStore {
    wire: Arc<TimedWire>,
    link: CommandLink,
    of_commands: Arc<OfCommands>,
    subscription: Subscription,
    of_messages: Arc<OfMessages>,
    /// The connections for grants that count only once replicas have them.
    confirmations: Option<Confirmations>,
    mark: Option<Arc<Mark>>,
    node_keys: NodeKeys,
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
            layout,
            replicas,
            server_time,
            role,
        } = settings;
        let topology = role.topology();
        let wire = Wire { node, prefix, layout, topology, of_error: failure::of_text };
        let wire = Arc::new(TimedWire {
            wire,
            server_time: Arc::clone(&server_time),
            acquires: Arc::default(),
        });
        let Wire { node, prefix, .. } = &wire.wire;
        let closed = CancellationToken::new();
        // Ends the tasks of a store that is not finished, too.
        let guard = closed.clone().drop_guard();
        let label = label.as_ref().map(Label::as_str);
        let name = connection_name::of(label, &process::of_this(), node.as_str());
        let connector = Arc::new(connector.named(name.clone()));
        let is_watched = connector.is_watched();
        let of_commands = Arc::new(OfCommands { server_time, state: watch::Sender::new(Link::Up) });
        let (link, hello) = CommandLink::connect(
            Arc::clone(&connector),
            request_timeout,
            layout.usual_scripts(topology).into_iter().map(|script| &*script.source).collect(),
            name,
            begin,
            Arc::clone(&of_commands) as _,
            closed.clone(),
        )
        .await?;
        preflight::check_server(&link, hello, topology).await?;
        let namespace = namespace.as_deref();
        let Rights { mut extras, node: may_tell } = match &probe {
            Some(probe) => AclCheck { wire: &wire.wire, namespace, probe }.check(&link).await?,
            None => Rights::default(),
        };
        let mark = match role {
            Role::Alone | Role::Shard => None,
            Role::Primary(mark) => Some(Arc::new(mark)),
        };
        if mark.is_some() && !extras.info {
            let detail = "allow +info: it tells when a primary of a quorum has restarted";
            return Err(LockError::with_detail(LockErrorKind::Denied, detail));
        }
        // Where somebody waits, a release without a script needs its answer read, for the script.
        // A thread that drops a guard and then blocks must not be the one that reads it.
        extras.compare = extras.compare.filter(|_| Handle::current().metrics().num_workers() > 1);
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
            Confirmations::start(&connector, &link, &wire, replicas, request_timeout, &closed)
        });
        let channel = keys::grants_channel(prefix, node.as_str());
        // A pattern has to be among the user's channels as it stands, and this one is never twice
        // the same.
        let pattern = layout.pattern(node);
        let state = watch::Sender::new(Link::Up);
        let of_messages = Arc::new(OfMessages { node: node.clone(), layout, listener, state });
        let subscription = Subscription::connect(
            connector,
            Channels { channel: channel.clone(), pattern },
            extras.introduce,
            request_timeout,
            Arc::clone(&of_messages) as _,
            link.suspicion(),
            closed.clone(),
        )
        .await?;
        check_same_server(&link, &subscription, &channel).await?;
        guard.disarm();
        let node_keys = NodeKeys::new(link.clone(), node.clone(), may_tell);
        let wire = Arc::clone(&wire);
        Ok(Self {
            wire,
            link,
            of_commands,
            subscription,
            of_messages,
            confirmations,
            mark,
            node_keys,
            closed,
        })
    }

    /// Reads the mark of a primary of a quorum. Refuses that of another list.
    pub(crate) async fn look(&self) -> Result<(), LockError> {
        let Some(mark) = &self.mark else { return Ok(()) };
        mark.look(&self.link).await.map_err(|error| self.error(error))
    }

    /// The use of a primary of a quorum so far. Refuses one that is not new in its present run.
    pub(crate) async fn used(&self) -> Result<Used, LockError> {
        let Some(mark) = &self.mark else { return Ok(Used::Not) };
        mark.used(&self.link).await.map_err(|error| self.error(error))
    }

    /// Marks a primary of a quorum that has granted nothing yet.
    pub(crate) async fn begin(&self) -> Result<(), LockError> {
        let Some(mark) = &self.mark else { return Ok(()) };
        mark.begin(&self.link).await.map_err(|error| self.error(error))
    }

    /// The error, with the address of the server.
    pub(crate) fn error(&self, error: StoreError) -> LockError {
        LockError::of_store(error).at(self.link.address())
    }

    /// The state of both connections; `slots` of a Cluster are served by the server.
    fn status(&self, slots: Option<u16>) -> ServerStatus {
        ServerStatus {
            address: self.link.address(),
            commands: Connection::of(&self.commands()),
            subscription: Connection::of(&Store::subscription(self)),
            silent_for: self.link.silent_for(),
            unanswered: self.link.unanswered(),
            slots,
        }
    }

    /// Runs the script of these commands, and reads its answer.
    fn call<T>(&self, asked: Asked, reading: Reading<T>) -> StoreFuture<T> {
        let (wire, link) = (Arc::clone(&self.wire), self.link.clone());
        StoreFuture::Unsent(Some(Unsent { wire, link, asked, reading }))
    }
}

/// Commands that are not on their way yet.
pub(crate) struct Unsent<T> {
    wire: Arc<TimedWire>,
    link: CommandLink,
    asked: Asked,
    reading: Reading<T>,
}

impl<T: Send + 'static> Unsent<T> {
    /// Sends them, at once if the connection stands, and has the answer taken by `then`.
    pub(crate) fn send(self, then: impl FnOnce(Result<T, StoreError>) + Send + 'static) {
        let link = self.link.clone();
        link.with_sender(move |sender| match sender {
            Ok(sender) => {
                let floors = self.wire.floors(&self.asked, sender.server);
                let (step, may_hold) = (Step::Script, false);
                Box::new(Running { request: self, then, sender, floors, step, may_hold }).begin();
            }
            Err(error) => then(Err(failure::of_client(error))),
        });
    }
}

/// Commands on their way, which take their answer themselves: one box for all that is left to do.
struct Running<T, F> {
    request: Unsent<T>,
    /// Takes the answer.
    then: F,
    sender: Sender,
    /// The floors of the commands. Known only when they are written: they depend on the server.
    floors: Floors,
    /// The form in which they were sent last.
    step: Step,
    /// Whether their member may hold the lock, also if they are refused.
    may_hold: bool,
}

enum Step {
    /// The acquire of a lock that may be free, without a script.
    Acquire(Place, Transaction),
    /// The release of a lock that may have no waiters, without a script.
    Release(Place),
    /// A script by its digest.
    Script,
    /// A script by its source: it did not run by its digest.
    Source,
}

impl<T, F> Running<T, F>
where
    T: Send + 'static,
    F: FnOnce(Result<T, StoreError>) + Send + 'static,
{
    fn begin(self: Box<Self>) {
        let Unsent { link, asked, .. } = &self.request;
        match asked {
            Asked::One(lock, Command::Acquire { .. }) if link.may_transact(&self.sender) => {
                let place = Place::of(lock);
                self.acquire(place);
            }
            Asked::One(lock, Command::Release { .. }) => match link.may_compare(&self.sender) {
                Some(compare) => {
                    let place = Place::of(lock);
                    self.release(place, compare);
                }
                None => self.run_script(),
            },
            _ => self.run_script(),
        }
    }

    /// Acquires a lock without a script if it is likely to be free.
    fn acquire(mut self: Box<Self>, place: Place) {
        let Unsent { wire, asked, .. } = &self.request;
        if let Some(free) = wire.wire.free_acquire(asked)
            && let Some(transaction) = wire.acquires.begin(place)
        {
            let commands = native::acquire(&free);
            self.step = Step::Acquire(place, transaction);
            return self.send(&commands);
        }
        let acquires = Arc::clone(&wire.acquires);
        if let Some(script) = acquires.defer(place, move || self.run_script()) {
            script();
        }
    }

    /// Releases a lock without a script if it is likely to have no waiters.
    fn release(mut self: Box<Self>, place: Place, compare: Compare) {
        let Unsent { wire, asked, .. } = &self.request;
        let free = wire.wire.free_release(asked).filter(|_| !wire.acquires.is_busy(place));
        let Some(free) = free else { return self.run_script() };
        let command = native::release(&free, compare);
        self.step = Step::Release(place);
        self.send(&command);
    }

    fn run_script(mut self: Box<Self>) {
        self.step = Step::Script;
        self.write(|call| call.0.command);
    }

    fn write(self: Box<Self>, packed: impl FnOnce(Scripted) -> Packed) {
        let Unsent { wire, asked, .. } = &self.request;
        match wire.wire.write(asked, self.floors) {
            Ok(call) => self.send(&packed(call)),
            Err(error) => (self.then)(Err(error)),
        }
    }

    fn send(self: Box<Self>, command: &Packed) {
        let (link, sender) = (self.request.link.clone(), self.sender.clone());
        link.send(&sender, command, self);
    }

    /// Takes the outcome of commands without a script, or asks the script.
    fn take_native(mut self: Box<Self>, place: Place, outcome: native::Outcome) {
        let Unsent { wire, asked, reading, .. } = &self.request;
        match outcome {
            native::Outcome::Answered(answer) => {
                wire.note(asked, &answer, self.sender.server);
                wire.acquires.note(place, true);
                let answer = (reading.only)(answer);
                (self.then)(Ok(answer));
            }
            native::Outcome::Unanswered(answer) => self.finish(answer),
            native::Outcome::AskScript { may_hold } => {
                // Until the script grants it: whatever the reason is may last.
                wire.acquires.note(place, false);
                self.may_hold = may_hold;
                self.run_script();
            }
        }
    }

    #[allow(clippy::boxed_local, reason = "without its box all of it would be copied once more")]
    fn finish(self: Box<Self>, answer: Judged) {
        let Unsent { wire, link, asked, reading } = &self.request;
        let server = self.sender.server;
        if matches!(&answer, Ok(Err(error)) if failure::is_forgotten(error))
            && wire.server_time.end_epoch(self.floors.epoch_us)
        {
            link.count_as_another();
        }
        let mut answer = finished_script(answer, wire.wire.layout)
            .and_then(|answer| (reading.read)(wire, asked, server, &answer));
        if let Err(error) = &mut answer {
            error.may_have_run |= self.may_hold;
            if is_nonsense(error) {
                link.distrust(self.sender.generation);
            }
        }
        (self.then)(answer);
    }
}

impl<T, F> Recipient for Running<T, F>
where
    T: Send + 'static,
    F: FnOnce(Result<T, StoreError>) + Send + 'static,
{
    fn take(mut self: Box<Self>, answer: Answered) {
        let Unsent { wire, link, asked, .. } = &self.request;
        let answer = judged(link.judge(&self.sender, answer));
        match std::mem::replace(&mut self.step, Step::Source) {
            Step::Acquire(place, transaction) => {
                match wire.wire.free_acquire(asked) {
                    Some(free) => {
                        let floor_us = self.floors.floor_us;
                        let outcome = native::Outcome::of_acquire(&free, floor_us, answer);
                        self.take_native(place, outcome);
                    }
                    None => self.run_script(),
                }
                transaction.end();
            }
            Step::Release(place) => self.take_native(place, native::Outcome::of_release(answer)),
            // A server that has forgotten the script did not run it.
            Step::Script if matches!(&answer, Ok(Err(error)) if is_unknown(error)) => {
                self.write(|call| call.0.by_source());
            }
            Step::Script | Step::Source => self.finish(answer),
        }
    }
}

impl Store for RedisStore {
    fn run(&self, lock: &LockName, command: &Command) -> StoreFuture<Answer> {
        self.call(Asked::one((lock, command)), wire::ONE)
    }

    fn run_together(&self, commands: &[(&LockName, &Command)]) -> StoreFuture<Answers> {
        let mut scripts = self.wire.wire.by_script(commands);
        match (scripts.len(), scripts.pop()) {
            (1, Some(asked)) => self.call(asked, wire::EACH),
            (_, last) => {
                let each = scripts.into_iter().chain(last);
                let each: Vec<_> = each.map(|asked| self.call(asked, wire::ONE)).collect();
                StoreFuture::pending(async move { Ok(join_all(each).await) })
            }
        }
    }

    fn confirm(&self, renewals: &[(&LockName, &Command)]) -> StoreFuture<(Answers, u32)> {
        let asked = self.wire.wire.by_script(renewals).pop();
        let (Some(confirmations), Some(asked)) = (&self.confirmations, asked) else {
            return StoreFuture::ready(Err(no_such_command()));
        };
        StoreFuture::pending(confirmations.run(asked))
    }

    fn ping(&self) -> StoreFuture<()> {
        let link = self.link.clone();
        StoreFuture::pending(async move { link.run(redis::cmd("PING")).await.map(drop) })
    }

    fn commands(&self) -> watch::Receiver<Link> {
        self.of_commands.state.subscribe()
    }

    fn outage(&self, _lock: &LockName, hears: bool) -> Option<Outage> {
        let of_messages = || {
            let client::Outage { since, error } = self.subscription.outage()?;
            let error = failure::of_client(error);
            // After an outage of the server it comes back a little later than the commands.
            let since = since.max(self.link.up_since());
            let detail = format!("subscription: {}", error.detail);
            Some(Outage { since, error: StoreError::refused(error.kind, detail) })
        };
        let of_commands = self.link.outage();
        let of_commands = of_commands.map(|client::Outage { since, error }| Outage {
            since,
            error: failure::of_client(error),
        });
        of_commands.or_else(|| of_messages().filter(|_| hears))
    }

    fn now_us(&self) -> u64 {
        self.wire.server_time.now_us()
    }

    fn note_token(&self, lock: &LockName, token: FencingToken) {
        let TimedWire { wire, server_time, .. } = &*self.wire;
        server_time.note_token(token, (wire.topology.slot(lock), self.link.servers()));
    }

    fn servers(&self) -> u64 {
        self.link.servers()
    }

    fn standing(&self) -> StoreFuture<Standing> {
        let Some(mark) = self.mark.clone() else { return StoreFuture::ready(Err(no_primary())) };
        let (link, server_time) = (self.link.clone(), Arc::clone(&self.wire.server_time));
        StoreFuture::pending(async move { mark.standing(&link, &server_time).await })
    }

    fn server_status(&self) -> Vec<ServerStatus> {
        vec![self.status(None)]
    }

    fn searches(&self, namespace: Option<&str>) -> Vec<Arc<dyn Search>> {
        vec![Arc::new(RedisSearch::new(&self.link, namespace))]
    }

    fn tell_process(&self) -> StoreFuture<()> {
        self.node_keys.write()
    }

    fn process_of(&self, node: &str) -> StoreFuture<Option<String>> {
        self.node_keys.read(node)
    }

    fn subscription(&self) -> watch::Receiver<Link> {
        self.of_messages.state.subscribe()
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
        f.debug_struct("RedisStore").field("node", &self.wire.wire.node).finish_non_exhaustive()
    }
}
