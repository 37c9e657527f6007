//! The purchase body, read and checked before the buyer joins the queue.

use std::time::Duration;

use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::extract::{FromRequest, Request};
use http::StatusCode;
use lock_idempotency::Attempt;
use serde::Deserialize;
use tokio::time::{Instant, timeout};

use crate::flags::MAX_PAY;
use crate::office::Office;
use crate::problem::Problem;

/// The maximum size of an order, in bytes.
pub(crate) const MAX_BYTES: usize = 16 << 10;

/// The maximum length of a buyer's name, in characters.
const MAX_NAME: usize = 40;

/// The maximum time for an order to arrive. A slower client only keeps a connection busy.
const BODY: Duration = Duration::from_secs(10);

#[derive(Deserialize)]
struct Body {
    buyer: String,
    pay_ms: Option<u64>,
}

/// An order for a seat: the buyer's name, and the length of the payment.
#[derive(Debug, Clone)]
pub(crate) struct Order {
    pub(crate) buyer: String,
    pub(crate) pay: Duration,
    /// The record of the order's idempotency key; `None` without a key. A sale is stored with it,
    /// so that another attempt at the same purchase finds its own sale.
    pub(crate) purchase: Option<String>,
    /// When the order had arrived. The wait shown to the buyer begins then.
    pub(crate) asked: Instant,
}

impl FromRequest<Office> for Order {
    type Rejection = Problem;

    async fn from_request(request: Request, office: &Office) -> Result<Self, Problem> {
        let attempt = request.extensions().get::<Attempt>();
        let purchase = attempt.map(|attempt| attempt.record_key().to_string());
        let body = match timeout(BODY, Json::<Body>::from_request(request, office)).await {
            Ok(Ok(Json(body))) => body,
            Ok(Err(rejection)) => return Err(unreadable(&rejection)),
            Err(_) => {
                let detail = "The order did not arrive in time.";
                return Err(Problem::new(StatusCode::REQUEST_TIMEOUT, "order-late", detail));
            }
        };
        let pay = pay(body.pay_ms, office.pay);
        Ok(Self { buyer: name(&body.buyer)?, pay, purchase, asked: Instant::now() })
    }
}

/// Returns the refusal of an order that cannot be read: 413 if it is too large, 415 for a wrong
/// content type, and 422 for all other errors.
fn unreadable(rejection: &JsonRejection) -> Problem {
    match rejection.status() {
        StatusCode::BAD_REQUEST => Problem::bad_order(rejection.body_text()),
        status => Problem::new(status, "order-invalid", rejection.body_text()),
    }
}

/// Returns the length of the payment: as requested or, if nothing is requested, `usual`. It is at
/// most [`MAX_PAY`], because others wait.
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
