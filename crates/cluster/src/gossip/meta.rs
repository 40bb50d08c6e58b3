//! The report on the wire: a version byte, a fixed layout, a signature. Nothing here uses the
//! network.
//!
//! ```text
//!   version 1 | flags 1 | boot id 16 | instance 8 | isolation 4 | digest 32 | generation 8 | program 0..=24
//!     [ zero 1 | amiss 8 [ epoch 8 | api port 2 [ sequence 8 | signed at 8 ] ] ] | signature 64
//! ```
//! The number after a field is its size in bytes. A report has at most 193 bytes. `program` is the
//! version of the agent's program as text. The fields in brackets are sent only if they are not
//! zero. A program that does not know these fields reads all others except the program version.
//! Unknown trailing bytes are ignored. Numbers are big endian.
//!
//! In every version, also in future ones, the first byte is the version. The last 64 bytes are an
//! ed25519 signature over (cluster, name, advertised address, everything before the signature). So
//! a record cannot be replayed for another cluster, node or address, and an older node can check a
//! newer node's signature.

use ed25519_dalek::{Signature, Signer, SigningKey, VerifyingKey};
use remoor_model::{BootId, CheckSummary, ClusterId, Epoch, GenerationSeq, Instance, NodeName, Report, Sha256, Wall};
use std::net::{IpAddr, SocketAddr};

/// Maximum size of an encoded report, in bytes. memberlist would accept 512.
pub const META_MAX: usize = 256;

const VERSION: u8 = 1;
const PAYLOAD: usize = 1 + 1 + 16 + 8 + 4 + 32 + 8;
const SIGNATURE: usize = 64;
/// Maximum length of a program version that is sent, in bytes; a longer one is cut.
const PROGRAM_MAX: usize = 24;
/// The byte after the program version if further fields follow. The version text never contains it.
const PROGRAM_END: u8 = 0;
const AMISS: usize = 8;
const EPOCH: usize = 8;
const API: usize = 2;
const SEQUENCE: usize = 8;
const SIGNED_AT: usize = 8;
const LEAVING: u8 = 1;
const CHECKS_SHIFT: u8 = 1;
const MANAGES: u8 = 8;
/// The node reads and sends datagrams with envelopes.
const READS_ENVELOPES: u8 = 16;

/// The reason why a report cannot be encoded.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum MetaError {
    /// A boot id that is not a UUID, because of a bug or an unusual kernel.
    #[error("boot id {0:?} is not a UUID")]
    Boot(String),
    /// An instance that is not 16 hex digits, because of a bug of the caller.
    #[error("instance {0:?} is not 16 hex digits")]
    Instance(String),
}

/// The data that a signature covers in addition to the payload.
#[derive(Debug, Clone, Copy)]
pub struct SignatureScope<'a> {
    pub cluster: &'a ClusterId,
    pub name: &'a NodeName,
    /// The advertised address.
    pub addr: SocketAddr,
}

/// Encodes and signs a report. An empty boot id or instance is sent as zeros and decodes as empty.
pub fn encode(report: &Report, scope: SignatureScope<'_>, signer: &SigningKey) -> Result<Vec<u8>, MetaError> {
    let mut out = Vec::with_capacity(META_MAX);
    out.push(VERSION);
    let flags = (u8::from(report.leaving) * LEAVING) | (u8::from(report.manages) * MANAGES);
    out.push(flags | READS_ENVELOPES | (checks_to_bits(report.checks) << CHECKS_SHIFT));
    out.extend(uuid_to_bytes(report.boot.as_str()).ok_or_else(|| MetaError::Boot(report.boot.0.clone()))?);
    let mut instance = [0; 8];
    if !report.instance.0.is_empty() {
        hex::decode_to_slice(&report.instance.0, &mut instance)
            .map_err(|_| MetaError::Instance(report.instance.0.clone()))?;
    }
    out.extend(instance);
    out.extend(report.isolation.to_be_bytes());
    out.extend(report.digest.0);
    out.extend(report.generation.0.to_be_bytes());
    out.extend(report.version.bytes().filter(u8::is_ascii_graphic).take(PROGRAM_MAX));
    let stamped = report.sequence != 0;
    let placed = stamped || report.epoch != Epoch(0) || report.api != 0;
    if report.failure_hash != 0 || placed {
        out.push(PROGRAM_END);
        out.extend(report.failure_hash.to_be_bytes());
    }
    if placed {
        out.extend(report.epoch.0.to_be_bytes());
        out.extend(report.api.to_be_bytes());
    }
    if stamped {
        out.extend(report.sequence.to_be_bytes());
        out.extend(report.signed_at.0.to_be_bytes());
    }
    Ok(sign_as(out, scope, signer))
}

/// Appends the signature over a `payload` of any version.
pub(super) fn sign_as(mut payload: Vec<u8>, scope: SignatureScope<'_>, signer: &SigningKey) -> Vec<u8> {
    let signature = signer.sign(&signed_text(scope, &payload));
    payload.extend(signature.to_bytes());
    payload
}

/// Whether the last 64 bytes are a signature of `key` over the rest within `scope`. The check also
/// works for future versions.
pub fn verify(meta: &[u8], scope: SignatureScope<'_>, key: &VerifyingKey) -> bool {
    let Some((payload, signature)) = split(meta) else { return false };
    key.verify_strict(&signed_text(scope, payload), &Signature::from_bytes(signature)).is_ok()
}

/// Reads the report without checking the signature. None if it has another version or is no report.
pub fn decode(meta: &[u8]) -> Option<Report> {
    let (payload, _) = split(meta)?;
    let (payload, rest) = payload.split_first_chunk::<PAYLOAD>()?;
    let end = rest.iter().position(|byte| *byte == PROGRAM_END);
    let (program, more) = end.map_or((rest, &[][..]), |end| (&rest[..end], &rest[end + 1..]));
    let [version, flags, rest @ ..] = payload;
    if *version != VERSION {
        return None;
    }
    let (boot, rest) = rest.split_first_chunk::<16>()?;
    let (instance, rest) = rest.split_first_chunk::<8>()?;
    let (isolation, rest) = rest.split_first_chunk::<4>()?;
    let (digest, rest) = rest.split_first_chunk::<32>()?;
    let (generation, _) = rest.split_first_chunk::<8>()?;
    let (amiss, more) = more.split_first_chunk::<AMISS>().unwrap_or((&[0; AMISS], &[]));
    let place =
        more.split_first_chunk::<EPOCH>().and_then(|(epoch, more)| Some((epoch, more.split_first_chunk::<API>()?)));
    let (place, more) = place.map_or((None, &[][..]), |(epoch, (api, more))| (Some((epoch, api)), more));
    let stamp = more.split_first_chunk::<SEQUENCE>().and_then(|(n, more)| Some((n, more.first_chunk::<SIGNED_AT>()?)));
    // A time of signing without a sequence number is ignored, because reports are ordered by the
    // number.
    let stamp = stamp.filter(|(sequence, _)| **sequence != [0; SEQUENCE]);
    Some(Report {
        leaving: flags & LEAVING != 0,
        boot: BootId(uuid_to_text(boot)),
        instance: Instance(if *instance == [0; 8] { String::new() } else { hex::encode(instance) }),
        isolation: u32::from_be_bytes(*isolation),
        digest: Sha256(*digest),
        generation: GenerationSeq(u64::from_be_bytes(*generation)),
        checks: checks_from_bits((flags >> CHECKS_SHIFT) & 3),
        version: program_to_text(program),
        failure_hash: u64::from_be_bytes(*amiss),
        epoch: Epoch(place.map_or(0, |(epoch, _)| u64::from_be_bytes(*epoch))),
        api: place.map_or(0, |(_, api)| u16::from_be_bytes(*api)),
        manages: flags & MANAGES != 0,
        sequence: stamp.map_or(0, |(sequence, _)| u64::from_be_bytes(*sequence)),
        signed_at: Wall(stamp.map_or(0, |(_, at)| u64::from_be_bytes(*at))),
    })
}

/// Whether the node of this signed report reads datagrams with envelopes.
pub fn reads_envelopes(meta: &[u8]) -> bool {
    let flags = split(meta).filter(|(payload, _)| payload[0] == VERSION).and_then(|(payload, _)| payload.get(1));
    flags.is_some_and(|flags| flags & READS_ENVELOPES != 0)
}

/// The version byte of a signed report. None if the bytes are not a report.
pub fn version_of(meta: &[u8]) -> Option<u8> {
    split(meta).and_then(|(payload, _)| payload.first().copied())
}

/// The program version. Bytes that are no version text give an empty version.
fn program_to_text(bytes: &[u8]) -> String {
    let good = bytes.len() <= PROGRAM_MAX && bytes.iter().all(u8::is_ascii_graphic);
    if good { String::from_utf8_lossy(bytes).into_owned() } else { String::new() }
}

fn split(meta: &[u8]) -> Option<(&[u8], &[u8; SIGNATURE])> {
    if meta.len() > META_MAX {
        return None;
    }
    meta.split_last_chunk::<SIGNATURE>().filter(|(payload, _)| !payload.is_empty())
}

/// The bytes that are signed. Length prefixes make them unambiguous. The first field separates them
/// from anything else that is signed with the node's key.
fn signed_text(scope: SignatureScope<'_>, payload: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(256);
    let addr: Vec<u8> = match scope.addr.ip() {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    };
    let port = scope.addr.port().to_be_bytes();
    for field in [b"remoor gossip report", scope.cluster.0.as_bytes(), scope.name.0.as_bytes(), &addr, &port, payload] {
        text.extend((field.len() as u64).to_be_bytes());
        text.extend_from_slice(field);
    }
    text
}

fn checks_to_bits(checks: CheckSummary) -> u8 {
    match checks {
        CheckSummary::None => 0,
        CheckSummary::Pass => 1,
        CheckSummary::Fail => 2,
        CheckSummary::Unknown => 3,
    }
}

fn checks_from_bits(bits: u8) -> CheckSummary {
    match bits {
        1 => CheckSummary::Pass,
        2 => CheckSummary::Fail,
        3 => CheckSummary::Unknown,
        _ => CheckSummary::None,
    }
}

/// Parses a UUID. Accepts only the usual form with four hyphens and lowercase letters, so that
/// decoding returns the encoded text.
fn uuid_to_bytes(text: &str) -> Option<[u8; 16]> {
    let mut out = [0; 16];
    if text.is_empty() {
        return Some(out);
    }
    hex::decode_to_slice(text.replace('-', ""), &mut out).ok()?;
    (uuid_to_text(&out) == text).then_some(out)
}

fn uuid_to_text(bytes: &[u8; 16]) -> String {
    if *bytes == [0; 16] {
        return String::new();
    }
    let hex = hex::encode(bytes);
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key(seed: u8) -> SigningKey {
        SigningKey::from_bytes(&[seed; 32])
    }

    fn report() -> Report {
        Report {
            leaving: true,
            boot: "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0".into(),
            instance: "00000000deadbeef".into(),
            isolation: u32::MAX,
            digest: Sha256::digest(b"x"),
            generation: GenerationSeq(u64::MAX),
            checks: CheckSummary::Unknown,
            version: "0.1.0".into(),
            failure_hash: 0x0011_2233_4455_6677,
            epoch: Epoch(u64::MAX),
            api: 7947,
            manages: true,
            sequence: u64::MAX,
            signed_at: Wall(u64::MAX),
        }
    }

    struct Fixture {
        cluster: ClusterId,
        name: NodeName,
    }

    impl Fixture {
        fn new() -> Self {
            Self { cluster: "c0ffee".into(), name: "w1".into() }
        }
        fn scope(&self) -> SignatureScope<'_> {
            SignatureScope { cluster: &self.cluster, name: &self.name, addr: "10.0.0.1:7946".parse().expect("address") }
        }
    }

    #[test]
    fn a_full_report_comes_back_and_fits() {
        let f = Fixture::new();
        for report in [report(), Report::default()] {
            let meta = encode(&report, f.scope(), &key(1)).expect("encode");
            let more = if report.failure_hash == 0 { 0 } else { 1 + AMISS + EPOCH + API + SEQUENCE + SIGNED_AT };
            assert_eq!(meta.len(), PAYLOAD + report.version.len() + more + SIGNATURE);
            assert!(meta.len() <= META_MAX);
            assert_eq!(decode(&meta), Some(report));
            assert!(verify(&meta, f.scope(), &key(1).verifying_key()));
            assert!(reads_envelopes(&meta) && !reads_envelopes(&meta[..1]));
        }
    }

    #[test]
    fn a_signature_holds_for_its_own_scope_only() {
        let f = Fixture::new();
        let meta = encode(&report(), f.scope(), &key(1)).expect("encode");
        let public = key(1).verifying_key();
        let other = ClusterId::from("c0ffe");
        assert!(!verify(&meta, SignatureScope { cluster: &other, ..f.scope() }, &public));
        let other = NodeName::from("w2");
        assert!(!verify(&meta, SignatureScope { name: &other, ..f.scope() }, &public));
        let addr = "10.0.0.1:7947".parse().expect("address");
        assert!(!verify(&meta, SignatureScope { addr, ..f.scope() }, &public));
        assert!(!verify(&meta, f.scope(), &key(2).verifying_key()));
        for byte in 0..meta.len() {
            let mut tampered = meta.clone();
            tampered[byte] ^= 1;
            assert!(!verify(&tampered, f.scope(), &public), "byte {byte}");
        }
    }

    #[test]
    fn a_newer_version_is_not_read_but_its_signature_is_checked() {
        let f = Fixture::new();
        let meta = sign_as(vec![2, 7, 7, 7], f.scope(), &key(1));
        assert_eq!((decode(&meta), version_of(&meta)), (None, Some(2)));
        assert!(verify(&meta, f.scope(), &key(1).verifying_key()));
    }

    #[test]
    fn the_programs_version_is_optional_bounded_and_plain() {
        let f = Fixture::new();
        let sent = |version: &str| {
            let report = Report { version: version.to_owned(), ..report() };
            let meta = encode(&report, f.scope(), &key(1)).expect("encode");
            assert!(meta.len() <= META_MAX);
            decode(&meta).expect("a report").version
        };
        assert_eq!(sent(""), "", "an agent that does not send its version");
        assert_eq!(sent("0.0.9"), "0.0.9");
        assert_eq!(sent("1.0.0-\u{1b}[31m"), "1.0.0-[31m");
        assert_eq!(sent(&"9".repeat(300)), "9".repeat(PROGRAM_MAX));
        // Bytes that a later program appends are not read as the program version.
        let mut payload = encode(&Report::default(), f.scope(), &key(1)).expect("encode")[..PAYLOAD].to_vec();
        payload.extend([0x01; 9]);
        payload.extend([0; SIGNATURE]);
        assert_eq!(decode(&payload).expect("a report").version, "");
    }

    #[test]
    fn what_is_amiss_is_sent_only_where_something_is_and_an_older_report_says_nothing_of_it() {
        let f = Fixture::new();
        let sent = |report: &Report| encode(report, f.scope(), &key(1)).expect("encode");
        // An older program sends its report without a sequence number and without a time of
        // signing.
        let unstamped = |report: Report| Report { sequence: 0, signed_at: Wall(0), ..report };
        let fine = unstamped(Report { failure_hash: 0, epoch: Epoch(0), api: 0, ..report() });
        let meta = sent(&fine);
        assert_eq!(meta.len(), PAYLOAD + fine.version.len() + SIGNATURE);
        assert_eq!(decode(&meta), Some(fine));
        // The reports have no program version, a short one or the longest one; each is also read
        // with trailing bytes and truncated.
        for version in ["", "0.1.0", "999999999999999999999999"] {
            let full = Report { failure_hash: u64::MAX, version: version.to_owned(), ..report() };
            let meta = sent(&full);
            assert!(meta.len() <= 193);
            assert_eq!(decode(&meta), Some(full.clone()));
            let payload = &meta[..meta.len() - SIGNATURE];
            let longer = sign_as([payload, &[1, 0, 2]].concat(), f.scope(), &key(1));
            assert_eq!(decode(&longer), Some(full.clone()), "trailing fields of a later program are ignored");
            let shorter = sign_as(payload[..payload.len() - 1].to_vec(), f.scope(), &key(1));
            assert_eq!(decode(&shorter), Some(unstamped(full.clone())));
            let full = unstamped(full);
            let payload = &payload[..payload.len() - SEQUENCE - SIGNED_AT];
            let shorter = sign_as(payload[..payload.len() - 1].to_vec(), f.scope(), &key(1));
            assert_eq!(decode(&shorter), Some(Report { epoch: Epoch(0), api: 0, ..full.clone() }));
            let shorter = sign_as(payload[..payload.len() - EPOCH - API - 1].to_vec(), f.scope(), &key(1));
            assert_eq!(decode(&shorter), Some(Report { failure_hash: 0, epoch: Epoch(0), api: 0, ..full.clone() }));
            // Reports as sent by programs without the fields after `amiss` or after `api`, and by a
            // program that has no failure to report.
            let earlier =
                [Report { epoch: Epoch(0), api: 0, ..full.clone() }, full.clone(), Report { failure_hash: 0, ..full }];
            for part in earlier {
                assert_eq!(decode(&sent(&part)), Some(part));
            }
        }
    }

    #[test]
    fn what_would_not_come_back_is_refused() {
        let f = Fixture::new();
        for boot in ["x", "0f1e2d3c4b5a69788796a5b4c3d2e1f0", "0F1E2D3C-4B5A-6978-8796-A5B4C3D2E1F0"] {
            let report = Report { boot: boot.into(), ..report() };
            assert_eq!(encode(&report, f.scope(), &key(1)), Err(MetaError::Boot(boot.to_owned())));
        }
        let report = Report { instance: "deadbeef".into(), ..report() };
        assert_eq!(encode(&report, f.scope(), &key(1)), Err(MetaError::Instance("deadbeef".to_owned())));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let f = Fixture::new();
            let _ = decode(&bytes);
            prop_assert!(!verify(&bytes, f.scope(), &key(1).verifying_key()));
        }

        #[test]
        fn what_decodes_encodes_to_the_same_payload(mut bytes in proptest::collection::vec(any::<u8>(), PAYLOAD + SIGNATURE)) {
            bytes[0] = VERSION;
            bytes[1] = bytes[1] & 15 | READS_ENVELOPES;
            let f = Fixture::new();
            let report = decode(&bytes).expect("the right length and version");
            let again = encode(&report, f.scope(), &key(1)).expect("encode");
            prop_assert_eq!(&again[..PAYLOAD], &bytes[..PAYLOAD]);
        }
    }
}
