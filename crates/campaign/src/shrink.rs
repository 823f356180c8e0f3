//! The fewest faults that still fail: faults are left out one at a time, for as long as that changes nothing.

use crate::campaign::{Campaign, Verdict};
use crate::fault::Fault;
use crate::play::{PlayError, Plot};

impl Campaign {
    /// The verdict on the fewest faults of a run that still break one of the same rules.
    pub fn shrunk(&self, verdict: Verdict) -> Result<Verdict, PlayError> {
        let mut smallest = verdict.clone();
        shrink(&verdict.plot.faults, |faults| -> Result<bool, PlayError> {
            let plot = Plot {
                faults: faults.to_vec(),
                ..verdict.plot.clone()
            };
            let shorter = self.try_one(verdict.row, &plot, None)?;
            let is_known = |oracle| verdict.violations.iter().any(|known| known.oracle == oracle);
            let is_alike = shorter.violations.iter().any(|found| is_known(found.oracle));
            if is_alike {
                smallest = shorter;
            }
            Ok(is_alike)
        })?;
        Ok(smallest)
    }
}

/// Leaves out what can be left out.
fn shrink<E>(faults: &[Fault], mut fails: impl FnMut(&[Fault]) -> Result<bool, E>) -> Result<Vec<Fault>, E> {
    let mut left = faults.to_vec();
    let mut index = 0;
    while index < left.len() {
        let mut fewer = left.clone();
        fewer.remove(index);
        match fails(&fewer)? {
            true => left = fewer,
            false => index += 1,
        }
    }
    Ok(left)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    #[test]
    fn what_matters_is_left() {
        let faults = [1, 2, 3, 4, 5].map(|percent| Fault::Webhooks { percent });
        let needed = [&faults[1], &faults[4]];
        let fails = |faults: &[Fault]| Ok::<_, Infallible>(needed.iter().all(|needed| faults.contains(needed)));
        assert_eq!(shrink(&faults, fails), Ok(vec![faults[1].clone(), faults[4].clone()]));
    }
}
