//! `Page`: the tables of a run, with the figures and plots beside them.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use crate::chart::charts;
use crate::peer::{Ability, PEERS};
use crate::results::{Measured, Results};
use crate::summary::Summary;
use crate::workload::{Column, WORKLOADS, Workload};

pub(crate) struct Page<'a> {
    results: &'a Results,
}

impl<'a> Page<'a> {
    pub(crate) fn new(results: &'a Results) -> Self {
        Self { results }
    }

    /// Writes the tables, the figures beside them as JSON, and the plots.
    pub(crate) fn write(&self, path: &Path) -> Result<(), String> {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(|error| format!("{folder:?}: {error}"))?;
        }
        crate::write(path, &self.tables())?;
        let summary = Summary::of(self.results);
        let text = serde_json::to_string_pretty(&summary).map_err(|error| error.to_string())?;
        crate::write(&path.with_extension("json"), &(text + "\n"))?;
        draw(&summary, path)
    }

    fn tables(&self) -> String {
        let mut text =
            "# Measured\n\nWritten by `scripts/bench`. [How to read it](../performance.md).\n"
                .to_owned();
        text.push_str(&self.conditions());
        text.push_str(&self.locks());
        for workload in WORKLOADS {
            text.extend(self.table(workload));
        }
        text
    }

    fn conditions(&self) -> String {
        let results = self.results;
        let mut text = format!(
            "\nMeasured on {}, at {}{}:\n{}; server {};\n{} repetitions{}, each starting with a \
             different lock.\n",
            results.date,
            results.revision,
            results.against.as_ref().map_or(String::new(), |other| format!(" against {other}")),
            results.machine,
            results.server,
            results.repetitions,
            if results.quick { " of a short run, during JVM warm-up" } else { "" },
        );
        let before = &results.before;
        let after = &results.after;
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
            text.push_str(
                "\n**The machine was busy before this run: on a quiet machine the \
                figures would differ.**\n",
            );
        }
        text
    }

    fn locks(&self) -> String {
        let mut text = "\n| lock | release | waiting | longest queue | renews | cancels \
            |\n|---|---|---|---|---|---|\n"
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

    fn table(&self, workload: &Workload) -> Option<String> {
        let measured = self.results.workloads.get(workload.id)?;
        let mut text = format!("\n## {}\n\n| |", workload.title);
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
                // A peer without this ability gets a dash; a baseline appears only in some
                // workloads.
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
        Some(text)
    }
}

/// Draws the figures into the folder of the page.
pub(crate) fn draw(summary: &Summary, page: &Path) -> Result<(), String> {
    for (name, plot) in charts(summary) {
        crate::write(&page.with_file_name(name), &plot)?;
    }
    Ok(())
}

fn title(id: &str) -> &str {
    PEERS.iter().find(|peer| peer.id == id).map_or(id, |peer| peer.title)
}

fn cell(measured: &Measured, (value, _, digits): &Column) -> String {
    measured.spread(value).map_or("–".to_owned(), |spread| number(spread.median, *digits))
}

/// Formats a number with `digits` digits after the point, and spaces between thousands.
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
