//! Reduces a run that breaks a law to a small run that breaks the same law.

use std::time::{Duration, Instant};

use crate::fault::Faults;
use crate::plan::{Plan, Size};

/// How many other seeds are tried with fewer nodes, callers or locks, because the random numbers
/// then have other effects.
const SEEDS: u64 = 12;

/// Removes nodes, callers, locks, faults, operations and events, as long as there is time. `breaks`
/// returns the size at which a plan breaks the law.
pub fn reduce(plan: Plan, patience: Duration, breaks: impl Fn(Plan) -> Option<Size>) -> Plan {
    let until = Instant::now() + patience;
    let Some(size) = breaks(plan) else { return plan };
    let mut search = Search { best: plan, size, until, breaks };
    loop {
        let before = search.best;
        search.fewer_of_everything();
        search.fewer_faults();
        search.shorter();
        if search.best == before || Instant::now() > until {
            return search.best;
        }
    }
}

struct Search<B> {
    best: Plan,
    size: Size,
    until: Instant,
    breaks: B,
}

impl<B: Fn(Plan) -> Option<Size>> Search<B> {
    /// Whether this plan also breaks the law. If so, it becomes the best plan.
    fn is_enough(&mut self, plan: Plan) -> bool {
        if plan == self.best || Instant::now() > self.until {
            return false;
        }
        let Some(size) = (self.breaks)(plan) else { return false };
        (self.best, self.size) = (plan, size);
        true
    }

    fn fewer_of_everything(&mut self) {
        for field in [|plan| &mut plan.nodes, |plan| &mut plan.callers, |plan| &mut plan.locks]
            as [fn(&mut Plan) -> &mut u64; 3]
        {
            self.lower(field, 1, true);
        }
    }

    fn fewer_faults(&mut self) {
        for fault in self.best.faults.all().collect::<Vec<_>>() {
            let faults = Faults::without(self.best.faults, fault);
            self.is_enough(Plan { faults, ..self.best });
        }
        self.is_enough(Plan { last: self.size.faults, ..self.best });
        self.lower(|plan| &mut plan.last, 0, false);
        // The range shrinks from the front: the later the first fault, the fewer faults.
        let mut step = self.best.last.saturating_sub(self.best.first) / 2;
        while step > 0 {
            if !self.is_enough(Plan { first: self.best.first + step, ..self.best }) {
                step /= 2;
            }
        }
    }

    fn shorter(&mut self) {
        self.is_enough(Plan { operations: self.size.operations, ..self.best });
        self.lower(|plan| &mut plan.operations, 1, false);
        let events = self.size.events.min(self.best.events);
        self.is_enough(Plan { events, ..self.best });
        self.lower(|plan| &mut plan.events, 1, false);
    }

    /// Lowers a number as far as possible, in large steps first.
    fn lower(&mut self, field: fn(&mut Plan) -> &mut u64, least: u64, with_other_seeds: bool) {
        let mut step = (*field(&mut self.best) - least).div_ceil(2);
        while step > 0 && Instant::now() < self.until {
            let mut plan = self.best;
            let value = field(&mut plan);
            step = step.min(*value - least);
            *value -= step;
            let seeds = if with_other_seeds { SEEDS } else { 1 };
            let found =
                (0..seeds).any(|other| self.is_enough(Plan { seed: plan.seed + other, ..plan }));
            if !found {
                step /= 2;
            }
        }
    }
}
