//! Server-sent events, as a client reads them from a socket.

use reqwest::{RequestBuilder, Response};
use serde_json::Value;
use tokio::time::timeout;

use crate::office::SOON;

/// An event stream. Dropping it closes the connection.
pub(crate) struct Events {
    response: Response,
    unread: String,
}

impl Events {
    pub(crate) async fn of(request: RequestBuilder) -> Self {
        let response = request.send().await.expect("it answers");
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Self { response, unread: String::new() }
    }

    /// Returns the name and the data of the next event; `None` at the end.
    pub(crate) async fn next(&mut self) -> Option<(String, Value)> {
        loop {
            while let Some((event, rest)) = self.unread.split_once("\n\n") {
                let field = |name: &str| {
                    let value = event.lines().find_map(|line| line.strip_prefix(name));
                    value.map(|value| value.trim_start().to_owned())
                };
                let (name, data) = (field("event:"), field("data:"));
                self.unread = rest.to_owned();
                // Other events are keep-alives.
                if let Some((name, data)) = name.zip(data) {
                    return Some((name, serde_json::from_str(&data).expect("it is JSON")));
                }
            }
            let chunk = timeout(SOON, self.response.chunk()).await.expect("an event comes");
            let chunk = chunk.expect("it can be read")?;
            self.unread.push_str(std::str::from_utf8(&chunk).expect("it is text"));
        }
    }

    /// Asserts the name of the next event, and returns its data.
    pub(crate) async fn expect(&mut self, name: &str) -> Value {
        let event = self.next().await.expect("it has not ended");
        assert_eq!(event.0, name, "{event:?}");
        event.1
    }
}
