// SPDX-License-Identifier: Apache-2.0
//! Finds the queueing discipline (qdisc) that an interface sends through.
//!
//! Qdiscs that the kernel attaches by default (noqueue, pfifo_fast, mq, or `net.core.default_qdisc`) have handle 0. A
//! qdisc that a user has set (tc, mininet's TCLink) has another handle. The switch's frames must pass such a qdisc,
//! because the user wants its limits to apply.

use std::io;

use crate::host_filter::{kind, tc_index, tcmsg, word};
use crate::netlink::{Message, Socket};

/// Parent that a root qdisc has.
const ROOT: u32 = 0xffff_ffff;

/// Returns the kind ("htb", "tbf", ...) of the root qdisc that a user has set on the interface with this index. `None`
/// if the interface has the kernel's default qdisc.
///
/// # Errors
/// Errors from netlink.
pub fn of(index: i32) -> io::Result<Option<String>> {
    let request = tcmsg(index, 0, 0, 0);
    let qdiscs = Socket::open(0)?.dump(libc::RTM_GETQDISC, &request)?;
    let of_interface = qdiscs
        .iter()
        .filter(|message| tc_index(message) == Some(index));
    Ok(of_interface.filter_map(chosen_root).next())
}

/// Returns the kind of a qdisc, if it is a root qdisc that a user has set.
fn chosen_root(message: &Message) -> Option<String> {
    let (handle, parent) = (word(&message.body, 8)?, word(&message.body, 12)?);
    let name = kind(message)?.strip_suffix(b"\0")?;
    (parent == ROOT && handle != 0).then(|| String::from_utf8_lossy(name).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::attribute;

    fn qdisc(handle: u32, parent: u32) -> Message {
        let mut body = tcmsg(7, handle, parent, 0);
        body.extend(attribute(1, b"tbf\0"));
        Message {
            kind: libc::RTM_NEWQDISC,
            body,
        }
    }

    #[test]
    fn a_root_with_a_handle_is_somebodys_and_any_part_is_read_without_a_panic() {
        assert_eq!(
            chosen_root(&qdisc(0x8001_0000, ROOT)).as_deref(),
            Some("tbf")
        );
        assert_eq!(chosen_root(&qdisc(0, ROOT)), None);
        assert_eq!(chosen_root(&qdisc(0x8001_0000, 0xffff_fff1)), None);
        let whole = qdisc(0x8001_0000, ROOT).body;
        for length in 0..whole.len() {
            let part = Message {
                kind: libc::RTM_NEWQDISC,
                body: whole[..length].to_vec(),
            };
            assert_eq!(chosen_root(&part), None);
        }
    }

    #[test]
    fn the_loopback_interface_has_the_kernels_own() {
        assert_eq!(of(1).unwrap(), None);
    }
}
