//! `scenario list` and `scenario show`: the shipped scenarios, and any scenario as a run would see it.

use clap::{Args, Subcommand};

use crate::cli::exit::{Exit, Failure};
use crate::cli::inputs::ScenarioArgs;
use crate::cli::stdout;
use crate::scenario;

/// Subcommands of `scenario`.
#[derive(Debug, Subcommand)]
pub enum ScenarioCommand {
    /// List the shipped scenarios, one a line: name and description.
    List,
    /// Print a scenario as TOML, every default filled in and every flag applied.
    Show(Box<ShowArgs>),
    /// Print the JSON Schema of scenario files, for editors.
    Schema,
}

/// Arguments of `scenario show`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  pdreplay scenario show v3-1p7d --set admission.cap_max=16 > mine.toml\n  pdreplay scenario show live-sglang --source > mine.toml"
)]
pub struct ShowArgs {
    /// The same as `--scenario`.
    #[arg(value_name = "FILE|NAME", conflicts_with = "scenario")]
    named: Option<String>,
    /// The file of a shipped scenario as it is written, comments included; no flag applies to it.
    #[arg(long)]
    source: bool,
    #[command(flatten)]
    scenario: ScenarioArgs,
}

/// Runs one of them.
pub fn run(command: &ScenarioCommand) -> Result<Exit, Failure> {
    match command {
        ScenarioCommand::List => list(),
        ScenarioCommand::Show(args) => show(args),
        ScenarioCommand::Schema => stdout::print_json(&scenario::schema()),
    }?;
    Ok(Exit::Ok)
}

fn list() -> Result<(), Failure> {
    let mut text = String::new();
    let width = scenario::shipped_scenarios().map(str::len).max().unwrap_or(0);
    for name in scenario::shipped_scenarios() {
        let shipped = scenario::load(Some(name), &[])?;
        text += &format!("{name:<width$}  {}\n", shipped.description);
    }
    stdout::print(&text)
}

fn show(args: &ShowArgs) -> Result<(), Failure> {
    let mut asked = args.scenario.clone();
    asked.named.scenario = args.named.clone().or(asked.named.scenario);
    if args.source {
        let name = asked.named.scenario.unwrap_or_else(|| "default".into());
        let text = scenario::shipped_text(&name).ok_or_else(|| {
            Failure::input(format!("no shipped scenario is called `{name}`"))
                .hint("`pdreplay scenario list` names them")
        })?;
        return stdout::print(text);
    }
    let scenario = asked.resolve()?;
    stdout::print(&scenario.to_toml().map_err(Failure::broke)?)
}
