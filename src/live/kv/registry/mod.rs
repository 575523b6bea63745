//! Registries of instances in real time, and the task of the directory between them and the streams.
//!
//! `file` looks at a JSON file, `etcd` follows the keys of an etcd cluster; both speak as [`News`]. `run` has the clock of
//! a [`Directory`](crate::kv::directory::Directory) and makes its health probes. None of them decides anything about an
//! instance.

#[cfg(feature = "etcd")]
mod etcd;
mod file;
mod run;
#[cfg(test)]
mod tests;

use std::fmt;
use std::time::Duration;

use tokio::sync::mpsc;

use crate::kv::directory::{News, Registry};

pub use file::read_limited;
pub use run::{DirectoryWord, run};

/// A registry that cannot be followed as it is described.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RegistryError {
    /// This binary has no client of etcd.
    #[error(
        "discovery.registry.etcd: this build has no etcd client; build with `--features etcd` (that needs protoc), or use \
         `registry.file`"
    )]
    NoEtcd,
    /// TLS.
    #[error(
        "discovery.registry.etcd.endpoints: \"{0}\" asks for TLS, which the etcd client of this build does not speak; write \
         http://HOST:PORT, through a local proxy where the cluster has TLS only"
    )]
    Tls(String),
    /// The client refuses the endpoints.
    #[error("discovery.registry.etcd.endpoints: {0}; write http://HOST:PORT of each member")]
    Endpoints(String),
}

/// A user of etcd.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    /// Name.
    pub user: String,
    /// Password.
    pub password: String,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login").field("user", &self.user).finish_non_exhaustive()
    }
}

/// Whether a registry can be followed, as far as that is known without asking it.
pub fn check(registry: &Registry) -> Result<(), RegistryError> {
    match registry {
        Registry::File(_) => Ok(()),
        Registry::Etcd { .. } if !cfg!(feature = "etcd") => Err(RegistryError::NoEtcd),
        Registry::Etcd { endpoints, .. } => match endpoints.iter().find(|endpoint| endpoint.starts_with("https://")) {
            Some(tls) => Err(RegistryError::Tls(tls.clone())),
            None => Ok(()),
        },
    }
}

/// Follows a registry until nobody listens at `to` any more; what is told together is one state of it. `every` is the interval at which a file is looked at; etcd
/// tells by itself. Errors: the registry cannot be followed at all; one that is only out of reach is a
/// [`News::Notice`].
pub async fn follow(
    registry: &Registry,
    every: Duration,
    login: Option<Login>,
    to: mpsc::Sender<Vec<News>>,
) -> Result<(), RegistryError> {
    check(registry)?;
    match registry {
        Registry::File(path) => {
            file::follow(path, every, &to).await;
            Ok(())
        }
        #[cfg(feature = "etcd")]
        Registry::Etcd { endpoints, namespace } => etcd::follow(endpoints, namespace, login, &to).await,
        #[cfg(not(feature = "etcd"))]
        Registry::Etcd { .. } => {
            drop(login);
            Err(RegistryError::NoEtcd)
        }
    }
}

/// Hands over what is one state of a registry; `false`: nobody listens any more.
async fn tell(news: Vec<News>, to: &mpsc::Sender<Vec<News>>) -> bool {
    news.is_empty() || to.send(news).await.is_ok()
}
