//! An encoder that can write a line in every way there is, by a table that is obvious and slow.

use std::collections::VecDeque;

use super::super::huffman::LENGTHS;
use super::super::table::STATIC;
use super::Line;

/// A line, and how it is written.
#[derive(Clone, Debug)]
pub(super) struct Written {
    pub(super) line: Line,
    pub(super) how: How,
}

/// How a line is written where that is possible.
#[derive(Clone, Copy, Debug)]
pub(super) struct How {
    /// By the number of a line that is the same.
    pub(super) indexed: bool,
    /// Its name by the number of a line that has it.
    pub(super) named: bool,
    pub(super) literal: Literal,
    /// The name in Huffman's code.
    pub(super) coded_name: bool,
    pub(super) coded_value: bool,
}

/// What becomes of a literal line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Literal {
    Kept,
    Plain,
    Never,
}

pub(super) struct Model {
    lines: VecDeque<Line>,
    limit: usize,
}

impl Model {
    pub(super) fn new(limit: usize) -> Self {
        Self { lines: VecDeque::new(), limit }
    }

    /// Writes a change of the table's size.
    pub(super) fn resize(&mut self, out: &mut Vec<u8>, limit: usize) {
        number(out, 0x20, 5, limit);
        self.limit = limit;
        self.evict();
    }

    fn evict(&mut self) {
        while self.lines.iter().map(|(name, value)| name.len() + value.len() + 32).sum::<usize>() > self.limit
        {
            self.lines.pop_back();
        }
    }

    /// The number of the last line that is `wanted`: the newest in the table, if there is one.
    fn find(&self, wanted: impl Fn(&[u8], &[u8]) -> bool) -> Option<usize> {
        let added = self.lines.iter().position(|(name, value)| wanted(name, value)).map(|at| at + 62);
        let fixed = || STATIC.iter().position(|(name, value)| wanted(name.as_bytes(), value.as_bytes()));
        added.or_else(|| fixed().map(|at| at + 1))
    }

    pub(super) fn write(&mut self, out: &mut Vec<u8>, Written { line, how }: &Written) {
        if let Some(index) =
            self.find(|name, value| (name, value) == (&line.0, &line.1)).filter(|_| how.indexed)
        {
            return number(out, 0x80, 7, index);
        }
        let named = self.find(|name, _| name == line.0).filter(|_| how.named);
        let (kind, prefix) = match how.literal {
            Literal::Kept => (0x40, 6),
            Literal::Plain => (0, 4),
            Literal::Never => (0x10, 4),
        };
        number(out, kind, prefix, named.unwrap_or(0));
        if named.is_none() {
            string(out, &line.0, how.coded_name);
        }
        string(out, &line.1, how.coded_value);
        if how.literal == Literal::Kept {
            self.lines.push_front(line.clone());
            self.evict();
        }
    }
}

fn string(out: &mut Vec<u8>, text: &[u8], in_code: bool) {
    let text = if in_code { coded(text) } else { text.to_vec() };
    number(out, if in_code { 0x80 } else { 0 }, 7, text.len());
    out.extend(text);
}

/// RFC 7541 §5.1.
pub(super) fn number(out: &mut Vec<u8>, kind: u8, prefix: u32, number: usize) {
    let most = (1 << prefix) - 1;
    if number < most {
        return out.push(kind | number as u8);
    }
    out.push(kind | most as u8);
    let mut left = number - most;
    while left >= 128 {
        out.push((left % 128 + 128) as u8);
        left /= 128;
    }
    out.push(left as u8);
}

/// The code of a symbol, as text.
pub(super) fn code(wanted: usize) -> String {
    let mut symbols: Vec<usize> = (0..LENGTHS.len()).collect();
    symbols.sort_by_key(|symbol| (LENGTHS[*symbol], *symbol));
    let (mut code, mut bits) = (0_u64, 0);
    for symbol in symbols {
        let length = usize::from(LENGTHS[symbol]);
        code <<= length - bits;
        bits = length;
        if symbol == wanted {
            return format!("{code:0bits$b}");
        }
        code += 1;
    }
    panic!("no symbol is {wanted}");
}

/// A string in Huffman's code.
pub(super) fn coded(text: &[u8]) -> Vec<u8> {
    thread_local! {
        static CODES: Vec<String> = (0..256).map(code).collect();
    }
    let mut bits: String =
        CODES.with(|codes| text.iter().map(|byte| &codes[usize::from(*byte)][..]).collect());
    while !bits.len().is_multiple_of(8) {
        bits.push('1');
    }
    bytes(&bits)
}

/// Bits as bytes.
pub(super) fn bytes(bits: &str) -> Vec<u8> {
    bits.as_bytes()
        .chunks(8)
        .map(|eight| eight.iter().fold(0, |byte, bit| byte << 1 | (bit - b'0')))
        .collect()
}
