//! Where requests end, as far as the light upstream has to know.

/// How many heads end in `bytes`, and where the last of them does.
pub(crate) fn heads(bytes: &[u8]) -> (usize, usize) {
    let (mut count, mut end, mut at) = (0, 0, 3);
    while at < bytes.len() {
        // The end is CR LF CR LF: a byte that is neither cannot be in it, nor can the end be in the three before it.
        match bytes[at] {
            b'\n' if bytes[at - 3..].starts_with(b"\r\n\r\n") => {
                (count, end) = (count + 1, at + 1);
                at += 4;
            }
            b'\r' | b'\n' => at += 1,
            _ => at += 4,
        }
    }
    (count, end)
}

/// The rest of a body.
pub(crate) enum Body {
    None,
    /// So many bytes.
    Sized(usize),
    /// Chunks: of the present one so many bytes, with the line end behind it, are to come.
    Chunk(usize),
    /// The line with the size of the next chunk: the size so far, and whether the digits have ended.
    Size(usize, bool),
    /// The end of the last line, of two bytes.
    End(usize),
}

impl Body {
    /// The body that follows a head.
    pub(crate) fn of(head: &[u8]) -> Self {
        if !head.starts_with(b"POST") {
            return Self::None;
        }
        let head = String::from_utf8_lossy(head).to_ascii_lowercase();
        let value = |name: &str| Some(head.split_once(name)?.1.split("\r\n").next()?.trim().to_owned());
        match value("\r\ncontent-length:").map(|length| length.parse().expect("a length")) {
            Some(0) => Self::None,
            Some(length) => Self::Sized(length),
            None if value("\r\ntransfer-encoding:").is_some() => Self::Size(0, false),
            None => Self::None,
        }
    }

    /// Takes what belongs to the body: the number of bytes.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> usize {
        let mut at = 0;
        while at < bytes.len() {
            match self {
                Self::None => break,
                Self::Sized(left) | Self::Chunk(left) => {
                    let taken = (*left).min(bytes.len() - at);
                    (*left, at) = (*left - taken, at + taken);
                    if *left == 0 {
                        *self =
                            if matches!(self, Self::Sized(_)) { Self::None } else { Self::Size(0, false) };
                    }
                }
                Self::Size(size, ended) => {
                    match bytes[at] {
                        b'\n' if *size == 0 => *self = Self::End(2),
                        b'\n' => *self = Self::Chunk(*size + 2),
                        byte => match char::from(byte).to_digit(16) {
                            Some(digit) if !*ended => *size = *size * 16 + digit as usize,
                            _ => *ended = true,
                        },
                    }
                    at += 1;
                }
                Self::End(left) => {
                    (*left, at) = (*left - 1, at + 1);
                    if *left == 0 {
                        *self = Self::None;
                    }
                }
            }
        }
        at
    }
}
