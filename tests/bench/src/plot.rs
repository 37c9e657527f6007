//! The parts of a plot as SVG, in colours that are readable on light and dark pages.

use std::fmt::Write as _;

/// The style of all plots. Each plot has its own background, so that its text is readable anywhere.
const STYLE: &str = "\
<style>
.page { fill: #ffffff; stroke: #d0d7de; }
.text { fill: #1f2328; }
.faint { fill: #59636e; }
.line { stroke: #d0d7de; }
.ours { fill: #0969da; }
.other { fill: #818b98; }
.rest { opacity: 0.25; }
.spread { stroke: #1f2328; }
.curve { fill: none; stroke-width: 2.5; }
.ours-curve { stroke: #0969da; }
.other-curve { stroke: #818b98; }
@media (prefers-color-scheme: dark) {
.page { fill: #0d1117; stroke: #3d444d; }
.text { fill: #f0f6fc; }
.faint { fill: #9198a1; }
.line { stroke: #3d444d; }
.ours { fill: #4493f8; }
.spread { stroke: #f0f6fc; }
.ours-curve { stroke: #4493f8; }
}
</style>
";

pub(crate) const WIDTH: f64 = 760.0;
const NAMES: f64 = 200.0;
const BARS: f64 = 330.0;
const ROW: f64 = 24.0;
const HEAD: f64 = 60.0;

/// A bar with its name before it and its figure behind it.
#[derive(Debug)]
pub(crate) struct Bar {
    pub(crate) name: String,
    pub(crate) value: f64,
    /// The minimum and the maximum of the repetitions.
    pub(crate) ends: Option<(f64, f64)>,
    /// The part of the bar in full colour; the rest is faint.
    pub(crate) part: f64,
    pub(crate) figure: String,
    pub(crate) is_ours: bool,
}

/// The content between a title and the end of the file.
#[derive(Debug)]
pub(crate) struct Plot {
    body: String,
    height: f64,
}

impl Plot {
    pub(crate) fn new(title: &str, subtitle: &str) -> Self {
        let body = format!(
            "<text class=\"text\" x=\"16\" y=\"28\" font-size=\"16\" font-weight=\"600\">{}</text>\n\
             <text class=\"faint\" x=\"16\" y=\"48\">{}</text>\n",
            escape(title),
            escape(subtitle)
        );
        Self { body, height: HEAD }
    }

    pub(crate) fn text(&mut self, x: f64, y: f64, class: &str, anchor: &str, text: &str) {
        let text = escape(text);
        // Writing into a String cannot fail.
        let _ = writeln!(
            self.body,
            "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>"
        );
        self.reach(y + 12.0);
    }

    pub(crate) fn line(&mut self, from: (f64, f64), to: (f64, f64)) {
        let (x, y) = from;
        let (to_x, to_y) = to;
        let _ =
            writeln!(self.body, "<path class=\"line\" d=\"M{x:.1} {y:.1}L{to_x:.1} {to_y:.1}\"/>");
        self.reach(y.max(to_y));
    }

    /// Draws a line through all points, each with a dot.
    pub(crate) fn curve(&mut self, points: &[(f64, f64)], is_ours: bool) {
        let class = if is_ours { "ours" } else { "other" };
        let path: Vec<_> = points.iter().map(|(x, y)| format!("{x:.1} {y:.1}")).collect();
        let path = path.join("L");
        let _ = writeln!(self.body, "<path class=\"curve {class}-curve\" d=\"M{path}\"/>");
        for (x, y) in points {
            let _ = writeln!(
                self.body,
                "<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\"/>"
            );
        }
    }

    /// Writes a line of text above some bars.
    pub(crate) fn heading(&mut self, text: &str) {
        let y = self.height + 22.0;
        self.text(16.0, y, "text", "start", text);
        self.height = y + 8.0;
    }

    /// Draws bars below each other; with `is_logarithmic`, each step of the scale is ten times the
    /// last.
    pub(crate) fn bars(&mut self, bars: &[Bar], is_logarithmic: bool) {
        let most = bars.iter().map(|bar| bar.ends.map_or(bar.value, |(_, most)| most));
        let most = most.fold(f64::MIN_POSITIVE, f64::max);
        // A zero bar has no length on either scale.
        let values = bars.iter().map(|bar| bar.value).filter(|value| *value > 0.0);
        let least = values.fold(most, f64::min);
        let floor = 10_f64.powf(least.log10().floor());
        let length = |value: f64| {
            let part = if is_logarithmic {
                (value.max(floor) / floor).log10() / (most / floor).log10()
            } else {
                value / most
            };
            BARS * part.clamp(0.0, 1.0)
        };
        for bar in bars {
            let top = self.height + 4.0;
            let middle = self.height + 12.0;
            let base = self.height + 17.0;
            let class = if bar.is_ours { "ours" } else { "other" };
            let name = if bar.is_ours { "text\" font-weight=\"600" } else { "text" };
            self.text(NAMES - 8.0, base, name, "end", &bar.name);
            let whole = length(bar.value);
            let full = whole * bar.part.clamp(0.0, 1.0);
            let _ = write!(
                self.body,
                "<rect class=\"{class} rest\" x=\"{NAMES}\" y=\"{top}\" width=\"{whole:.1}\" height=\"16\"/>\n\
                 <rect class=\"{class}\" x=\"{NAMES}\" y=\"{top}\" width=\"{full:.1}\" height=\"16\"/>\n"
            );
            let mut end = NAMES + whole;
            if let Some((least, most)) = bar.ends {
                let from = NAMES + length(least);
                let to = NAMES + length(most);
                let _ = writeln!(
                    self.body,
                    "<path class=\"spread\" d=\"M{from:.1} {middle}H{to:.1}\"/>"
                );
                end = end.max(to);
            }
            self.text(end + 8.0, base, "text", "start", &bar.figure);
            self.height = top - 4.0 + ROW;
        }
    }

    /// Makes the plot at least this high.
    pub(crate) fn reach(&mut self, y: f64) {
        self.height = self.height.max(y);
    }

    pub(crate) fn end(self) -> String {
        let width = WIDTH;
        let height = self.height + 12.0;
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
             font-family=\"-apple-system, 'Segoe UI', Helvetica, Arial, sans-serif\" font-size=\"13\" \
             role=\"img\">\n{STYLE}\
             <rect class=\"page\" x=\"0.5\" y=\"0.5\" width=\"{}\" height=\"{}\" rx=\"8\"/>\n{}</svg>\n",
            width - 1.0,
            height - 1.0,
            self.body
        )
    }
}

/// Escapes text for SVG and HTML.
pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
