//! HTTP requests: whatever their path and headers hold, a key is one spelling of it or a refusal.

use http::{HeaderValue, Request, Uri};
use lock_tower::key::canonical_path;
use lock_tower::{ByHeader, ByPath, ExtractKey, ExtractKeyExt};
use lockcore::LockKey;

use super::source::Source;

pub(crate) fn check(bytes: &[u8]) {
    let mut source = Source::new(bytes);
    let one = path(&mut source);
    let other = respelled(&one, &mut source);
    one_spelling(&one, &other);
    let header = source.bytes(6);
    let twice = source.below(8) == 0;
    extract(&one, &header, twice);
}

fn path(source: &mut Source<'_>) -> String {
    let text = source.text(8);
    if source.below(8) == 0 { text } else { format!("/{text}") }
}

/// Draws the same path with some characters encoded in other ways, or another path that looks like
/// it.
fn respelled(path: &str, source: &mut Source<'_>) -> String {
    let mut spelled = String::new();
    for c in path.chars() {
        match (c, source.below(4)) {
            (c, 0) if c != '/' && c != '%' => {
                let mut utf8 = [0; 4];
                for byte in c.encode_utf8(&mut utf8).bytes() {
                    spelled.push_str(&format!("%{byte:02x}"));
                }
            }
            (_, 1) if source.below(16) == 0 => {}
            _ => spelled.push(c),
        }
    }
    match source.below(8) {
        0 => spelled + "/",
        1 => spelled.replace("%2F", "%2f"),
        2 => spelled.replace("%2F", "/"),
        3 => spelled.replace("%25", "%"),
        _ => spelled,
    }
}

/// Checks that two paths have one key if, and only if, they are one path: the same decoded
/// segments.
fn one_spelling(one: &str, other: &str) {
    let keys = [one, other].map(|path| {
        let key = canonical_path(path).ok();
        assert_eq!(key.is_some(), segments(path).is_some(), "{path:?}");
        if let Some(key) = &key {
            let again = canonical_path(key).expect("the one spelling is a good one");
            assert_eq!(&again, key, "{path:?}");
            assert_eq!(segments(key), segments(path), "{path:?}");
        }
        key
    });
    if let [Some(this), Some(that)] = &keys {
        assert_eq!(this == that, segments(one) == segments(other), "{one:?} and {other:?}");
    }
}

/// The meaning of the path: whether it begins with a slash, and its decoded segments. `None` if
/// servers may read it in different ways.
fn segments(path: &str) -> Option<(bool, Vec<String>)> {
    let (rooted, inner) = match path.strip_prefix('/') {
        Some(inner) => (true, inner),
        None => (false, path),
    };
    if rooted && inner.is_empty() {
        return Some((true, Vec::new()));
    }
    let inner = inner.strip_suffix('/').unwrap_or(inner);
    let decoded = inner.split('/').map(decode).collect::<Option<Vec<_>>>()?;
    // A server behind may take an encoded slash, or a backslash, for one.
    let has_dots =
        |segment: &String| segment.split(['/', '\\']).any(|part| matches!(part, "" | "." | ".."));
    // A handler may parse the segment.
    let is_odd = |segment: &String| number(segment).is_some_and(|number| number != *segment);
    let bad = decoded.iter().any(|segment| has_dots(segment) || is_odd(segment));
    (!bad).then_some((rooted, decoded.into_iter().map(value).collect()))
}

/// The segment in the form of a number, if it is one.
fn number(segment: &str) -> Option<String> {
    let digits = segment.strip_prefix(['+', '-']).unwrap_or(segment);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let sign = if segment.starts_with('-') { "-" } else { "" };
    Some(match digits.trim_start_matches('0') {
        "" => "0".to_owned(),
        digits => format!("{sign}{digits}"),
    })
}

/// The segment, or the digits of the UUID that it is.
fn value(segment: String) -> String {
    let text = segment.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
    let text = text.or(segment.strip_prefix("urn:uuid:")).unwrap_or(&segment);
    let digits = text.replace('-', "").to_lowercase();
    let hyphens: Vec<usize> = text.match_indices('-').map(|(at, _)| at).collect();
    let is_hex = digits.len() == 32 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    match is_hex && (hyphens.is_empty() || hyphens == [8, 13, 18, 23]) {
        true => format!("uuid {digits}"),
        false => segment,
    }
}

fn decode(segment: &str) -> Option<String> {
    let mut parts = segment.split('%');
    let mut decoded = parts.next()?.as_bytes().to_vec();
    for part in parts {
        let digits =
            part.get(..2).filter(|two| two.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
        decoded.push(u8::from_str_radix(digits, 16).ok()?);
        decoded.extend(&part.as_bytes()[2..]);
    }
    String::from_utf8(decoded).ok()
}

/// Checks that each extractor returns a name of a lock, or refuses the request with a sentence that
/// repeats nothing of it.
fn extract(path: &str, header: &[u8], twice: bool) {
    let mut request = Request::new(());
    if let Ok(uri) = Uri::try_from(path) {
        *request.uri_mut() = uri;
    }
    let value = HeaderValue::from_bytes(header).ok();
    if let Some(value) = &value {
        request.headers_mut().append("idempotency-key", value.clone());
        if twice {
            request.headers_mut().append("idempotency-key", value.clone());
        }
    }
    let by_header = ByHeader::new("idempotency-key");
    let found = name(&by_header, &request);
    match &value {
        None => assert!(found.is_err()),
        Some(_) if twice => assert!(found.is_err()),
        Some(value) => {
            let is_text =
                value.as_bytes().iter().all(|byte| (32..127).contains(byte) || *byte == b'\t');
            assert_eq!(found.is_ok(), is_text, "{value:?}");
        }
    }
    if value.is_none() {
        let optional = by_header.clone().optional().extract_key(&request);
        assert!(optional.expect("a request without it passes").is_none());
    }
    if let Ok(found) = found {
        assert_eq!(Some(found.as_bytes()), value.as_ref().map(HeaderValue::as_bytes));
        checked(&found);
        // An empty name would become a valid name, the same for all requests.
        let prefixed = name(&by_header.prefix("pay"), &request);
        assert_eq!(prefixed.ok(), (!found.is_empty()).then(|| format!("pay:{found}")));
    }
    let by_path = name(&ByPath::new(), &request);
    assert_eq!(by_path.ok(), canonical_path(request.uri().path()).ok());
    if let Ok(found) = canonical_path(request.uri().path()) {
        checked(&found);
    }
}

fn name(extractor: &impl ExtractKey<Request<()>>, request: &Request<()>) -> Result<String, String> {
    let keys = extractor.extract_key(request).map_err(|error| error.to_string())?;
    let keys = keys.expect("every request has a key or is refused");
    let names: Vec<_> = keys.names().collect();
    assert_eq!(names.len(), 1);
    Ok(names[0].to_owned())
}

/// Checks the last step before the store: a key, or a refusal that does not repeat the name.
fn checked(name: &str) {
    match LockKey::new(name) {
        Ok(key) => assert!(!key.as_str().contains(['{', '}']) && name.len() <= LockKey::MAX_BYTES),
        Err(error) => assert!(name.len() < 8 || !error.to_string().contains(name)),
    }
}
