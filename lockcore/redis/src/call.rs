//! Commands and script calls, encoded for the Redis protocol.

use std::fmt;
use std::io::Write as _;

use redis::{Cmd, ErrorKind, RedisError, ServerErrorKind};

/// Bytes reserved for the encoding of each word of a command: `$LENGTH\r\nWORD\r\n` in the Redis
/// protocol.
const WORD_OVERHEAD: usize = 24;

/// An encoded Redis command, or several commands sent as one request, such as a transaction. If the
/// server sends several replies, only the last is delivered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packed {
    /// The number of words (command name and arguments) in `bytes`, for the header `*WORDS` written
    /// by [`write`](Self::write). 0 if `bytes` contains complete commands with their headers.
    words: usize,
    /// The encoded words, each with a length prefix and a line end; or the complete commands.
    bytes: Vec<u8>,
    /// Number of replies that the server sends to this request: 1 for a single command, otherwise
    /// one for each command.
    pub answers: usize,
}

/// A call of a script by its SHA-1 digest. It keeps the source for servers that lack the script.
#[derive(Debug)]
pub struct ScriptCall {
    source: &'static str,
    /// The encoded EVALSHA command.
    pub command: Packed,
}

impl Packed {
    fn with_capacity(size: usize) -> Self {
        Self { words: 0, bytes: Vec::with_capacity(size), answers: 1 }
    }

    /// Creates an empty buffer, to which the caller appends complete commands with their headers.
    /// `answers` is the number of replies to all of these commands, and `size` their expected
    /// length in bytes, for which memory is reserved.
    pub fn whole(answers: usize, size: usize) -> Self {
        Self { answers, ..Self::with_capacity(size) }
    }

    /// Appends bytes unchanged, because they are already encoded, such as a command header. Only
    /// for a buffer from [`whole`](Self::whole).
    pub fn append(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Encodes a word (a command name or an argument), and appends it to a buffer from
    /// [`whole`](Self::whole). The caller must have appended the command's header, `*WORDS`,
    /// before.
    pub fn word(&mut self, word: &[u8]) {
        self.bytes.reserve(word.len() + WORD_OVERHEAD);
        // Nearly all words have a length of two digits.
        if let length @ 10..=99 = word.len() {
            let [tens, ones] = [length / 10, length % 10].map(|digit| b'0' + digit as u8);
            self.append(&[b'$', tens, ones, b'\r', b'\n']);
        } else {
            self.append(b"$");
            self.append(itoa::Buffer::new().format(word.len()).as_bytes());
            self.append(b"\r\n");
        }
        self.append(word);
        self.append(b"\r\n");
    }

    fn add(&mut self, word: &[u8]) {
        self.words += 1;
        self.word(word);
    }

    /// Appends the complete request to `to`. The header of a single command is written here,
    /// because only now the number of words is known.
    pub fn write(&self, to: &mut Vec<u8>) {
        if self.words > 0 {
            to.push(b'*');
            to.extend_from_slice(itoa::Buffer::new().format(self.words).as_bytes());
            to.extend_from_slice(b"\r\n");
        }
        to.extend_from_slice(&self.bytes);
    }

    fn words(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = &*self.bytes;
        std::iter::from_fn(move || {
            let digits = rest.get(1..)?.split(|byte| *byte == b'\r').next()?;
            let length: usize = std::str::from_utf8(digits).ok()?.parse().ok()?;
            let from = 1 + digits.len() + 2;
            let word = rest.get(from..from + length)?;
            rest = rest.get(from + length + 2..)?;
            Some(word)
        })
    }
}

impl From<&Cmd> for Packed {
    fn from(command: &Cmd) -> Self {
        let mut packed = Self::with_capacity(64);
        for argument in command.args_iter() {
            // The other kind of argument is a cursor, which no command here has.
            if let redis::Arg::Simple(argument) = argument {
                packed.add(argument);
            }
        }
        packed
    }
}

impl From<&Packed> for Cmd {
    fn from(packed: &Packed) -> Self {
        let mut command = Self::with_capacity(packed.words, packed.bytes.len());
        for word in packed.words() {
            command.arg(word);
        }
        command
    }
}

impl ScriptCall {
    /// Creates a call of the script with this `source` and SHA-1 `digest`. The caller then adds
    /// exactly `keys` keys, followed by the other arguments.
    pub fn begin(source: &'static str, digest: &str, keys: usize) -> Self {
        let mut command = Packed::with_capacity(512 + 64 * keys);
        command.words = 2;
        command.append(b"$7\r\nEVALSHA\r\n$40\r\n");
        command.append(digest.as_bytes());
        command.append(b"\r\n");
        command.add(itoa::Buffer::new().format(keys).as_bytes());
        Self { source, command }
    }

    /// Adds a text as the next key or argument.
    pub fn text(&mut self, text: &str) {
        self.command.add(text.as_bytes());
    }

    /// Adds a number as the next argument.
    pub fn number(&mut self, number: u64) {
        self.command.add(itoa::Buffer::new().format(number).as_bytes());
    }

    /// Adds the `Display` form of a value as the next key or argument.
    pub fn display(&mut self, argument: impl fmt::Display) {
        let mut word = Vec::new();
        // Writing to memory cannot fail.
        let _ = write!(word, "{argument}");
        self.command.add(&word);
    }

    /// Returns the script's source. Calls of the same script return the same address.
    pub fn source(&self) -> &'static str {
        self.source
    }

    /// Returns the same call as an EVAL with the script's source, for a server that lacks the
    /// script.
    pub fn by_source(&self) -> Packed {
        let mut by_source = Packed::with_capacity(self.source.len() + 512);
        by_source.add(b"EVAL");
        by_source.add(self.source.as_bytes());
        self.command.words().skip(2).for_each(|word| by_source.add(word));
        by_source
    }
}

/// Returns the command that stores a script in the server's script cache (SCRIPT LOAD).
pub(crate) fn load(script: &str) -> Cmd {
    let mut command = redis::cmd("SCRIPT");
    command.arg("LOAD").arg(script);
    command
}

/// Returns true if the error is NOSCRIPT: the server does not have the script, so the caller has to
/// send the source.
pub fn is_unknown(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_by_source_has_the_same_keys_and_arguments() {
        let source = "return KEYS[1]";
        let mut call = ScriptCall::begin(source, &"f".repeat(40), 1);
        for text in ["key", "argument with spaces\r\n$1\r\n", ""] {
            call.text(text);
        }
        call.number(7);
        call.display("é");
        let arguments = |command: &Packed| -> Vec<Vec<u8>> {
            command.words().skip(2).map(<[u8]>::to_vec).collect()
        };
        let by_source = call.by_source();
        assert_eq!(arguments(&by_source), arguments(&call.command));
        let expected = ["1", "key", "argument with spaces\r\n$1\r\n", "", "7", "é"];
        assert_eq!(arguments(&by_source), expected.map(|text| text.as_bytes().to_vec()));
        let words: Vec<_> = by_source.words().take(2).collect();
        assert_eq!(words, [b"EVAL", source.as_bytes()]);
    }

    #[test]
    fn a_command_is_written_as_redis_rs_writes_it() {
        let mut command = redis::cmd("CLIENT");
        command.arg("KILL").arg("").arg(vec![0, b'\r', b'\n', 255]).arg(u64::MAX);
        let packed = Packed::from(&command);
        let mut written = Vec::new();
        packed.write(&mut written);
        assert_eq!(written, command.get_packed_command());
        assert_eq!(Cmd::from(&packed).get_packed_command(), written);
    }
}
