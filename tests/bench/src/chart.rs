//! The four plots of `docs/performance.md`: how long a hand-off takes, the order of turns, the cost
//! of a long queue, and the cost of a locked HTTP request.

use crate::page::number;
use crate::peer::PEERS;
use crate::plot::{Bar, Plot, WIDTH};
use crate::summary::Summary;

/// The file of each plot, and the text; plots of skipped workloads are left out.
pub(crate) fn charts(summary: &Summary) -> Vec<(&'static str, String)> {
    let charts = [
        ("hand-off.svg", hand_off(summary)),
        ("in-order.svg", in_order(summary)),
        ("queue.svg", queue(summary)),
        ("http.svg", http(summary)),
    ];
    charts.into_iter().filter_map(|(name, chart)| Some((name, chart?))).collect()
}

fn is_measured(summary: &Summary, workload: &str) -> Option<()> {
    summary.workloads.contains_key(workload).then_some(())
}

/// The lock name in a plot.
pub(crate) fn name(id: &str, title: &str) -> String {
    match id {
        "publish" => "a Redis message, no lock".to_owned(),
        "bare" => "SET NX, polls at once".to_owned(),
        "bare-mutex" => "SET NX behind a mutex".to_owned(),
        _ => title.replace("**", "").replace('`', ""),
    }
}

/// A bar for each lock with the value, with the text of `figure`.
pub(crate) fn bars(
    summary: &Summary,
    workload: &str,
    value: &str,
    unit: f64,
    figure: impl Fn(&str, f64) -> (f64, String),
) -> Vec<Bar> {
    let bar = |(id, title): (&str, &str)| {
        let found = summary.figure(workload, id, value)?;
        let (part, text) = figure(id, found.median / unit);
        Some(Bar {
            name: name(id, title),
            value: found.median / unit,
            ends: found.least.zip(found.most).map(|(least, most)| (least / unit, most / unit)),
            part,
            figure: text,
            is_ours: id == "ours" || ["http-layer", "http-extractor"].contains(&id),
        })
    };
    PEERS.iter().filter_map(|peer| bar((peer.id, peer.title))).collect()
}

fn hand_off(summary: &Summary) -> Option<String> {
    is_measured(summary, "hand-off")?;
    let mut plot = Plot::new(
        "Hand-off: from the release in one process to the grant in another",
        "Median in ms, shorter is better. The scale is logarithmic; a thin line joins the minimum \
         and the maximum.",
    );
    let figure =
        |_: &str, ms: f64| (1.0, format!("{} ms", number(ms, if ms < 10.0 { 2 } else { 0 })));
    let mut bars = bars(summary, "hand-off", "hand_p50", 1_000.0, figure);
    bars.sort_by(|one, other| one.value.total_cmp(&other.value));
    plot.bars(&bars, true);
    Some(plot.end())
}

fn in_order(summary: &Summary) -> Option<String> {
    is_measured(summary, "hot-4x16")?;
    let mut plot = Plot::new(
        "One lock, 64 tasks of four processes: turns per second",
        "In full colour: the share served in order of arrival. The last figure is the longest \
         wait.",
    );
    let figure = |id: &str, turns: f64| {
        let of = |value| summary.figure("hot-4x16", id, value).map_or(0.0, |figure| figure.median);
        let share = of("in_order");
        let longest = of("longest_ms");
        let digits = usize::from(share < 1.0);
        let [turns, longest] = [turns, longest].map(|value| number(value, 0));
        let text = format!("{turns}: {share:.digits$} % in order, {longest} ms");
        (share / 100.0, text)
    };
    let mut bars = bars(summary, "hot-4x16", "turns_s", 1.0, figure);
    for bar in &mut bars {
        bar.ends = None;
    }
    bars.sort_by(|one, other| other.part.total_cmp(&one.part));
    plot.bars(&bars, false);
    Some(plot.end())
}

const WAITING: [(&str, f64); 5] = [
    ("depth-1", 1.0),
    ("depth-100", 100.0),
    ("depth-1000", 1_000.0),
    ("depth-10000", 10_000.0),
    ("depth-100000", 100_000.0),
];

fn queue(summary: &Summary) -> Option<String> {
    is_measured(summary, "depth-1")?;
    let mut plot = Plot::new(
        "A release with a hand-off, by the number of waiters",
        "Time of the server's scripts in ms, lower is better. Both scales are logarithmic.",
    );
    let left = 70.0;
    let right = WIDTH - 210.0;
    let top = 76.0;
    let bottom = 316.0;
    let x = |waiters: f64| left + (right - left) * waiters.log10() / 5.0;
    // The axis ranges from 0.01 to 100 ms.
    let y = |ms: f64| bottom - (bottom - top) * (ms.log10() + 2.0) / 4.0;
    for ms in [0.01, 0.1, 1.0, 10.0, 100.0] {
        plot.line((left, y(ms)), (right, y(ms)));
        plot.text(left - 10.0, y(ms) + 4.0, "faint", "end", &format!("{ms}"));
    }
    for (_, waiters) in WAITING {
        plot.text(x(waiters), bottom + 20.0, "faint", "middle", &number(waiters, 0));
    }
    plot.text(
        f64::midpoint(left, right),
        bottom + 42.0,
        "faint",
        "middle",
        "requests in the queue",
    );
    for peer in PEERS {
        let point = |(workload, waiters): (&str, f64)| {
            let found = summary.figure(workload, peer.id, "hand_over_us")?;
            Some((waiters, found.median / 1_000.0))
        };
        let points: Vec<_> = WAITING.into_iter().filter_map(point).collect();
        let Some(&(waiters, ms)) = points.last() else { continue };
        let is_ours = peer.id == "ours";
        let drawn: Vec<_> = points.iter().map(|&(waiters, ms)| (x(waiters), y(ms))).collect();
        plot.curve(&drawn, is_ours);
        let text = format!(
            "{}, {} ms",
            name(peer.id, peer.title),
            number(ms, if ms < 10.0 { 2 } else { 0 })
        );
        let class = if is_ours { "text\" font-weight=\"600" } else { "text" };
        // Above its last point, where no other curve is.
        let is_short = waiters < 10_000.0;
        let (at, anchor) = if is_short { (-14.0, "middle") } else { (4.0, "start") };
        let shift = if is_short { 0.0 } else { 10.0 };
        plot.text(x(waiters) + shift, y(ms) + at, class, anchor, &text);
    }
    Some(plot.end())
}

fn http(summary: &Summary) -> Option<String> {
    is_measured(summary, "http-64")?;
    is_measured(summary, "http-hot")?;
    let mut plot = Plot::new(
        "HTTP over 64 connections: requests per second",
        "The handler responds at once, and clients, server and Redis share two cores: this shows \
         the cost of a lock.",
    );
    for (workload, heading) in [
        ("http-64", "10 000 orders: requests rarely wait for each other"),
        ("http-hot", "One order: each request waits for the previous request"),
    ] {
        plot.heading(heading);
        let figure = |_: &str, requests: f64| (1.0, number(requests, 0));
        let mut bars = bars(summary, workload, "requests_s", 1.0, figure);
        for bar in &mut bars {
            bar.name = match bar.name.as_str() {
                "without" => "no lock".to_owned(),
                name => name.to_owned(),
            };
        }
        plot.bars(&bars, false);
    }
    Some(plot.end())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares the plots with the documentation: `scripts/bench --draw` redraws them.
    #[test]
    fn the_plots_of_the_documentation_are_drawn_from_the_figures_beside_them() {
        let summary = include_str!("../../../docs/performance/measured.json");
        let summary: Summary = serde_json::from_str(summary).expect("figures");
        let drawn = charts(&summary);
        let kept = [
            ("hand-off.svg", include_str!("../../../docs/performance/hand-off.svg")),
            ("in-order.svg", include_str!("../../../docs/performance/in-order.svg")),
            ("queue.svg", include_str!("../../../docs/performance/queue.svg")),
            ("http.svg", include_str!("../../../docs/performance/http.svg")),
        ];
        let drawn: Vec<_> = drawn.iter().map(|(name, plot)| (*name, plot.as_str())).collect();
        assert!(drawn == kept, "draw them anew: scripts/bench --draw");
    }
}
