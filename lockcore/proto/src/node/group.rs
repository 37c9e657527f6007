//! Joins requests that are sent together: renewals or touches for several locks in a script call,
//! and acquires for the same lock in a command.
//!
//! # Implementation notes
//!
//! - A due renewal takes along all renewals due within a hundredth of their lease. A due touch
//!   takes along all touches due within a fortieth of their period. So no request is sent later
//!   than it would be alone.
//! - Renewals sent together do not stay together: the next renewal is due earlier by a random time
//!   for each hold, up to a thirtieth of the lease.
//! - A script call renews exclusive holds of many locks, or shared holds of a single lock: at most
//!   128 holds.
//! - At most 64 locks with 256 members are touched at once.
//! - Acquires for a lock that are due in the same tick form a command of at most 64 members, in the
//!   order of the attempts. An acquire with other options begins a new command. Up to four reads or
//!   permits are acquired separately.
//! - If a lock's key belongs to another program, only this lock gets that error.

use std::collections::BTreeMap;

use smallvec::{SmallVec, smallvec};

use crate::demand::Demand;
use crate::error::{LockErrorKind, StoreError};
use crate::member::Member;
use crate::name::LockName;
use crate::node::effect::StoreRequest;
use crate::{Command, MAX_ACQUIRES, MAX_LINES, MAX_MEMBERS, MAX_RENEWALS};

/// Requests that are run by a single script call. Each gets a separate response. Mostly a group
/// contains a single request.
pub type RequestGroup = SmallVec<[StoreRequest; 1]>;

/// Returns the commands in a group, each with its lock.
pub fn commands(group: &[StoreRequest]) -> SmallVec<[(&LockName, &Command); 1]> {
    group.iter().map(|request| (&request.lock, &request.command)).collect()
}

/// Joins requests into groups that one script call can run, and keeps their order. Renewals and
/// touches are joined if `together` returns true for the command, and if the locks have the same
/// `slot`, because a Redis Cluster script reaches a single slot. Acquires are joined if they are
/// for the same lock.
pub fn grouped(
    requests: Vec<StoreRequest>,
    together: impl Fn(&Command) -> bool,
    slot: impl Fn(&LockName) -> u16,
) -> Vec<RequestGroup> {
    let mut groups: Vec<RequestGroup> = Vec::new();
    let mut open_renewals: BTreeMap<u16, Open> = BTreeMap::new();
    let mut open_touches: BTreeMap<u16, Open> = BTreeMap::new();
    // These are kept by lock, because their scripts take a single lock.
    let (mut parts, mut acquires) = (BTreeMap::new(), BTreeMap::new());
    for request in requests {
        let (open, max, members) = match &request.command {
            Command::Renew { members } if !are_alone(members) => {
                add_to_last(&mut groups, &mut parts, request);
                continue;
            }
            Command::Acquire { .. } => {
                add_to_last(&mut groups, &mut acquires, request);
                continue;
            }
            Command::Renew { members } if together(&request.command) => {
                (&mut open_renewals, MAX_RENEWALS, members.len())
            }
            Command::Touch { members } if together(&request.command) => {
                (&mut open_touches, MAX_LINES, members.len())
            }
            _ => {
                groups.push(smallvec![request]);
                continue;
            }
        };
        let open = open.entry(slot(&request.lock)).or_default();
        let is_full = open.requests == max || open.members + members > MAX_MEMBERS;
        if open.requests == 0 || is_full {
            *open = Open { at: groups.len(), requests: 0, members: 0 };
            groups.push(RequestGroup::new());
        }
        open.requests += 1;
        open.members += members;
        groups[open.at].push(request);
    }
    groups.into_iter().flat_map(few_parts_apart).collect()
}

/// Splits an acquire for up to four reads or permits into an acquire for each member. The script
/// for a single member is so cheap that up to four calls cost less than one call for all.
fn few_parts_apart(group: RequestGroup) -> Vec<RequestGroup> {
    const FEW: usize = 4;
    let [StoreRequest { command: Command::Acquire { members, mode, queue_limit }, lock, .. }] =
        &group[..]
    else {
        return vec![group];
    };
    if members.len() > FEW || are_alone(members) {
        return vec![group];
    }
    let StoreRequest { sent, background, lane, way, .. } = group[0];
    let apart = |member: &Member| {
        let members = vec![member.clone()];
        let (mode, queue_limit) = (*mode, *queue_limit);
        let command = Command::Acquire { members, mode, queue_limit };
        smallvec![StoreRequest { lock: lock.clone(), command, sent, background, lane, way }]
    };
    members.iter().map(apart).collect()
}

/// Adds the members of a request to the lock's last command of the same kind in `groups`. If they
/// do not fit, begins a new command. `last` contains the index of this command for each lock.
fn add_to_last(
    groups: &mut Vec<RequestGroup>,
    last: &mut BTreeMap<LockName, usize>,
    mut request: StoreRequest,
) {
    let open = last.get(&request.lock).map(|at| &mut groups[*at][0]);
    if !open.is_some_and(|open| joins(open, &mut request)) {
        last.insert(request.lock.clone(), groups.len());
        groups.push(smallvec![request]);
    }
}

/// Moves the members of `request` into `open`, if a single command can take all of them. Returns
/// true if it did.
fn joins(open: &mut StoreRequest, request: &mut StoreRequest) -> bool {
    let of = |request: &StoreRequest| (request.sent, request.background, request.lane, request.way);
    let is_same = of(open) == of(request);
    let (members, more, max) = match (&mut open.command, &mut request.command) {
        (Command::Renew { members }, Command::Renew { members: more }) => {
            (members, more, MAX_RENEWALS)
        }
        (
            Command::Acquire { members, mode, queue_limit },
            Command::Acquire { members: more, mode: other_mode, queue_limit: other_limit },
        ) if (*mode, *queue_limit) == (*other_mode, *other_limit)
            && !members.iter().chain(&*more).any(Member::keeps_newest) =>
        {
            (members, more, MAX_ACQUIRES)
        }
        _ => return false,
    };
    let joins = is_same && members.len() + more.len() <= max;
    if joins {
        members.append(more);
    }
    joins
}

fn are_alone(members: &[Member]) -> bool {
    members.iter().all(|member| member.demand() == Demand::EXCLUSIVE)
}

/// A group to which further requests can be added: its index, and the number of requests and
/// members in it.
#[derive(Default)]
struct Open {
    at: usize,
    requests: usize,
    members: usize,
}

/// Returns true if the error of a whole script call may be the fault of a single request in it.
/// Then the driver sends each request again separately.
pub fn is_of_one(error: &StoreError) -> bool {
    error.lacks_keys
        || matches!(
            error.kind,
            LockErrorKind::Denied | LockErrorKind::WrongType | LockErrorKind::Protocol
        )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Mode;
    use crate::member::{Label, NodeId};
    use crate::node::effect::Way;
    use crate::node::moment::Moment;

    fn request(lock: usize, command: Command) -> StoreRequest {
        let lock = LockName::from(&*format!("lock {lock}"));
        let sent = Moment::default();
        StoreRequest { lock, command, sent, background: true, lane: 0, way: Way::Script }
    }

    fn member(number: usize, demand: Demand) -> Member {
        let node = NodeId::from("AAAAAAAAAAAAAAAAAAAAAA");
        Member::new(&node, number as u64, 30_000, demand, &Label::new("x"))
    }

    fn renewal(lock: usize) -> StoreRequest {
        request(lock, Command::Renew { members: vec![member(lock, Demand::EXCLUSIVE)] })
    }

    fn touch(lock: usize, members: usize) -> StoreRequest {
        request(
            lock,
            Command::Touch { members: (0..members).map(|one| member(one, Demand::READ)).collect() },
        )
    }

    fn sizes(requests: Vec<StoreRequest>) -> Vec<usize> {
        grouped(requests, |_| true, |_| 0).iter().map(|group| group.len()).collect()
    }

    #[test]
    fn renewals_go_together_up_to_a_bound() {
        assert_eq!(sizes((0..300).map(renewal).collect()), [128, 128, 44]);
    }

    #[test]
    fn renewals_of_parts_of_one_lock_are_one_command_up_to_a_bound() {
        let part =
            |number| request(0, Command::Renew { members: vec![member(number, Demand::READ)] });
        let groups = grouped((0..300).map(part).collect(), |_| true, |_| 0);
        let members = groups.iter().map(|group| match group.as_slice() {
            [StoreRequest { command: Command::Renew { members }, .. }] => members.len(),
            _ => 0,
        });
        assert_eq!(members.collect::<Vec<_>>(), [128, 128, 44]);
    }

    fn acquire(lock: usize, number: usize, mode: Mode) -> StoreRequest {
        let members = vec![member(number, Demand::EXCLUSIVE)];
        request(lock, Command::Acquire { members, mode, queue_limit: 7 })
    }

    #[test]
    fn few_parts_of_one_lock_are_acquired_one_by_one_and_more_together() {
        let read = |number| {
            let members = vec![member(number, Demand::READ)];
            request(0, Command::Acquire { members, mode: Mode::Wait, queue_limit: 7 })
        };
        let numbers = |count| {
            acquires((0..count).map(read).collect()).into_iter().map(|(_, numbers)| numbers)
        };
        assert!(numbers(4).eq([[0], [1], [2], [3]].map(Vec::from)));
        assert!(numbers(5).eq([vec![0, 1, 2, 3, 4]]));
    }

    /// Returns the lock and the member ids of each acquire, after the requests were grouped.
    fn acquires(requests: Vec<StoreRequest>) -> Vec<(String, Vec<u64>)> {
        let of = |group: &RequestGroup| match group.as_slice() {
            [StoreRequest { lock, command: Command::Acquire { members, .. }, .. }] => {
                let numbers = members.iter().map(Member::number).collect();
                (lock.as_str().replace("lock ", ""), numbers)
            }
            other => panic!("{other:?}"),
        };
        grouped(requests, |_| true, |_| 0).iter().map(of).collect()
    }

    #[test]
    fn acquires_of_one_lock_are_one_command_in_their_order() {
        let requests = [(0, 3), (1, 4), (0, 2), (0, 9), (1, 1)];
        let requests = requests.map(|(lock, number)| acquire(lock, number, Mode::Wait));
        let expected = [("0".to_owned(), vec![3, 2, 9]), ("1".to_owned(), vec![4, 1])];
        assert_eq!(acquires(requests.into()), expected);
    }

    #[test]
    fn acquires_go_together_up_to_a_bound() {
        let requests = (0..150).map(|number| acquire(0, number, Mode::Wait)).collect();
        let sizes: Vec<_> = acquires(requests).iter().map(|(_, numbers)| numbers.len()).collect();
        assert_eq!(sizes, [64, 64, 22]);
    }

    #[test]
    fn an_acquire_with_other_options_begins_a_command_and_none_passes_it() {
        let modes = [Mode::Wait, Mode::Try, Mode::Try, Mode::Wait, Mode::Wait];
        let requests = modes.into_iter().enumerate();
        let requests = requests.map(|(number, mode)| acquire(0, number, mode)).collect();
        let numbers: Vec<_> = acquires(requests).into_iter().map(|(_, numbers)| numbers).collect();
        assert_eq!(numbers, [vec![0], vec![1, 2], vec![3, 4]]);
        let mut requests: Vec<StoreRequest> =
            (0..3).map(|number| acquire(0, number, Mode::Wait)).collect();
        requests[1].background = false;
        assert_eq!(acquires(requests).len(), 3, "each is counted as it was sent");
    }

    #[test]
    fn touches_go_together_up_to_a_bound_of_locks_and_one_of_members() {
        assert_eq!(sizes((0..100).map(|lock| touch(lock, 1)).collect()), [64, 36]);
        let lines = [100, 100, 100, 256, 1, 255, 1];
        let lines = lines.iter().enumerate().map(|(lock, members)| touch(lock, *members));
        assert_eq!(sizes(lines.collect()), [2, 1, 1, 2, 1]);
    }

    #[test]
    fn only_what_is_of_one_slot_goes_together() {
        let slot = |lock: &LockName| u16::from(lock.as_str() > "lock 2");
        let requests = [renewal(1), renewal(3), renewal(2), touch(4, 1), renewal(5), touch(0, 1)];
        let locks: Vec<Vec<String>> = grouped(requests.into(), |_| true, slot)
            .iter()
            .map(|group| {
                group.iter().map(|request| request.lock.as_str().replace("lock ", "")).collect()
            })
            .collect();
        assert_eq!(locks, [vec!["1", "2"], vec!["3", "5"], vec!["4"], vec!["0"]]);
    }

    #[test]
    fn what_is_of_another_kind_goes_alone_and_nothing_is_left_out() {
        let release =
            |lock| request(lock, Command::Release { member: member(lock, Demand::EXCLUSIVE) });
        let requests =
            vec![renewal(0), release(1), touch(2, 3), renewal(3), release(4), touch(5, 1)];
        let locks: Vec<Vec<String>> = grouped(requests, |_| true, |_| 0)
            .iter()
            .map(|group| {
                group.iter().map(|request| request.lock.as_str().replace("lock ", "")).collect()
            })
            .collect();
        assert_eq!(locks, [vec!["0", "3"], vec!["1"], vec!["2", "5"], vec!["4"]]);
    }
}
