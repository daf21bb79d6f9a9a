//! Rules that refuse by addresses or counters: limits and lists of routes.
//!
//! A refusal whose condition has no exact equivalent holds for more requests than in HAProxy; if nothing of the condition can be written,
//! its routes deny everybody.

use super::acl::{Condition, Literal};
use super::answer::reject;
use super::criterion::{Counter, Kind};
use super::limits::key;
use super::rules::{Action, Denial, Step};
use super::walk::{State, Walker, always};
use crate::report::Outcome;

impl<'a> Walker<'a> {
    /// What a backend answers that refuses all requests, such as one for clients on a list.
    pub(super) fn refusal(&self, backend: &str) -> Option<&'a Denial> {
        let sections = self.sections;
        let rules = sections.iter().find(|rules| rules.serves && rules.name == backend)?;
        match rules.steps.first() {
            Some(Step { action: Action::Deny(denial), condition, .. }) if always(condition) => Some(denial),
            _ => None,
        }
    }

    /// Refuses the requests of all alternatives of a condition.
    pub(super) fn refuse_all(&mut self, step: &Step, denial: &Denial, rest: &Condition, state: &mut State) {
        for clause in rest {
            self.refuse(step, denial, clause, state);
        }
    }

    fn refuse(&mut self, step: &Step, denial: &Denial, clause: &[Literal], state: &mut State) {
        let (mut lost, mut within, mut outside) = (Vec::new(), Vec::new(), Vec::new());
        let mut limit = None;
        for literal in clause {
            match &literal.kind {
                Kind::Unsupported(why) => lost.push(why.clone()),
                Kind::Counter(_) if literal.negated => {
                    lost.push("a limit refuses what is above its number, not what is below".to_owned());
                }
                Kind::Counter(_) if limit.is_some() => {
                    lost.push("one limit refuses by itself, not together with another".to_owned());
                }
                Kind::Counter(counter) => match self.counted(counter, state) {
                    Ok(false) => return, // these requests have no counter, and so are not refused
                    Ok(true) => limit = Some(counter),
                    Err(why) => lost.push(why),
                },
                kind if literal.negated => outside.push(kind),
                kind => within.push(kind),
            }
        }
        if let Some(counter) = limit {
            let mut exempt = state.exempt.clone();
            exempt.extend(outside.iter().map(|kind| self.lists.exempt(kind, &step.source)));
            match self.limits.used(counter, &state.tracked, &exempt, &step.source, self.marks) {
                Ok((name, differs)) => {
                    lost.extend(differs);
                    if !within.is_empty() {
                        lost.push("it limits all clients but those of `exempt`".to_owned());
                    }
                    return self.limited(step, &denial.wider(&lost), name, state);
                }
                Err(why) => lost.push(why),
            }
        }
        let (field, lists) = match within.as_slice() {
            [first, others @ ..] => {
                if !others.is_empty() || !outside.is_empty() {
                    lost.push(
                        "`deny` refuses all clients on a list: write a list without the others".to_owned(),
                    );
                }
                ("deny", vec![*first])
            }
            [] if outside.is_empty() || state.effect.allow.is_some() => {
                if !outside.is_empty() {
                    lost.push("two rules admit different clients: write one list for both".to_owned());
                }
                return self.close(step, &lost.join("; "), state);
            }
            [] => ("allow", outside),
        };
        let word = if field == "deny" { "denied" } else { "allowed" };
        let names: Vec<_> =
            lists.into_iter().map(|kind| self.lists.named(kind, &step.source, word)).collect();
        if field == "allow" {
            state.effect.allow = Some(names);
        } else {
            for name in names {
                if !state.effect.deny.contains(&name) {
                    state.effect.deny.push(name);
                }
            }
        }
        self.said_list(step, &denial.wider(&lost), field, state);
    }

    /// Whether these requests count in the entry of a counter.
    ///
    /// # Errors
    /// The rule that says so was left out.
    fn counted(&self, counter: &Counter, state: &State) -> Result<bool, String> {
        let Some(slot) = &counter.slot else { return Ok(true) };
        if state.tracked.iter().any(|tracked| tracked.slot == *slot) {
            return Ok(true);
        }
        let tracks =
            |step: &&Step| matches!(&step.action, Action::Track { slot: known, .. } if known == slot);
        let left_out = |step: &Step| match &step.action {
            Action::Track { sample, .. } => {
                let said = self.marks.first(step.line);
                key(sample).is_err() || said.is_some_and(|(outcome, _)| *outcome == Outcome::Unsupported)
            }
            _ => false,
        };
        let mut found = self.sections.iter().flat_map(|rules| &rules.steps).filter(tracks);
        let Some(first) = found.next() else { return Ok(true) }; // `Limits` says so
        if left_out(first) || found.any(left_out) {
            return Err(format!("the rule that tracks requests as sc{slot} is left out"));
        }
        Ok(false)
    }

    /// Denies everybody, so that nothing that was refused or limited becomes open.
    pub(super) fn close(&mut self, step: &Step, why: &str, state: &mut State) {
        let everybody = Kind::Source(vec!["0.0.0.0/0".to_owned(), "::/0".to_owned()]);
        let list = self.lists.named(&everybody, &step.source, "everybody");
        if !state.effect.deny.contains(&list) {
            state.effect.deny.push(list);
        }
        self.marks.unsupported(step.line, format!("its routes deny everybody until you replace it: {why}"));
    }

    fn said_list(&mut self, step: &Step, denial: &Denial, field: &str, state: &State) {
        let exempted = (!state.exempt.is_empty())
            .then(|| "it holds for the clients of the `allow` rule above it, too".to_owned());
        let status = (denial.status != 403)
            .then(|| format!("such clients are answered 403 in place of {}", denial.status));
        self.mark(
            step,
            denial.differs.clone().or(status).or(exempted),
            &format!("{field} of its routes; such clients are answered 403"),
        );
    }

    /// Adds a limit to a route, and the answer of its refusals.
    fn limited(&mut self, step: &Step, denial: &Denial, name: String, state: &mut State) {
        let status = if denial.given { denial.status } else { 429 };
        let mut differs = denial.differs.clone();
        if !denial.given {
            self.marks.report.note(format!(
                "refused requests are answered 429 with Retry-After where the rule names no status; HAProxy answers {}. reject: {{status: {}}} on a route keeps it",
                denial.status, denial.status
            ));
        }
        match state.refused {
            Some(known) if known != status => {
                let text =
                    format!("a route has one status for all refusals of its limits: {known}, not {status}");
                differs = Some(differs.map_or(text.clone(), |differs| format!("{text}; {differs}")));
            }
            Some(_) => {}
            None => {
                state.refused = Some(status);
                state.effect.reject =
                    (400..=599).contains(&status).then(|| reject(&denial.answer, status)).flatten();
            }
        }
        self.mark(step, differs, &format!("limit {name}"));
        if !state.effect.limits.iter().any(|(known, _)| *known == name) {
            state.effect.limits.push((name, step.source.clone()));
        }
    }

    pub(super) fn mark(&mut self, step: &Step, differs: Option<String>, text: &str) {
        match differs {
            Some(differs) => self.marks.mark(step.line, Outcome::Approximated, format!("{text}; {differs}")),
            None => self.marks.converted(step.line, text),
        }
    }
}
