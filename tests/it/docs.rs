//! The commands in README.md, docs/, traces/README.md and notebooks/README.md run as they are written, and the sample in README.md is what they print.
//!
//! Every line of a `sh` block that begins with `pdreplay` is run by a shell, in a directory that has the
//! repository's scenarios and traces; the blocks of one document share it. A line must exit with 0, or with the code
//! its comment names (`# exit 1`). Lines of `cargo` are run by `.ci/run`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use pdreplay::kv::directory::KvEventsConfig;

use crate::live::support::process::wait_for;
use crate::run::{Ran, Scratch, root};

#[test]
fn commands_in_the_documents_run() {
    let mut count = 0;
    for document in documents() {
        let commands = commands_of(&fs::read_to_string(&document).unwrap());
        count += commands.len();
        let printed = run_all(&document, &commands);
        if document.ends_with(SHOWS) {
            shown_is_printed(&document, &printed);
        }
    }
    assert!(count >= 5, "only {count} commands were found");
}

/// Who follows several documents in one directory is refused by none, because another one made a folder of that name.
#[test]
fn no_two_documents_give_a_folder_the_same_name() {
    let mut named: BTreeMap<String, String> = BTreeMap::new();
    for document in documents() {
        let shown = document.strip_prefix(root()).unwrap().display().to_string();
        for command in commands_of(&fs::read_to_string(&document).unwrap()) {
            let words: Vec<&str> = command.split_whitespace().collect();
            let makes = words.get(1).is_some_and(|verb| ["replay", "sweep"].contains(verb));
            let name = words.iter().skip_while(|word| **word != "--name").nth(1);
            let (Some(name), true, false) = (name, makes, words.contains(&"--overwrite")) else { continue };
            let other = named.insert((*name).to_owned(), shown.clone());
            assert_eq!(other, None, "{shown}: {command}");
        }
    }
    assert!(named.len() > 10, "only {named:?}");
}

#[test]
fn the_sample_in_the_readme_is_what_the_program_prints() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let sample = readme.split("```text\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let ran = Scratch::new().run(&["replay"]).code(0);
    assert_eq!(timeless(sample), timeless(&ran.stdout));
}

/// A document whose `text` blocks are what its commands print, but for lines left out.
const SHOWS: &str = "diagnose-starvation.md";

fn shown_is_printed(document: &Path, printed: &str) {
    let printed: BTreeSet<&str> = printed.lines().map(str::trim_end).collect();
    let text = fs::read_to_string(document).unwrap();
    let shown = text.split("```text\n").skip(1).flat_map(|rest| rest.split("```").next().unwrap().lines());
    let shown: Vec<&str> = shown.filter(|line| !line.is_empty() && *line != "…").collect();
    assert!(shown.len() > 30, "{shown:#?}");
    let old: Vec<&&str> = shown.iter().filter(|line| !printed.contains(line.trim_end())).collect();
    assert!(old.is_empty(), "{} shows what is not printed any more: {old:#?}", document.display());
}

fn documents() -> Vec<PathBuf> {
    let mut documents = ["README.md", "traces/README.md", "notebooks/README.md"].map(|path| root().join(path)).to_vec();
    documents.extend(fs::read_dir(root().join("docs")).unwrap().map(|entry| entry.unwrap().path()));
    documents.retain(|path| path.extension().is_some_and(|ext| ext == "md"));
    documents.sort();
    documents
}

/// The summary without what differs from run to run: the wall time, and the time stamp in the name of the folder.
fn timeless(summary: &str) -> String {
    let (headline, rest) = summary.split_once('\n').unwrap();
    let (headline, wall) = headline.rsplit_once(", ").unwrap();
    assert!(wall.ends_with(" s") && wall.parse::<f64>().is_err(), "no wall time at the end of {headline}");
    let stamp = rest.split_once("outputs/").unwrap().1.split_once("-default").unwrap().0;
    assert_eq!(stamp.len(), "2026-11-30T21-04-10".len(), "{stamp}");
    format!("{headline}\n{}", rest.replace(stamp, "…"))
}

fn commands_of(text: &str) -> Vec<String> {
    let mut commands = Vec::new();
    let mut in_block = false;
    for line in text.lines() {
        if line.starts_with("```") {
            in_block = line == "```sh";
        } else if in_block && line.starts_with("pdreplay ") {
            commands.push(line.to_owned());
        }
    }
    commands
}

/// Runs the commands of a document one after the other, and gives what they print.
fn run_all(document: &Path, commands: &[String]) -> String {
    let mut printed = String::new();
    let scratch = Scratch::new();
    for shared in ["scenarios", "traces"] {
        std::os::unix::fs::symlink(root().join(shared), scratch.join(shared)).unwrap();
    }
    let bin = Path::new(env!("CARGO_BIN_EXE_pdreplay")).parent().unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    for command in commands {
        let wanted = command.split_once("# exit ").map_or(0, |(_, code)| code.trim().parse().unwrap());
        let shell = Command::new("bash")
            .args(["-c", &format!("set -o pipefail\n{command}")])
            .current_dir(scratch.path())
            .env("PATH", &path)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let ran = Ran::of(shell);
        // On a machine busy with other tests a run in real time may send late, and says so.
        let is_late = command.contains("--target live") && ran.stdout.contains("schedule lag p99");
        if is_late && wanted == 0 && ran.code == Some(1) {
            continue;
        }
        assert_eq!(ran.code, Some(wanted), "{}: {command}\n{ran:#?}", document.display());
        printed += &ran.stdout;
    }
    printed
}

/// The walk through the KV directory in README.md, with ports that are free here in place of its own.
#[test]
fn the_walk_through_the_kv_directory_is_as_it_is_written() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let walk = readme.split("```console\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let base = free_base();
    let index = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let scratch = Scratch::new();
    let file = |name: &str| fs::read_to_string(root().join(name)).unwrap();
    scratch.write("scenarios/kv-events.json", &moved(&file("scenarios/kv-events.json"), base));
    scratch.write("scenarios/kv-prompt.json", &file("scenarios/kv-prompt.json"));
    std::os::unix::fs::symlink(root().join("traces"), scratch.join("traces")).unwrap();
    let mut servers = Servers(Vec::new());
    let (mut queried, mut replayed) = (false, false);
    for step in walk.replace("\\\n", "").split("$ pdreplay").flat_map(|part| part.split("$ curl")).skip(1) {
        let (command, shown) = step.split_once('\n').unwrap();
        let command = moved(command, base);
        if let Some(server) = command.strip_suffix(" &") {
            let listen =
                if server.contains("index serve") { format!(" --listen 127.0.0.1:{index}") } else { String::new() };
            servers.0.push(
                shell(&scratch, &format!("exec pdreplay{server}{listen}")).stdout(Stdio::null()).spawn().unwrap(),
            );
        } else if command.contains("-sS ") {
            wait_for("the cluster answers", || {
                let ran = Ran::of(shell(&scratch, &format!("curl -f {command}")).output().unwrap());
                (ran.code == Some(0)).then(|| assert!(ran.stdout.contains("\"output_ids\""), "{ran:#?}"))
            });
        } else if command.starts_with(" replay ") {
            let ran = Ran::of(shell(&scratch, &format!("pdreplay{command} --name walk")).output().unwrap());
            // On a machine busy with other tests it may send late, and says so.
            assert!(ran.code == Some(0) || ran.stdout.contains("schedule lag p99"), "{command}: {ran:#?}");
            let index = scratch.json("outputs/walk/summary.json")["index"].clone();
            assert!(index["with_hits"].as_u64() > Some(10) && index["blind"] == 0, "{index:#}");
            replayed = true;
        } else {
            let once = if command.contains("watch") { " --once" } else { "" };
            let command = format!("pdreplay{command} --url http://127.0.0.1:{index}{once}");
            wait_for(&format!("`{command}` shows what README.md does"), || {
                let ran = Ran::of(shell(&scratch, &command).output().unwrap());
                (ran.code == Some(0) && ran.stdout.contains(shown)).then_some(())
            });
            queried |= shown.contains("256");
        }
    }
    assert!(servers.0.len() == 2 && queried && replayed, "{walk}");
}

#[test]
fn files_of_kv_events_in_the_documents_can_be_read() {
    let text = fs::read_to_string(root().join("docs/kv-events.md")).unwrap();
    let blocks = text.split("```json\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let files: Vec<&str> = blocks.filter(|block| block.contains("streams") || block.contains("discovery")).collect();
    assert!(files.len() >= 2, "{files:?}");
    let shipped = fs::read_to_string(root().join("scenarios/kv-events.json")).unwrap();
    for file in files.into_iter().chain([shipped.as_str()]) {
        if let Err(errors) = KvEventsConfig::parse(file.as_bytes(), "docs/kv-events.md") {
            panic!("{errors}: {file}");
        }
    }
}

/// Ended with the test.
struct Servers(Vec<Child>);

impl Drop for Servers {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Text of the walk with `base` in place of port 9000, and the ports above it that follow from it.
fn moved(text: &str, base: u16) -> String {
    let port = |digits: &str| {
        let found = digits.parse::<u16>().ok().filter(|port| [900, 1900, 3900].contains(&(port / 10)));
        found.map_or(digits.to_owned(), |port| (port - 9000 + base).to_string())
    };
    let parts = text.split_inclusive(|c: char| !c.is_ascii_digit());
    parts
        .map(|part| {
            let digits = part.trim_end_matches(|c: char| !c.is_ascii_digit());
            port(digits) + &part[digits.len()..]
        })
        .collect()
}

/// A port of a cluster of 2 P and 6 D, with room for their publishers above it.
pub fn free_base() -> u16 {
    let is_free = |port: u16| TcpListener::bind(("127.0.0.1", port)).is_ok();
    let first = 10_000 + (std::process::id() % 1_000) as u16 * 10;
    (first..35_000)
        .step_by(10)
        .find(|base| (0..9).all(|at| [0, 10_000, 30_000].iter().all(|above| is_free(base + at + above))))
        .expect("free ports")
}

fn shell(scratch: &Scratch, command: &str) -> Command {
    let bin = Path::new(env!("CARGO_BIN_EXE_pdreplay")).parent().unwrap();
    let mut shell = Command::new("bash");
    shell.args(["-c", command]).current_dir(scratch.path()).stdin(Stdio::null()).stderr(Stdio::null());
    shell.env("PATH", format!("{}:{}", bin.display(), std::env::var("PATH").unwrap()));
    shell
}
