//! A Prometheus server for the test.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use lock_tests::{Leash, Port, eventually};
use reqwest::Client;
use serde_json::{Value, json};

use crate::office::{Office, SOON};
use crate::operate::expressions::folder;

/// A Prometheus server with the alert rules, killed on drop and if the tests are killed.
pub(crate) struct Prometheus {
    process: Child,
    leash: Option<Leash>,
    directory: PathBuf,
    url: String,
    client: Client,
    _port: Port,
}

impl Prometheus {
    /// Starts a server that scrapes these offices once a second.
    pub(crate) async fn start(offices: &[&Office]) -> Self {
        let port = Port::free();
        let name = format!("prometheus-{}", std::process::id());
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::create_dir_all(&directory).expect("the target directory can be written");
        let urls = offices.iter().map(|office| office.url(""));
        let targets: Vec<_> = urls.map(|url| url.replace("http://", "")).collect();
        // JSON is valid YAML.
        let configuration = json!({
            "global": { "scrape_interval": "1s", "evaluation_interval": "1s" },
            "rule_files": [folder().join("alerts.yml")],
            "scrape_configs": [
                { "job_name": "ticket-office", "static_configs": [{ "targets": targets }] },
            ],
        });
        let file = directory.join("prometheus.yml");
        std::fs::write(&file, configuration.to_string()).expect("it can be written");
        let mut process = Command::new("prometheus")
            .arg(format!("--config.file={}", file.display()))
            .arg(format!("--storage.tsdb.path={}", directory.join("data").display()))
            .arg(format!("--web.listen-address={}", port.address()))
            .arg("--log.level=error")
            .stdin(Stdio::null())
            .spawn()
            .expect("prometheus is on PATH");
        let leash = Some(Leash::new(process.id(), Some(&directory)));
        let url = format!("http://{}", port.address());
        let client = Client::builder().no_proxy().build().expect("a client");
        eventually("Prometheus is ready", SOON, async || {
            if let Ok(Some(status)) = process.try_wait() {
                panic!("Prometheus has ended: {status}");
            }
            let ready = client.get(format!("{url}/-/ready")).send().await;
            ready.is_ok_and(|answer| answer.status().is_success())
        })
        .await;
        Self { process, leash, directory, url, client, _port: port }
    }

    /// Waits until all offices have been scraped.
    pub(crate) async fn until_up(&self, offices: usize) {
        let up = async || self.ask("up == 1").await.len() == offices;
        eventually("all offices are scraped", SOON, up).await;
    }

    /// Returns the label names of each series in the result of an expression.
    ///
    /// # Panics
    ///
    /// If the expression is invalid.
    pub(crate) async fn ask(&self, expression: &str) -> Vec<BTreeSet<String>> {
        let encoded: String = expression.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let answer = self.get(&format!("query?query={encoded}")).await;
        assert_eq!(answer["status"], "success", "{expression}: {answer}");
        let series = answer["data"]["result"].as_array().expect("it is a vector").iter();
        let labels = series.map(|series| series["metric"].as_object().expect("it has labels"));
        labels.map(|labels| labels.keys().cloned().collect()).collect()
    }

    /// Returns the names of firing alerts.
    pub(crate) async fn alerts(&self) -> BTreeSet<String> {
        let answer = self.get("alerts").await;
        let alerts = answer["data"]["alerts"].as_array().expect("a list").iter();
        let raised = alerts.filter(|alert| alert["state"] == "firing");
        raised.filter_map(|alert| Some(alert["labels"]["alertname"].as_str()?.to_owned())).collect()
    }

    async fn get(&self, path: &str) -> Value {
        let answer = self.client.get(format!("{}/api/v1/{path}", self.url)).send().await;
        answer.expect("Prometheus answers").json().await.expect("it is JSON")
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        self.leash = None; // before it is reaped
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}
