// SPDX-License-Identifier: Apache-2.0
//! Closes an interface to the host's network stack in both directions, by two traffic control (tc) filters.
//!
//! * Ingress: the kernel gives a frame to taps before this filter, which drops it. Taps are AF_PACKET sockets for all
//!   protocols, such as the switch's. Bridges, ARP, IP and sockets for one protocol come after the filter. So the
//!   switch receives the frame, and the rest of the host does not. The host's addresses, routes, multicast memberships
//!   and `rp_filter` do not change this.
//! * Egress: all frames that the host sends pass the filter, which drops them. The switch's own frames bypass traffic
//!   control (PACKET_QDISC_BYPASS). If they must pass the interface's qdisc, they carry a mark that is unique to this
//!   interface ([`send_mark`]), and the filter accepts them. Setting a mark requires CAP_NET_ADMIN or CAP_NET_RAW.
//!
//! tc is used instead of nftables for three reasons. Since Linux 5.16 the egress hook of nftables also sees frames of
//! PACKET_QDISC_BYPASS, so it cannot distinguish the switch from the host. Reloading the host's rules (`nft flush
//! ruleset`) would open every port. A tc filter also remains when a switch is killed: its interfaces stay closed until
//! the next switch takes them over.
//!
//! The filters are classic BPF programs that return tc's action themselves (direct action). They require only
//! `sch_ingress` and `cls_bpf` in the kernel, and CAP_NET_ADMIN. Their preference is 1, so that no other filter decides
//! before them. Other programs' filters on the interface's `clsact` are kept. If the switch created the `clsact`, it
//! removes the `clsact` together with its filters, unless other filters remain. The switch does not check programs that
//! root attaches before tc (XDP, and tcx since Linux 6.6).

use std::io;

use crate::netlink::{self, Message, Socket, attribute};
use crate::privilege::Raised;

const CLSACT: u32 = 0xffff_fff1;
const CLSACT_HANDLE: u32 = 0xffff_0000;
const PREFERENCE: u32 = 1;
/// Handle of the switch's filters, by which this module and users of `tc filter show` recognize them.
const HANDLE: u32 = 0x51;

const TCMSG: usize = 20;
const TCA_KIND: u16 = 1;
const TCA_OPTIONS: u16 = 2;
const TCA_CHAIN: u16 = 11;
const TCA_BPF_OPS_LEN: u16 = 4;
const TCA_BPF_OPS: u16 = 5;
const TCA_BPF_FLAGS: u16 = 8;
const TCA_BPF_FLAGS_GEN: u16 = 9;
const TCA_BPF_FLAG_ACT_DIRECT: u32 = 1;
/// Keeps the kernel from offloading the filter to the network card. The card would drop the frames before the switch
/// receives them.
const TCA_CLS_FLAGS_SKIP_HW: u32 = 1;

/// Value that the filter's first instruction loads. It has no effect on packets, and only marks the filter as the
/// switch's. The lowest bit is set if the switch also created the `clsact`.
const MARK: u32 = 0x51_1ce0;
const MARK_OWN_QDISC: u32 = 1;
const BPF_LD_IMM: u16 = 0x00;
const BPF_RET_K: u16 = 0x06;
const BPF_LD_WORD: u16 = 0x20;
const BPF_JUMP_EQUAL: u16 = 0x15;
/// Offset from which BPF reads a frame's mark: SKF_AD_OFF + SKF_AD_MARK.
const MARK_OF_FRAME: u32 = (-0x1000_i32 + 20) as u32;
const TC_ACT_OK: u32 = 0;
const TC_ACT_SHOT: u32 = 2;

const MOVE_IT: &str = "preference 1 is Sluice's: give the other filter a higher preference number \
     (list filters with `tc filter show dev IFACE ingress`, and with egress)";

/// Returns the mark of frames that the switch sends through the qdisc of the interface with this index. If such a frame
/// reaches the host at the far end of a veth, and the host forwards it, it keeps its mark. The mark contains the index,
/// so the filters of other interfaces drop the frame.
pub(crate) fn send_mark(index: i32) -> u32 {
    0x5100_0000 | index as u32 & 0x00ff_ffff
}

/// A direction of frames. Its number is the parent of the filters for this direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
enum Direction {
    Ingress = 0xffff_fff2,
    Egress = 0xffff_fff3,
}

const DIRECTIONS: [Direction; 2] = [Direction::Ingress, Direction::Egress];

/// Result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Checked {
    /// Both filters were in place.
    Intact,
    /// A filter was missing, and was installed again.
    Restored,
}

/// The two filters of one interface. Dropping this removes them.
#[derive(Debug)]
pub struct HostFilter {
    index: i32,
    own_qdisc: bool,
    forgotten: bool,
}

impl HostFilter {
    /// Closes the interface with this index. If a switch that was killed has left its filters, takes them over.
    ///
    /// # Errors
    /// Names the failed step and a remedy. The interface is then not closed and has no filter of the switch.
    pub fn put(index: i32) -> io::Result<Self> {
        let mut this = Self {
            index,
            own_qdisc: false,
            forgotten: false,
        };
        // If a later step fails, `this` is dropped, which removes the filters.
        this.check()?;
        Ok(this)
    }

    /// Restores missing filters.
    ///
    /// # Errors
    /// The interface may be open to the host, and closing it has failed.
    pub fn check(&mut self) -> io::Result<Checked> {
        let _raised = Raised::here();
        let mut socket = Socket::open(0)?;
        if is_intact(&mut socket, self.index)? {
            return Ok(Checked::Intact);
        }
        self.own_qdisc |= put_qdisc(&mut socket, self.index)?;
        for direction in DIRECTIONS {
            let body = filter(self.index, direction, Some(self.own_qdisc));
            // The flags do not include NLM_F_EXCL, so that an existing filter of the switch is replaced.
            let flags = libc::NLM_F_CREATE as u16;
            let put = socket.request(libc::RTM_NEWTFILTER, flags, &body);
            put.map_err(|error| explain("add a filter to its clsact qdisc", error))?;
        }
        if is_intact(&mut socket, self.index)? {
            return Ok(Checked::Restored);
        }
        Err(io::Error::other(
            "the kernel accepted the filters, but does not list them",
        ))
    }

    /// Drops this without removing the filters. Must be called when the interface is gone.
    pub fn forget(mut self) {
        self.forgotten = true;
    }

    fn remove(&self) -> io::Result<()> {
        let _raised = Raised::here();
        let mut socket = Socket::open(0)?;
        let (mut left, mut own_qdisc) = (0, self.own_qdisc);
        for direction in DIRECTIONS {
            let there = filters(&mut socket, self.index, direction)?;
            if let Some(own) = there.iter().find_map(|filter| filter.own_qdisc) {
                own_qdisc |= own;
                let body = filter(self.index, direction, None);
                socket.request(libc::RTM_DELTFILTER, 0, &body)?;
            }
            left += filters(&mut socket, self.index, direction)?.len();
        }
        if own_qdisc && left == 0 {
            socket.request(libc::RTM_DELQDISC, 0, &clsact(self.index))?;
        }
        Ok(())
    }
}

impl Drop for HostFilter {
    fn drop(&mut self) {
        if self.forgotten {
            return;
        }
        if let Err(error) = self.remove() {
            // The interface is gone, for example because a topology was torn down, so there is nothing to remove.
            tracing::debug!(index = self.index, %error, "the filters of the interface could not be removed");
        }
    }
}

/// Returns whether both filters are in place.
///
/// # Errors
/// Another filter decides before the switch's filter in one direction.
fn is_intact(socket: &mut Socket, index: i32) -> io::Result<bool> {
    let mut intact = true;
    for direction in DIRECTIONS {
        let (ours, others): (Vec<_>, Vec<_>) = filters(socket, index, direction)?
            .into_iter()
            .filter(Filter::is_first)
            .partition(|filter| filter.own_qdisc.is_some());
        if !others.is_empty() {
            return Err(io::Error::other(format!(
                "another tc filter handles frames before Sluice's filter: {MOVE_IT}"
            )));
        }
        intact &= ours.iter().any(|filter| filter.is_current);
    }
    Ok(intact)
}

/// Creates a `clsact` if the interface has none. Returns whether a switch created the `clsact`, this one or an earlier
/// one.
fn put_qdisc(socket: &mut Socket, index: i32) -> io::Result<bool> {
    let flags = (libc::NLM_F_CREATE | libc::NLM_F_EXCL) as u16;
    match socket.request(libc::RTM_NEWQDISC, flags, &clsact(index)) {
        Ok(()) => return Ok(true),
        Err(error) if error.raw_os_error() == Some(libc::EEXIST) => {}
        Err(error) => return Err(explain("add a clsact qdisc", error)),
    }
    let mut request = clsact(index);
    request.truncate(TCMSG);
    let qdiscs = socket.dump(libc::RTM_GETQDISC, &request)?;
    let there = qdiscs
        .iter()
        .find(|qdisc| tc_index(qdisc) == Some(index) && word(&qdisc.body, 12) == Some(CLSACT));
    if there.and_then(kind) != Some(b"clsact\0".as_slice()) {
        return Err(io::Error::other(
            "the interface has an ingress qdisc, which cannot drop frames that the host sends: \
             remove it (`tc qdisc del dev IFACE ingress`), or replace it by clsact",
        ));
    }
    let ours = filters(socket, index, Direction::Ingress)?
        .iter()
        .find_map(|filter| filter.own_qdisc);
    Ok(ours.unwrap_or(false))
}

fn explain(step: &str, error: io::Error) -> io::Error {
    let hint = match error.raw_os_error() {
        Some(libc::EPERM) => "this step needs CAP_NET_ADMIN: run as root, or with this capability",
        Some(libc::ENOENT | libc::EOPNOTSUPP) => {
            "the kernel needs sch_ingress and cls_bpf (CONFIG_NET_SCH_INGRESS, CONFIG_NET_CLS_BPF)"
        }
        Some(libc::EINVAL | libc::EEXIST) => MOVE_IT,
        _ => "see `tc qdisc show dev IFACE`",
    };
    io::Error::new(error.kind(), format!("cannot {step}: {error}: {hint}"))
}

/// An installed filter.
#[derive(Debug)]
struct Filter {
    preference: u32,
    chain: u32,
    /// Whether the switch that installed the filter also created the `clsact`. `None` if the filter is not a switch's.
    own_qdisc: Option<bool>,
    /// Whether the filter's program is the program that this version of the switch installs.
    is_current: bool,
}

impl Filter {
    /// Returns whether no filter can decide before this one.
    fn is_first(&self) -> bool {
        self.preference <= PREFERENCE && self.chain == 0
    }
}

fn filters(socket: &mut Socket, index: i32, direction: Direction) -> io::Result<Vec<Filter>> {
    let request = tcmsg(index, 0, direction as u32, 0);
    let messages = socket.dump(libc::RTM_GETTFILTER, &request)?;
    Ok(messages
        .iter()
        .filter(|message| tc_index(message) == Some(index))
        .filter_map(|message| read_filter(message, direction))
        .collect())
}

fn read_filter(message: &Message, direction: Direction) -> Option<Filter> {
    let (handle, info) = (word(&message.body, 8)?, word(&message.body, 16)?);
    // The first message in a list of filters describes the list and has no options.
    let options = attribute_of(message, TCA_OPTIONS)?;
    let chain = attribute_of(message, TCA_CHAIN).and_then(|value| word(value, 0));
    let value = |kind| netlink::find_attribute(options, kind);
    let direct = value(TCA_BPF_FLAGS).and_then(|flags| word(flags, 0));
    let found = value(TCA_BPF_OPS).unwrap_or_default();
    let is_switch = handle == HANDLE
        && info == filter_info()
        && kind(message) == Some(b"bpf\0")
        && direct == Some(TCA_BPF_FLAG_ACT_DIRECT);
    // The first instruction shows that a filter is a switch's, even if another version of the switch installed it.
    let first = found.first_chunk::<8>().filter(|_| is_switch);
    let own_qdisc = [false, true]
        .into_iter()
        .find(|own| first == Some(&instruction(BPF_LD_IMM, 0, 0, mark(*own))));
    let index = tc_index(message)?;
    Some(Filter {
        preference: info >> 16,
        chain: chain.unwrap_or(0),
        own_qdisc,
        is_current: own_qdisc.is_some_and(|own| found == program(index, direction, own)),
    })
}

fn attribute_of(message: &Message, kind: u16) -> Option<&[u8]> {
    netlink::find_attribute(message.body.get(TCMSG..)?, kind)
}

pub(crate) fn kind(message: &Message) -> Option<&[u8]> {
    attribute_of(message, TCA_KIND)
}

pub(crate) fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// Returns the index of the interface that a message about a qdisc or filter refers to.
pub(crate) fn tc_index(message: &Message) -> Option<i32> {
    Some(word(&message.body, 4)? as i32)
}

pub(crate) fn tcmsg(index: i32, handle: u32, parent: u32, info: u32) -> Vec<u8> {
    let mut body = vec![0; 4];
    body.extend_from_slice(&index.to_ne_bytes());
    for word in [handle, parent, info] {
        body.extend_from_slice(&word.to_ne_bytes());
    }
    body
}

fn clsact(index: i32) -> Vec<u8> {
    let mut body = tcmsg(index, CLSACT_HANDLE, CLSACT, 0);
    body.extend(attribute(TCA_KIND, b"clsact\0"));
    body
}

/// Encodes the filter's preference and its protocol, which is "all protocols".
fn filter_info() -> u32 {
    PREFERENCE << 16 | u32::from((libc::ETH_P_ALL as u16).to_be())
}

/// Encodes a filter. A request to install it contains its program; a request to delete it does not.
fn filter(index: i32, direction: Direction, own_qdisc: Option<bool>) -> Vec<u8> {
    let mut body = tcmsg(index, HANDLE, direction as u32, filter_info());
    body.extend(attribute(TCA_KIND, b"bpf\0"));
    if let Some(own_qdisc) = own_qdisc {
        let program = program(index, direction, own_qdisc);
        let instructions = (program.len() / 8) as u16;
        let mut options = attribute(TCA_BPF_OPS_LEN, &instructions.to_ne_bytes());
        options.extend(attribute(TCA_BPF_OPS, &program));
        let flags = TCA_BPF_FLAG_ACT_DIRECT.to_ne_bytes();
        options.extend(attribute(TCA_BPF_FLAGS, &flags));
        let flags = TCA_CLS_FLAGS_SKIP_HW.to_ne_bytes();
        options.extend(attribute(TCA_BPF_FLAGS_GEN, &flags));
        body.extend(attribute(TCA_OPTIONS, &options));
    }
    body
}

/// Returns the value that the first instruction loads.
fn mark(own_qdisc: bool) -> u32 {
    MARK | if own_qdisc { MARK_OWN_QDISC } else { 0 }
}

fn instruction(code: u16, if_true: u8, if_false: u8, value: u32) -> [u8; 8] {
    let mut bytes = [0; 8];
    bytes[..2].copy_from_slice(&code.to_ne_bytes());
    bytes[2..4].copy_from_slice(&[if_true, if_false]);
    bytes[4..].copy_from_slice(&value.to_ne_bytes());
    bytes
}

/// Returns the program of a filter. The program drops every frame, except egress frames that have this interface's
/// mark.
fn program(index: i32, direction: Direction, own_qdisc: bool) -> Vec<u8> {
    let first = instruction(BPF_LD_IMM, 0, 0, mark(own_qdisc));
    let drop = instruction(BPF_RET_K, 0, 0, TC_ACT_SHOT);
    match direction {
        Direction::Ingress => [first, drop].concat(),
        Direction::Egress => [
            first,
            instruction(BPF_LD_WORD, 0, 0, MARK_OF_FRAME),
            instruction(BPF_JUMP_EQUAL, 0, 1, send_mark(index)),
            instruction(BPF_RET_K, 0, 0, TC_ACT_OK),
            drop,
        ]
        .concat(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_prefix_of_a_filter_is_read_without_a_panic() {
        let body = filter(7, Direction::Egress, Some(true));
        let whole = Message {
            kind: libc::RTM_NEWTFILTER,
            body: body.clone(),
        };
        let read = read_filter(&whole, Direction::Egress).unwrap();
        assert_eq!((read.own_qdisc, read.is_first()), (Some(true), true));
        assert!(read.is_current);
        let other = read_filter(&whole, Direction::Ingress).unwrap();
        assert_eq!((other.own_qdisc, other.is_current), (Some(true), false));
        for length in 0..body.len() {
            let part = Message {
                kind: libc::RTM_NEWTFILTER,
                body: body[..length].to_vec(),
            };
            let read = read_filter(&part, Direction::Egress);
            assert!(read.is_none_or(|filter| !filter.is_current));
        }
    }

    #[test]
    fn an_interface_that_does_not_exist_is_an_error() {
        assert!(HostFilter::put(i32::MAX).is_err());
    }
}
