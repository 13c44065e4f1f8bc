//! Names of private copies. A follower's copy of `DIR/NAME` is `DIR/.redmpi-JOB-rREPLICA/NAME`: beside the original, because
//! that folder is on as many hosts as the application needs, and made from the path's text alone, so that relative
//! paths, folder descriptors and links on the way keep their meaning.
//!
//! Paths are bytes, as the kernel sees them.

/// What all private folders of all jobs begin with.
pub const PREFIX: &[u8] = b".redmpi-";

/// Most links that are followed in a row, as in the kernel.
pub const LINKS: usize = 40;

/// The private folders of one sphere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overlay {
    folder: Vec<u8>,
}

impl Overlay {
    /// The overlay of a replica index in a job. `job` is what the launcher tells of the job; equal in all its processes.
    pub fn new(job: &[u8], replica: u32) -> Overlay {
        Overlay { folder: format!(".redmpi-{:016x}-r{replica}", fnv(job)).into_bytes() }
    }

    /// The private folder's own name.
    pub fn folder(&self) -> &[u8] {
        &self.folder
    }

    /// The private folder in which the copy of `path` is; `None` where the path names no file by its own name.
    pub fn folder_of(&self, path: &[u8]) -> Option<Vec<u8>> {
        let (before, _) = split(path)?;
        Some([before, &self.folder].concat())
    }

    /// The private copy of `path`; `None` where the path names no file by its own name.
    pub fn copy_of(&self, path: &[u8]) -> Option<Vec<u8>> {
        let (before, name) = split(path)?;
        Some([before, &self.folder, b"/", name].concat())
    }
}

/// FNV-1a: the launcher's text as a short name.
fn fnv(text: &[u8]) -> u64 {
    text.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// A path up to its last slash, that included, and the name after it; `None` for folders (`a/`, `.`, `..`) and `""`.
pub fn split(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let start = path.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
    let (before, name) = path.split_at(start);
    (!matches!(name, b"" | b"." | b"..")).then_some((before, name))
}

/// Where a link at `path` with this content leads.
pub fn link(path: &[u8], content: &[u8]) -> Vec<u8> {
    if content.first() == Some(&b'/') {
        return content.to_vec();
    }
    let before = path.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
    [&path[..before], content].concat()
}

/// Whether a name in a folder is one of redmpi's, of whatever job.
pub fn is_private(name: &[u8]) -> bool {
    let Some(rest) = name.strip_prefix(PREFIX) else { return false };
    let Some((job, replica)) = rest.split_at_checked(16) else { return false };
    let Some(replica) = replica.strip_prefix(b"-r") else { return false };
    job.iter().all(u8::is_ascii_hexdigit) && !replica.is_empty() && replica.iter().all(u8::is_ascii_digit)
}

/// Whether a path is the system's: there are no private copies of devices and of what the kernel tells.
pub fn is_system(path: &[u8]) -> bool {
    [&b"/dev"[..], b"/proc", b"/sys"]
        .iter()
        .any(|folder| path.strip_prefix(*folder).is_some_and(|rest| rest.is_empty() || rest.first() == Some(&b'/')))
}

/// What a call that opens a file wants of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Intent {
    /// The file's content or existence may change.
    pub write: bool,
    /// The file is emptied.
    pub truncate: bool,
    /// There must be no such file yet.
    pub exclusive: bool,
    /// Writes go to the end.
    pub append: bool,
    /// A link at the end of the path is not followed.
    pub no_follow: bool,
}

/// What `fopen`'s mode asks for.
pub fn intent_of_mode(mode: &[u8]) -> Intent {
    let options = mode.split(|byte| *byte == b',').next().unwrap_or_default();
    let (first, rest) = options.split_first().unwrap_or((&b'r', &[]));
    Intent {
        write: *first != b'r' || rest.contains(&b'+'),
        truncate: *first == b'w',
        exclusive: rest.contains(&b'x'),
        append: *first == b'a',
        no_follow: false,
    }
}

/// `fopen`'s mode for a private copy that exists already.
pub fn mode_of_copy(mode: &[u8]) -> Vec<u8> {
    let options = mode.iter().position(|byte| *byte == b',').unwrap_or(mode.len());
    let (letters, after) = mode.split_at(options);
    letters.iter().filter(|letter| **letter != b'x').chain(after).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_beside_the_file() {
        let overlay = Overlay::new(b"84082688.0;tcp://192.0.2.2:60869", 1);
        let folder = String::from_utf8(overlay.folder().to_vec()).unwrap();
        assert!(is_private(folder.as_bytes()), "{folder}");
        let copy = |path: &str| overlay.copy_of(path.as_bytes()).map(|copy| String::from_utf8(copy).unwrap());
        assert_eq!(copy("out"), Some(format!("{folder}/out")));
        assert_eq!(copy("a/b/out"), Some(format!("a/b/{folder}/out")));
        assert_eq!(copy("/out"), Some(format!("/{folder}/out")));
        assert_eq!(copy("../out"), Some(format!("../{folder}/out")));
        for no_file in ["", "/", ".", "..", "a/", "a/.."] {
            assert_eq!(copy(no_file), None, "{no_file}");
        }
        assert_ne!(overlay, Overlay::new(b"84082688.0;tcp://192.0.2.2:60869", 2));
        assert_ne!(overlay, Overlay::new(b"84082688.0;tcp://192.0.2.2:60868", 1));
    }

    #[test]
    fn private_names() {
        assert!(is_private(b".redmpi-0123456789abcdef-r12"));
        for other in [".redmpi", ".redmpi-", ".redmpi-0123456789abcdef", ".redmpi-0123456789abcdef-r", "redmpi"] {
            assert!(!is_private(other.as_bytes()), "{other}");
        }
        assert!(!is_private(b".redmpi-report-4711"));
        assert!(!is_private(b".redmpi-0123456789abcdef-rx"));
    }

    #[test]
    fn links() {
        assert_eq!(link(b"a/b", b"c"), b"a/c");
        assert_eq!(link(b"a/b", b"../c"), b"a/../c");
        assert_eq!(link(b"a/b", b"/c"), b"/c");
        assert_eq!(link(b"b", b"c"), b"c");
    }

    #[test]
    fn the_systems_own() {
        for path in ["/dev/null", "/proc/self/fd/3", "/sys", "/dev"] {
            assert!(is_system(path.as_bytes()));
        }
        for path in ["/device", "dev/null", "/home/dev/x", "/"] {
            assert!(!is_system(path.as_bytes()));
        }
    }

    #[test]
    fn modes() {
        let intent = |mode: &str| intent_of_mode(mode.as_bytes());
        for mode in ["r", "rb", "re", "r,ccs=UTF-8+x"] {
            assert_eq!(intent(mode), Intent::default(), "{mode}");
        }
        assert_eq!(intent("r+b"), Intent { write: true, ..Intent::default() });
        assert_eq!(intent("w"), Intent { write: true, truncate: true, ..Intent::default() });
        assert_eq!(intent("wx"), Intent { write: true, truncate: true, exclusive: true, ..Intent::default() });
        assert_eq!(intent("a+"), Intent { write: true, append: true, ..Intent::default() });
        assert_eq!(mode_of_copy(b"wbx,ccs=x"), b"wb,ccs=x");
    }
}
