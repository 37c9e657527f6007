//! RESP, the wire format of Redis: just enough of it to find the end of a frame and the words of a
//! request.

/// Returns the bytes of a request.
pub(crate) fn request(args: &[&str]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", args.len()).into_bytes();
    for arg in args {
        bytes.extend(format!("${}\r\n{arg}\r\n", arg.len()).into_bytes());
    }
    bytes
}

/// Returns the length of the first frame (a request or reply, RESP2 or RESP3), or `None` while it
/// is incomplete.
pub(crate) fn frame_length(bytes: &[u8]) -> Option<usize> {
    let line = bytes.windows(2).position(|pair| pair == b"\r\n")? + 2;
    // A frame's first line announces this many bytes, or this many frames.
    let frames = match bytes[0] {
        b'$' | b'!' | b'=' => {
            // -1 is a null: nothing follows.
            let end = number(bytes).map_or(line, |length| line + length + 2);
            return (bytes.len() >= end).then_some(end);
        }
        b'*' | b'~' | b'>' => number(bytes).unwrap_or(0),
        b'%' => number(bytes)? * 2,
        b'|' => number(bytes)? * 2 + 1, // attributes, then the value they are about
        _ => 0,
    };
    (0..frames).try_fold(line, |end, _| Some(end + frame_length(&bytes[end..])?))
}

/// Whether a frame from the server is pushed, not a reply.
pub(crate) fn is_push(frame: &[u8]) -> bool {
    frame.first() == Some(&b'>')
}

/// Returns the arguments of a complete request frame; an inline command is split at its spaces.
pub(crate) fn arguments(frame: &[u8]) -> Vec<Vec<u8>> {
    if frame.first() != Some(&b'*') {
        return frame
            .split(u8::is_ascii_whitespace)
            .filter(|word| !word.is_empty())
            .map(<[u8]>::to_vec)
            .collect();
    }
    let mut rest = after_line(frame);
    let mut args = Vec::new();
    while let Some(length) = number(rest) {
        let content = after_line(rest);
        args.push(content[..length].to_vec());
        rest = &content[length + 2..];
    }
    args
}

/// Returns the count in a frame's first line; `None` for the -1 of a null.
fn number(bytes: &[u8]) -> Option<usize> {
    let end = bytes.iter().position(|byte| *byte == b'\r')?;
    std::str::from_utf8(bytes.get(1..end)?).ok()?.parse().ok()
}

fn after_line(bytes: &[u8]) -> &[u8] {
    let line = bytes.windows(2).position(|pair| pair == b"\r\n").map_or(bytes.len(), |at| at + 2);
    &bytes[line..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_ends_where_redis_ends_it_and_never_earlier() {
        let frames: [&[u8]; 12] = [
            b"+OK\r\n",
            b"-ERR no\r\n",
            b":42\r\n",
            b"$5\r\na\r\nbc\r\n",
            b"$-1\r\n",
            b"*-1\r\n",
            b"*0\r\n",
            b"*2\r\n$1\r\na\r\n*1\r\n:1\r\n",
            b"%1\r\n+key\r\n:1\r\n",
            b">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nm\r\n",
            b"|1\r\n+ttl\r\n:1\r\n*1\r\n_\r\n",
            b"=7\r\ntxt:abc\r\n",
        ];
        for frame in frames {
            let followed = [frame, b":1\r\n"].concat();
            assert_eq!(frame_length(&followed), Some(frame.len()), "{}", frame.escape_ascii());
            for cut in 0..frame.len() {
                assert_eq!(frame_length(&frame[..cut]), None, "{}", frame[..cut].escape_ascii());
            }
        }
    }

    #[test]
    fn a_request_returns_the_arguments_it_was_made_of() {
        let args = ["SET", "a\r\nb", "", "é"];
        let frame = request(&args);
        assert_eq!(frame_length(&frame), Some(frame.len()));
        assert_eq!(arguments(&frame), args.map(|arg| arg.as_bytes().to_vec()));
        assert_eq!(arguments(b"PING  you\r\n"), [b"PING".to_vec(), b"you".to_vec()]);
    }
}
