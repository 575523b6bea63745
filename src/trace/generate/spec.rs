//! [`GenerateSpec`]: the knobs of the generator, their defaults and their refusals.
//!
//! Owns nothing that draws. Invariant: a spec that [`GenerateSpec::validate`] accepts has session and request
//! counts that can be met exactly; what only the draw can tell (a span shorter than its longest session) is an
//! error of the draw, and a mean that the draw cannot reach is a notice on the trace.

use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::inputs::LONGEST_TASK_TOKENS;
use super::sessions::MOST_TURNS;
use crate::trace::AssembleError;

/// Most sessions of one trace: about 8.6 million requests at the preset's length.
pub const MOST_SESSIONS: u32 = 100_000;

/// Longest context a knob may ask for, tokens.
const MOST_PEAK_TOKENS: u32 = 10_000_000;

/// Longest span and set-up time a knob may ask for, seconds: about 31 years, and a day.
const MOST_SPAN_S: f64 = 1e9;
const MOST_SETUP_S: f64 = 86_400.0;

/// Sessions, requests, span and heavy sessions of the preset; other sizes scale from them.
const PRESET_SESSIONS: u32 = 52;
const PRESET_REQUESTS: u32 = 4_449;
const PRESET_SPAN_S: f64 = 6_000.0;
const PRESET_HEAVY: u32 = 22;

/// What to generate. The default is the preset `swe-bench-52` with seed 42.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GenerateSpec {
    /// Statistics to match.
    pub preset: Preset,
    /// Seed of every draw.
    pub seed: u64,
    /// Sessions.
    pub sessions: u32,
    /// Requests of all sessions; `None`: as many per session as in the preset.
    pub requests: Option<u32>,
    /// First request to last, seconds, for arrival `uniform`; `None`: 115 s per session, at least twice the
    /// longest session. With `pool` and `burst` the span follows from the sessions, so it must be `None`.
    pub span_s: Option<f64>,
    /// Tokens before the task text of every prompt (instructions, tools, repository notes).
    pub system_prompt: u32,
    /// Tokens at the start of every prompt that are the same in all sessions. The real SWE-bench slice shares one
    /// 64-token block; a prefix above `system_prompt` lengthens the prompts.
    pub shared_prefix: u32,
    /// When sessions start.
    pub arrival: Arrival,
    /// Agents that work side by side, for arrival `pool`.
    pub pool_workers: u32,
    /// Mean set-up time between two sessions of one agent, seconds, for arrival `pool`.
    pub pool_setup_s: f64,
    /// Tokens per block.
    pub block_size: u32,
    /// Mean answer, tokens.
    pub output_mean: f64,
    /// Sessions with long contexts; `None`: the preset's share, 22 of 52.
    pub heavy_sessions: Option<u32>,
    /// Mean over light sessions of their longest prompt, tokens.
    pub peak_light: u32,
    /// Mean over heavy sessions of their longest prompt, tokens.
    pub peak_heavy: u32,
    /// Longest prompt of all, tokens.
    pub peak_max: u32,
}

/// A named set of statistics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Preset {
    /// 52 SWE-bench sessions: 4,449 requests over 6,000 s, the statistics published for that run.
    #[serde(rename = "swe-bench-52")]
    SweBench52,
}

/// When sessions start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arrival {
    /// Spread over the span, in session-id order.
    Uniform,
    /// A fixed number of agents, each taking the next session after a set-up delay.
    Pool,
    /// All within 2 s.
    Burst,
}

/// Why nothing was generated. Fields are the knobs as given, and the limit they broke.
#[derive(Debug, Clone, PartialEq, Error)]
#[allow(missing_docs, reason = "the fields are knobs and numbers, and each message names them")]
pub enum GenerateError {
    /// No such preset.
    #[error("unknown preset `{name}`; write swe-bench-52")]
    UnknownPreset { name: String },
    /// No such arrival.
    #[error("unknown arrival `{name}`; write uniform, pool or burst")]
    UnknownArrival { name: String },
    /// A count of nothing.
    #[error("{field} is 0; give at least 1")]
    Zero { field: &'static str },
    /// A count beyond what can be built.
    #[error("{field} is {value}, above the limit of {most}; lower it")]
    TooLarge { field: &'static str, value: u32, most: u32 },
    /// Negative, NaN, infinite, or beyond what a clock holds.
    #[error("{field} is {value:?}; give a number above 0 and at most {most}")]
    OutOfRange { field: &'static str, value: f64, most: f64 },
    /// A session would have no turn.
    #[error("requests is {requests} for {sessions} sessions; give at least one request per session")]
    TooFewRequests { requests: u32, sessions: u32 },
    /// A session would have too many turns.
    #[error(
        "requests is {requests} for {sessions} sessions; a session has at most {MOST_TURNS} turns, \
         so give more sessions or at most {most} requests"
    )]
    TooManyRequests { requests: u32, sessions: u32, most: u64 },
    /// More heavy sessions than sessions.
    #[error("heavy_sessions is {heavy}, more than the {sessions} sessions; give at most {sessions}")]
    TooManyHeavy { heavy: u32, sessions: u32 },
    /// The first prompt alone may exceed the mean peak.
    #[error(
        "peak_light is {peak}, below the longest first prompt of {first} tokens (system_prompt or shared_prefix and up to \
         {LONGEST_TASK_TOKENS} of task text); raise it or lower them"
    )]
    PeakBelowFirstPrompt { peak: u32, first: u32 },
    /// A larger peak is smaller.
    #[error("{larger} is {larger_value}, below {smaller} {smaller_value}; give peak_light <= peak_heavy <= peak_max")]
    PeaksOutOfOrder { larger: &'static str, larger_value: u32, smaller: &'static str, smaller_value: u32 },
    /// The answers alone exceed the peaks.
    #[error(
        "output_mean is {output_mean}, but with {turns:.0} turns per session and a mean peak of {peak:.0} tokens a turn \
         has room for {most:.0} answer tokens at most; lower it, raise the peaks or ask for fewer requests"
    )]
    OutputAbovePeak { output_mean: f64, turns: f64, peak: f64, most: f64 },
    /// A span where it follows from the sessions.
    #[error(
        "span_s is set, but with arrival `{arrival}` the span follows from the sessions; \
         leave it out or choose arrival uniform"
    )]
    SpanNotUsed { arrival: &'static str },
    /// A session outlasts the span.
    #[error("span_s is {span_s}, but the longest session of this seed lasts {longest_s} s; give at least that")]
    SpanTooShort { span_s: f64, longest_s: f64 },
    /// One session has one span.
    #[error("span_s is {span_s} for a single session, which lasts {longest_s} s; leave it out or give more sessions")]
    SpanOfOneSession { span_s: f64, longest_s: f64 },
    /// Lengths that no trace can hold.
    #[error("the generated rows were refused: {0}")]
    Rows(#[from] AssembleError),
}

impl Default for GenerateSpec {
    fn default() -> Self {
        GenerateSpec {
            preset: Preset::SweBench52,
            seed: 42,
            sessions: PRESET_SESSIONS,
            requests: None,
            span_s: None,
            system_prompt: 1_472,
            shared_prefix: 100,
            arrival: Arrival::Uniform,
            pool_workers: 4,
            pool_setup_s: 60.0,
            block_size: 64,
            output_mean: 240.0,
            heavy_sessions: None,
            peak_light: 31_344,
            peak_heavy: 56_011,
            peak_max: 100_000,
        }
    }
}

impl GenerateSpec {
    /// Requests that will be generated.
    pub fn request_count(&self) -> u32 {
        self.requests.unwrap_or_else(|| scaled(PRESET_REQUESTS, self.sessions))
    }

    /// Heavy sessions that will be generated.
    pub fn heavy_count(&self) -> u32 {
        self.heavy_sessions.unwrap_or_else(|| scaled(PRESET_HEAVY, self.sessions))
    }

    /// Span aimed at when none is given, seconds, before the longest session is known.
    pub(super) fn default_span_s(&self) -> f64 {
        PRESET_SPAN_S * f64::from(self.sessions) / f64::from(PRESET_SESSIONS)
    }

    /// Mean turns per session.
    pub(super) fn mean_turns(&self) -> f64 {
        f64::from(self.request_count()) / f64::from(self.sessions)
    }

    /// Tokens before the task text.
    pub(super) fn opening(&self) -> u32 {
        self.system_prompt.max(self.shared_prefix)
    }

    /// Refuses knobs that no draw can meet.
    ///
    /// # Errors
    /// The first knob found wrong, with its value and what to give instead.
    pub fn validate(&self) -> Result<(), GenerateError> {
        self.validate_counts()?;
        for (field, value, most) in [
            ("output_mean", Some(self.output_mean), f64::from(MOST_PEAK_TOKENS)),
            ("pool_setup_s", Some(self.pool_setup_s), MOST_SETUP_S),
            ("span_s", self.span_s, MOST_SPAN_S),
        ] {
            let Some(value) = value else { continue };
            if !(value > 0.0 && value <= most) {
                return Err(GenerateError::OutOfRange { field, value, most });
            }
        }
        match (self.arrival, self.span_s) {
            (Arrival::Pool | Arrival::Burst, Some(_)) => {
                return Err(GenerateError::SpanNotUsed { arrival: self.arrival.as_str() });
            }
            (Arrival::Uniform, _) | (Arrival::Pool | Arrival::Burst, None) => {}
        }
        self.validate_peaks()
    }

    fn validate_counts(&self) -> Result<(), GenerateError> {
        for (field, value, most) in [
            ("sessions", self.sessions, MOST_SESSIONS),
            ("block_size", self.block_size, u32::MAX),
            ("pool_workers", self.pool_workers, u32::MAX),
        ] {
            if value == 0 {
                return Err(GenerateError::Zero { field });
            }
            if value > most {
                return Err(GenerateError::TooLarge { field, value, most });
            }
        }
        let (sessions, requests) = (self.sessions, self.request_count());
        let most = u64::from(sessions) * u64::from(MOST_TURNS);
        if requests < sessions {
            return Err(GenerateError::TooFewRequests { requests, sessions });
        }
        if u64::from(requests) > most {
            return Err(GenerateError::TooManyRequests { requests, sessions, most });
        }
        if self.heavy_count() > sessions {
            return Err(GenerateError::TooManyHeavy { heavy: self.heavy_count(), sessions });
        }
        Ok(())
    }

    fn validate_peaks(&self) -> Result<(), GenerateError> {
        for (field, value) in
            [("system_prompt", self.system_prompt), ("shared_prefix", self.shared_prefix), ("peak_max", self.peak_max)]
        {
            if value > MOST_PEAK_TOKENS {
                return Err(GenerateError::TooLarge { field, value, most: MOST_PEAK_TOKENS });
            }
        }
        let peaks = [("peak_light", self.peak_light), ("peak_heavy", self.peak_heavy), ("peak_max", self.peak_max)];
        for pair in peaks.windows(2) {
            let [(smaller, smaller_value), (larger, larger_value)] = [pair[0], pair[1]];
            if larger_value < smaller_value {
                return Err(GenerateError::PeaksOutOfOrder { larger, larger_value, smaller, smaller_value });
            }
        }
        let first = self.opening() + LONGEST_TASK_TOKENS;
        if self.peak_light < first {
            return Err(GenerateError::PeakBelowFirstPrompt { peak: self.peak_light, first });
        }
        let heavy = f64::from(self.heavy_count()) / f64::from(self.sessions);
        let peak = f64::from(self.peak_light) * (1.0 - heavy) + f64::from(self.peak_heavy) * heavy;
        let turns = self.mean_turns();
        let most = (peak - f64::from(self.opening())) / turns;
        if self.output_mean > most {
            return Err(GenerateError::OutputAbovePeak { output_mean: self.output_mean, turns, peak, most });
        }
        Ok(())
    }
}

impl Preset {
    /// Stable label.
    pub fn as_str(self) -> &'static str {
        match self {
            Preset::SweBench52 => "swe-bench-52",
        }
    }
}

impl FromStr for Preset {
    type Err = GenerateError;

    fn from_str(name: &str) -> Result<Self, GenerateError> {
        match name {
            "swe-bench-52" => Ok(Preset::SweBench52),
            _ => Err(GenerateError::UnknownPreset { name: name.into() }),
        }
    }
}

impl Arrival {
    /// Stable label.
    pub fn as_str(self) -> &'static str {
        match self {
            Arrival::Uniform => "uniform",
            Arrival::Pool => "pool",
            Arrival::Burst => "burst",
        }
    }
}

impl FromStr for Arrival {
    type Err = GenerateError;

    fn from_str(name: &str) -> Result<Self, GenerateError> {
        match name {
            "uniform" => Ok(Arrival::Uniform),
            "pool" => Ok(Arrival::Pool),
            "burst" => Ok(Arrival::Burst),
            _ => Err(GenerateError::UnknownArrival { name: name.into() }),
        }
    }
}

/// `preset_count` of 52 sessions, for `sessions`: rounded to the nearest.
fn scaled(preset_count: u32, sessions: u32) -> u32 {
    let twice = 2 * u64::from(preset_count) * u64::from(sessions) / u64::from(PRESET_SESSIONS);
    u32::try_from(twice.div_ceil(2)).unwrap_or(u32::MAX)
}
