//! A failover as a line of text, and many of them as a table.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

use crate::count::{Cost, NAMES};

/// One failover.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) kind: String,
    pub(crate) replicas: u32,
    pub(crate) careful: bool,
    /// From the fault until another server was the primary.
    pub(crate) promoted_ms: u64,
    pub(crate) cost: Cost,
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, replicas, careful, promoted_ms, cost } = self;
        write!(f, "kind={kind} replicas={replicas} careful={careful} promoted_ms={promoted_ms}")?;
        NAMES.iter().try_for_each(|name| write!(f, " {name}={}", cost.values[name]))
    }
}

impl Line {
    pub(crate) fn parse(text: &str) -> Self {
        let words: BTreeMap<&str, &str> =
            text.split(' ').filter_map(|word| word.split_once('=')).collect();
        let number = |name: &str| words[name].parse::<u64>().expect("a number");
        Self {
            kind: words["kind"].to_owned(),
            replicas: number("replicas") as u32,
            careful: words["careful"] == "true",
            promoted_ms: number("promoted_ms"),
            cost: Cost { values: NAMES.iter().map(|name| (*name, number(name))).collect() },
        }
    }
}

/// A row for each kind of failover and way to run.
pub(crate) fn table(lines: impl Iterator<Item = Line>) -> String {
    let mut groups: BTreeMap<(u32, bool, String), Vec<Line>> = BTreeMap::new();
    for line in lines {
        groups.entry((line.replicas, line.careful, line.kind.clone())).or_default().push(line);
    }
    let mut table = String::from(
        "| replicas required | min-replicas-to-write | kind | failovers | grants | with double \
         leases | double leases | longest, ms | updates lost | the same, fenced | writes stopped | \
         fallen tokens | places lost | overtaken | refused | silent p50, ms | longest |\n\
         |---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n",
    );
    for ((replicas, careful, kind), lines) in groups {
        let of = |name: &'static str| lines.iter().map(move |line| line.cost.values[name]);
        let sum = |name: &'static str| of(name).sum::<u64>();
        let most = |name: &'static str| of(name).max().unwrap_or(0);
        let mut silent: Vec<u64> = of("silent_ms").collect();
        silent.sort_unstable();
        let _ = writeln!(
            table,
            "| {replicas} | {} | {kind} | {} | {} | {} | {} | {:.1} | {} | {} | {} | {} | {} | {} | \
             {} | {} | {} |",
            if careful { "1" } else { "0" },
            lines.len(),
            sum("grants"),
            of("overlaps").filter(|overlaps| *overlaps > 0).count(),
            sum("overlaps"),
            most("overlap_us") as f64 / 1_000.0,
            sum("lost"),
            sum("lost_fenced"),
            sum("stopped"),
            sum("fallen"),
            sum("places_lost"),
            sum("disorder"),
            sum("refused"),
            silent[silent.len() / 2],
            most("silent_ms"),
        );
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_as_it_was_written() {
        let values = NAMES.into_iter().zip(1..).collect();
        let line = Line {
            kind: "kill".to_owned(),
            replicas: 1,
            careful: true,
            promoted_ms: 1_800,
            cost: Cost { values },
        };
        assert_eq!(Line::parse(&line.to_string()), line);
        let table = table([line.clone(), line].into_iter());
        assert!(table.contains("| 1 | 1 | kill | 2 | 2 | 2 | 4 |"), "{table}");
    }
}
