//! The one form in which the admin API says no.

use serde::{Deserialize, Serialize};

/// The body of every answer with a status of 400 or above.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// A stable word for programs, such as `unknown_id`.
    pub code: String,
    /// What is wrong, for people.
    pub message: String,
    /// What to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}
