//! The JSON document on disk: written whole or not at all, so that a script never reads half of it.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::Report;

/// A report file that could not be written or read.
#[derive(Debug)]
pub struct ReportError {
    action: &'static str,
    path: PathBuf,
    reason: io::Error,
}

impl fmt::Display for ReportError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "report {} cannot be {}: {}", self.path.display(), self.action, self.reason)
    }
}

impl std::error::Error for ReportError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.reason)
    }
}

/// Writes the document beside `path` and renames it into place.
///
/// A link is followed; what is no regular file (a pipe, `/dev/stdout`) is written to as it is.
///
/// # Errors
/// Path and reason; an earlier file at `path` is then unharmed.
pub fn write_json(path: impl AsRef<Path>, report: &Report) -> Result<(), ReportError> {
    let path = path.as_ref();
    write(path, report).map_err(|reason| ReportError { action: "written", path: path.to_owned(), reason })
}

/// Writes the document if there is no file at `path`, in one go and with nothing beside it: for a job that is being
/// ended, in which several processes may write and each may be killed at any moment. The first one wins.
///
/// # Errors
/// Path and reason; that there is a file already is none.
pub fn write_json_first(path: impl AsRef<Path>, report: &Report) -> Result<(), ReportError> {
    let path = path.as_ref();
    let write = || {
        let mut text = serde_json::to_vec_pretty(report).map_err(io::Error::from)?;
        text.push(b'\n');
        match File::options().write(true).create_new(true).open(path) {
            Ok(mut file) => file.write_all(&text),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            Err(error) => Err(error),
        }
    };
    write().map_err(|reason| ReportError { action: "written", path: path.to_owned(), reason })
}

/// Reads a document that [`write_json`] wrote.
///
/// # Errors
/// Path and reason: unreadable, no JSON, or not a report.
pub fn read_json(path: impl AsRef<Path>) -> Result<Report, ReportError> {
    let path = path.as_ref();
    fs::read(path)
        .and_then(|bytes| serde_json::from_slice(&bytes).map_err(io::Error::from))
        .map_err(|reason| ReportError { action: "read", path: path.to_owned(), reason })
}

fn write(path: &Path, report: &Report) -> io::Result<()> {
    let mut text = serde_json::to_vec_pretty(report).map_err(io::Error::from)?;
    text.push(b'\n');

    let target = match fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => return Err(io::Error::from(io::ErrorKind::IsADirectory)),
        // A rename would replace the device itself.
        Ok(metadata) if !metadata.is_file() => return File::options().write(true).open(path)?.write_all(&text),
        Ok(_) => fs::canonicalize(path)?,
        Err(_) => path.to_owned(),
    };
    let Some(name) = target.file_name() else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the path names no file"));
    };
    let mut temporary = std::ffi::OsString::from(".");
    temporary.push(name);
    temporary.push(format!(".{}.new", std::process::id()));
    let temporary = target.with_file_name(temporary);
    let result = File::create(&temporary)
        .and_then(|mut file| {
            file.write_all(&text)?;
            file.sync_all()
        })
        .and_then(|()| fs::rename(&temporary, &target));
    if result.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    result
}

#[cfg(test)]
mod tests {
    use super::super::tests::{event, healthy, job};
    use super::super::{merge, EventKind};
    use super::*;
    use crate::replication::RankMap;

    #[test]
    fn of_several_that_write_at_the_end_the_first_wins() {
        let folder = Folder::new("first");
        let path = folder.0.join("report.json");
        let mut other = report();
        other.degree = 7;
        write_json_first(&path, &report()).unwrap();
        write_json_first(&path, &other).unwrap();
        assert_eq!(read_json(&path).unwrap(), report());
        assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 1);
        assert!(write_json_first(folder.0.join("no/such"), &other).is_err());
    }

    /// A folder that is gone when the test is over.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Folder {
            let path = std::env::temp_dir().join(format!("redmpi-json-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Folder(path)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn report() -> Report {
        let map = RankMap::by_formula(2, 2).unwrap();
        let mut reports = healthy(&map);
        reports[0].record(event(EventKind::Detected, 0, 0.25));
        merge(reports, job(&map))
    }

    #[test]
    fn exactly_the_agreed_keys() {
        let value = serde_json::to_value(report()).unwrap();
        let keys =
            |value: &serde_json::Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>().join(" ");
        // serde_json sorts the keys of a `Value`.
        assert_eq!(
            keys(&value),
            "collectives degree digest events events_omitted files injected messages native_size open_mpi output processes \
             protocol redmpi verdict virtual_size"
        );
        assert_eq!(keys(&value["messages"]), "corrected mismatched sent uncorrectable verified");
        assert_eq!(keys(&value["collectives"]), "called corrected mismatched uncorrectable verified");
        assert_eq!(keys(&value["output"]), "bytes corrected mismatched");
        assert_eq!(keys(&value["files"]), "corrected mismatched opened verified_bytes");
        assert_eq!(keys(&value["processes"][0]), "corrected host injected native pid replica sent suspected virtual");
        assert_eq!(keys(&value["events"][0]), "bytes communicator kind native peer tag time_s");
        assert_eq!(value["verdict"], "clean");
        assert_eq!(value["events"][0]["kind"], "detected");
    }

    #[test]
    fn written_whole_and_read_again() {
        let folder = Folder::new("whole");
        let path = folder.0.join("report.json");
        fs::write(&path, "what was there before, longer or shorter").unwrap();
        write_json(&path, &report()).unwrap();
        assert_eq!(read_json(&path).unwrap(), report());
        assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 1, "the temporary file is gone");
        let link = folder.0.join("link.json");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        write_json(&link, &report()).unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    }

    #[test]
    fn devices_are_not_replaced() {
        write_json("/dev/null", &report()).unwrap();
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
    }

    #[test]
    fn errors_say_path_and_reason() {
        let folder = Folder::new("errors");
        let missing = folder.0.join("no/such/folder/report.json");
        let text = write_json(&missing, &report()).unwrap_err().to_string();
        assert!(text.starts_with(&format!("report {} cannot be written: No such file", missing.display())), "{text}");
        let text = write_json(&folder.0, &report()).unwrap_err().to_string();
        assert!(text.contains("directory"), "{text}");
        let broken = folder.0.join("broken.json");
        fs::write(&broken, "{\"redmpi\": 1").unwrap();
        let text = read_json(&broken).unwrap_err().to_string();
        assert!(text.contains("broken.json cannot be read: "), "{text}");
    }
}
