#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| grove_hostile::run("replies", input));
