//! The layout that a machine has, and the machine with another one.

use super::{Layout, Place};
use crate::profile::TaskLayout;
use crate::{Change, Machine, ProfileError};

impl From<&TaskLayout> for Layout {
    fn from(layout: &TaskLayout) -> Self {
        let place = match (layout.separate, layout.colours) {
            (true, _) => Place::Separate,
            (false, 0 | 1) => Place::Plain,
            (false, colours) => Place::Coloured(colours),
        };
        Layout {
            place,
            prefetch: layout.prefetch,
        }
    }
}

impl Machine {
    /// Returns the layout of its task structures.
    pub fn layout(&self) -> Layout {
        Layout::from(&self.task_layout)
    }

    /// Returns the machine with another layout of its task structures; everything else stays as it is.
    ///
    /// # Errors
    /// If the last colour shifts the fields out of the structure.
    pub fn with_layout(self, layout: Layout) -> Result<Machine, ProfileError> {
        let own = &self.task_layout;
        let room = u64::from(own.stride_bytes)
            .saturating_sub(u64::from(own.offset_bytes) + u64::from(own.examine_bytes));
        let colours_max = 1 + room / u64::from(self.memory.line_bytes);
        let colours = match layout.place {
            Place::Coloured(colours) => colours,
            Place::Plain | Place::Separate => 1,
        };
        if u64::from(colours) > colours_max {
            return Err(ProfileError::Layout {
                stride_bytes: own.stride_bytes,
                machine: self.name,
                layout,
                colours_max,
            });
        }
        let separate = layout.place == Place::Separate;
        let mut changes = Vec::new();
        let mut change = |field: &str, differs: bool, value: String| {
            if differs {
                changes.push(Change {
                    field: format!("task_layout.{field}"),
                    value,
                    source: format!("derived: the layout `{layout}` was asked for"),
                });
            }
        };
        change("colours", colours != own.colours, colours.to_string());
        change("separate", separate != own.separate, separate.to_string());
        let prefetch = layout.prefetch;
        change("prefetch", prefetch != own.prefetch, prefetch.to_string());
        if changes.is_empty() {
            return Ok(self);
        }
        self.with_changes(&changes)
    }
}
