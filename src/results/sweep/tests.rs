//! A report is what its cells say: groups, counts, and the same after a way through JSON.

use serde_json::json;

use super::*;
use crate::results::{Figure, Verdict};

const CAPS: [&str; 5] = ["1", "2", "4", "8", "16"];
const POLICIES: [&str; 2] = ["sticky", "kv-aware"];
const SEEDS: [u64; 2] = [42, 43];

fn axis(key: &str, values: &[&str]) -> SweepAxis {
    let value =
        |label: &&str| AxisValue { label: (*label).into(), number: label.parse().ok().filter(|n: &f64| n.is_finite()) };
    SweepAxis { key: key.into(), label: key.into(), values: values.iter().map(value).collect() }
}

fn info(axes: Vec<SweepAxis>) -> SweepInfo {
    SweepInfo {
        name: "caps".into(),
        description: String::new(),
        scenario: "v3-1p7d".into(),
        trace: "t".into(),
        target: "virtual time".into(),
        between_cells: None,
        version: "0".into(),
        axes,
        seeds: SEEDS.to_vec(),
    }
}

/// A summary whose E2E falls with the cap up to 8, and whose seeds differ by 2 %.
fn result(cap: f64, seed: u64, verdict: &str) -> CellResult {
    let e2e = (1000.0 - 100.0 * cap.min(8.0)) * if seed == 42 { 0.99 } else { 1.01 };
    let summary = json!({
        "completed": 90,
        "run": { "mechanism": "kvc", "predicted_direct_share": 0.5 },
        "integrity": { "verdict": verdict, "reason": (verdict != "valid").then_some("too many truncated"), "bad_share": 0.1 },
        "median_e2e_ms": e2e, "p99_e2e_ms": e2e * 4.0,
        "fairness": { "direct_share": cap.min(8.0) / 10.0, "histogram": [0, 0, 0, 0, 0], "starved_sessions": 0 },
        "causes": [{ "text": format!("cap {cap} binds") }],
    });
    CellResult::of(&summary).unwrap()
}

fn cells(of: impl Fn(usize, usize, u64) -> (CellState, Option<CellResult>)) -> Vec<SweepCell> {
    let mut cells = Vec::new();
    for (p, policy) in POLICIES.iter().enumerate() {
        for (c, cap) in CAPS.iter().enumerate() {
            for seed in SEEDS {
                let (state, result) = of(p, c, seed);
                let number = cells.len() as u32 + 1;
                cells.push(SweepCell {
                    number,
                    at: vec![p as u32, c as u32],
                    values: vec![(*policy).into(), (*cap).into()],
                    seed,
                    folder: format!("cells/{number:03}-{policy}-{cap}"),
                    run_id: Some(format!("v3-1p7d-{number}")),
                    state,
                    error: (state == CellState::Failed).then(|| "the disk is full".into()),
                    result,
                });
            }
        }
    }
    cells
}

fn report() -> SweepReport {
    let cap = |c: usize| CAPS[c].parse::<f64>().unwrap();
    let cells = cells(|p, c, seed| match (p, c) {
        (0, 0) => (CellState::Done, Some(result(cap(c), seed, "withheld"))),
        (0, 1) => (CellState::Failed, None),
        (0, 2) if seed == 43 => (CellState::Missing, None),
        (_, _) => (CellState::Done, Some(result(cap(c), seed, "valid"))),
    });
    SweepReport::new(info(vec![axis("policy", &POLICIES), axis("cap", &CAPS)]), cells)
}

#[test]
fn counts_add_up_and_groups_have_one_row_a_point() {
    let report = report();
    let counts = CellCounts { planned: 20, done: 17, without_headline: 2, failed: 2, refused: 0, missing: 1 };
    assert_eq!((report.counts, report.groups.len()), (counts, 10));
    let group = report.group_at(&[1, 2]).unwrap();
    let e2e = group.band(Figure::P50_E2E).unwrap();
    assert_eq!((e2e.n, e2e.mean.round(), e2e.ci95.is_some()), (2, 600.0, true));
    assert_eq!(group.cause.as_deref(), Some("cap 4 binds"));
}

#[test]
fn what_may_not_be_read_is_not_shown_and_says_why() {
    let report = report();
    let (withheld, failed) = (report.group_at(&[0, 0]).unwrap(), report.group_at(&[0, 1]).unwrap());
    assert_eq!((withheld.verdict, withheld.reason.as_deref()), (Some(Verdict::Withheld), Some("too many truncated")));
    assert!(withheld.shown(Figure::P99_E2E).is_none() && withheld.shown(Figure::BAD_SHARE).is_some());
    assert_eq!((failed.verdict, failed.reason.as_deref()), (None, Some("the disk is full")));
    assert!(failed.bands.is_empty());
}

#[test]
fn knees_are_looked_for_along_numeric_axes_in_each_line() {
    let report = report();
    let lines: Vec<(&str, Option<f64>, u32)> = report
        .knees
        .iter()
        .filter(|knee| knee.figure == Figure::P50_E2E)
        .map(|knee| (knee.held_words.as_str(), knee.knee.as_ref().map(|point| point.at), knee.left_out))
        .collect();
    // Three points are left of the curve of `sticky`.
    assert_eq!(lines, [("policy sticky", None, 2), ("policy kv-aware", Some(8.0), 0)]);
    assert!(report.knees.iter().all(|knee| knee.axis == "cap" && knee.held[1].is_none()));
}

#[test]
fn a_report_comes_back_from_json_as_it_was() {
    let report = report();
    let text = serde_json::to_string(&report).unwrap();
    assert_eq!(serde_json::from_str::<SweepReport>(&text).unwrap(), report);
}

#[test]
fn an_axis_is_numeric_with_and_without_infinity() {
    assert!(axis("cap", &CAPS).is_numeric() && axis("time_scale", &["1", "10", "inf"]).is_numeric());
    assert!(!axis("policy", &POLICIES).is_numeric() && !axis("time_scale", &["inf"]).is_numeric());
}

#[test]
fn a_sheet_has_a_row_a_cell() {
    let mut out = Vec::new();
    report().write_parquet(&mut out).unwrap();
    assert!(out.starts_with(b"PAR1") && out.ends_with(b"PAR1"));
}

#[test]
fn a_table_shows_what_may_be_read() {
    use crate::results::render::{Format, Style, knees, sweep_cells, sweep_groups};
    let report = report();
    let style = Style { color: false, width: 200 };
    let shown = sweep_groups(&report).render(Format::Table, style)
        + &knees(&report).render(Format::Table, style)
        + &sweep_cells(&report, "missing", |cell| cell.state == CellState::Failed).render(Format::Table, style);
    assert_eq!(shown, GOLDEN, "{shown}");
    let csv = sweep_groups(&report).render(Format::Csv, style);
    let first = csv.lines().nth(10).unwrap();
    assert!(csv.starts_with("policy,cap,runs,verdict,p50_ttft_ms,p50_ttft_ms_ci95,"), "{csv}");
    assert!(first.starts_with("kv-aware,16,2,valid,,,,,200,"), "{first}");
}

#[test]
fn a_narrow_terminal_keeps_the_columns_that_answer_and_names_the_others() {
    use crate::results::render::{Format, Style, fitted_groups, page_groups};
    let report = report();
    let mut most = 0;
    for width in (40..140).rev() {
        let (table, without) = fitted_groups(&report, width);
        let shown = table.render(Format::Table, Style { color: false, width: usize::MAX });
        let head = shown.lines().next().unwrap();
        for title in ["policy", "cap", "bad", "predicted", "direct", "starved"] {
            assert!(head.contains(title), "{width}: {head}");
        }
        assert!(
            without.iter().all(|title| !head.contains(title)) && without.len() >= most,
            "{width}: {head}, {without:?}"
        );
        let fits = shown.lines().all(|line| line.chars().count() <= width);
        assert!(fits || without.len() == 7, "{width}: {head}, {without:?}");
        most = without.len();
    }
    assert!(fitted_groups(&report, 139).1.is_empty() && most == 7);
    let page = page_groups(&report).render(Format::Csv, Style::default());
    let first = "policy,cap,verdict,direct_share,predicted_direct_share,starved_sessions,bad_share,";
    assert!(page.starts_with(first) && !page.contains("slo_attainment,"), "{page}");
}

const GOLDEN: &str = "\
policy    cap  runs  verdict   TTFT p50  TTFT p99         E2E p50         E2E p99  req/s     bad  predicted  direct  starved
sticky      1     2  withheld         –         –               –               –      –  10.0 %     50.0 %  10.0 %        0
sticky      2   0/2  failed           –         –               –               –      –       –          –       –        –
sticky      4   1/2  valid            –         –         0.594 s          2.38 s      –  10.0 %     50.0 %  40.0 %        0
sticky      8     2  valid            –         –  0.200 s ±0.025  0.800 s ±0.102      –  10.0 %     50.0 %  80.0 %        0
sticky     16     2  valid            –         –  0.200 s ±0.025  0.800 s ±0.102      –  10.0 %     50.0 %  80.0 %        0
kv-aware    1     2  valid            –         –  0.900 s ±0.114    3.60 s ±0.46      –  10.0 %     50.0 %  10.0 %        0
kv-aware    2     2  valid            –         –  0.800 s ±0.102    3.20 s ±0.41      –  10.0 %     50.0 %  20.0 %        0
kv-aware    4     2  valid            –         –  0.600 s ±0.076    2.40 s ±0.30      –  10.0 %     50.0 %  40.0 %        0
kv-aware    8     2  valid            –         –  0.200 s ±0.025  0.800 s ±0.102      –  10.0 %     50.0 %  80.0 %        0
kv-aware   16     2  valid            –         –  0.200 s ±0.025  0.800 s ±0.102      –  10.0 %     50.0 %  80.0 %        0
figure   gains less beyond  with             value there  reached there
E2E p50  cap 8              policy kv-aware      0.200 s  100.0 % of its improvement
E2E p99  cap 8              policy kv-aware      0.800 s  100.0 % of its improvement
direct   cap 8              policy kv-aware       80.0 %  100.0 % of its improvement
cell  policy  cap  seed  state   error
   3  sticky    2    42  failed  the disk is full
   4  sticky    2    43  failed  the disk is full
";
