//! Blocks against the examples of the RFC, against a slow encoder and table of the tests' own, and against noise.

mod examples;
mod model;

use http::StatusCode;
use proptest::prelude::*;

use self::model::{How, Literal, Model, Written};
use super::huffman::{self, EOS};
use super::{Decoder, Encoder, HpackError, field, status};

type Line = (Vec<u8>, Vec<u8>);

fn decode(decoder: &mut Decoder, block: &[u8]) -> Result<Vec<Line>, HpackError> {
    let mut lines = Vec::new();
    decoder.decode(block, |name, value| lines.push((name.to_vec(), value.to_vec())))?;
    Ok(lines)
}

/// What a new decoder makes of a block.
fn fresh(block: &[u8]) -> Result<Vec<Line>, HpackError> {
    decode(&mut Decoder::new(4096), block)
}

/// Names that blocks often have, and any.
fn name() -> impl Strategy<Value = Vec<u8>> {
    let known =
        prop::sample::select(vec![":path", "cookie", "x-a", "x-b", "date", "set-cookie", "www-authenticate"]);
    prop_oneof![
        3 => known.prop_map(|name| name.as_bytes().to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..40),
    ]
}

fn value() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => "[a-z0-9]{0,2}".prop_map(String::into_bytes),
        2 => prop::collection::vec(any::<u8>(), 0..200),
        1 => prop::collection::vec(any::<u8>(), 200..2000),
    ]
}

fn line() -> impl Strategy<Value = Written> {
    let literal = prop::sample::select(vec![Literal::Kept, Literal::Kept, Literal::Plain, Literal::Never]);
    (name(), value(), any::<bool>(), literal, any::<(bool, bool, bool)>()).prop_map(
        |(name, value, indexed, literal, (named, coded_name, coded_value))| Written {
            line: (name, value),
            how: How { indexed, named, literal, coded_name, coded_value },
        },
    )
}

proptest! {
    /// Whatever way of writing a line an encoder chooses, and whatever sizes of the table, the lines are read as they were.
    #[test]
    fn blocks_of_any_encoder(
        blocks in prop::collection::vec(
            (prop::collection::vec(prop_oneof![0_usize..300, 0_usize..=4096], 0..3), prop::collection::vec(line(), 0..30)),
            1..8,
        ),
    ) {
        let (mut model, mut decoder) = (Model::new(4096), Decoder::new(4096));
        for (sizes, lines) in blocks {
            let mut block = Vec::new();
            for size in sizes {
                model.resize(&mut block, size);
            }
            for written in &lines {
                model.write(&mut block, written);
            }
            let read = decode(&mut decoder, &block);
            prop_assert_eq!(read, Ok(lines.into_iter().map(|written| written.line).collect()));
        }
    }

    /// What is written is read as it was.
    #[test]
    fn our_own_blocks(code in 100_u16..1000, lines in prop::collection::vec((name(), value()), 0..20)) {
        let code = StatusCode::from_u16(code).unwrap();
        let mut block = Vec::new();
        status(&mut block, code);
        for (name, value) in &lines {
            field(&mut block, name, value);
        }
        let mut wanted = vec![(b":status".to_vec(), code.as_str().as_bytes().to_vec())];
        wanted.extend(lines);
        prop_assert_eq!(fresh(&block), Ok(wanted));
    }

    /// The client's table is in step, whatever comes again and however small it becomes.
    #[test]
    fn blocks_that_repeat(
        blocks in prop::collection::vec(
            (prop::option::weighted(0.2, 0_usize..5000), prop::collection::vec((name(), value()), 0..40)),
            1..12,
        ),
    ) {
        let (mut encoder, mut decoder) = (Encoder::default(), Decoder::new(4096));
        for (size, lines) in blocks {
            if let Some(size) = size {
                encoder.resize(size);
            }
            let mut block = Vec::new();
            encoder.begin(&mut block);
            for (name, value) in &lines {
                encoder.field(&mut block, name, value);
            }
            prop_assert_eq!(decode(&mut decoder, &block), Ok(lines));
        }
    }

    /// No bytes make it panic, or give more lines than they are.
    #[test]
    fn noise_is_read(blocks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 1..6)) {
        let mut decoder = Decoder::new(4096);
        for block in blocks {
            let mut lines = 0;
            let _ = decoder.decode(&block, |_, _| lines += 1);
            prop_assert!(lines <= block.len());
        }
    }

    /// A block that is cut within its last line is refused.
    #[test]
    fn cut_blocks(mut written in line(), cut in 1_usize..3000) {
        written.how.indexed = false;
        let mut block = Vec::new();
        Model::new(4096).write(&mut block, &written);
        let left = block.len().saturating_sub(cut).max(1);
        prop_assert_eq!(fresh(&block[..left]), Err(HpackError));
    }

    /// Strings in the code are read as they were; no code is missing.
    #[test]
    fn coded_strings(text in prop::collection::vec(any::<u8>(), 0..300)) {
        let mut read = b"before".to_vec();
        huffman::decode(&model::coded(&text), &mut read).unwrap();
        prop_assert_eq!(&read[6..], &text[..]);
    }
}

#[test]
fn every_symbol_has_its_code() {
    for byte in 0..=u8::MAX {
        for text in [vec![byte], vec![b'a', byte, byte], vec![byte; 9]] {
            let mut read = Vec::new();
            huffman::decode(&model::coded(&text), &mut read).unwrap();
            assert_eq!(read, text);
        }
    }
    // Of the RFC's table, those at the ends of a length.
    for (symbol, code) in [
        (b'0', "00000"),
        (b't', "01001"),
        (b' ', "010100"),
        (b':', "1011100"),
        (b'z', "1111011"),
        (b'&', "11111000"),
        (b'!', "1111111000"),
        (b'|', "11111111100"),
        (0, "1111111111000"),
        (b'{', "111111111111110"),
        (b'\\', "1111111111111110000"),
        (255, "11111111111111111111101110"),
        (249, "1111111111111111111111111110"),
        (22, "111111111111111111111111111110"),
    ] {
        assert_eq!(model::code(usize::from(symbol)), code, "{symbol}");
    }
    assert_eq!(model::code(EOS), "1".repeat(30));
}

#[test]
fn padding_is_up_to_seven_ones() {
    let read = |bits: &str| {
        let mut read = Vec::new();
        huffman::decode(&model::bytes(bits), &mut read).map(|()| read)
    };
    assert_eq!(read(""), Ok(vec![]));
    assert_eq!(read("00000111"), Ok(b"0".to_vec()));
    assert_eq!(read(&format!("{}1111111", "00000".repeat(5))), Ok(b"00000".to_vec()));
    assert_eq!(read("00000110"), Err(HpackError));
    assert_eq!(read("00000000"), Err(HpackError));
    assert_eq!(read("11111111"), Err(HpackError), "eight bits of padding");
    assert_eq!(read("0000011111111111"), Err(HpackError), "eleven bits of padding");
    assert_eq!(read("1111111111111111"), Err(HpackError), "the front of a long code");
    assert_eq!(read(&"1".repeat(32)), Err(HpackError), "the end of strings");
    assert_eq!(
        read(&format!("000{}{}", "00", "1".repeat(35))),
        Err(HpackError),
        "the end of strings within one"
    );
}

#[test]
fn lines_that_there_are_not() {
    assert_eq!(fresh(&[0x80]), Err(HpackError), "number 0");
    assert_eq!(fresh(&[0x80 | 62]), Err(HpackError), "nothing was added yet");
    assert_eq!(fresh(&[0x40 | 62, 1, b'v']), Err(HpackError), "nor as a name");
    assert_eq!(fresh(&[0x0f, 62 - 15, 1, b'v']), Err(HpackError));
    assert_eq!(fresh(&[0xff, 0x80, 0xff, 0xff, 0x7f]), Err(HpackError), "far outside");
}

#[test]
fn numbers_are_bounded() {
    // A value of no bytes, its length written in too many.
    assert_eq!(fresh(&[0x04, 0x7f, 0x80, 0x80, 0x80, 0x80, 0x00]), Err(HpackError));
    assert_eq!(fresh(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]), Err(HpackError));
    let mut block = vec![0x04, 0x7f, 0x81, 0x00]; // 128, with a byte that need not be
    block.extend([b'v'; 128]);
    assert_eq!(fresh(&block), Ok(vec![(b":path".to_vec(), vec![b'v'; 128])]));
}

#[test]
fn sizes_change_in_front_only_and_within_what_was_allowed() {
    assert_eq!(fresh(&[0x20, 0x3f, 0xe1, 0x1f, 0x82]).map(|lines| lines.len()), Ok(1), "0, then 4096");
    assert_eq!(fresh(&[0x3f, 0xe2, 0x1f]), Err(HpackError), "4097");
    assert_eq!(fresh(&[0x82, 0x20]), Err(HpackError), "behind a line");
}

#[test]
fn a_line_larger_than_the_table_empties_it() {
    let mut decoder = Decoder::new(4096);
    let mut block = vec![0x40, 1, b'a', 1, b'b', 0x40, 1, b'c'];
    model::number(&mut block, 0, 7, 4096);
    block.extend([b'v'; 4096]);
    assert_eq!(decode(&mut decoder, &block).map(|lines| lines.len()), Ok(2));
    assert_eq!(decode(&mut decoder, &[0x80 | 62]), Err(HpackError));
}

#[test]
fn a_name_is_taken_from_the_line_that_makes_room() {
    let mut decoder = Decoder::new(4096);
    let mut block = vec![0x3f, 9, 0x40, 3]; // a table of 40 bytes
    block.extend(b"abc\x05value");
    block.extend([0x40 | 62, 1, b'w']);
    let abc = |value: &[u8]| (b"abc".to_vec(), value.to_vec());
    assert_eq!(decode(&mut decoder, &block), Ok(vec![abc(b"value"), abc(b"w")]));
    assert_eq!(decode(&mut decoder, &[0x80 | 62]), Ok(vec![abc(b"w")]));
}

#[test]
fn a_block_that_swells_is_refused() {
    let mut block = vec![0x40, 1, b'n'];
    model::number(&mut block, 0, 7, 4000);
    block.extend([b'v'; 4000]);
    let named = |times: usize| [&block[..], &vec![0x80 | 62; times]].concat();
    assert_eq!(fresh(&named(1000)).map(|lines| lines.len()), Ok(1001), "4 MB");
    assert_eq!(fresh(&named(1100)), Err(HpackError));
}

#[test]
fn secrets_are_never_indexed() {
    for name in ["set-cookie", "cookie", "authorization", "proxy-authorization"] {
        let mut encoder = Encoder::default();
        for _ in 0..2 {
            let (mut plain, mut repeated) = (Vec::new(), Vec::new());
            field(&mut plain, name.as_bytes(), b"v");
            encoder.field(&mut repeated, name.as_bytes(), b"v");
            assert_eq!((plain[0] & 0xf0, &plain), (0x10, &repeated), "{name}");
        }
    }
}

/// The bytes of a line, the first time and from then on.
fn lengths(encoder: &mut Encoder, name: &str, values: [&str; 2]) -> [usize; 2] {
    values.map(|value| {
        let mut block = Vec::new();
        encoder.field(&mut block, name.as_bytes(), value.as_bytes());
        block.len()
    })
}

#[test]
fn what_repeats_is_a_byte() {
    let mut encoder = Encoder::default();
    assert_eq!(lengths(&mut encoder, "content-type", ["text/plain"; 2]), [12, 1]);
    assert_eq!(lengths(&mut encoder, "content-type", ["text/html"; 2]), [11, 1], "another that repeats");
    assert_eq!(lengths(&mut encoder, "x-left", ["12", "11"]), [11, 5], "the name of what changes");
    assert_eq!(lengths(&mut encoder, "content-length", ["100"; 2]), [6, 6], "which takes no room");
}

#[test]
fn a_client_without_a_table_has_nothing_put_into_it() {
    let mut encoder = Encoder::default();
    encoder.field(&mut Vec::new(), b"x-a", b"v");
    encoder.resize(0);
    let mut block = Vec::new();
    encoder.begin(&mut block);
    assert_eq!(block, [0x20, 0x20]);
    assert_eq!(lengths(&mut encoder, "x-a", ["v"; 2]), [7, 7]);
    encoder.begin(&mut block);
    assert_eq!(block.len(), 2, "told once");
}

#[test]
fn the_table_that_is_filled_is_bounded() {
    let mut encoder = Encoder::default();
    for n in 0..1000 {
        encoder.field(&mut Vec::new(), format!("x-name-{n}").as_bytes(), b"v");
    }
    assert_eq!(lengths(&mut encoder, "x-name-0", ["v"; 2]), [1, 1], "the first stays");
    assert_eq!(lengths(&mut encoder, "x-name-999", ["v"; 2]), [14, 14]);
}
