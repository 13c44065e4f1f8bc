//! `redmpi run`: from its options to mpirun's arguments.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use clap::{CommandFactory, Parser};
use redmpi::replication::RankMap;

use crate::host::absolute;
use crate::preload::Preload;

/// Values of `pml_redmpi_digest`.
pub const DIGESTS: [&str; 4] = ["crc32c", "xxh3", "sha1", "memcmp (with protocol alltoall)"];
/// Values of `pml_redmpi_protocol`.
pub const PROTOCOLS: [&str; 2] = ["msgplushash", "alltoall"];

const USAGE: &str = "redmpi run -r DEGREE -n RANKS [mpirun options] -- program [arguments]";

/// Run an MPI program replicated.
///
/// Options that are not listed here go to mpirun as they are, in their order.
#[derive(Parser, Debug)]
#[command(name = "redmpi run", override_usage = USAGE, max_term_width = 100, disable_version_flag = true)]
pub struct RunOptions {
    /// Replicas of each rank: 2 detects corruption, 3 and more correct it
    #[arg(short = 'r', long, value_parser = clap::value_parser!(u32).range(1..))]
    pub degree: u32,
    /// Ranks that the program sees; DEGREE times as many processes are started
    #[arg(short = 'n', long = "np", value_name = "RANKS", value_parser = clap::value_parser!(u32).range(1..))]
    pub ranks: u32,
    /// Write the job's JSON report to this file
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// Take replicas and ranks from this file (docs/rank-map.md)
    #[arg(long, value_name = "FILE")]
    pub rank_map: Option<PathBuf>,
    /// Digest to compare messages by, see `redmpi info`
    #[arg(long, value_name = "NAME")]
    pub digest: Option<String>,
    /// Protocol of verification: msgplushash or alltoall
    #[arg(long, value_name = "NAME")]
    pub protocol: Option<String>,
    /// Inject a bit flip into one of X sent messages, on average
    #[arg(long, value_name = "X")]
    pub inject_rate: Option<u64>,
    /// Seed of the injector: the same seed gives the same faults
    #[arg(long, value_name = "SEED")]
    pub inject_seed: Option<u64>,
    /// Inject only in these replicas: 1 or 0,2
    #[arg(long, value_name = "LIST")]
    pub inject_replicas: Option<String>,
    /// Inject only in these virtual ranks
    #[arg(long, value_name = "LIST")]
    pub inject_ranks: Option<String>,
    /// Inject at most this many faults in a process
    #[arg(long, value_name = "COUNT")]
    pub inject_count: Option<u64>,
    /// Do not preload the library that makes clocks and random numbers the same before MPI_Init too
    #[arg(long)]
    pub no_preload: bool,
    /// Print the command line and do not run it
    #[arg(long)]
    pub dry_run: bool,
}

/// Our own options, mpirun's, and the program with its arguments.
pub type Split = (Vec<OsString>, Vec<OsString>, Vec<OsString>);

/// Parts the words after `redmpi run`: before `--` what is declared in [`RunOptions`] is ours, wherever it stands,
/// and the rest is mpirun's; after it comes the program.
pub fn split(words: Vec<OsString>) -> Result<Split, String> {
    let command = RunOptions::command();
    let mut own = Vec::new();
    let mut mpirun = Vec::new();
    let mut words = words.into_iter();
    let mut parted = false;
    while let Some(word) = words.next() {
        if word == "--" {
            parted = true;
            break;
        }
        let (name, attached) = name_of(&word);
        match name.and_then(|name| values_of(&command, &name).map(|takes_value| (name, takes_value))) {
            Some((name, takes_value)) => {
                own.push(OsString::from(name));
                match attached {
                    Some(value) => own.push(value),
                    None if takes_value => own.extend(words.next()),
                    None => {}
                }
            }
            None => mpirun.push(word),
        }
    }
    let program: Vec<OsString> = words.collect();
    let help = own.iter().any(|word| word == "--help" || word == "-h");
    if help {
        return Ok((vec!["--help".into()], mpirun, program));
    }
    if !parted {
        return Err(format!("`--` is missing before the program.\nUsage: {USAGE}"));
    }
    if program.is_empty() {
        return Err(format!("the program is missing after `--`.\nUsage: {USAGE}"));
    }
    if program.iter().any(|word| word == ":") {
        return Err("`:` in the command line starts a second program in mpirun (MPMD), whose processes \
                    `redmpi run` cannot count.\nCall mpirun itself, with --mca coll redmpi."
            .to_owned());
    }
    Ok((own, mpirun, program))
}

/// The option as declared, and the value that is attached to it (`--report=FILE`, `-r3`).
fn name_of(word: &OsStr) -> (Option<String>, Option<OsString>) {
    let bytes = word.as_bytes();
    // mpirun has several names for the number of processes, and takes long options with one dash too.
    if matches!(bytes, b"-np" | b"--np" | b"--n" | b"-c" | b"-n") {
        return (Some("-n".to_owned()), None);
    }
    let (name, attached) = match bytes.iter().position(|byte| *byte == b'=') {
        Some(at) if bytes.starts_with(b"--") => (&bytes[..at], Some(&bytes[at + 1..])),
        _ if bytes.len() > 2 && (bytes.starts_with(b"-r") || bytes.starts_with(b"-n")) => {
            // `-r3`, but not mpirun's `-report-bindings` or `-nolocal`.
            match bytes[2..].iter().all(u8::is_ascii_digit) {
                true => (&bytes[..2], Some(&bytes[2..])),
                false => return (None, None),
            }
        }
        _ => (bytes, None),
    };
    let name = std::str::from_utf8(name).ok().filter(|name| name.starts_with('-')).map(str::to_owned);
    (name, attached.map(|value| OsStr::from_bytes(value).to_owned()))
}

/// Whether the option is ours, and if so whether it takes a value.
fn values_of(command: &clap::Command, name: &str) -> Option<bool> {
    if matches!(name, "-h" | "--help") {
        return Some(false);
    }
    let is_it = |argument: &&clap::Arg| match name.strip_prefix("--") {
        Some(long) => argument.get_long() == Some(long),
        None => argument.get_short().is_some_and(|short| name == format!("-{short}")),
    };
    command.get_arguments().find(is_it).map(|argument| argument.get_action().takes_values())
}

/// The arguments of mpirun.
pub fn arguments(
    options: &RunOptions,
    mpirun_options: Vec<OsString>,
    program: Vec<OsString>,
    preload: Option<&Preload>,
) -> Result<Vec<OsString>, String> {
    // MPI counts processes in a C int.
    let processes = options.ranks.checked_mul(options.degree).filter(|count| *count <= i32::MAX as u32);
    let Some(processes) = processes else {
        return Err(format!(
            "{} ranks of {} replicas are more than the {} processes that MPI can number",
            options.ranks,
            options.degree,
            i32::MAX
        ));
    };

    let mut arguments: Vec<OsString> = ["--mca", "coll", "redmpi"].map(OsString::from).to_vec();
    let mut set = |name: &str, value: OsString| {
        arguments.extend(["--mca".into(), format!("pml_redmpi_{name}").into(), value]);
    };
    set("degree", options.degree.to_string().into());
    if let Some(file) = &options.rank_map {
        // Better one error here than one from each process.
        RankMap::from_file(file, processes, options.degree).map_err(|error| error.to_string())?;
        set("rank_map", absolute(file)?.into());
    }
    if let Some(file) = &options.report {
        set("report", absolute(file)?.into());
    }
    let texts = [
        ("protocol", &options.protocol),
        ("digest", &options.digest),
        ("inject_replicas", &options.inject_replicas),
        ("inject_ranks", &options.inject_ranks),
    ];
    for (name, value) in texts {
        if let Some(value) = value {
            set(name, value.into());
        }
    }
    let numbers = [
        ("inject_rate", options.inject_rate),
        ("inject_seed", options.inject_seed),
        ("inject_count", options.inject_count),
    ];
    for (name, value) in numbers {
        if let Some(value) = value {
            set(name, value.to_string().into());
        }
    }
    arguments.extend(["-n".into(), processes.to_string().into()]);
    arguments.extend(match preload {
        Some(preload) => preload.add_to(mpirun_options)?,
        None => mpirun_options,
    });
    arguments.extend(program);
    Ok(arguments)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<OsString> {
        text.split_whitespace().map(OsString::from).collect()
    }

    /// The arguments of mpirun as one line.
    fn line(text: &str) -> Result<String, String> {
        let (own, mpirun, program) = split(words(text))?;
        let options = RunOptions::try_parse_from(std::iter::once("redmpi run".into()).chain(own))
            .map_err(|error| error.to_string())?;
        let arguments = arguments(&options, mpirun, program, None)?;
        Ok(arguments.join(OsStr::new(" ")).into_string().unwrap())
    }

    #[test]
    fn the_command_of_the_manual() {
        assert_eq!(
            line("-r 3 -n 4 -- lmp -in in.file").unwrap(),
            "--mca coll redmpi --mca pml_redmpi_degree 3 -n 12 lmp -in in.file"
        );
    }

    #[test]
    fn options_of_mpirun_pass_in_their_order() {
        let expected = "--mca coll redmpi --mca pml_redmpi_degree 2 -n 8 --oversubscribe --mca btl tcp,self -x A=b \
                        -nolocal -report-bindings --report-uri - ./app -r 9 -n 7 --report";
        for given in ["-r 2 -n 4 %", "% -r 2 -np 4", "-r2 % -n4", "--degree=2 % --np=4", "-c 4 % --degree 2"] {
            let given = given
                .replace('%', "--oversubscribe --mca btl tcp,self -x A=b -nolocal -report-bindings --report-uri -");
            assert_eq!(line(&format!("{given} -- ./app -r 9 -n 7 --report")).unwrap(), expected);
        }
        let middle = line("--oversubscribe -r 2 --mca a b -n 1 --hostfile h -- ./app").unwrap();
        assert!(middle.ends_with("-n 2 --oversubscribe --mca a b --hostfile h ./app"), "{middle}");
    }

    #[test]
    fn conveniences_become_variables() {
        let given = "-r 3 -n 2 --report /tmp/r.json --digest sha1 --protocol alltoall --inject-rate 1000 \
                     --inject-seed 7 --inject-replicas 0,2 --inject-ranks=1 --inject-count 5 -- ./app";
        assert_eq!(
            line(given).unwrap(),
            "--mca coll redmpi --mca pml_redmpi_degree 3 --mca pml_redmpi_report /tmp/r.json \
             --mca pml_redmpi_protocol alltoall --mca pml_redmpi_digest sha1 --mca pml_redmpi_inject_replicas 0,2 \
             --mca pml_redmpi_inject_ranks 1 --mca pml_redmpi_inject_rate 1000 --mca pml_redmpi_inject_seed 7 \
             --mca pml_redmpi_inject_count 5 -n 6 ./app"
        );
        let relative = line("-r 1 -n 1 --report r.json -- ./app").unwrap();
        let here = std::env::current_dir().unwrap();
        assert!(relative.contains(&format!("pml_redmpi_report {}/r.json", here.display())), "{relative}");
    }

    #[test]
    fn errors_say_what_to_do() {
        let error = |text: &str| line(text).expect_err(text);
        assert!(error("-r 3 -n 4 ./app").contains("`--` is missing before the program"));
        assert!(error("-r 3 -n 4 --").contains("the program is missing after `--`"));
        assert!(error("-r 3 -n 4 -- ./a : -n 2 ./b").contains("MPMD"));
        assert!(error("-r 3 -- ./app").contains("--np <RANKS>"));
        assert!(error("-n 3 -- ./app").contains("--degree <DEGREE>"));
        assert!(error("-r 0 -n 4 -- ./app").contains("0 is not in 1.."));
        assert!(error("-r x -n 4 -- ./app").contains("invalid digit"));
        assert!(error("-r -n 4 -- ./app").contains("a value is required"));
        assert!(error("-r 3 -r 3 -n 4 -- ./app").contains("cannot be used multiple times"));
        assert!(error("-r 3 -n 1431655766 -- ./app").contains("2147483647 processes"));
        assert!(error("-r 2 -n 1073741824 -- ./app").contains("2147483647 processes"));
        assert!(error("-r 2 -n 1 --rank-map /no/such/file -- ./app").contains("/no/such/file cannot be read"));
        assert!(error("--help").contains("Inject"));
    }

    #[test]
    fn a_bad_rank_map_stops_before_mpirun() {
        let file = std::env::temp_dir().join(format!("redmpi-run-map-{}", std::process::id()));
        std::fs::write(&file, "0 0 0\n1 0 0\n").unwrap();
        let text = line(&format!("-r 2 -n 1 --rank-map {} -- ./app", file.display())).unwrap_err();
        std::fs::write(&file, "0 0 1\n1 0 0\n").unwrap();
        let good = line(&format!("-r 2 -n 1 --rank-map {} -- ./app", file.display()));
        let _ = std::fs::remove_file(&file);
        assert!(text.contains(&format!("{}:2: ", file.display())), "{text}");
        assert!(good.unwrap().contains("--mca pml_redmpi_rank_map /"));
    }
}
