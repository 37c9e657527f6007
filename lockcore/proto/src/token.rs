//! Fencing tokens: numbers that rise with each grant of a lock.

use std::fmt;

/// A number that tells holds of a lock apart: each grant of a lock has a higher token than all
/// grants before it, except in the cases listed in the guide
/// [fencing](https://docs.rs/lockcore/latest/lockcore/guide/fencing/). Reads share a token as long
/// as no lock comes between them. Permits have no token ([`NONE`](Self::NONE), the number 0, which
/// a resource that checks tokens refuses), nor do reads on a quorum.
///
/// A lease can end while the holder sleeps, so no lock can keep a stale holder from writing. The
/// resource can: it stores the highest token seen and refuses lower tokens. A holder raises the
/// stored token before it reads, and writes only while its own token is stored:
///
/// ```sql
/// UPDATE orders SET token = $1 WHERE id = $2 AND token < $1;
/// UPDATE orders SET paid = true WHERE id = $2 AND token = $1;
/// ```
///
/// Tokens are below 2^53, so they fit an `i64`, a database's `BIGINT` and a JSON number. A token is
/// the next number of a counter shared by all locks of a server, which starts at the server's time
/// in µs. If the counter is lost, or a server that takes over lacks its last numbers, the tokens
/// and times seen by this process keep tokens rising. A token is not a secret and gives no right to
/// release anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(try_from = "u64", into = "u64"))]
pub struct FencingToken(u64);

/// The upper bound of tokens, 2^53: greater numbers are not exact as a double, in Lua and in JSON.
pub(crate) const LIMIT: u64 = 1 << 53;

impl FencingToken {
    /// No token, the number 0: what holds without a token return. A resource that checks tokens
    /// refuses it.
    pub const NONE: Self = Self(0);

    /// Returns the token as a number, to store or to send.
    pub fn get(self) -> u64 {
        self.0
    }

    /// Returns this token plus `grants`, for a later member of the same batch. The sum is capped at
    /// the greatest possible token.
    pub(crate) fn plus(self, grants: usize) -> Self {
        Self((self.0 + grants as u64).min(LIMIT - 1))
    }
}

/// Returns the token for a new grant: the server time `now_us`, in µs since the epoch, or a greater
/// number, so that the token is above `previous` (the last token) and `seen_us` (the latest time
/// read from a server). The greatest token, 2^53 - 1, is ignored as `previous`, because no token is
/// above it. The clock reaches this number in the year 2255.
pub fn after(previous: Option<FencingToken>, seen_us: u64, now_us: u64) -> FencingToken {
    let previous = previous.map_or(0, FencingToken::get);
    let previous = if previous + 1 < LIMIT { previous } else { 0 };
    FencingToken(now_us.max(previous.max(seen_us) + 1).min(LIMIT - 1))
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<FencingToken> for u64 {
    fn from(token: FencingToken) -> Self {
        token.0
    }
}

impl From<FencingToken> for i64 {
    fn from(token: FencingToken) -> Self {
        // Below 2^53 by construction.
        token.0 as i64
    }
}

/// Converts a token back that was stored as a number, for example in a database or a header.
impl TryFrom<u64> for FencingToken {
    type Error = TokenError;

    fn try_from(value: u64) -> Result<Self, TokenError> {
        if value < LIMIT { Ok(Self(value)) } else { Err(TokenError) }
    }
}

/// The error for a number that is not a fencing token, because tokens are below 2^53.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenError;

impl fmt::Display for TokenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a fencing token must be below 2^53: pass a token that a guard returned")
    }
}

impl std::error::Error for TokenError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_one_is_above_the_last_and_what_was_seen_and_not_below_the_clock() {
        let above = |previous: u64, seen, now| {
            let previous = FencingToken::try_from(previous).expect("small");
            after(Some(previous), seen, now).get()
        };
        assert_eq!(after(None, 0, 10).get(), 10);
        assert_eq!(above(9, 9, 10), 10);
        assert_eq!(above(10, 9, 10), 11);
        assert_eq!(above(9, 10, 10), 11);
        assert_eq!(above(20, 30, 10), 31);
        assert_eq!(above(30, 20, 10), 31);
        // The last token has no successor.
        assert_eq!(above(LIMIT - 1, 0, 10), 10);
        assert_eq!(above(LIMIT - 2, 0, 10), LIMIT - 1);
        assert_eq!(after(None, u64::MAX - 1, 10).get(), LIMIT - 1);
    }

    #[test]
    fn a_token_is_exact_as_a_double() {
        let error = FencingToken::try_from(LIMIT).unwrap_err();
        assert!(error.to_string().starts_with("a fencing token must be below 2^53"), "{error}");
        let greatest = FencingToken::try_from(LIMIT - 1).unwrap();
        assert_eq!(greatest.get() as f64 as u64, greatest.get());
        assert_eq!(i64::from(greatest), 9_007_199_254_740_991);
        assert_eq!(u64::from(greatest), 9_007_199_254_740_991);
        assert_eq!(greatest.to_string(), "9007199254740991");
    }
}
