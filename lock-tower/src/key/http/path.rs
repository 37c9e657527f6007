//! A key from the request's path, in one spelling.

use std::fmt;

use http::{Extensions, Request, Uri};

use crate::key::{ExtractKey, KeyError, Keys};

/// The path of the request, in its [canonical](canonical_path) spelling: `/orders/42` and
/// `/orders/4%32` are one key.
///
/// Without that, a client could run beside a lock by spelling the path differently. The query is
/// not part of it. If your routes fold more than that (upper and lower case, say), fold the key
/// too, with a closure.
///
/// A router that strips a prefix shows the layers inside only the rest: two nested routers would
/// share the key `/42`. Tell where the whole path is, or use a
/// [prefix](crate::ExtractKeyExt::prefix) for each:
///
/// ```
/// # #[derive(Clone)] struct OriginalUri(http::Uri); // axum::extract::OriginalUri
/// use lock_tower::{ByPath, ExtractKey};
///
/// let extractor = ByPath::new().original(|extensions| Some(&extensions.get::<OriginalUri>()?.0));
/// let mut request = http::Request::builder().uri("/42").body(()).unwrap();
/// request.extensions_mut().insert(OriginalUri("/orders/42".parse().unwrap()));
/// let keys = extractor.extract_key(&request).unwrap().unwrap();
/// assert_eq!(keys.names().collect::<Vec<_>>(), ["/orders/42"]);
/// ```
#[derive(Clone, Default)]
pub struct ByPath {
    original: Option<fn(&Extensions) -> Option<&Uri>>,
}

impl ByPath {
    /// The path that the layer sees.
    pub fn new() -> Self {
        Self::default()
    }

    /// The path of the URI that `original` finds in the extensions; that which the layer sees, if
    /// it finds none.
    pub fn original(mut self, original: fn(&Extensions) -> Option<&Uri>) -> Self {
        self.original = Some(original);
        self
    }
}

impl<B> ExtractKey<Request<B>> for ByPath {
    fn extract_key(&self, request: &Request<B>) -> Result<Option<Keys>, KeyError> {
        let original = self.original.and_then(|find| find(request.extensions()));
        let uri = original.unwrap_or_else(|| request.uri());
        canonical_path(uri.path()).map(|path| Some(Keys::one(path)))
    }
}

impl fmt::Debug for ByPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ByPath").field("original", &self.original.map(|_| "..")).finish()
    }
}

/// The one spelling of a path.
///
/// Percent-encoding is undone, except for the slash and the percent sign, which would change the
/// meaning (`%2F`, `%25`); a slash at the end is dropped.
///
/// # Errors
/// [`KeyError`] for what servers read in different ways: an incomplete percent-encoding, bytes that
/// are not UTF-8, empty segments (`//`), the segments `.` and `..`, however they and their slashes
/// are encoded (`x%2F..%2Fb`), and a path that is empty.
///
/// ```
/// use lock_tower::canonical_path;
///
/// assert_eq!(canonical_path("/orders/4%32").unwrap(), "/orders/42");
/// assert_eq!(canonical_path("/orders/42/").unwrap(), "/orders/42");
/// assert_eq!(canonical_path("/files/a%2fb").unwrap(), "/files/a%2Fb");
/// assert!(canonical_path("/orders/%2e%2E/7").is_err());
/// assert!(canonical_path("/orders/x%2F..%2F7").is_err());
/// ```
pub fn canonical_path(path: &str) -> Result<String, KeyError> {
    let mut canonical = Vec::with_capacity(path.len());
    let mut bytes = path.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            canonical.push(byte);
            continue;
        }
        let digits = bytes.next().and_then(digit).zip(bytes.next().and_then(digit));
        match digits.map(|(high, low)| high * 16 + low) {
            Some(b'/') => canonical.extend_from_slice(b"%2F"),
            Some(b'%') => canonical.extend_from_slice(b"%25"),
            Some(decoded) => canonical.push(decoded),
            None => return Err(KeyError::new("the path has an incomplete percent-encoding")),
        }
    }
    let mut canonical =
        String::from_utf8(canonical).map_err(|_| KeyError::new("the path is not UTF-8"))?;
    let is_root = canonical == "/";
    if !is_root && canonical.ends_with('/') {
        canonical.pop();
    }
    let inner = canonical.strip_prefix('/').unwrap_or(&canonical);
    // A server behind us may take an encoded slash for one.
    let has_dots = |segment: &str| segment.split("%2F").any(|part| matches!(part, "." | ".."));
    if !is_root && inner.split('/').any(|segment| segment.is_empty() || has_dots(segment)) {
        return Err(KeyError::new("the path has an empty segment or one of dots"));
    }
    Ok(canonical)
}

fn digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).map(|digit| digit as u8)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn spellings_of_one_path_are_one_key_or_refused() {
        let spellings =
            ["/orders/42", "/orders/4%32", "/%6frders/42", "/%6Frders/%34%32", "/orders/42/"];
        for spelling in spellings {
            assert_eq!(canonical_path(spelling).unwrap(), "/orders/42", "{spelling}");
        }
        let refused = [
            "//",
            "//orders/42",
            "/orders//42",
            "/orders/42//",
            "/orders/./42",
            "/a/../orders/42",
            "/a/%2e%2e/orders/42",
            "/a/.%2E/orders/42",
            "/orders/..",
            "/orders/4%3",
            "/orders/4%",
            "/orders/4%zz",
            "/orders/%ff",
            "/files/x%2F..%2Fb",
            "/files/..%2fb",
            "/files/x%2f%2e",
            "/files/%2E%2e%2F",
            "",
        ];
        for spelling in refused {
            assert!(canonical_path(spelling).is_err(), "{spelling}");
        }
    }

    #[test]
    fn different_paths_stay_different() {
        let paths = [
            "/",
            "/a/b",
            "/a%2Fb",
            "/http:%2F%2Fa",
            "/a%2F",
            "/a..%2Fb",
            "/a%252Fb",
            "/a%25b",
            "/A/b",
            "/a+b",
            "/a%20b",
            "/ä",
        ];
        let keys: std::collections::BTreeSet<_> =
            paths.iter().map(|path| canonical_path(path).unwrap()).collect();
        assert_eq!(keys.len(), paths.len());
        assert_eq!(canonical_path("/%C3%A4").unwrap(), canonical_path("/ä").unwrap());
        assert_eq!(canonical_path("/a%2fb").unwrap(), canonical_path("/a%2Fb").unwrap());
    }
}
