//! The report: all figures of a run as an HTML page, with a plot and a table for each workload.

use std::fmt::Write as _;

use crate::chart::{bars, charts, name};
use crate::page::number;
use crate::peer::PEERS;
use crate::plot::{Plot, escape};
use crate::summary::{Figure, Summary};
use crate::workload::{Column, WORKLOADS, Workload};

/// The ratio of the longest to the shortest bar from which a plot is logarithmic.
const FAR_APART: f64 = 20.0;

const STYLE: &str = "\
:root { color-scheme: light dark; }
body { font: 15px/1.5 -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif; margin: 2rem auto; \
max-width: 60rem; padding: 0 1rem; }
svg { width: 100%; height: auto; }
table { border-collapse: collapse; font-size: 13px; font-variant-numeric: tabular-nums; }
th, td { border-bottom: 1px solid #8884; padding: 0.2rem 0.6rem; text-align: right; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
tr.ours { font-weight: 600; }
.wide { overflow-x: auto; }
";

/// Creates the page. Skipped workloads are left out.
pub(crate) fn html(summary: &Summary) -> String {
    let of = |workload: &&Workload| summary.workloads.contains_key(workload.id);
    let measured: Vec<_> = WORKLOADS.iter().filter(of).collect();
    let mut body = format!(
        "<h1>Fair locks, measured</h1>\n<p>On {}, at {}: {}; server {}; {} repetitions, each \
         starting with a different lock.</p>\n<ul>\n",
        escape(&summary.date),
        escape(&summary.revision),
        escape(&summary.machine),
        escape(&summary.server),
        summary.repetitions
    );
    // Writing into a String cannot fail.
    for Workload { id, title, .. } in &measured {
        let _ = writeln!(body, "<li><a href=\"#{id}\">{}</a></li>", escape(title));
    }
    body.push_str("</ul>\n");
    for (_, chart) in charts(summary) {
        body.push_str(&chart);
    }
    for workload in measured {
        let Workload { id, title, .. } = workload;
        let _ = writeln!(
            body,
            "<section id=\"{id}\">\n<h2>{}</h2>\n{}{}</section>",
            escape(title),
            plot(summary, workload),
            table(summary, workload)
        );
    }
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>Fair locks, measured</title>\n\
         <style>\n{STYLE}</style>\n</head>\n<body>\n{body}</body>\n</html>\n"
    )
}

/// The value used to compare the locks, as bars.
fn plot(summary: &Summary, workload: &Workload) -> String {
    let [(value, heading, digits), ..] = workload.columns else { return String::new() };
    let figure = |_: &str, value: f64| (1.0, number(value, *digits));
    let bars = bars(summary, workload.id, value, 1.0, figure);
    let values = || bars.iter().map(|bar| bar.value);
    let most = values().fold(0.0, f64::max);
    let least = values().filter(|value| *value > 0.0).fold(f64::INFINITY, f64::min);
    let is_logarithmic = least * FAR_APART < most;
    let scale = if is_logarithmic { " The scale is logarithmic." } else { "" };
    let mut plot = Plot::new(
        heading,
        &format!("The median; a thin line joins the minimum and the maximum.{scale}"),
    );
    plot.bars(&bars, is_logarithmic);
    plot.end()
}

fn table(summary: &Summary, workload: &Workload) -> String {
    let mut text = "<div class=\"wide\"><table>\n<tr><th></th>".to_owned();
    for (_, heading, _) in workload.columns {
        let _ = write!(text, "<th>{}</th>", escape(heading));
    }
    text.push_str("</tr>\n");
    for peer in PEERS {
        let cell = |(value, _, digits): &Column| {
            let figure = summary.figure(workload.id, peer.id, value);
            figure.map_or("–".to_owned(), |Figure { median, .. }| number(median, *digits))
        };
        let cells: Vec<_> = workload.columns.iter().map(cell).collect();
        if cells.iter().all(|cell| cell == "–") {
            continue;
        }
        let class = if peer.id == "ours" { " class=\"ours\"" } else { "" };
        let of = escape(&name(peer.id, peer.title));
        let _ = writeln!(text, "<tr{class}><td>{of}</td><td>{}</td></tr>", cells.join("</td><td>"));
    }
    text.push_str("</table></div>\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_has_a_plot_and_a_table_of_each_workload_that_was_run() {
        let summary = include_str!("../../../docs/performance/measured.json");
        let mut summary: Summary = serde_json::from_str(summary).expect("figures");
        summary.workloads.remove("storm");
        let page = html(&summary);
        for workload in WORKLOADS {
            let section = format!("<section id=\"{}\">", workload.id);
            let is_there = page.contains(&section);
            assert_eq!(is_there, summary.workloads.contains_key(workload.id), "{section}");
        }
        assert!(!page.contains("storm"), "neither in the list");
        let sections = page.matches("<section").count();
        assert_eq!(page.matches("<table>").count(), sections);
        assert!(page.matches("<svg").count() >= sections);
        assert!(!page.contains("NaN") && !page.contains("**") && !page.contains("`"));
    }
}
