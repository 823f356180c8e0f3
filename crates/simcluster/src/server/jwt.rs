//! Tokens that carry what they claim, signed by the server: whoever has one need not be remembered.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::hmac;
use serde_json::{Value, json};

use crate::clock::Entropy;

/// Signs tokens and knows them again.
pub(crate) struct Signer(hmac::Key);

impl Signer {
    /// With a key that nobody else knows.
    pub(crate) fn new(key: &[u8]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, key))
    }

    /// With a key that follows from a seed.
    pub(crate) fn seeded(seed: u64) -> Self {
        Self::new(&key_of(seed))
    }

    /// A JWT with these claims.
    pub(crate) fn sign(&self, claims: &Value) -> String {
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", part(&json!({"alg": "HS256", "typ": "JWT"})), part(claims));
        let signature = hmac::sign(&self.0, signed.as_bytes());
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
    }

    /// What a token claims, if it is ours.
    pub(crate) fn claims(&self, token: &str) -> Option<Value> {
        let (signed, signature) = token.rsplit_once('.')?;
        let signature = URL_SAFE_NO_PAD.decode(signature).ok()?;
        hmac::verify(&self.0, signed.as_bytes(), &signature).ok()?;
        let (_, claims) = signed.split_once('.')?;
        serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).ok()?).ok()
    }
}

/// A key that follows from a seed: for tests, where nobody hides anything.
pub(crate) fn key_of(seed: u64) -> Vec<u8> {
    // Not the sequence that names come from.
    Entropy::seeded(!seed).uid().into_bytes()
}

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signer").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_signed_is_believed() {
        let (signer, other) = (Signer::seeded(1), Signer::seeded(2));
        let claims = json!({"sub": "a"});
        let token = signer.sign(&claims);
        assert_eq!(signer.claims(&token), Some(claims));
        assert_eq!(other.claims(&token), None);
        let forged = URL_SAFE_NO_PAD.encode(json!({"sub": "b"}).to_string());
        let parts: Vec<&str> = token.split('.').collect();
        assert_eq!(signer.claims(&format!("{}.{forged}.{}", parts[0], parts[2])), None);
        for odd in ["", ".", "..", "a.b", "a.b.c"] {
            assert_eq!(signer.claims(odd), None, "{odd}");
        }
    }
}
