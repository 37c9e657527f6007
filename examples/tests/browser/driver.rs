//! `chromedriver`, and its browsers.

use std::process::Stdio;

use fantoccini::ClientBuilder;
use lock_tests::{Leash, Port, eventually_some};
use serde_json::{Map, Value, json};
use tokio::process::{Child, Command};
use tokio::sync::Mutex;

use super::tab::Tab;
use crate::office::SOON;

/// Chromium's arguments: a fresh profile by default, no outside connections, no prompts.
const CHROMIUM: [&str; 10] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--no-proxy-server",
];

/// A running `chromedriver`, killed with its browsers on drop and if the tests are killed.
pub(crate) struct Driver {
    process: Child,
    leash: Option<Leash>,
    _port: Port,
    url: String,
    tabs: Mutex<Vec<fantoccini::Client>>,
}

impl Driver {
    /// Starts `$CHROMEDRIVER`, or `chromedriver` on `PATH`.
    pub(crate) async fn start() -> Self {
        let program = std::env::var("CHROMEDRIVER").unwrap_or_else(|_| "chromedriver".to_owned());
        let port = Port::free();
        let process = Command::new(&program)
            .arg(format!("--port={}", port.number()))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .unwrap_or_else(|error| {
                panic!("{program}: {error}; scripts/test --browser installs it")
            });
        let leash = Some(Leash::new(process.id().expect("it runs"), None));
        let url = format!("http://{}", port.address());
        Self { process, leash, _port: port, url, tabs: Mutex::default() }
    }

    /// Opens a new browser, with a viewport of this size.
    pub(crate) async fn open(&self, url: &str, width: u32, height: u32) -> Tab {
        let mut options = json!({
            "args": CHROMIUM,
            // A window cannot be as narrow as a phone; an emulated viewport can.
            "mobileEmulation": { "deviceMetrics": { "width": width, "height": height, "pixelRatio": 1.0, "touch": width < 600 } },
        });
        if let Ok(program) = std::env::var("CHROMIUM") {
            options["binary"] = json!(program);
        }
        let mut wanted = Map::<String, Value>::new();
        wanted.insert("goog:chromeOptions".into(), options);
        wanted.insert("goog:loggingPrefs".into(), json!({ "browser": "ALL" }));
        let client = eventually_some("chromedriver opens a browser", 2 * SOON, async || {
            ClientBuilder::new(hyper_util::client::legacy::connect::HttpConnector::new())
                .capabilities(wanted.clone())
                .connect(&self.url)
                .await
                .ok()
        })
        .await;
        self.tabs.lock().await.push(client.clone());
        client.goto(url).await.expect("it opens the page");
        Tab::new(client, &self.url).await
    }

    /// Closes all browsers, which would survive a killed chromedriver.
    pub(crate) async fn end(mut self) {
        for client in self.tabs.lock().await.drain(..) {
            client.close().await.expect("it closes");
        }
        self.leash = None;
        self.process.kill().await.expect("it can be killed");
    }
}
