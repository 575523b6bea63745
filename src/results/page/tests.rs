//! Pages of hostile, empty and odd runs.
