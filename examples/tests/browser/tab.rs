//! A browser tab, and a person's actions.

use std::path::Path;
use std::time::Duration;

use fantoccini::actions::{
    InputSource as _, KeyAction, KeyActions, MOUSE_BUTTON_LEFT, MouseActions, PointerAction,
};
use fantoccini::key::Key;
use fantoccini::{Client, Locator};
use lock_tests::eventually;
use serde_json::{Value, json};

use crate::office::SOON;

pub(crate) struct Tab {
    client: Client,
    /// The session URL, for requests outside WebDriver.
    session: String,
}

impl Tab {
    pub(crate) async fn new(client: Client, driver: &str) -> Self {
        let session = client.session_id().await.expect("it can be asked").expect("it has begun");
        Self { client, session: format!("{driver}/session/{session}") }
    }

    pub(crate) async fn click(&self, selector: &str) {
        let element = self.client.wait().at_most(SOON).for_element(Locator::Css(selector)).await;
        element.expect("it is there").click().await.expect("it can be clicked");
    }

    pub(crate) async fn type_into(&self, selector: &str, text: &str) {
        let element = self.client.find(Locator::Css(selector)).await.expect("it is there");
        element.clear().await.expect("it can be cleared");
        element.send_keys(text).await.expect("it can be written to");
    }

    pub(crate) async fn reload(&self) {
        self.client.refresh().await.expect("it loads again");
    }

    /// Returns the element's text; `None` if missing or hidden.
    async fn text(&self, selector: &str) -> Option<String> {
        let element = self.client.find(Locator::Css(selector)).await.ok()?;
        element.text().await.ok()
    }

    pub(crate) async fn until_text(&self, selector: &str, text: &str) {
        eventually(&format!("{selector} reads {text:?}"), SOON, async || {
            self.text(selector).await.as_deref() == Some(text)
        })
        .await;
    }

    pub(crate) async fn until_text_has(&self, selector: &str, part: &str) {
        eventually(&format!("{selector} has {part:?}"), SOON, async || {
            self.text(selector).await.is_some_and(|text| text.contains(part))
        })
        .await;
    }

    pub(crate) async fn until_hidden(&self, selector: &str) {
        eventually(&format!("{selector} is hidden"), SOON, async || {
            let element = self.client.find(Locator::Css(selector)).await.expect("it is there");
            !element.is_displayed().await.expect("it can be asked")
        })
        .await;
    }

    async fn evaluate(&self, expression: &str) -> Value {
        let script = format!("return {expression};");
        self.client.execute(&script, Vec::new()).await.expect("it can be evaluated")
    }

    pub(crate) async fn number(&self, expression: &str) -> u32 {
        let number = self.evaluate(expression).await;
        number.as_u64().and_then(|number| number.try_into().ok()).expect("a number")
    }

    pub(crate) async fn strings(&self, expression: &str) -> Vec<String> {
        serde_json::from_value(self.evaluate(expression).await).expect("an array of strings")
    }

    /// Writes a picture of the whole page to the target directory.
    pub(crate) async fn screenshot(&self, name: &str) {
        self.client.execute("scrollTo(0, 0)", Vec::new()).await.expect("it can be scrolled");
        let image = self.client.screenshot().await.expect("it can be taken");
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("target");
        std::fs::write(target.join(name), image).expect("the target directory can be written");
    }

    /// Sends a chromedriver request not supported by other browsers.
    async fn ask(&self, path: &str, body: Value) -> Value {
        let client = reqwest::Client::builder().no_proxy().build().expect("a client");
        let answer = client.post(format!("{}/{path}", self.session)).json(&body).send().await;
        let mut answer: Value = answer.expect("it answers").json().await.expect("it is JSON");
        answer["value"].take()
    }

    /// Returns the roles and names of all page parts, as a screen reader sees them.
    pub(crate) async fn accessibility_tree(&self) -> Vec<(String, String)> {
        let command = json!({ "cmd": "Accessibility.getFullAXTree", "params": {} });
        let tree = self.ask("goog/cdp/execute", command).await;
        let nodes = tree["nodes"].as_array().expect("a tree").iter();
        let shown = nodes.filter(|node| node["ignored"] == false);
        let text = |value: &Value| value["value"].as_str().unwrap_or_default().to_owned();
        shown.map(|node| (text(&node["role"]), text(&node["name"]))).collect()
    }

    pub(crate) async fn open(&self, url: &str) {
        self.client.goto(url).await.expect("it opens the page");
    }

    /// Presses keys on the focused element.
    pub(crate) async fn press(&self, key: Key) {
        // The element itself may be replaced meanwhile.
        let value = char::from(key);
        let keys = KeyActions::new("keyboard".to_owned());
        let keys = keys.then(KeyAction::Down { value }).then(KeyAction::Up { value });
        self.client.perform_actions(keys).await.expect("it can be pressed");
    }

    /// Clicks an element, holding the button for this duration.
    pub(crate) async fn click_for(&self, selector: &str, duration: Duration) {
        let element = self.client.wait().at_most(SOON).for_element(Locator::Css(selector)).await;
        let (x, y) = (0.0, 0.0);
        let at = PointerAction::MoveToElement {
            element: element.expect("it is there"),
            duration: None,
            x,
            y,
        };
        let mouse = MouseActions::new("mouse".to_owned())
            .then(at)
            .then(PointerAction::Down { button: MOUSE_BUTTON_LEFT })
            .pause(duration)
            .then(PointerAction::Up { button: MOUSE_BUTTON_LEFT });
        self.client.perform_actions(mouse).await.expect("it can be clicked");
    }

    /// Clicks a recently clicked element again without a double click: clicks elsewhere in between.
    pub(crate) async fn click_again(&self, selector: &str) {
        self.click("h1").await;
        self.click(selector).await;
    }

    /// Clicks an element twice, as fast as a mouse does.
    pub(crate) async fn double_click(&self, selector: &str) {
        let element = self.client.wait().at_most(SOON).for_element(Locator::Css(selector)).await;
        let (x, y) = (0.0, 0.0);
        let element = element.expect("it is there");
        let at = PointerAction::MoveToElement { element, duration: None, x, y };
        let mut mouse = MouseActions::new("mouse".to_owned()).then(at);
        for _ in 0..2 {
            mouse = mouse.then(PointerAction::Down { button: MOUSE_BUTTON_LEFT });
            mouse = mouse.then(PointerAction::Up { button: MOUSE_BUTTON_LEFT });
        }
        self.client.perform_actions(mouse).await.expect("it can be clicked");
    }

    /// Presses Tab until an element with this id or text has the focus.
    pub(crate) async fn tab_to(&self, part: &str) {
        let mut seen = Vec::new();
        for _ in 0..40 {
            self.press(Key::Tab).await;
            let focused = self.focused().await;
            if focused == part {
                return;
            }
            seen.push(focused);
        }
        panic!("the keyboard does not reach {part:?}: {seen:?}");
    }

    /// Returns the focused element's id, or its text without an id.
    pub(crate) async fn focused(&self) -> String {
        let part = "document.activeElement";
        let mut named = self.strings(&format!("[{part}.id || {part}.textContent.trim()]")).await;
        named.pop().unwrap_or_default()
    }

    /// Returns the console's errors and warnings, including everything the browser failed to load
    /// or blocked.
    async fn errors(&self) -> Vec<String> {
        let log = self.ask("se/log", json!({ "type": "browser" })).await;
        let log = log.as_array().expect("it has a log");
        let bad =
            log.iter().filter(|entry| entry["level"] == "SEVERE" || entry["level"] == "WARNING");
        bad.map(|entry| entry["message"].as_str().unwrap_or_default().to_owned()).collect()
    }

    pub(crate) async fn assert_no_errors(&self) {
        assert_eq!(self.errors().await, Vec::<String>::new());
    }
}
