//! Jobs over two hosts, which are network namespaces of this machine: replicas apart, and hosts that do not agree.
//! Needs root and iproute2; says so and passes where they are not to be had.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

mod support;

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/hosts.sh")
}

/// The two hosts, gone when the test is over.
struct Hosts;

impl Hosts {
    fn up() -> Option<Hosts> {
        let _ = Command::new(script()).arg("down").status();
        match Command::new(script()).arg("up").output() {
            Ok(output) if output.status.success() => Some(Hosts),
            other => {
                let _ = Command::new(script()).arg("down").status();
                println!("not run: two hosts cannot be made here ({other:?})");
                None
            }
        }
    }

    /// Two ranks, twice, dealt out over the hosts in turns; the output, and the report if there is one.
    fn run(&self, options: &[&str], second: Option<&str>) -> (Output, Option<Value>) {
        let report = std::env::temp_dir().join(format!("redmpi-two-hosts-{}.json", std::process::id()));
        let _ = std::fs::remove_file(&report);
        let mut command = Command::new(script());
        command.args(["run", "timeout", "-k", "5", "60", "mpirun"]);
        command.args(["--mca", "plm_rsh_agent", &format!("{} rsh", script().display())]);
        command.args(["--mca", "oob_tcp_if_include", "redmpi1,redmpi2"]);
        command.args(["--mca", "btl_tcp_if_include", "10.77.0.0/24", "--bind-to", "none"]);
        command.args(["--mca", "mpi_yield_when_idle", "1", "--host", "10.77.0.1:2,10.77.0.2:2", "--map-by", "node"]);
        command.args(["-x", "OMPI_MCA_mca_base_component_path"]);
        command.args(["--mca", "coll", "redmpi", "--mca", "pml_redmpi_degree", "2"]);
        command.args(["--mca", "pml_redmpi_report", &report.to_string_lossy()]);
        command.args(options).args(["-n", "4"]).arg(support::program("ring")).args(["10", "1000"]);
        command.env("OMPI_MCA_mca_base_component_path", support::component_path());
        command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        command.envs(second.map(|word| ("REDMPI_TEST_SECOND", word)));
        let output = command.output().unwrap();
        let text = std::fs::read(&report).ok();
        let _ = std::fs::remove_file(&report);
        (output, text.map(|text| serde_json::from_slice(&text).unwrap()))
    }
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The hosts of each virtual rank's replicas.
fn hosts_of(report: &Value) -> BTreeMap<u64, BTreeSet<String>> {
    let mut hosts: BTreeMap<u64, BTreeSet<String>> = BTreeMap::new();
    for process in report["processes"].as_array().unwrap() {
        let host = process["host"].as_str().unwrap().to_owned();
        hosts.entry(process["virtual"].as_u64().unwrap()).or_default().insert(host);
    }
    hosts
}

#[test]
fn replicas_are_kept_apart_and_hosts_have_to_agree() {
    let Some(hosts) = Hosts::up() else { return };
    let both: BTreeSet<String> = ["host1", "host2"].map(String::from).into();

    let (output, report) = hosts.run(&[], None);
    assert!(output.status.success(), "{output:?}");
    let report = report.expect("a report");
    assert_eq!(report["verdict"], "clean");
    assert_eq!(hosts_of(&report), BTreeMap::from([(0, both.clone()), (1, both.clone())]));
    assert!(!stderr(&output).contains("Placement"), "{output:?}");
    // The followers' helpers have found the leader's on the other host: its output was compared, and shown once.
    assert!(!stderr(&output).contains("not compared"), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stdout).matches("RESULT").count(), 1, "{output:?}");
    assert!(report["output"]["bytes"].as_u64().is_some_and(|bytes| bytes > 0), "{report}");

    // The plain formula does not look at hosts, and the verdict says so.
    let (output, report) = hosts.run(&["--mca", "pml_redmpi_placement", "formula"], None);
    assert!(output.status.success(), "{output:?}");
    assert!(hosts_of(&report.expect("a report")).values().all(|hosts| hosts.len() == 1));
    assert!(stderr(&output).contains("share a node"), "{output:?}");

    // A fault is laid at the door of its host.
    let inject = ["pml_redmpi_inject_rate", "pml_redmpi_inject_count", "pml_redmpi_inject_replicas"];
    let options: Vec<&str> = inject.iter().flat_map(|name| ["--mca", name, "1"]).collect();
    let (output, report) = hosts.run(&options, None);
    assert_eq!(output.status.code(), Some(65), "{output:?}");
    let report = report.expect("a report");
    for process in report["processes"].as_array().unwrap() {
        let hit = process["injected"].as_u64().unwrap() > 0;
        assert_eq!(hit, process["replica"] == 1, "{process}");
        assert_eq!(hit, process["host"] == "host2", "{process}");
    }

    // A variable that only one host has.
    let (output, _) = hosts.run(&[], Some("OMPI_MCA_pml_redmpi_digest=xxh3"));
    assert!(!output.status.success(), "{output:?}");
    assert!(stderr(&output).contains("do not agree"), "{output:?}");
}

impl Drop for Hosts {
    fn drop(&mut self) {
        let _ = Command::new(script()).arg("down").status();
    }
}
