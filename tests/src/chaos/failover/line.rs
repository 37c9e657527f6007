//! The text form of a failover record, and the table of many records.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

use super::count::{Cost, FIGURES};
use super::{Failover, REPLICAS};

impl fmt::Display for Failover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, replicas, careful, promoted_ms, cost } = self;
        write!(f, "kind={kind} replicas={replicas} careful={careful} promoted_ms={promoted_ms}")?;
        FIGURES.iter().try_for_each(|name| write!(f, " {name}={}", cost.values[name]))
    }
}

impl Failover {
    /// Parses a printed failover.
    ///
    /// # Panics
    ///
    /// If the text is incomplete.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let words: BTreeMap<&str, &str> =
            text.split(' ').filter_map(|word| word.split_once('=')).collect();
        let number = |name: &str| words[name].parse::<u64>().expect("a number");
        Self {
            kind: words["kind"].to_owned(),
            replicas: number("replicas") as u32,
            careful: words["careful"] == "true",
            promoted_ms: number("promoted_ms"),
            cost: Cost { values: FIGURES.iter().map(|name| (*name, number(name))).collect() },
        }
    }

    /// Returns the violations of the failover. Where a grant waits for all replicas, the promoted
    /// replica has it, whichever it is. Otherwise leases may overlap, and tokens must stop the old
    /// holder.
    ///
    /// A refused read alone is no violation: on a new primary, two concurrent reads may have two
    /// tokens, and the register sees them in any order. A read with a lower token than an earlier
    /// write or read has a decreasing token.
    #[must_use]
    pub fn violations(&self) -> Vec<String> {
        let value = |name: &str| self.cost.values[name];
        let mut never = vec![("lost_fenced", "updates were lost although tokens were compared")];
        if self.replicas >= REPLICAS {
            never.push(("overlaps", "guards of one lock were valid at the same time"));
            never.push(("lost", "updates were lost"));
            never.push(("fallen", "tokens fell"));
        }
        let counted = never.into_iter().filter(|(name, _)| value(name) > 0);
        let mut violations: Vec<_> =
            counted.map(|(name, what)| format!("{what}: {}", value(name))).collect();
        if value("still_names") > 0 {
            violations.push(format!(
                "nothing was granted after the fault: {} names",
                value("still_names")
            ));
        }
        violations
    }
}

/// Returns a table with a row for each kind of failover and configuration.
pub fn failover_table(lines: impl Iterator<Item = Failover>) -> String {
    let mut groups: BTreeMap<(u32, bool, String), Vec<Failover>> = BTreeMap::new();
    for line in lines {
        groups.entry((line.replicas, line.careful, line.kind.clone())).or_default().push(line);
    }
    let mut table = String::from(
        "| replicas required | min-replicas-to-write | kind | failovers | grants | with double \
         leases | double leases | longest, ms | updates lost | the same, fenced | writes stopped | \
         reads stopped | fallen tokens | positions lost | overtaken | refused | timed out | silent \
         p50, ms | longest | one name p50, ms | longest | regained \
         p50, ms | longest |\n\
         |---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\
         ---|\n",
    );
    for ((replicas, careful, kind), lines) in groups {
        let of = |name: &'static str| lines.iter().map(move |line| line.cost.values[name]);
        let sum = |name: &'static str| of(name).sum::<u64>();
        let most = |name: &'static str| of(name).max().unwrap_or(0);
        let median = |name: &'static str| {
            let mut values: Vec<u64> = of(name).collect();
            values.sort_unstable();
            values[values.len() / 2]
        };
        let _ = writeln!(
            table,
            "| {replicas} | {} | {kind} | {} | {} | {} | {} | {:.1} | {} | {} | {} | {} | {} | {} | \
             {} | {} | {} | {} | {} | {} | {} | {} | {} |",
            if careful { "1" } else { "0" },
            lines.len(),
            sum("grants"),
            of("overlaps").filter(|overlaps| *overlaps > 0).count(),
            sum("overlaps"),
            most("overlap_us") as f64 / 1_000.0,
            sum("lost"),
            sum("lost_fenced"),
            sum("stopped"),
            sum("reads_stopped"),
            sum("fallen"),
            sum("positions_lost"),
            sum("disorder"),
            sum("refused"),
            sum("timed_out"),
            median("silent_ms"),
            most("silent_ms"),
            median("silent_name_ms"),
            most("silent_name_ms"),
            median("regained_ms"),
            most("regained_ms"),
        );
    }
    table
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn a_line_is_read_as_it_was_written() {
        let values = FIGURES.into_iter().zip(1..).collect();
        let line = Failover {
            kind: "failover-kill".to_owned(),
            replicas: 1,
            careful: true,
            promoted_ms: 1_800,
            cost: Cost { values },
        };
        assert_eq!(Failover::parse(&line.to_string()), line);
        let table = failover_table([line.clone(), line].into_iter());
        assert!(table.contains("| 1 | 1 | failover-kill | 2 | 2 | 2 | 4 |"), "{table}");
    }

    #[test]
    fn what_must_not_be_depends_on_how_many_replicas_know_of_a_grant() {
        let with = |replicas: u32, found: &'static str| {
            let values = FIGURES.into_iter().map(|name| (name, 0));
            let mut values: HashMap<_, _> = values.collect();
            *values.get_mut(found).expect("it is counted") += 1;
            let kind = "failover-kill".to_owned();
            let cost = Cost { values };
            let line = Failover { kind, replicas, careful: false, promoted_ms: 0, cost };
            line.violations().len()
        };
        for name in ["overlaps", "lost", "fallen"] {
            assert_eq!((with(0, name), with(1, name), with(REPLICAS, name)), (0, 0, 1), "{name}");
        }
        assert_eq!((with(0, "lost_fenced"), with(REPLICAS, "lost_fenced")), (1, 1));
        for name in [
            "grants",
            "overlap_us",
            "stopped",
            "reads_stopped",
            "silent_name_ms",
            "regained_ms",
            "positions_lost",
            "refused",
        ] {
            assert_eq!(with(REPLICAS, name), 0, "{name}");
        }
    }

    #[test]
    fn locks_that_stay_still_after_a_failover_are_seen() {
        let values = FIGURES.map(|name| (name, u64::from(name == "still_names"))).into();
        let kind = "failover-kill".to_owned();
        let cost = Cost { values };
        let line = Failover { kind, replicas: 0, careful: false, promoted_ms: 0, cost };
        assert_eq!(line.violations().len(), 1);
    }
}
