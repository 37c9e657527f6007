//! Long random walks with a fixed seed, with the laws that must hold after every step.

use std::collections::BTreeSet;

use super::*;
use crate::GRACE_MS;

struct Random(u64);

impl Random {
    /// Draws a number below `end`, by the generator xorshift64.
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    fn pick<'a>(&mut self, members: &'a [Party]) -> Option<&'a Party> {
        let at = self.below(members.len().max(1) as u64);
        members.get(at as usize)
    }
}

/// The history of a walk, against which the next step is checked.
struct Walk {
    lock: Bench,
    random: Random,
    /// The members of lockcore created so far; the index is the member's number.
    made: Vec<Party>,
    buried: BTreeSet<Party>,
    highest_token: u64,
    handed_over: usize,
}

const NODES: [char; 4] = ['a', 'b', 'c', 'd'];
const LEASES: [u64; 3] = [1_000, 6_000, 30_000];

impl Walk {
    fn new(seed: u64) -> Self {
        let random = Random(seed);
        let made = Vec::new();
        let buried = BTreeSet::new();
        Self { lock: Bench::new(), random, made, buried, highest_token: 0, handed_over: 0 }
    }

    fn new_member(&mut self) -> Party {
        let letter = NODES[self.random.below(4) as usize];
        let lease_ms = LEASES[self.random.below(3) as usize];
        let member = member_with_lease(letter, self.made.len() as u64, lease_ms);
        self.made.push(member.clone());
        member
    }

    /// Draws a member of lockcore: usually a member that waits or holds, sometimes any member ever
    /// created.
    fn somebody(&mut self) -> Party {
        let mut there = self.lock.waiting();
        there.extend(self.lock.holder().cloned());
        let among = if self.random.one_in(4) { &self.made } else { &there };
        match self.random.pick(among).filter(|member| member.ours().is_some()) {
            Some(member) => member.clone(),
            None => self.new_member(),
        }
    }

    fn command(&mut self) -> Command {
        let queue_limit = 2 + self.random.below(6) as u32;
        let mode = if self.random.one_in(4) { Mode::Try } else { Mode::Wait };
        match self.random.below(14) {
            0..=3 => {
                Command::Acquire { members: vec![ours(&self.new_member())], mode, queue_limit }
            }
            4 => Command::Acquire { members: vec![ours(&self.somebody())], mode, queue_limit },
            5..=7 => {
                let holder = self.lock.holder().filter(|member| member.ours().is_some()).cloned();
                Command::Release { member: ours(&holder.unwrap_or_else(|| self.somebody())) }
            }
            8 => Command::Renew { members: vec![ours(&self.somebody())] },
            9 | 10 => {
                let first = self.somebody();
                let is_near =
                    |member: &Party| member.ours().is_some() && letter(member) == letter(&first);
                let mut members = self.lock.waiting();
                members.retain(is_near);
                members.push(first);
                Command::Touch { members: members.iter().map(ours).collect() }
            }
            11 | 12 => {
                let leaving = Leaving::new(ours(&self.somebody()), self.random.one_in(2));
                Command::Leave { leaving: vec![leaving] }
            }
            _ => Command::ForceRelease { member: None },
        }
    }

    fn step(&mut self) {
        if self.random.one_in(3) {
            let ms = self.random.below(4_000);
            self.lock.pass(ms);
        }
        if self.random.one_in(20) {
            self.lock.away = NODES.iter().filter(|_| self.random.one_in(4)).collect();
        }
        if self.random.one_in(60) {
            let deadline_ms = self.lock.now() + self.random.below(20_000);
            self.lock.queue_foreign(&jvm(self.random.0), deadline_ms);
        }
        let command = self.command();
        let by = match &command {
            Command::Release { member } => letter(&member.into()),
            Command::Acquire { members, .. }
            | Command::Renew { members, .. }
            | Command::Touch { members } => letter(&(&members[0]).into()),
            Command::Leave { leaving } => letter(&(&leaving[0].member).into()),
            Command::Confirm { .. }
            | Command::Reduce { .. }
            | Command::ForceRelease { .. }
            | Command::Inspect { .. } => NODES[self.random.below(4) as usize],
        };
        self.lock.state.expire(self.lock.now());
        let before = self.lock.state.clone();
        self.lock.run(by, command.clone());
        self.check(&before, by, &command);
    }

    fn check(&mut self, before: &LockState, by: char, command: &Command) {
        let after = self.lock.state.clone();
        let listed: BTreeSet<&Party> = after.queue.iter().collect();
        let scored: BTreeSet<&Party> = after.deadlines.iter().map(|(_, member)| member).collect();
        assert_eq!(listed, scored, "list and sorted set hold the same members");
        assert_eq!(listed.len(), after.queue.len(), "none stands in the queue twice");
        if let Some(hold) = &after.hold {
            assert!(!listed.contains(&hold.member), "the holder does not wait");
        }
        // A member with an expired deadline goes to the end when it retries.
        let again = match command {
            Command::Acquire { members, .. } => Some(Party::from(&members[0])),
            _ => None,
        };
        let again =
            again.filter(|member| before.life(member).is_some_and(|ms| ms <= self.lock.now()));
        let is_subsequence = {
            let mut old = before.queue.iter();
            let is_old = |member: &&Party| before.queue.contains(*member);
            let stayed = after.queue.iter().filter(|member| Some(*member) != again.as_ref());
            stayed.filter(is_old).all(|member| old.any(|other| other == member))
        };
        assert!(is_subsequence, "none that waits overtakes another");
        self.check_grant(before, &after, by, command);
        let said = self.lock.said();
        let granted = said.iter().filter(|said| matches!(said, Message::Grant { .. })).count();
        assert!(granted <= 1, "at most one is told that it holds");
        self.bury(command);
    }

    fn check_grant(&mut self, before: &LockState, after: &LockState, by: char, command: &Command) {
        let holder = |state: &LockState| state.hold.as_ref().map(|hold| hold.member.clone());
        if after.token != before.token && !matches!(command, Command::Renew { .. }) {
            assert!(self.lock.token() > self.highest_token, "tokens rise");
            self.highest_token = self.lock.token();
        }
        let Some(new) = holder(after).filter(|_| holder(before) != holder(after)) else {
            return;
        };
        assert_eq!(self.lock.token(), self.highest_token, "a grant has a token of its own");
        assert!(!self.is_buried(before, &new), "the given up are never granted");
        if let Some(old) = holder(before) {
            let is_dropped = match command {
                Command::Release { member } => old == *member,
                Command::Leave { leaving } => old == leaving[0].member,
                Command::ForceRelease { .. } => true,
                _ => false,
            };
            assert!(is_dropped, "one holder at a time: {old} was robbed by {command:?}");
        }
        self.handed_over += usize::from(before.queue.contains(&new));
        // Every member ahead had expired, was disconnected, was foreign and expired or silent, or
        // left with this command.
        for ahead in before.queue.iter().take_while(|member| **member != new) {
            let is_late = before.life(ahead).is_none_or(|ms| ms <= self.lock.now());
            let is_silent = before.suspects.since_ms.iter().any(|((suspect, _), since_ms)| {
                suspect == ahead && since_ms + GRACE_MS <= self.lock.now()
            });
            let is_away = ahead.ours().is_some()
                && self.lock.away.contains(letter(ahead))
                && letter(ahead) != by;
            let has_left = matches!(command, Command::Leave { leaving }
                if *ahead == leaving[0].member);
            let is_touched = matches!(command, Command::Touch { members }
                if members.iter().any(|member| *ahead == *member));
            let could_wait = !is_late || is_touched;
            assert!(
                !could_wait || is_away || is_silent || has_left,
                "{new} was granted past {ahead}"
            );
        }
    }

    fn bury(&mut self, command: &Command) {
        let Command::Leave { leaving } = command else {
            return;
        };
        let buried = leaving.iter().filter(|leaving| leaving.ambiguous);
        self.buried.extend(buried.map(|leaving| Party::from(&leaving.member)));
    }

    /// Returns true if the member was given up, and its tombstone has not expired.
    fn is_buried(&self, before: &LockState, member: &Party) -> bool {
        self.buried.contains(member) && before.tombstones.contains_key(&ours(member))
    }
}

#[test]
fn whatever_happens_the_lock_is_safe_and_fair() {
    let mut handed_over = 0;
    for seed in 1..=60 {
        let mut walk = Walk::new(seed << 40 | 0x9E37_79B9);
        for _ in 0..600 {
            walk.step();
        }
        handed_over += walk.handed_over;
    }
    assert!(handed_over > 1_000, "the walk gets around: {handed_over} hand-overs");
}
