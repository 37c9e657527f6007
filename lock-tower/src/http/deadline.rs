//! The caller's deadline, read from the request.

use std::time::Duration;

use http::{Extensions, HeaderMap, HeaderName};
use tokio::time::Instant;

/// The caller's deadline, in the request's extensions: for an outer layer that knows the deadline.
/// [`DeadlineSource::Extension`] makes the lock layer look for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deadline(pub Instant);

/// Where a request states how long its caller will wait: a header or an extension. A missing or
/// malformed value is ignored.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeadlineSource {
    /// `grpc-timeout` in gRPC format: `100m` is 100 ms.
    GrpcTimeout,
    /// `x-envoy-expected-rq-timeout-ms`, added by Envoy to forwarded requests.
    Envoy,
    /// A header with whole milliseconds, as 1 to 8 digits. Other values are ignored.
    Header(HeaderName),
    /// A [`Deadline`] in the request's extensions.
    Extension,
}

impl DeadlineSource {
    fn deadline(&self, headers: &HeaderMap, extensions: &Extensions) -> Option<Instant> {
        let value = |name: &HeaderName| headers.get(name)?.to_str().ok();
        let left = match self {
            Self::GrpcTimeout => grpc_timeout(headers.get("grpc-timeout")?.to_str().ok()?)?,
            Self::Envoy => millis(headers.get("x-envoy-expected-rq-timeout-ms")?.to_str().ok()?)?,
            Self::Header(name) => millis(value(name)?)?,
            Self::Extension => return extensions.get::<Deadline>().map(|deadline| deadline.0),
        };
        Instant::now().checked_add(left)
    }
}

/// A layer's deadline sources, and the time reserved for handlers.
#[derive(Debug, Clone, Default)]
pub(crate) struct Deadlines {
    pub(crate) sources: Vec<DeadlineSource>,
    pub(crate) reserve: Duration,
}

impl Deadlines {
    /// Returns the time until which a request may wait, if the caller has a deadline: the earliest
    /// deadline, less the reserve.
    pub(crate) fn of(&self, headers: &HeaderMap, extensions: &Extensions) -> Option<Instant> {
        let deadlines = self.sources.iter().map(|source| source.deadline(headers, extensions));
        let deadline = deadlines.flatten().min()?;
        Some(deadline.checked_sub(self.reserve).unwrap_or_else(Instant::now))
    }
}

fn millis(text: &str) -> Option<Duration> {
    digits(text).map(Duration::from_millis)
}

/// A number of up to eight digits: about 28 hours in milliseconds, and the maximum of gRPC.
fn digits(text: &str) -> Option<u64> {
    let is_number = (1..=8).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().ok()).flatten()
}

fn grpc_timeout(text: &str) -> Option<Duration> {
    let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let number = digits(number)?;
    Some(match unit {
        "H" => Duration::from_secs(number * 3_600),
        "M" => Duration::from_secs(number * 60),
        "S" => Duration::from_secs(number),
        "m" => Duration::from_millis(number),
        "u" => Duration::from_micros(number),
        "n" => Duration::from_nanos(number),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_of_grpc_has_up_to_eight_digits_and_a_unit() {
        let cases = [
            ("1H", Some(Duration::from_secs(3_600))),
            ("2M", Some(Duration::from_secs(120))),
            ("3S", Some(Duration::from_secs(3))),
            ("100m", Some(Duration::from_millis(100))),
            ("5u", Some(Duration::from_micros(5))),
            ("7n", Some(Duration::from_nanos(7))),
            ("99999999H", Some(Duration::from_secs(99_999_999 * 3_600))),
            ("0m", Some(Duration::ZERO)),
            ("999999999m", None),
            ("", None),
            ("m", None),
            ("1", None),
            ("1 m", None),
            ("-1m", None),
            ("+1m", None),
            ("1.5S", None),
            ("1s", None),
            ("1é", None),
        ];
        for (text, timeout) in cases {
            assert_eq!(grpc_timeout(text), timeout, "{text:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_earliest_deadline_counts_less_the_reserve() {
        let ms = Duration::from_millis;
        let header = HeaderName::from_static("x-budget-ms");
        let sources = vec![
            DeadlineSource::GrpcTimeout,
            DeadlineSource::Envoy,
            DeadlineSource::Header(header),
            DeadlineSource::Extension,
        ];
        let deadlines = Deadlines { sources, reserve: ms(50) };
        let (mut headers, mut extensions) = (HeaderMap::new(), Extensions::new());
        let left = |headers: &HeaderMap, extensions: &Extensions| {
            let until = deadlines.of(headers, extensions)?;
            Some(until.saturating_duration_since(Instant::now()))
        };
        assert_eq!(left(&headers, &extensions), None);
        headers.insert("grpc-timeout", "4S".parse().unwrap());
        assert_eq!(left(&headers, &extensions), Some(ms(3_950)));
        headers.insert("x-envoy-expected-rq-timeout-ms", "3000".parse().unwrap());
        assert_eq!(left(&headers, &extensions), Some(ms(2_950)));
        headers.insert("x-budget-ms", "2000".parse().unwrap());
        assert_eq!(left(&headers, &extensions), Some(ms(1_950)));
        extensions.insert(Deadline(Instant::now() + ms(1_000)));
        assert_eq!(left(&headers, &extensions), Some(ms(950)));
        headers.insert("x-budget-ms", "10".parse().unwrap());
        assert_eq!(left(&headers, &extensions), Some(ms(0)));
        headers.insert("x-budget-ms", "soon".parse().unwrap());
        assert_eq!(left(&headers, &extensions), Some(ms(950)), "it tells nothing");
    }
}
