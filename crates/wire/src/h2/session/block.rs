//! A field block that arrives in several frames.

/// A field block that is not complete.
#[derive(Debug)]
pub(super) struct Block {
    pub(super) headers: HeadersFrame,
    pub(super) bytes: Vec<u8>,
    pub(super) frames: usize,
}

/// What the HEADERS frame of a field block says.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeadersFrame {
    pub(super) stream: u32,
    /// The stream ends with it.
    pub(super) ends: bool,
    /// The stream depends on itself.
    pub(super) is_circular: bool,
    /// It opens the stream.
    pub(super) is_new: bool,
}
