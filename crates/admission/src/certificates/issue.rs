//! Makes keys and certificates. When is [`super::plan`]'s decision; the time is an argument.

use std::collections::BTreeSet;

use jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

use super::Lifetimes;
use super::material::Material;
use super::plan::{BACKDATE, Change, earlier, later};

const AUTHORITY_NAME: &str = "Grove-CA";
const ORGANIZATION: &str = "Grove";
const LEAF_NAME: &str = "grove-operator";

/// The material after a change. Without any to change, everything is made.
pub fn carry_out(
    change: Change,
    material: Option<&Material>,
    names: &[String],
    now: Timestamp,
    lifetimes: &Lifetimes,
) -> Result<Material, rcgen::Error> {
    let Some(material) = material.filter(|_| change != Change::Everything) else {
        let mut material = Material {
            authorities: Vec::new(),
            authority_key: String::new(),
            leaf: String::new(),
            leaf_key: String::new(),
        };
        add_authority(&mut material, now, lifetimes)?;
        renew_leaf(&mut material, names, now, lifetimes)?;
        return Ok(material);
    };
    let mut material = material.clone();
    match change {
        Change::AddAuthority => add_authority(&mut material, now, lifetimes)?,
        Change::RenewLeaf => renew_leaf(&mut material, names, now, lifetimes)?,
        Change::DropExpired => material.drop_expired(now),
        Change::Everything => {}
    }
    Ok(material)
}

fn add_authority(material: &mut Material, now: Timestamp, lifetimes: &Lifetimes) -> Result<(), rcgen::Error> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name.push(DnType::CommonName, AUTHORITY_NAME);
    params.distinguished_name.push(DnType::OrganizationName, ORGANIZATION);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    set_validity(&mut params, now, later(now, lifetimes.authority));
    let key = KeyPair::generate()?;
    material.authority_key = key.serialize_pem();
    let authority = CertifiedIssuer::self_signed(params, key)?;
    material.authorities.insert(0, super::material::to_pem(authority.der()));
    Ok(())
}

/// Names that are served already stay: another replica may have asked for them.
fn renew_leaf(
    material: &mut Material,
    names: &[String],
    now: Timestamp,
    lifetimes: &Lifetimes,
) -> Result<(), rcgen::Error> {
    let mut all: BTreeSet<String> = material.leaf_facts().map(|facts| facts.names).unwrap_or_default();
    all.extend(names.iter().cloned());
    let mut params = CertificateParams::new(all.into_iter().collect::<Vec<_>>())?;
    params.distinguished_name.push(DnType::CommonName, LEAF_NAME);
    params.distinguished_name.push(DnType::OrganizationName, ORGANIZATION);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    let authority_ends = material.newest_facts().map(|facts| facts.not_after);
    let ends = later(now, lifetimes.leaf);
    set_validity(
        &mut params,
        now,
        authority_ends.map_or(ends, |authority| ends.min(authority)),
    );
    let newest = material.authorities.first().map(String::as_str).unwrap_or_default();
    let issuer = Issuer::from_ca_cert_pem(newest, KeyPair::from_pem(&material.authority_key)?)?;
    let key = KeyPair::generate()?;
    material.leaf = super::material::to_pem(params.signed_by(&key, &issuer)?.der());
    material.leaf_key = key.serialize_pem();
    Ok(())
}

fn set_validity(params: &mut CertificateParams, now: Timestamp, ends: Timestamp) {
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    let since_epoch = |moment: Timestamp| std::time::Duration::from_secs(moment.as_second().max(0).unsigned_abs());
    params.not_before = epoch + since_epoch(earlier(now, BACKDATE));
    params.not_after = epoch + since_epoch(ends);
}
