//! What a reader is shown of figures: goodput, percentiles of the run's own, Markdown, pages beside what is printed, paths that
//! are no words.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::process::Command;

use pdreplay::record::Outcome;
use pdreplay::results::{Figure, Figures, RunFigure};
use serde_json::Value;

use crate::cli::{replay, with_trace};
use crate::results::{info, request, summarise};
use crate::run::{Ran, Scratch};

fn with_run(more: &[&str]) -> Scratch {
    let scratch = with_trace();
    replay(&scratch, &[&["--name", "one", "-q"], more].concat()).code(0);
    scratch
}

fn json(ran: &Ran) -> Value {
    serde_json::from_str(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {}", ran.stdout))
}

#[test]
fn a_figure_is_the_same_of_a_summary_and_of_its_file() {
    let mut records: Vec<_> = (0..40).map(|n| request(&format!("s{n}"), 1, n * 10, 10.0 + n as f64, 100.0)).collect();
    records[3].outcome = Outcome::Error;
    for mechanism in ["pd", "kvc"] {
        let mut summary = summarise(&records);
        summary.run.mechanism = mechanism.into();
        let written = serde_json::to_value(&summary).unwrap();
        assert_eq!(Figures::of_summary(&summary), Figures::of(&written));
        for figure in RunFigure::ALL.iter().map(|figure| Figure::Run(*figure)).chain(Figure::HEADLINE) {
            assert_eq!(figure.in_summary(&summary), figure.in_json(&written), "{figure} of {mechanism}");
        }
    }
}

#[test]
fn goodput_counts_what_ended_ok_within_every_objective() {
    use pdreplay::results::{Accumulator, Percentiles};
    let mut records: Vec<_> =
        (1..=10).map(|n| request("s", n, u64::from(n) * 1000, f64::from(n) * 10.0, 500.0)).collect();
    records[0].outcome = Outcome::Truncated;
    records[1].e2e_ms = Some(900.0);
    records[2].tpot_ms = Some(80.0);
    let good = |slos: &str| {
        let mut accumulator = Accumulator::new(Percentiles::default()).with_slos(slos.parse().unwrap());
        records.iter().for_each(|record| accumulator.push(record, &[]));
        let summary = accumulator.finish(&crate::results::facts(10, &[]), &info(10, 1)).unwrap();
        let goodput = summary.goodput.unwrap();
        let rate = summary.request_goodput.unwrap() * summary.duration.unwrap();
        assert!((rate - goodput.good as f64).abs() < 1e-9);
        (goodput.good, goodput.requests)
    };
    // The first is truncated, however fast.
    assert_eq!(good("ttft:1000"), (9, 10));
    assert_eq!(good("ttft:50"), (4, 10));
    assert_eq!(good("e2el:899"), (8, 10));
    assert_eq!(good("tpot:79"), (8, 10));
    assert_eq!(good("ttft:50,tpot:79,e2el:899"), (2, 10));
}

#[test]
fn goodput_is_of_the_run_of_the_report_and_of_the_comparison() {
    let scratch = with_run(&["--goodput", "ttft:2000,e2el:60000"]);
    let summary = scratch.json("outputs/one/summary.json");
    assert_eq!(summary["goodput"]["ttft_ms"], 2000.0);
    assert_eq!(scratch.json("outputs/one/run.json")["scenario"]["slo"]["e2e_ms"], 60000.0);
    let share = summary["goodput"]["slo_attainment"].as_f64().unwrap();
    assert!(summary["request_goodput"].as_f64().unwrap() <= summary["request_throughput"].as_f64().unwrap());
    let shown = scratch.run(&["report", "outputs/one"]).code(0);
    assert!(shown.stdout.contains("goodput: ") && shown.stdout.contains("ok within ttft:2000 e2el:60000"), "{shown:?}");
    assert!(shown.stderr.is_empty(), "{shown:?}");
    // Other objectives are no contradiction of the file.
    let strict = scratch.run(&["report", "outputs/one", "--goodput", "ttft:0.001", "--json"]).code(0);
    assert!(strict.stderr.is_empty(), "{strict:?}");
    assert_eq!((&json(&strict)["goodput"]["good"], &json(&strict)["goodput"]["e2e_ms"]), (&0.into(), &Value::Null));
    // A run without objectives has none, unless the comparison gives them.
    replay(&scratch, &["--name", "none", "-q"]).code(0);
    assert_eq!(scratch.json("outputs/none/summary.json")["request_goodput"], Value::Null);
    let diff = |more: &[&str]| {
        let base = ["diff", "outputs/one", "outputs/none", "--no-replicas", "--resamples", "0", "--json"];
        scratch.run(&[&base, more].concat())
    };
    let uneven = diff(&["--fail-on", "slo_attainment<+0"]).code(1);
    assert!(uneven.stdout.contains("goodput is left out: the objectives of A are ttft:2000 e2el:60000"), "{uneven:?}");
    let even = json(&diff(&["--goodput", "ttft:2000,e2el:60000", "--fail-on", "slo_attainment<-0.01"]).code(0));
    assert_eq!((&even["objectives"]["ttft_ms"], &even["objectives"]["e2e_ms"]), (&2000.0.into(), &60000.0.into()));
    for view in [["--format", "table"], ["--format", "markdown"], ["--html", "-"]] {
        let args = ["diff", "outputs/one", "outputs/none", "--no-replicas", "--goodput", "ttft:2000,e2el:60000"];
        let shown = scratch.run(&[&args, &view[..]].concat()).code(0).stdout;
        let shown = shown.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(shown.contains("requests that ended ok within ttft:2000 e2el:60000 (ms)"), "{view:?}: {shown}");
    }
    let metric = even["metrics"].as_array().unwrap().iter().find(|metric| metric["key"] == "slo_attainment").unwrap();
    assert_eq!((metric["a"].as_f64(), metric["delta"].as_f64()), (Some(share), Some(0.0)));
    // Of records alone it is counted as of their file.
    let ttfts: Vec<f64> =
        crate::cli::records(&scratch, "outputs/none").iter().map(|row| row["ttft_ms"].as_f64().unwrap()).collect();
    let middle = ttfts.iter().sum::<f64>() / ttfts.len() as f64;
    let within = ttfts.iter().filter(|ttft| **ttft <= middle).count() as f64 / ttfts.len() as f64;
    assert!(within > 0.0 && within < 1.0);
    let split = json(&diff(&["--goodput", &format!("ttft:{middle}")]).code(0));
    let metric = split["metrics"].as_array().unwrap().iter().find(|metric| metric["key"] == "slo_attainment").unwrap();
    assert_eq!(metric["b"].as_f64(), Some(within));
    scratch.run(&["replay", "trace.jsonl", "--goodput", "itl:5"]).code(2);
    scratch.run(&["report", "outputs/one", "--goodput", "ttft:-1"]).code(2);
}

#[test]
fn a_sweep_has_goodput_where_its_scenario_has_objectives() {
    let scratch = with_trace();
    scratch.write("s.toml", "[sweep]\nscenario = \"v3-1p7d\"\n[axes]\ncap = [2, 4]\n");
    let ran = scratch.run(&["sweep", "s.toml", "trace.jsonl", "--set", "slo.ttft_ms=2000"]).code(0);
    let said = "in SLO, goodput: requests that ended ok within ttft:2000 (ms)";
    let views: [&[&str]; 3] = [&[], &["--format", "markdown"], &["--html", "-"]];
    for view in views {
        let shown = scratch.run(&[&["report", "outputs/s"], view].concat()).code(0).stdout;
        assert!(shown.contains(said) && shown.contains("in SLO"), "{view:?}: {shown}");
    }
    let other = scratch.run(&["report", "outputs/s", "--goodput", "e2el:60000"]).code(0).stdout;
    assert!(other.contains("ok within e2el:60000 (ms)") && !other.contains("ttft:2000"), "{other}");
    let csv = scratch.run(&["report", "outputs/s", "--format", "csv"]).code(0).stdout;
    let at = csv.lines().next().unwrap().split(',').position(|name| name == "objectives").unwrap();
    assert_eq!(csv.lines().nth(1).unwrap().split(',').nth(at), Some("ttft:2000"));
    assert!(ran.stdout.contains(said), "{}", ran.stdout);
    let cell = &scratch.json("outputs/s/sweep.json")["cells"][0];
    let summary = scratch.json(&format!("outputs/s/{}/summary.json", cell["folder"].as_str().unwrap()));
    assert_eq!(cell["figures"]["request_goodput"], summary["request_goodput"]);
    assert_eq!(cell["objectives"], "ttft:2000");
    let plain = scratch.run(&["sweep", "s.toml", "trace.jsonl", "--name", "plain"]).code(0);
    assert!(!plain.stdout.contains("in SLO") && !plain.stdout.contains("goodput"), "{}", plain.stdout);
    // Where objectives are an axis, each point has its own.
    scratch.write("axis.toml", "[sweep]\nscenario = \"v3-1p7d\"\n[axes]\n\"slo.ttft_ms\" = [500, 2000]\n");
    let axis = scratch.run(&["sweep", "axis.toml", "trace.jsonl"]).code(0);
    assert!(axis.stdout.contains("within those of each point (ms): ttft:2000, or ttft:500"), "{}", axis.stdout);
}

#[test]
fn a_point_whose_conflict_was_overruled_has_no_prediction() {
    let scratch = with_trace();
    let file = "[sweep]\nscenario = \"v3-1p7d\"\nallow_conflict = true\n[axes]\npolicy = [\"default\", \"kv-aware\"]\n";
    scratch.write("s.toml", file);
    scratch.run(&["sweep", "s.toml", "trace.jsonl", "-q"]).code(0);
    let groups = &scratch.json("outputs/s/sweep.json")["groups"];
    let predicted = |at: usize| groups[at]["predicted_direct_share"].is_number();
    assert_eq!((predicted(0), predicted(1)), (false, true), "{groups}");
    let page = scratch.run(&["report", "outputs/s", "--html", "-"]).code(0).stdout;
    assert!(page.contains("of 1 point came as predicted, within 1 point"));
}

#[test]
fn a_report_has_the_percentiles_of_its_run() {
    let scratch = with_run(&["--percentiles", "75,97.5"]);
    let ran = scratch.run(&["report", "outputs/one"]).code(0);
    assert!(ran.stderr.is_empty(), "{ran:?}");
    for word in ["p75 ", "p97.5 "] {
        assert!(ran.stdout.contains(word), "{}", ran.stdout);
    }
    assert!(!ran.stdout.contains("p50") || !ran.stdout.contains("TTFT p50 0"), "{}", ran.stdout);
    let live = replay(&scratch, &["--name", "two", "-q", "--percentiles", "50,75,90,99"]).code(0);
    assert!(
        live.stdout.contains("p75 ") && live.stdout.contains("TTFT p90  "),
        "all that were asked for: {}",
        live.stdout
    );
    // The tables of a terminal have those asked for that they know, and CSV all they know.
    let modes = |more: &[&str]| scratch.run(&[&["report", "outputs/two", "--modes"], more].concat()).code(0).stdout;
    assert!(modes(&[]).contains("TTFT p99"), "{}", modes(&[]));
    let some = modes(&["--percentiles", "90"]);
    assert!(
        some.contains("TTFT p90") && some.contains("E2E p90") && !some.contains("p50") && !some.contains("p99"),
        "{some}"
    );
    assert!(modes(&["--percentiles", "90", "--format", "csv"]).contains("p50_ttft_ms"));
    let usual = scratch.run(&["report", "outputs/two", "--percentiles", "50,90,95,99,99.9"]).code(0).stdout;
    assert!(usual.contains("p90 ") && !usual.contains("p95 "), "{usual}");
}

#[test]
fn markdown_of_a_run_is_a_report_for_a_pull_request() {
    let scratch = Scratch::new();
    // A run in which sessions starve, and its tokens are known.
    let base = ["replay", "-s", "v3-1p7d", "--name", "v3", "-q", "--format", "markdown"];
    let text = scratch.run(&base).code(0).stdout;
    let parts = [
        "## pdreplay report\n",
        "**outcome**",
        "**why**",
        "### Latencies of ok requests\n\n| latency | n | left out | mean | p50 |",
        "| ITL (gap between tokens) |",
        "its maximum is the longest wait between two events",
        "**rates**",
        "### Modes\n\n| mode | share |",
        "**sessions**",
        "### Starved sessions (the first 20 of ",
        "### Workers\n\n| worker | role |",
    ];
    let mut from = 0;
    for part in parts {
        let at = text[from..].find(part).unwrap_or_else(|| panic!("no `{part}` after {from}: {text}"));
        from += at;
    }
    // Each row has as many cells as its head.
    for table in text.split("\n\n").filter(|part| part.starts_with("| ")) {
        let cells: Vec<usize> = table.lines().map(|line| line.matches(" | ").count()).collect();
        assert!(cells.iter().all(|n| *n == cells[0]), "{table}");
    }
    assert_eq!(
        scratch.run(&["report", "outputs/v3", "--format", "markdown"]).code(0).stdout.lines().count(),
        text.lines().count()
    );
    // Of a run that may not be read there is no latency.
    let sample = crate::run::root().join("traces/sample-6.jsonl").display().to_string();
    let limit = "engine.context_limit_tokens=100";
    let text = scratch.run(&["replay", &sample, "--set", limit, "-q", "--format", "markdown"]).code(1).stdout;
    assert!(text.contains("- withheld: no completed request") && !text.contains("### Latencies"), "{text}");
}

#[test]
fn a_page_and_what_a_format_prints_both_come_out() {
    let scratch = with_run(&[]);
    replay(&scratch, &["--name", "reps", "--replicas", "2", "-q"]).code(0);
    scratch.write("s.toml", "[sweep]\nscenario = \"v3-1p7d\"\n[axes]\ncap = [2, 4]\n");
    scratch.run(&["sweep", "s.toml", "trace.jsonl", "-q"]).code(0);
    let commands: [&[&str]; 5] = [
        &["report", "outputs/one"],
        &["report", "outputs/reps"],
        &["report", "outputs/s"],
        &["sweep", "s.toml", "trace.jsonl", "-q"],
        &["diff", "outputs/one", "outputs/one", "--no-replicas"],
    ];
    for command in commands {
        let both = scratch.run(&[command, &["--html", "page.html", "--format", "json"]].concat()).code(0);
        assert!(json(&both).is_object() && scratch.read("page.html").ends_with("</html>\n"), "{command:?}");
        fs::remove_file(scratch.join("page.html")).unwrap();
        let page = scratch.run(&[command, &["--html", "page.html"]].concat()).code(0);
        assert!(page.stdout.is_empty(), "{command:?}: {page:?}");
        fs::remove_file(scratch.join("page.html")).unwrap();
        let refused = scratch.run(&[command, &["--html", "-", "--format", "json"]].concat());
        refused.refused(&["both the page and what --format or --json prints are to go to standard output"]);
    }
}

#[test]
fn a_replay_makes_its_page_and_exports_in_one_command() {
    let scratch = with_trace();
    let all = ["--html", "page.html", "--perfetto", "trace.json.gz", "--export", "csv=requests.csv", "--json"];
    let ran = replay(&scratch, &[&["--name", "one"], &all[..]].concat()).code(0);
    assert!(json(&ran)["completed"].as_u64() > Some(0));
    assert_eq!(scratch.run(&["report", "outputs/one", "--html", "-"]).code(0).stdout, scratch.read("page.html"));
    let lines = scratch.read("requests.csv").lines().count();
    assert_eq!(lines, 1 + scratch.read("outputs/one/requests.jsonl").lines().count());
    assert!(scratch.join("trace.json.gz").metadata().unwrap().len() > 0);
    let bands = replay(&scratch, &["--name", "reps", "--replicas", "2", "--html", "reps.html"]).code(0);
    assert!(bands.stdout.is_empty() && scratch.read("reps.html").contains("How far the figures spread"), "{bands:?}");
    // A place that cannot be is refused before anything runs.
    replay(&scratch, &["--name", "two", "--html", "none/page.html"]).refused(&["the folder none for the HTML page"]);
    replay(&scratch, &["--name", "two", "--html", "a", "--perfetto", "a"])
        .refused(&["two outputs are to be written to a"]);
    replay(&scratch, &["--name", "two", "--replicas", "2", "--export", "csv=a"]).refused(&["an export is of one run"]);
    assert!(!scratch.join("outputs/two").exists());
}

#[test]
fn what_is_of_one_run_is_refused_of_replicas_and_sweeps() {
    let scratch = with_trace();
    replay(&scratch, &["--name", "reps", "--replicas", "2", "-q"]).code(0);
    scratch.write("s.toml", "[sweep]\nscenario = \"v3-1p7d\"\n[axes]\ncap = [1]\n");
    scratch.run(&["sweep", "s.toml", "trace.jsonl", "-q"]).code(0);
    let asked: [&[&str]; 7] = [
        &["--modes"],
        &["--sessions"],
        &["--workers"],
        &["--transfers"],
        &["--events"],
        &["--percentiles", "50"],
        &["--export", "csv=x"],
    ];
    for flags in asked {
        let name = if flags[0] == "--export" { "an export" } else { flags[0] };
        let of = |place: &str| scratch.run(&[&["report", place], flags].concat());
        of("outputs/reps").refused(&["outputs/reps holds replicas", name, "outputs/reps/r01"]);
        of("outputs/s").refused(&["outputs/s holds a sweep", name, "outputs/s/cells/"]);
    }
}

#[test]
fn objectives_judge_every_replica_by_its_records() {
    let scratch = with_trace();
    replay(&scratch, &["--name", "reps", "--replicas", "2", "-q"]).code(0);
    let report = |place: &str, more: &[&str]| {
        json(&scratch.run(&[&["report", place, "--goodput", "ttft:100", "--json"], more].concat()).code(0))
    };
    let band = |of: &Value, key: &str| {
        of["bands"].as_array().unwrap().iter().find(|band| band["figure"] == key).cloned().unwrap_or_default()
    };
    let plain = json(&scratch.run(&["report", "outputs/reps", "--json"]).code(0));
    assert!(band(&plain, "slo_attainment").is_null());
    let judged = report("outputs/reps", &[]);
    assert_eq!(band(&judged, "mean_e2e_ms"), band(&plain, "mean_e2e_ms"));
    for key in ["slo_attainment", "request_goodput"] {
        let of = |run: &Value| if key == "slo_attainment" { run["goodput"][key].as_f64() } else { run[key].as_f64() };
        let each = ["outputs/reps/r01", "outputs/reps/r02"].map(|place| of(&report(place, &[])).unwrap());
        let mean = band(&judged, key)["mean"].as_f64().unwrap();
        assert!((mean - (each[0] + each[1]) / 2.0).abs() < 1e-9, "{key}: {mean} of {each:?}");
    }
    let said = "requests that ended ok within ttft:100 (ms)";
    for view in [["--format", "table"], ["--format", "markdown"], ["--html", "-"]] {
        let shown = scratch.run(&[&["report", "outputs/reps", "--goodput", "ttft:100"], &view[..]].concat()).code(0);
        assert!(shown.stdout.contains(said), "{view:?}: {}", shown.stdout);
    }
    // One without its records is said to be, and the other is judged.
    fs::remove_dir_all(scratch.join("outputs/reps/r02")).unwrap();
    let ran = scratch.run(&["report", "outputs/reps", "--goodput", "ttft:100"]).code(0);
    assert!(ran.stderr.contains("r02: its goodput is not known: "), "{ran:?}");
    assert!(ran.stdout.contains("slo_attainment"), "{ran:?}");
}

#[test]
fn paths_need_not_be_words() {
    let scratch = with_run(&[]);
    let odd = OsStr::from_bytes(b"r\xffn");
    fs::rename(scratch.join("outputs/one"), scratch.path().join(odd)).unwrap();
    let run = |args: &[&OsStr]| {
        Ran::of(Command::new(env!("CARGO_BIN_EXE_pdreplay")).current_dir(scratch.path()).args(args).output().unwrap())
    };
    let word = OsStr::new;
    run(&[word("report"), odd]).code(0);
    run(&[word("report"), odd, word("--html"), OsStr::from_bytes(b"p\xff.html")]).code(0);
    let same = run(&[word("diff"), odd, odd, word("--no-replicas")]).code(0);
    assert!(same.stdout.contains("no difference") && same.stdout.contains("r\u{fffd}n"), "{same:?}");
    let file = OsStr::from_bytes(b"r\xffn/requests.jsonl,r\xffn");
    run(&[word("diff"), odd, file, word("--no-replicas"), word("--force"), word("--json")]).code(0);
    run(&[word("diff"), odd, OsStr::from_bytes(b"n\xff"), word("--with-b"), odd]).refused(&["does not exist"]);
}

#[test]
fn a_sweep_that_is_done_shows_its_table_where_nothing_can_be_written() {
    let scratch = with_trace();
    scratch.write("s.toml", "[sweep]\nscenario = \"v3-1p7d\"\n[axes]\ncap = [2, 4]\n");
    let first = scratch.run(&["sweep", "s.toml", "trace.jsonl", "-q"]).code(0);
    let kept = scratch.read("outputs/s/sweep.json");
    let sweep = |more: &str| {
        let line = format!("ulimit -f 0; exec {} sweep s.toml trace.jsonl {more}", env!("CARGO_BIN_EXE_pdreplay"));
        Ran::of(Command::new("bash").args(["-c", &line]).current_dir(scratch.path()).output().unwrap())
    };
    let again = sweep("");
    // Its stdout and stderr are pipes, which no limit of file sizes concerns.
    let again = again.code(0);
    assert_eq!(again.stdout, first.stdout);
    assert!(
        again.stderr.contains("nothing was left to run, and sweep.json and sweep.parquet are not written anew"),
        "{again:?}"
    );
    assert_eq!(scratch.read("outputs/s/sweep.json"), kept);
    let cell = scratch.json("outputs/s/sweep.json")["cells"][0]["folder"].as_str().unwrap().to_owned();
    fs::remove_file(scratch.join(&format!("outputs/s/{cell}/run.json"))).unwrap();
    sweep("").code(1);
}

#[test]
fn a_verdict_on_runs_that_may_not_be_read_says_so_where_it_stands() {
    let scratch = with_trace();
    let sample = crate::run::root().join("traces/sample-6.jsonl").display().to_string();
    scratch.run(&["replay", &sample, "--name", "good", "-q"]).code(0);
    let limit = "engine.context_limit_tokens=2000";
    scratch.run(&["replay", &sample, "--set", limit, "--name", "bad", "-q"]).code(1);
    assert_eq!(scratch.json("outputs/bad/summary.json")["integrity"]["verdict"], "withheld");
    let diff = |more: &[&str]| {
        let base = ["diff", "outputs/good", "outputs/bad", "--no-replicas", "--resamples", "100"];
        scratch.run(&[&base, more].concat()).code(0)
    };
    let caution = "No result: the headline of B is withheld (";
    let text = diff(&[]).stdout;
    let at = |text: &str, word: &str| text.find(word).unwrap_or_else(|| panic!("no {word}: {text}"));
    assert!(at(&text, "\nFigures") < at(&text, caution) && at(&text, caution) < at(&text, "\nfigure  "), "{text}");
    let text = diff(&["--format", "markdown"]).stdout;
    assert!(
        at(&text, "### Figures") < at(&text, "**No result: ") && at(&text, "**No result: ") < at(&text, "| figure |"),
        "{text}"
    );
    let page = diff(&["--html", "-"]).stdout;
    let shown = page.split("<script").next().unwrap();
    assert_eq!(
        shown.matches("<p class=\"verdict bad\">No result: the headline of B is withheld").count(),
        2,
        "top and figures"
    );
    assert!(shown.contains("<p class=\"verdict bad\"><strong>figures: "));
    let same = scratch.run(&["diff", "outputs/good", "outputs/good", "--no-replicas"]).code(0).stdout;
    assert!(!same.contains("No result"), "{same}");
}

#[test]
fn token_gaps_are_figures_of_single_runs_and_it_is_said_where_there_are_none() {
    let scratch = with_run(&[]);
    replay(&scratch, &["--name", "reps", "--replicas", "2", "-q"]).code(0);
    let gate = |a: &str, b: &str, figure: &str| {
        let ran = scratch.run(&[
            "diff",
            a,
            b,
            "--no-replicas",
            "--resamples",
            "0",
            "--json",
            "--fail-on",
            &format!("{figure}>+0%"),
        ]);
        (ran.code, json(&ran)["thresholds"][0]["text"].as_str().unwrap().to_owned())
    };
    let one = scratch.json("outputs/one/summary.json");
    let report =
        scratch.run(&["diff", "outputs/one", "outputs/one", "--no-replicas", "--resamples", "0", "--json"]).code(0);
    let metrics = json(&report)["metrics"].as_array().unwrap().clone();
    for key in ["mean_itl_ms", "p50_itl_ms", "p99_itl_ms"] {
        let metric = metrics.iter().find(|metric| metric["key"] == key).unwrap_or_else(|| panic!("no {key}"));
        let own = if key == "p50_itl_ms" { "median_itl_ms" } else { key };
        assert_eq!(
            (&metric["a"], &metric["verdict"], &metric["n_b"]),
            (&one[own], &"same".into(), &one["n_itl"]),
            "{key}"
        );
    }
    assert_eq!(gate("outputs/one", "outputs/one", "p99_itl_ms").0, Some(0));
    assert_eq!(gate("outputs/one", "outputs/one", "p99_prefill_ms").0, Some(0));
    let (code, text) = gate("outputs/one", "outputs/one", "p97_itl_ms");
    assert!(code == Some(1) && text.contains("A has another set of percentiles in its summary.json"), "{text}");
    let (code, text) = gate("outputs/reps", "outputs/one", "p99_itl_ms");
    assert!(code == Some(1) && text.contains("A is a group of repeats"), "{text}");
    assert!(!text.contains("B has"), "{text}");
    // The mean of repeats is that of all their gaps.
    let (_, text) = gate("outputs/reps", "outputs/one", "mean_itl_ms");
    assert!(text.contains("changed by"), "{text}");
    fs::copy(scratch.join("outputs/one/requests.jsonl"), scratch.join("records.jsonl")).unwrap();
    let (code, text) = gate("outputs/one", "records.jsonl", "mean_itl_ms");
    assert!(
        code == Some(1) && text.contains("B is a file of records, and token gaps are in summary.json alone"),
        "{text}"
    );
}

#[test]
fn a_condition_is_told_in_the_same_words_in_every_form() {
    let scratch = with_run(&[]);
    let base = [
        "diff",
        "outputs/one",
        "outputs/one",
        "--no-replicas",
        "--fail-on",
        "completed>0",
        "--fail-on",
        "bad_share>50%",
    ];
    let run = |more: &[&str]| scratch.run(&[&base[..], more].concat()).code(1);
    let told = json(&run(&["--json"]))["thresholds"].as_array().unwrap().clone();
    let lines: Vec<String> = told
        .iter()
        .map(|one| format!("{} {}", if one["crossed"] == true { "FAIL" } else { "ok" }, one["text"].as_str().unwrap()))
        .collect();
    assert!(lines[0].starts_with("FAIL completed is ") && lines[1].starts_with("ok bad_share is "), "{lines:?}");
    let (text, markdown) = (run(&[]).stdout, run(&["--format", "markdown"]).stdout.replace('\\', ""));
    let page = run(&["--html", "page.html"]);
    let html = scratch.read("page.html").replace("&gt;", ">");
    for line in &lines {
        for form in [&text, &markdown, &page.stderr, &html] {
            assert!(form.contains(line.as_str()), "no `{line}` in {form:.2000}");
        }
    }
}
