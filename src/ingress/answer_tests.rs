//! Golden answers per outcome and face.
