//! The expressions in the board and the alert rules.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;

/// Returns the folder with the operator files.
pub(crate) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/operate")
}

/// A query on the board.
pub(crate) struct Query {
    /// The title of its panel.
    pub(crate) title: String,
    pub(crate) expression: String,
    /// The labels in its legend.
    pub(crate) legend: Vec<String>,
}

/// Returns all queries of the board's panels.
pub(crate) fn board() -> Vec<Query> {
    let text = std::fs::read_to_string(folder().join("grafana.json")).expect("it is there");
    let board: Value = serde_json::from_str(&text).expect("it is JSON");
    let panels = board["panels"].as_array().expect("it has panels");
    let mut queries = Vec::new();
    for panel in panels {
        for target in panel["targets"].as_array().into_iter().flatten() {
            let text = |value: &Value| value.as_str().expect("it is a text").to_owned();
            let legend = text(&target["legendFormat"]);
            let legend = legend.split("{{").skip(1).filter_map(|part| part.split_once("}}"));
            queries.push(Query {
                title: text(&panel["title"]),
                expression: text(&target["expr"]),
                legend: legend.map(|(label, _)| label.to_owned()).collect(),
            });
        }
    }
    queries
}

/// Returns the alert rules without comments.
pub(crate) fn rules() -> String {
    let text = std::fs::read_to_string(folder().join("alerts.yml")).expect("it is there");
    text.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>().join("\n")
}

/// A metric in an expression, with required labels; with a value if the label must equal a text.
pub(crate) struct Selector {
    pub(crate) metric: String,
    pub(crate) labels: BTreeMap<String, Option<String>>,
}

pub(crate) fn selectors(text: &str) -> Vec<Selector> {
    let in_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let starts = text.match_indices("lockcore_").map(|(start, _)| start);
    let named = starts.filter(|start| !text[..*start].ends_with(in_name));
    let selector = |start: usize| {
        let rest = &text[start..];
        let (metric, rest) = rest.split_at(rest.find(|c| !in_name(c)).unwrap_or(rest.len()));
        let labels = rest.strip_prefix('{').and_then(|rest| rest.split_once('}'));
        let labels = labels.map_or("", |(labels, _)| labels).split(',');
        let labels = labels.filter_map(|label| {
            let (name, value) = label.split_once('=')?;
            let value = value.strip_prefix('"').map(|value| value.trim_matches('"').to_owned());
            // `!=` allows any value.
            match name.strip_suffix('!') {
                Some(name) => Some((name.to_owned(), None)),
                None => Some((name.to_owned(), value)),
            }
        });
        Selector { metric: metric.to_owned(), labels: labels.collect() }
    };
    named.map(selector).collect()
}

/// Returns the grouping labels of an expression.
pub(crate) fn groupings(text: &str) -> Vec<String> {
    let lists = text.split("by (").skip(1).filter_map(|rest| rest.split_once(')'));
    lists.flat_map(|(list, _)| list.split(',')).map(|label| label.trim().to_owned()).collect()
}
