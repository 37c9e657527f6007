//! Redis Cluster servers, one of them frozen.

use super::*;

/// The frozen server's lane.
const FROZEN: u16 = 0;
/// How many attempts, holds and waiters of each kind are in that lane: more than any bound.
const MANY: usize = 1_100;
/// How many locks of each kind are in each other lane.
const FEW: usize = 40;
const SHORT: Duration = Duration::from_secs(4);
const TIMEOUT: u64 = 2_000;
/// Round trip to the other servers.
const TRIP: u64 = 2;

/// The kinds of requests that fill the frozen server's bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Attempts,
    Renewals,
    Dropped,
    Cancelled,
    Touches,
}

struct World {
    core: Core<()>,
    /// In-flight requests, with their end times.
    on_their_way: Vec<(u64, StoreRequest)>,
    lost: usize,
    /// When each local queue was last touched.
    touched: BTreeMap<LockName, u64>,
}

impl World {
    fn new() -> Self {
        let rules = Rules { seed: 7, ..Rules::default() };
        let mut core = Core::new(NodeId::from("AAAAAAAAAAAAAAAAAAAAAA"), rules);
        core.event(at(0)).set_lanes(lanes());
        Self { core, on_their_way: Vec::new(), lost: 0, touched: BTreeMap::new() }
    }

    /// Sends a request; a request to the frozen server ends with a time-out.
    fn send(&mut self, now: u64, request: StoreRequest) {
        let is_frozen = request.lock.slot() % LANES == FROZEN;
        if let Command::Touch { .. } = request.command {
            self.touched.insert(request.lock.clone(), now);
        }
        self.on_their_way.push((now + if is_frozen { TIMEOUT } else { TRIP }, request));
    }

    /// Runs an event's effects.
    fn follow(&mut self, now: u64) {
        for effect in self.core.drain() {
            match effect {
                Effect::Send(request) => self.send(now, request),
                Effect::NotifyLost(()) => self.lost += 1,
                _ => {}
            }
        }
    }

    /// Ends the requests due to end, and does the work that is due.
    fn pass(&mut self, now: u64) {
        let ends = |(ends, _): &mut (u64, StoreRequest)| *ends <= now;
        for (_, request) in self.on_their_way.extract_if(.., ends).collect::<Vec<_>>() {
            if request.lock.slot() % LANES == FROZEN {
                self.core.event(at(now)).unanswered(&request, &StoreError::ambiguous("silent"));
            } else {
                self.core.event(at(now)).replied(&request, &answered(&request));
            }
            self.follow(now);
        }
        while self.core.event(at(now)).tick() {}
        self.follow(now);
    }

    fn frozen(&self, is_of: impl Fn(&Command) -> bool) -> usize {
        let mut requests = self.on_their_way.iter().map(|(_, request)| request);
        requests
            .by_ref()
            .filter(|request| request.lock.slot() % LANES == FROZEN && is_of(&request.command))
            .count()
    }
}

/// Returns the response of a server that grants each lock, and has each hold and waiter.
fn answered(request: &StoreRequest) -> Answer {
    match &request.command {
        Command::Acquire { members, .. } => {
            Answer::Acquired(reply(vec![Acquired::Granted], SHORT, members.first()))
        }
        Command::Renew { members, .. } => {
            Answer::Renewed(reply(vec![Renewed::Held; members.len()], SHORT, None))
        }
        Command::Touch { members } => {
            let members = vec![Presence::Waiting; members.len()];
            Answer::Touched(reply(Touched { members, listeners: 1 }, Duration::ZERO, None))
        }
        Command::Release { .. } => Answer::Released(reply(Released::Released, SHORT, None)),
        Command::Leave { leaving } => {
            Answer::Left(reply(vec![Left::Left; leaving.len()], SHORT, None))
        }
        other => panic!("{other:?} is not sent here"),
    }
}

fn short(lock: &str) -> Request {
    Request { options: Terms { lease: SHORT, ..Terms::default() }, ..wish(lock) }
}

/// Acquires a lock with a short lease, before any server freezes.
fn held_short(core: &mut Core<()>, now: Moment, lock: &str) -> u64 {
    let (attempt, request) = core.event(now).begin(short(lock), ()).expect("it is open");
    let request = request.expect("there is room");
    core.event(now).replied(&request, &answered(&request));
    core.drain();
    match core.event(now).take(attempt) {
        Outcome::Granted { number, .. } => number,
        other => panic!("{other:?}"),
    }
}

/// Returns the names in a lane.
fn names(lane: u16) -> impl Iterator<Item = String> {
    let all = (0..).map(|number: u64| number.to_string());
    all.filter(move |name| LockName::from(name.as_str()).slot() % LANES == lane)
}

// H3: a frozen server's requests filled the common bounds, and holds on the other servers were
// lost.
fn the_others_notice_nothing_of(kinds: &[Kind]) {
    let mut world = World::new();
    let mut frozen = names(FROZEN);
    let mut frozen = || frozen.next().expect("without end");
    let mut others = names(1).zip(names(2)).flat_map(|(one, two)| [one, two]);
    let core = &mut world.core;
    let mut dropped = Vec::new();
    let mut cancelled = Vec::new();
    for _ in 0..MANY {
        if kinds.contains(&Kind::Renewals) {
            held_short(core, at(0), &frozen());
        }
        if kinds.contains(&Kind::Touches) {
            queued(core, at(0), &frozen());
        }
        if kinds.contains(&Kind::Dropped) {
            dropped.push(held_short(core, at(0), &frozen()));
        }
        if kinds.contains(&Kind::Cancelled) {
            cancelled.push(queued(core, at(0), &frozen()).0);
        }
    }
    let holds: Vec<_> =
        (0..FEW).map(|_| held_short(core, at(0), &others.next().expect("without end"))).collect();
    let lines: Vec<_> = (0..FEW).map(|_| others.next().expect("without end")).collect();
    for line in &lines {
        queued(core, at(0), line);
    }
    // The server is frozen from here on.
    for number in dropped {
        world.core.event(at(1)).dropped(number);
        world.follow(1);
    }
    for attempt in cancelled {
        world.core.event(at(1)).cancel(attempt);
        world.follow(1);
    }
    let mut turn = None;
    for now in 1..12_000 {
        if kinds.contains(&Kind::Attempts) && now < MANY as u64 {
            let begun = world.core.event(at(now)).begin(short(&frozen()), ());
            if let Some(request) = begun.expect("it is open").1 {
                world.send(now, request);
            }
        }
        world.pass(now);
        // A lock on another server is acquired and released, again and again.
        turn = match turn {
            None => {
                let wish = short(&others.next().expect("without end"));
                let (attempt, request) = world.core.event(at(now)).begin(wish, ()).expect("open");
                world.send(now, request.expect("at once"));
                Some((attempt, now))
            }
            Some((attempt, begun)) if now == begun + TRIP => {
                let outcome = world.core.event(at(now)).take(attempt);
                let Outcome::Granted { number, .. } = outcome else {
                    panic!("{kinds:?}: {outcome:?} at {now} ms");
                };
                world.core.event(at(now)).dropped(number);
                world.follow(now);
                Some((attempt, begun))
            }
            Some((attempt, begun)) if now == begun + 2 * TRIP => {
                assert_eq!(world.core.round(attempt), None, "{kinds:?}: released at {now} ms");
                None
            }
            turn => turn,
        };
        assert_eq!(lost_of(&world, &holds), 0, "{kinds:?}: at {now} ms");
        for line in &lines {
            let last = world.touched.get(&LockName::from(line.as_str())).copied().unwrap_or(0);
            assert!(now - last <= 5_000, "{kinds:?}: {line} at {now} ms, touched at {last}");
        }
    }
    if kinds.contains(&Kind::Renewals) {
        assert!(world.lost >= MANY, "those on the frozen server are lost");
    }
}

fn lost_of(world: &World, holds: &[u64]) -> usize {
    let is_lost = |number: &&u64| world.core.phase(**number) != Some(Phase::Held);
    holds.iter().filter(is_lost).count()
}

#[test]
fn a_server_that_stands_still_costs_others_nothing_whatever_waits_for_it() {
    use Kind::{Attempts, Cancelled, Dropped, Renewals, Touches};
    for kind in [Attempts, Renewals, Dropped, Cancelled, Touches] {
        the_others_notice_nothing_of(&[kind]);
    }
    the_others_notice_nothing_of(&[Attempts, Renewals, Dropped, Cancelled, Touches]);
}

#[test]
fn a_server_that_is_silent_for_a_time_out_is_asked_little_until_it_answers() {
    let mut world = World::new();
    let is_acquire = |command: &Command| matches!(command, Command::Acquire { .. });
    let begun = |world: &mut World, now: u64, locks: std::ops::Range<usize>| {
        for lock in names(FROZEN).skip(locks.start).take(locks.len()) {
            let request = world.core.event(at(now)).begin(short(&lock), ()).expect("it is open").1;
            request.into_iter().for_each(|request| world.send(now, request));
        }
        world.pass(now);
    };
    begun(&mut world, 10, 0..600);
    assert_eq!(world.frozen(is_acquire), 256);
    world.pass(10 + TIMEOUT);
    begun(&mut world, 11 + TIMEOUT, 600..700);
    assert!(world.frozen(is_acquire) <= 64, "{} are asked for", world.frozen(is_acquire));
    let (_, request) = world.on_their_way.remove(0);
    world.core.event(at(12 + TIMEOUT)).replied(&request, &answered(&request));
    world.follow(12 + TIMEOUT);
    world.pass(12 + TIMEOUT);
    assert_eq!(world.frozen(is_acquire), 256);
}

#[test]
fn a_slot_that_moves_takes_all_that_is_due_to_its_new_lane() {
    let mut core = core();
    core.event(at(0)).set_lanes(lanes());
    // The lane of the moving slots has no room.
    let mut of_lane = names(FROZEN);
    let mut next = || of_lane.next().expect("without end");
    for _ in 0..ACQUIRES {
        core.event(at(0)).begin(wish(&next()), ()).expect("it is open");
    }
    let unsent = core.event(at(0)).begin(wish(&next()), ()).expect("it is open").0;
    core.event(at(0)).set_lanes((0..crate::wire::slot::SLOTS).map(|_| 1).collect());
    let requests = ticked(&mut core, at(0));
    assert!(matches!(&requests[..], [request] if request.lane == 1), "{requests:?}");
    assert_eq!(
        core.number(&member_of(&requests[0])).map(|number| number >> ROUND_BITS),
        Some(unsent)
    );
    // Its holds are renewed there, and its local queues touched.
    let mut core = self::core();
    core.event(at(0)).set_lanes(lanes());
    held(&mut core, at(0), &named(FROZEN, 0));
    queued(&mut core, at(0), &named(FROZEN, 1));
    core.event(at(1)).set_lanes((0..crate::wire::slot::SLOTS).map(|_| 2).collect());
    let requests = ticked(&mut core, at(10_000));
    assert_eq!(
        requests.iter().map(|request| request.lane).collect::<Vec<_>>(),
        [2, 2],
        "{requests:?}"
    );
}

#[test]
fn the_pause_of_a_lane_ends_that_of_no_other() {
    let mut core = core();
    core.event(at(0)).set_lanes(lanes());
    let away = StoreError::refused(LockErrorKind::Unavailable, "away");
    for (lane, failed) in [(1, at(0)), (2, at(1))] {
        let request = core.event(at(0)).begin(wish(&named(lane, 0)), ()).expect("it is open").1;
        core.event(failed).unanswered(&request.expect("there is room"), &away);
    }
    core.drain();
    for lane in [1, 2] {
        let due = core.next().expect("it is asked for again");
        let requests = ticked(&mut core, due);
        assert_eq!(
            requests.iter().map(|request| request.lane).collect::<Vec<_>>(),
            [lane],
            "{requests:?}"
        );
    }
}
