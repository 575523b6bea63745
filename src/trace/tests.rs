//! Values the trace tests share.

use super::TraceMeta;

/// Provenance of a trace made by hand.
pub(crate) fn meta() -> TraceMeta {
    TraceMeta {
        name: "hand".into(),
        source: "hand".into(),
        sha256: String::new(),
        format: "native".into(),
        timestamp_unit: "s".into(),
        block_size: 0,
        block_size_source: "flag".into(),
        origin_ns: 0,
    }
}
