//! stub
use super::remote::RemoteKey;
use crate::config::Quota;
use redis::{Cmd, Value};
use sluicegate_limiter::{Receipt, Time};
use smallvec::SmallVec;

#[derive(Debug)]
pub(super) struct Malformed;
pub(super) enum Reply {
    Expired { now: Time },
    Decided { now: Time, admitted: u32, keys: SmallVec<[RemoteKey; 2]> },
}
impl Reply {
    pub(super) fn read(_: Value, _: &[&Quota]) -> Result<Self, Malformed> {
        Err(Malformed)
    }
}
pub(super) fn read_states(_: Value, _: &[&Quota]) -> Result<(Time, SmallVec<[RemoteKey; 2]>), Malformed> {
    Err(Malformed)
}
pub(in crate::limit) fn argument(_: &Quota, _: bool, _: u64) -> Vec<u8> {
    Vec::new()
}
pub(super) fn decide_script() -> String {
    String::new()
}
pub(super) fn refund_script() -> String {
    String::new()
}
pub(super) fn spend_script() -> String {
    String::new()
}
pub(super) fn renew_script() -> String {
    String::new()
}
pub(super) fn decide_arguments<A: AsRef<[u8]>>(
    _: &mut Cmd,
    _: u64,
    _: usize,
    _: [u8; 8],
    _: impl Iterator<Item = A>,
) {
}
pub(super) fn refund_arguments<'a>(
    _: &mut Cmd,
    _: [u8; 8],
    _: impl Iterator<Item = (&'a Quota, u64, Receipt)>,
) {
}
pub(super) fn spend_arguments<'a>(_: &mut Cmd, _: impl Iterator<Item = (&'a Quota, u64)>) {}
pub(super) fn renew_arguments(_: &mut Cmd, _: [u8; 8], _: Option<[u8; 8]>, _: impl Iterator<Item = u64>) {}
