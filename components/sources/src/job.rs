//! What the environment of a process says of its job, before MPI_Init: whether it is replicated, which virtual rank this
//! process stands for, and what all processes of the job have in common.
//!
//! Pure: the environment is a function, so that every case can be tested.

use crate::stream::{derive, key_of, number, Key, Purpose};

/// Which sources are to be the same in every replica.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Switches {
    /// The C library's clocks.
    pub clocks: bool,
    /// Random numbers.
    pub random: bool,
    /// Process ids.
    pub pids: bool,
}

/// The start of the clock that is read before MPI_Init.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Epoch {
    /// CLOCK_REALTIME, ns.
    pub real: i64,
    /// CLOCK_MONOTONIC of the same moment, ns.
    pub monotonic: i64,
}

impl Epoch {
    /// `REDMPI_EPOCH` is two numbers, realtime and monotonic, with a point between them.
    pub fn parse(text: &str) -> Option<Epoch> {
        let (real, monotonic) = text.trim().split_once('.')?;
        let (real, monotonic) = (real.parse().ok()?, monotonic.parse().ok()?);
        (real >= 0 && monotonic >= 0).then_some(Epoch { real, monotonic })
    }

    /// The text that [`Epoch::parse`] reads.
    pub fn text(&self) -> String {
        format!("{}.{}", self.real, self.monotonic)
    }
}

/// A replicated job as one of its processes sees it before MPI_Init.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Job {
    /// Rank in what mpirun started.
    pub native: u32,
    /// Ranks that the application sees.
    pub virtual_size: u32,
    /// The virtual rank; `None` where only MPI_Init can tell.
    pub virtual_rank: Option<u32>,
    /// The same in all processes of the job, and in no other job.
    pub key: Key,
    /// Where the clock starts, if the starter of the job has said so.
    pub epoch: Option<Epoch>,
    /// Whether all processes of the job are on this machine.
    pub one_node: bool,
    /// What is wanted.
    pub switches: Switches,
    /// Folder for what the programs of this process have in common; it goes with the job.
    pub folder: String,
    /// Name of the job.
    pub name: String,
}

/// Reads the environment. `None`: not a process of a replicated job, or the user wants none of it.
pub fn read(get: &dyn Fn(&str) -> Option<String>, file: &dyn Fn(&str) -> Option<String>) -> Option<Job> {
    let native: u32 = number_of(get, "OMPI_COMM_WORLD_RANK").or_else(|| number_of(get, "PMIX_RANK"))?;
    let size: u32 = number_of(get, "OMPI_COMM_WORLD_SIZE")?;
    let asked = |name| get(name).is_some_and(|names: String| names.split(',').any(|name| name.trim() == "redmpi"));
    if !asked("OMPI_MCA_coll") && !asked("OMPI_MCA_pml") {
        return None;
    }
    let variable = |name: &str| {
        get(&format!("OMPI_MCA_pml_redmpi_{name}")).or_else(|| get(&format!("OMPI_MCA_coll_redmpi_{name}")))
    };
    let degree: u32 = variable("degree")?.trim().parse().ok()?;
    if degree < 2 || size == 0 || !size.is_multiple_of(degree) || native >= size || off(get("REDMPI_PRELOAD")) {
        return None;
    }
    let virtual_size = size / degree;
    let one_node = number_of(get, "OMPI_COMM_WORLD_LOCAL_SIZE") == Some(size);
    // The formula, unless a file says otherwise; on several nodes MPI_Init may arrange replicas by node.
    let formula = matches!(variable("placement").as_deref().map(str::trim), Some("formula" | "1"));
    let virtual_rank = match variable("rank_map").filter(|path| !path.is_empty()) {
        Some(path) => file(&path).and_then(|text| virtual_in(&text, native)).filter(|rank| *rank < virtual_size),
        None if one_node || formula => Some(native % virtual_size),
        None => None,
    };
    let name = get("PMIX_NAMESPACE").unwrap_or_default();
    let (key, secret) = job_key(get);
    let clocks = variable("same_clock");
    let switches = Switches {
        clocks: !matches!(clocks.as_deref().map(str::trim), Some("none" | "mpi" | "0" | "1")),
        random: !off(variable("same_random")) && secret,
        pids: !off(variable("same_pid")),
    };
    let folder = get("PMIX_SERVER_TMPDIR").or_else(|| get("OMPI_MCA_orte_jobfam_session_dir"))?;
    let epoch = get("REDMPI_EPOCH").and_then(|text| Epoch::parse(&text));
    Some(Job { native, virtual_size, virtual_rank, key, epoch, one_node, switches, folder, name })
}

/// The key of a job, and whether there is a secret in it: without one the streams could be told from the outside, and
/// would be the same in a later job of this name.
pub fn job_key(get: &dyn Fn(&str) -> Option<String>) -> (Key, bool) {
    let texts = ["REDMPI_SEED", "OMPI_MCA_orte_precondition_transports", "PMIX_NAMESPACE"];
    let texts = texts.map(|name| get(name).unwrap_or_default());
    let secret = texts[..2].iter().any(|secret| !secret.is_empty());
    (key_of(texts.iter().map(|text| text.as_bytes())), secret)
}

fn number_of(get: &dyn Fn(&str) -> Option<String>, name: &str) -> Option<u32> {
    get(name)?.trim().parse().ok()
}

/// As Open MPI reads a bool.
fn off(value: Option<String>) -> bool {
    let value = value.unwrap_or_default().trim().to_ascii_lowercase();
    matches!(value.as_str(), "0" | "false" | "no" | "f" | "n" | "disabled")
}

/// The virtual rank of a native rank in a rank map file, whose rules MPI_Init checks.
fn virtual_in(text: &str, native: u32) -> Option<u32> {
    text.lines().find_map(|line| {
        let mut fields = line.split('#').next()?.split_whitespace();
        let is_it = fields.next()?.parse() == Ok(native);
        is_it.then(|| fields.next()?.parse().ok())?
    })
}

impl Job {
    /// The key of the streams of a virtual rank.
    pub fn rank_key(&self, virtual_rank: u32) -> Key {
        derive(&self.key, Purpose::Rank, u64::from(virtual_rank))
    }

    /// See [`pids`].
    pub fn pids(&self, virtual_rank: u32, program: u32) -> (i32, i32) {
        pids(&self.key, self.virtual_size, virtual_rank, program)
    }
}

/// The process id that the `program`-th program of a virtual rank is told, and its parent's.
pub fn pids(key: &Key, virtual_size: u32, virtual_rank: u32, program: u32) -> (i32, i32) {
    let of = |ordinal: u64| pid(key, virtual_size, virtual_rank, ordinal);
    (of(u64::from(program) + 1), of(0))
}

/// Process ids that no process has: above the largest that Linux gives (PID_MAX_LIMIT, 2^22), so that one which gets
/// past us hits nobody. Different for all ranks of a job, and most likely for two jobs.
fn pid(key: &Key, virtual_size: u32, virtual_rank: u32, ordinal: u64) -> i32 {
    const FIRST: u64 = (1 << 22) + 1;
    const COUNT: u64 = i32::MAX as u64 - FIRST;
    let start = number(&derive(key, Purpose::Process, 0)) % COUNT;
    let place = start + ordinal * u64::from(virtual_size) + u64::from(virtual_rank);
    (FIRST + place % COUNT) as i32
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn environment(native: &str, more: &[(&str, &str)]) -> Option<Job> {
        let mut all = vec![
            ("OMPI_COMM_WORLD_RANK", native),
            ("OMPI_COMM_WORLD_SIZE", "6"),
            ("OMPI_COMM_WORLD_LOCAL_SIZE", "6"),
            ("OMPI_MCA_coll", "redmpi"),
            ("OMPI_MCA_pml_redmpi_degree", "3"),
            ("OMPI_MCA_orte_precondition_transports", "0123-4567"),
            ("PMIX_NAMESPACE", "77"),
            ("PMIX_SERVER_TMPDIR", "/tmp/session"),
        ];
        for (name, value) in more {
            all.retain(|(known, _)| known != name);
            all.push((name, value));
        }
        let get = |name: &str| all.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        let file = |path: &str| (path == "/map").then(|| "# a map\n5 0 1 # five\n  4 1 2\n".to_owned());
        read(&get, &file)
    }

    #[test]
    fn replicas_of_a_rank_agree_and_ranks_differ() {
        let jobs: Vec<Job> = (0..6).map(|native| environment(&native.to_string(), &[]).unwrap()).collect();
        for (native, job) in jobs.iter().enumerate() {
            assert_eq!(job.virtual_rank, Some(native as u32 % 2));
            let twin = &jobs[(native + 2) % 6];
            let key = |job: &Job| job.rank_key(job.virtual_rank.unwrap());
            assert_eq!(key(job), key(twin));
            assert_ne!(key(job), key(&jobs[(native + 1) % 6]));
        }
        let another = environment("0", &[("OMPI_MCA_orte_precondition_transports", "0123-4568")]).unwrap();
        assert_ne!(another.key, jobs[0].key);
        assert_ne!(environment("0", &[("REDMPI_SEED", "1")]).unwrap().key, jobs[0].key);
    }

    #[test]
    fn only_replicated_jobs_are_touched() {
        for off in [
            ("OMPI_MCA_coll", "^redmpi"),
            ("OMPI_MCA_coll", ""),
            ("OMPI_MCA_pml_redmpi_degree", "1"),
            ("OMPI_MCA_pml_redmpi_degree", "4"),
            ("OMPI_MCA_pml_redmpi_degree", "x"),
            ("OMPI_COMM_WORLD_SIZE", "0"),
            ("OMPI_COMM_WORLD_SIZE", ""),
            ("REDMPI_PRELOAD", "0"),
        ] {
            assert_eq!(environment("0", &[off]), None, "{off:?}");
        }
        assert_eq!(environment("", &[]), None);
        assert_eq!(environment("6", &[]), None);
        assert!(environment("0", &[("OMPI_MCA_coll", "tuned, redmpi")]).is_some());
        assert!(environment("0", &[("OMPI_MCA_coll", ""), ("OMPI_MCA_pml", "redmpi")]).is_some());
    }

    #[test]
    fn what_only_mpi_init_can_know_is_not_guessed() {
        let several = ("OMPI_COMM_WORLD_LOCAL_SIZE", "3");
        let rank = |more: &[(&str, &str)]| environment("5", more).unwrap().virtual_rank;
        assert_eq!(rank(&[several]), None);
        assert_eq!(rank(&[several, ("OMPI_MCA_pml_redmpi_placement", "formula")]), Some(1));
        assert_eq!(rank(&[several, ("OMPI_MCA_pml_redmpi_rank_map", "/map")]), Some(0));
        assert_eq!(rank(&[("OMPI_MCA_coll_redmpi_rank_map", "/map")]), Some(0));
        assert_eq!(rank(&[("OMPI_MCA_coll_redmpi_rank_map", "/none")]), None);
        assert_eq!(environment("3", &[("OMPI_MCA_pml_redmpi_rank_map", "/map")]).unwrap().virtual_rank, None);
    }

    #[test]
    fn every_source_has_a_switch() {
        let switches = |name: &str, value: &str| environment("0", &[(name, value)]).unwrap().switches;
        let all = Switches { clocks: true, random: true, pids: true };
        assert_eq!(environment("0", &[]).unwrap().switches, all);
        for value in ["none", "mpi", "0"] {
            assert_eq!(switches("OMPI_MCA_pml_redmpi_same_clock", value), Switches { clocks: false, ..all });
        }
        assert_eq!(switches("OMPI_MCA_pml_redmpi_same_random", "0"), Switches { random: false, ..all });
        assert_eq!(switches("OMPI_MCA_coll_redmpi_same_pid", "false"), Switches { pids: false, ..all });
        assert_eq!(
            switches("OMPI_MCA_orte_precondition_transports", ""),
            Switches { random: false, ..all },
            "no secret, no stream"
        );
    }

    #[test]
    fn process_ids_are_nobodys_and_differ() {
        let job = environment("0", &[]).unwrap();
        let mut seen = HashSet::new();
        for rank in 0..2 {
            for program in 0..50 {
                let (own, parent) = job.pids(rank, program);
                assert!(own > 1 << 22 && parent > 1 << 22);
                assert!(seen.insert(own));
            }
            assert!(seen.insert(job.pids(rank, 0).1));
        }
    }

    #[test]
    fn the_epoch_is_read_back() {
        let epoch = Epoch { real: 1_700_000_000_123_456_789, monotonic: 5_000_000_000 };
        assert_eq!(Epoch::parse(&epoch.text()), Some(epoch));
        for wrong in ["", "1", "1.", ".1", "-1.5", "1.x", "1.2.3"] {
            assert_eq!(Epoch::parse(wrong), None, "{wrong}");
        }
    }
}
