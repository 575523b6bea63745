//! `trace generate`: a SWE-bench-like trace from a seed.

use clap::Args;

use crate::cli::exit::Failure;
use crate::cli::inputs::tell_notices;
use crate::cli::terminal::Terminal;
use crate::cli::trace::target::TargetArgs;
use crate::trace::generate::{Arrival, GenerateError, GenerateSpec, Preset, generate};

const EXAMPLES: &str = "\
Examples:
  pdreplay trace generate -o swe-bench-52.jsonl.zst
  pdreplay trace generate --seed 7 --sessions 8 --arrival burst | head";

/// Arguments of `trace generate`. Flags are named after the fields of the specification, units last.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct GenerateArgs {
    /// Statistics to match: `swe-bench-52` has 52 sessions, 4,449 requests over 6,000 s.
    #[arg(long, value_name = "NAME", default_value = "swe-bench-52")]
    preset: String,
    /// Seed of every draw.
    #[arg(long, value_name = "N", default_value = "42")]
    seed: u64,
    /// Sessions; requests and span scale with them.
    #[arg(long, value_name = "N", default_value = "52")]
    sessions: u32,
    /// Requests of all sessions.
    #[arg(long, value_name = "N")]
    requests: Option<u32>,
    /// When sessions start: `uniform` over the span, `pool` of agents one after another, `burst` within 2 s.
    #[arg(long, value_name = "ARRIVAL", default_value = "uniform", value_parser = ["uniform", "pool", "burst"])]
    arrival: String,
    /// First request to last, seconds, for arrival `uniform`.
    #[arg(long, value_name = "SECONDS")]
    span_s: Option<f64>,
    /// Agents side by side, for arrival `pool`.
    #[arg(long, value_name = "N", default_value = "4")]
    pool_workers: u32,
    /// Mean set-up time between two sessions of one agent, seconds, for arrival `pool`.
    #[arg(long, value_name = "SECONDS", default_value = "60")]
    pool_setup_s: f64,
    /// Tokens before the task text of every prompt.
    #[arg(long, value_name = "TOKENS", default_value = "1472")]
    system_prompt: u32,
    /// Tokens at the start of every prompt that are the same in all sessions.
    #[arg(long, value_name = "TOKENS", default_value = "100")]
    shared_prefix: u32,
    /// Tokens per block.
    #[arg(long, value_name = "TOKENS", default_value = "64")]
    block_size: u32,
    /// Mean answer, tokens.
    #[arg(long, value_name = "TOKENS", default_value = "240")]
    output_mean: f64,
    /// Sessions with long contexts; default: 22 of 52.
    #[arg(long, value_name = "N")]
    heavy_sessions: Option<u32>,
    /// Mean longest prompt of a light session, tokens.
    #[arg(long, value_name = "TOKENS", default_value = "31344")]
    peak_light: u32,
    /// Mean longest prompt of a heavy session, tokens.
    #[arg(long, value_name = "TOKENS", default_value = "56011")]
    peak_heavy: u32,
    /// Longest prompt of all, tokens.
    #[arg(long, value_name = "TOKENS", default_value = "100000")]
    peak_max: u32,
    #[command(flatten)]
    target: TargetArgs,
}

/// Generates.
pub fn run(args: &GenerateArgs, terminal: &Terminal) -> Result<(), Failure> {
    args.target.check()?;
    let trace = args.spec().and_then(|spec| generate(&spec)).map_err(Failure::input)?;
    tell_notices(&trace, &terminal.messages);
    args.target.write(&trace, terminal)
}

impl GenerateArgs {
    fn spec(&self) -> Result<GenerateSpec, GenerateError> {
        Ok(GenerateSpec {
            preset: self.preset.parse::<Preset>()?,
            seed: self.seed,
            sessions: self.sessions,
            requests: self.requests,
            span_s: self.span_s,
            system_prompt: self.system_prompt,
            shared_prefix: self.shared_prefix,
            arrival: self.arrival.parse::<Arrival>()?,
            pool_workers: self.pool_workers,
            pool_setup_s: self.pool_setup_s,
            block_size: self.block_size,
            output_mean: self.output_mean,
            heavy_sessions: self.heavy_sessions,
            peak_light: self.peak_light,
            peak_heavy: self.peak_heavy,
            peak_max: self.peak_max,
        })
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Whole {
        #[command(flatten)]
        args: GenerateArgs,
    }

    #[test]
    fn the_defaults_are_those_of_the_generator() {
        let whole = Whole::try_parse_from(["generate"]).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(whole.args.spec().unwrap(), GenerateSpec::default());
    }
}
