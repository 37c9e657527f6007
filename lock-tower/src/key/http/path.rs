//! An extractor for a key from the request path, in canonical spelling.

use std::fmt;

use http::{Extensions, Request, Uri};

use crate::key::{ExtractKey, KeyError, Keys};

/// An extractor whose key is the request path in [canonical](canonical_path) spelling: `/orders/42`
/// and `/orders/4%32` are the same key. The query is not part of the key.
///
/// The whole path is the name: `/orders/42/pay` and `/orders/42/ship` are two locks. To serve all
/// requests for an order one at a time, name the order: by a closure, or `lock_by` of lock-axum.
///
/// A handler that parses a path segment accepts several texts for the same value. If the key were
/// the text itself, each spelling would be a separate lock, and a client could choose among them. A
/// path of more than 512 bytes, with its prefixes, is refused (400). So:
///
/// - **Numbers** have one spelling. `/orders/07`, `/orders/+7` and `/orders/-0` are refused with
///   400 and the code `lock-key-spelling`. [`verbatim`](Self::verbatim) allows them, for paths
///   whose segments no handler parses as numbers, such as article numbers with leading zeros.
/// - **UUIDs** in all spellings (upper case, without hyphens, in braces, `urn:uuid:`) are the same
///   key.
/// - Everything else that a handler may treat as equal stays distinct: upper and lower case in
///   names, decimals (`1.0` and `1.00`), dates, parameters after a `;`. If a handler parses such a
///   part, make the key from the parsed value: with a closure, or with `lock_by` or
///   `Locked<Path<_>>` of lock-axum.
/// - **Routes with a wildcard**, such as axum's `/files/{*path}`, match encoded slashes as well as
///   plain ones, and decode both: `/files/a/b` and `/files/a%2Fb` give the handler the same
///   parameter, but are two keys. A client could choose, so make the key from the parameter, as
///   above.
///
/// A router that strips a path prefix shows inner layers only the rest of the path, so two nested
/// routers would share the key `/42`. Set where the whole path is found, with
/// [`original`](Self::original), or use a different [prefix](crate::ExtractKeyExt::prefix) in each
/// router:
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
#[must_use = "an extractor does nothing until it is given to a layer"]
pub struct ByPath {
    original: Option<fn(&Extensions) -> Option<&Uri>>,
    is_verbatim: bool,
}

impl ByPath {
    /// Creates an extractor for the path of the request's URI, as it reaches the layer. Behind a
    /// router that strips a path prefix, also set [`original`](Self::original).
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the function that finds the URI with the whole path in the request's extensions, such
    /// as axum's `OriginalUri`. The key is then the path of this URI. If the function returns
    /// `None`, the key is the path of the request's own URI.
    pub fn original(mut self, original: fn(&Extensions) -> Option<&Uri>) -> Self {
        self.original = Some(original);
        self
    }

    /// Keeps numbers and UUIDs as they are written: `/parts/007` and `/parts/7` are two keys.
    ///
    /// Use this option only if no handler parses numbers or UUIDs from the path. Otherwise a client
    /// can bypass the lock with another spelling.
    ///
    /// ```
    /// use lock_tower::{ByPath, ExtractKey};
    ///
    /// let request = http::Request::builder().uri("/parts/007").body(()).unwrap();
    /// assert!(ByPath::new().extract_key(&request).is_err());
    /// let keys = ByPath::new().verbatim().extract_key(&request).unwrap().unwrap();
    /// assert_eq!(keys.names().collect::<Vec<_>>(), ["/parts/007"]);
    /// ```
    pub fn verbatim(mut self) -> Self {
        self.is_verbatim = true;
        self
    }
}

impl<B> ExtractKey<Request<B>> for ByPath {
    fn extract_key(&self, request: &Request<B>) -> Result<Option<Keys>, KeyError> {
        let original = self.original.and_then(|find| find(request.extensions()));
        let uri = original.unwrap_or_else(|| request.uri());
        let path = match self.is_verbatim {
            true => decoded_path(uri.path()),
            false => canonical_path(uri.path()),
        };
        path.map(|path| Some(Keys::one(path)))
    }
}

impl fmt::Debug for ByPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ByPath")
            .field("original", &self.original.map(|_| ".."))
            .field("is_verbatim", &self.is_verbatim)
            .finish()
    }
}

/// Returns the canonical spelling of a path, as [`ByPath`] uses it for keys.
///
/// Percent-encoding is decoded, except for the slash and the percent sign (`%2F`, `%25`), where
/// decoding would change the meaning. A trailing slash is removed. A UUID segment, in any spelling,
/// becomes lower case with hyphens.
///
/// # Errors
/// A [`KeyError`] for paths that servers and handlers interpret differently:
/// - an incomplete percent-encoding, invalid UTF-8, and an empty path;
/// - empty segments (`//`), the segments `.` and `..`, and the same parts between encoded slashes
///   or backslashes (`x%2F..%2Fb`, `x%2F%2Fb`, `x%5C..%5Cb`);
/// - a numeric segment with a plus sign, with a leading zero, or `-0`, with the code
///   `lock-key-spelling`. A UUID of 32 decimal digits with a leading zero is such a number.
///
/// ```
/// use lock_tower::key::canonical_path;
///
/// assert_eq!(canonical_path("/orders/4%32").unwrap(), "/orders/42");
/// assert_eq!(canonical_path("/orders/42/").unwrap(), "/orders/42");
/// assert_eq!(canonical_path("/files/a%2fb").unwrap(), "/files/a%2Fb");
/// assert_eq!(
///     canonical_path("/jobs/67E5504410B1426F9247BB680E5FE0C8").unwrap(),
///     "/jobs/67e55044-10b1-426f-9247-bb680e5fe0c8",
/// );
/// assert!(canonical_path("/orders/%2e%2E/7").is_err());
/// assert!(canonical_path("/orders/x%2F..%2F7").is_err());
/// assert!(canonical_path("/orders/07").is_err());
/// ```
pub fn canonical_path(path: &str) -> Result<String, KeyError> {
    match is_surely_canonical(path) {
        true => Ok(path.to_owned()),
        false => respelled(path),
    }
}

/// Returns true if the path is surely canonical, as most paths are. This fast check scans the bytes
/// once; if it returns false, the path may still be canonical.
fn is_surely_canonical(path: &str) -> bool {
    let is_plain = |segment: &[u8]| {
        // A UUID has at least 32 characters.
        segment.len() < 32
            && !matches!(segment, [] | [b'.' | b'+' | b'-' | b'0', ..])
            && !segment.iter().any(|byte| matches!(byte, b'%' | b'\\'))
    };
    let segments = path.as_bytes().strip_prefix(b"/");
    segments.is_some_and(|segments| segments.split(|byte| *byte == b'/').all(is_plain))
}

/// Returns the canonical spelling of a path for which [`is_surely_canonical`] returns false.
///
/// # Errors
/// A [`KeyError`] for the paths that [`canonical_path`] refuses.
fn respelled(path: &str) -> Result<String, KeyError> {
    let mut path = decoded_path(path)?;
    if path.split('/').any(is_odd_number) {
        return Err(KeyError::spelling(
            "a number in the path has a plus sign, a leading zero or a zero with a minus sign: \
             write the number without it",
        ));
    }
    if path.split('/').any(|segment| uuid(segment).is_some()) {
        let each = path.split('/').map(|segment| uuid(segment).unwrap_or_else(|| segment.into()));
        path = each.collect::<Vec<_>>().join("/");
    }
    Ok(path)
}

/// Decodes the percent-encoding of a path, except for `%2F` and `%25`, where decoding changes the
/// meaning. Removes a trailing slash.
///
/// # Errors
/// A [`KeyError`] for an incomplete percent-encoding, invalid UTF-8, and empty or dot segments.
fn decoded_path(path: &str) -> Result<String, KeyError> {
    let mut decoded = Vec::with_capacity(path.len());
    let mut bytes = path.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            decoded.push(byte);
            continue;
        }
        let digits = bytes.next().and_then(digit).zip(bytes.next().and_then(digit));
        match digits.map(|(high, low)| high * 16 + low) {
            Some(b'/') => decoded.extend_from_slice(b"%2F"),
            Some(b'%') => decoded.extend_from_slice(b"%25"),
            Some(byte) => decoded.push(byte),
            None => return Err(KeyError::new("the path has an incomplete percent-encoding")),
        }
    }
    let mut path =
        String::from_utf8(decoded).map_err(|_| KeyError::new("the path is not UTF-8"))?;
    if path == "/" {
        return Ok(path);
    }
    if path.ends_with('/') {
        path.pop();
    }
    // A backend server may interpret an encoded slash or a backslash as a slash.
    let is_folded = |part: &str| matches!(part, "" | "." | "..");
    let has_folded =
        |segment: &str| segment.split("%2F").flat_map(|part| part.split('\\')).any(is_folded);
    if path.strip_prefix('/').unwrap_or(&path).split('/').any(has_folded) {
        return Err(KeyError::new("the path has an empty segment or a dot segment"));
    }
    Ok(path)
}

/// Returns true if the segment is a number with a plus sign or a leading zero, or a zero with a
/// minus sign.
fn is_odd_number(segment: &str) -> bool {
    let digits = segment.strip_prefix(['+', '-']).unwrap_or(segment);
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let has_zero = digits.starts_with('0') && (digits.len() > 1 || segment.starts_with('-'));
    is_number && (segment.starts_with('+') || has_zero)
}

/// Returns the canonical spelling of a segment that is a UUID; `None` for other segments.
fn uuid(segment: &str) -> Option<String> {
    let braced = segment.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
    let named = segment.get(..9).filter(|name| name.eq_ignore_ascii_case("urn:uuid:"));
    let text = braced.or_else(|| named.map(|name| &segment[name.len()..])).unwrap_or(segment);
    let digits: String = match text.len() {
        32 => text.into(),
        36 if [8, 13, 18, 23].iter().all(|at| text.as_bytes()[*at] == b'-') => {
            text.split('-').collect()
        }
        _ => return None,
    };
    if digits.len() != 32 || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let digits = digits.to_ascii_lowercase();
    let part = |range: std::ops::Range<usize>| &digits[range];
    let parts = [part(0..8), part(8..12), part(12..16), part(16..20), part(20..32)];
    Some(parts.join("-"))
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
            "/files/x%2F%2Fb",
            "/files/x%2Fb%2F",
            "/files/%2Fb",
            "/files/x%5C..%5Cb",
            "/files/x\\..\\b",
            "/files/x%5C%5Cb",
            "",
        ];
        for spelling in refused {
            let error = canonical_path(spelling).expect_err(spelling);
            assert!(!error.is_spelling(), "{spelling}");
        }
    }

    // A handler that parses the segment accepts all of these as the same number.
    #[test]
    fn a_number_has_one_spelling_and_all_others_are_refused() {
        let refused = [
            "/orders/07",
            "/orders/+7",
            "/orders/%2B7",
            "/orders/%30%37",
            "/orders/-0",
            "/orders/-07",
            "/orders/00",
            "/orders/+0",
            "/orders/07/pay",
            "/07/orders",
            "/orders/00000000000000000000000000000001",
        ];
        for spelling in refused {
            assert!(canonical_path(spelling).expect_err(spelling).is_spelling(), "{spelling}");
        }
        let kept = [
            "/orders/0",
            "/orders/7",
            "/orders/-5",
            "/orders/70",
            "/orders/0.5",
            "/orders/v07x",
            "/orders/2024-01-07",
            "/orders/+",
            "/orders/-",
            "/orders/+7a",
            "/orders/0x1F",
            "/v1.07/orders",
        ];
        for path in kept {
            assert_eq!(canonical_path(path).unwrap(), path);
        }
    }

    #[test]
    fn all_spellings_of_a_uuid_are_one_key() {
        let one = "67e55044-10b1-426f-9247-bb680e5fe0c8";
        let simple = one.replace('-', "");
        let spellings = [
            one.to_owned(),
            one.to_uppercase(),
            simple.to_uppercase(),
            format!("%7B{one}%7D"),
            format!("{{{}}}", one.to_uppercase()),
            format!("urn:uuid:{one}"),
            format!("URN:UUID:{simple}"),
            simple,
        ];
        for spelling in spellings {
            let path = canonical_path(&format!("/jobs/{spelling}/run")).unwrap();
            assert_eq!(path, format!("/jobs/{one}/run"), "{spelling}");
        }
        for other in [
            "67e55044-10b1-426f-9247-bb680e5fe0c",
            "67e55044-10b1-426f-9247-bb680e5fe0cg",
            "67e5504410b1-426f-9247-bb680e5fe0c8-",
            "urn:uuid:7",
            "{7}",
        ] {
            assert_eq!(canonical_path(&format!("/{other}")).unwrap(), format!("/{other}"));
        }
    }

    #[test]
    fn a_path_that_is_surely_canonical_is_its_own_spelling() {
        let mut paths = vec![String::new()];
        for at in 0.. {
            let Some(path) = paths.get(at).cloned() else { break };
            if path.len() < 6 {
                paths.extend("/.+-07%\\a".chars().map(|next| format!("{path}{next}")));
            }
        }
        let uuid = "67e55044-10b1-426f-9247-bb680e5fe0c8";
        paths.extend([uuid.to_uppercase(), uuid.replace('-', "")].map(|uuid| format!("/{uuid}/")));
        let sure: Vec<_> = paths.iter().filter(|path| is_surely_canonical(path)).collect();
        assert!(sure.contains(&&"/a/7".to_owned()) && sure.len() > 1_000, "{}", sure.len());
        for path in sure {
            assert_eq!(&respelled(path).unwrap(), path);
        }
    }

    #[test]
    fn different_paths_stay_different() {
        let paths = [
            "/",
            "/a/b",
            "/a%2Fb",
            "/http:%2Fa",
            "/a\\b",
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
