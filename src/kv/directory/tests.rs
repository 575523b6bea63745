//! States of instances as a table of what happens and what follows; properties of plans.
