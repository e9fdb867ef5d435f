// SPDX-License-Identifier: Apache-2.0
//! Implements `sluice-switch completion SHELL`. It prints a script with which a shell completes options, commands of
//! `ctl`, and their arguments.

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use clap::{Arg, Command, CommandFactory, Parser};
use clap_complete::Shell;

use crate::ctl;
use crate::options::Options;

/// Print the completion script of SHELL. For bash: source <(sluice-switch completion bash)
#[derive(Debug, Parser)]
#[command(name = "sluice-switch completion", version = crate::version::VERSION, max_term_width = 100)]
struct CompletionOptions {
    #[arg(value_enum)]
    shell: Shell,
}

/// Prints the script for a shell. `arguments` are the arguments after `completion`, and name the shell.
pub(crate) fn main(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let name = OsString::from("sluice-switch completion");
    let options = match CompletionOptions::try_parse_from(std::iter::once(name).chain(arguments)) {
        Ok(options) => options,
        Err(error) => error.exit(),
    };
    match std::io::stdout().write_all(&script(options.shell)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("sluice-switch completion: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Returns the script for the whole program. `ctl` and `completion` have their own parsers, so this function adds them
/// as sub-commands.
fn script(shell: Shell) -> Vec<u8> {
    let mut whole = Command::new("sluice-switch")
        .version(crate::version::VERSION)
        .disable_version_flag(true)
        .disable_help_subcommand(true)
        .args(shown(&Options::command()))
        .subcommand(ctl::command().name("ctl"))
        .subcommand(CompletionOptions::command().name("completion"));
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut whole, "sluice-switch", &mut script);
    script
}

/// Returns the command without its hidden options, because clap_complete would offer them too.
fn shown(command: &Command) -> impl Iterator<Item = Arg> {
    let shown = command.get_arguments().filter(|one| !one.is_hide_set());
    shown.cloned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shell_completes_options_and_commands() {
        for shell in [
            Shell::Bash,
            Shell::Zsh,
            Shell::Fish,
            Shell::Elvish,
            Shell::PowerShell,
        ] {
            let script = String::from_utf8(script(shell)).unwrap();
            for word in ["metrics-address", "set-queue-depth", "completion", "bench"] {
                assert!(script.contains(word), "{shell}: {word}");
            }
            assert!(!script.contains("thrift-port"), "hidden options stay so");
        }
    }
}
