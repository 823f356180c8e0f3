//! The inputs that were kept, and those changed by chance, on a compiler that everybody has.

use std::fs;
use std::path::{Path, PathBuf};

use grove_hostile::TARGETS;

/// How often each kept input is changed; `FUZZ_CHANGES` asks for more.
const CHANGES: u64 = 20;

fn kept(target: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
    let mut files: Vec<PathBuf> = fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|entry| entry.expect("an input").path())
        .collect();
    files.sort();
    files
        .into_iter()
        .map(|file| (file.clone(), fs::read(&file).expect("an input")))
        .collect()
}

#[test]
fn what_was_kept_does_no_harm() {
    for target in TARGETS {
        let inputs = kept(target.name);
        assert!(inputs.len() >= 3, "{} has few inputs", target.name);
        for (file, input) in inputs {
            println!("{}", file.display());
            grove_hostile::run(target.name, &input);
        }
    }
}

#[test]
fn what_was_kept_does_no_harm_when_it_is_changed() {
    let changes =
        std::env::var("FUZZ_CHANGES").map_or(CHANGES, |count| count.parse().expect("FUZZ_CHANGES is a number"));
    for target in TARGETS {
        let inputs = kept(target.name);
        for (index, (file, input)) in inputs.iter().enumerate() {
            for seed in 0..changes {
                let other = &inputs[(index + seed as usize) % inputs.len()].1;
                println!("{} changed by {seed}", file.display());
                grove_hostile::run(target.name, &changed(input, other, seed));
            }
        }
    }
}

/// The input with bytes taken out, put in from another one, or replaced, as `seed` says.
fn changed(input: &[u8], other: &[u8], seed: u64) -> Vec<u8> {
    let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut changed = input.to_vec();
    for _ in 0..=dice.below(4) {
        let at = dice.below(changed.len() + 1);
        let end = (at + dice.below(16)).min(changed.len());
        let new: Vec<u8> = match dice.below(4) {
            0 => Vec::new(),
            1 => vec![dice.below(256) as u8],
            2 => DICTIONARY[dice.below(DICTIONARY.len())].as_bytes().to_vec(),
            _ => {
                let from = dice.below(other.len() + 1);
                other[from..(from + dice.below(64)).min(other.len())].to_vec()
            }
        };
        changed.splice(at..end, new);
    }
    changed
}

const DICTIONARY: [&str; 14] = [
    "null",
    "true",
    "{}",
    "[]",
    "-1",
    "0",
    "2147483648",
    "9223372036854775808",
    "1e999",
    "\"\"",
    "\u{0}",
    "\u{202e}",
    "{{{{{{{{",
    "[[[[[[[[[[[[[[[[",
];

/// A row of numbers that a seed fixes.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % end.max(1)
    }
}
