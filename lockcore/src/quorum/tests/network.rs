//! Processes and primaries on a network that a test disturbs. The primaries are in-memory stores;
//! the connections to them take time and can be cut. All in tokio's paused time.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::ready;
use proto::layout::QUEUE;
use proto::node::RequestGroup;
use proto::{Command, Event, FencingToken, Link, LockErrorKind, LockName, NodeId, StoreError};
use tokio::runtime::Handle;
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, sleep, sleep_until};

use super::dice::Dice;
use crate::api::locks::Locks;
use crate::backend::Backend;
use crate::node::{Inbox, Observer};
use crate::quorum::{Connect, NewPrimary, Primaries, Terms};
use crate::store::memory::MemoryStore;
use crate::store::{Listener, Standing, Store, StoreFuture, Then};
use crate::types::error::LockError;

/// The longest lease in these tests.
pub(super) const MAX_LEASE: Duration = Duration::from_secs(5);

/// The primaries, and the connections of all processes.
pub(super) struct Network {
    pub(super) primaries: Vec<MemoryStore>,
    pub(super) processes: Vec<Process>,
    /// The labels of requests at the first primary, in the order of first arrival.
    pub(super) arrivals: Arc<Mutex<Vec<String>>>,
    spare: usize,
    max_waiting: u32,
    dice: Dice,
}

/// A process: a `Locks`, and the connection to each primary.
pub(super) struct Process {
    pub(super) locks: Locks,
    wires: Vec<Wire>,
}

impl Network {
    pub(super) fn new(n: usize, seed: u64) -> Self {
        Self {
            primaries: (0..n).map(|_| MemoryStore::new()).collect(),
            processes: Vec::new(),
            arrivals: Arc::default(),
            spare: 0,
            max_waiting: u32::MAX,
            dice: Dice::new(seed),
        }
    }

    pub(super) fn max_waiting(self, max_waiting: u32) -> Self {
        Self { max_waiting, ..self }
    }

    pub(super) fn spare(self, spare: usize) -> Self {
        Self { spare, ..self }
    }

    /// Starts another process. Returns the process number, which identifies it in the other
    /// methods.
    pub(super) fn start(&mut self) -> usize {
        let list: Vec<usize> = (0..self.primaries.len()).collect();
        self.start_with(&list)
    }

    /// Starts another process, which lists the primaries in this order. Returns the process number.
    pub(super) fn start_with(&mut self, list: &[usize]) -> usize {
        let id = NodeId::from(u128::from(self.dice.below(u64::MAX)) + 1);
        let seen = Arc::default();
        // The walks check who is served, however long a primary does not count.
        let builder =
            Locks::builder().label("process").lease(MAX_LEASE).store_wait(Duration::from_secs(300));
        // Quorum primaries have no batches.
        let builder = builder.batch_limit(1);
        let mut wires = Vec::new();
        let connect = |at: &usize| {
            let inbox = Inbox::default();
            let wire = Wire::new(self.dice.split());
            if *at == 0 {
                *wire.arrivals() = Some(Arc::clone(&self.arrivals));
            }
            let listener = Filter { wire: Arc::downgrade(&wire.0), listener: inbox.clone() };
            let store = &self.primaries[*at];
            let seen = Some(Arc::clone(&seen));
            let store = store.connect_as(id.clone(), Arc::new(listener), QUEUE, seen);
            wire.attach(store);
            wires.push(wire.clone());
            let standing = wire.inner().standing().now_or_never().expect("at once");
            let node = builder.of_primary(*at).node(Arc::new(wire), id.clone(), &inbox);
            let never: Connect = Box::new(|| std::future::pending().boxed());
            let standing = standing.map_err(LockError::of_store);
            let (address, connected) = (at.to_string(), Ok((node, standing)));
            NewPrimary { address, connected, connect: never }
        };
        let list: Vec<_> = list.iter().map(connect).collect();
        let node = Arc::clone(&list[0].connected.as_ref().expect("connected").0);
        let request_timeout = Duration::from_secs(2);
        let (spare, max_waiting) = (self.spare, self.max_waiting);
        let terms = Terms { max_lease: MAX_LEASE, spare, request_timeout, max_waiting };
        let runtime = Handle::current();
        let observer = Observer::of_quorum(node.id.clone(), &node.settings, &runtime);
        let primaries = Primaries::new(list, terms, observer, &node.settings, &runtime);
        let locks = Locks { backend: Backend::of_quorum(node, primaries) };
        self.processes.push(Process { locks, wires });
        self.processes.len() - 1
    }

    pub(super) fn locks(&self, process: usize) -> &Locks {
        &self.processes[process].locks
    }

    /// Restarts a primary, which keeps its data if `keeps` is true.
    pub(super) fn restart(&mut self, primary: usize, keeps: bool) {
        self.primaries[primary].restart(keeps);
        self.reconnect(primary);
    }

    /// Replaces a primary under the same address by a server that has run for long, with an old
    /// copy of the primary's identity record and without its locks.
    pub(super) fn replace(&mut self, primary: usize) {
        self.primaries[primary].replace();
        self.reconnect(primary);
    }

    fn reconnect(&self, primary: usize) {
        for process in &self.processes {
            process.wires[primary].reconnect();
        }
    }

    /// Cuts the connection from a process to a primary. The process notices at once if
    /// `is_noticed`, otherwise by a timeout.
    pub(super) fn cut(&self, process: usize, primary: usize, is_noticed: bool) {
        self.processes[process].wires[primary].cut(is_noticed);
    }

    pub(super) fn mend(&self, process: usize, primary: usize) {
        let wire = &self.processes[process].wires[primary];
        if wire.state().is_cut && !wire.state().is_dead {
            wire.state().is_cut = false;
            wire.reconnect();
        }
    }

    /// Makes requests, replies and messages between a process and a primary take longer.
    pub(super) fn slow(&self, process: usize, primary: usize, delay: Duration) {
        self.processes[process].wires[primary].state().delay = delay;
    }

    /// Makes a primary refuse the acquires of a process, as if out of memory.
    pub(super) fn fill(&self, process: usize, primary: usize) {
        self.refuse(process, primary, Some(LockErrorKind::OutOfMemory));
    }

    /// Makes a primary refuse the acquires of a process with this kind of error; `None` ends this.
    pub(super) fn refuse(&self, process: usize, primary: usize, kind: Option<LockErrorKind>) {
        let refused = kind.map(|kind| (kind, 0));
        self.processes[process].wires[primary].state().refused = refused;
    }

    /// Returns how many acquires of a process the primary has refused since the last
    /// [`refuse`](Self::refuse).
    pub(super) fn refused(&self, process: usize, primary: usize) -> usize {
        self.processes[process].wires[primary].state().refused.map_or(0, |(_, count)| count)
    }

    /// Kills a process: nothing it sends arrives any more.
    pub(super) fn kill(&self, process: usize) {
        for wire in &self.processes[process].wires {
            wire.state().is_dead = true;
            wire.cut(true);
            wire.inner().close();
        }
    }

    /// Returns the number of primaries that a process can reach.
    pub(super) fn reachable(&self, process: usize) -> usize {
        let wires = self.processes[process].wires.iter();
        wires.filter(|wire| !wire.state().is_cut).count()
    }
}

/// The connections of one process to one primary.
#[derive(Clone)]
struct Wire(Arc<SharedWire>);

struct SharedWire {
    store: Mutex<Option<Arc<dyn Store>>>,
    link: watch::Sender<Link>,
    state: Mutex<WireState>,
    arrivals: Mutex<Option<Arc<Mutex<Vec<String>>>>>,
}

struct WireState {
    /// The number of the present connection, raised when it is cut or replaced. Requests and
    /// messages of an earlier connection are lost.
    connection: u64,
    /// The primary's server number, as of the last connect or reply.
    server: u64,
    is_cut: bool,
    is_dead: bool,
    /// If set, the primary refuses acquires with this kind of error. The value is the number
    /// refused so far.
    refused: Option<(LockErrorKind, usize)>,
    dice: Dice,
    /// By how much each request, reply and message takes longer.
    delay: Duration,
    /// When the last request, the last reply and the last message arrive.
    last: [Instant; 3],
}

impl WireState {
    /// Returns when something sent at `from` arrives: after everything sent before. `way` is 0 for
    /// a request, 1 for a reply, 2 for a message.
    fn arrival(&mut self, way: usize, from: Instant) -> Instant {
        let at =
            (from + self.dice.ms(1, 4) + self.delay).max(self.last[way] + Duration::from_millis(1));
        self.last[way] = at;
        at
    }
}

impl Wire {
    fn new(dice: Dice) -> Self {
        let (connection, server, is_cut, is_dead, refused) = (0, 0, false, false, None);
        let (delay, last) = (Duration::ZERO, [Instant::now(); 3]);
        let state = WireState { connection, server, is_cut, is_dead, refused, dice, delay, last };
        let state = Mutex::new(state);
        let link = watch::Sender::new(Link::Up);
        let (store, arrivals) = (Mutex::default(), Mutex::default());
        Self(Arc::new(SharedWire { store, link, state, arrivals }))
    }

    fn attach(&self, store: Arc<dyn Store>) {
        self.state().server = store.servers();
        *self.0.store.lock().unwrap_or_else(PoisonError::into_inner) = Some(store);
    }

    fn inner(&self) -> Arc<dyn Store> {
        let store = self.0.store.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(store.as_ref().expect("it is attached"))
    }

    fn state(&self) -> MutexGuard<'_, WireState> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn arrivals(&self) -> MutexGuard<'_, Option<Arc<Mutex<Vec<String>>>>> {
        self.0.arrivals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn cut(&self, is_noticed: bool) {
        let mut state = self.state();
        state.is_cut = true;
        state.connection += 1;
        let connection = state.connection;
        drop(state);
        let wire = self.clone();
        tokio::spawn(async move {
            if !is_noticed {
                sleep(Duration::from_secs(3)).await;
            }
            if wire.state().connection == connection {
                wire.0.link.send_replace(Link::down("cut"));
            }
        });
    }

    /// Closes the connection, and opens another after some milliseconds unless the link is cut.
    fn reconnect(&self) {
        let mut state = self.state();
        state.connection += 1;
        let connection = state.connection;
        let pause = state.dice.ms(5, 200);
        drop(state);
        self.0.link.send_replace(Link::down("broken"));
        let wire = self.clone();
        tokio::spawn(async move {
            sleep(pause).await;
            let mut state = wire.state();
            if state.connection == connection && !state.is_cut {
                state.server = wire.inner().servers();
                drop(state);
                wire.0.link.send_replace(Link::Up);
            }
        });
    }

    fn request<T: Send + 'static>(
        &self,
        run: impl FnOnce(Arc<dyn Store>) -> StoreFuture<T> + Send + 'static,
    ) -> StoreFuture<T> {
        let wire = self.clone();
        let answered = async move {
            let lost = || StoreError::ambiguous("the connection broke");
            if !wire.0.link.borrow().is_up() {
                sleep(Duration::from_millis(200)).await;
                return Err(StoreError::refused(LockErrorKind::Unavailable, "no connection"));
            }
            let (connection, arrival) = {
                let mut state = wire.state();
                (state.connection, state.arrival(0, Instant::now()))
            };
            if wire.state().is_cut {
                sleep(Duration::from_secs(2)).await;
                return Err(lost());
            }
            sleep_until(arrival).await;
            if wire.state().connection != connection {
                return Err(lost());
            }
            let answer = run(wire.inner()).await;
            let server = wire.inner().servers();
            let arrival = wire.state().arrival(1, Instant::now());
            sleep_until(arrival).await;
            let mut state = wire.state();
            if state.connection != connection {
                return Err(lost());
            }
            if std::mem::replace(&mut state.server, server) != server {
                drop(state);
                // Wake the tasks that watch the state; they re-read the count.
                wire.0.link.send_modify(|_| {});
            }
            answer
        };
        answered.boxed()
    }

    /// Records the labels of acquires that arrive for the first time, if this primary records them.
    fn arrive(&self, command: &Command) {
        let Command::Acquire { members, .. } = command else { return };
        let Some(arrivals) = self.arrivals().clone() else { return };
        let mut arrivals = arrivals.lock().unwrap_or_else(PoisonError::into_inner);
        for member in members {
            if !arrivals.iter().any(|label| label == member.label()) {
                arrivals.push(member.label().to_owned());
            }
        }
    }
}

impl std::fmt::Debug for Wire {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Wire")
    }
}

impl Store for Wire {
    fn send(&self, group: RequestGroup, then: Then) {
        let (wire, requests) = (self.clone(), group.clone());
        let replied = self.request(move |store| {
            requests.iter().for_each(|request| wire.arrive(&request.command));
            let mut state = wire.state();
            if let Some((kind, refused)) = &mut state.refused
                && requests.iter().any(|request| matches!(request.command, Command::Acquire { .. }))
            {
                *refused += 1;
                return ready(Err(StoreError::refused(*kind, "refused"))).boxed();
            }
            drop(state);
            let (then, replied) = oneshot::channel();
            store.send(requests, Then::call(|_, replied| drop(then.send(replied))));
            async move { replied.await.expect("an in-memory store responds at once") }.boxed()
        });
        tokio::spawn(async move { then.take(group, replied.await) });
    }

    fn ping(&self) -> StoreFuture<()> {
        self.request(|store| store.ping())
    }

    fn commands(&self) -> watch::Receiver<Link> {
        self.0.link.subscribe()
    }

    fn now_us(&self) -> u64 {
        self.inner().now_us()
    }

    fn note_token(&self, lock: &LockName, token: FencingToken) {
        self.inner().note_token(lock, token);
    }

    fn servers(&self) -> u64 {
        self.state().server
    }

    fn standing(&self) -> StoreFuture<Standing> {
        self.request(|store| store.standing())
    }

    fn subscription(&self) -> watch::Receiver<Link> {
        self.0.link.subscribe()
    }

    fn reopen_subscription(&self) {
        self.inner().reopen_subscription();
    }

    fn close(&self) {
        self.inner().close();
        self.0.link.send_replace(Link::down("closed"));
    }
}

/// Forwards messages from a primary to a process while the connection is open.
struct Filter {
    /// Weak: the wire owns the store, and the store owns this filter.
    wire: Weak<SharedWire>,
    listener: Inbox,
}

impl Listener for Filter {
    fn hear(&self, event: Event) {
        let Some(wire) = self.wire.upgrade().map(Wire) else { return };
        let mut state = wire.state();
        let (connection, arrival) = (state.connection, state.arrival(2, Instant::now()));
        let is_cut = state.is_cut;
        drop(state);
        if is_cut || !wire.0.link.borrow().is_up() {
            return;
        }
        let listener = self.listener.clone();
        tokio::spawn(async move {
            sleep_until(arrival).await;
            if wire.state().connection == connection {
                listener.hear(event);
            }
        });
    }
}
