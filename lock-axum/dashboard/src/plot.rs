//! A small graph of numbers over time, drawn as SVG, so that no script has to run.

use std::fmt::Write as _;

use maud::{Markup, html};

use super::history::KEPT;
use super::page::count;

/// The graph's height in SVG units. A sample is one unit wide.
const HEIGHT: u64 = 28;

/// Draws `numbers`, the samples of the last ten minutes, as a graph with the newest on the right.
/// `of` says for screen readers what the numbers are, and `kind` is the CSS class. The graph is a
/// step function, because each number is a sample at one moment.
pub(super) fn plot(of: &str, numbers: &[u64], kind: &str) -> Markup {
    let highest = numbers.iter().copied().max().unwrap_or_default();
    let last = numbers.last().copied().unwrap_or_default();
    let words = format!("{of}: at most {highest}, {last} at the end");
    html! {
        svg.plot.(kind) viewBox={ "0 0 " (KEPT) " " (HEIGHT) } preserveAspectRatio="none"
            role="img" aria-label=(words) {
            @if highest > 0 { path d=(stair(numbers, highest)) {} }
            line x1="0" x2=(KEPT) y1=(HEIGHT) y2=(HEIGHT) {}
        }
        " " span.soft.number { "max " (count(highest)) }
    }
}

/// Returns the SVG path for the area under the numbers, where `highest` has the full height. Equal
/// neighbours share a step, so that the path is short.
fn stair(numbers: &[u64], highest: u64) -> String {
    let from = KEPT.saturating_sub(numbers.len());
    let mut path = format!("M{from} {HEIGHT}");
    for (at, number) in (from..).zip(numbers) {
        let is_new = at == from || numbers.get(at - from - 1) != Some(number);
        if is_new {
            let y = HEIGHT - number.saturating_mul(HEIGHT - 1).div_ceil(highest);
            // Writing to a `String` cannot fail.
            let _ = write!(path, "H{at}V{y}");
        }
    }
    let _ = write!(path, "H{}V{HEIGHT}Z", KEPT);
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_a_step_that_ends_at_the_right() {
        assert_eq!(stair(&[0, 4, 4, 2], 4), "M116 28H116V28H117V1H119V14H120V28Z");
        let drawn = plot("pay, waiting", &[], "waiting").into_string();
        assert!(!drawn.contains("<path"), "{drawn}");
        assert!(drawn.contains("aria-label=\"pay, waiting: at most 0, 0 at the end\""), "{drawn}");
        // A number other than zero is visible beside a high one.
        assert!(stair(&[1, 1_000_000], 1_000_000).contains("V27"));
    }
}
