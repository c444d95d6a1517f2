//! forebay's terminal screens.
