// SPDX-License-Identifier: Apache-2.0
//! Tests published vectors. They can only be decrypted, because this engine generates other IVs. Encrypted packets are
//! tested with scapy (tests/test_scapy.py).

use sluice_esp::cipher::Cipher;
use sluice_esp::{Algorithm, Drop, Key};

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u32> = hex.chars().filter_map(|digit| digit.to_digit(16)).collect();
    digits
        .chunks(2)
        .map(|pair| (pair[0] << 4 | pair[1]) as u8)
        .collect()
}

fn key(hex: &str) -> Key {
    Key::from_hex(hex.as_bytes()).unwrap()
}

/// Decrypts a vector's packet, and checks that changing any single bit makes decryption fail.
fn opens(cipher: &mut Cipher, sequence: u64, packet: &[u8], clear: &[u8]) {
    let mut work = packet.to_vec();
    let range = cipher.open(sequence, &mut work).unwrap();
    assert_eq!(work[range], *clear);
    for bit in 0..packet.len() * 8 {
        let mut work = packet.to_vec();
        work[bit / 8] ^= 1 << (bit % 8);
        // Without ESN the authenticated number is the 32-bit number in the packet.
        assert_eq!(
            cipher.open(sequence, &mut work),
            Err(Drop::IntegrityFailed),
            "bit {bit}"
        );
    }
}

/// The vectors of draft-mcgrew-gcm-test-01 with keys of 128 and 256 bits: key, salt and IV, AAD, clear text,
/// ciphertext, ICV.
const GCM: [[&str; 6]; 9] = [
    [
        "4c80cdefbb5d10da906ac73c3613a634",
        "2e443b684956ed7e3b244cfe",
        "000043218765432100000000",
        "45000048699a000080114db7c0a80102c0a801010a9bf15638d301000001000000000000045f736970045f756470037369700963796265\
         726369747902646b000021000101020201",
        "fecf537e729d5b07dc30df528dd22b768d1b98736696a6fd348509fa13ceac34cfa2436f14a3f3cf65925bf1f4a13c5d15b21e1884f5ff\
         6247aeabb786b93bce61bc17d768fd9732",
        "459018148f6cbe722fd04796562dfdb4",
    ],
    [
        "feffe9928665731c6d6a8f9467308308",
        "cafebabefacedbaddecaf888",
        "0000a5f80000000a",
        "4500003e698f000080114dccc0a80102c0a801010a980035002a2343b2d001000001000000000000037369700963796265726369747902\
         646b00000100010001",
        "deb22cd9b07c72c16e3a65beeb8df304a5a5897d33ae530f1ba76d5d114d2a5c3de81827c10e9a4f51330d0eec416642cfbb85a5b47e48\
         a4ec3b9ba95d918bd1",
        "83b70d3aa8bc6ee4c309e9d85a41ad4a",
    ],
    [
        "abbccddef00112233445566778899aababbccddef00112233445566778899aab",
        "112233440102030405060708",
        "4a2cbfe300000002",
        "4500003069a6400080062690c0a801029389155e0a9e008b2dc57ee0000000007002400020bf0000020405b40101040201020201",
        "ff425c9b724599df7a3bcd510194e00d6a78107f1b0b1cbf06efae9d65a5d763748a637985771d347f0545659f14e99def842d8e",
        "b335f4eecfdbf831824b4c4915956c96",
    ],
    [
        "00000000000000000000000000000000",
        "000000000000000000000000",
        "0000000000000001",
        "4500003c99c500008001cb7a40679318010101010800075c020044006162636465666768696a6b6c6d6e6f707172737475767761626364\
         656667686901020201",
        "4688daf2f973a392732909c331d56d60f694abaa414b5e7ff5fdcdfff5e9a284456476492719ffb64de7d9dca1e1d894bc3bd57873ed4d\
         181d19d4d5c8c18af3",
        "f821d496eeb096e98ad2b69e4799c71d",
    ],
    [
        "3de09874b388e6491988d0c3607eae1f",
        "57690e434e280000a2fca1a3",
        "42f67e3f1010101010101010",
        "4500003c99c300008001cb7c40679318010101010800085c020043006162636465666768696a6b6c6d6e6f707172737475767761626364\
         656667686901020201",
        "fba2caa4853cf9f0f22cb10d86dd83b0fec75691cf1a04b00d1138ec9c35791765acbd8701ad79845bf9fe3fba487bc91755e6662b4c8d\
         0d1f5e22739530320a",
        "e0d731cc978ecafaeae88f00e80d6e48",
    ],
    [
        "abbccddef00112233445566778899aab",
        "decaf888cafedebaceface74",
        "000001000000000000000001",
        "4500004933ba00007f119106c3fb1d10c2b1d326c02831ce0035dd7b800302d500004e20001e8c18d75b81dc91baa0476b91b924b28038\
         9d92c963bac046ec959b6266c04722b14923010101",
        "18a6fd42f72cbf4ab2a2ea901f73d814e3e7f243d95412e1c349c1d2fbec168f9190feebaf2cb01984e65863965d7472b79da345e0e780\
         191f0d2f0e0f496c226f2127b27db35724e7845d68",
        "651f57e65f354f75ff17015769623436",
    ],
    [
        "abbccddef00112233445566778899aababbccddef00112233445566778899aab",
        "73616c74616e640169766563",
        "17405e67156f3126dd0db99b",
        "45080028732c00004006e9f90a0106120a01038f06b88023dd6bafbecb71260250101f646d540001",
        "f2d69ecdbd5a0d5b8d5ef38bad4da58d1f278fde98ef67549d524a3018d9a57ff4d3a31ce673119e",
        "451626c2415771e3b7eebca614c89b35",
    ],
    [
        "7d773d00c144c525ac619d18c84a3f47",
        "d966426743457e9182443bc6",
        "335467aeffffffff",
        "01020201",
        "437f866b",
        "cb3f699fe9b0822bac961c4504bef270",
    ],
    [
        "6c6567616c697a656d6172696a75616e61616e64646f69746265666f72656961",
        "7475726e333021696765746d",
        "796b6963ffffffffffffffff",
        "45000030da3a00008001df3bc0a80005c0a800010800c6cd020007006162636465666768696a6b6c6d6e6f707172737401020201",
        "f97ab2aa356d8edce17644ac8c78e25dd24dedbb29ebf1b64a274b39b49c3a864cd3d78ca4ae68a32b42458fb57dbe821dcc63b9",
        "d0937ba2945f669368661a329fb4c053",
    ],
];

#[test]
fn gcm_as_draft_mcgrew_gcm_test_has_it() {
    for [secret, nonce, aad, clear, sealed, icv] in GCM {
        let algorithm = match secret.len() {
            32 => Algorithm::Aes128Gcm,
            _ => Algorithm::Aes256Gcm,
        };
        let (salt, iv) = nonce.split_at(8);
        let (spi, number) = aad.split_at(8);
        let esn = number.len() == 16;
        let low = &number[number.len() - 8..];
        let cipher = Cipher::new(algorithm, &key(&format!("{secret}{salt}")), &key(""), esn);
        let packet = bytes(&[spi, low, iv, sealed, icv].concat());
        let sequence = u64::from_str_radix(number, 16).unwrap();
        if esn {
            let mut work = packet.clone();
            let mut cipher = cipher.unwrap();
            let range = cipher.open(sequence, &mut work).unwrap();
            assert_eq!(work[range], bytes(clear));
            let other_half = sequence ^ 1 << 40;
            assert_eq!(
                cipher.open(other_half, &mut packet.clone()),
                Err(Drop::IntegrityFailed)
            );
        } else {
            opens(&mut cipher.unwrap(), sequence, &packet, &bytes(clear));
        }
    }
}

#[test]
fn chacha20_poly1305_as_rfc_7634_appendix_a_has_it() {
    let secret = "808182838485868788898a8b8c8d8e8f909192939495969798999a9b9c9d9e9fa0a1a2a3";
    let packet = bytes(
        "0102030400000005101112131415161724039428b97f417e3c13753a4f05087b67c352e6a7fab1b982d466ef407ae5c614ee8099d52844eb\
         61aa95dfab4c02f72aa71e7c4c4f64c9befe2facc638e8f3cbec163fac469b502773f6fb94e664da9165b82829f641e076aaa8266b7fb0f7\
         b11b369907e1ad43",
    );
    let clear = bytes(
        "45000054a6f200004001e778c6336405c000020508005b7a3a080000553bec100007362708090a0b0c0d0e0f101112131415161718191a1b\
         1c1d1e1f202122232425262728292a2b2c2d2e2f303132333435363701020204",
    );
    let cipher = Cipher::new(Algorithm::ChaCha20Poly1305, &key(secret), &key(""), false);
    opens(&mut cipher.unwrap(), 5, &packet, &clear);
}

/// Decrypts the packets of RFC 3602. They have no integrity, so the test computes the ICV.
#[test]
fn aes_cbc_as_rfc_3602_case_5_has_it() {
    use aws_lc_rs::hmac;
    let body = bytes(
        "0000432100000001e96e8c08ab465763fd098d45dd3ff893f663c25d325c18c6a9453e194e120849a4870b66cc6b9965330013b4898dc856\
         a4699e523a55db080b59ec3a8e4b7e52775b07d1db34ed9c538ab50c551b874aa269add047ad2d5913ac19b7cfbad4a6",
    );
    let clear = bytes(
        "08000ebda70a00008e9c083db95b070008090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f202122232425262728292a2b2c2d2e2f\
         30313233343536370102030405060708090a0b0c0d0e0e01",
    );
    let integrity = [0x5a; 32];
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &integrity), &body);
    let packet = [&body, &tag.as_ref()[..16]].concat();
    let cipher = Cipher::new(
        Algorithm::Aes128CbcHmacSha256,
        &key("90d382b410eeba7ad938c46cec1a82bf"),
        &key(&"5a".repeat(32)),
        false,
    );
    opens(&mut cipher.unwrap(), 1, &packet, &clear);
}
