//! `Page`: the measured part of `docs/performance.md`, and its plots.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use crate::peer::{Ability, PEERS, Peer};
use crate::plot::{Bar, bars};
use crate::results::{Measured, Results};
use crate::workload::{Column, WORKLOADS, Workload};

const BEGIN: &str = "<!-- measured: written by scripts/bench -->\n";
const END: &str = "<!-- end of measured -->\n";

/// What is drawn: a workload, a value of it, and what it is called.
const PLOTS: &[(&str, &str, &str)] = &[
    ("pair", "pair_p50", "A free lock, acquire and release: p50, µs"),
    ("pairs-256", "turns_s", "256 tasks, a key each: pairs/s"),
    ("hand-off", "hand_p50", "Hand-off to another process: p50, µs"),
    ("hot-1x64", "turns_s", "Hot lock, 64 tasks: turns/s"),
    ("hot-4x16", "turns_s", "Hot lock, 4 × 16 tasks: turns/s"),
    ("hot-4x16", "longest_ms", "Hot lock, 4 × 16 tasks: longest wait, ms"),
    ("shared", "wait_p99", "64 workers, sections of 11 ms: wait p99, µs"),
    ("depth-10000", "hand_over_us", "Hand-over in a queue of 10 000: scripts, µs"),
    ("http-hot", "requests_s", "HTTP, 64 connections, one key: requests/s"),
];

pub(crate) struct Page<'a> {
    results: &'a Results,
}

impl<'a> Page<'a> {
    pub(crate) fn new(results: &'a Results) -> Self {
        Self { results }
    }

    /// Replaces what stands between the marks of the file; a file without them becomes the measured
    /// part alone.
    pub(crate) fn write(&self, path: &Path) -> Result<(), String> {
        let folder = path.with_extension("");
        fs::create_dir_all(&folder).map_err(|error| format!("{folder:?}: {error}"))?;
        for (name, svg) in self.plots() {
            crate::write(&folder.join(name), &svg)?;
        }
        let old = fs::read_to_string(path).unwrap_or_default();
        let folder = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let measured = self.measured(&folder);
        let text = match (old.split_once(BEGIN), old.split_once(END)) {
            (Some((before, _)), Some((_, after))) => {
                format!("{before}{BEGIN}{measured}{END}{after}")
            }
            _ => measured,
        };
        crate::write(path, &text)
    }

    fn measured(&self, folder: &str) -> String {
        let mut text = self.conditions();
        text.push_str(&self.locks());
        for workload in WORKLOADS {
            if let Some(table) = self.table(workload, folder) {
                text.push_str(&table);
            }
        }
        text
    }

    fn conditions(&self) -> String {
        let results = self.results;
        let mut text = format!(
            "\nMeasured on {}, at {}{}:\n{}; server {};\n{} repetitions{}, of which each begins with another lock.\n",
            results.date,
            results.revision,
            results.against.as_ref().map_or(String::new(), |other| format!(" against {other}")),
            results.machine,
            results.server,
            results.repetitions,
            if results.quick { " of a short run, in which a JVM is still warming up" } else { "" },
        );
        let (before, after) = (&results.before, &results.after);
        // Writing into a String cannot fail.
        let _ = writeln!(
            text,
            "Load before and after: {:.2} and {:.2}; PING: {} and {} µs.",
            before.load,
            after.load,
            number(before.ping_us, 1),
            number(after.ping_us, 1)
        );
        if before.busy {
            text.push_str("\n**The machine was busy before this run began: its figures are not those of a quiet machine.**\n");
        }
        text
    }

    fn locks(&self) -> String {
        let mut text = "\n| lock | release | how it waits | queue of | renews | cancels |\n|---|---|---|---|---|---|\n"
            .to_owned();
        for peer in PEERS.iter().filter(|peer| !peer.can(Ability::Http)) {
            let release = match (self.results.names.get(peer.id), self.results.missing.get(peer.id))
            {
                (Some(name), _) => name.clone(),
                (None, Some(why)) => format!("not run: {why}"),
                (None, None) => continue,
            };
            let queue = peer.can.iter().find_map(|ability| match ability {
                Ability::Queue(most) => Some(number(*most as f64, 0)),
                _ => None,
            });
            let yes = |ability| if peer.can(ability) { "yes" } else { "–" };
            let _ = writeln!(
                text,
                "| {} | {release} | {} | {} | {} | {} |",
                peer.title,
                peer.waits,
                queue.unwrap_or_else(|| "–".to_owned()),
                yes(Ability::Renew),
                yes(Ability::Cancel)
            );
        }
        text
    }

    fn table(&self, workload: &Workload, folder: &str) -> Option<String> {
        let measured = self.results.workloads.get(workload.id)?;
        let mut text = format!("\n### {}\n\n| |", workload.title);
        let ((first, heading, digits), others) = workload.columns.split_first()?;
        let mut bases = vec![workload.base, "ours"];
        bases.dedup();
        bases.retain(|base| measured.contains_key(*base));
        let _ = write!(text, " {heading} |");
        for base in &bases {
            let _ = write!(text, " ÷ {} |", title(base));
        }
        for (_, heading, _) in others {
            let _ = write!(text, " {heading} |");
        }
        text.push_str("\n|---|---|");
        text.push_str(&"---|".repeat(bases.len() + others.len()));
        text.push('\n');
        for peer in PEERS {
            let Some(of_peer) = measured.get(peer.id) else {
                // One of the run that cannot do this; a floor is for some workloads only.
                if self.results.names.contains_key(peer.id) && peer.can(Ability::Take) {
                    let _ = writeln!(text, "| {} | – |", peer.title);
                }
                continue;
            };
            if let Some(why) = &of_peer.failed {
                let _ = writeln!(text, "| {} | failed: {why} |", peer.title);
                continue;
            }
            let main = of_peer.spread(first).map_or("–".to_owned(), |spread| {
                let [median, least, most] =
                    [spread.median, spread.least, spread.most].map(|value| number(value, *digits));
                format!("{median} ({least} – {most})")
            });
            let ratio = |base: &str| {
                let ratio = measured.get(base).and_then(|base| of_peer.ratio(base, first));
                ratio.map_or("–".to_owned(), |ratio| number(ratio, 2))
            };
            let _ = write!(text, "| {} | {main} |", peer.title);
            for base in &bases {
                let _ = write!(text, " {} |", ratio(base));
            }
            for column in others {
                let _ = write!(text, " {} |", cell(of_peer, column));
            }
            text.push('\n');
        }
        for (number, (id, _, title)) in PLOTS.iter().enumerate() {
            if *id == workload.id {
                let _ = writeln!(text, "\n![{title}]({folder}/{})", plot_name(number));
            }
        }
        Some(text)
    }

    fn plots(&self) -> Vec<(String, String)> {
        let mut plots = Vec::new();
        for (number, (id, value, title)) in PLOTS.iter().enumerate() {
            let Some(measured) = self.results.workloads.get(*id) else { continue };
            let bar = |peer: &Peer| {
                let spread = measured.get(peer.id)?.spread(value)?;
                Some(Bar {
                    name: peer.title.to_owned(),
                    value: spread.median,
                    least: spread.least,
                    most: spread.most,
                    ours: peer.id == "ours",
                })
            };
            let drawn: Vec<Bar> = PEERS.iter().filter_map(bar).collect();
            plots.push((plot_name(number), bars(title, &drawn)));
        }
        plots
    }
}

fn plot_name(number: usize) -> String {
    let (workload, value, _) = PLOTS[number];
    format!("{workload}-{}.svg", value.replace('_', "-"))
}

fn title(id: &str) -> &str {
    PEERS.iter().find(|peer| peer.id == id).map_or(id, |peer| peer.title)
}

fn cell(measured: &Measured, (value, _, digits): &Column) -> String {
    measured.spread(value).map_or("–".to_owned(), |spread| number(spread.median, *digits))
}

/// With so many digits after the point, and spaces between thousands.
pub(crate) fn number(value: f64, digits: usize) -> String {
    let text = format!("{value:.digits$}");
    let (whole, part) = text.split_at(text.find('.').unwrap_or(text.len()));
    let mut grouped = String::new();
    for (place, digit) in whole.chars().enumerate() {
        if place > 0 && (whole.len() - place).is_multiple_of(3) && digit.is_ascii_digit() {
            grouped.push('\u{202f}'); // a narrow space, where no line is broken
        }
        grouped.push(digit);
    }
    grouped + part
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_set_apart() {
        assert_eq!(number(1_234_567.0, 0), "1\u{202f}234\u{202f}567");
        assert_eq!(number(999.96, 1), "1\u{202f}000.0");
        assert_eq!(number(42.125, 2), "42.12");
    }
}
