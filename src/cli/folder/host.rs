//! Facts about the machine that ran, for `run.json`. No name of the machine or its user.

use std::fs;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The machine that ran.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HostFacts {
    /// Operating system, such as `linux`.
    pub os: String,
    /// Processor architecture, such as `x86_64`.
    pub arch: String,
    /// Release of the kernel, where it says so.
    pub kernel: Option<String>,
    /// Model of the processor, where the kernel names it.
    pub cpu: Option<String>,
    /// Processors this process may use.
    pub cpus: usize,
    /// Memory of the machine, bytes.
    pub memory_bytes: Option<u64>,
}

impl HostFacts {
    /// Reads them.
    pub fn read() -> HostFacts {
        HostFacts {
            os: std::env::consts::OS.into(),
            arch: std::env::consts::ARCH.into(),
            kernel: fs::read_to_string("/proc/sys/kernel/osrelease").ok().map(|text| text.trim().to_owned()),
            cpu: proc_value("/proc/cpuinfo", "model name"),
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: proc_value("/proc/meminfo", "MemTotal").and_then(|text| kib(&text)),
        }
    }
}

fn proc_value(file: &str, key: &str) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    let line = text.lines().find(|line| line.starts_with(key))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

fn kib(text: &str) -> Option<u64> {
    text.strip_suffix(" kB")?.trim().parse::<u64>().ok().map(|kib| kib * 1024)
}
