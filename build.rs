//! Brings the chart library into the report pages: Apache ECharts as the crate `charming` carries it, so that no third-party
//! code lies in this repository and `Cargo.lock` pins it.
//!
//! Cargo is asked where the crate's source is, which holds for a registry, a vendored copy and a build without network. The
//! script must be byte for byte the one that was reviewed. Beside it are the digests of every script of a page, for the
//! page's content security policy.

use std::env;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};

/// The crate that carries the script; the version is the one of Cargo.toml.
const CARRIER: &str = "charming";
const CARRIER_VERSION: &str = "0.6.0";
/// The script in its source.
const SCRIPT: &str = "src/asset/echarts-5.5.1.min.js";
/// SHA-256 of the script.
const SCRIPT_SHA256: &str = "e84270bd0cd5bdf60fefc26d00c2a391cb2e81f4d26a7a9ee16185a54773a3cf";
/// Our scripts of a page.
const OWN_SCRIPTS: [&str; 2] = ["src/results/page/charts.js", "src/results/page/page.js"];

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    for input in ["build.rs", "Cargo.lock"].iter().chain(&OWN_SCRIPTS).filter(|input| Path::new(input).exists()) {
        println!("cargo::rerun-if-changed={input}");
    }
    let out = PathBuf::from(variable("OUT_DIR")?);
    let path = carrier_source(&out)?.join(SCRIPT);
    let script =
        fs::read(&path).map_err(|error| format!("cannot read the chart library {}: {error}", path.display()))?;
    let found = hex(&Sha256::digest(&script));
    if found != SCRIPT_SHA256 {
        return Err(format!(
            "{} is not the chart library that was reviewed: SHA-256 is {found}, expected {SCRIPT_SHA256}",
            path.display()
        )
        .into());
    }
    let mut digests = vec![csp_digest(&script)];
    for own in OWN_SCRIPTS {
        digests.push(csp_digest(&fs::read(own).map_err(|error| format!("cannot read {own}: {error}"))?));
    }
    fs::write(out.join("echarts.min.js"), script)?;
    println!("cargo::rustc-env=PDREPLAY_PAGE_SCRIPTS={}", digests.join(" "));
    Ok(())
}

/// Folder of the carrier's source. The question is put for a package that needs the carrier alone: for ours, cargo would
/// want the dependencies of tests and of other systems too, which a first build does not download.
fn carrier_source(out: &Path) -> Outcome<PathBuf> {
    let asker = out.join("asker");
    fs::create_dir_all(asker.join("src"))?;
    fs::write(asker.join("src/lib.rs"), "")?;
    fs::write(
        asker.join("Cargo.toml"),
        format!(
            "[package]\nname = \"asker\"\nversion = \"0.0.0\"\nedition = \"2024\"\n[workspace]\n[dependencies]\n\
             {CARRIER} = {{ version = \"={CARRIER_VERSION}\", default-features = false }}\n"
        ),
    )?;
    if Path::new("Cargo.lock").exists() {
        fs::copy("Cargo.lock", asker.join("Cargo.lock"))?;
    }
    // Run where we are, so that a configuration of vendored sources holds.
    let answer = Command::new(variable("CARGO")?)
        .args(["metadata", "--format-version", "1", "--offline", "--filter-platform", &variable("HOST")?])
        .arg("--manifest-path")
        .arg(asker.join("Cargo.toml"))
        .output()?;
    if !answer.status.success() {
        let words = String::from_utf8_lossy(&answer.stderr);
        return Err(format!("cargo does not tell where the source of the crate {CARRIER} is: {words}").into());
    }
    let metadata: serde_json::Value = serde_json::from_slice(&answer.stdout)?;
    let packages = metadata["packages"].as_array().ok_or("cargo metadata lists no packages")?;
    let carrier = packages.iter().find(|package| package["name"] == CARRIER && package["version"] == CARRIER_VERSION);
    let manifest = carrier.and_then(|package| package["manifest_path"].as_str());
    let folder = manifest.and_then(|manifest| Path::new(manifest).parent());
    Ok(folder.ok_or_else(|| format!("cargo metadata lists no {CARRIER} {CARRIER_VERSION}"))?.to_path_buf())
}

fn variable(name: &str) -> Outcome<String> {
    env::var(name).map_err(|error| format!("{name} in the environment of the build: {error}").into())
}

/// A script's source as a content security policy names it.
fn csp_digest(script: &[u8]) -> String {
    format!("'sha256-{}'", STANDARD.encode(Sha256::digest(script)))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
