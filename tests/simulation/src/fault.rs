//! The faults, and the laws under them.

use laws::Law;

use crate::dice::Dice;

/// A kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// A connection breaks: pending requests get no response, and may run up to a minute later.
    Break,
    /// A message is lost.
    LostMessage,
    /// Only a subscription is cut.
    Cut,
    /// A request or a response is late by up to four seconds.
    Late,
    /// A response is lost, and later responses arrive: the connection is abandoned once the request
    /// has timed out.
    Swallow,
    /// A request runs twice within 600 ms; an acquire twice before the response arrives.
    Repeat,
    /// A process is killed; another replaces it.
    Kill,
    /// A process is stopped for up to 20 s.
    Stop,
    /// A machine is suspended for up to a minute: timers stop, and time jumps once the process
    /// notices.
    Suspend,
    /// A node is shut down; another process replaces it.
    ShutDown,
    /// A process's clock is wrong by up to a twentieth.
    Drift,
    /// An attempt is cancelled, at any point.
    Cancel,
    /// A caller takes the grant late, or not before the claim has ended.
    Unread,
    /// A holder requests the same lock once more.
    Reenter,
    /// A guard is leaked.
    Leak,
    /// A guard is forgotten: the hold is renewed until `max_hold`.
    Forget,
    /// A process force-releases a lock.
    Force,
    /// The server refuses a request.
    Refuse,
    /// The server's memory is full for up to five seconds.
    Full,
    /// The server accepts no writes for up to five seconds.
    ReadOnly,
    /// The server is stopped for up to 25 s.
    Freeze,
    /// The server's clock is set forward, or back by a minute at most in all.
    Step,
    /// The server's clock stands still for up to ten seconds.
    Standstill,
    /// Only the server's token counter is lost.
    LoseCount,
    /// The server's token counter is lost, and the clock is set back, by a minute at most in all.
    TurnBack,
    /// The server loses all data, with the connections or without.
    Wipe,
    /// A replica takes over that lacks the last three seconds, and whose clock may be behind or
    /// ahead.
    FailOver,
    /// A replica takes over that has at least everything it has acknowledged, while every grant and
    /// every renewal waits for an acknowledgement.
    Promote,
    /// The replica is behind by up to five seconds.
    Lag,
    /// A hash slot moves to another primary, key by key or all at once. It may stay open between
    /// the two for up to ten seconds per key.
    MoveSlot,
    /// The clocks of primaries are apart by up to four seconds.
    Apart,
    /// A replica takes over for one of several primaries as in [`FailOver`](Self::FailOver), also
    /// while a hash slot moves: then it may have some keys of a lock without the others.
    Replace,
}

const EVERYTHING: &[Law] = &Law::ALL;
/// The laws that hold if leases may end early or late, but nothing else goes wrong.
const BY_TIME: &[Law] = &[
    Law::S1,
    Law::S3,
    Law::S4,
    Law::S5,
    Law::S6,
    Law::S7,
    Law::S9,
    Law::F1,
    Law::F5,
    Law::L1,
    Law::L2,
    Law::L3,
    Law::L4,
    Law::L6,
];
/// The laws that hold if a process's clock runs at a wrong rate, so that guards may be valid too
/// long; or if the next primary's clock differs, so that leases of parts end early.
const BY_RATE: &[Law] = &[
    Law::S1,
    Law::S3,
    Law::S4,
    Law::S5,
    Law::S6,
    Law::S7,
    Law::S9,
    Law::F1,
    Law::F2,
    Law::F5,
    Law::L1,
    Law::L2,
    Law::L3,
    Law::L4,
    Law::L6,
];
/// The laws that hold if tokens and positions restart from an earlier time. Processes that have
/// seen the earlier tokens get higher tokens; a newcomer may be queued ahead of others, and fit
/// there.
const UNCOUNTED: &[Law] = &[
    Law::S1,
    Law::S4,
    Law::S5,
    Law::S6,
    Law::S7,
    Law::S9,
    Law::L1,
    Law::L2,
    Law::L3,
    Law::L4,
    Law::L6,
];
/// The laws that hold if all data are lost but the clock continues, and so do tokens.
const WIPED: &[Law] =
    &[Law::S3, Law::S4, Law::S7, Law::S9, Law::F5, Law::L1, Law::L2, Law::L3, Law::L4];
/// The laws that hold if a hold may be granted again; no waiter waits for ever, and no key stays
/// behind.
const FORGOTTEN: &[Law] = &[Law::S4, Law::S7, Law::S9, Law::F5, Law::L1, Law::L2, Law::L3, Law::L4];
/// The same if keys of a lock may be lost without the others. A lock key without a flag shows no
/// waiters: they are granted by their next touch, and not immediately. A hold whose queue entry was
/// restored is granted once more, with another lease.
const TORN: &[Law] = &[Law::S9, Law::L1, Law::L2, Law::L3, Law::L4];
/// The laws that hold if no guard relies on a lost hold, but positions and tombstones may be lost.
const ACKNOWLEDGED: &[Law] = &[
    Law::S1,
    Law::S2,
    Law::S3,
    Law::S4,
    Law::S6,
    Law::S7,
    Law::S9,
    Law::F5,
    Law::L1,
    Law::L2,
    Law::L3,
    Law::L4,
];

impl Fault {
    /// Each fault with its name and the laws that hold under it. Breaks of the other laws are only
    /// counted.
    pub const TABLE: [(Self, &'static str, &'static [Law]); 32] = [
        (Self::Break, "break", EVERYTHING),
        (Self::LostMessage, "lost-message", EVERYTHING),
        (Self::Cut, "cut", EVERYTHING),
        (Self::Late, "late", EVERYTHING),
        (Self::Swallow, "swallow", EVERYTHING),
        (Self::Repeat, "repeat", EVERYTHING),
        (Self::Kill, "kill", EVERYTHING),
        (Self::Stop, "stop", EVERYTHING),
        (Self::Suspend, "suspend", EVERYTHING),
        (Self::ShutDown, "shut-down", EVERYTHING),
        (Self::Drift, "drift", BY_RATE),
        (Self::Cancel, "cancel", EVERYTHING),
        (Self::Unread, "unread", EVERYTHING),
        (Self::Reenter, "re-enter", EVERYTHING),
        (Self::Leak, "leak", EVERYTHING),
        (Self::Forget, "forget", EVERYTHING),
        (Self::Force, "force", EVERYTHING),
        (Self::Refuse, "refuse", EVERYTHING),
        (Self::Full, "full", EVERYTHING),
        (Self::ReadOnly, "read-only", EVERYTHING),
        (Self::Freeze, "freeze", EVERYTHING),
        (Self::Step, "step", BY_TIME),
        (Self::Standstill, "standstill", BY_TIME),
        (Self::LoseCount, "lose-count", EVERYTHING),
        (Self::TurnBack, "turn-back", UNCOUNTED),
        (Self::Wipe, "wipe", WIPED),
        (Self::FailOver, "fail-over", FORGOTTEN),
        (Self::Promote, "promote", ACKNOWLEDGED),
        (Self::Lag, "lag", EVERYTHING),
        (Self::MoveSlot, "move-slot", EVERYTHING),
        (Self::Apart, "apart", BY_RATE),
        (Self::Replace, "replace", TORN),
    ];

    /// Pairs under which fewer laws hold than under each fault. Where slots move, lost data may be
    /// some keys of a lock without the others; and nobody waits until a replica has a moved key.
    /// Tokens rise only by the clock where the counter is lost, or behind on a promoted replica.
    pub const PAIRS: [([Self; 2], &'static [Law]); 6] = [
        ([Self::MoveSlot, Self::Wipe], TORN),
        ([Self::MoveSlot, Self::Promote], TORN),
        ([Self::LoseCount, Self::Step], UNCOUNTED),
        ([Self::Wipe, Self::Step], UNCOUNTED),
        ([Self::Promote, Self::Step], UNCOUNTED),
        ([Self::Promote, Self::Standstill], UNCOUNTED),
    ];

    /// The faults by which a server may lose data.
    const LOSE_DATA: [Self; 4] = [Self::Wipe, Self::FailOver, Self::Promote, Self::Replace];

    /// Returns the fault's name.
    pub fn name(self) -> &'static str {
        Self::TABLE[self as usize].1
    }

    /// Returns the fault with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::TABLE.iter().find(|(_, of, _)| *of == name).map(|(fault, ..)| *fault)
    }
}

/// The rate of each fault: a rate of n means one in n cases, 0 means never.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Faults([u32; Fault::TABLE.len()]);

impl Faults {
    /// Returns the rates of these faults; all others are 0.
    pub const fn of<const N: usize>(rates: [(Fault, u32); N]) -> Self {
        let mut faults = [0; Fault::TABLE.len()];
        let mut at = 0;
        while at < N {
            faults[rates[at].0 as usize] = rates[at].1;
            at += 1;
        }
        Self(faults)
    }

    /// Returns the fault's rate: it happens in one of this many cases.
    pub fn rate(&self, fault: Fault) -> u64 {
        u64::from(self.0[fault as usize])
    }

    /// Whether any of these faults may happen.
    pub fn have_any<const N: usize>(&self, faults: [Fault; N]) -> bool {
        faults.into_iter().any(|fault| self.rate(fault) > 0)
    }

    /// Returns the same rates without this fault.
    #[must_use]
    pub fn without(mut self, fault: Fault) -> Self {
        self.0[fault as usize] = 0;
        self
    }

    /// Returns the possible faults.
    pub fn all(&self) -> impl Iterator<Item = Fault> {
        let table = Fault::TABLE.iter().map(|(fault, ..)| *fault);
        table.filter(|fault| self.rate(*fault) > 0)
    }

    /// Whether the law holds under all of these faults together.
    pub fn keep(&self, law: Law) -> bool {
        let meet = |pair: [Fault; 2]| pair.iter().all(|fault| self.rate(*fault) > 0);
        let pairs = Fault::PAIRS.iter().filter(|(pair, _)| meet(*pair)).map(|(_, laws)| *laws);
        let single = self.all().map(|fault| Fault::TABLE[fault as usize].2);
        single.chain(pairs).all(|laws| laws.contains(&law))
    }

    /// Draws three to six faults, each at the rate of one of the kinds. Half of the draws are for a
    /// Cluster, whose slots move.
    fn drawn(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let mut faults = Self::default();
        let count = dice.of(3, 6);
        let is_on_cluster = dice.one_in(2);
        let mut next = is_on_cluster.then_some(Fault::MoveSlot);
        while (faults.all().count() as u64) < count {
            let any = Fault::TABLE[dice.below(Fault::TABLE.len() as u64) as usize].0;
            let fault = next.take().unwrap_or(any);
            if !faults.go_with(fault, is_on_cluster) {
                continue;
            }
            let rates = KINDS.iter().map(|(_, kind)| kind.0[fault as usize]);
            let rates: Vec<u32> = rates.filter(|rate| *rate > 0).collect();
            faults.0[fault as usize] = rates[dice.below(rates.len() as u64) as usize];
        }
        faults
    }

    /// Whether the table's laws hold if this fault is drawn, too. A server that loses data in two
    /// ways can bring lost data back. Between the clocks of a Cluster's primaries, all laws allow
    /// only a few seconds.
    fn go_with(&self, fault: Fault, is_on_cluster: bool) -> bool {
        let only_one = !Fault::LOSE_DATA.contains(&fault) || !self.have_any(Fault::LOSE_DATA);
        let is_here = match is_on_cluster {
            true => {
                ![Fault::Step, Fault::Standstill, Fault::TurnBack, Fault::FailOver].contains(&fault)
            }
            false => ![Fault::MoveSlot, Fault::Apart, Fault::Replace].contains(&fault),
        };
        only_one && is_here
    }
}

/// Returns the kinds of runs, by name. The last draws its faults from the table by the seed.
pub fn kinds(seed: u64) -> impl Iterator<Item = (&'static str, Faults)> {
    KINDS.into_iter().chain([(DRAWN, Faults::drawn(seed))])
}

/// The kind that draws its faults.
pub const DRAWN: &str = "drawn";

/// The kinds of runs with fixed faults, by name.
const KINDS: [(&str, Faults); 14] = {
    use Fault::*;
    [
        ("calm", Faults::of([(Reenter, 20)])),
        (
            "callers",
            Faults::of([
                (Cancel, 3),
                (Unread, 50),
                (Reenter, 10),
                (Leak, 20),
                (Forget, 60),
                (Force, 20),
            ]),
        ),
        (
            "network",
            Faults::of([
                (Swallow, 300),
                (Break, 400),
                (LostMessage, 30),
                (Cut, 300),
                (Late, 200),
                (Repeat, 200),
                (Force, 60),
                (Cancel, 20),
                (Reenter, 40),
                (Leak, 40),
                (Forget, 200),
            ]),
        ),
        (
            "processes",
            Faults::of([
                (Kill, 2_000),
                (Stop, 2_000),
                (Suspend, 2_000),
                (ShutDown, 2_000),
                (Force, 60),
                (Cancel, 20),
                (Reenter, 40),
                (Leak, 40),
                (Forget, 200),
                (Unread, 200),
            ]),
        ),
        (
            "server",
            Faults::of([
                (Refuse, 500),
                (Full, 1_000),
                (ReadOnly, 5_000),
                (Freeze, 1_000),
                (LoseCount, 1_000),
                (ShutDown, 4_000),
                (Force, 60),
                (Cancel, 20),
                (Reenter, 20),
                (Leak, 40),
                (Forget, 60),
            ]),
        ),
        (
            "clocks",
            Faults::of([
                (Step, 1_000),
                (Standstill, 2_000),
                (Stop, 5_000),
                (Suspend, 5_000),
                (Cancel, 20),
                (Leak, 100),
                (LostMessage, 50),
                (Cut, 1_000),
            ]),
        ),
        (
            "tokens",
            Faults::of([
                (Swallow, 400),
                (LoseCount, 500),
                (TurnBack, 1_000),
                (Break, 800),
                (Stop, 5_000),
                (Kill, 5_000),
                (Cancel, 20),
                (Leak, 100),
                (LostMessage, 60),
                (Cut, 600),
            ]),
        ),
        ("rates", Faults::of([(Drift, 2), (Stop, 5_000), (Cancel, 20), (Break, 1_000)])),
        (
            "wiped",
            Faults::of([
                (Wipe, 5_000),
                (LoseCount, 2_000),
                (Break, 800),
                (LostMessage, 60),
                (Cut, 600),
                (Late, 400),
                (Kill, 5_000),
                (Stop, 5_000),
                (Cancel, 10),
            ]),
        ),
        (
            "failed-over",
            Faults::of([
                (Swallow, 800),
                (FailOver, 1_000),
                (Full, 1_000),
                (Freeze, 4_000),
                (Break, 800),
                (LostMessage, 60),
                (Late, 800),
                (Kill, 5_000),
                (ShutDown, 5_000),
                (Force, 60),
                (Cancel, 10),
                (Reenter, 20),
                (Leak, 20),
                (Forget, 60),
            ]),
        ),
        (
            "acknowledged",
            Faults::of([
                (Promote, 2_000),
                (LoseCount, 5_000),
                (Lag, 2_000),
                (Force, 60),
                (Break, 800),
                (LostMessage, 60),
                (Late, 400),
                (Kill, 5_000),
                (Stop, 5_000),
                (ShutDown, 5_000),
                (Cancel, 10),
                (Reenter, 40),
                (Leak, 40),
                (Forget, 200),
            ]),
        ),
        (
            "moved",
            Faults::of([
                (Swallow, 800),
                (MoveSlot, 500),
                (Full, 1_000),
                (Freeze, 4_000),
                (Break, 800),
                (LostMessage, 60),
                (Cut, 600),
                (Late, 400),
                (Repeat, 400),
                (Kill, 5_000),
                (Stop, 5_000),
                (ShutDown, 5_000),
                (Cancel, 10),
                (Reenter, 20),
                (Leak, 20),
                (Forget, 60),
                (Force, 60),
            ]),
        ),
        (
            "cluster",
            Faults::of([
                (Swallow, 800),
                (MoveSlot, 500),
                (Apart, 1),
                (Replace, 1_000),
                (Full, 2_000),
                (Freeze, 4_000),
                (Break, 800),
                (LostMessage, 60),
                (Late, 400),
                (Kill, 5_000),
                (ShutDown, 5_000),
                (Cancel, 10),
                (Reenter, 40),
                (Leak, 40),
                (Forget, 100),
                (Force, 100),
            ]),
        ),
        (
            "everything",
            Faults::of([
                (Swallow, 800),
                (Break, 800),
                (LostMessage, 60),
                (Cut, 600),
                (Late, 400),
                (Repeat, 400),
                (Kill, 5_000),
                (Stop, 5_000),
                (Suspend, 5_000),
                (ShutDown, 5_000),
                (Cancel, 10),
                (Unread, 100),
                (Reenter, 20),
                (Leak, 20),
                (Forget, 60),
                (Force, 60),
                (Refuse, 500),
                (Full, 2_000),
                (ReadOnly, 10_000),
                (Freeze, 4_000),
                (LoseCount, 5_000),
            ]),
        ),
    ]
};
