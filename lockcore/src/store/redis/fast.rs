//! The fast path. It acquires a free lock without a script, by `SET NX` on the lock key and a token
//! in a transaction, and releases the lock by `DELIFEQ` or `DELEX` if supported. The acquire costs
//! the server two thirds of the script's instructions.
//!
//! # Implementation notes
//!
//! - The acquire does the same as the script for a free lock: a lock without a lock key is free,
//!   and has no waiters. If the lock key exists, the transaction changes nothing but the counter,
//!   and the node sends the acquire again by the script.
//! - A token must be above the token floor. If it is not, or if the transaction failed halfway, for
//!   example at a non-numeric counter, the member may hold the lock. Then the script finds that the
//!   member is the holder, and draws another token.
//! - The transaction reads the lock key at the end, because replies may be matched with the wrong
//!   requests once a response goes missing. Such a reply contains another member's text.
//! - The release does the same as the script for a lock without waiters: a lock key that stores
//!   only the member has no flag for a queue. If the lock key stores anything else, the release
//!   changes nothing, and the script runs.
//! - Of the five responses, only the response to `EXEC` is read. If another response arrives in
//!   this place, an earlier response went missing, and the request fails.

use client::{AclError, Compare, MissingRight, Packed, failure};
use proto::Answer;
use proto::wire::{FreeAcquire, FreeRelease, nonsense};
use redis::{RedisError, Value};

use super::run::Judged;

/// Returns the command that releases a lock without a script. It deletes the lock key if the key
/// stores only the member.
pub(super) fn release(free: &FreeRelease<'_>, compare: Compare) -> Packed {
    let (lock_key, member) = (free.lock_key.as_bytes(), free.member.as_str().as_bytes());
    let mut packed = Packed::whole(1, 64 + lock_key.len() + member.len());
    match compare {
        Compare::Delifeq => {
            packed.append(b"*3\r\n$7\r\nDELIFEQ\r\n");
            packed.word(lock_key);
        }
        // Without IFEQ, DELEX would delete any lock key.
        Compare::Delex => {
            packed.append(b"*4\r\n$5\r\nDELEX\r\n");
            packed.word(lock_key);
            packed.append(b"$4\r\nIFEQ\r\n");
        }
    }
    packed.word(member);
    packed
}

/// Returns the transaction that acquires a free lock without a script.
pub(super) fn acquire(free: &FreeAcquire<'_>) -> Packed {
    let (lock_key, member) = (free.lock_key.as_bytes(), free.member.as_str().as_bytes());
    let mut lease = itoa::Buffer::new();
    let mut packed = Packed::whole(5, 192 + 2 * lock_key.len() + member.len());
    packed.append(b"*1\r\n$5\r\nMULTI\r\n*6\r\n$3\r\nSET\r\n");
    packed.word(lock_key);
    packed.word(member);
    packed.append(b"$2\r\nNX\r\n$2\r\nPX\r\n");
    packed.word(lease.format(free.member.lease_ms()).as_bytes());
    packed.append(b"*2\r\n$4\r\nINCR\r\n");
    packed.word(free.counter.as_bytes());
    packed.append(b"*2\r\n$3\r\nGET\r\n");
    packed.word(lock_key);
    packed.append(b"*1\r\n$4\r\nEXEC\r\n");
    packed
}

/// Converts the server's response to a fast acquire to a reply. Returns `Err` if there is no reply,
/// because the response is an error or belongs to another request.
pub(super) fn acquired(
    free: &FreeAcquire<'_>,
    floor_us: u64,
    response: Judged,
) -> Result<Answer, Judged> {
    match response {
        Ok(Ok(Value::Array(values))) => match &*values {
            [Value::Okay, Value::Int(token), Value::BulkString(holder)]
                if *holder == free.member.as_str().as_bytes() =>
            {
                Ok(free.answer(*token, floor_us))
            }
            [Value::Nil, Value::Int(_), _] => Ok(FreeAcquire::not_served(false)),
            _ => Err(Err(nonsense())),
        },
        Ok(Ok(_)) => Err(Err(nonsense())),
        Ok(Err(error)) if error.code() == Some("EXECABORT") => Ok(FreeAcquire::not_served(false)),
        // The member may hold the lock: a command within the transaction failed, or the server
        // refused only `MULTI`, and ran the other commands separately.
        Ok(Err(error)) if is_refusal(&error) => Ok(FreeAcquire::not_served(true)),
        response => Err(response),
    }
}

/// Converts the server's response to a fast release to a reply. Returns `Ok(None)` if nothing was
/// released and the script has to run, and `Err` if the response is an error without a reply.
pub(super) fn released(response: Judged) -> Result<Option<Answer>, Judged> {
    match response {
        Ok(Ok(Value::Int(1))) => Ok(Some(FreeRelease::answer())),
        Ok(Ok(Value::Int(0))) => Ok(None),
        Ok(Ok(_)) => Err(Err(nonsense())),
        // A single command that the server refuses did not run.
        Ok(Err(error)) if is_refusal(&error) => Ok(None),
        response => Err(response),
    }
}

/// Returns true if the error is a reply from the server that leaves the connection usable.
fn is_refusal(error: &RedisError) -> bool {
    error.code().is_some() && !failure::breaks_connection(error)
}

/// Returns true if the server lacks a command of the fast path, or the Redis user lacks the right
/// to it, so that the server would refuse it on each lock.
pub(super) fn lacks_command(error: &RedisError) -> bool {
    let said = error.detail().unwrap_or_default();
    let is_of_command = |error: AclError| matches!(error.missing, MissingRight::Command(_));
    AclError::read(said).is_some_and(is_of_command)
        || failure::is_unknown_command(said)
        // The server has refused MULTI, and the response is that to EXEC.
        || said.contains("EXEC without MULTI")
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
    const TOKEN_FLOOR: u64 = 100;

    fn free() -> FreeAcquire<'static> {
        FreeAcquire { lock_key: "lock:{a}", member: &MEMBER, counter: "lock:tokens" }
    }

    fn read(set: Value, token: Value, holder: &str) -> Result<Answer, Judged> {
        let values = vec![set, token, Value::BulkString(holder.into())];
        acquired(&free(), TOKEN_FLOOR, Ok(Ok(Value::Array(values))))
    }

    fn not_served(may_hold: bool) -> Result<Answer, Judged> {
        Ok(FreeAcquire::not_served(may_hold))
    }

    fn refused(code: &str) -> RedisError {
        redis::make_extension_error(code.to_owned(), None)
    }

    #[test]
    fn a_free_lock_is_granted_with_a_token_above_the_floor_alone() {
        let me = MEMBER.as_str();
        let Ok(Answer::Acquired(reply)) = read(Value::Okay, Value::Int(101), me) else {
            panic!("it is granted")
        };
        assert_eq!(reply.outcome, [Acquired::Granted]);
        let [grant] = &*reply.grants else { panic!("one grant: {reply:?}") };
        assert_eq!((&grant.member, grant.token.get(), grant.left_ms), (&*MEMBER, 101, 30_000));
        for token in [100, 7, -1, 1 << 53, i64::MAX] {
            assert_eq!(read(Value::Okay, Value::Int(token), me), not_served(true), "{token}");
        }
        assert_eq!(read(Value::Nil, Value::Int(101), "~2other"), not_served(false));
        // A copy of this acquire may have run: the script grants the lock.
        assert_eq!(read(Value::Nil, Value::Int(101), me), not_served(false));
    }

    #[test]
    fn an_answer_of_another_one_or_of_no_known_form_grants_nothing() {
        let granted = Value::Array(vec![Value::BulkString("granted".into()), Value::Int(0)]);
        let of = |response| acquired(&free(), TOKEN_FLOOR, Ok(Ok(response)));
        for response in [
            read(Value::Okay, Value::Int(101), "~2other"),
            read(Value::Okay, Value::Nil, MEMBER.as_str()),
            of(Value::Okay),
            of(Value::Array(vec![Value::Okay])),
            // A script's response.
            of(Value::Int(29_000 << 20)),
            of(Value::BulkString("1~2me".into())),
            of(granted),
        ] {
            let is_nonsense = matches!(&response, Err(Err(error)) if is_nonsense(error));
            assert!(is_nonsense, "{response:?}");
        }
    }

    #[test]
    fn after_a_refusal_the_script_is_asked_and_without_an_answer_it_is_not() {
        let of = |response| acquired(&free(), TOKEN_FLOOR, response);
        assert_eq!(of(Ok(Err(refused("EXECABORT")))), not_served(false));
        for code in ["ERR", "WRONGTYPE"] {
            assert_eq!(of(Ok(Err(refused(code)))), not_served(true), "{code}");
        }
        let lost = std::io::Error::from(std::io::ErrorKind::TimedOut).into();
        for lost in [lost, failure::unsent("closed"), refused("READONLY")] {
            assert!(matches!(of(Ok(Err(lost))), Err(Ok(Err(_)))));
        }
        let error = StoreError::refused(LockErrorKind::Closed, "closed");
        assert!(matches!(of(Err(error)), Err(Err(_))));
    }

    #[test]
    fn a_command_that_is_not_there_or_not_allowed_is_told_from_other_refusals() {
        let of = |code: &str, said: &str| {
            lacks_command(&redis::make_extension_error(code.to_owned(), Some(said.to_owned())))
        };
        let denied = "this user has no permissions to run the 'delifeq' command";
        let transaction = format!("Transaction discarded because of: NOPERM {denied}");
        for (code, said) in [
            ("NOPERM", denied),
            ("EXECABORT", &*transaction),
            ("ERR", "EXEC without MULTI"),
            ("ERR", "unknown command 'DELIFEQ', with args beginning with: 'lock:{a}'"),
        ] {
            assert!(of(code, said), "{code} {said}");
        }
        for (code, said) in [
            ("NOPERM", "No permissions to access a key"),
            ("EXECABORT", "Transaction discarded because of previous errors."),
            ("ERR", "value is not an integer or out of range"),
            ("WRONGTYPE", "Operation against a key holding the wrong kind of value"),
        ] {
            assert!(!of(code, said), "{code} {said}");
        }
    }

    #[test]
    fn the_commands_are_those_that_redis_rs_would_write() {
        let mut written = Vec::new();
        let packed = acquire(&free());
        packed.write(&mut written);
        let mut pipe = redis::pipe();
        let FreeAcquire { lock_key, counter, .. } = free();
        pipe.atomic().cmd("SET").arg(lock_key).arg(MEMBER.as_str()).arg("NX").arg("PX").arg(30_000);
        pipe.cmd("INCR").arg(counter).cmd("GET").arg(lock_key);
        assert_eq!(written, pipe.get_packed_pipeline());
        assert_eq!(packed.answers, 5);

        let member = MEMBER.as_str();
        let delifeq = redis::cmd("DELIFEQ").arg(lock_key).arg(member).get_packed_command();
        let delex = redis::cmd("DELEX").arg(lock_key).arg("IFEQ").arg(member).get_packed_command();
        for (compare, deletion) in [(Compare::Delifeq, delifeq), (Compare::Delex, delex)] {
            let packed = release(&FreeRelease { lock_key, member: &MEMBER }, compare);
            written.clear();
            packed.write(&mut written);
            assert_eq!(written, deletion);
            assert_eq!(packed.answers, 1);
        }
    }

    #[test]
    fn a_release_that_deleted_nothing_or_was_refused_asks_the_script() {
        assert_eq!(released(Ok(Ok(Value::Int(1)))), Ok(Some(FreeRelease::answer())));
        assert_eq!(released(Ok(Ok(Value::Int(0)))), Ok(None));
        for code in ["ERR", "WRONGTYPE", "NOPERM"] {
            assert_eq!(released(Ok(Err(refused(code)))), Ok(None), "{code}");
        }
        for other in [Value::Okay, Value::Nil, Value::Int(2), Value::BulkString("1".into())] {
            let response = released(Ok(Ok(other)));
            let is_nonsense = matches!(&response, Err(Err(error)) if is_nonsense(error));
            assert!(is_nonsense, "{response:?}");
        }
        let lost = std::io::Error::from(std::io::ErrorKind::TimedOut).into();
        for lost in [lost, failure::unsent("closed"), refused("READONLY")] {
            assert!(matches!(released(Ok(Err(lost))), Err(Ok(Err(_)))));
        }
    }
}
