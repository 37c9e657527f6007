//! Bytes as a row of choices, so that any bytes make an input, and close bytes a similar one.

/// The pieces of hostile input: texts that our formats, Redis, HTTP and Lua give a meaning to.
const PIECES: &[&str] = &[
    "{",
    "}",
    "{}",
    "}{",
    "%",
    "%7B",
    "%7D",
    "%25",
    "%2F",
    "%2e%2E",
    "%00",
    "%zz",
    "%4",
    "/",
    "//",
    "/./",
    "/..",
    "?",
    "#",
    ":",
    "::",
    " ",
    "\t",
    "\n",
    "\r\n",
    "\0",
    "\u{7f}",
    "\u{85}",
    "\u{2028}",
    "\u{feff}",
    "*",
    "[a-z]",
    "\\",
    "\"",
    "'",
    "]]",
    "--",
    "~1",
    "~2",
    "g ",
    "r ",
    "g",
    "0",
    "-0",
    "-1",
    "+1",
    "1e3",
    "nan",
    "inf",
    "9007199254740991",
    "9007199254740992",
    "18446744073709551615",
    "18446744073709551616",
    "1795242275666200",
    "30000",
    "lock:",
    "lock:tokens",
    ":queue",
    "r",
    "w",
    "2/10",
    "p ",
    "redisson_lock_queue:",
    "redisson_lock_timeout:",
    "redisson_lock_token:",
    "redisson_lock_gone:",
    "lockcore:grants:",
    "shop",
    "order:42",
    "AAAAAAAAAAAAAAAAAAAAAA",
    "é",
    "日本",
    "🦀",
    "granted",
    "queued",
    "busy",
    "full",
    "refused",
    "released",
    "not_held",
    "held",
    "whg",
    "la",
];

/// The source of the choices. At its end, every choice is the first one.
pub(crate) struct Source<'a>(&'a [u8]);

impl<'a> Source<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(crate) fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        usize::from(self.byte()) % limit
    }

    /// Draws a number that is small, at an edge, or anything.
    pub(crate) fn integer(&mut self) -> i64 {
        match self.below(8) {
            0 => 0,
            1 => 1,
            2 => i64::from(self.byte()),
            3 => -1,
            4 => i64::MAX,
            5 => i64::MIN,
            6 => 1_795_242_275_666_200,
            _ => i64::from_le_bytes(std::array::from_fn(|_| self.byte())),
        }
    }

    /// Draws raw bytes and pieces, up to `most` of them.
    pub(crate) fn bytes(&mut self, most: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        for _ in 0..self.below(most + 1) {
            match self.below(4) {
                0 => bytes.push(self.byte()),
                1 => bytes.extend(self.below(1_000).to_string().bytes()),
                2 => bytes.extend(std::iter::repeat_n(self.byte() & 0x7f, self.below(256))),
                _ => bytes.extend(PIECES[self.below(PIECES.len())].bytes()),
            }
        }
        bytes
    }

    pub(crate) fn text(&mut self, most: usize) -> String {
        String::from_utf8_lossy(&self.bytes(most)).into_owned()
    }
}
