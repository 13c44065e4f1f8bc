//! The redmpi command: start a job, prepare a shell, show a report, say what is installed.
//!
//! It starts nothing by itself: `run` becomes the mpirun command that a user could type, and `--dry-run` shows it.
#![forbid(unsafe_code)]

mod host;
mod preload;
mod quote;
mod run;
mod stdio;

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use clap::{Parser, Subcommand};
use redmpi::report;

use host::Host;
use preload::Preload;
use run::RunOptions;

/// Exit status for what the user has to mend; that of a job is mpirun's.
const USAGE: u8 = 2;

#[derive(Parser)]
#[command(name = "redmpi", version, about, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Run an MPI program replicated: redmpi run -r 3 -n 4 [mpirun options] -- program [arguments]
    // Its help and its arguments are RunOptions'; see run::split.
    #[command(disable_help_flag = true)]
    Run {
        /// See redmpi run --help
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<OsString>,
    },
    /// Print shell lines that let plain mpirun find redmpi: eval "$(redmpi env)"
    Env,
    /// Print the verdict of a job's JSON report
    Report {
        /// File that pml_redmpi_report or `redmpi run --report` named
        file: PathBuf,
    },
    /// Print versions and folders
    Info,
}

fn main() -> ExitCode {
    // Not through clap, which would swallow a leading `--`.
    let mut words = std::env::args_os().skip(1);
    match words.next() {
        Some(word) if word == "run" => return exit(run(words.collect())),
        // For redmpi itself, and in no list of commands.
        Some(word) if word == "stdio" => return stdio::main(),
        _ => {}
    }
    exit(match Arguments::parse().action {
        Action::Run { words } => run(words),
        Action::Env => environment(),
        Action::Report { file } => show_report(&file),
        Action::Info => info(),
    })
}

fn exit(result: Result<(), String>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            eprintln!("redmpi: {text}");
            ExitCode::from(USAGE)
        }
    }
}

/// Writes to stdout; a reader that went away (`| head`) is no error.
fn print(text: &[u8]) -> Result<(), String> {
    match io::stdout().write_all(text).and_then(|()| io::stdout().flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(format!("stdout: {error}")),
        _ => Ok(()),
    }
}

fn run(words: Vec<OsString>) -> Result<(), String> {
    let (own, mpirun_options, program) = run::split(words)?;
    let options = RunOptions::try_parse_from(std::iter::once(OsString::from("redmpi run")).chain(own))
        .unwrap_or_else(|error| error.exit());
    let preload = if options.degree > 1 && !options.no_preload { preload()? } else { None };
    let arguments = run::arguments(&options, mpirun_options, program, preload.as_ref())?;
    let host = Host::find()?;
    let path = host.component_path()?;

    if options.dry_run {
        let mut line = format!("{}=", host::COMPONENT_PATH).into_bytes();
        line.extend(quote::quoted(&path));
        line.push(b' ');
        line.extend(quote::line(
            std::iter::once(host.mpirun.as_os_str()).chain(arguments.iter().map(|word| &**word)),
        ));
        line.push(b'\n');
        return print(&line);
    }
    let error = Command::new(&host.mpirun).args(arguments).env(host::COMPONENT_PATH, path).exec();
    Err(format!("{} cannot be started: {error}\n{}", host.mpirun.display(), host::INSTALL))
}

/// What the job's processes get before they start. A job without it runs, and is told so.
fn preload() -> Result<Option<Preload>, String> {
    let library = match host::preload() {
        Ok(library) => library,
        Err(text) => {
            eprintln!("redmpi: warning: {text}");
            return Ok(None);
        }
    };
    let mut seed = [0u8; 16];
    File::open("/dev/urandom")
        .and_then(|mut device| device.read_exact(&mut seed))
        .map_err(|error| format!("/dev/urandom: {error}"))?;
    let seed: String = seed.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(Some(Preload {
        library,
        before: std::env::var_os("LD_PRELOAD"),
        list: std::env::var_os(preload::LIST_VARIABLE),
        variables: vec![("REDMPI_SEED", seed), ("REDMPI_EPOCH", redmpi_sources::time::epoch_now().text())],
    }))
}

fn environment() -> Result<(), String> {
    let mut line = format!("export {}=", host::COMPONENT_PATH).into_bytes();
    line.extend(quote::quoted(&Host::find()?.component_path()?));
    line.push(b'\n');
    // Not for mpirun itself, so only a word to be given to it. A comment where the shell does not need to know.
    if let Ok(library) = host::preload() {
        line.extend(b"export REDMPI_PRELOAD_LIBRARY=");
        line.extend(quote::quoted(library.as_os_str()));
        line.extend(b"\n# before MPI_Init too: mpirun -x LD_PRELOAD=$REDMPI_PRELOAD_LIBRARY ...\n");
    }
    print(&line)
}

fn show_report(file: &std::path::Path) -> Result<(), String> {
    let report = report::read_json(file).map_err(|error| error.to_string())?;
    print(report::verdict_text(&report, report::placement_note(&report).as_deref()).as_bytes())
}

fn info() -> Result<(), String> {
    let built_for = env!("REDMPI_OPEN_MPI");
    let mut text = format!("redmpi:              {}\nbuilt for Open MPI:  {built_for}\n", env!("CARGO_PKG_VERSION"));
    let or_problem = |result: Result<String, String>| result.unwrap_or_else(|problem| format!("({problem})"));
    match Host::find() {
        Ok(host) => {
            let found = host.version();
            let differs = found.as_ref().is_ok_and(|found| host::series(found) != host::series(built_for));
            let remark = if differs { "  <- another series: the components refuse to load" } else { "" };
            text += &format!("Open MPI found:      {}{remark}\n", or_problem(found));
            text += &format!("mpirun:              {}\n", host.mpirun.display());
            text += &format!(
                "Open MPI components: {}\n",
                or_problem(host.pkglibdir().map(|folder| folder.display().to_string()))
            );
        }
        Err(problem) => text += &format!("Open MPI found:      ({problem})\n"),
    }
    text += &format!(
        "redmpi components:   {}\n",
        or_problem(host::components().map(|folder| folder.display().to_string()))
    );
    text += &format!("preloaded library:   {}\n", or_problem(host::preload().map(|file| file.display().to_string())));
    text += &format!("digests:             {}\n", run::DIGESTS.join(", "));
    text += &format!("protocols:           {}\n", run::PROTOCOLS.join(", "));
    text += "all variables:       ompi_info --param pml redmpi --level 9; ompi_info --param coll redmpi --level 9\n";
    print(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_declarations_are_consistent() {
        Arguments::command().debug_assert();
        RunOptions::command().debug_assert();
    }
}
