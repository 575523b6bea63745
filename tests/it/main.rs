//! The one integration test binary: a file a feature, run against the real `pdreplay` binary or the library.

mod results;
