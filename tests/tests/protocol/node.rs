//! `Node`: a node that requests locks from a server with single commands, and receives its
//! messages.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::StreamExt as _;
use lock_tests::Raw;
use lock_tests::protocol::{self, PREFIX};
use proto::wire::{self, TokenFloors, Wire, keys};
use proto::{
    Answer, Answers, Command, Demand, Event, Label, LockErrorKind, LockName, Member, NodeId,
    StoreError, Topology,
};
use redis::aio::{PubSubSink, PubSubStream};
use tokio::time::timeout;

use crate::function::Function;

const SOON: Duration = Duration::from_secs(20);

/// The server used by a node.
enum Server {
    Function(Arc<Mutex<Function>>),
    /// With the subscription to the node's channel.
    Scripts(Raw, Box<Wire>, tokio::sync::Mutex<Ear>),
}

/// A request, and the server's reply.
#[derive(Clone, Debug)]
pub(crate) struct Exchange {
    pub(crate) commands: Vec<(LockName, Command)>,
    answer: redis::Value,
}

/// A node that uses one lock.
pub(crate) struct Node {
    pub(crate) id: NodeId,
    pub(crate) lock: LockName,
    /// Whether it shares queues with JVMs.
    pub(crate) peers: bool,
    server: Server,
    floors: Mutex<TokenFloors>,
    next_number: AtomicU64,
    exchanges: Mutex<Vec<Exchange>>,
}

struct Ear {
    sink: PubSubSink,
    stream: PubSubStream,
    is_open: bool,
    heard: Vec<Event>,
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Node {
    /// A connected node on the function.
    pub(crate) fn on_function(function: &Arc<Mutex<Function>>, id: NodeId, on: &LockName) -> Self {
        let mut server = lock(function);
        server.connected.insert(id.to_string());
        let (peers, now_us) = (server.peers, server.now_us);
        Self::new(id, on, peers, Server::Function(Arc::clone(function)), now_us)
    }

    /// A connected node on a server with scripts.
    pub(crate) async fn on_scripts(
        url: &str,
        id: NodeId,
        on: &LockName,
        (peers, topology): (bool, Topology),
    ) -> Self {
        let client = redis::Client::open(url).expect("a URL");
        let (sink, stream) = client.get_async_pubsub().await.expect("a connection").split();
        let ear = Ear { sink, stream, is_open: false, heard: Vec::new() };
        let mut redis = Raw::connect(url).await;
        let now_us = redis.time_us().await;
        let wire = Wire {
            node: id.clone(),
            prefix: PREFIX.into(),
            layout: protocol::layout(peers),
            topology,
            of_error: protocol::error_of,
        };
        let server = Server::Scripts(redis, Box::new(wire), tokio::sync::Mutex::new(ear));
        let node = Self::new(id, on, peers, server, now_us);
        node.connect(true).await;
        node
    }

    fn new(id: NodeId, on: &LockName, peers: bool, server: Server, now_us: u64) -> Self {
        let (floors, next_number) = (Mutex::default(), AtomicU64::new(1));
        let exchanges = Mutex::default();
        let node = Self { id, lock: on.clone(), peers, server, floors, next_number, exchanges };
        node.set_seen(now_us);
        node
    }

    /// Opens or closes the subscription: without a subscription, the node's commands arrive but its
    /// messages do not, as after a failover. The server has confirmed the change on return.
    pub(crate) async fn connect(&self, is_connected: bool) {
        match &self.server {
            Server::Function(function) => {
                let connected = &mut lock(function).connected;
                match is_connected {
                    true => connected.insert(self.id.to_string()),
                    false => connected.remove(self.id.as_str()),
                };
            }
            Server::Scripts(_, _, ear) => {
                ear.lock().await.open(&self.channel(), is_connected).await
            }
        }
    }

    /// Sets the latest server time that it has seen, µs since the epoch.
    pub(crate) fn set_seen(&self, at_us: u64) {
        self.set_token_floors(TokenFloors {
            floor_us: at_us,
            latest_us: at_us,
            ..TokenFloors::default()
        });
    }

    /// Sets the token floors from everything it has seen on servers.
    pub(crate) fn set_token_floors(&self, floors: TokenFloors) {
        *lock(&self.floors) = floors;
    }

    /// A new member of this node that requests a lock.
    pub(crate) fn member(&self, lease_ms: u64) -> Member {
        self.member_for(Demand::EXCLUSIVE, lease_ms)
    }

    /// A new member of this node.
    pub(crate) fn member_for(&self, demand: Demand, lease_ms: u64) -> Member {
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        let label = Label::new("a label");
        if self.peers {
            assert_eq!(demand, Demand::EXCLUSIVE, "beside JVMs there is nothing else");
            return Member::plain(&self.id, number, lease_ms, &label);
        }
        Member::new(&self.id, number, lease_ms, demand, &label)
    }

    /// Runs one command on the node's lock.
    pub(crate) async fn run(&self, command: Command) -> Result<Answer, StoreError> {
        self.run_on(&self.lock, command).await
    }

    /// Runs one command.
    pub(crate) async fn run_on(
        &self,
        lock: &LockName,
        command: Command,
    ) -> Result<Answer, StoreError> {
        let mut answers = self.run_together(&[(lock, &command)]).await?;
        answers.pop().expect("an answer for the command")
    }

    /// Runs several renewals or touches, in as few scripts as a store would.
    pub(crate) async fn run_together(
        &self,
        commands: &[(&LockName, &Command)],
    ) -> Result<Answers, StoreError> {
        let floors = *lock(&self.floors);
        let answers: Answers = match &self.server {
            Server::Function(function) => {
                let mut function = lock(function);
                let run = |(lock, command): &(&LockName, &Command)| {
                    Ok(function.run(lock, &self.id, floors, command))
                };
                commands.iter().map(run).collect()
            }
            Server::Scripts(redis, wire, _) => {
                let mut answers = Answers::new();
                for commands in protocol::by_script(wire, commands) {
                    let answer = protocol::ask(&mut redis.clone(), wire, commands, floors).await?;
                    if let Ok(answer) = answer.clone() {
                        let own = |(lock, command): &(&LockName, &Command)| {
                            (LockName::clone(lock), Command::clone(command))
                        };
                        let commands = commands.iter().map(own).collect();
                        let exchange = Exchange { commands, answer };
                        lock(&self.exchanges).push(exchange);
                    }
                    match protocol::answers(wire, commands, answer) {
                        // The error concerns this lock only.
                        Err(error) if error.kind == LockErrorKind::WrongType => {
                            answers.push(Err(error));
                        }
                        of_script => answers.extend(of_script?),
                    }
                }
                answers
            }
        };
        self.note(&answers);
        Ok(answers)
    }

    /// All requests to a server so far whose reply was no error.
    pub(crate) fn exchanges(&self) -> Vec<Exchange> {
        lock(&self.exchanges).clone()
    }

    /// Parses the reply to one request as the reply to another.
    pub(crate) fn read(&self, of: &Exchange, by: &Exchange) -> Result<Answers, StoreError> {
        let Server::Scripts(_, wire, _) = &self.server else { panic!("the function answers") };
        let commands = by.commands.iter().map(|(lock, command)| (lock, command));
        protocol::answers(wire, &commands.collect::<Vec<_>>(), Ok(of.answer.clone()))
    }

    /// Raises the token floors to the tokens and times of the replies. A store adopts a time only
    /// once per second, so a command may have a higher token floor here than there.
    fn note(&self, answers: &Answers) {
        let floors = &mut *lock(&self.floors);
        for answer in answers.iter().flatten() {
            let tokens = answer.grants().iter().map(|grant| grant.token.get());
            let latest_us = tokens.chain(answer.now_us()).max().unwrap_or(0);
            floors.floor_us = floors.floor_us.max(latest_us);
            floors.latest_us = floors.floor_us;
        }
    }

    pub(crate) fn channel(&self) -> String {
        keys::grants_channel(PREFIX, self.id.as_str())
    }

    /// Everything received since the last call. Exact: a message sent now arrives behind all
    /// others.
    pub(crate) async fn heard(&self) -> Vec<Event> {
        match &self.server {
            Server::Function(function) => {
                lock(function).heard.remove(self.id.as_str()).unwrap_or_default()
            }
            Server::Scripts(redis, _, ear) => {
                let mut ear = ear.lock().await;
                ear.listen(&self.id, &self.channel(), &mut redis.clone()).await;
                std::mem::take(&mut ear.heard)
            }
        }
    }
}

impl Ear {
    async fn open(&mut self, channel: &str, is_open: bool) {
        match is_open {
            true => self.sink.subscribe(channel).await.expect("subscribed"),
            false => self.sink.unsubscribe(channel).await.expect("unsubscribed"),
        }
        self.is_open = is_open;
    }

    async fn listen(&mut self, node: &NodeId, channel: &str, redis: &mut Raw) {
        if !self.is_open {
            return;
        }
        redis.publish(channel, "end").await;
        loop {
            let message = timeout(SOON, self.stream.next()).await.expect("a message arrives");
            let message = message.expect("connected");
            if message.get_payload_bytes() == b"end" {
                return;
            }
            let event = wire::message(message.get_payload_bytes(), node);
            self.heard.push(event.expect("a message of a known form"));
        }
    }
}
