//! Results: from request records to a summary a person can trust, and the files around it.
//!
//! Owns definitions (percentiles, fairness, starvation), the integrity gate, cause lines, tables, Parquet and JSON Schemas.
//! Touches no file, clock or terminal: it takes iterators, readers and writers. Computing is here, rendering in [`render`].

mod accumulate;
mod band;
pub mod diff;
mod distribution;
pub mod export;
mod figure;
mod frame;
mod goodput;
mod index;
mod info;
mod integrity;
mod latency;
mod modes;
mod outcomes;
pub mod page;
mod percentiles;
pub mod perfetto;
mod read;
pub mod render;
mod seen;
mod sessions;
pub mod starvation;
pub mod stats;
mod summary;
pub mod sweep;
mod transfers;
mod turns;
mod vocabulary;
mod word;
mod workers;

pub use accumulate::{Accumulator, SummaryError};
pub use band::{Band, bands};
pub use distribution::Distribution;
pub use figure::{Better, Figure, Figures, RunFigure, UnknownFigure};
pub use frame::{
    Batch, COLUMNS, Cells, Column, FrameError, FrameReader, FrameWriter, GROUP_ROWS, Group, Kind, Labels, Texts,
};
pub use goodput::{Goodput, SloError, Slos};
pub use index::{BlindWorker, Blindness, IndexUse, PromisesKept};
pub use info::{Budgets, CacheReset, GapFacts, RunInfo, RunState, SlotFacts};
pub use integrity::{Integrity, Verdict};
pub use latency::{ITL_NOTE, Latencies, Latency, Metric, Rung};
pub use modes::{ModeRow, Reuse};
pub use outcomes::{ErrorGroup, Outcomes, is_failure};
pub use percentiles::{Percentile, PercentileError, Percentiles};
pub use read::{RecordError, read_requests};
pub use sessions::SessionRow;
pub use starvation::{
    BusiestLink, Cause, CauseLine, Contrast, CounterDrift, EndedSlots, Fairness, HandOff, HotDecoder, NoHits, PaceOf,
    PartlyBlind, Pinned, Room, STARVED_BELOW, SlotShortage, SlowWorker, Starved,
};
pub use summary::{Lengths, RunSummary, SUMMARY_VERSION, request_schema};
pub use transfers::{Concentration, FailedBy, FailingPart, TimedOutAt, Transfers};
pub use word::Word;
pub use workers::{RoleSpread, WorkerRow};
