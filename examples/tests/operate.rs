//! The board and the alert rules in `docs/operate`, against two running offices.
//!
//! Ignored tests need Prometheus; `scripts/test --prometheus` installs it.

mod operate {
    pub(crate) mod expressions;
    pub(crate) mod offices;
    pub(crate) mod prometheus;
    pub(crate) mod scrape;
}
#[path = "ticket_office/office.rs"]
#[allow(dead_code, reason = "the other tests use the rest of it")]
mod office;
#[path = "ticket_office/scratch.rs"]
#[allow(dead_code, reason = "the other tests use the rest of it")]
mod scratch;

use std::collections::BTreeSet;
use std::process::Command;

use lock_tests::{eventually, eventually_some};
use office::SOON;
use operate::expressions::{Selector, board, folder, groupings, rules, selectors};
use operate::offices::Offices;
use operate::prometheus::Prometheus;
use operate::scrape::Scrape;

/// The alerts page, once lockcore is published.
const MANUAL: &str = "https://docs.rs/lockcore/latest/lockcore/guide/alerts/index.html";

#[tokio::test]
async fn every_series_of_the_board_and_the_rules_is_in_a_scrape_of_two_offices_in_trouble() {
    let mut offices = Offices::open().await;
    offices.trouble().await;
    let scrape = Scrape::of(&offices.scrape().await);
    let texts = board().into_iter().map(|query| query.expression).chain([rules()]);
    let mut named = 0;
    for text in texts {
        for Selector { metric, labels } in selectors(&text) {
            named += 1;
            let found = scrape.has(&metric, &labels);
            assert!(found, "{metric} with {labels:?} is not in the scrape:\n{scrape}");
        }
        for label in groupings(&text) {
            let known = ["job", "instance", "le"].contains(&label.as_str());
            assert!(known || scrape.labels().contains(&label), "no series has a label {label}");
        }
    }
    assert!(named > 35, "only {named} series are named: are they still found in the files?");
}

#[test]
fn every_label_that_the_operators_page_names_is_on_a_page() {
    let pages = concat!(
        include_str!("../../lock-axum/dashboard/src/lock.rs"),
        include_str!("../../lock-axum/dashboard/src/overview.rs"),
        include_str!("../../lock-axum/dashboard/src/page.rs"),
        include_str!("../lockctl/src/top/screen.rs"),
        include_str!("../../docs/operate/grafana.json"),
    );
    let manual = include_str!("../../docs/operate/README.md").replace("**", "").replace('\n', " ");
    let prose: String = manual.split('`').step_by(2).collect();
    let labels: BTreeSet<_> = prose.split('*').skip(1).step_by(2).collect();
    // Menus of Grafana, and emphases.
    let others = BTreeSet::from(["Dashboards", "New", "Import", "all", "runs again"]);
    for label in labels.difference(&others) {
        let is_named =
            ["\"", ", "].iter().any(|before| pages.contains(&format!("{before}{label}")));
        assert!(is_named, "no page has {label:?}");
    }
    assert!(labels.len() - others.len() > 10, "{labels:?}");
}

#[test]
fn every_alert_has_a_section_in_the_manual() {
    let page = include_str!("../../lockcore/src/guide/alerts.md");
    let sections: BTreeSet<_> = page.lines().filter_map(|line| line.strip_prefix("## ")).collect();
    let rules = rules();
    let all = |field| rules.lines().filter_map(move |line| line.trim().strip_prefix(field));
    let alerts: Vec<_> = all("- alert: ").collect();
    assert_eq!(sections, alerts.iter().copied().collect());
    // How rustdoc creates an anchor from a heading.
    let goals = alerts.iter().map(|alert| format!("{MANUAL}#{}", alert.to_ascii_lowercase()));
    assert_eq!(all("runbook_url: ").collect::<Vec<_>>(), goals.collect::<Vec<_>>());
}

#[test]
#[ignore = "needs Prometheus: scripts/test --prometheus"]
fn the_rules_are_well_formed_and_fire_when_they_should() {
    let tests = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/operate/alerts.test.yml");
    let alerts = folder().join("alerts.yml");
    for (verb, file) in [("check", alerts.as_path()), ("test", tests.as_ref())] {
        let ended = Command::new("promtool").args([verb, "rules"]).arg(file).output();
        let ended = ended.expect("promtool is on PATH");
        assert!(ended.status.success(), "promtool {verb} rules: {ended:?}");
    }
}

#[tokio::test]
#[ignore = "needs Prometheus: scripts/test --prometheus"]
async fn a_prometheus_that_scrapes_two_offices_in_trouble_answers_each_query_and_raises_alerts() {
    let mut offices = Offices::open().await;
    let prometheus = Prometheus::start(&[&offices.one, &offices.two]).await;
    // Nothing is lost yet, and all series exist: an alert needs the change.
    prometheus.until_up(2).await;
    offices.trouble().await;
    let alerts = ["LockLost", "LockPositionsLost", "LockRenewalsFail"];
    eventually("the alerts are raised", SOON, async || {
        let raised: BTreeSet<_> = prometheus.alerts().await;
        alerts.iter().all(|alert| raised.contains(*alert))
    })
    .await;
    for query in board() {
        let expression = query.expression.replace("$__rate_interval", "2m");
        let expression = expression.replace("$job", ".+").replace("$class", ".+");
        let shown = format!("'{}' shows {expression}", query.title);
        let found = eventually_some(&shown, SOON, async || {
            Some(prometheus.ask(&expression).await).filter(|found| !found.is_empty())
        });
        for series in found.await {
            for label in &query.legend {
                assert!(series.contains(label), "'{}' has no {label}: {series:?}", query.title);
            }
        }
    }
}
