//! Each law is broken by a wrong step, and kept by the correct step.

use proto::{ALL, Demand};

use crate::{Evidence, Held, Kind, Law, Waiting, judge, new_holds};

/// A command with all facts known.
#[derive(Clone)]
struct Step {
    kind: Kind,
    names: Vec<char>,
    before: Vec<Held<char>>,
    after: Vec<Held<char>>,
    arrivals: Vec<char>,
    away: Vec<char>,
    queue: Vec<(char, Demand)>,
    leaves_more: bool,
    written: Option<u64>,
    tokens: Vec<u64>,
    may_renew: bool,
    repeats: bool,
    batch: Vec<char>,
}

/// The greatest token before each step, shared by the parts.
const LAST: u64 = 7;

fn step(kind: Kind, names: &[char]) -> Step {
    Step {
        kind,
        names: names.to_vec(),
        before: Vec::new(),
        after: Vec::new(),
        arrivals: Vec::new(),
        away: Vec::new(),
        queue: Vec::new(),
        leaves_more: false,
        written: None,
        tokens: Vec::new(),
        may_renew: false,
        repeats: false,
        batch: Vec::new(),
    }
}

fn held(member: char, demand: Demand) -> Held<char> {
    let (weight, limit) = (demand.weight(), demand.limit());
    Held { member, weight, limit, ends_ms: Some(1_000), is_live: true }
}

fn lock(member: char) -> Held<char> {
    held(member, Demand::EXCLUSIVE)
}

fn read(member: char) -> Held<char> {
    held(member, Demand::READ)
}

fn permits(member: char, weight: u32, limit: u32) -> Held<char> {
    held(member, Demand::permits(weight, limit).expect("at most the limit"))
}

fn ended(held: Held<char>) -> Held<char> {
    Held { is_live: false, ..held }
}

impl Step {
    fn before(mut self, holds: &[Held<char>]) -> Self {
        self.before = holds.to_vec();
        self
    }

    fn after(mut self, holds: &[Held<char>]) -> Self {
        self.after = holds.to_vec();
        self
    }

    fn reports(mut self, tokens: &[u64]) -> Self {
        self.tokens = tokens.to_vec();
        self
    }

    fn batch(mut self, members: &[char]) -> Self {
        self.batch = members.to_vec();
        self
    }

    fn arrivals(mut self, members: &[char]) -> Self {
        self.arrivals = members.to_vec();
        self
    }

    fn away(mut self, members: &[char]) -> Self {
        self.away = members.to_vec();
        self
    }

    fn queue(mut self, queue: &[(char, Demand)]) -> Self {
        self.queue = queue.to_vec();
        self
    }

    fn written(mut self, weight: u64) -> Self {
        self.written = Some(weight);
        self
    }

    #[track_caller]
    fn breaks(&self, laws: &[Law]) {
        let broken = judge(self);
        let found: Vec<_> = broken.iter().map(|broken| broken.law).collect();
        assert_eq!(found, laws, "{broken:?}");
    }
}

impl Evidence for Step {
    type Member = char;

    fn kind(&self) -> Kind {
        self.kind
    }

    fn names(&self, member: char) -> bool {
        self.names.contains(&member)
    }

    fn is_of_several(&self) -> bool {
        self.kind == ACQUIRE && self.names.len() > 1
    }

    fn before(&self) -> &[Held<char>] {
        &self.before
    }

    fn after(&self) -> &[Held<char>] {
        &self.after
    }

    fn granted(&self) -> Vec<Held<char>> {
        new_holds(&self.before, &self.after, &[])
    }

    fn batch(&self) -> Vec<char> {
        self.batch.clone()
    }

    fn arrivals(&self) -> impl Iterator<Item = char> {
        self.arrivals.iter().copied()
    }

    fn could_be_granted(&self, member: char) -> bool {
        !self.away.contains(&member)
    }

    fn queue(&self) -> impl Iterator<Item = Waiting<char>> {
        self.queue.iter().map(|(member, demand)| Waiting {
            member: *member,
            demand: *demand,
            is_reached: !self.away.contains(member),
        })
    }

    fn leaves_more(&self) -> bool {
        self.leaves_more
    }

    fn written(&self) -> Option<u64> {
        self.written
    }

    fn reported_tokens(&self) -> Vec<u64> {
        self.tokens.clone()
    }

    fn last_token(&self) -> u64 {
        LAST
    }

    fn shared_token(&self) -> u64 {
        LAST
    }

    fn may_renew_shared_token(&self) -> bool {
        self.may_renew
    }

    fn repeats_token(&self) -> bool {
        self.repeats
    }
}

const ACQUIRE: Kind = Kind::Acquire { is_refused: false };
const RELEASE: Kind = Kind::Release { counts: true };

#[test]
fn a_grant_fits_beside_what_is_held() {
    let beside = |held: &[Held<char>], granted: Held<char>, token| {
        let after = [held, &[granted]].concat();
        step(ACQUIRE, &[granted.member]).before(held).after(&after).reports(&[token])
    };
    beside(&[], lock('a'), 8).breaks(&[]);
    beside(&[lock('a')], lock('b'), 8).breaks(&[Law::S1]);
    beside(&[read('a')], lock('b'), 8).breaks(&[Law::S1]);
    beside(&[read('a')], read('b'), 7).breaks(&[]);
    beside(&[permits('a', 2, 3)], permits('b', 1, 3), 7).breaks(&[]);
    beside(&[permits('a', 2, 3)], permits('b', 2, 3), 7).breaks(&[Law::S1]);
    // Only the member's own limit counts.
    beside(&[permits('a', 2, 3)], permits('b', 2, 4), 7).breaks(&[]);
    // An expired part makes room, even before it is removed.
    beside(&[ended(permits('a', 2, 3))], permits('b', 3, 3), 7).breaks(&[]);
}

#[test]
fn grants_of_one_command_fit_beside_each_other_in_their_order() {
    let hands = |after: &[Held<char>]| {
        let arrivals = ['b', 'c'];
        step(RELEASE, &['a']).before(&[lock('a')]).after(after).reports(&[8]).arrivals(&arrivals)
    };
    hands(&[read('b'), read('c')]).breaks(&[]);
    hands(&[permits('b', 1, 1), permits('c', 1, 2)]).breaks(&[]);
    hands(&[permits('b', 1, 2), permits('c', 1, 1)]).breaks(&[Law::S1]);
}

// The first member takes a part beside an expired part, and shares the token; then the expired part
// is removed to make room for the second.
#[test]
fn one_of_several_may_have_the_token_of_a_part_that_is_taken_out_after_its_grant() {
    let acquires = |names: &[char], before| {
        step(ACQUIRE, names).before(&[before]).after(&[read('b')]).reports(&[7])
    };
    acquires(&['b', 'c'], ended(read('a'))).breaks(&[]);
    acquires(&['b'], ended(read('a'))).breaks(&[Law::S3]);
    acquires(&['b', 'c'], ended(lock('a'))).breaks(&[Law::S3]);
    acquires(&['b', 'c'], ended(read('a'))).reports(&[6]).breaks(&[Law::S3]);
}

#[test]
fn a_hold_whose_weight_is_lowered_makes_room_in_the_same_step() {
    let lowered = Held { weight: 1, ..lock('a') };
    let both = [lowered, read('b')];
    let lowers = step(Kind::Lower, &['a']).before(&[lock('a')]).after(&both).arrivals(&['b']);
    lowers.clone().reports(&[8, 8]).breaks(&[]);
    // From now on the hold has a read's token.
    lowers.clone().reports(&[7]).breaks(&[Law::S3]);
    lowers.reports(&[]).breaks(&[Law::S3]);
}

#[test]
fn a_command_changes_only_holds_that_it_names_and_only_as_it_says() {
    let later = Held { ends_ms: Some(2_000), ..read('a') };
    let lighter = Held { weight: 1, ..permits('a', 2, 3) };
    let with = |kind, names: &[char], before, after: &[Held<char>]| {
        step(kind, names).before(&[before]).after(after)
    };
    with(RELEASE, &['a'], read('a'), &[]).breaks(&[]);
    with(Kind::End, &['a'], read('a'), &[]).breaks(&[]);
    with(Kind::End, &['b'], read('a'), &[]).breaks(&[Law::S4]);
    with(Kind::Other, &['a'], read('a'), &[]).breaks(&[Law::S4]);
    with(Kind::Other, &['b'], ended(read('a')), &[]).breaks(&[]);
    with(Kind::Extend, &['a'], read('a'), &[later]).breaks(&[]);
    with(Kind::Extend, &['b'], read('a'), &[later]).breaks(&[Law::S4]);
    with(ACQUIRE, &['a'], read('a'), &[later]).breaks(&[Law::S4]);
    with(Kind::Extend, &['a'], permits('a', 2, 3), &[lighter]).breaks(&[Law::S4]);
    with(Kind::Lower, &['a'], permits('a', 2, 3), &[lighter]).breaks(&[]);
    with(Kind::Lower, &['b'], permits('a', 2, 3), &[lighter]).breaks(&[Law::S4]);
    with(Kind::Lower, &['a'], lighter, &[permits('a', 2, 3)]).breaks(&[Law::S4]);
    with(Kind::Lower, &['a'], read('a'), &[later]).breaks(&[Law::S4]);
}

#[test]
fn a_renewal_grants_nothing() {
    let renewal = step(Kind::Extend, &['a']).before(&[read('a')]);
    renewal.after(&[read('a'), read('b')]).reports(&[7]).breaks(&[Law::S4]);
}

#[test]
fn a_release_counts_once() {
    let release = |counts, before: &[Held<char>]| {
        step(Kind::Release { counts }, &['a']).before(before).after(&[])
    };
    release(true, &[lock('a')]).breaks(&[]);
    release(true, &[ended(read('a'))]).breaks(&[]);
    release(false, &[]).breaks(&[]);
    release(true, &[]).breaks(&[Law::S6]);
    release(false, &[lock('a')]).breaks(&[Law::S6]);
}

#[test]
fn the_written_weight_is_the_sum_of_the_holds() {
    let holds = [permits('a', 2, 3), ended(permits('b', 1, 3))];
    let touch = step(Kind::Other, &[]).before(&holds).after(&holds);
    touch.clone().written(3).breaks(&[]);
    touch.clone().written(2).breaks(&[Law::S7]);
    touch.breaks(&[]);
}

#[test]
fn a_token_is_above_the_last_but_for_parts_that_are_held_together() {
    let joins = |before: &[Held<char>], granted: Held<char>, tokens: &[u64]| {
        let after = [before, &[granted]].concat();
        step(ACQUIRE, &[granted.member]).before(before).after(&after).reports(tokens)
    };
    joins(&[], lock('a'), &[8]).breaks(&[]);
    joins(&[], lock('a'), &[7]).breaks(&[Law::S3]);
    joins(&[], lock('a'), &[8, 9]).breaks(&[Law::S3]);
    joins(&[], lock('a'), &[]).breaks(&[Law::S3]);
    joins(&[read('a')], read('b'), &[7]).breaks(&[]);
    joins(&[read('a')], read('b'), &[8]).breaks(&[Law::S3]);
    // As long as a part is stored, the next part shares the token, even if the lease has expired.
    joins(&[ended(read('a'))], read('b'), &[8]).breaks(&[Law::S3]);
    let replaces = step(ACQUIRE, &['b']).before(&[ended(read('a'))]).after(&[read('b')]);
    replaces.clone().reports(&[8]).breaks(&[]);
    replaces.reports(&[7]).breaks(&[Law::S3]);
    // The member's own expired hold does not count as held.
    let again = step(ACQUIRE, &['a']).before(&[ended(read('a'))]).after(&[read('a')]);
    again.reports(&[8]).breaks(&[]);
    // A server that took over may lack the last token.
    let mut later = joins(&[read('a')], read('b'), &[8]);
    later.may_renew = true;
    later.breaks(&[]);
}

#[test]
fn a_lock_that_is_asked_for_again_has_a_later_token_but_beside_jvms() {
    let again = step(ACQUIRE, &['a']).before(&[lock('a')]).after(&[lock('a')]);
    again.clone().reports(&[8]).breaks(&[]);
    again.clone().reports(&[7]).breaks(&[Law::S3]);
    let mut beside_jvms = again;
    beside_jvms.repeats = true;
    beside_jvms.clone().reports(&[7]).breaks(&[]);
    beside_jvms.reports(&[8]).breaks(&[Law::S3]);
}

#[test]
fn no_member_is_granted_before_one_that_arrived_earlier_and_could_be() {
    let hands = |granted| {
        let before = [lock('a')];
        step(RELEASE, &['a']).before(&before).after(&[lock(granted)]).reports(&[8])
    };
    hands('b').arrivals(&['b', 'c']).breaks(&[]);
    hands('c').arrivals(&['b', 'c']).breaks(&[Law::F1]);
    hands('c').arrivals(&['b', 'c']).away(&['b']).breaks(&[]);
    // A member without a wait counts as the last arrival.
    hands('d').arrivals(&['b', 'c']).breaks(&[Law::F1]);
}

#[test]
fn nothing_that_fits_is_left_waiting_by_a_command_that_hands_on() {
    let one = Demand::permits(1, 3).expect("at most the limit");
    let two = Demand::permits(2, 3).expect("at most the limit");
    let held = [permits('a', 2, 3)];
    let leaves = |kind, names: &[char], queue: &[(char, Demand)]| {
        step(kind, names).before(&held).after(&held).queue(queue)
    };
    let waits = [('b', one)];
    leaves(Kind::Other, &[], &waits).breaks(&[Law::F5]);
    leaves(Kind::Other, &[], &[('b', two), ('c', one)]).breaks(&[]);
    // Behind an unreachable waiter, even if that waiter's limit leaves nothing free.
    leaves(Kind::Other, &[], &[('b', two), ('c', one)]).away(&['b']).breaks(&[Law::F5]);
    let full = Demand::permits(1, 2).expect("at most the limit");
    leaves(Kind::Other, &[], &[('b', full), ('c', one)]).away(&['b']).breaks(&[Law::F5]);
    // Commands that hand on free weight, and commands that do not.
    leaves(Kind::Extend, &['a'], &waits).breaks(&[]);
    leaves(ACQUIRE, &['a'], &waits).breaks(&[]);
    leaves(ACQUIRE, &['c'], &waits).breaks(&[Law::F5]);
    leaves(Kind::Acquire { is_refused: true }, &['c'], &waits).breaks(&[]);
    leaves(Kind::Lower, &['a'], &waits).breaks(&[Law::F5]);
    leaves(Kind::Lower, &['c'], &waits).breaks(&[]);
    // An expired part makes room.
    let lapsed = [ended(permits('a', 2, 3))];
    let touch = step(Kind::Other, &[]).before(&lapsed).after(&lapsed);
    touch.queue(&[('b', two)]).breaks(&[Law::F5]);
    let mut more = leaves(Kind::Other, &[], &waits);
    more.leaves_more = true;
    more.breaks(&[]);
}

#[test]
fn a_hold_of_everything_has_the_weight_of_all_permits() {
    assert!(lock('a').is_whole());
    assert!(!read('a').is_whole());
    assert_eq!(lock('a').weight, u64::from(ALL));
}

#[test]
fn f1_a_batch_is_the_head_of_the_queue_in_its_order() {
    let released = step(Kind::Release { counts: true }, &['h']);
    let released = released.before(&[lock('h')]).after(&[lock('a')]).reports(&[8]);
    let released = released.arrivals(&['a', 'b', 'c']);
    released.clone().batch(&['a', 'b']).breaks(&[]);
    released.clone().batch(&['a', 'b', 'c']).breaks(&[]);
    released.clone().batch(&['a', 'c']).breaks(&[Law::F1]);
    released.clone().batch(&['a', 'c', 'b']).breaks(&[Law::F1]);
    released.clone().away(&['b']).batch(&['a', 'c']).breaks(&[]);
    released.after(&[lock('b')]).batch(&['b', 'c']).breaks(&[Law::F1]);
}
