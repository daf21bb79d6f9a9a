#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sluicegate_wire_fuzz::hpack(data));
