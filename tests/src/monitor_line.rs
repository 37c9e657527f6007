//! `MonitorLine`: a command as shown by MONITOR.

/// The origin of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// Called by a script.
    Lua,
    /// Sent by a client with this address.
    Client(String),
}

/// A command run by the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MonitorLine {
    /// The server's clock in microseconds since the epoch.
    pub time_us: u64,
    /// The number of the database.
    pub database: u32,
    /// The sender of the command.
    pub source: Source,
    /// The command name as written, and the arguments.
    pub args: Vec<Vec<u8>>,
}

impl MonitorLine {
    /// Whether this is the given command, in upper or lower case.
    #[must_use]
    pub fn is(&self, command: &str) -> bool {
        self.args.first().is_some_and(|name| name.eq_ignore_ascii_case(command.as_bytes()))
    }

    /// Returns an argument as text, with the command name as number 0; empty if there are fewer.
    #[must_use]
    pub fn text(&self, index: usize) -> String {
        self.args
            .get(index)
            .map(|arg| String::from_utf8_lossy(arg).into_owned())
            .unwrap_or_default()
    }

    /// Parses a line without its `+` and line end: `1700000000.123456 [0 lua] "RPUSH" "key"`.
    pub(crate) fn parse(line: &[u8]) -> Option<Self> {
        let open = line.iter().position(|byte| *byte == b'[')?;
        // The bracket before the first argument: an IPv6 address contains brackets as well.
        let close = line.windows(3).position(|end| end == b"] \"")?;
        let (seconds, micros) =
            std::str::from_utf8(line.get(..open)?).ok()?.trim_end().split_once('.')?;
        let (database, source) =
            std::str::from_utf8(line.get(open + 1..close)?).ok()?.split_once(' ')?;
        Some(Self {
            time_us: seconds.parse::<u64>().ok()? * 1_000_000 + micros.parse::<u64>().ok()?,
            database: database.parse().ok()?,
            source: match source {
                "lua" => Source::Lua,
                address => Source::Client(address.to_owned()),
            },
            args: parse_args(line.get(close + 1..)?)?,
        })
    }
}

/// Undoes the server's `sdscatrepr`: quoted arguments, each after a space.
fn parse_args(mut rest: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut args = Vec::new();
    while let Some(quoted) = rest.strip_prefix(b" \"") {
        let mut arg = Vec::new();
        let mut bytes = quoted.iter();
        loop {
            match bytes.next()? {
                b'"' => break,
                b'\\' => arg.push(match bytes.next()? {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'a' => 0x07,
                    b'b' => 0x08,
                    b'x' => {
                        let digits = [*bytes.next()?, *bytes.next()?];
                        u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
                    }
                    escaped => *escaped, // \\ and \"
                }),
                byte => arg.push(*byte),
            }
        }
        args.push(arg);
        rest = bytes.as_slice();
    }
    rest.is_empty().then_some(args)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_a_script_is_told_from_a_clients() {
        let line = MonitorLine::parse(br#"1700000000.000042 [3 lua] "RPUSH" "q:{a}" "m""#);
        let line = line.expect("a line as Redis writes it");
        assert_eq!(line.time_us, 1_700_000_000_000_042);
        assert_eq!((line.database, &line.source), (3, &Source::Lua));
        assert!(line.is("rpush"));
        assert_eq!(
            (line.text(1), line.text(2), line.text(3)),
            ("q:{a}".into(), "m".into(), "".into())
        );
        for address in ["127.0.0.1:5", "[::1]:5", "unix:/tmp/a b"] {
            let line = format!(r#"1.000000 [0 {address}] "PING" "] ""#);
            let line = MonitorLine::parse(line.as_bytes()).expect("a line as Redis writes it");
            assert_eq!(line.source, Source::Client(address.into()));
            assert_eq!(line.text(1), "] ");
        }
    }

    #[test]
    fn every_escape_of_redis_is_undone() {
        let args = parse_args(br#" "a \"b\" [c] \\" "\n\r\t\a\b\x00\xff\xC3" """#);
        let expected: [&[u8]; 3] = [b"a \"b\" [c] \\", b"\n\r\t\x07\x08\x00\xff\xc3", b""];
        assert_eq!(args.expect("well quoted"), expected);
    }

    #[test]
    fn a_broken_line_is_not_taken_for_a_command() {
        for line in [r#" "open"#, r#" "a"b"#, r#" "\x4"#, r#" a"#] {
            assert_eq!(parse_args(line.as_bytes()), None, "{line}");
        }
    }
}
