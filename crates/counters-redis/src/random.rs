//! Random names.

/// A unique name.
pub(super) fn random() -> [u8; 8] {
    let mut bytes = [0; 8];
    let _ = aws_lc_rs::rand::fill(&mut bytes); // it has no way to fail once the process runs
    bytes
}
