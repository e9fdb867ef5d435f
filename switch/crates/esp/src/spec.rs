// SPDX-License-Identifier: Apache-2.0
//! An SA as JSON, for `sluice-esp ctl add` and files of SAs.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::algorithm::Algorithm;
use crate::key::Key;
use crate::lifetime::Limits;
use crate::replay::MAX_WINDOW;

/// The UDP port of ESP in UDP.
pub const NAT_TRAVERSAL: u16 = 4500;

/// Direction of packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// Encrypts.
    Out,
    /// Decrypts.
    In,
}

/// The payload of ESP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// An IP packet.
    Tunnel,
    /// The upper layer of the packet itself.
    Transport,
}

/// DF policy for the outer IPv4 header.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DontFragment {
    /// Set.
    #[default]
    Set,
    /// Not set.
    Clear,
    /// Copied from the inner packet; set for IPv6.
    Copy,
}

/// UDP encapsulation (RFC 3948): ports of an outbound SA.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Encapsulation {
    /// The local port.
    #[serde(default = "nat_traversal")]
    pub local_port: u16,
    /// The peer's port.
    #[serde(default = "nat_traversal")]
    pub remote_port: u16,
}

/// An SA. `Debug` does not show its keys.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SaSpec {
    /// Its direction.
    pub direction: Direction,
    /// Its number in the shim.
    pub sa: u32,
    /// Its SPI.
    pub spi: u32,
    /// Its bundle.
    pub bundle: u16,
    /// Its VRF.
    #[serde(default)]
    pub vrf: u16,
    /// Tunnel or transport mode.
    pub mode: Mode,
    /// Its algorithm.
    pub algorithm: Algorithm,
    /// Its key (with an AEAD's salt at the end).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<Key>,
    /// A file with the key instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_file: Option<PathBuf>,
    /// Its integrity key, where the algorithm has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub integrity_key: Option<Key>,
    /// A file with the integrity key instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub integrity_key_file: Option<PathBuf>,
    /// Out: its key may have encrypted here before. Refused unless numbers were reserved for the key.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub resume: bool,
    /// Extended sequence numbers.
    #[serde(default)]
    pub esn: bool,
    /// In: size of the anti-replay window in packets; 0 for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay_window: Option<u32>,
    /// Out: source address of its packets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local: Option<IpAddr>,
    /// Out: destination address of its packets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote: Option<IpAddr>,
    /// Out: in UDP, from and to these ports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encapsulation: Option<Encapsulation>,
    /// In: packets must come in UDP; any others are dropped.
    #[serde(default)]
    pub encapsulated: bool,
    /// In: the outbound SA (by its number) that follows the peer when its address or port changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub followed_by: Option<u32>,
    /// Out: TTL of the outer header.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl: Option<u8>,
    /// Out: DSCP of the outer header; copied from the inner packet if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dscp: Option<u8>,
    /// Copies ECN between inner and outer header (RFC 6040, normal mode); else the outer header has none.
    #[serde(default = "yes")]
    pub ecn: bool,
    /// Out: DF of an outer IPv4 header.
    #[serde(default)]
    pub df: DontFragment,
    /// Out: shorter packets are padded to this length (traffic flow confidentiality, tunnel mode); 0 for none.
    #[serde(default)]
    pub tfc_pad_to: u16,
    /// Limits after which it should be replaced.
    #[serde(default)]
    pub soft: Limits,
    /// Limits after which it ends.
    #[serde(default)]
    pub hard: Limits,
}

fn nat_traversal() -> u16 {
    NAT_TRAVERSAL
}

fn yes() -> bool {
    true
}

impl SaSpec {
    /// Reads the keys from key files; relative paths are below `directory`.
    ///
    /// # Errors
    /// Names the file and the reason.
    pub fn read_keys(&mut self, directory: &Path) -> Result<(), String> {
        for (key, file, name) in [
            (&mut self.key, &mut self.key_file, "key"),
            (
                &mut self.integrity_key,
                &mut self.integrity_key_file,
                "integrity_key",
            ),
        ] {
            let Some(path) = file.take() else { continue };
            if key.is_some() {
                return Err(format!("both {name} and {name}_file: give one"));
            }
            let read = Key::from_file(&directory.join(path));
            *key = Some(read.map_err(|error| error.to_string())?);
        }
        Ok(())
    }

    /// Checks the rules that the JSON types do not express.
    ///
    /// # Errors
    /// The first problem, with the remedy.
    pub fn check(&self, allow_no_integrity: bool) -> Result<(), String> {
        let require = |holds: bool, problem: &str| holds.then_some(()).ok_or(problem.to_owned());
        require(self.spi >= 256, "an SPI is 256 or more (RFC 4303, 2.1)")?;
        require(self.bundle != 0, "bundle 0 is no bundle")?;
        let files = self.key_file.is_some() || self.integrity_key_file.is_some();
        require(
            !files,
            "key files are read by who sends an SA, not by the engine",
        )?;
        require(
            self.algorithm != Algorithm::NullWithoutIntegrity || allow_no_integrity,
            "without integrity only where the engine was started with --allow-null-without-integrity-for-benchmarks",
        )?;
        require(self.dscp.is_none_or(|dscp| dscp < 64), "a DSCP is 0 to 63")?;
        let window = self.replay_window.unwrap_or(64);
        require(window <= MAX_WINDOW, "replay_window is at most 4096")?;
        require(
            !self.esn || window > 0,
            "esn takes a replay_window: the upper half of numbers is found by it",
        )?;
        match self.direction {
            Direction::Out => self.check_outbound(),
            Direction::In => self.check_inbound(),
        }
    }

    fn check_outbound(&self) -> Result<(), String> {
        if self.encapsulated || self.followed_by.is_some() || self.replay_window.is_some() {
            return Err("encapsulated, followed_by and replay_window are an inbound SA's".into());
        }
        match (self.local, self.remote) {
            (Some(local), Some(remote)) if local.is_ipv4() == remote.is_ipv4() => {}
            (Some(_), Some(_)) => return Err("local and remote are of one family".into()),
            _ => return Err("an outbound SA has local and remote".into()),
        }
        if let Some(ports) = self.encapsulation
            && ports.local_port != NAT_TRAVERSAL
            && ports.remote_port != NAT_TRAVERSAL
        {
            return Err("ESP in UDP is known by port 4500 on one side".into());
        }
        if self
            .encapsulation
            .is_some_and(|ports| ports.local_port == 0 || ports.remote_port == 0)
        {
            return Err("port 0 is no port".into());
        }
        if self.ttl == Some(0) {
            return Err("a ttl is 1 to 255".into());
        }
        let tunnel_only = self.ttl.is_some() || self.dscp.is_some() || self.tfc_pad_to != 0;
        if self.mode == Mode::Transport && (tunnel_only || self.df != DontFragment::Set) {
            return Err("ttl, dscp, df and tfc_pad_to are of an outer header: tunnel mode".into());
        }
        Ok(())
    }

    fn check_inbound(&self) -> Result<(), String> {
        let outbound_only = self.local.is_some()
            || self.remote.is_some()
            || self.encapsulation.is_some()
            || self.ttl.is_some()
            || self.dscp.is_some()
            || self.df != DontFragment::Set
            || self.tfc_pad_to != 0
            || self.resume;
        if outbound_only {
            return Err(
                "local, remote, encapsulation, ttl, dscp, df, tfc_pad_to and resume are an outbound SA's"
                    .into(),
            );
        }
        if self.followed_by.is_some() && !self.encapsulated {
            return Err("followed_by is for peers behind NAT: encapsulated".into());
        }
        Ok(())
    }

    /// Returns the key, or an empty one.
    pub fn key_or_none(&self) -> Key {
        self.key.clone().unwrap_or_default()
    }

    /// Returns the integrity key, or an empty one.
    pub fn integrity_key_or_none(&self) -> Key {
        self.integrity_key.clone().unwrap_or_default()
    }
}
