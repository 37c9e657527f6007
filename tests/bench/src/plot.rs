//! A plot: one bar for each lock, as SVG. Fewer figures than a table, and to be seen at once.

use std::fmt::Write as _;

/// One bar, with both ends of its repetitions.
#[derive(Debug)]
pub(crate) struct Bar {
    pub(crate) name: String,
    pub(crate) value: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
    /// Told apart from the others.
    pub(crate) ours: bool,
}

const NAMES: f64 = 190.0;
const BARS: f64 = 380.0;
const FIGURES: f64 = 90.0;
const ROW: f64 = 22.0;
const HEAD: f64 = 34.0;

/// Bars beside each other; on a logarithmic scale where the greatest is more than 30 times the
/// smallest.
pub(crate) fn bars(title: &str, bars: &[Bar]) -> String {
    let most = bars.iter().map(|bar| bar.most).fold(0.0, f64::max);
    let least = bars.iter().map(|bar| bar.value).fold(f64::INFINITY, f64::min);
    let logarithmic = least > 0.0 && most / least > 30.0;
    let floor = if logarithmic { 10_f64.powf(least.log10().floor()) } else { 0.0 };
    let place = |value: f64| {
        let part = if logarithmic {
            (value.max(floor) / floor).log10() / (most / floor).log10()
        } else {
            value / most
        };
        NAMES + BARS * part.clamp(0.0, 1.0)
    };
    let (width, height) = (NAMES + BARS + FIGURES, HEAD + ROW * bars.len() as f64 + 8.0);
    let scale = if logarithmic { ", logarithmic" } else { "" };
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"sans-serif\" font-size=\"12\" role=\"img\">\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"#fff\"/>\n\
         <text x=\"8\" y=\"20\" font-size=\"13\" font-weight=\"bold\">{}{scale}</text>\n",
        escape(title)
    );
    for (row, bar) in bars.iter().enumerate() {
        let top = HEAD + ROW * row as f64;
        let (text, middle) = (top + 14.0, top + 9.0);
        let colour = if bar.ours { "#c0392b" } else { "#7f8c8d" };
        let end = place(bar.value);
        // Writing into a String cannot fail.
        let _ = write!(
            svg,
            "<text x=\"{}\" y=\"{text}\" text-anchor=\"end\">{}</text>\n\
             <rect x=\"{NAMES}\" y=\"{}\" width=\"{:.1}\" height=\"14\" fill=\"{colour}\"/>\n\
             <path d=\"M{:.1} {middle}H{:.1}\" stroke=\"#000\"/>\n\
             <text x=\"{:.1}\" y=\"{text}\">{}</text>\n",
            NAMES - 6.0,
            escape(&bar.name),
            top + 2.0,
            end - NAMES,
            place(bar.least),
            place(bar.most),
            place(bar.most) + 6.0,
            figure(bar.value),
        );
    }
    svg.push_str("</svg>\n");
    svg
}

/// Three digits at least, and no more than it has before the point.
fn figure(value: f64) -> String {
    let digits = if value >= 100.0 { 0 } else { 1 };
    crate::page::number(value, digits)
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace("**", "")
}
