//! Resource quantities: `1500m`, `2Gi`, `1e3`.

/// A quantity in thousandths of a thousandth of a thousandth: exact for everything Kubernetes takes down to nano.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Quantity {
    nanos: i128,
    binary: bool,
}

const NANOS: i128 = 1_000_000_000;

impl Quantity {
    /// Reads a quantity; `None` if the text is not one.
    pub fn parse(text: &str) -> Option<Self> {
        let number_end = text
            .find(|c: char| !(c.is_ascii_digit() || "+-.".contains(c)))
            .unwrap_or(text.len());
        let (number, suffix) = text.split_at(number_end);
        let (negative, digits) = match number.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, number.strip_prefix('+').unwrap_or(number)),
        };
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        let all_digits = whole.bytes().chain(fraction.bytes()).all(|c| c.is_ascii_digit());
        if !all_digits || (whole.is_empty() && fraction.is_empty()) || fraction.len() > 18 || whole.len() > 18 {
            return None;
        }
        let (numerator, denominator, binary) = scale(suffix)?;
        let mantissa: i128 = format!("{whole}{fraction}").parse().ok()?;
        let scaled = mantissa.checked_mul(numerator)?.checked_mul(NANOS)?;
        let divisor = denominator.checked_mul(10i128.checked_pow(fraction.len() as u32)?)?;
        // Kubernetes rounds what is finer than nano away from zero.
        let nanos = scaled.div_euclid(divisor) + i128::from(scaled.rem_euclid(divisor) != 0);
        Some(Self {
            nanos: if negative { -nanos } else { nanos },
            binary,
        })
    }

    /// Both together, in the form of the first that is not zero.
    pub fn plus(self, other: Self) -> Self {
        Self {
            nanos: self.nanos.saturating_add(other.nanos),
            binary: if self.nanos == 0 { other.binary } else { self.binary },
        }
    }

    /// What is left without the other.
    pub fn minus(self, other: Self) -> Self {
        Self {
            nanos: self.nanos.saturating_sub(other.nanos),
            ..self
        }
    }

    /// The quantity in thousandths, rounded up.
    pub fn millis(self) -> i128 {
        self.nanos.div_euclid(NANOS / 1000) + i128::from(self.nanos.rem_euclid(NANOS / 1000) != 0)
    }

    /// The form in which Kubernetes stores it: the largest suffix that leaves a whole number.
    pub fn canonical(self) -> String {
        if self.nanos == 0 {
            return "0".into();
        }
        if self.binary && self.nanos % NANOS == 0 {
            let mut value = self.nanos / NANOS;
            let mut suffix = "";
            for next in ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"] {
                if value % 1024 != 0 {
                    break;
                }
                value /= 1024;
                suffix = next;
            }
            return format!("{value}{suffix}");
        }
        let mut value = self.nanos;
        let mut suffix = "n";
        for next in ["u", "m", "", "k", "M", "G", "T", "P", "E"] {
            if value % 1000 != 0 {
                break;
            }
            value /= 1000;
            suffix = next;
        }
        format!("{value}{suffix}")
    }
}

/// Numerator, denominator and whether the suffix is a binary one.
fn scale(suffix: &str) -> Option<(i128, i128, bool)> {
    let binary = |power: u32| Some((1i128 << (10 * power), 1, true));
    match suffix {
        "n" => Some((1, NANOS, false)),
        "u" => Some((1, 1_000_000, false)),
        "m" => Some((1, 1000, false)),
        "" => Some((1, 1, false)),
        "k" => Some((1000, 1, false)),
        "M" => Some((1_000_000, 1, false)),
        "G" => Some((NANOS, 1, false)),
        "T" => Some((1000 * NANOS, 1, false)),
        "P" => Some((1_000_000 * NANOS, 1, false)),
        "E" => Some((NANOS * NANOS, 1, false)),
        "Ki" => binary(1),
        "Mi" => binary(2),
        "Gi" => binary(3),
        "Ti" => binary(4),
        "Pi" => binary(5),
        "Ei" => binary(6),
        _ => {
            let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
            let power = 10i128.checked_pow(exponent.unsigned_abs())?;
            Some(if exponent < 0 {
                (1, power, false)
            } else {
                (power, 1, false)
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn quantities_are_stored_in_canonical_form() {
        let cases = [
            ("1000m", "1"),
            ("1500m", "1500m"),
            ("1", "1"),
            ("0.5", "500m"),
            ("1000", "1k"),
            ("1024Mi", "1Gi"),
            ("1.5Gi", "1536Mi"),
            ("0", "0"),
            ("-1", "-1"),
        ];
        for (text, expected) in cases {
            assert_eq!(Quantity::parse(text).unwrap().canonical(), expected, "{text}");
        }
        for text in ["", "x", "1X", "1.2.3", "1e999", "--1", "1ee2"] {
            assert_eq!(Quantity::parse(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn the_canonical_form_is_the_same_amount(n in 0u64..1 << 40, suffix in "(|m|k|Mi|Gi)") {
            let quantity = Quantity::parse(&format!("{n}{suffix}")).unwrap();
            prop_assert_eq!(Quantity::parse(&quantity.canonical()).unwrap().millis(), quantity.millis());
        }

        #[test]
        fn no_text_breaks_the_parser(text in "\\PC{0,40}") {
            let _ = Quantity::parse(&text).map(Quantity::canonical);
        }
    }
}
