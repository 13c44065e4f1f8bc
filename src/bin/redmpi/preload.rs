//! `libredmpi_preload.so` in the application's processes: what mpirun has to be told so that they, and not mpirun itself,
//! are started with it.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

/// The loader's variable.
const LD_PRELOAD: &str = "LD_PRELOAD";
/// mpirun's list of variables for the application; it does not go together with `-x`.
const LIST: &str = "mca_base_env_list";
/// The same in the environment.
pub const LIST_VARIABLE: &str = "OMPI_MCA_mca_base_env_list";

/// What a job's processes get.
#[derive(Debug)]
pub struct Preload {
    /// The library.
    pub library: PathBuf,
    /// Libraries that the user preloads.
    pub before: Option<OsString>,
    /// The user's [`LIST_VARIABLE`].
    pub list: Option<OsString>,
    /// Other variables: a seed, and the start of the clock.
    pub variables: Vec<(&'static str, String)>,
}

impl Preload {
    /// Adds to mpirun's options what sets the variables; the user's own ways to set them are kept.
    ///
    /// # Errors
    /// A library whose path LD_PRELOAD cannot hold.
    pub fn add_to(&self, options: Vec<OsString>) -> Result<Vec<OsString>, String> {
        if self.library.as_os_str().as_bytes().iter().any(|byte| b": ;".contains(byte)) {
            return Err(format!(
                "{} has a blank, a colon or a semicolon in its name, which LD_PRELOAD cannot hold: move redmpi, or give \
                 --no-preload (then what the program reads of clocks and random numbers before MPI_Init differs)",
                self.library.display()
            ));
        }
        let mut kept = Vec::new();
        let mut before = self.before.clone();
        let mut exports = false;
        let mut list = None;
        let mut words = options.into_iter().peekable();
        while let Some(word) = words.next() {
            let next_is = |words: &mut std::iter::Peekable<std::vec::IntoIter<OsString>>, name: &str| {
                words.peek().is_some_and(|next| next.to_str() == Some(name))
            };
            if word == "-x" || word == "--x" {
                exports = true;
                let Some(variable) = words.next() else {
                    kept.push(word);
                    continue;
                };
                match variable.as_bytes().strip_prefix(LD_PRELOAD.as_bytes()) {
                    Some([]) => {} // the environment's, which is added anyway
                    Some([b'=', value @ ..]) => before = Some(OsString::from_vec(value.to_vec())),
                    _ => kept.extend([word, variable]),
                }
            } else if ["-mca", "--mca", "-gmca", "--gmca"].iter().any(|name| word == *name)
                && next_is(&mut words, LIST)
            {
                words.next();
                list = words.next();
            } else {
                kept.push(word);
            }
        }
        let list = list.or_else(|| if exports { None } else { self.list.clone() }).filter(|list| !list.is_empty());
        match list {
            Some(list) => {
                let mut entries = Vec::new();
                for entry in list.as_bytes().split(|byte| *byte == b';') {
                    match entry.strip_prefix(LD_PRELOAD.as_bytes()) {
                        Some([]) => {}
                        Some([b'=', value @ ..]) => before = Some(OsString::from_vec(value.to_vec())),
                        _ => entries.push(entry.to_vec()),
                    }
                }
                entries.extend(self.assignments(before).into_iter().map(OsString::into_vec));
                kept.extend(["--mca".into(), LIST.into(), OsString::from_vec(entries.join(&b';'))]);
            }
            None => {
                kept.extend(self.assignments(before).into_iter().flat_map(|assignment| ["-x".into(), assignment]));
            }
        }
        Ok(kept)
    }

    /// `NAME=value` of each variable; our library comes first, so that it is there before all others begin.
    fn assignments(&self, before: Option<OsString>) -> Vec<OsString> {
        let mut libraries = OsString::from(format!("{LD_PRELOAD}="));
        libraries.push(&self.library);
        let ours = self.library.as_os_str().as_bytes();
        let others = before.unwrap_or_default();
        for other in others.as_bytes().split(|byte| b": ".contains(byte)) {
            if !other.is_empty() && other != ours {
                libraries.push(":");
                libraries.push(OsStr::from_bytes(other));
            }
        }
        let others = self.variables.iter().map(|(name, value)| OsString::from(format!("{name}={value}")));
        std::iter::once(libraries).chain(others).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(options: &str, before: Option<&str>, list: Option<&str>) -> String {
        let preload = Preload {
            library: "/lib/p.so".into(),
            before: before.map(OsString::from),
            list: list.map(OsString::from),
            variables: vec![("REDMPI_SEED", String::from("5"))],
        };
        let options = options.split_whitespace().map(OsString::from).collect();
        preload.add_to(options).unwrap().join(OsStr::new(" ")).into_string().unwrap()
    }

    #[test]
    fn variables_go_by_x() {
        assert_eq!(line("--oversubscribe", None, None), "--oversubscribe -x LD_PRELOAD=/lib/p.so -x REDMPI_SEED=5");
        assert_eq!(line("-x A=b", None, Some("C=d")), "-x A=b -x LD_PRELOAD=/lib/p.so -x REDMPI_SEED=5");
    }

    #[test]
    fn the_users_own_libraries_are_kept() {
        for (options, before) in [
            ("", Some("/t.so")),
            ("-x LD_PRELOAD=/t.so", None),
            ("--x LD_PRELOAD", Some("/t.so")),
            ("-x LD_PRELOAD=/t.so", Some("/u.so")),
        ] {
            assert_eq!(line(options, before, None), "-x LD_PRELOAD=/lib/p.so:/t.so -x REDMPI_SEED=5", "{options}");
        }
        let twice = line("", Some("/lib/p.so:/t.so /u.so"), None);
        assert_eq!(twice, "-x LD_PRELOAD=/lib/p.so:/t.so:/u.so -x REDMPI_SEED=5");
        assert_eq!(line("", Some(""), None), "-x LD_PRELOAD=/lib/p.so -x REDMPI_SEED=5");
    }

    #[test]
    fn mpiruns_list_is_used_where_the_user_does() {
        let with = "--mca mca_base_env_list A=b;LD_PRELOAD=/lib/p.so:/t.so;REDMPI_SEED=5";
        assert_eq!(line("--mca mca_base_env_list A=b;LD_PRELOAD=/t.so", None, None), with);
        assert_eq!(line("", Some("/t.so"), Some("A=b")), with);
    }

    #[test]
    fn a_path_that_cannot_be_preloaded_is_refused() {
        let preload = Preload { library: "/a b/p.so".into(), before: None, list: None, variables: Vec::new() };
        assert!(preload.add_to(Vec::new()).unwrap_err().contains("--no-preload"));
    }
}
