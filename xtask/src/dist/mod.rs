//! `cargo xtask dist`: what is shipped, made without a daemon: the chart as an archive, an image that holds one static
//! program, the list of what it was made from, and nothing else, and the program for people's own machines. The same source
//! gives the same.

mod image;
mod program;
mod sbom;

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use grove_e2e::kit::Kit;

use crate::root;
use image::{Entry, Image};

/// The C library is linked into the program: the image has no other file to find it in.
const TARGET: &str = "x86_64-unknown-linux-gnu";
const FLAGS: &str = "-C target-feature=+crt-static";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Where to put it
    #[arg(long, value_name = "FOLDER", default_value = "target/dist")]
    into: PathBuf,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let into = root().join(&args.into);
    fs::create_dir_all(&into)?;
    let program = build()?;
    let version = env!("CARGO_PKG_VERSION");
    let sbom = sbom::of_workspace(root(), version)?;
    let entries = [
        Entry::program("grove", fs::read(&program)?),
        Entry::file("sbom.cdx.json", sbom.into_bytes()),
    ];
    let image = Image::new(&entries, version)?;
    let path = into.join(format!("grove-{version}.oci.tar"));
    image.write(File::create(&path).with_context(|| format!("cannot write {}", path.display()))?)?;
    try_out(&path, version)?;
    println!("{}: {:.1} MB, {}", path.display(), megabytes(&path)?, image.digest());
    println!("program: {:.1} MB before compression", megabytes(&program)?);
    let path = into.join(format!("grove-{version}-linux-amd64.tar.gz"));
    program::write(
        &program,
        File::create(&path).with_context(|| format!("cannot write {}", path.display()))?,
    )?;
    println!("{}: {:.1} MB", path.display(), megabytes(&path)?);
    let chart = chart(&into)?;
    println!("{}: {:.1} MB", chart.display(), megabytes(&chart)?);
    Ok(())
}

fn megabytes(path: &Path) -> Result<f64> {
    Ok(path.metadata()?.len() as f64 / 1e6)
}

/// Builds the program that is shipped.
fn build() -> Result<PathBuf> {
    let mut cargo = grove_e2e::cargo();
    cargo.current_dir(root()).env("RUSTFLAGS", FLAGS);
    cargo.args([
        "build",
        "--locked",
        "--profile",
        "dist",
        "--package",
        "grove",
        "--target",
        TARGET,
    ]);
    ensure!(cargo.status()?.success(), "the program does not build; cargo says why");
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    Ok(target.join(TARGET).join("dist/grove"))
}

/// Unpacks the image and runs its program as it says, where nothing but its own files can be found.
fn try_out(image: &Path, version: &str) -> Result<()> {
    let folder = tempfile::TempDir::new()?;
    let start = image::unpack(File::open(image)?, folder.path())?;
    // Whom the program runs as is not who unpacked it.
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755))?;
    let output = Command::new("chroot")
        .arg(format!("--userspec={}", start.user))
        .arg(folder.path())
        .args(start.command)
        .arg("--version")
        .output()
        .context("cannot run chroot")?;
    let said = String::from_utf8_lossy(&output.stdout);
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success() && said.contains(version),
        "the program does not run from the image's files: {said}{complaint}(changing the root needs an administrator)"
    );
    println!("unpacked and run as {}: {}", start.user, said.trim());
    Ok(())
}

fn chart(into: &Path) -> Result<PathBuf> {
    let mut helm = Command::new(Kit::ready()?.helm()?);
    helm.arg("package")
        .arg(root().join("charts/grove"))
        .arg("--destination")
        .arg(into);
    let output = helm.output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(into.join(format!("grove-{}.tgz", env!("CARGO_PKG_VERSION"))))
}
