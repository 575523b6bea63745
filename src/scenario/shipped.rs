//! Files that are part of the program: scenarios and presets, usable by name from anywhere.
//!
//! The text is the one under `scenarios/`, embedded when the program is built.

/// An embedded file: its name without `.toml`, and its text.
pub(super) type Embedded = (&'static str, &'static str);

macro_rules! embedded {
    ($folder:literal: $($name:literal),+ $(,)?) => {
        &[$(($name, include_str!(concat!("../../scenarios/", $folder, $name, ".toml")))),+]
    };
}

/// Scenarios, `default` first.
pub(super) const SCENARIOS: &[Embedded] = embedded!("":
    "default",
    "v2-1p7d", "v2-1p7d-x1", "v2-2p6d", "v2-2p6d-x1",
    "v3-1p7d", "v3-1p7d-x1", "v3-2p6d", "v3-2p6d-x1",
    "v4-1p7d", "v4-1p7d-x1",
    "dp8", "dp8-x1",
    "v5-2p6d", "v5-2p6d-x1",
    "burst-cap4",
    "live-embedded", "live-sglang", "live-openai",
);

/// Timing presets.
pub(super) const TIMINGS: &[Embedded] = embedded!("timing/": "h100-qwen3-30b-a3b-tp1", "flat-50k");

/// Link presets.
pub(super) const LINKS: &[Embedded] = embedded!("links/": "mooncake-tcp", "rdma", "nvlink");

/// Sweeps.
pub(super) const SWEEPS: &[Embedded] = embedded!("sweeps/": "cap-policy", "topology", "time-scale", "starvation");

/// Names of the scenarios that ship with the program.
pub fn shipped_scenarios() -> impl Iterator<Item = &'static str> {
    SCENARIOS.iter().map(|(name, _)| *name)
}

/// The text of a shipped scenario, comments included.
pub fn shipped_text(name: &str) -> Option<&'static str> {
    text(SCENARIOS, name)
}

/// Names of the sweeps that ship with the program.
pub fn shipped_sweeps() -> impl Iterator<Item = &'static str> {
    SWEEPS.iter().map(|(name, _)| *name)
}

/// The text of a shipped sweep, comments included.
pub fn shipped_sweep_text(name: &str) -> Option<&'static str> {
    text(SWEEPS, name)
}

/// The text of an embedded file.
pub(super) fn text(of: &[Embedded], name: &str) -> Option<&'static str> {
    of.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}

/// The names of a list.
pub(super) fn names(of: &[Embedded]) -> Vec<String> {
    of.iter().map(|(name, _)| (*name).into()).collect()
}
