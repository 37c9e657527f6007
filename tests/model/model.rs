//! The model: the steps from each state, and the states they lead to.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

use proto::NodeId;
use proto::layout::QUEUE;
use proto::node::{Core, Due, Moment, Phase, Request, Rules};
use proto::queue::QueueState;
use proto::{Demand, Label, LockName, Member, Mode, Terms, WhenBusy};
use redisson::{LockState, REDISSON};
use stateright::{Model, Property};

use crate::books::Server;
use crate::packet::{Ask, Packet};
use crate::properties::{self, at_ms};
use crate::server::node_index;
use crate::state::{Budget, Client, Id, NUMBERS, Node, ROUNDS, Record, Stage, State, node_of};
use crate::variant::Variant;
use crate::wire::moment;

/// The server's time when the model starts.
pub(crate) const START_MS: u64 = 1_700_000_000_000;
/// The lease of every member, in ms.
pub(crate) const LEASE_MS: u32 = 6_000;
/// The grace lease of a handed-off lock, in ms.
pub(crate) const CLAIM_MS: u32 = 2_000;
/// A step of time in ms, shorter than half a grace lease. Two steps are longer.
pub(crate) const SHORT_MS: u32 = 700;

/// The scope of a model: its size, and what its clients and nodes do.
#[derive(Clone, Debug)]
pub(crate) struct Scope {
    /// The node of each client, by client.
    pub(crate) homes: &'static [u8],
    /// The demands of each node's clients; further nodes demand a lock.
    pub(crate) wants: &'static [Want],
    /// Whether the queue is shared with JVMs.
    pub(crate) beside_jvms: bool,
    /// How many times each client acquires.
    pub(crate) operations: &'static [u8],
    /// Whether the clients also acquire without waiting.
    pub(crate) tries: bool,
    /// Whether guards are also dropped, not only released.
    pub(crate) drops: bool,
    /// Whether a command grants at most a single member, so that much is left for the next command.
    pub(crate) one_by_one: bool,
    /// How many acquires of a node may be under way at the same time.
    pub(crate) acquires: usize,
    /// Whether the nodes try the fast path.
    pub(crate) is_fast: bool,
    /// The maximum batch size. Above 1 only if no client tries.
    pub(crate) batch_limit: usize,
    /// The short step of time, in ms.
    pub(crate) step_ms: u32,
    /// Whether time passes only after a guard was downgraded or leaked.
    pub(crate) is_kept: bool,
    pub(crate) budget: Budget,
    /// One state in this many is checked for whether everything comes to rest from there; none if
    /// 0.
    pub(crate) served_one_in: u64,
}

/// What a client acquires.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Want {
    Lock,
    /// A lock whose waiter leaves the queue for a newer waiter of the same kind.
    Newest,
    Read,
    /// The first number of permits, of as many as the second number.
    Permits(u32, u32),
}

impl Want {
    fn demand(self) -> Demand {
        match self {
            Self::Read => Demand::READ,
            Self::Lock | Self::Newest => Demand::EXCLUSIVE,
            Self::Permits(weight, limit) => {
                Demand::permits(weight, limit).expect("at most the limit")
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Begin {
        client: usize,
        waits: bool,
    },
    /// A node performs an action due at some time, by index among the node's due actions.
    Attend {
        node: u8,
        due: usize,
    },
    Release {
        client: usize,
    },
    Drop {
        client: usize,
    },
    Cancel {
        client: usize,
    },
    Downgrade {
        client: usize,
    },
    Leak {
        client: usize,
    },
    /// The server runs a request.
    Run {
        packet: usize,
    },
    /// A reply or a message arrives.
    Deliver {
        packet: usize,
    },
    /// A request or reply is abandoned as lost; the request itself may still run.
    Fail {
        packet: usize,
        stays: bool,
    },
    /// A message, or a request from a dead process, is lost.
    Lose {
        packet: usize,
    },
    Crash {
        node: u8,
    },
    /// The server notices that a subscription is gone.
    Unsubscribe {
        node: u8,
    },
    Resubscribe {
        node: u8,
    },
    Force,
    /// The server loses its token counter.
    Forget,
    Pass {
        ms: u32,
    },
}

pub(crate) struct Locking {
    pub(crate) scope: Scope,
    pub(crate) variant: Variant,
    pub(crate) ids: Vec<NodeId>,
    members: Vec<Member>,
    /// The demand of each node's members.
    demands: Vec<Demand>,
    pub(crate) lock: LockName,
    pub(crate) met: AtomicU32,
}

impl Locking {
    pub(crate) fn new(scope: Scope, variant: Variant) -> Self {
        let nodes = scope.homes.iter().max().map_or(0, |last| last + 1);
        let id = |node: u8| NodeId::from(&*char::from(b'a' + node).to_string().repeat(22));
        let ids: Vec<_> = (0..=nodes).map(id).collect();
        let label = Label::new("");
        let lease_ms = u64::from(LEASE_MS);
        let want = |node: u8| scope.wants.get(usize::from(node)).unwrap_or(&Want::Lock);
        let demands: Vec<_> = (0..nodes).map(|node| want(node).demand()).collect();
        let member = |id: Id| {
            let attempt = u64::from(id % NUMBERS / ROUNDS) + 1;
            let number = Core::<()>::number_of(attempt, u64::from(id % ROUNDS));
            let node = &ids[node_of(id)];
            match want(node_of(id) as u8) {
                _ if scope.beside_jvms => Member::plain(node, number, lease_ms, &label),
                Want::Newest => Member::keeping_newest(node, number, lease_ms, &label),
                Want::Lock => Member::in_batch(node, number, lease_ms, scope.batch_limit, &label),
                want => Member::new(node, number, lease_ms, want.demand(), &label),
            }
        };
        let members: Vec<_> = (0..nodes * NUMBERS).map(member).collect();
        let lock = LockName::from("lock");
        let met = AtomicU32::new(0);
        Self { scope, variant, ids, members, demands, lock, met }
    }

    pub(crate) fn demand(&self, member: Id) -> Demand {
        self.demands[node_of(member)]
    }

    /// Whether these two clients can hold at the same time.
    fn go_together(&self, one: usize, other: usize) -> bool {
        let demand = |client: usize| self.demands[usize::from(self.scope.homes[client])];
        let fits = |one, other| demand(one).fits(demand(other).weight());
        one != other && (fits(one, other) || fits(other, one))
    }

    /// Whether any two clients can hold at the same time.
    pub(crate) fn some_go_together(&self) -> bool {
        let clients = 0..self.scope.homes.len();
        clients.clone().any(|one| clients.clone().any(|other| self.go_together(one, other)))
    }

    /// Whether a client ever waits for another.
    pub(crate) fn some_wait(&self) -> bool {
        let clients = 0..self.scope.homes.len();
        let waits =
            |one| clients.clone().any(|other| one != other && !self.go_together(one, other));
        clients.clone().any(waits)
    }

    /// Whether two clients in keep-the-newest mode can wait for a third client.
    pub(crate) fn some_supersede(&self) -> bool {
        let keeps = |home: &&u8| self.keeps_newest(**home * NUMBERS);
        self.scope.homes.len() > 2 && self.scope.homes.iter().filter(keeps).count() > 1
    }

    /// Returns the rules that each node's core follows.
    pub(crate) fn rules(&self) -> Rules {
        Rules {
            confirm_grants: false,
            confirms_writes: false,
            layout: if self.scope.beside_jvms { REDISSON } else { QUEUE },
            window: usize::MAX,
            acquires: self.scope.acquires,
            batch_limit: self.scope.batch_limit,
            // Unset, because otherwise states that differ only in time would be distinct.
            born_us: None,
            seed: 0,
        }
    }

    /// Creates the core of a new node.
    pub(crate) fn core(&self, id: &NodeId) -> Core<()> {
        let mut core = Core::new(id.clone(), self.rules());
        core.set_fast_path(self.scope.is_fast);
        core
    }

    /// Creates a client's request to its node.
    pub(crate) fn wish(&self, node: u8, waits: bool) -> Request {
        let keeps_newest = self.keeps_newest(node * NUMBERS);
        let when_busy = if keeps_newest { WhenBusy::KeepNewest } else { WhenBusy::Wait };
        Request {
            lock: self.lock.clone(),
            options: Terms {
                lease: Duration::from_millis(u64::from(LEASE_MS)),
                when_busy,
                ..Terms::default()
            },
            mode: if waits { Mode::Wait } else { Mode::Try },
            label: Label::new(""),
            demand: self.demands[usize::from(node)],
        }
    }

    /// Returns true if the member leaves the queue for a newer member of the same kind.
    pub(crate) fn keeps_newest(&self, id: Id) -> bool {
        self.member(id).keeps_newest()
    }

    pub(crate) fn member(&self, id: Id) -> &Member {
        &self.members[usize::from(id)]
    }

    /// Returns the id in the model of a protocol member: the reverse of [`member`](Self::member).
    pub(crate) fn id(&self, member: &Member) -> Id {
        self.id_of(node_index(member.node()), member.number())
    }

    /// Returns the steps of time: a short step, and a step to the next end on the server.
    fn spans(&self, state: &State) -> impl Iterator<Item = u32> {
        let now = at_ms(state.now);
        let next = state.server.next_end(now);
        let step_ms = self.scope.step_ms;
        let to_next = next.map(|at_ms| (at_ms - now) as u32).filter(|ms| *ms != step_ms);
        [step_ms].into_iter().chain(to_next)
    }

    fn client_actions(&self, state: &State, client: usize, actions: &mut Vec<Action>) {
        let Client { stage, left } = state.clients[client];
        let node = &state.nodes[usize::from(self.scope.homes[client])];
        if node.is_dead {
            return;
        }
        match stage {
            Stage::Idle if left > 0 => {
                if node.is_connected {
                    actions.push(Action::Begin { client, waits: true });
                }
                if self.scope.tries {
                    actions.push(Action::Begin { client, waits: false });
                }
            }
            Stage::Guard(_) => {
                actions.push(Action::Release { client });
                if self.scope.drops {
                    actions.push(Action::Drop { client });
                }
                if state.budget.leaks > 0 {
                    actions.push(Action::Leak { client });
                }
                if self.may_downgrade(state, client) {
                    actions.push(Action::Downgrade { client });
                }
            }
            Stage::Attempt(_) if state.budget.cancels > 0 => {
                actions.push(Action::Cancel { client });
            }
            _ => {}
        }
    }

    /// Whether the client has a downgradable lock.
    fn may_downgrade(&self, state: &State, client: usize) -> bool {
        let node = self.scope.homes[client];
        state.budget.downgrades > 0
            && self.demands[usize::from(node)] == Demand::EXCLUSIVE
            && state.phase(node, &state.clients[client]) == Some(Phase::Held)
    }

    fn node_actions(&self, state: &State, node: u8, actions: &mut Vec<Action>) {
        let Node { is_connected, is_dead, core, .. } = &state.nodes[usize::from(node)];
        if *is_dead {
            if *is_connected {
                actions.push(Action::Unsubscribe { node });
            }
            return;
        }
        for (due, (at, what)) in core.dues().enumerate() {
            if self.may_do(state, node, at, &what) {
                actions.push(Action::Attend { node, due });
            }
        }
        if state.budget.crashes > 0 {
            actions.push(Action::Crash { node });
        }
        if !is_connected {
            actions.push(Action::Resubscribe { node });
        } else if state.budget.cuts > 0 {
            actions.push(Action::Unsubscribe { node });
        }
    }

    /// Whether a node may now perform an action due at `at`. A lease or a liveness deadline ends
    /// when due or later; a request may be sent at any time, if that makes a difference.
    fn may_do(&self, state: &State, node: u8, at: Moment, due: &Due) -> bool {
        match due {
            Due::End(_) => at <= moment(state.now),
            Due::GiveBack(_) | Due::Turn => true,
            Due::Renewal(number) => {
                let full = state.now + LEASE_MS - LEASE_MS / 100;
                let until = state.nodes[usize::from(node)].core.until(*number);
                until.is_some_and(|until| moment(state.now) < until && until < moment(full))
            }
            // A touch or a renewal at any time is already one of the node's steps.
            Due::LeaveAgain | Due::RenewAll | Due::Recheck => false,
            Due::Retry => state.nodes[usize::from(node)].is_connected,
            Due::Touch(_) if !self.does(due) => false,
            Due::Touch(_) => {
                let touches = |packet: &Packet| {
                    matches!(packet,
                    Packet::Request { ask: Ask::Touch { members: 1.. }, node: of, is_late: false, .. }
                    | Packet::Reply { ask: Ask::Touch { members: 1.. }, node: of, .. } if *of == node)
                };
                self.has_news(state, node) && !state.network.iter().any(touches)
            }
        }
    }

    fn packet_actions(state: &State, packet: usize, actions: &mut Vec<Action>) {
        let has_losses = state.budget.losses > 0;
        match &state.network[packet] {
            Packet::Request { is_late: true, node, .. } => {
                actions.push(Action::Run { packet });
                if state.nodes[usize::from(*node)].is_dead {
                    actions.push(Action::Lose { packet });
                }
            }
            Packet::Request { .. } => {
                actions.push(Action::Run { packet });
                if has_losses {
                    actions.push(Action::Fail { packet, stays: true });
                    actions.push(Action::Fail { packet, stays: false });
                }
            }
            Packet::Reply { .. } => {
                actions.push(Action::Deliver { packet });
                if has_losses {
                    actions.push(Action::Fail { packet, stays: false });
                }
            }
            Packet::Grant { .. }
            | Packet::Batch { .. }
            | Packet::Revoked { .. }
            | Packet::Superseded { .. } => {
                actions.push(Action::Deliver { packet });
                if has_losses {
                    actions.push(Action::Lose { packet });
                }
            }
        }
    }

    /// Returns true if a touch would change anything, now or for waiters last touched at this very
    /// instant.
    fn has_news(&self, state: &State, node: u8) -> bool {
        let core = &state.nodes[usize::from(node)].core;
        let mut waiting = core.numbers().filter(|number| {
            matches!(core.phase(*number), Some(Phase::Waiting | Phase::Confirming))
        });
        waiting.any(|number| {
            let member = self.id_of(node, number);
            let is_old = core.anchor(number).is_some_and(|anchor| anchor < moment(state.now));
            is_old || !state.server.is_queued(self, member)
        })
    }
}

impl Model for Locking {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let node = |id: &NodeId| Node::new(self.core(id));
        let nodes = self.ids[..self.ids.len() - 1].iter().map(node).collect();
        let client = |left: &u8| Client { stage: Stage::Idle, left: *left };
        vec![State {
            now: 0,
            server: Arc::new(match self.scope.beside_jvms {
                true => Server::Redisson(LockState::default()),
                false => Server::Queue { state: QueueState::default(), counter: None },
            }),
            nodes,
            clients: self.scope.operations.iter().map(client).collect(),
            network: Vec::new(),
            budget: self.scope.budget,
            record: Record::default(),
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for client in 0..state.clients.len() {
            self.client_actions(state, client, actions);
        }
        for node in 0..state.nodes.len() as u8 {
            self.node_actions(state, node, actions);
        }
        for packet in 0..state.network.len() {
            // Of several equal packets, it is enough to choose one.
            if packet == 0 || state.network[packet] != state.network[packet - 1] {
                Self::packet_actions(state, packet, actions);
            }
        }
        if state.budget.forgets > 0 {
            actions.push(Action::Forget);
        }
        let is_held = || !state.server.books(self, at_ms(state.now)).holds.is_empty();
        if state.budget.forced > 0 && is_held() {
            actions.push(Action::Force);
        }
        let may_pass = !self.scope.is_kept || state.budget.downgrades + state.budget.leaks == 0;
        if state.budget.passes > 0 && may_pass {
            actions.extend(self.spans(state).map(|ms| Action::Pass { ms }));
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        self.act(&mut state, action);
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::all(self)
    }
}
