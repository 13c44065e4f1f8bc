//! The redmpi command.
