//! Reads the lines of a log file, compressed or not, and locates damage.

use std::io::{self, BufRead, BufReader, Read};

use flate2::bufread::GzDecoder;

/// The longest line in bytes; longer ones are truncated.
const MAX_LINE: u64 = 1 << 20;
const BUFFER: usize = 64 << 10;
/// The first bytes of a member of a gzip file (RFC 1952 §2.3.1).
const MAGIC: [u8; 2] = [0x1f, 0x8b];
/// The first bytes of files from some editors.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// A log that is read line by line.
pub struct LogFile {
    lines: Lines,
    number: u64,
}

enum Lines {
    Plain(Source),
    Compressed(Box<BufReader<Members>>),
}

type Source = BufReader<Box<dyn Read>>;

/// Zero bytes after the compressed data, as tapes and file systems add them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Padding {
    /// The offset of the first, in bytes.
    pub at: u64,
    /// The number of bytes.
    pub length: u64,
}

impl LogFile {
    /// A log. Compression is detected from the first bytes.
    ///
    /// # Errors
    /// If the first bytes cannot be read.
    pub fn new(source: Box<dyn Read>) -> io::Result<Self> {
        let mut source = BufReader::with_capacity(BUFFER, source);
        let lines = match source.fill_buf()?.starts_with(&MAGIC) {
            true => Lines::Compressed(Box::new(BufReader::with_capacity(BUFFER, Members::new(source)))),
            false => Lines::Plain(source),
        };
        Ok(Self { lines, number: 0 })
    }

    /// Replaces `line` with the next line; returns `false` at the end. A line that is too long is truncated, so that it
    /// cannot be parsed.
    ///
    /// # Errors
    /// If the file cannot be read or its compressed data is damaged; `line` is incomplete then.
    pub fn read_line(&mut self, line: &mut Vec<u8>) -> io::Result<bool> {
        let lines: &mut dyn BufRead = match &mut self.lines {
            Lines::Plain(source) => source,
            Lines::Compressed(members) => members,
        };
        line.clear();
        if lines.take(MAX_LINE).read_until(b'\n', line)? == 0 {
            return Ok(false);
        }
        if line.len() as u64 == MAX_LINE && !line.ends_with(b"\n") {
            lines.skip_until(b'\n')?;
        }
        if self.number == 0 && line.starts_with(BYTE_ORDER_MARK) {
            line.drain(..BYTE_ORDER_MARK.len());
        }
        self.number += 1;
        Ok(true)
    }

    /// The number of the last line, from 1.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The bytes of the compressed file that were read; `None` if it is not compressed.
    pub fn offset(&self) -> Option<u64> {
        match &self.lines {
            Lines::Plain(_) => None,
            Lines::Compressed(members) => Some(members.get_ref().offset()),
        }
    }

    /// The padding at the end of a compressed file that was read to its end.
    pub fn padding(&self) -> Option<Padding> {
        match &self.lines {
            Lines::Plain(_) => None,
            Lines::Compressed(members) => members.get_ref().padding,
        }
    }
}

/// A source that counts the bytes that were read.
struct Counted {
    source: Source,
    offset: u64,
}

impl Read for Counted {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let read = self.source.read(out)?;
        self.offset += read as u64;
        Ok(read)
    }
}

impl BufRead for Counted {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.source.fill_buf()
    }

    fn consume(&mut self, amount: usize) {
        self.offset += amount as u64;
        self.source.consume(amount);
    }
}

/// The decompressed members of a gzip file, one after another.
struct Members {
    /// The current member; `None` after the last one.
    member: Option<GzDecoder<Counted>>,
    padding: Option<Padding>,
    /// The offset at which the file ended.
    end: u64,
}

impl Members {
    fn new(source: Source) -> Self {
        let member = Some(GzDecoder::new(Counted { source, offset: 0 }));
        Self { member, padding: None, end: 0 }
    }

    fn offset(&self) -> u64 {
        self.member.as_ref().map_or(self.end, |member| member.get_ref().offset)
    }

    /// Continues with the next member and skips zero bytes before it.
    fn advance(&mut self) -> io::Result<()> {
        let Some(member) = self.member.take() else { return Ok(()) };
        let mut source = member.into_inner();
        let at = source.offset;
        let more = loop {
            self.end = source.offset;
            let bytes = source.fill_buf()?;
            let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
            if zeros == 0 {
                break bytes.first().copied();
            }
            source.consume(zeros);
        };
        match more {
            None => {
                self.padding = (self.end > at).then(|| Padding { at, length: self.end - at });
                Ok(())
            }
            Some(byte) if byte == MAGIC[0] => {
                self.member = Some(GzDecoder::new(source));
                Ok(())
            }
            Some(_) => {
                Err(io::Error::new(io::ErrorKind::InvalidData, "the data that follows is not compressed"))
            }
        }
    }
}

impl Read for Members {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while let Some(member) = &mut self.member {
            let read = member.read(out)?;
            if read > 0 || out.is_empty() {
                return Ok(read);
            }
            self.advance()?;
        }
        Ok(0)
    }
}
