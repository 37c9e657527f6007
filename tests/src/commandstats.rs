//! `CommandStats`: the server's counters of commands, from `INFO commandstats`.

use std::collections::BTreeMap;

use crate::Raw;

/// The number of calls of a command, and their total time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CommandStat {
    /// The number of calls.
    pub calls: u64,
    /// The total time of the calls, in microseconds.
    pub usec: u64,
}

/// Counters per command. The difference of two readings is the work between them.
///
/// Commands called by a script count as well, each for itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommandStats {
    commands: BTreeMap<String, CommandStat>,
}

impl CommandStats {
    /// Reads the counters. The reading is an `info` call, counted by the next reading.
    pub async fn read(redis: &mut Raw) -> Self {
        Self::parse(&redis.info("commandstats").await)
    }

    /// Returns the work since `earlier` was read from the same server.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut commands = self.commands.clone();
        for (name, stat) in &mut commands {
            let before = earlier.of(name);
            // After a restart or CONFIG RESETSTAT the counters are lower: then the difference is
            // unknown.
            stat.calls = stat.calls.saturating_sub(before.calls);
            stat.usec = stat.usec.saturating_sub(before.usec);
        }
        commands.retain(|_, stat| stat.calls > 0);
        Self { commands }
    }

    /// Returns the counters of a command in lower case, or of a subcommand as in `"client|kill"`.
    #[must_use]
    pub fn of(&self, command: &str) -> CommandStat {
        self.commands.get(command).copied().unwrap_or_default()
    }

    /// Returns the number of calls of a command.
    #[must_use]
    pub fn calls(&self, command: &str) -> u64 {
        self.of(command).calls
    }

    /// Returns the counters of every command that has run, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, CommandStat)> {
        self.commands.iter().map(|(name, stat)| (&**name, *stat))
    }

    /// Parses lines such as `cmdstat_client|kill:calls=2,usec=30,usec_per_call=15.00,..`.
    fn parse(info: &str) -> Self {
        let commands = info
            .lines()
            .filter_map(|line| line.strip_prefix("cmdstat_")?.split_once(':'))
            .map(|(name, fields)| {
                let field = |wanted: &str| {
                    fields
                        .split(',')
                        .find_map(|field| field.strip_prefix(wanted)?.strip_prefix('='))
                        .and_then(|value| value.parse().ok())
                        .unwrap_or_else(|| panic!("commandstats without {wanted}: {fields}"))
                };
                let stat = CommandStat { calls: field("calls"), usec: field("usec") };
                (name.to_owned(), stat)
            })
            .collect();
        Self { commands }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_has_only_what_ran_in_between() {
        let before = CommandStats::parse(
            "# Commandstats\r\ncmdstat_get:calls=2,usec=9,usec_per_call=4.50\r\n\
             cmdstat_client|kill:calls=1,usec=5,usec_per_call=5.00,rejected_calls=0\r\n",
        );
        let after = CommandStats::parse(
            "# Commandstats\r\ncmdstat_get:calls=2,usec=9,usec_per_call=4.50\r\n\
             cmdstat_client|kill:calls=4,usec=25,usec_per_call=6.25,rejected_calls=0\r\n\
             cmdstat_eval:calls=1,usec=7,usec_per_call=7.00\r\n",
        );
        let between: Vec<_> = after.since(&before).iter().map(|(n, s)| (n.to_owned(), s)).collect();
        let expected = [
            ("client|kill".to_owned(), CommandStat { calls: 3, usec: 20 }),
            ("eval".to_owned(), CommandStat { calls: 1, usec: 7 }),
        ];
        assert_eq!(between, expected);
    }
}
