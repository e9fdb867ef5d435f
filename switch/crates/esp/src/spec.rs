// SPDX-License-Identifier: Apache-2.0
//! Defines the JSON form of an SA, for `sluice-esp ctl add` and for files of SAs.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::algorithm::Algorithm;
use crate::key::Key;
use crate::lifetime::Limits;
use crate::replay::MAX_WINDOW;

/// The UDP port of ESP in UDP.
pub const NAT_TRAVERSAL: u16 = 4500;

/// Direction of an SA.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// Outbound: the SA encrypts.
    Out,
    /// Inbound: the SA decrypts.
    In,
}

/// Mode of an SA. The mode determines the payload of ESP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// A whole IP packet.
    Tunnel,
    /// The upper layer of the packet that ESP protects.
    Transport,
}

/// DF policy for the outer IPv4 header.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DontFragment {
    /// DF is set.
    #[default]
    Set,
    /// DF is clear.
    Clear,
    /// DF is copied from an inner IPv4 packet, and set for an inner IPv6 packet.
    Copy,
}

/// UDP ports of an outbound SA that sends ESP in UDP (RFC 3948).
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

/// Specification of an SA. `Debug` does not show its keys.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SaSpec {
    /// Direction of the SA's packets.
    pub direction: Direction,
    /// Number of the SA in the shim.
    pub sa: u32,
    /// SPI of the SA.
    pub spi: u32,
    /// Bundle of the SA.
    pub bundle: u16,
    /// VRF of the SA.
    #[serde(default)]
    pub vrf: u16,
    /// Tunnel or transport mode.
    pub mode: Mode,
    /// Algorithm of the SA.
    pub algorithm: Algorithm,
    /// Key, as hexadecimal digits. The key of an AEAD ends with its salt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<Key>,
    /// File that contains the key, as an alternative to `key`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_file: Option<PathBuf>,
    /// Integrity key, if the algorithm needs one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub integrity_key: Option<Key>,
    /// File that contains the integrity key, as an alternative to `integrity_key`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub integrity_key_file: Option<PathBuf>,
    /// Outbound: whether the key may have encrypted packets on this machine before. If true, sequence numbers must be
    /// reserved for the key already. Otherwise the SA is refused.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub resume: bool,
    /// Whether the SA uses extended sequence numbers.
    #[serde(default)]
    pub esn: bool,
    /// Inbound: size of the anti-replay window in packets. 0 disables the check.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay_window: Option<u32>,
    /// Outbound: source address of the ESP packets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local: Option<IpAddr>,
    /// Outbound: destination address of the ESP packets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote: Option<IpAddr>,
    /// Outbound: UDP ports, if ESP is sent in UDP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encapsulation: Option<Encapsulation>,
    /// Inbound: whether ESP must arrive in UDP. If true, ESP without UDP is dropped. If false, ESP in UDP is dropped.
    #[serde(default)]
    pub encapsulated: bool,
    /// Inbound: number of the outbound SA that follows the peer when the peer's address or port changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub followed_by: Option<u32>,
    /// Outbound: TTL of the outer header.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl: Option<u8>,
    /// Outbound: DSCP of the outer header. If absent, the DSCP is copied from the inner packet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dscp: Option<u8>,
    /// Whether ECN is copied between inner and outer header (RFC 6040, normal mode). If false, the outer header has no
    /// ECN.
    #[serde(default = "yes")]
    pub ecn: bool,
    /// Outbound: DF of an outer IPv4 header.
    #[serde(default)]
    pub df: DontFragment,
    /// Outbound: length in bytes to which shorter packets are padded (traffic flow confidentiality, tunnel mode). 0
    /// disables this padding.
    #[serde(default)]
    pub tfc_pad_to: u16,
    /// Limits after which the SA should be replaced.
    #[serde(default)]
    pub soft: Limits,
    /// Limits after which the SA ends.
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
    /// Reads the keys from key files. Relative paths start at `directory`.
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
                return Err(format!("{name} and {name}_file are both set: set only one"));
            }
            let read = Key::from_file(&directory.join(path));
            *key = Some(read.map_err(|error| error.to_string())?);
        }
        Ok(())
    }

    /// Checks the rules that the types of the fields do not express.
    ///
    /// # Errors
    /// Describes the first problem and its remedy.
    pub fn check(&self, allow_no_integrity: bool) -> Result<(), String> {
        let require = |holds: bool, problem: &str| holds.then_some(()).ok_or(problem.to_owned());
        require(self.spi >= 256, "spi must be 256 or more (RFC 4303, 2.1)")?;
        require(self.bundle != 0, "bundle must not be 0")?;
        let files = self.key_file.is_some() || self.integrity_key_file.is_some();
        require(
            !files,
            "the engine does not read key_file and integrity_key_file: the client must send the keys",
        )?;
        require(
            self.algorithm != Algorithm::NullWithoutIntegrity || allow_no_integrity,
            "an SA without integrity needs an engine with --allow-null-without-integrity-for-benchmarks",
        )?;
        require(
            self.dscp.is_none_or(|dscp| dscp < 64),
            "dscp must be 0 to 63",
        )?;
        let window = self.replay_window.unwrap_or(64);
        require(window <= MAX_WINDOW, "replay_window must be at most 4096")?;
        require(
            !self.esn || window > 0,
            "esn needs a replay_window above 0, to infer the upper half of sequence numbers",
        )?;
        match self.direction {
            Direction::Out => self.check_outbound(),
            Direction::In => self.check_inbound(),
        }
    }

    fn check_outbound(&self) -> Result<(), String> {
        if self.encapsulated || self.followed_by.is_some() || self.replay_window.is_some() {
            return Err(
                "encapsulated, followed_by and replay_window are for inbound SAs only".into(),
            );
        }
        match (self.local, self.remote) {
            (Some(local), Some(remote)) if local.is_ipv4() == remote.is_ipv4() => {}
            (Some(_), Some(_)) => {
                return Err("local and remote must be of the same address family".into());
            }
            _ => return Err("an outbound SA needs local and remote".into()),
        }
        if let Some(ports) = self.encapsulation
            && ports.local_port != NAT_TRAVERSAL
            && ports.remote_port != NAT_TRAVERSAL
        {
            return Err("local_port or remote_port of encapsulation must be 4500".into());
        }
        if self
            .encapsulation
            .is_some_and(|ports| ports.local_port == 0 || ports.remote_port == 0)
        {
            return Err("local_port and remote_port of encapsulation must not be 0".into());
        }
        if self.ttl == Some(0) {
            return Err("ttl must be 1 to 255".into());
        }
        let tunnel_only = self.ttl.is_some() || self.dscp.is_some() || self.tfc_pad_to != 0;
        if self.mode == Mode::Transport && (tunnel_only || self.df != DontFragment::Set) {
            return Err("ttl, dscp, df and tfc_pad_to are for tunnel mode only".into());
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
                "local, remote, encapsulation, ttl, dscp, df, tfc_pad_to and resume are for outbound SAs only"
                    .into(),
            );
        }
        if self.followed_by.is_some() && !self.encapsulated {
            return Err(
                "followed_by needs encapsulated, because only a peer behind NAT moves".into(),
            );
        }
        Ok(())
    }

    /// Returns the key, or an empty key if there is none.
    pub fn key_or_none(&self) -> Key {
        self.key.clone().unwrap_or_default()
    }

    /// Returns the integrity key, or an empty key if there is none.
    pub fn integrity_key_or_none(&self) -> Key {
        self.integrity_key.clone().unwrap_or_default()
    }
}
