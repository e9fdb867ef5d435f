# SPDX-License-Identifier: Apache-2.0
"""Tests that the keys in charon's log are assigned to the right SA and the right direction."""

from sluice_testkit.charon_keys import ChildSa, EspKeys, child_sas

LOG = r"""
07[IKE] establishing CHILD_SA net{1}
09[CHD]   using AES_CBC for encryption
09[CHD]   using HMAC_SHA2_256_128 for integrity
09[CHD] encryption initiator key => 16 bytes @ 0x7f9e30003490
09[CHD]    0: 29 74 57 B1 60 45 BA 57 13 1F 11 C9 D3 96 BC FF  )tW.`E.W........
09[CHD] encryption responder key => 16 bytes @ 0x7f9e30003650
09[CHD]    0: D0 E8 1D B9 B3 68 66 2F 3B A4 94 AB 4D CB 29 F1  .....hf/;...M.).
09[CHD] integrity initiator key => 32 bytes @ 0x7f9e300026c0
09[CHD]    0: 52 83 B6 2E C2 3E CC 92 80 C3 D4 92 52 C6 FF 08  R....>......R...
09[CHD]   16: C0 B7 2D 63 96 1E 08 FD D2 CA 1B AB A7 77 98 25  ..-c.........w.%
09[CHD] integrity responder key => 32 bytes @ 0x7f9e300028d0
09[CHD]    0: 27 6A 2A 08 50 C7 73 2F 1C 1A 01 52 EE 7E 0D 37  'j*.P.s/...R.~.7
09[CHD]   16: 81 3D E9 BB EA C0 00 CC B8 68 AB EC 6C 33 CA 82  .=.......h..l3..
09[CHD] adding inbound ESP SA
09[CHD]   SPI 0xc45d1626, src 10.9.0.2 dst 10.9.0.1
09[CHD] adding outbound ESP SA
09[CHD]   SPI 0xb03fa2fe, src 10.9.0.1 dst 10.9.0.2
14[CHD]   using AES_CBC for encryption
14[CHD]   using HMAC_SHA2_256_128 for integrity
14[CHD] encryption initiator key => 16 bytes @ 0x7f9e200028e0
14[CHD]    0: B7 17 88 FD 8E 02 53 99 1F F3 79 B4 4C 52 40 7D  ......S...y.LR@}
14[CHD] encryption responder key => 16 bytes @ 0x7f9e20002580
14[CHD]    0: 51 AD 27 5F 68 F9 06 35 C1 3C A3 C5 94 A2 C7 11  Q.'_h..5.<......
14[CHD] integrity initiator key => 32 bytes @ 0x7f9e20003c50
14[CHD]    0: E9 E6 4B 1F 7D F5 C6 59 90 E8 37 87 F9 64 18 69  ..K.}..Y..7..d.i
14[CHD]   16: BF 81 9B AF E9 5A 92 07 FB 4A BA 9D 5F 59 AA B7  .....Z...J.._Y..
14[CHD] integrity responder key => 32 bytes @ 0x7f9e200037a0
14[CHD]    0: 80 E4 A1 3E 85 E8 1F FD 8C 53 13 97 35 0D 0B 55  ...>.....S..5..U
14[CHD]   16: D2 D6 9E 9E 03 9D 3B 85 24 53 21 44 5C 12 CF CE  ......;.$S!D\...
14[CHD] adding inbound ESP SA
14[CHD]   SPI 0x8b39234b, src 10.9.0.2 dst 10.9.0.1
14[CHD] registering outbound ESP SA
14[CHD]   SPI 0x7f280502, src 10.9.0.1 dst 10.9.0.2
10[CHD] adding outbound ESP SA
10[CHD]   SPI 0x7f280502, src 10.9.0.1 dst 10.9.0.2
"""
"""Log of strongSwan 5.9.8. This host initiated the first child SA; the peer rekeyed it."""
FIRST, SECOND = (
    ChildSa(
        EspKeys(
            0xC45D1626,
            "d0e81db9b368662f3ba494ab4dcb29f1",
            "276a2a0850c7732f1c1a0152ee7e0d37813de9bbeac000ccb868abec6c33ca82",
        ),
        EspKeys(
            0xB03FA2FE,
            "297457b16045ba57131f11c9d396bcff",
            "5283b62ec23ecc9280c3d49252c6ff08c0b72d63961e08fdd2ca1baba7779825",
        ),
    ),
    ChildSa(
        EspKeys(
            0x8B39234B,
            "b71788fd8e0253991ff379b44c52407d",
            "e9e64b1f7df5c65990e83787f9641869bf819bafe95a9207fb4aba9d5f59aab7",
        ),
        EspKeys(
            0x7F280502,
            "51ad275f68f90635c13ca3c594a2c711",
            "80e4a13e85e81ffd8c531397350d0b55d2d69e9e039d3b85245321445c12cfce",
        ),
    ),
)


def test_who_asks_sends_by_the_initiators_key() -> None:
    assert child_sas(LOG) == [FIRST, SECOND]


def test_a_dump_whose_last_line_is_short() -> None:
    log = """\
05[IKE] <peer|1> establishing CHILD_SA net{1}
05[CHD] <peer|1> encryption initiator key => 20 bytes @ 0x7f0000000000
05[CHD] <peer|1>    0: 00 01 02 03 04 05 06 07 08 09 0A 0B 0C 0D 0E 0F  ................
05[CHD] <peer|1>   16: 41 42 20 44                                      AB D
05[CHD] <peer|1> encryption responder key => 20 bytes @ 0x7f0000000000
05[CHD] <peer|1>    0: 10 11 12 13 14 15 16 17 18 19 1A 1B 1C 1D 1E 1F  ................
05[CHD] <peer|1>   16: 30 31 32 33                                      0123
05[CHD] <peer|1> adding inbound ESP SA
05[CHD] <peer|1>   SPI 0x00000101, src 10.0.2.1 dst 10.0.1.1
05[CHD] <peer|1> adding outbound ESP SA
05[CHD] <peer|1>   SPI 0x00000102, src 10.0.1.1 dst 10.0.2.1
"""
    (sa,) = child_sas(log)
    assert sa.outbound == EspKeys(0x102, "000102030405060708090a0b0c0d0e0f41422044", "")
    assert sa.inbound == EspKeys(0x101, "101112131415161718191a1b1c1d1e1f30313233", "")


def test_a_log_that_ends_anywhere() -> None:
    """Reads logs that end at an arbitrary byte, as when charon is still writing.

    Checks that a child SA is returned only when the log has all its data.
    """
    whole = [len(child_sas(LOG[:length])) for length in range(0, len(LOG), 7)]
    assert whole == sorted(whole)
    assert whole[-1] == 2
