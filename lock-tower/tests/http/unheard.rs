//! The reason for a 500 is on stderr if no `tracing` subscriber is set.

use std::process::Command;

use http::Request;
use http_body_util::Empty;
use lock_tower::{LockError, RequestLocks};

const CHILD: &str = "LOCK_TOWER_TEST_UNHEARD";
const ITSELF: &str = "unheard::the_reason_of_a_500_is_on_stderr_once_if_no_subscriber_is_set";

/// Runs in a separate program: makes a refusal's response twice, without a layer.
fn child(subscriber: &str) {
    if subscriber == "set" {
        let _ = tracing::subscriber::set_global_default(tracing::subscriber::NoSubscriber::new());
    }
    let request = Request::new(Empty::<bytes::Bytes>::new());
    for _ in 0..2 {
        let error: LockError =
            RequestLocks::of(request.extensions()).expect_err("no layer is there");
        assert_eq!(error.to_response().status(), 500);
    }
}

#[test]
fn the_reason_of_a_500_is_on_stderr_once_if_no_subscriber_is_set() {
    if let Ok(subscriber) = std::env::var(CHILD) {
        return child(&subscriber);
    }
    for (subscriber, times) in [("none", 1), ("set", 0)] {
        let mut itself = Command::new(std::env::current_exe().unwrap());
        itself.args([ITSELF, "--exact", "--nocapture"]).env(CHILD, subscriber);
        let output = itself.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let said = String::from_utf8(output.stderr).unwrap();
        let lines = said.lines().filter(|line| line.contains("LockScopeLayer"));
        assert_eq!(lines.count(), times, "{subscriber}: {said}");
    }
}
