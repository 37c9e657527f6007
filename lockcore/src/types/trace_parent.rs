//! [`TraceParent`], a trace context as text.

use std::fmt;
use std::str::FromStr;

use proto::{ConfigError, Label};

/// The trace id and span id of a request, as in the header `traceparent` of [W3C Trace
/// Context](https://www.w3.org/TR/trace-context/#traceparent-header), version 00: 55 characters.
///
/// Used as a [label](crate::LockRequest::label), it shows waiters which request holds the lock: see
/// [`guide::observability`](crate::guide::observability#the-request-that-holds-the-lock).
///
/// ```
/// # fn example() -> Result<(), lockcore::LockError> {
/// use lockcore::TraceParent;
///
/// let context: TraceParent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".parse()?;
/// let locks = lockcore::Locks::in_memory();
/// let acquire = locks.key("order:42").label(&context).lock();
/// # drop(acquire);
/// assert!("00-0AF7651916CD43DD8448EB211C80319C-B7AD6B7169203331-01".parse::<TraceParent>().is_err());
/// # Ok(())
/// # }
/// # tokio::runtime::Runtime::new().unwrap().block_on(async { example() }).unwrap();
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TraceParent(Box<str>);

/// Parses the value of a `traceparent` header.
///
/// # Errors
/// [`ConfigError`] unless the text is `00-`, a trace id of 32, a span id of 16 and flags of 2
/// hexadecimal digits, separated by `-`. Only lower-case digits and non-zero ids are allowed. Later
/// versions are refused, too.
impl FromStr for TraceParent {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        match is_valid(text) {
            true => Ok(Self(text.into())),
            false => {
                let range = "00-TRACE-SPAN-FLAGS with 32, 16 and 2 lower-case hexadecimal digits, \
                    and nonzero ids";
                Err(ConfigError::new("traceparent", Label::new(text).as_str(), range))
            }
        }
    }
}

fn is_valid(text: &str) -> bool {
    let is_hex = |part: &str, digits| {
        part.len() == digits && part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    };
    let is_id = |part: &str, digits| is_hex(part, digits) && part.bytes().any(|byte| byte != b'0');
    let mut parts = text.split('-');
    let [version, trace, span, flags] = [(); 4].map(|()| parts.next().unwrap_or_default());
    version == "00"
        && is_id(trace, 32)
        && is_id(span, 16)
        && is_hex(flags, 2)
        && parts.next().is_none()
}

impl AsRef<str> for TraceParent {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn a_text_that_is_not_of_the_specification_is_refused_with_its_form() {
        assert_eq!(GOOD.len(), 55);
        for good in [GOOD.to_owned(), GOOD.replace("-01", "-00"), GOOD.replace("-01", "-ff")] {
            assert_eq!(good.parse::<TraceParent>().map(|read| read.to_string()), Ok(good));
        }
        let bad = [
            String::new(),
            GOOD[..54].to_owned(),
            format!("{GOOD}0"),
            format!("{GOOD}-"),
            format!("{GOOD}-00"),
            format!(" {GOOD}"),
            GOOD.to_uppercase(),
            GOOD.replace('f', "F"),
            GOOD.replace('f', "g"),
            GOOD.replace('f', "é"),
            GOOD.replace('-', "_"),
            GOOD.replacen("00", "01", 1),
            GOOD.replacen("00", "ff", 1),
            GOOD.replace("0af7651916cd43dd8448eb211c80319c", &"0".repeat(32)),
            GOOD.replace("b7ad6b7169203331", &"0".repeat(16)),
            // As long as a good one, with a part that is too long.
            "00-0af7651916cd43dd8448eb211c80319-cb7ad6b7169203331-01".to_owned(),
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b71692033310-1".to_owned(),
            "0-00af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".to_owned(),
        ];
        for bad in bad {
            let error = bad.parse::<TraceParent>().expect_err(&bad);
            assert_eq!(error.option(), "traceparent");
            assert!(error.to_string().contains("00-TRACE-SPAN-FLAGS"), "{error}");
        }
    }

    #[test]
    fn an_error_shows_a_part_of_the_text_in_one_line() {
        let error = format!("{}\n{}", "x".repeat(20), "y".repeat(10_000));
        let error = error.parse::<TraceParent>().expect_err("no trace context").to_string();
        assert!(error.len() < 250 && error.contains(&"x".repeat(20)), "{error}");
        assert!(!error.contains('\n'), "{error}");
    }
}
