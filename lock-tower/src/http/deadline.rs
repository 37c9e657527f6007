//! The caller's deadline, as read from a request.

use std::time::Duration;

use http::request::Parts;
use http::{Extensions, HeaderMap, HeaderName};
use tokio::time::Instant;

/// The time until which the caller waits for the response, in the request's extensions.
///
/// A lock layer puts it there when it has read a deadline from its
/// [sources](crate::HttpLockLayer::deadline_from); if there already is a deadline, the earlier one
/// stays. So a handler that forwards the request knows how much time is left after the wait. The
/// [`handler_reserve`](crate::HttpLockLayer::handler_reserve) is not subtracted. The extension is
/// missing if the caller states no deadline, or if the request passes an `HttpLockLayer` without a
/// lock.
///
/// An outer layer that knows the time can put it there, too: the lock layer looks for it under
/// [`DeadlineSource::Extension`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deadline(pub Instant);

/// When the request came to the outermost layer with sources, in the request's extensions. A header
/// states the time from then on, although inner layers read it only after the wait of that layer.
#[derive(Debug, Clone, Copy)]
struct Arrival(Instant);

/// Where a request states how long its caller waits for the response. A missing or malformed value
/// is ignored. The time in a header runs from the arrival of the request at the outermost lock
/// layer with sources, also for the inner lock layers: between them, no layer should shorten it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeadlineSource {
    /// The header `grpc-timeout` in gRPC format: `100m` is 100 ms.
    GrpcTimeout,
    /// The header `x-envoy-expected-rq-timeout-ms`, with which the proxy Envoy states how many
    /// milliseconds it waits for the response.
    Envoy,
    /// A header that states how long the caller still waits for the response, in whole
    /// milliseconds, as 1 to 8 digits. Other values are ignored.
    Header(HeaderName),
    /// A [`Deadline`] in the request's extensions.
    Extension,
}

impl DeadlineSource {
    /// Returns the deadline that this source states; `None` if there is no valid value.
    fn deadline(&self, headers: &HeaderMap, extensions: &Extensions) -> Option<Instant> {
        let value = |name: &HeaderName| headers.get(name)?.to_str().ok();
        let left = match self {
            Self::GrpcTimeout => grpc_timeout(headers.get("grpc-timeout")?.to_str().ok()?)?,
            Self::Envoy => millis(headers.get("x-envoy-expected-rq-timeout-ms")?.to_str().ok()?)?,
            Self::Header(name) => millis(value(name)?)?,
            Self::Extension => return extensions.get::<Deadline>().map(|deadline| deadline.0),
        };
        let arrival = extensions.get::<Arrival>().map_or_else(Instant::now, |arrival| arrival.0);
        arrival.checked_add(left)
    }
}

/// The sources in which a layer looks for deadlines, and the time reserved for handlers.
#[derive(Debug, Clone, Default)]
pub(crate) struct Deadlines {
    pub(crate) sources: Vec<DeadlineSource>,
    /// How long before the deadline a wait ends, so that the handler has this time left.
    pub(crate) reserve: Duration,
}

impl Deadlines {
    /// Returns the time until which a request may wait: the earliest deadline, less the reserve.
    /// Returns `None` if the request states no deadline. Puts the deadline into the extensions for
    /// inner services, and the arrival of the request unless an outer layer has.
    pub(crate) fn read(&self, parts: &mut Parts) -> Option<Instant> {
        if self.sources.is_empty() {
            return None;
        }
        let Parts { headers, extensions, .. } = parts;
        extensions.get_or_insert_with(|| Arrival(Instant::now()));
        let deadlines = self.sources.iter().map(|source| source.deadline(headers, extensions));
        let deadline = deadlines.flatten().min()?;
        let known = extensions.get_or_insert(Deadline(deadline));
        known.0 = known.0.min(deadline);
        Some(deadline.checked_sub(self.reserve).unwrap_or_else(Instant::now))
    }
}

fn millis(text: &str) -> Option<Duration> {
    digits(text).map(Duration::from_millis)
}

/// Parses a number of 1 to 8 ASCII digits; returns `None` for all other texts. More digits are not
/// allowed in gRPC timeouts. As milliseconds, the maximum is about 28 hours.
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
        let (mut parts, ()) = http::Request::new(()).into_parts();
        // Each time as the first layer that reads the request.
        let left = |parts: &Parts| {
            let until = deadlines.read(&mut parts.clone())?;
            Some(until.saturating_duration_since(Instant::now()))
        };
        assert_eq!(left(&parts), None);
        parts.headers.insert("grpc-timeout", "4S".parse().unwrap());
        assert_eq!(left(&parts), Some(ms(3_950)));
        parts.headers.insert("x-envoy-expected-rq-timeout-ms", "3000".parse().unwrap());
        assert_eq!(left(&parts), Some(ms(2_950)));
        parts.headers.insert("x-budget-ms", "2000".parse().unwrap());
        assert_eq!(left(&parts), Some(ms(1_950)));
        parts.extensions.insert(Deadline(Instant::now() + ms(1_000)));
        assert_eq!(left(&parts), Some(ms(950)));
        parts.headers.insert("x-budget-ms", "10".parse().unwrap());
        assert_eq!(left(&parts), Some(ms(0)));
        parts.headers.insert("x-budget-ms", "soon".parse().unwrap());
        assert_eq!(left(&parts), Some(ms(950)), "it tells nothing");
    }
}
