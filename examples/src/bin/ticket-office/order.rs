//! The purchase body, read and checked before the buyer joins the queue.

use std::time::Duration;

use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::extract::{FromRequest, Request};
use http::StatusCode;
use serde::Deserialize;
use tokio::time::{Instant, timeout};

use crate::flags::MAX_PAY;
use crate::office::Office;
use crate::problem::Problem;

/// Maximum order size in bytes.
pub(crate) const MAX_BYTES: usize = 16 << 10;

/// Maximum name length in characters.
const MAX_NAME: usize = 40;

/// The maximum time for a body to arrive: slower clients only keep a connection busy.
const BODY: Duration = Duration::from_secs(10);

#[derive(Deserialize)]
struct Body {
    buyer: String,
    pay_ms: Option<u64>,
}

/// The buyer, and the payment time.
#[derive(Debug, Clone)]
pub(crate) struct Order {
    pub(crate) buyer: String,
    pub(crate) pay: Duration,
    /// When the order arrived, from which the wait is counted.
    pub(crate) asked: Instant,
}

impl FromRequest<Office> for Order {
    type Rejection = Problem;

    async fn from_request(request: Request, office: &Office) -> Result<Self, Problem> {
        let body = match timeout(BODY, Json::<Body>::from_request(request, office)).await {
            Ok(Ok(Json(body))) => body,
            Ok(Err(rejection)) => return Err(unreadable(&rejection)),
            Err(_) => {
                let detail = "The order did not arrive in time.";
                return Err(Problem::new(StatusCode::REQUEST_TIMEOUT, "order-late", detail));
            }
        };
        let pay = pay(body.pay_ms, office.pay);
        Ok(Self { buyer: name(&body.buyer)?, pay, asked: Instant::now() })
    }
}

/// Returns the refusal for a bad body: an oversized body and a wrong content type have specific
/// statuses, all other errors are 422.
fn unreadable(rejection: &JsonRejection) -> Problem {
    match rejection.status() {
        StatusCode::BAD_REQUEST => Problem::bad_order(rejection.body_text()),
        status => Problem::new(status, "order-invalid", rejection.body_text()),
    }
}

/// Checks the payment length. An excessive length is cut, because others wait.
fn pay(asked_ms: Option<u64>, usual: Duration) -> Duration {
    asked_ms.map_or(usual, Duration::from_millis).min(MAX_PAY)
}

fn name(text: &str) -> Result<String, Problem> {
    let name = text.trim();
    if name.is_empty() {
        return Err(Problem::bad_order("The buyer's name is missing."));
    }
    if name.chars().count() > MAX_NAME {
        let detail = format!("The buyer's name has more than {MAX_NAME} characters.");
        return Err(Problem::bad_order(detail));
    }
    if name.chars().any(char::is_control) {
        return Err(Problem::bad_order("The buyer's name has a control character."));
    }
    Ok(name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payment_is_as_long_as_usual_or_as_asked_but_not_longer_than_the_limit() {
        let usual = Duration::from_secs(3);
        assert_eq!(pay(None, usual), usual);
        assert_eq!(pay(Some(0), usual), Duration::ZERO);
        assert_eq!(pay(Some(u64::MAX), usual), MAX_PAY);
    }

    #[test]
    fn a_name_is_trimmed_and_has_1_to_40_characters() {
        assert_eq!(name("  Ann O’Neill ").unwrap(), "Ann O’Neill");
        assert_eq!(name(&"é".repeat(40)).unwrap(), "é".repeat(40));
        for bad in ["", " \t ", &"é".repeat(41), "two\nlines", "esc\u{1b}[2J"] {
            assert!(name(bad).is_err(), "{bad:?}");
        }
    }
}
