//! The API of Grove: every custom resource, its rules and the words that others rely on.
