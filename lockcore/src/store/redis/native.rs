//! The acquire and the release of a free lock without a script: `SET NX` on its door, and a token,
//! in one transaction; and `DELIFEQ` or `DELEX` where the server has it. The acquire costs the
//! server two thirds of the script's instructions.
//!
//! # Implementation notes
//!
//! - It is the first short way of the script and nothing else: a lock without a door is free, and
//!   nobody waits for it. Where there is a door, it changes nothing but the counter, and the script
//!   is called as if it had not been.
//! - A token that is not above the floor is no token. The script is called then, too: it finds its
//!   member as the holder, and draws another one. The same where the transaction failed halfway,
//!   such as at a counter that is no number. If the script is refused after that, the member may
//!   hold the lock nonetheless, and the refusal is told as one whose command may have run.
//! - The answer has the door's text, so that one which went missing on the way does not make it
//!   another member's.
//! - A lock that is held or waited for costs one more round trip this way. So it is taken only for
//!   names that the last acquire found free. Acquires of the same name wait meanwhile, for they
//!   would overtake the one that has to ask the script. They are written to its connection after
//!   it, also if that is replaced meanwhile: there the server runs all of them or none.
//! - The release is the first short way of its script: a door that is no more than the member has
//!   no mark, so it has no waiters. Where it is anything else nothing has changed, and the script
//!   is called as if nothing had been sent. A hand-over takes one more round trip then, so it is
//!   for names that the last acquire or release did not find busy.
//! - Of the answers only the last one counts. One that is no answer of a transaction shows that one
//!   went missing; it is never read as a script's.

use std::collections::HashMap;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use client::{Compare, Packed, failure};
use proto::wire::{FreeAcquire, FreeRelease, nonsense};
use proto::{Answer, LockName};
use redis::{RedisError, Value};

use super::run::Judged;

/// Names that are told apart; others share a place with one of them, and its history.
const PLACES: usize = 4_096;

/// A bit for each place.
#[derive(Debug)]
struct Bits([AtomicU64; PLACES / 64]);

impl Default for Bits {
    fn default() -> Self {
        Self([const { AtomicU64::new(0) }; PLACES / 64])
    }
}

impl Bits {
    fn has(&self, Place(number): Place) -> bool {
        self.0[number / 64].load(Acquire) & 1 << (number % 64) != 0
    }

    /// Sets the bit, or takes it away. Returns whether it was set.
    fn set(&self, Place(number): Place, is_set: bool) -> bool {
        let (word, bit) = (&self.0[number / 64], 1 << (number % 64));
        let before = match is_set {
            true => word.fetch_or(bit, AcqRel),
            false => word.fetch_and(!bit, AcqRel),
        };
        before & bit != 0
    }
}

/// The place of a name among those that are told apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Place(usize);

impl Place {
    pub(super) fn of(lock: &LockName) -> Self {
        // FNV-1a, of which the low bits tell most names apart.
        let mix = |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        let hash = lock.as_str().bytes().fold(0xcbf2_9ce4_8422_2325, mix);
        Self(hash as usize % PLACES)
    }
}

/// The acquires of a node, as far as it has to be known where a transaction may be sent.
#[derive(Default)]
pub(super) struct Acquires {
    /// The last acquire or release found the name busy.
    busy: Bits,
    /// A transaction is on its way. Changes only under the mutex.
    on_its_way: Bits,
    /// Acquires that are sent after it.
    deferred: Mutex<HashMap<Place, Vec<Deferred>>>,
}

/// Sends an acquire.
type Deferred = Box<dyn FnOnce() + Send>;

impl Acquires {
    /// Notes how a command found its name.
    pub(super) fn note(&self, place: Place, was_free: bool) {
        if self.busy.has(place) == was_free {
            self.busy.set(place, !was_free);
        }
    }

    /// Whether the last acquire or release did not find the name free.
    pub(super) fn is_busy(&self, place: Place) -> bool {
        self.busy.has(place)
    }

    /// A transaction that may be sent: the name was free, and no other one is on its way.
    pub(super) fn begin(self: &Arc<Self>, place: Place) -> Option<Transaction> {
        if self.busy.has(place) {
            return None;
        }
        let _deferred = self.deferred();
        let is_free = !self.on_its_way.set(place, true);
        is_free.then(|| Transaction { acquires: Arc::clone(self), place, is_over: false })
    }

    /// Has an acquire sent after the transaction that is on its way. Returns it if there is none.
    pub(super) fn defer<A: FnOnce() + Send + 'static>(
        &self,
        place: Place,
        acquire: A,
    ) -> Option<A> {
        if !self.on_its_way.has(place) {
            return Some(acquire);
        }
        let mut deferred = self.deferred();
        if !self.on_its_way.has(place) {
            return Some(acquire);
        }
        deferred.entry(place).or_default().push(Box::new(acquire));
        None
    }

    fn deferred(&self) -> MutexGuard<'_, HashMap<Place, Vec<Deferred>>> {
        self.deferred.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A transaction on its way. One that is dropped, since the runtime ends, drops those that wait.
pub(super) struct Transaction {
    acquires: Arc<Acquires>,
    place: Place,
    is_over: bool,
}

impl Transaction {
    /// Ends it once it was answered: sends all that waited for it, in order.
    pub(super) fn end(mut self) {
        while let Some(next) = self.next() {
            next.into_iter().for_each(|acquire| acquire());
        }
    }

    /// Those that wait. Without any it is over, so that none comes later.
    fn next(&mut self) -> Option<Vec<Deferred>> {
        let mut deferred = self.acquires.deferred();
        // Without any, as nearly always, nothing has to be hashed.
        let next = if deferred.is_empty() { None } else { deferred.remove(&self.place) };
        if next.is_none() {
            self.acquires.on_its_way.set(self.place, false);
            self.is_over = true;
        }
        next
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        while !self.is_over {
            drop(self.next());
        }
    }
}

/// The command that deletes the door if it is the member's alone.
pub(super) fn release(free: &FreeRelease<'_>, compare: Compare) -> Packed {
    let (door, member) = (free.door.as_bytes(), free.member.as_str().as_bytes());
    let mut packed = Packed::whole(1, 64 + door.len() + member.len());
    match compare {
        Compare::Delifeq => {
            packed.append(b"*3\r\n$7\r\nDELIFEQ\r\n");
            packed.word(door);
        }
        // Without IFEQ it would delete any door.
        Compare::Delex => {
            packed.append(b"*4\r\n$5\r\nDELEX\r\n");
            packed.word(door);
            packed.append(b"$4\r\nIFEQ\r\n");
        }
    }
    packed.word(member);
    packed
}

/// The commands of the transaction.
pub(super) fn acquire(free: &FreeAcquire<'_>) -> Packed {
    let (door, member) = (free.door.as_bytes(), free.member.as_str().as_bytes());
    let mut lease = itoa::Buffer::new();
    let mut packed = Packed::whole(5, 192 + 2 * door.len() + member.len());
    packed.append(b"*1\r\n$5\r\nMULTI\r\n*6\r\n$3\r\nSET\r\n");
    packed.word(door);
    packed.word(member);
    packed.append(b"$2\r\nNX\r\n$2\r\nPX\r\n");
    packed.word(lease.format(free.member.lease_ms()).as_bytes());
    packed.append(b"*2\r\n$4\r\nINCR\r\n");
    packed.word(free.counter.as_bytes());
    packed.append(b"*2\r\n$3\r\nGET\r\n");
    packed.word(door);
    packed.append(b"*1\r\n$4\r\nEXEC\r\n");
    packed
}

/// The meaning of an answer.
#[derive(Debug, PartialEq)]
pub(super) enum Outcome {
    /// It is done; this is the answer that the script would have given.
    Answered(Answer),
    /// The script has to be asked. The member may hold the lock if `may_hold`.
    AskScript { may_hold: bool },
    /// No answer, or none of a known form.
    Unanswered(Judged),
}

impl Outcome {
    /// Of a release.
    pub(super) fn of_release(answer: Judged) -> Self {
        match answer {
            Ok(Ok(Value::Int(1))) => Self::Answered(FreeRelease::answer()),
            Ok(Ok(Value::Int(0))) => Self::AskScript { may_hold: false },
            Ok(Ok(_)) => Self::Unanswered(Err(nonsense())),
            // One command that is refused did not run.
            Ok(Err(error)) if is_refusal(&error) => Self::AskScript { may_hold: false },
            answer => Self::Unanswered(answer),
        }
    }

    /// Of the transaction of an acquire.
    pub(super) fn of_acquire(free: &FreeAcquire<'_>, floor_us: u64, answer: Judged) -> Self {
        match answer {
            Ok(Ok(Value::Array(told))) => match &*told {
                [Value::Okay, Value::Int(token), Value::BulkString(door)]
                    if *door == free.member.as_str().as_bytes() =>
                {
                    let granted = free.answer(*token, floor_us).map(Self::Answered);
                    granted.unwrap_or(Self::AskScript { may_hold: true })
                }
                [Value::Nil, Value::Int(_), _] => Self::AskScript { may_hold: false },
                _ => Self::Unanswered(Err(nonsense())),
            },
            Ok(Ok(_)) => Self::Unanswered(Err(nonsense())),
            Ok(Err(error)) if error.code() == Some("EXECABORT") => {
                Self::AskScript { may_hold: false }
            }
            // An error in the transaction's list, or one of a server that refused `MULTI` alone.
            Ok(Err(error)) if is_refusal(&error) => Self::AskScript { may_hold: true },
            answer => Self::Unanswered(answer),
        }
    }
}

/// Whether it is an error of the server, after which the connection goes on.
fn is_refusal(error: &RedisError) -> bool {
    error.code().is_some() && !failure::breaks_connection(error)
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use proto::wire::is_nonsense;
    use proto::{Acquired, Demand, Label, LockErrorKind, Member, NodeId, StoreError};

    use super::*;

    static MEMBER: LazyLock<Member> = LazyLock::new(|| {
        Member::new(&NodeId::from(7_u128), 7, 30_000, Demand::EXCLUSIVE, &Label::new("me"))
    });
    const FLOOR: u64 = 100;

    fn free() -> FreeAcquire<'static> {
        FreeAcquire { door: "lock:{a}", member: &MEMBER, counter: "lock:tokens" }
    }

    fn read(set: Value, token: Value, door: &str) -> Outcome {
        let told = vec![set, token, Value::BulkString(door.into())];
        Outcome::of_acquire(&free(), FLOOR, Ok(Ok(Value::Array(told))))
    }

    fn refused(code: &str) -> RedisError {
        redis::make_extension_error(code.to_owned(), None)
    }

    #[test]
    fn a_free_lock_is_granted_with_a_token_above_the_floor_alone() {
        let me = MEMBER.as_str();
        let Outcome::Answered(Answer::Acquired(reply)) = read(Value::Okay, Value::Int(101), me)
        else {
            panic!("it is granted")
        };
        assert_eq!(reply.outcome, [Acquired::Granted]);
        let [grant] = &*reply.grants else { panic!("one grant: {reply:?}") };
        assert_eq!((&grant.member, grant.token.get(), grant.left_ms), (&*MEMBER, 101, 30_000));
        for token in [100, 7, -1, 1 << 53, i64::MAX] {
            let told = read(Value::Okay, Value::Int(token), me);
            assert_eq!(told, Outcome::AskScript { may_hold: true }, "{token}");
        }
        let busy = read(Value::Nil, Value::Int(101), "~2other");
        assert_eq!(busy, Outcome::AskScript { may_hold: false });
        // A copy of this acquire may have run: the script tells its own.
        let own = read(Value::Nil, Value::Int(101), me);
        assert_eq!(own, Outcome::AskScript { may_hold: false });
    }

    #[test]
    fn an_answer_of_another_one_or_of_no_known_form_grants_nothing() {
        let granted = Value::Array(vec![Value::BulkString("granted".into()), Value::Int(0)]);
        let of = |answer| Outcome::of_acquire(&free(), FLOOR, Ok(Ok(answer)));
        for told in [
            read(Value::Okay, Value::Int(101), "~2other"),
            read(Value::Okay, Value::Nil, MEMBER.as_str()),
            of(Value::Okay),
            of(Value::Array(vec![Value::Okay])),
            // A script would say so.
            of(Value::Int(29_000 << 20)),
            of(Value::BulkString("1~2me".into())),
            of(granted),
        ] {
            let is_nonsense =
                matches!(&told, Outcome::Unanswered(Err(error)) if is_nonsense(error));
            assert!(is_nonsense, "{told:?}");
        }
    }

    #[test]
    fn after_a_refusal_the_script_is_asked_and_without_an_answer_it_is_not() {
        let of = |answer| Outcome::of_acquire(&free(), FLOOR, answer);
        let aborted = of(Ok(Err(refused("EXECABORT"))));
        assert_eq!(aborted, Outcome::AskScript { may_hold: false });
        for code in ["ERR", "WRONGTYPE"] {
            assert_eq!(of(Ok(Err(refused(code)))), Outcome::AskScript { may_hold: true }, "{code}");
        }
        let lost = std::io::Error::from(std::io::ErrorKind::TimedOut).into();
        for lost in [lost, failure::unsent("closed"), refused("READONLY")] {
            assert!(matches!(of(Ok(Err(lost))), Outcome::Unanswered(Ok(Err(_)))));
        }
        let error = StoreError::refused(LockErrorKind::Closed, "closed");
        assert!(matches!(of(Err(error)), Outcome::Unanswered(Err(_))));
    }

    #[test]
    fn a_transaction_is_tried_where_the_name_was_last_free_and_no_other_is_on_its_way() {
        let acquires = Arc::new(Acquires::default());
        let [a, b] = ["a", "b"].map(|name| Place::of(&LockName::from(name)));
        let first = acquires.begin(a).expect("free");
        let _other = acquires.begin(b).expect("free");
        assert!(acquires.begin(a).is_none());
        first.end();
        acquires.note(a, false);
        assert!(acquires.begin(a).is_none());
        acquires.note(a, true);
        assert!(acquires.begin(a).is_some() && acquires.begin(b).is_none());
    }

    #[test]
    fn names_that_differ_in_a_number_have_places_of_their_own() {
        let place = |number: u32| Place::of(&LockName::from(&*format!("shop:order:{number:04}")));
        let places: std::collections::HashSet<_> = (0..64).map(place).collect();
        assert!(places.len() > 60, "{} places of 64 names", places.len());
    }

    #[test]
    fn those_that_wait_for_a_transaction_are_sent_after_it_in_order() {
        let acquires = Arc::new(Acquires::default());
        let sent = Arc::new(Mutex::new(Vec::new()));
        let [a, b] = ["a", "b"].map(|name| Place::of(&LockName::from(name)));
        let send = |number: u32| {
            let sent = sent.clone();
            move || sent.lock().unwrap().push(number)
        };
        let transaction = acquires.begin(a).expect("free");
        assert!(acquires.defer(b, send(0)).is_some(), "no transaction");
        assert!(acquires.defer(a, send(1)).is_none());
        // One that comes while the others are sent is sent after them.
        let (more, again) = (send(3), acquires.clone());
        assert!(acquires.defer(a, move || assert!(again.defer(a, more).is_none())).is_none());
        assert!(acquires.defer(a, send(2)).is_none());
        transaction.end();
        assert_eq!(*sent.lock().unwrap(), [1, 2, 3]);
        assert!(acquires.defer(a, send(4)).is_some(), "it is over");
    }

    #[test]
    fn a_transaction_that_is_dropped_leaves_nothing_that_waits_for_it() {
        let acquires = Arc::new(Acquires::default());
        let a = Place::of(&LockName::from("a"));
        let transaction = acquires.begin(a).expect("free");
        let waits = Arc::new(());
        let held = Arc::clone(&waits);
        assert!(acquires.defer(a, move || panic!("{held:?} is sent")).is_none());
        drop(transaction);
        assert_eq!(Arc::strong_count(&waits), 1);
        assert!(acquires.begin(a).is_some());
    }

    #[test]
    fn the_commands_are_those_that_redis_rs_would_write() {
        let mut written = Vec::new();
        let packed = acquire(&free());
        packed.write(&mut written);
        let mut pipe = redis::pipe();
        let FreeAcquire { door, counter, .. } = free();
        pipe.atomic().cmd("SET").arg(door).arg(MEMBER.as_str()).arg("NX").arg("PX").arg(30_000);
        pipe.cmd("INCR").arg(counter).cmd("GET").arg(door);
        assert_eq!(written, pipe.get_packed_pipeline());
        assert_eq!(packed.answers, 5);

        let member = MEMBER.as_str();
        let delifeq = redis::cmd("DELIFEQ").arg(door).arg(member).get_packed_command();
        let delex = redis::cmd("DELEX").arg(door).arg("IFEQ").arg(member).get_packed_command();
        for (compare, deletion) in [(Compare::Delifeq, delifeq), (Compare::Delex, delex)] {
            let packed = release(&FreeRelease { door, member: &MEMBER }, compare);
            written.clear();
            packed.write(&mut written);
            assert_eq!(written, deletion);
            assert_eq!(packed.answers, 1);
        }
    }

    #[test]
    fn a_release_that_deleted_nothing_or_was_refused_asks_the_script() {
        let asks = || Outcome::AskScript { may_hold: false };
        let released = Outcome::of_release(Ok(Ok(Value::Int(1))));
        assert_eq!(released, Outcome::Answered(FreeRelease::answer()));
        assert_eq!(Outcome::of_release(Ok(Ok(Value::Int(0)))), asks());
        for code in ["ERR", "WRONGTYPE", "NOPERM"] {
            assert_eq!(Outcome::of_release(Ok(Err(refused(code)))), asks(), "{code}");
        }
        for other in [Value::Okay, Value::Nil, Value::Int(2), Value::BulkString("1".into())] {
            let told = Outcome::of_release(Ok(Ok(other)));
            let is_nonsense =
                matches!(&told, Outcome::Unanswered(Err(error)) if is_nonsense(error));
            assert!(is_nonsense, "{told:?}");
        }
        let lost = std::io::Error::from(std::io::ErrorKind::TimedOut).into();
        for lost in [lost, failure::unsent("closed"), refused("READONLY")] {
            let told = Outcome::of_release(Ok(Err(lost)));
            assert!(matches!(told, Outcome::Unanswered(Ok(Err(_)))));
        }
    }
}
