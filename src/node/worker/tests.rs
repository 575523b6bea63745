//! Tests of the worker node.
