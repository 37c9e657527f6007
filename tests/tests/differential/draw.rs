//! The commands of a sequence, drawn at random, mostly of members that are there.

use std::num::NonZeroU32;

use proto::{ALL, Command, Demand, Label, Leaving, Member, Mode, NodeId};

use crate::layout::{Kind, Layout};
use crate::random::Random;

/// Short ones end within a sequence, some have another claim, and the longest moves the expiry of
/// the keys.
const LEASES_MS: [u64; 7] = [100, 150, 300, 2_500, 7_000, 30_000, 120_000];

/// A draw for one node on one lock.
pub(crate) struct Draw<'a, L: Layout> {
    pub(crate) random: &'a mut Random,
    pub(crate) kind: Kind,
    pub(crate) node: &'a NodeId,
    pub(crate) state: &'a L::State,
    /// All members so far, oldest first.
    pub(crate) members: &'a mut Vec<Member>,
}

impl<L: Layout> Draw<'_, L> {
    pub(crate) fn command(&mut self) -> Command {
        match self.random.below(100) {
            0..37 => {
                let count = *self.random.one_of(&[1, 1, 1, 2, 4]);
                let mut members = Vec::new();
                for _ in 0..count {
                    let fresh = self.random.chance(78);
                    members.push(if fresh { self.fresh() } else { self.known() });
                }
                // One of which only the newest waits is never asked for together with others.
                if let Some(newest) = members.iter().find(|member| member.keeps_newest()) {
                    members = vec![newest.clone()];
                }
                let mode = if self.random.chance(22) { Mode::Try } else { Mode::Wait };
                let queue_limit = *self.random.one_of(&[1, 3, 6, 1_000, 1_000, 1_000]);
                Command::Acquire { members, mode, queue_limit }
            }
            37..57 => Command::Release { member: self.likely_holder() },
            57..63 => {
                let count = if L::PEERS { 1 } else { 1 + self.random.below(3) };
                Command::Renew { members: (0..count).map(|_| self.likely_holder()).collect() }
            }
            63..66 => Command::Confirm { member: self.likely_holder() },
            66..71 if !L::PEERS => {
                let weight = *self.random.one_of(&[1, 1, 2, ALL]);
                let weight = NonZeroU32::new(weight).expect("not 0");
                let member = self.likely_holder();
                // Most of these are in the batch, if there is one.
                let mine = self.members.iter().filter(|one| one.is_of(self.node));
                let numbers: Vec<u64> = mine.map(Member::number).collect();
                let near = numbers.iter().copied().filter(|number| *number >= member.number());
                let back: Vec<u64> = near.skip(1).take(4).collect();
                let served = match self.random.chance(80) {
                    true => member.number(),
                    false => numbers.last().copied().unwrap_or_default(),
                };
                Command::Reduce { member, served, weight, back }
            }
            66..82 => {
                let count = 1 + self.random.below(4);
                Command::Touch { members: (0..count).map(|_| self.known()).collect() }
            }
            82..92 => {
                let count = 1 + self.random.below(3);
                let mut leaving = Vec::new();
                for _ in 0..count {
                    let (member, ambiguous) = (self.known(), self.random.chance(20));
                    let served = !L::PEERS && self.random.chance(20);
                    leaving.push(Leaving { member, ambiguous, served });
                }
                Command::Leave { leaving }
            }
            92..96 => {
                let one = !L::PEERS && self.random.chance(70);
                Command::ForceRelease { member: one.then(|| self.likely_holder()) }
            }
            _ => Command::Inspect {
                from: self.random.below(3) as u32,
                most: NonZeroU32::MIN.saturating_add(self.random.below(4) as u32),
            },
        }
    }

    pub(crate) fn fresh(&mut self) -> Member {
        let lease_ms = *self.random.one_of(&LEASES_MS);
        let (attempt, label) = (self.members.len() as u64 + 1, Label::new("a label"));
        // Attempts in their first rounds and in later ones, and later ones with lower numbers.
        let number = match attempt % 8 {
            _ if L::PEERS => attempt,
            0 => attempt,
            3 => attempt << 12 | 1,
            _ => attempt << 12,
        };
        let member = match L::PEERS {
            true => Member::plain(self.node, number, lease_ms, &label),
            false => {
                let demand = L::demand(self.kind, self.random);
                let is_lock = demand == Demand::EXCLUSIVE;
                // Neighbours of one node form batches if they have the same limit and lease.
                match is_lock && self.random.chance(70) {
                    _ if is_lock && self.random.chance(25) => {
                        Member::keeping_newest(self.node, number, lease_ms, &label)
                    }
                    true => Member::in_batch(self.node, number, LEASES_MS[5], 3, &label),
                    false => Member::new(self.node, number, lease_ms, demand, &label),
                }
            }
        };
        self.members.push(member.clone());
        member
    }

    /// One of the node's members: rather one that is there, else one of the latest.
    pub(crate) fn known(&mut self) -> Member {
        let mut there = L::holders(self.state);
        there.extend(L::waiters(self.state));
        if let Some(member) = self.one_of_node(&there, 65) {
            return member;
        }
        let latest = self.members.iter().rev().filter(|member| member.is_of(self.node));
        let latest: Vec<_> = latest.take(6).cloned().collect();
        self.one_of_node(&latest, 96).unwrap_or_else(|| self.fresh())
    }

    /// The member whose hold is to be given back or renewed: mostly one that there is.
    fn likely_holder(&mut self) -> Member {
        let holders = L::holders(self.state);
        self.one_of_node(&holders, 80).unwrap_or_else(|| self.known())
    }

    fn one_of_node(&mut self, members: &[Member], percent: usize) -> Option<Member> {
        let mine: Vec<_> = members.iter().filter(|member| member.is_of(self.node)).collect();
        let is_drawn = !mine.is_empty() && self.random.chance(percent);
        is_drawn.then(|| (*self.random.one_of(&mine)).clone())
    }
}
