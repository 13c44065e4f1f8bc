//! What is installed: Open MPI's commands, and the folders of its components and of ours.

use std::env;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The environment variable in which Open MPI looks for folders of components.
pub const COMPONENT_PATH: &str = "OMPI_MCA_mca_base_component_path";

/// What to do when Open MPI is missing.
pub const INSTALL: &str =
    "On Debian or Ubuntu: apt-get install openmpi-bin. Elsewhere: put the folder of Open MPI's \
     mpirun on PATH, or set OMPI_DIR to the prefix of its installation.";

/// A component that every folder of ours holds.
const COMPONENT: &str = "mca_pml_redmpi.so";

/// Open MPI's commands.
pub struct Host {
    /// Starts jobs.
    pub mpirun: PathBuf,
    ompi_info: PathBuf,
}

impl Host {
    /// Looks in `OMPI_DIR/bin`, if that variable is set, else along PATH.
    pub fn find() -> Result<Host, String> {
        let mpirun = find_command("mpirun")?;
        // The two belong together: another Open MPI's ompi_info would name the wrong folder.
        let beside = mpirun.with_file_name("ompi_info");
        let ompi_info = if beside.is_file() { beside } else { find_command("ompi_info")? };
        Ok(Host { mpirun, ompi_info })
    }

    /// The folder of Open MPI's own components.
    pub fn pkglibdir(&self) -> Result<PathBuf, String> {
        let text = self.ask(&["--path", "pkglibdir", "--parsable"])?;
        text.lines()
            .find_map(|line| line.strip_prefix("path:pkglibdir:"))
            .map(|folder| PathBuf::from(folder.trim_matches('"')))
            .ok_or_else(|| format!("{} does not say its pkglibdir: not Open MPI?", self.ompi_info.display()))
    }

    /// The version of Open MPI, like `4.1.4`.
    pub fn version(&self) -> Result<String, String> {
        let text = self.ask(&["--version"])?;
        text.split_whitespace()
            .find_map(|word| word.strip_prefix('v').filter(|rest| rest.starts_with(|c: char| c.is_ascii_digit())))
            .map(str::to_owned)
            .ok_or_else(|| format!("{} does not say its version: not Open MPI?", self.ompi_info.display()))
    }

    /// What [`COMPONENT_PATH`] has to be: our folder, what was there before, and Open MPI's own.
    pub fn component_path(&self) -> Result<OsString, String> {
        let user = env::var_os("HOME").map(|home| PathBuf::from(home).join(".openmpi/components"));
        join(
            components()?,
            env::var_os(COMPONENT_PATH).as_deref(),
            self.pkglibdir()?,
            user.filter(|folder| folder.is_dir()),
        )
    }

    fn ask(&self, arguments: &[&str]) -> Result<String, String> {
        let output = Command::new(&self.ompi_info)
            .args(arguments)
            .output()
            .map_err(|error| format!("{} cannot be started: {error}", self.ompi_info.display()))?;
        if !output.status.success() {
            let reason = String::from_utf8_lossy(&output.stderr);
            let command = format!("{} {}", self.ompi_info.display(), arguments.join(" "));
            return Err(format!("`{command}` failed ({}): {}", output.status, reason.trim()));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// The series of a version, within which components fit: `4.1` of `4.1.4`.
pub fn series(version: &str) -> Vec<&str> {
    version.split('.').take(2).collect()
}

/// The folder of redmpi's components: `REDMPI_COMPONENTS`, or in a checkout `components` beside this command, or
/// installed `../lib/redmpi/components`.
pub fn components() -> Result<PathBuf, String> {
    if let Some(folder) = env::var_os("REDMPI_COMPONENTS") {
        let folder = absolute(Path::new(&folder))?;
        return match folder.join(COMPONENT).exists() {
            true => Ok(folder),
            false => Err(format!("REDMPI_COMPONENTS is {}, but {COMPONENT} is not there", folder.display())),
        };
    }
    let command = env::current_exe().map_err(|error| format!("where this command is cannot be told: {error}"))?;
    let folder = command.parent().unwrap_or(Path::new("/"));
    let places = [folder.join("components"), folder.join("../lib/redmpi/components")];
    match places.iter().find(|place| place.join(COMPONENT).exists()) {
        Some(place) => place.canonicalize().map_err(|error| format!("{}: {error}", place.display())),
        None => Err(format!(
            "redmpi's components were not found: no {COMPONENT} in {} nor {}. In a checkout, `cargo build --release` \
             makes them; elsewhere set REDMPI_COMPONENTS to their folder.",
            places[0].display(),
            places[1].display()
        )),
    }
}

/// The library that is loaded before the application: in the folder above the components, or beside this command.
pub fn preload() -> Result<PathBuf, String> {
    const NAME: &str = "libredmpi_preload.so";
    let components = components()?;
    // The components may be links to what lies beside the library.
    let place = components.parent().unwrap_or(Path::new("/")).join(NAME);
    match place.canonicalize() {
        Ok(file) => Ok(file),
        Err(error) => Err(format!(
            "{}: {error}. Without it clocks and random numbers that a program reads before MPI_Init differ between \
             replicas.",
            place.display()
        )),
    }
}

/// The path, made independent of the folder it was given in.
pub fn absolute(path: &Path) -> Result<PathBuf, String> {
    std::path::absolute(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn find_command(name: &str) -> Result<PathBuf, String> {
    let (folders, place) = match env::var_os("OMPI_DIR") {
        Some(prefix) => {
            let folder = PathBuf::from(prefix).join("bin");
            let place = format!("in {} (OMPI_DIR)", folder.display());
            (vec![folder], place)
        }
        None => (env::split_paths(&env::var_os("PATH").unwrap_or_default()).collect(), "on PATH".to_owned()),
    };
    folders
        .iter()
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
        .ok_or_else(|| format!("Open MPI's {name} was not found {place}.\n{INSTALL}"))
}

fn join(
    ours: PathBuf,
    before: Option<&OsStr>,
    pkglibdir: PathBuf,
    user: Option<PathBuf>,
) -> Result<OsString, String> {
    let mut folders = vec![ours];
    match before.filter(|before| !before.is_empty()) {
        Some(before) => folders.extend(env::split_paths(before)),
        // Setting the variable takes away Open MPI's default, which has the user's own folder too.
        None => folders.extend(user),
    }
    folders.push(pkglibdir);
    let mut seen = Vec::new();
    folders.retain(|folder| {
        let new = !seen.contains(folder);
        seen.push(folder.clone());
        new
    });
    env::join_paths(&folders).map_err(|_| {
        format!("{} contains a colon, which Open MPI takes for the end of a folder's name", folders[0].display())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined(before: Option<&str>, user: Option<&str>) -> String {
        join("/ours".into(), before.map(OsStr::new), "/ompi".into(), user.map(PathBuf::from))
            .unwrap()
            .into_string()
            .unwrap()
    }

    #[test]
    fn the_path_keeps_what_was_there() {
        assert_eq!(joined(None, None), "/ours:/ompi");
        assert_eq!(joined(None, Some("/home/me/.openmpi/components")), "/ours:/home/me/.openmpi/components:/ompi");
        assert_eq!(joined(Some(""), None), "/ours:/ompi");
        assert_eq!(joined(Some("/theirs:/ompi"), Some("/user")), "/ours:/theirs:/ompi");
        assert_eq!(joined(Some("/ours:/ompi"), None), "/ours:/ompi", "the same after a second time");
        assert!(join("/a:b".into(), None, "/ompi".into(), None).unwrap_err().contains("colon"));
    }

    #[test]
    fn series_of_a_version() {
        assert_eq!(series("4.1.4"), ["4", "1"]);
        assert_ne!(series("5.0.7rc1"), series("4.1.4"));
    }
}
