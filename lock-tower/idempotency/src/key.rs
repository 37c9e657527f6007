//! The idempotency key sent by a client in a header.

use http::{HeaderMap, HeaderName, HeaderValue};

/// The maximum length of an idempotency key in bytes, without quotes.
const MAX_BYTES: usize = 255;

/// An idempotency key without quotes: 1 to 255 visible ASCII characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct IdempotencyKey(pub(crate) String);

/// A sentence for the client that says why a header is not a valid key.
pub(crate) type Invalid = &'static str;

impl IdempotencyKey {
    /// Returns the key from the header with this name. Returns `Ok(None)` without the header, and
    /// `Err` if it is repeated or not a valid key.
    pub(crate) fn of(headers: &HeaderMap, name: &HeaderName) -> Result<Option<Self>, Invalid> {
        let mut values = headers.get_all(name).iter();
        let Some(value) = values.next() else { return Ok(None) };
        match values.next() {
            Some(_) => Err("The request has more than one idempotency key."),
            None => Self::parse(value).map(Some),
        }
    }

    /// Parses a header value: a structured-field string (RFC 9651) such as `"k"`, or the key
    /// without quotes.
    fn parse(value: &HeaderValue) -> Result<Self, Invalid> {
        let text = value.as_bytes().trim_ascii();
        let key = match text.strip_prefix(b"\"") {
            Some(quoted) => unquote(quoted).ok_or("The idempotency key is not a quoted string.")?,
            // Perhaps two headers, because a proxy joins repeated headers with a comma.
            None if text.contains(&b',') => {
                return Err(
                    "The request has two idempotency keys, or a key with a comma: quote the \
                    key.",
                );
            }
            None => text.to_vec(),
        };
        if key.is_empty() {
            return Err("The idempotency key is empty.");
        }
        if key.len() > MAX_BYTES {
            return Err("The idempotency key has more than 255 characters.");
        }
        match String::from_utf8(key) {
            Ok(key) if key.bytes().all(|byte| byte.is_ascii_graphic()) => Ok(Self(key)),
            _ => Err("The idempotency key contains characters other than visible ASCII."),
        }
    }
}

/// Returns the unescaped content of a quoted string. `text` starts after the opening quote. Returns
/// `None` if the closing quote is missing or not at the end, or if an escape is invalid in
/// structured-field strings.
fn unquote(text: &[u8]) -> Option<Vec<u8>> {
    let mut content = Vec::with_capacity(text.len());
    let mut bytes = text.iter();
    loop {
        match bytes.next()? {
            b'"' => return bytes.as_slice().is_empty().then_some(content),
            b'\\' => match bytes.next()? {
                byte @ (b'"' | b'\\') => content.push(*byte),
                _ => return None,
            },
            byte => content.push(*byte),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[&[u8]]) -> Result<Option<String>, Invalid> {
        let name = HeaderName::from_static("idempotency-key");
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(&name, HeaderValue::from_bytes(value).expect("a header's value"));
        }
        IdempotencyKey::of(&headers, &name).map(|key| key.map(|key| key.0))
    }

    #[test]
    fn a_key_is_one_with_and_without_quotes() {
        for (value, key) in [
            ("k", "k"),
            ("\"k\"", "k"),
            (" \"k\"\t", "k"),
            (r#""a\"b\\c""#, r#"a"b\c"#),
            ("\"a,b\"", "a,b"),
            ("8e03978e-40d5-43dd-bc93-6894a57f9324", "8e03978e-40d5-43dd-bc93-6894a57f9324"),
        ] {
            assert_eq!(of(&[value.as_bytes()]), Ok(Some(key.to_owned())), "{value}");
        }
        assert_eq!(of(&[]), Ok(None));
        assert!(of(&[&[b'k'; 255]]).is_ok());
    }

    #[test]
    fn a_header_that_is_no_key_is_refused_with_its_reason() {
        for (value, reason) in [
            ("", "empty"),
            ("\"\"", "empty"),
            ("\"k", "quoted"),
            ("\"k\\x\"", "quoted"),
            ("\"k\";a=1", "quoted"),
            ("\"k\", \"l\"", "quoted"),
            ("k,l", "comma"),
            ("a b", "visible"),
            ("\"a b\"", "visible"),
            ("a\tb", "visible"),
            ("kö", "visible"),
        ] {
            let error = of(&[value.as_bytes()]).expect_err(value);
            assert!(error.contains(reason), "{value}: {error}");
        }
        assert!(of(&[&[b'k'; 256]]).expect_err("long").contains("255"));
        assert!(of(&[b"k", b"k"]).expect_err("two").contains("more than one"));
        assert!(of(&[b"\xff"]).expect_err("no text").contains("visible"));
    }
}
