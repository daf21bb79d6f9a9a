//! 3: who is asking, proved.

pub mod jwt;
