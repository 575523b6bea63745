//! [`Starving`]: where sessions starve, in the same words for a run, its replicas and a sweep.

use std::fmt::Display;

use crate::base::words::plural;
use crate::cli::exit::Exit;
use crate::cli::terminal::Terminal;
use crate::results::STARVED_BELOW;

/// Places named; of more, it is said how many.
const NAMED: usize = 3;

/// What `--fail-on-starvation` judges.
#[derive(Debug, Default)]
pub struct Starving {
    /// What several runs are called, such as `cell`, and how many were judged; `None` for a run alone.
    of: Option<(&'static str, u64)>,
    /// Sessions below the threshold and the folder of their run, where there are any.
    found: Vec<(u64, String)>,
    /// Why what was judged is not to be trusted, in words.
    doubt: Option<String>,
}

impl Starving {
    /// In one run.
    pub fn in_run(starved: Option<u64>, place: impl Display) -> Starving {
        let found = starved.filter(|n| *n > 0).map(|n| (n, place.to_string()));
        Starving { of: None, found: found.into_iter().collect(), doubt: None }
    }

    /// In several: starved sessions and folder of each that was judged.
    pub fn in_each(noun: &'static str, runs: impl Iterator<Item = (Option<u64>, String)>) -> Starving {
        let runs: Vec<(Option<u64>, String)> = runs.collect();
        let of = Some((noun, runs.len() as u64));
        let found = runs.into_iter().filter_map(|(n, place)| Some((n.filter(|n| *n > 0)?, place)));
        Starving { of, found: found.collect(), doubt: None }
    }

    /// The same, judged by what is known to have been changed: where none starves by it, nothing is judged.
    pub fn doubted(self, doubt: Option<String>) -> Starving {
        Starving { doubt, ..self }
    }

    /// `exit`, or that of a broken threshold when sessions starve, or nobody can tell, and `asked` makes that one; says so on
    /// stderr.
    pub fn exit(&self, exit: Exit, asked: bool, terminal: &Terminal) -> Exit {
        let Some(verdict) = self.verdict().filter(|_| asked) else { return exit };
        terminal.messages.warning(verdict);
        if exit == Exit::Ok { Exit::Broke } else { exit }
    }

    /// Why the gate does not open; `None` when it does.
    fn verdict(&self) -> Option<String> {
        let doubt = self.doubt.as_ref().map(|doubt| format!("--fail-on-starvation cannot be judged: {doubt}"));
        self.words().map(|words| format!("{words} (--fail-on-starvation)")).or(doubt)
    }

    /// `sessions starve in 2 of 12 cells (direct share below 20 %): 25 in outputs/caps/cells/cap-4, 3 in …`; `None` when none does.
    fn words(&self) -> Option<String> {
        let many = self.of.map(|(noun, all)| format!(" in {} of {}", self.found.len(), plural(all, noun)));
        let named: Vec<String> =
            self.found.iter().take(NAMED).map(|(starved, place)| format!("{starved} in {place}")).collect();
        let more = self.found.len().saturating_sub(NAMED) as u64;
        let more = self.of.filter(|_| more > 0).map(|(noun, _)| plural(more, &format!("more {noun}")));
        (!named.is_empty()).then(|| {
            format!(
                "sessions starve{} (direct share below {:.0} %): {}{}",
                many.unwrap_or_default(),
                STARVED_BELOW * 100.0,
                named.join(", "),
                more.map_or_else(String::new, |more| format!(", and in {more}"))
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cells(starved: &[u64]) -> Option<String> {
        let cell = |(ix, n): (usize, &u64)| (Some(*n), format!("o/cells/{ix}"));
        Starving::in_each("cell", starved.iter().enumerate().map(cell)).words()
    }

    #[test]
    fn a_run_and_many_are_told_in_the_same_form() {
        let threshold = "(direct share below 20 %)";
        let run = Starving::in_run(Some(25), "outputs/v3").words();
        assert_eq!(run.unwrap(), format!("sessions starve {threshold}: 25 in outputs/v3"));
        assert_eq!(cells(&[0, 4]).unwrap(), format!("sessions starve in 1 of 2 cells {threshold}: 4 in o/cells/1"));
        let four = cells(&[1, 2, 3, 4]).unwrap();
        let named = "1 in o/cells/0, 2 in o/cells/1, 3 in o/cells/2";
        assert_eq!(four, format!("sessions starve in 4 of 4 cells {threshold}: {named}, and in 1 more cell"));
        assert!(cells(&[1; 9]).unwrap().ends_with(", and in 6 more cells"));
    }

    #[test]
    fn what_was_changed_opens_no_gate() {
        let verdict = |starving: Starving| starving.doubted(Some("o/k changed".into())).verdict();
        let open = verdict(Starving::in_each("replica", [(Some(0), "o/k/r01".to_owned())].into_iter()));
        assert_eq!(open.unwrap(), "--fail-on-starvation cannot be judged: o/k changed");
        assert!(verdict(Starving::in_run(None, "o/k")).is_some());
        let shut = verdict(Starving::in_run(Some(2), "o/k")).unwrap();
        assert!(shut.ends_with("2 in o/k (--fail-on-starvation)"), "{shut}");
        assert_eq!(Starving::in_run(Some(0), "o/k").verdict(), None);
    }

    #[test]
    fn where_none_starves_nothing_is_said() {
        assert_eq!([Starving::in_run(Some(0), "r").words(), Starving::in_run(None, "r").words()], [None, None]);
        assert_eq!([cells(&[0, 0]), cells(&[])], [None, None]);
    }
}
