//! Quantities as whole numbers: cpu in thousandths, everything else in units.
//!
//! What a pod asks for is rounded up and what a node has is rounded down, so that rounding never makes room.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// Which way a fraction of a unit goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Round {
    Up,
    Down,
}

/// Units per one of a resource: cpu is counted in thousandths.
fn units(resource: &str) -> u128 {
    if resource == "cpu" { 1000 } else { 1 }
}

/// The quantity of a resource in its units. What is no quantity, or below zero, counts as nothing, as an API server
/// would not have stored it; what is too large counts as the largest.
pub fn amount(resource: &str, quantity: &Quantity, round: Round) -> u64 {
    let Some((numerator, denominator)) = parse(&quantity.0) else {
        return 0;
    };
    let scaled = numerator.saturating_mul(units(resource));
    let whole = match round {
        Round::Up => scaled.div_ceil(denominator),
        Round::Down => scaled / denominator,
    };
    // The engine sums amounts as signed numbers.
    u64::try_from(whole).unwrap_or(u64::MAX).min(i64::MAX as u64)
}

/// A quantity as a fraction; `None` if the text is not one or is negative.
fn parse(text: &str) -> Option<(u128, u128)> {
    let text = text.strip_prefix('+').unwrap_or(text);
    let end = text
        .find(|letter: char| !letter.is_ascii_digit() && letter != '.')
        .unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() || fraction.contains('.') {
        return None;
    }
    // Kubernetes keeps nothing finer than nano; what follows cannot matter after rounding to units or thousandths.
    let fraction = &fraction[..fraction.len().min(12)];
    let digits: u128 = format!("{whole}{fraction}").parse().ok()?;
    let (numerator, denominator) = scale(suffix)?;
    let tenths = 10u128.checked_pow(fraction.len() as u32)?;
    Some((digits.saturating_mul(numerator), denominator.checked_mul(tenths)?))
}

fn scale(suffix: &str) -> Option<(u128, u128)> {
    const DECIMAL: [&str; 6] = ["k", "M", "G", "T", "P", "E"];
    const BINARY: [&str; 6] = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    let power = |of: u128, suffixes: [&str; 6]| {
        let index = suffixes.iter().position(|known| *known == suffix)?;
        of.checked_pow(index as u32 + 1)
    };
    match suffix {
        "" => Some((1, 1)),
        "m" => Some((1, 1000)),
        "u" => Some((1, 1_000_000)),
        "n" => Some((1, 1_000_000_000)),
        _ => {
            if let Some(scale) = power(1000, DECIMAL).or_else(|| power(1024, BINARY)) {
                return Some((scale, 1));
            }
            let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
            let power = 10u128.checked_pow(exponent.unsigned_abs())?;
            Some(if exponent < 0 { (1, power) } else { (power, 1) })
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn up(resource: &str, text: &str) -> u64 {
        amount(resource, &Quantity(text.to_owned()), Round::Up)
    }

    #[test]
    fn quantities_are_read_as_kubernetes_reads_them() {
        let cases = [
            ("cpu", "1", 1000),
            ("cpu", "1500m", 1500),
            ("cpu", "0.1", 100),
            ("cpu", "1u", 1),
            ("memory", "1Gi", 1 << 30),
            ("memory", "1.5Gi", 3 << 29),
            ("memory", "1e3", 1000),
            ("memory", "1E", 1_000_000_000_000_000_000),
            ("memory", "128974848000m", 128_974_848),
            ("nvidia.com/gpu", "8", 8),
            ("memory", ".5k", 500),
            ("memory", "+2", 2),
        ];
        for (resource, text, expected) in cases {
            assert_eq!(up(resource, text), expected, "{resource} {text}");
        }
    }

    #[test]
    fn a_pod_is_rounded_up_and_a_node_down() {
        let half = Quantity("1500m".to_owned());
        assert_eq!(amount("pods", &half, Round::Up), 2);
        assert_eq!(amount("pods", &half, Round::Down), 1);
    }

    #[test]
    fn what_is_no_quantity_is_nothing() {
        for text in ["", "-1", "x", "1x", "1.2.3", ".", "1e99", "é"] {
            assert_eq!(up("memory", text), 0, "{text}");
        }
        assert_eq!(up("memory", "99999999999999999999"), i64::MAX as u64);
    }

    proptest! {
        #[test]
        fn no_text_is_too_odd(text in ".{0,24}") {
            up("cpu", &text);
        }
    }
}
