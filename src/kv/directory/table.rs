//! [`InstanceTable`]: which instances there are, in which state, what they do and how loaded they are.
//!
//! The state machine of the public xLLM service (`instance_mgr.cpp`): a lost lease asks the instance itself; one that
//! answers is kept for as long as it is heard of, one that does not is suspect and soon gone. It is told the time, and
//! acts at the exact moment where the service looks once a second. Owns no stream.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::endpoint::Endpoint;
use super::record::{Identity, InstanceLoad, InstanceRecord, InstanceType, LoadReport};
use super::states::{InstanceState, StateChange, StateReason};
use crate::base::{Dur, Role, Time};

/// Times an instance without a lease is asked for its health.
pub const PROBE_ATTEMPTS: u32 = 2;
/// For one answer.
pub const PROBE_LIMIT: Dur = Dur::from_millis(1_000);
/// Between two.
pub const PROBE_PAUSE: Dur = Dur::from_millis(100);
/// Silence after which an instance without a lease is suspect.
pub const LEASE_LOST_LIMIT: Dur = Dur::from_millis(3_000);
/// Stay of a suspect.
pub const SUSPECT_LIMIT: Dur = Dur::from_millis(15_000);

/// What the table is told.
#[derive(Debug, Clone, PartialEq)]
pub enum TableInput {
    /// A registration, new or again.
    Put(InstanceRecord),
    /// The registration ended without a word: its lease ran out, or somebody removed the key.
    LeaseLost {
        /// Instance.
        name: String,
        /// Process the registration was of; another one's is not ended by it.
        identity: Identity,
    },
    /// The instance was taken off on purpose.
    Withdrawn {
        /// Instance.
        name: String,
    },
    /// A sign of life.
    Heartbeat {
        /// Instance.
        name: String,
        /// Process it says to be; `None`: unsaid.
        incarnation: Option<String>,
        /// Its load, when it says it.
        load: Option<LoadReport>,
    },
    /// Its load is no longer known.
    LoadGone {
        /// Instance.
        name: String,
    },
    /// Answer to a [`TableOutput::Probe`].
    Probed {
        /// Which.
        probe: u64,
        /// It said 200.
        healthy: bool,
    },
    /// A [`InstanceType::Mix`] does something else from now on.
    Role {
        /// Instance.
        name: String,
        /// [`Role::Prefill`] or [`Role::Decode`].
        role: Role,
    },
}

/// What the table asks and tells.
#[derive(Debug, Clone, PartialEq)]
pub enum TableOutput {
    /// GET `/health` of this address, and say within [`PROBE_LIMIT`] whether it was a 200; silence counts as no.
    Probe {
        /// To be named in the answer.
        probe: u64,
        /// Instance.
        name: String,
        /// Its HTTP server.
        address: Endpoint,
    },
    /// An instance came, went, or changed its state.
    Changed(StateChange),
}

/// One instance.
#[derive(Debug, Clone)]
pub struct Instance {
    /// Its registration.
    pub record: InstanceRecord,
    /// What it does now; a DEFAULT is colocated.
    pub role: Role,
    /// State.
    pub state: InstanceState,
    /// Load; `None` until the process's first report.
    pub load: Option<InstanceLoad>,
    /// When `state` began.
    since: Time,
    /// Last sign of life since then.
    heard: Time,
    probe: Option<Probe>,
}

#[derive(Debug, Clone, Copy)]
struct Probe {
    id: u64,
    attempt: u32,
    phase: Phase,
}

#[derive(Debug, Clone, Copy)]
enum Phase {
    /// An answer is awaited until then.
    Asked(Time),
    /// The next attempt is then.
    Pause(Time),
}

/// See the module.
#[derive(Debug, Default)]
pub struct InstanceTable {
    instances: BTreeMap<String, Instance>,
    /// New MIX whose role is not judged yet: all that is told at one moment comes first.
    unjudged: BTreeSet<String>,
    revision: u64,
    probes: u64,
    outputs: VecDeque<TableOutput>,
}

impl InstanceTable {
    /// Nobody is registered.
    pub fn new() -> InstanceTable {
        InstanceTable::default()
    }

    /// Instances in order of their names.
    pub fn instances(&self) -> impl Iterator<Item = &Instance> {
        self.instances.values()
    }

    /// Another one whenever a registration, a state or a role may have changed; loads do not count.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// One of them.
    pub fn get(&self, name: &str) -> Option<&Instance> {
        self.instances.get(name)
    }

    /// What to do, in order; `None`: nothing.
    pub fn poll_output(&mut self) -> Option<TableOutput> {
        self.outputs.pop_front()
    }

    /// When it next wakes by itself.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.instances.values().filter_map(Instance::wake).min()
    }

    /// Time passed.
    pub fn advance(&mut self, now: Time) {
        while let Some((at, name)) = self.next_due(now) {
            self.wake(at, now, &name);
        }
    }

    /// Takes one input; what was due by `now` happens before it.
    pub fn handle_input(&mut self, now: Time, input: TableInput) {
        self.handle_inputs(now, [input]);
    }

    /// Takes inputs of one moment; what was due by `now` happens before them. What they are together counts, whatever their
    /// order: a MIX that does not say its role gets one after those that do, in the order of names.
    pub fn handle_inputs(&mut self, now: Time, inputs: impl IntoIterator<Item = TableInput>) {
        self.advance(now);
        inputs.into_iter().for_each(|input| self.take(now, input));
        for name in std::mem::take(&mut self.unjudged) {
            let role = self.first_role_of_a_mix();
            self.instances.get_mut(&name).into_iter().for_each(|mix| mix.role = role);
        }
    }

    fn take(&mut self, now: Time, input: TableInput) {
        match input {
            TableInput::Put(record) => self.put(now, record),
            TableInput::LeaseLost { name, identity } => self.lease_lost(now, &name, &identity),
            TableInput::Withdrawn { name } => self.remove(&name, StateReason::Withdrawn),
            TableInput::Heartbeat { name, incarnation, load } => {
                self.heartbeat(now, &name, incarnation.as_deref(), load)
            }
            TableInput::LoadGone { name } => {
                if let Some(instance) = self.instances.get_mut(&name) {
                    instance.load = None;
                }
            }
            TableInput::Probed { probe, healthy } => self.probed(now, probe, healthy),
            TableInput::Role { name, role } => {
                let mix = self.instances.get_mut(&name).filter(|found| found.record.kind == InstanceType::Mix);
                if let Some(instance) = mix.filter(|_| role != Role::Colocated) {
                    instance.role = role;
                    self.unjudged.remove(&name);
                    self.revision += 1;
                }
            }
        }
    }

    fn put(&mut self, now: Time, record: InstanceRecord) {
        let name = record.name.clone();
        self.revision += 1;
        if self.instances.get(&name).is_some_and(|known| known.record.identity != record.identity) {
            self.remove(&name, StateReason::Replaced);
        }
        let said = role_of(&record);
        if said.is_some() {
            self.unjudged.remove(&name);
        }
        match self.instances.get_mut(&name) {
            Some(known) => {
                let kept = (known.record.kind == record.kind).then_some(known.role);
                known.role = said.or(kept).unwrap_or(Role::Prefill);
                known.record = record;
                known.heard = now;
                known.probe = None;
                self.become_(now, &name, InstanceState::Active, StateReason::Registered);
            }
            None => {
                let role = said.unwrap_or_else(|| {
                    self.unjudged.insert(name.clone());
                    Role::Prefill
                });
                let state = InstanceState::Active;
                let instance = Instance { record, role, state, load: None, since: now, heard: now, probe: None };
                self.instances.insert(name.clone(), instance);
                self.tell(name, None, Some(state), StateReason::Registered);
            }
        }
    }

    /// As in the public service: decode while nobody else decodes.
    fn first_role_of_a_mix(&self) -> Role {
        let decodes = self.instances.values().any(|instance| instance.role == Role::Decode);
        if decodes { Role::Prefill } else { Role::Decode }
    }

    fn lease_lost(&mut self, now: Time, name: &str, identity: &Identity) {
        let known = self.instances.get(name);
        if known.is_some_and(|known| known.record.identity == *identity && known.probe.is_none()) {
            self.ask(now, name, 1);
        }
    }

    fn ask(&mut self, now: Time, name: &str, attempt: u32) {
        let Some(instance) = self.instances.get_mut(name) else { return };
        self.probes += 1;
        let id = self.probes;
        instance.probe = Some(Probe { id, attempt, phase: Phase::Asked(now + PROBE_LIMIT) });
        let address = instance.record.address.clone();
        self.outputs.push_back(TableOutput::Probe { probe: id, name: name.to_owned(), address });
    }

    fn probed(&mut self, now: Time, id: u64, healthy: bool) {
        let asked = |instance: &&Instance| {
            instance.probe.is_some_and(|probe| probe.id == id && matches!(probe.phase, Phase::Asked(_)))
        };
        let Some(name) = self.instances.values().find(asked).map(|instance| instance.record.name.clone()) else {
            return;
        };
        self.answered(now, &name, healthy);
    }

    fn answered(&mut self, now: Time, name: &str, healthy: bool) {
        let Some(instance) = self.instances.get_mut(name) else { return };
        let Some(probe) = instance.probe.take() else { return };
        if healthy {
            instance.heard = now;
            self.become_(now, name, InstanceState::LeaseLost, StateReason::ProbeAnswered);
        } else if probe.attempt < PROBE_ATTEMPTS {
            instance.probe = Some(Probe { phase: Phase::Pause(now + PROBE_PAUSE), ..probe });
        } else {
            self.become_(now, name, InstanceState::Suspect, StateReason::ProbeFailed);
        }
    }

    fn heartbeat(&mut self, now: Time, name: &str, incarnation: Option<&str>, load: Option<LoadReport>) {
        let Some(instance) = self.instances.get_mut(name) else { return };
        if incarnation.is_some_and(|said| instance.record.identity.incarnation().unwrap_or_default() != said) {
            return;
        }
        instance.heard = now;
        if let Some(LoadReport { waiting_requests_num, gpu_cache_usage_perc }) = load {
            instance.load = Some(InstanceLoad { waiting_requests_num, gpu_cache_usage_perc, received: now });
        }
        if instance.state == InstanceState::Suspect {
            self.become_(now, name, InstanceState::LeaseLost, StateReason::Heartbeat);
        }
    }

    fn next_due(&self, now: Time) -> Option<(Time, String)> {
        let wakes = self.instances.iter().filter_map(|(name, instance)| Some((instance.wake()?, name)));
        let (at, name) = wakes.min().filter(|(at, _)| *at <= now)?;
        Some((at, name.clone()))
    }

    /// What is due at `at` happens then, not at `now`, so that a late call changes no deadline; only a question, which is
    /// asked now, has its time from now.
    fn wake(&mut self, at: Time, now: Time, name: &str) {
        let Some(instance) = self.instances.get(name) else { return };
        match (instance.probe, instance.state) {
            (Some(Probe { phase: Phase::Asked(_), .. }), _) => self.answered(at, name, false),
            (Some(Probe { phase: Phase::Pause(_), attempt, .. }), _) => self.ask(now, name, attempt + 1),
            (None, InstanceState::LeaseLost) => self.become_(at, name, InstanceState::Suspect, StateReason::Silent),
            (None, InstanceState::Suspect) => self.remove(name, StateReason::SuspectTooLong),
            (None, InstanceState::Active) => {}
        }
    }

    fn become_(&mut self, now: Time, name: &str, state: InstanceState, reason: StateReason) {
        self.revision += 1;
        let Some(instance) = self.instances.get_mut(name) else { return };
        if instance.state != state {
            let from = std::mem::replace(&mut instance.state, state);
            instance.since = now;
            self.tell(name.to_owned(), Some(from), Some(state), reason);
        }
    }

    fn remove(&mut self, name: &str, reason: StateReason) {
        self.revision += 1;
        if let Some(gone) = self.instances.remove(name) {
            self.tell(name.to_owned(), Some(gone.state), None, reason);
        }
    }

    fn tell(&mut self, instance: String, from: Option<InstanceState>, to: Option<InstanceState>, reason: StateReason) {
        self.outputs.push_back(TableOutput::Changed(StateChange { instance, from, to, reason }));
    }
}

/// What a registration settles; `None`: a MIX that does not say.
fn role_of(record: &InstanceRecord) -> Option<Role> {
    match record.kind {
        InstanceType::Default => Some(Role::Colocated),
        InstanceType::Prefill => Some(Role::Prefill),
        InstanceType::Decode => Some(Role::Decode),
        InstanceType::Mix => record.current,
    }
}

impl Instance {
    /// May be sent requests, and its stream counts.
    pub fn is_schedulable(&self) -> bool {
        self.state != InstanceState::Suspect
    }

    fn wake(&self) -> Option<Time> {
        match (self.probe, self.state) {
            (Some(Probe { phase: Phase::Asked(at) | Phase::Pause(at), .. }), _) => Some(at),
            (None, InstanceState::Active) => None,
            (None, InstanceState::LeaseLost) => Some(self.heard + LEASE_LOST_LIMIT),
            (None, InstanceState::Suspect) => Some(self.since + SUSPECT_LIMIT),
        }
    }
}
