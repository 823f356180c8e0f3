//! Files: the operator's configuration, and what `grove plan` is given.

use grove_api::config::{self, Overrides};

/// A configuration is good, or every problem of it says where it is.
pub(crate) fn file(input: &[u8]) {
    let overrides = [
        Overrides::default(),
        Overrides {
            topology_domain_name: Some("default".to_owned()),
        },
    ];
    for overrides in &overrides {
        if let Err(problems) = config::parse(input, overrides) {
            assert!(!problems.is_empty(), "refused without a reason");
            for problem in problems {
                assert!(!problem.to_string().trim().is_empty(), "{problem:?}");
            }
        }
    }
}

/// A plan, or a sentence about what is wrong with its files.
pub(crate) fn plan(input: &[u8]) {
    // A file that is no text is refused before it is read as one.
    let Ok(text) = std::str::from_utf8(input) else {
        return;
    };
    if let Err(problem) = grove_plan::plan(text, "input") {
        assert!(!problem.to_string().trim().is_empty(), "refused without a word");
    }
}
