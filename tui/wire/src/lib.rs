//! Types of the admin API.
