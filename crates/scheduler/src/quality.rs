//! How well a placed gang lies, in the few numbers that are counted over all gangs.

use grove_placement::{ScopeReport, Standing};

use crate::core::Census;

/// The levels that the scopes of a gang name, and whether they have them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Quality {
    /// Level that a scope prefers, and whether it lies in one domain of it.
    preferred: Vec<(String, bool)>,
    /// Levels that scopes require and of which they lie in several domains: the constraint came after the pods.
    violated: Vec<String>,
}

impl Quality {
    pub(crate) fn of(scopes: &[ScopeReport]) -> Self {
        let preferred = scopes.iter().filter(|scope| scope.standing != Standing::Indifferent);
        let preferred = preferred.filter_map(|scope| Some((scope.preferred.clone()?, scope.standing == Standing::Met)));
        let violated = scopes.iter().filter_map(|scope| {
            let required = scope.required.as_ref()?;
            let (_, domains) = scope.domains.iter().find(|(word, _)| word == required)?;
            (domains.len() > 1).then(|| required.clone())
        });
        Self {
            preferred: preferred.collect(),
            violated: violated.collect(),
        }
    }

    pub(crate) fn add_to(&self, census: &mut Census) {
        for (level, is_met) in &self.preferred {
            let (met, all) = census.preferred.entry(level.clone()).or_default();
            *met += usize::from(*is_met);
            *all += 1;
        }
        for level in &self.violated {
            *census.violated.entry(level.clone()).or_default() += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope(required: Option<&str>, preferred: Option<&str>, standing: Standing) -> ScopeReport {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        ScopeReport {
            name: "g".to_owned(),
            required: required.map(str::to_owned),
            preferred: preferred.map(str::to_owned),
            standing,
            domains: vec![
                ("block".to_owned(), names(&["b1"])),
                ("rack".to_owned(), names(&["r1", "r2"])),
            ],
        }
    }

    #[test]
    fn scopes_are_counted_by_the_level_that_they_name() {
        let mut census = Census::default();
        let spread = Quality::of(&[
            scope(Some("block"), Some("rack"), Standing::Missed),
            scope(Some("rack"), None, Standing::Indifferent),
            scope(None, None, Standing::Indifferent),
        ]);
        let near = Quality::of(&[scope(None, Some("rack"), Standing::Met)]);
        spread.add_to(&mut census);
        near.add_to(&mut census);
        assert_eq!(
            census.preferred.into_iter().collect::<Vec<_>>(),
            [("rack".to_owned(), (1, 2))]
        );
        assert_eq!(
            census.violated.into_iter().collect::<Vec<_>>(),
            [("rack".to_owned(), 1)]
        );
    }
}
