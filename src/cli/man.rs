//! `man`: one manual page, the subcommands' pages after the main one.

use std::io::{self, Write};

use clap::{Command, CommandFactory};
use clap_mangen::Man;

use crate::cli::args::Args;
use crate::cli::exit::{Exit, Failure};
use crate::cli::stdout;

/// Prints the pages.
pub fn run() -> Result<Exit, Failure> {
    let mut command = Args::command();
    command.build();
    stdout::print_with(|out| write_pages(&command, out))?;
    Ok(Exit::Ok)
}

fn write_pages(command: &Command, out: &mut dyn Write) -> io::Result<()> {
    Man::new(command.clone()).render(out)?;
    let inner = command.get_subcommands().filter(|inner| inner.get_name() != "help");
    inner.into_iter().try_for_each(|inner| write_pages(inner, out))
}
