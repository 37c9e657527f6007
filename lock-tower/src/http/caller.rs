//! What a request says about its caller: deadline and trace.

use http::HeaderMap;
use lockcore::TraceParent;
use tokio::time::Instant;

use crate::key::Keys;

/// The caller's deadline and trace context, as read from a request.
#[derive(Debug)]
pub(crate) struct Caller {
    /// When each wait of the request ends at the latest; `None` if the caller states no deadline.
    pub(crate) deadline: Option<Instant>,
    /// The caller's trace context, used as the label of the request's locks instead of the layer's
    /// label; `None` if the layer ignores it, or the request states none.
    pub(crate) trace: Option<TraceParent>,
}

impl Caller {
    /// Sets the deadline of the wait for these keys, and the trace as their label if they have
    /// none.
    pub(crate) fn apply(&self, keys: Keys) -> Keys {
        let keys = match self.deadline {
            Some(deadline) => keys.wait_until(deadline),
            None => keys,
        };
        match &self.trace {
            Some(trace) => keys.label_if_none(trace.as_ref()),
            None => keys,
        }
    }
}

/// Returns the trace context, with the ids of the caller's trace and span, from the header
/// `traceparent`; `None` if the header is missing, invalid or repeated.
pub(crate) fn trace_parent(headers: &HeaderMap) -> Option<TraceParent> {
    let mut values = headers.get_all("traceparent").iter();
    let (value, None) = (values.next()?, values.next()) else { return None };
    value.to_str().ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn one_header_by_the_specification_is_a_trace_context_and_any_other_is_ignored() {
        let good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let read = |values: &[&[u8]]| {
            let values = values.iter().map(|value| HeaderValue::from_bytes(value));
            let name = http::HeaderName::from_static("traceparent");
            let headers: HeaderMap =
                values.map(|value| (name.clone(), value.expect("a header's value"))).collect();
            trace_parent(&headers).map(|read| read.to_string())
        };
        assert_eq!(read(&[good.as_bytes()]).as_deref(), Some(good));
        assert_eq!(read(&[]), None);
        assert_eq!(read(&[good.to_uppercase().as_bytes()]), None);
        assert_eq!(read(&[b"checkout\xff"]), None);
        assert_eq!(read(&[good.as_bytes(), good.as_bytes()]), None, "which of them is unknown");
    }
}
