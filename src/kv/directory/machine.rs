//! [`Directory`]: the registry's news in, subscriptions out.
//!
//! Looks at the table once a refresh interval, and tells what changed since: streams to leave before streams to follow,
//! so that no address is ever followed twice. Static streams are followed from the start. Owns the table; knows no
//! socket.

use std::collections::{BTreeMap, VecDeque};

use super::config::{Discovery, KvEventsConfig, Source};
use super::rules::{self, Exclusion, Plan};
use super::states::StateChange;
use super::stream::{DropReason, Origin, StreamKey, Subscription};
use super::table::{InstanceTable, TableInput, TableOutput};
use super::{Endpoint, Instance};
use crate::base::{Dur, Time};

/// What the directory asks and tells.
#[derive(Debug, Clone, PartialEq)]
pub enum DirectoryOutput {
    /// See [`TableOutput::Probe`].
    Probe {
        /// To be named in the answer.
        probe: u64,
        /// Instance.
        name: String,
        /// Its HTTP server.
        address: Endpoint,
    },
    /// An instance came, went or changed its state.
    State(StateChange),
    /// Follow no longer, and forget what is known of it.
    Unsubscribe {
        /// Stream.
        key: StreamKey,
        /// Why.
        reason: DropReason,
    },
    /// Follow.
    Subscribe(Subscription),
    /// An instance is not followed, told once for each cause.
    Excluded {
        /// Instance.
        instance: String,
        /// Why.
        exclusion: Exclusion,
    },
    /// What was told of an exclusion holds no longer.
    Readmitted {
        /// Instance.
        instance: String,
    },
}

/// See the module.
#[derive(Debug)]
pub struct Directory {
    rules: Option<Discovery>,
    max_streams: u32,
    table: InstanceTable,
    plan: Plan,
    /// Revision of the table that `plan` is of.
    planned: Option<u64>,
    next_refresh: Time,
    outputs: VecDeque<DirectoryOutput>,
}

impl Directory {
    /// Looks for the first time at `now`.
    pub fn new(config: &KvEventsConfig, now: Time) -> Directory {
        let mut plan = Plan::default();
        let mut outputs = VecDeque::new();
        let rules = match &config.source {
            Source::Discovery(rules) => Some(rules.clone()),
            Source::Streams(streams) => {
                for stream in streams.iter().cloned().map(Subscription::from) {
                    plan.streams.insert(stream.key.clone(), stream.clone());
                    outputs.push_back(DirectoryOutput::Subscribe(stream));
                }
                None
            }
        };
        let (max_streams, table) = (config.max_streams, InstanceTable::new());
        Directory { rules, max_streams, table, plan, planned: None, next_refresh: now, outputs }
    }

    /// The registry's instances, for whoever chooses among them.
    pub fn table(&self) -> &InstanceTable {
        &self.table
    }

    /// Streams followed now.
    pub fn streams(&self) -> impl Iterator<Item = &Subscription> {
        self.plan.streams.values()
    }

    /// Instances excluded now.
    pub fn excluded(&self) -> &BTreeMap<String, Exclusion> {
        &self.plan.excluded
    }

    /// Takes one word of the registry, of a probe or of an instance. Its effect on streams shows at the next refresh.
    pub fn handle_input(&mut self, now: Time, input: TableInput) {
        self.handle_inputs(now, [input]);
    }

    /// Takes words that are one state of the registry: no refresh sees a part of them.
    pub fn handle_inputs(&mut self, now: Time, inputs: impl IntoIterator<Item = TableInput>) {
        self.table.handle_inputs(now, inputs);
        self.advance(now);
    }

    /// Time passed: refreshes, when it is time.
    pub fn advance(&mut self, now: Time) {
        self.table.advance(now);
        while let Some(output) = self.table.poll_output() {
            self.outputs.push_back(match output {
                TableOutput::Probe { probe, name, address } => DirectoryOutput::Probe { probe, name, address },
                TableOutput::Changed(change) => DirectoryOutput::State(change),
            });
        }
        if self.rules.is_some() && now >= self.next_refresh {
            self.refresh(now);
        }
    }

    /// When it next wakes by itself; `None`: never.
    pub fn poll_timeout(&self) -> Option<Time> {
        let refresh = self.rules.as_ref().map(|_| self.next_refresh);
        refresh.into_iter().chain(self.table.poll_timeout()).min()
    }

    /// What to do, in order; `None`: nothing.
    pub fn poll_output(&mut self) -> Option<DirectoryOutput> {
        self.outputs.pop_front()
    }

    /// Looks at the table at once, whatever the interval.
    pub fn refresh(&mut self, now: Time) {
        let Some(rules) = &self.rules else { return };
        self.next_refresh = now + Dur::from_millis(rules.refresh_interval_ms);
        if self.planned.replace(self.table.revision()) == Some(self.table.revision()) {
            return;
        }
        let new = rules::plan(rules, self.max_streams, self.table.instances());
        let old = std::mem::replace(&mut self.plan, new);
        for (key, stream) in &old.streams {
            if let Some(reason) = self.reason_to_drop(stream) {
                self.outputs.push_back(DirectoryOutput::Unsubscribe { key: key.clone(), reason });
            }
        }
        let is_new = |stream: &&Subscription| old.streams.get(&stream.key) != Some(*stream);
        let subscribe = self.plan.streams.values().filter(is_new).cloned().map(DirectoryOutput::Subscribe);
        self.outputs.extend(subscribe);
        let is_new = |(name, exclusion): &(&String, &Exclusion)| old.excluded.get(*name) != Some(*exclusion);
        let excluded = self.plan.excluded.iter().filter(is_new).map(|(name, exclusion)| DirectoryOutput::Excluded {
            instance: name.clone(),
            exclusion: exclusion.clone(),
        });
        self.outputs.extend(excluded);
        let is_over = |name: &&String| !self.plan.excluded.contains_key(*name);
        let readmitted = old.excluded.keys().filter(is_over).cloned();
        self.outputs.extend(readmitted.map(|instance| DirectoryOutput::Readmitted { instance }));
    }

    /// Why a stream of the last plan is not in this one as it was; `None`: it is.
    fn reason_to_drop(&self, old: &Subscription) -> Option<DropReason> {
        match self.plan.streams.get(&old.key) {
            Some(new) if new == old => None,
            Some(new) if new.origin != old.origin => Some(DropReason::Process),
            Some(_) => Some(DropReason::Address),
            None => Some(match self.table.get(&old.key.instance) {
                None => DropReason::Removed,
                Some(instance) => self.reason_it_is_unwanted(instance, old),
            }),
        }
    }

    fn reason_it_is_unwanted(&self, instance: &Instance, old: &Subscription) -> DropReason {
        match self.plan.excluded.get(&old.key.instance) {
            _ if !instance.is_schedulable() => DropReason::Suspect,
            Some(Exclusion::Decodes) => DropReason::Role,
            Some(Exclusion::Backend { .. }) => DropReason::Backend,
            Some(_) => DropReason::Excluded,
            None if old.origin != Origin::Discovered(instance.record.identity.clone()) => DropReason::Process,
            None => DropReason::Ranks,
        }
    }
}
